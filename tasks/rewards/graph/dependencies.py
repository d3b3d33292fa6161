"""Asking which candidate pairs are dependencies, and of what kind (GEAR, appendix A.4), so that failures stay small.

Contract: `{"pairs": {"1": {"relation": one that the pair's roles allow or "none", "confidence": 0 to 100}}}`. The calls
of all rubrics go out together. What a reply labels well stays; the other pairs of its call are asked about again in
halves, down to a pair alone, which fails for good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, count
from typing import Any, NamedTuple, cast, get_args

from rubricflow.tasks.core.contracts.graph import Relation, Role
from rubricflow.tasks.core.llm.ask import Attempt, Checked, as_call, ask
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.llm.schema import record
from rubricflow.tasks.rewards.graph.annotator import PROMPTS, Annotator, instructions, lines, wording
from rubricflow.tasks.rewards.graph.project import EdgeProposal
from rubricflow.tasks.rewards.graph.subject import GraphSubject, Pair, allowed

NONE = "none"
"""Stands before the relations in all that a model reads: a small one takes what it reads first."""
WAVE = 2_000
"""Most calls that go out at once: it bounds the memory, and a line is logged after each."""
_RELATIONS: tuple[str, ...] = get_args(Relation)
_TOKENS, _TOKENS_PER_PAIR = 64, 48


@dataclass(frozen=True)
class PairQuestion:
    """Pairs of one rubric that one request asks about; its `data`."""

    subject: GraphSubject
    roles: Mapping[str, Role]
    pairs: tuple[Pair, ...]

    @property
    def labels(self) -> tuple[tuple[Relation, ...], ...]:
        """What the roles of each pair allow."""
        return tuple(allowed(self.roles, pair) for pair in self.pairs)


class PairLabel(NamedTuple):
    """A reply's label of a pair."""

    relation: Relation | None
    """None for no dependency; it may be one that the roles do not allow."""
    confidence: float | None
    """In [0, 1]; None where the reply does not say."""
    fits: bool
    """Whether the roles allow it."""


Labels = Mapping[Pair, PairLabel]


@dataclass
class PairLabels:
    """What a rubric's annotator said of its pairs."""

    proposals: list[EdgeProposal] = field(default_factory=list)
    """Pairs with a relation, and those that failed."""
    calls: list[dict[str, Any]] = field(default_factory=list)
    """Its calls as rows of `Call`."""


def ask_dependencies(questions: Sequence[PairQuestion], annotator: Annotator) -> dict[str, PairLabels]:
    """Rubric → the proposals for its pairs. wanted: one for each rubric, with all its pairs."""
    labels_of_rubric = {question.subject.rubric_id: PairLabels() for question in questions}
    size = annotator.pairs_per_call
    pending = list(chain.from_iterable(_parts(question, question.pairs, size) for question in questions))
    shared = {question.subject.rubric_id: _shared(question, annotator) for question in questions}
    role = "dependency"
    while pending:
        smaller: list[PairQuestion] = []
        for start in range(0, len(pending), WAVE):
            wave = pending[start : start + WAVE]
            requests = [_request(part, shared[part.subject.rubric_id], role, annotator) for part in wave]
            answers = ask(requests, annotator.backend, annotator.replies, check)
            for part, answer in zip(wave, answers, strict=True):
                labels, attempt = labels_of_rubric[part.subject.rubric_id], answer.attempts[-1]
                labels.calls.append(as_call(attempt))
                smaller += _take(part, answer.value or {}, attempt, labels)
            annotator.tell(f"{role}: {start + len(wave):,} of {len(pending):,} calls, {len(smaller):,} to ask again")
        pending, role = smaller, "contract_repair"
    return labels_of_rubric


def pair_requests(questions: Sequence[PairQuestion], annotator: Annotator) -> Iterator[Request]:
    """The first requests about the pairs of rubrics, one after the other."""
    for question in questions:
        shared = _shared(question, annotator)
        for part in _parts(question, question.pairs, annotator.pairs_per_call):
            yield _request(part, shared, "dependency", annotator)


def check(request: Request, reply: Reply) -> Checked[Labels]:
    """The labels of a reply by pair, with a violation for each pair that has none or one that its roles do not allow.

    A confidence off its range is left out, with a violation.
    """
    question: PairQuestion = request.data
    artifact, note = extract(reply.text, request.keys)
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    pairs = artifact["pairs"]
    if not isinstance(pairs, dict):
        return Checked(None, ("malformed: 'pairs' is no object",))
    labels: dict[Pair, PairLabel] = {}
    violations = [f"pair {name[:40]}: not asked about" for name in pairs if name not in _numbers(len(question.pairs))]
    for number, pair, relations in zip(_numbers(len(question.pairs)), question.pairs, question.labels, strict=True):
        label, problem = _label(pairs.get(number), relations)
        if label:
            labels[pair] = label
        if problem:
            violations.append(f"pair {number}: {problem}")
    return Checked(labels, tuple(violations))


def _parts(question: PairQuestion, pairs: Sequence[Pair], size: int) -> Iterator[PairQuestion]:
    for start in range(0, len(pairs), size):
        yield PairQuestion(question.subject, question.roles, tuple(pairs[start : start + size]))


def _take(part: PairQuestion, labels: Labels, attempt: Attempt[Labels], mine: PairLabels) -> list[PairQuestion]:
    """Takes what can be used of a reply; returns what is to be asked again."""
    fitting = {pair: label for pair, label in labels.items() if label.fits}
    related = ((pair, label) for pair, label in fitting.items() if label.relation)
    mine.proposals += [EdgeProposal(*pair, label.relation, label.confidence) for pair, label in related]
    missing = [pair for pair in part.pairs if pair not in fitting]
    if len(part.pairs) > 1:
        return list(_parts(part, missing, max(1, -(-len(missing) // 2))))
    mine.proposals += [_failed(pair, labels.get(pair), attempt) for pair in missing]
    return []


def _failed(pair: Pair, label: PairLabel | None, attempt: Attempt[Labels]) -> EdgeProposal:
    """A pair alone that failed: with a relation that its roles do not allow, or with none at all."""
    if label:
        return EdgeProposal(*pair, label.relation, label.confidence)
    why = attempt.reply.error or "; ".join(attempt.checked.violations)
    return EdgeProposal(*pair, None, dropped="failed", detail=why[:400])


class _Shared(NamedTuple):
    """What all requests about one rubric have in common, made once."""

    instructions: str
    data_digest: str


def _shared(question: PairQuestion, annotator: Annotator) -> _Shared:
    prompt = instructions("dependency", annotator.plan.profile, question.subject)
    return _Shared(prompt, annotator.data_digest(question.subject, question.roles))


def _request(part: PairQuestion, shared: _Shared, role: str, annotator: Annotator) -> Request:
    def shown(name: str) -> dict[str, str]:
        return {"id": name, "role": part.roles[name], "text": wording(part.subject.by_id[name])}

    pairs = zip(count(1), part.pairs, part.labels, strict=False)
    listed = lines(
        {"pair": number, "parent": shown(parent), "child": shown(child), "labels": [NONE, *labels]}
        for number, (parent, child), labels in pairs
    )
    question = PROMPTS.fill("dependency_list", {"pairs": listed})
    return Request(
        messages=(Message("system", shared.instructions), Message("user", question)),
        role=role,
        subject=part.subject.rubric_id,
        keys=frozenset({"pairs"}),
        schema=_schema(part.labels) if annotator.structured else None,
        sampling=annotator.sampling(_TOKENS + _TOKENS_PER_PAIR * len(part.pairs)),
        data=part,
        data_digest=shared.data_digest,
    )


@cache
def _schema(labels: tuple[tuple[Relation, ...], ...]) -> dict[str, Any]:
    """The contract for pairs with these labels; made once, so that its digest is, too."""
    sure = {"type": "integer", "minimum": 0, "maximum": 100}
    pairs = [
        record({"relation": {"type": "string", "enum": [NONE, *question]}, "confidence": sure}) for question in labels
    ]
    return record({"pairs": record(dict(zip(_numbers(len(pairs)), pairs, strict=True)))})


@cache
def _numbers(count: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(1, count + 1))


def _label(entry: Any, relations: Sequence[Relation]) -> tuple[PairLabel | None, str | None]:
    """(the label, what is wrong with it)."""
    if not isinstance(entry, dict):
        return None, "no label" if entry is None else f"{entry!r:.40} is no label"
    relation_text = entry.get("relation")
    name = relation_text.strip().lower() if isinstance(relation_text, str) else None
    if name != NONE and name not in _RELATIONS:
        return None, f"{relation_text!r:.40} is no relation"
    relation = None if name == NONE else cast(Relation, name)
    sure, problem = _confidence(entry.get("confidence"))
    if relation is None or relation in relations:
        return PairLabel(relation, sure, True), problem
    return PairLabel(relation, sure, False), f"its roles allow no {relation}"


def _confidence(value: Any) -> tuple[float | None, str | None]:
    if value is None:
        return None, None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None, f"confidence {value!r:.40} is not between 0 and 100"
    return value / 100, None
