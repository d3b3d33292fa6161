"""What judging works on and what it makes: a case, a rater, and the rows of their tables, column by column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import Row, arrow_type, schema
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.tables.data import UNREAD
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Evidence, Gradings, Judgments
from rubricflow.tasks.core.llm.ask import Attempt, RequestOutcome
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.text.units import Unit, units
from rubricflow.tasks.grading.judge.score import Scored

FAILED = {"demote": "demoted", "drop": "dropped", "count": "counted"}
"""What a protocol does with a level whose quotes fail → what became of it."""


class Decision(NamedTuple):
    """A verified decision. `level` is None with a `reason`; `evidence` are rows as the contract `Evidence` has them."""

    criterion_id: str
    level: int | None
    stated: int | None = None
    reason: str | None = None
    evidence: tuple[dict[str, Any], ...] = ()
    verified: bool | None = None
    action: str = "none"


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
GREEDY = Sampling()
_FLOAT = pa.float64()
_EVIDENCE = pa.struct([(name, arrow_type(field.annotation)) for name, field in Evidence.model_fields.items()])


class WorkedExample(NamedTuple):
    """A response as people graded it. Scores are on steps of their scales."""

    response_id: str
    author_id: str | None
    text: str
    score: float
    traits: Mapping[str, float] = {}
    """Trait → score."""
    levels: Mapping[str, int] = {}
    """Criterion → level."""


class EarlierDecision(NamedTuple):
    """A decision of an earlier run that stands, and the probabilities that came with it."""

    decision: Decision
    probabilities: list[float] | None


@dataclass(frozen=True)
class Case:
    """One response to grade, with what the judge may see of its item."""

    response_id: str
    item_id: str
    text: str
    units: tuple[Unit, ...]
    question: str
    context: str | None
    bundle: Bundle
    bundle_id: str
    reference_answer: str | None = None
    earlier: Mapping[str, EarlierDecision] = field(default_factory=dict)
    """Criterion → what stands of an earlier run and is not asked again."""
    examples: tuple[WorkedExample, ...] = ()
    """What people graded and the judge is shown with the response, the best first."""
    unread: str | None = None
    """Why a person has to look at what was handed in and no judge is asked, a key of UNREAD."""


@dataclass(frozen=True)
class Rater:
    """Who judges: a backend under a name that stands for its whole configuration. `mender` answers repairs, the same
    backend where there is none."""

    rater_id: str
    kind: str
    backend: Backend
    mender: Backend | None = None
    sampling: Sampling = GREEDY
    want_logprobs: bool = False
    structured: bool = True
    sample: int = 0
    """Number of the repetition."""
    until: float = math.inf
    """From this time of `time.monotonic` on no reply is waited for."""


class Judged(NamedTuple):
    """A case's decisions, and the probability of each level of a criterion where the rater gives them."""

    case: Case
    decisions: Sequence[Decision]
    probabilities: Mapping[str, list[float]]


@dataclass
class Grading:
    """A case's scores. `confidence`: mean probability of the decided levels; `reason`: why there is no score."""

    case: Case
    scored: Scored
    signals: dict[str, float]
    confidence: float | None = None
    reason: str | None = None

    def __post_init__(self) -> None:
        self.signals["length"] = math.log1p(len(self.case.text))
        if self.confidence is not None:
            self.signals |= {"confidence": self.confidence, "uncertainty": 1 - self.confidence}

    @property
    def status(self) -> str:
        """scored, unscored, or precheck where it was settled without a call."""
        if "precheck" in self.signals:
            return "precheck"
        return "unscored" if self.scored.score is None else "scored"


class Called(NamedTuple):
    """The calls made for one part of a case."""

    case: Case
    part: str
    answer: RequestOutcome[Any]


@dataclass
class Graded:
    """What became of a batch, in the order of its cases."""

    rater: Rater
    judged: list[Judged] = field(default_factory=list)
    gradings: list[Grading] = field(default_factory=list)
    called: list[Called] = field(default_factory=list)

    def tables(self) -> dict[type[Row], pa.Table]:
        """The tables `judgments`, `gradings` and `attempts`."""
        return {
            Judgments: judgments(self.rater, self.judged),
            Gradings: gradings(self.rater, self.gradings),
            Attempts: attempts(self.rater, self.called),
        }


def judgments(rater: Rater, judged: Sequence[Judged]) -> pa.Table:
    """Decisions as the table `judgments`."""
    decisions: list[Decision] = []
    cases = []
    probabilities = []
    for of_case in judged:
        decisions += of_case.decisions
        cases += [of_case.case] * len(of_case.decisions)
        probabilities += [of_case.probabilities.get(decision.criterion_id) for decision in of_case.decisions]
    criterion_id, decision, stated, reason, evidence, verified, action = _unzipped(decisions, len(Decision._fields))
    columns = {
        "response_id": [case.response_id for case in cases],
        "criterion_id": criterion_id,
        "rater_id": _all(rater.rater_id, cases),
        "rater_kind": _all(rater.kind, cases),
        "sample": _all(rater.sample, cases),
        "bundle_id": [case.bundle_id for case in cases],
        "decision": decision,
        "stated": stated,
        "unscored_reason": reason,
        "level_probabilities": probabilities,
        "evidence": _quotes(evidence),
        "verified": verified,
        "action": action,
    }
    return _table(Judgments, columns)


def gradings(rater: Rater, graded: Sequence[Grading]) -> pa.Table:
    """Graded responses as the table `gradings`."""
    cases = [grading.case for grading in graded]
    scored = [grading.scored for grading in graded]
    signals = [dict(sorted(grading.signals.items())) for grading in graded]
    columns = {
        "response_id": [case.response_id for case in cases],
        "item_id": [case.item_id for case in cases],
        "rater_id": _all(rater.rater_id, cases),
        "rater_kind": _all(rater.kind, cases),
        "sample": _all(rater.sample, cases),
        "bundle_id": [case.bundle_id for case in cases],
        "score": [scores.score for scores in scored],
        "low": [scores.low for scores in scored],
        "high": [scores.high for scores in scored],
        "trait_scores": _numbers([scores.traits for scores in scored]),
        "signals": _numbers(signals),
        "confidence": [grading.confidence for grading in graded],
        "status": [grading.status for grading in graded],
        "unscored_reason": [grading.reason for grading in graded],
    }
    return _table(Gradings, columns)


def attempts(rater: Rater, called: Sequence[Called]) -> pa.Table:
    """Calls as the table `attempts`."""
    calls = []
    numbers: list[int] = []
    tries: list[Attempt[Any]] = []
    for call in called:
        count = len(call.answer.attempts)
        calls += [call] * count
        numbers += range(count)
        tries += call.answer.attempts
    columns: dict[str, Sequence[Any] | pa.Array] = {
        "response_id": [call.case.response_id for call in calls],
        "rater_id": _all(rater.rater_id, calls),
        "sample": _all(rater.sample, calls),
        "part": [call.part for call in calls],
        "attempt": numbers,
        "request_digest": [attempt.digest for attempt in tries],
        "model": [attempt.model for attempt in tries],
        "violations": [attempt.checked.violations for attempt in tries],
        "stored": [attempt.stored for attempt in tries],
    }
    requests = [attempt.request for attempt in tries]
    replies = [attempt.reply for attempt in tries]
    has_prose = rater.backend.reads_prose  # else nobody read the messages
    columns |= {
        "system": [request.content_of("system") if has_prose else None for request in requests],
        "prompt": [_writable(request.content_of("user")) if has_prose else None for request in requests],
        "characters": _numbers([request.characters for request in requests], pa.int64()),
        "seed": [request.sampling.seed for request in requests],
        "reply": [_writable(reply.text) for reply in replies],
        "error": [_writable(reply.error) for reply in replies],
        "provider": [reply.source and reply.source.provider for reply in replies],
    }
    for name in ("role", "mends", "memory"):
        columns[name] = [getattr(request, name) for request in requests]
    for name in ("changed", "prompt_tokens", "completion_tokens", "cached_tokens", "written_tokens", "latency_s"):
        columns[name] = [getattr(reply, name) for reply in replies]
    return _table(Attempts, columns)


def _table(row: type[Row], columns: Mapping[str, Sequence[Any] | pa.Array]) -> pa.Table:
    """The columns as Arrow arrays, in the contract's order."""
    arrays = {}
    for column in schema(row):
        values = columns[column.name]
        arrays[column.name] = values if isinstance(values, pa.Array) else pa.array(values, column.type)
    return pa.table(arrays)


def _all(value: str | int, rows: Sequence[Any]) -> pa.Array:
    """A column that says the same in every row."""
    return pa.repeat(value, len(rows))


def _quotes(evidence: Sequence[Sequence[Mapping[str, Any]]]) -> pa.ListArray:
    """The column `evidence` of lists of rows."""
    rows = map(itemgetter(*_EVIDENCE.names), chain.from_iterable(evidence))
    columns = _unzipped(rows, len(_EVIDENCE.names))
    arrays = [pa.array(values, field.type) for values, field in zip(columns, _EVIDENCE, strict=True)]
    return pa.ListArray.from_arrays(_offsets(evidence), pa.StructArray.from_arrays(arrays, fields=list(_EVIDENCE)))


def _numbers(maps: Sequence[Mapping[str, float]], kind: pa.DataType = _FLOAT) -> pa.MapArray:
    """A column of maps from names to numbers."""
    names = pa.array(chain.from_iterable(maps), pa.string())
    values = pa.array(chain.from_iterable(by_name.values() for by_name in maps), kind)
    return pa.MapArray.from_arrays(_offsets(maps), names, values)


def _offsets(lists: Sequence[Sequence[Any] | Mapping[str, Any]]) -> pa.Array:
    """Where each list starts among the values of all, and where the last one ends."""
    return pa.array(accumulate(map(len, lists), initial=0), pa.int32())


def _unzipped(rows: Iterable[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    """The columns of rows of this width; empty ones where there is no row."""
    return list(zip(*rows, strict=True)) or [()] * width


def _writable(text: str | None) -> str | None:
    """A text as Arrow can hold it: half a surrogate pair, which some replies carry, becomes a replacement character."""
    return text if text is None or text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


# Tables of a run as judging reads them.


def case_of(
    response_id: str, text: str, item: dict[str, Any], bundle: Bundle, bundle_id: str, made_from: str | None
) -> Case:
    """A response to an item under its bundle; made_from: as `responses` has it."""
    return Case(
        response_id=response_id,
        item_id=item["item_id"],
        text=text,
        units=tuple(units(text)),
        question=item["question"],
        context=item["context"],
        bundle=bundle,
        bundle_id=bundle_id,
        reference_answer=item["reference_answer"],
        unread=made_from if made_from in UNREAD else None,
    )
