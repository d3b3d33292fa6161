"""What judging works on and what it makes: a case, a rater, and the rows of their tables, column by column."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from tasks.contracts.bundle import Bundle
from tasks.contracts.schema import Row, arrow_type, schema
from tasks.contracts.settings.engine import Sampling
from tasks.contracts.tables.judging import Attempts, Evidence, Gradings, Judgments
from tasks.judge.decision import Decision
from tasks.judge.examples import WorkedExample
from tasks.judge.score import Scored
from tasks.llm.ask import Asked
from tasks.llm.backend import Backend
from tasks.text.units import Unit

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
GREEDY = Sampling()
_FLOAT = pa.float64()
_EVIDENCE = pa.struct([(name, arrow_type(of.annotation)) for name, of in Evidence.model_fields.items()])


class Kept(NamedTuple):
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
    kept: Mapping[str, Kept] = field(default_factory=dict)
    """Criterion → what stands of an earlier run and is not asked again."""
    examples: tuple[WorkedExample, ...] = ()
    """What people graded and the judge is shown beside the response, the most wanted first."""


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
    answer: Asked[Any]


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
    decisions = [d for one in judged for d in one.decisions]
    cases = [one.case for one in judged for _ in one.decisions]
    criterion_id, decision, stated, reason, evidence, _, verified, action = _unzipped(decisions, len(Decision._fields))
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
        "level_probabilities": [one.probabilities.get(d.criterion_id) for one in judged for d in one.decisions],
        "evidence": _quotes(evidence),
        "verified": verified,
        "action": action,
    }
    return _table(Judgments, columns)


def gradings(rater: Rater, graded: Sequence[Grading]) -> pa.Table:
    """Graded responses as the table `gradings`."""
    cases = [one.case for one in graded]
    columns = {
        "response_id": [case.response_id for case in cases],
        "item_id": [case.item_id for case in cases],
        "rater_id": _all(rater.rater_id, cases),
        "rater_kind": _all(rater.kind, cases),
        "sample": _all(rater.sample, cases),
        "bundle_id": [case.bundle_id for case in cases],
        "score": [one.scored.score for one in graded],
        "low": [one.scored.low for one in graded],
        "high": [one.scored.high for one in graded],
        "trait_scores": _numbers([one.scored.traits for one in graded]),
        "signals": _numbers([dict(sorted(one.signals.items())) for one in graded]),
        "confidence": [one.confidence for one in graded],
        "status": [one.status for one in graded],
        "unscored_reason": [one.reason for one in graded],
    }
    return _table(Gradings, columns)


def attempts(rater: Rater, called: Sequence[Called]) -> pa.Table:
    """Calls as the table `attempts`."""
    reads = rater.backend.reads_prose
    made = [(one, number, a) for one in called for number, a in enumerate(one.answer.attempts)]
    columns = {
        "response_id": [one.case.response_id for one, _, _ in made],
        "rater_id": _all(rater.rater_id, made),
        "sample": _all(rater.sample, made),
        "part": [one.part for one, _, _ in made],
        "attempt": [number for _, number, _ in made],
        "role": [a.request.role for _, _, a in made],
        "request_digest": [a.digest for _, _, a in made],
        "model": [a.model for _, _, a in made],
        "seed": [a.request.sampling.seed for _, _, a in made],
        "reply": [_writable(a.reply.text) for _, _, a in made],
        "error": [_writable(a.reply.error) for _, _, a in made],
        "violations": [a.checked.violations for _, _, a in made],
        "mends": [a.request.mends for _, _, a in made],
        "memory": [a.request.memory for _, _, a in made],
        "system": [a.request.said("system") if reads else None for _, _, a in made],
        "prompt": [_writable(a.request.said("user")) if reads else None for _, _, a in made],
        "characters": _numbers([a.request.characters for _, _, a in made], pa.int64()),
        "prompt_tokens": [a.reply.prompt_tokens for _, _, a in made],
        "completion_tokens": [a.reply.completion_tokens for _, _, a in made],
        "cached_tokens": [a.reply.cached_tokens for _, _, a in made],
        "stored": [a.stored for _, _, a in made],
        "latency_s": [a.reply.latency_s for _, _, a in made],
    }
    return _table(Attempts, columns)


def _table(row: type[Row], columns: Mapping[str, Sequence[Any] | pa.Array]) -> pa.Table:
    kinds = {field.name: field.type for field in schema(row)}
    return pa.table(
        {name: of if isinstance(of, pa.Array) else pa.array(of, kinds[name]) for name, of in columns.items()}
    )


def _all(value: str | int, rows: Sequence[Any]) -> pa.Array:
    """A column that says the same in every row."""
    return pa.repeat(value, len(rows))


def _quotes(evidence: Sequence[Sequence[Mapping[str, Any]]]) -> pa.ListArray:
    """The column `evidence` of lists of rows."""
    rows = map(itemgetter(*_EVIDENCE.names), (row for rows in evidence for row in rows))
    columns = _unzipped(rows, len(_EVIDENCE.names))
    arrays = [pa.array(column, of.type) for column, of in zip(columns, _EVIDENCE, strict=True)]
    return pa.ListArray.from_arrays(_offsets(evidence), pa.StructArray.from_arrays(arrays, fields=list(_EVIDENCE)))


def _numbers(maps: Sequence[Mapping[str, float]], kind: pa.DataType = _FLOAT) -> pa.MapArray:
    """A column of maps from names to numbers."""
    names = pa.array([name for one in maps for name in one], pa.string())
    values = pa.array([value for one in maps for value in one.values()], kind)
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
