"""What judging works on and what it makes: a case, a rater, and the rows of their tables, column by column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Comparisons, Gradings, Judgments
from rubricflow.tasks.core.llm.ask import RequestOutcome
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.text.digest import without_half_pairs
from rubricflow.tasks.core.text.units import Unit
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


GREEDY = Sampling()


LONGEST = 1_200
"""Characters of a worked example that are shown."""


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
    answers: tuple[Case, ...] = ()
    """Where several answers are judged together: those, in the order shown; `text` then holds all of theirs."""
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
    decisions: Sequence[Decision] = ()
    probabilities: Mapping[str, list[float]] = {}


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
    """The calls made for one part of a response."""

    response_id: str
    part: str
    answer: RequestOutcome[Any]


@dataclass
class Graded:
    """What became of a batch, in the order of its cases."""

    rater: Rater
    judged: list[Judged] = field(default_factory=list)
    gradings: list[Grading] = field(default_factory=list)
    called: list[Called] = field(default_factory=list)
    verdicts: list[dict[str, Any]] | None = None
    """Rows of `comparisons`, but for the rater; None where the protocol compares no pairs."""

    def tables(self) -> dict[type[Row], pa.Table]:
        """The tables `judgments`, `gradings` and `attempts`, and `comparisons` where pairs are compared."""
        tables: dict[type[Row], pa.Table] = {
            Judgments: judgments(self.rater, self.judged),
            Gradings: gradings(self.rater, self.gradings),
            Attempts: attempts(self.rater, self.called),
        }
        if self.verdicts is not None:
            rows = [row | _of(self.rater) for row in self.verdicts]
            tables[Comparisons] = pa.Table.from_pylist(rows, schema(Comparisons))
        return tables


def judgments(rater: Rater, judged: Sequence[Judged]) -> pa.Table:
    rows = []
    for case, decisions, probabilities in judged:
        about = {"response_id": case.response_id, "bundle_id": case.bundle_id, **_of(rater)}
        for decision in decisions:
            row = {
                "criterion_id": decision.criterion_id,
                "decision": decision.level,
                "stated": decision.stated,
                "unscored_reason": decision.reason,
                "level_probabilities": probabilities.get(decision.criterion_id),
                "evidence": decision.evidence,
                "verified": decision.verified,
                "action": decision.action,
            }
            rows.append({**about, **row})
    return pa.Table.from_pylist(rows, schema(Judgments))


def gradings(rater: Rater, graded: Sequence[Grading]) -> pa.Table:
    rows = []
    for grading in graded:
        case, scored = grading.case, grading.scored
        row = {
            "response_id": case.response_id,
            "item_id": case.item_id,
            "bundle_id": case.bundle_id,
            "score": scored.score,
            "low": scored.low,
            "high": scored.high,
            "trait_scores": scored.traits,
            "signals": dict(sorted(grading.signals.items())),
            "confidence": grading.confidence,
            "status": grading.status,
            "unscored_reason": grading.reason,
        }
        rows.append({**row, **_of(rater)})
    return pa.Table.from_pylist(rows, schema(Gradings))


def attempts(rater: Rater, called: Sequence[Called]) -> pa.Table:
    rows, has_prose = [], rater.backend.reads_prose  # else nobody read the messages
    for call in called:
        for number, attempt in enumerate(call.answer.attempts):
            request, reply = attempt.request, attempt.reply
            row = {
                "response_id": call.response_id,
                "rater_id": rater.rater_id,
                "sample": rater.sample,
                "part": call.part,
                "attempt": number,
                "request_digest": attempt.digest,
                "model": attempt.model,
                "violations": attempt.checked.violations,
                "stored": attempt.stored,
                "system": request.content_of("system") if has_prose else None,
                "prompt": _writable(request.content_of("user")) if has_prose else None,
                "characters": request.characters,
                "seed": request.sampling.seed,
                "reply": _writable(reply.text),
                "error": _writable(reply.error),
                "provider": reply.source and reply.source.provider,
            }
            row |= {name: getattr(request, name) for name in ("role", "mends", "memory")}
            row |= {name: getattr(reply, name) for name in _OF_REPLY}
            rows.append(row)
    return pa.Table.from_pylist(rows, schema(Attempts))


_OF_REPLY = ("changed", "prompt_tokens", "completion_tokens", "cached_tokens", "written_tokens", "latency_s")


def _of(rater: Rater) -> dict[str, str | int]:
    return {"rater_id": rater.rater_id, "rater_kind": rater.kind, "sample": rater.sample}


def _writable(text: str | None) -> str | None:
    """A text as Arrow can hold it: half a surrogate pair, which some replies carry, becomes a replacement character."""
    return text and without_half_pairs(text)
