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
from typing import Any, cast, get_args

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


Label = tuple[Relation | None, float | None]
"""A reply's label of a pair: the relation, which may be one that the roles do not allow, None for no dependency; and
the confidence in [0, 1], None where the reply does not say."""
Labels = Mapping[Pair, Label]


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
    role = "dependency"
    while pending:
        smaller: list[PairQuestion] = []
        for start in range(0, len(pending), WAVE):
            wave = pending[start : start + WAVE]
            requests = [_request(part, role, annotator) for part in wave]
            answers = ask(requests, annotator.backend, annotator.replies, check)
            for part, answer in zip(wave, answers, strict=True):
                labels = labels_of_rubric[part.subject.rubric_id]
                attempt = answer.attempts[-1]
                labels.calls.append(as_call(attempt))
                smaller += _take(part, answer.value or {}, attempt, labels)
            annotator.tell(f"{role}: {start + len(wave):,} of {len(pending):,} calls, {len(smaller):,} to ask again")
        pending = smaller
        role = "contract_repair"
    return labels_of_rubric


def pair_requests(questions: Sequence[PairQuestion], annotator: Annotator) -> Iterator[Request]:
    """The first requests about the pairs of rubrics, one after the other."""
    for question in questions:
        for part in _parts(question, question.pairs, annotator.pairs_per_call):
            yield _request(part, "dependency", annotator)


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
    labels: dict[Pair, Label] = {}
    numbers = _numbers(len(question.pairs))
    violations = [f"pair {name[:40]}: not asked about" for name in pairs if name not in numbers]
    for number, pair, relations in zip(numbers, question.pairs, question.labels, strict=True):
        label, problems = _label(pairs.get(number), relations)
        if label:
            labels[pair] = label
        violations += [f"pair {number}: {problem}" for problem in problems]
    return Checked(labels, tuple(violations))


def _parts(question: PairQuestion, pairs: Sequence[Pair], size: int) -> Iterator[PairQuestion]:
    for start in range(0, len(pairs), size):
        yield PairQuestion(question.subject, question.roles, tuple(pairs[start : start + size]))


def _take(part: PairQuestion, labels: Labels, attempt: Attempt[Labels], mine: PairLabels) -> list[PairQuestion]:
    """Takes what can be used of a reply; returns what is to be asked again. A pair alone that failed stays so: with a
    relation that its roles do not allow, or with none at all."""
    missing = []
    for pair, relations in zip(part.pairs, part.labels, strict=True):
        relation, confidence = labels.get(pair, (None, None))
        if pair in labels and relation in (None, *relations):
            if relation:
                mine.proposals.append(EdgeProposal(*pair, relation, confidence))
        elif len(part.pairs) > 1:
            missing.append(pair)
        elif relation:
            mine.proposals.append(EdgeProposal(*pair, relation, confidence))
        else:
            why = attempt.reply.error or "; ".join(attempt.checked.violations)
            mine.proposals.append(EdgeProposal(*pair, None, dropped="failed", detail=why[:400]))
    return list(_parts(part, missing, max(1, -(-len(missing) // 2))))


def _request(part: PairQuestion, role: str, annotator: Annotator) -> Request:
    def shown(name: str) -> dict[str, str]:
        return {"id": name, "role": part.roles[name], "text": wording(part.subject.by_id[name])}

    pairs = zip(count(1), part.pairs, part.labels, strict=False)
    listed = lines(
        {"pair": number, "parent": shown(parent), "child": shown(child), "labels": [NONE, *labels]}
        for number, (parent, child), labels in pairs
    )
    prompt = instructions("dependency", annotator.plan.profile, part.subject)
    question = PROMPTS.fill("dependency_list", {"pairs": listed})
    return Request(
        messages=(Message("system", prompt), Message("user", question)),
        role=role,
        subject=part.subject.rubric_id,
        keys=frozenset({"pairs"}),
        schema=_schema(part.labels) if annotator.structured else None,
        sampling=annotator.sampling(_TOKENS + _TOKENS_PER_PAIR * len(part.pairs)),
        data=part,
        data_digest=annotator.data_digest(part.subject, part.roles),
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


def _label(entry: Any, relations: Sequence[Relation]) -> tuple[Label | None, list[str]]:
    """(the label, what is wrong with it)."""
    if not isinstance(entry, dict):
        return None, ["no label" if entry is None else f"{entry!r:.40} is no label"]
    stated = entry.get("relation")
    sure = entry.get("confidence")
    problems = list[str]()
    name = stated.strip().lower() if isinstance(stated, str) else None
    if name != NONE and name not in _RELATIONS:
        return None, [f"{stated!r:.40} is no relation"]
    relation = None if name == NONE else cast(Relation, name)
    if sure is not None and (isinstance(sure, bool) or not isinstance(sure, int | float) or not 0 <= sure <= 100):
        problems.append(f"confidence {sure!r:.40} is not between 0 and 100")
        sure = None
    if relation not in (None, *relations):
        problems.append(f"its roles allow no {relation}")
    return (relation, None if sure is None else sure / 100), problems
