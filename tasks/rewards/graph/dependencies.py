"""Asking a language model for a rubric's graph: all of it in one call, in two orders or more.

Contract: `{"roles": {id: role}, "edges": [{"child": id, "parent": id, "relation": one, "reason": text}]}` (GEAR,
appendices A.2 and A.4, which ask about pairs a few at a time). What depends on the order in which criteria are listed
is no dependency of theirs: an edge stays where all replies name it the same way round. The calls of all rubrics go out
together; a reply with something that cannot be used is asked for again, whole.

Where no model is asked, a graph holds what its criteria state themselves, which is certain.
A criterion that names another one as its condition depends on it: "if criterion 2 is met, …", "where C2 holds, …",
"falls das vorige Kriterium erfüllt ist, …". Another one is named by its id, where that holds a digit or stands in
quotes, by its number in the rubric after a word for criterion, or as the one before. An id alone counts only as
something that is met, or it may be a substance. What denies the condition ("unless", "if C2 is not met") licenses
nothing. Nothing else is read into the wording.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast, get_args

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.graph import Relation, Role
from rubricflow.tasks.core.contracts.tables.rubrics import Dropped
from rubricflow.tasks.core.llm.ask import Checked, all_again, as_call, ask_amending
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.llm.schema import record, several, text
from rubricflow.tasks.rewards.graph.annotator import (
    PROMPTS,
    Annotator,
    instructions,
    is_structured,
    lines,
    query,
    wording,
)
from rubricflow.tasks.rewards.graph.project import STRENGTH, EdgeProposal
from rubricflow.tasks.rewards.graph.subject import GraphSubject, Pair, allowed, by_sign, roles_by_sign

_REASON = 300
"""Characters of a reason, at most."""
_TOKENS, _TOKENS_PER_ROLE, _TOKENS_PER_EDGE, _EDGES_PER_CHILD = 256, 24, 72, 6
_RELATIONS: tuple[Relation, ...] = get_args(Relation)
_ORDERS = ("in the rubric's order", "from the rubric's last one to its first", "in an order drawn by chance")


class StatedEdge(NamedTuple):
    """What a reply says of a pair."""

    relation: Relation
    reason: str


class GraphReply(NamedTuple):
    """What of a reply can be used."""

    roles: dict[str, Role]
    edges: dict[Pair, StatedEdge]


@dataclass
class Annotated:
    """What the replies about a rubric come to."""

    roles: dict[str, Role] = field(default_factory=dict)
    """Of the criteria that a reply gave one."""
    proposals: list[EdgeProposal] = field(default_factory=list)
    calls: list[Record] = field(default_factory=list)
    """Rows of `Call`."""
    failed: int = 0
    """Orders in which no reply could be used: with one, the rubric has no edge."""


def ask_graphs(subjects: Sequence[GraphSubject], annotator: Annotator) -> dict[str, Annotated]:
    """Rubric → what its annotator says of it. A rubric of one criterion, which has no pair, is not asked about."""
    requests = list(graph_requests(subjects, annotator))
    outcomes = ask_amending(requests, annotator.backend, annotator.replies, check, all_again(PROMPTS))
    replies: dict[str, list[GraphReply | None]] = {subject.rubric_id: [] for subject in subjects}
    found = {subject.rubric_id: Annotated() for subject in subjects}
    for outcome in outcomes:
        replies[outcome.request.subject].append(outcome.value)
        found[outcome.request.subject].calls += map(as_call, outcome.attempts)
    for subject in subjects:
        if given := replies[subject.rubric_id]:
            _put_together(found[subject.rubric_id], subject, given)
    if requests:
        annotator.tell(f"{len(requests):,} of {len(requests):,} calls")
    return found


def graph_requests(subjects: Sequence[GraphSubject], annotator: Annotator) -> Iterator[Request]:
    """The first requests about rubrics, one for each order; their `data` is the rubric."""
    for subject in subjects:
        if len(subject.ids) < 2:
            continue
        edges = min((len(subject.ids) - 1) / 2, _EDGES_PER_CHILD)
        tokens = _TOKENS + round(len(subject.ids) * (_TOKENS_PER_ROLE + _TOKENS_PER_EDGE * edges))
        for number in range(annotator.plan.orders):
            criteria = list(subject.criteria[:: -1 if number else 1])
            if number > 1:
                random.Random(number).shuffle(criteria)
            listed = lines({"id": c.id, "points": c.weight, "text": wording(c)} for c in criteria)
            yield Request(
                messages=(
                    Message("system", instructions(annotator.plan.profile, annotator.examples)),
                    Message(
                        "user",
                        PROMPTS.fill(
                            "graph_list",
                            {"query": query(subject), "order": _ORDERS[min(number, 2)], "criteria": listed},
                        ),
                    ),
                ),
                role="graph",
                subject=subject.rubric_id,
                keys=frozenset({"roles", "edges"}),
                schema=_schema(subject) if is_structured(annotator.plan) else None,
                sampling=annotator.sampling(tokens),
                data=subject,
            )


def check(request: Request, reply: Reply) -> Checked[GraphReply]:
    """The roles and edges of a reply that can be used, with a violation for each one that cannot: a role against the
    sign of the points, an edge of an unknown criterion, from one to itself, or one that the reply's roles rule out."""
    subject: GraphSubject = request.data
    artifact, note = extract(reply.text, request.keys)
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    stated, edges = artifact["roles"], artifact["edges"]
    if not isinstance(stated, dict) or not isinstance(edges, list):
        wrong = "'roles' is no object" if not isinstance(stated, dict) else "'edges' is no list"
        return Checked(None, (f"malformed: {wrong}",))
    found = GraphReply({}, {})
    violations = [f"'{name[:80]}': no criterion that was asked about" for name in stated if name not in subject.by_id]
    for criterion in subject.criteria:
        said = _word(stated.get(criterion.id))
        role = next((role for role in roles_by_sign(criterion) if role == said), None)
        if role:
            found.roles[criterion.id] = role
        else:
            why = f"{stated[criterion.id]!r:.40} is no role that it can have" if criterion.id in stated else "no role"
            violations.append(f"'{criterion.id[:80]}': {why}")
    roles = {criterion.id: by_sign(criterion) for criterion in subject.criteria} | found.roles
    for number, edge in enumerate(edges, 1):
        problem = _taken(edge, subject, roles, found.edges)
        violations += [f"edge {number}: {problem}"] if problem else []
    return Checked(found, tuple(violations))


def _taken(edge: object, subject: GraphSubject, roles: Mapping[str, Role], edges: dict[Pair, StatedEdge]) -> str | None:
    """Puts an edge of a reply with the others; what is wrong with it where it cannot be used."""
    if not isinstance(edge, dict):
        return f"{edge!r:.40} is no edge"
    pair = edge.get("parent"), edge.get("child")
    for name in pair:
        if not isinstance(name, str) or name not in subject.by_id:
            return f"there is no criterion {name!r:.80}"
    relation = _word(edge.get("relation"))
    if relation not in _RELATIONS:
        return f"{edge.get('relation')!r:.40} is no relation"
    parent, child = cast(Pair, pair)
    if relation not in allowed(roles, (parent, child)):
        return f"{roles[parent]} → {roles[child]} allows no {relation}" if parent != child else "from one to itself"
    if (parent, child) in edges:
        return f"{parent[:80]} → {child[:80]} is given twice"
    edges[parent, child] = StatedEdge(relation, str(edge.get("reason") or "").strip()[:_REASON])
    return None


def _word(value: object) -> str | None:
    return value.strip().lower() if isinstance(value, str) else None


def _put_together(found: Annotated, subject: GraphSubject, replies: Sequence[GraphReply | None]) -> None:
    """What all replies agree on. Of several roles the one that licenses most counts, core before applicability before
    the others; of several relations the weakest. What not all replies name is a dropped proposal."""
    usable = [reply for reply in replies if reply]
    found.failed = len(replies) - len(usable)
    for criterion in subject.criteria:
        said = {reply.roles[criterion.id] for reply in usable if criterion.id in reply.roles}
        if said:
            found.roles[criterion.id] = min(said, key=("core", "applicability", "additional", "penalty").index)
    for pair in dict.fromkeys(pair for reply in usable for pair in reply.edges):
        named = [reply.edges[pair] for reply in usable if pair in reply.edges]
        weakest = min(named, key=lambda edge: STRENGTH[edge.relation])
        dropped: Dropped | None = None if len(named) == len(replies) else "one_order"
        proposal = EdgeProposal(*pair, weakest.relation, dropped=dropped, detail=weakest.reason or None)
        found.proposals.append(proposal)


def _schema(subject: GraphSubject) -> Record:
    """The contract of a rubric."""
    roles = {c.id: {"type": "string", "enum": list(roles_by_sign(c))} for c in subject.criteria}
    one = {"type": "string", "enum": list(subject.ids)}
    relation = {"type": "string", "enum": list(_RELATIONS)}
    edge = record({"child": one, "parent": one, "relation": relation, "reason": text(_REASON)})
    most = len(subject.ids) * (len(subject.ids) - 1) // 2
    return record({"roles": record(roles), "edges": several(edge, 0, most)})


_CLAUSE = re.compile(
    r"(?<!\w)(?:if|when|whenever|where|once|provided(?: that)?|given(?: that)?|assuming|depends on|"
    r"wenn|falls|sofern|sobald|vorausgesetzt|se|quando|caso|desde que)(?!\w)([^.;:。；]{1,160})|"
    r"(?:如果|若|假如|当)([^.;:，。；]{1,80})",
    re.IGNORECASE,
)
"""A condition and what follows it, up to the end of the sentence; in Chinese, of the clause."""
_DENIED = re.compile(
    r"(?<!\w)(?:not|n't|no|unless|fails?|failed|missing|lacks?|without|nicht|kein\w*|fehlt|ohne|não|nao|sem|falta)(?!\w)"
    r"|n't(?!\w)|[不没未缺]",
    re.IGNORECASE,
)
_WORD = r"(?:criterion|criteria|requirements?|kriterium|critério|requisito)"
_MET = re.compile(
    r"(?<!\w)(?:met|holds?|satisfied|fulfilled|true|applies|passed|credited|awarded|earned|erfüllt|gilt|zutrifft|"
    r"atendido|cumprido|satisfeito)(?!\w)|满足|成立",
    re.IGNORECASE,
)
_NUMBERED = re.compile(
    rf"(?<!\w){_WORD}\s+(?:no\.?\s*|nr\.?\s*|#)?(\d+)(?!\w)|(?:标准|要求)\s*(\d+)",
    re.IGNORECASE,
)
_COMMA = re.compile(rf",\s(?!(?:(?:and|or|und|oder|e|ou)\s+)?(?:{_WORD}\s+)?[A-Za-z]{{0,3}}\d)", re.IGNORECASE)
"""Where a condition ends: at a comma that no further name follows."""
_BEFORE = re.compile(
    rf"(?<!\w)(?:(?:previous|preceding|above|vorige|vorhergehende|obige) {_WORD}|"
    rf"{_WORD} (?:above|before|anterior|acima)|the above (?:is met|holds|applies))(?!\w)|(?:上一|前一)(?:条|项)",
    re.IGNORECASE,
)


def stated_dependencies(subject: GraphSubject) -> list[EdgeProposal]:
    """An activation by each criterion that another one names as its condition, in the rubric's order of children."""
    proposals = []
    for place, child in enumerate(subject.criteria):
        for parent in dict.fromkeys(_conditions(subject, place)):
            proposals.append(EdgeProposal(parent, child.id, "activation", source="stated", detail="named as condition"))
    return proposals


def _conditions(subject: GraphSubject, place: int) -> Iterator[str]:
    """The criteria that the one at a place names as its conditions."""
    for clause in _CLAUSE.finditer(subject.criteria[place].text):
        said = clause[1] or clause[2]
        condition = _COMMA.split(said, maxsplit=1)[0]
        if _DENIED.search(condition):
            continue
        numbers = {int(one or other) for one, other in _NUMBERED.findall(condition)}
        for at, name in enumerate(subject.ids):
            if at == place:
                continue
            bare = re.escape(name)
            patterns = [rf"[\"'“‘«„]{bare}[\"'”’»“]"]
            if any(sign.isdigit() for sign in name) and not name.isdigit():
                after = "" if _MET.search(condition) else rf"(?i:{_WORD})\s+"
                patterns.append(rf"(?<!\w){after}{bare}(?![\w.]*\w)")
            is_numbered = (int(name) if name.isdigit() else at + 1) in numbers
            is_before = at == place - 1 and _BEFORE.search(condition)
            if is_numbered or is_before or any(re.search(pattern, condition) for pattern in patterns):
                yield name
