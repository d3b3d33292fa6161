"""What judging works on and what it writes: a case, a rater, and the rows of their tables."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any

from tasks.contracts.bundle import Bundle
from tasks.judge.score import Scored
from tasks.judge.verify import Decision
from tasks.llm.ask import Asked
from tasks.llm.backend import Backend
from tasks.text.units import Unit

Record = dict[str, Any]
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


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


@dataclass(frozen=True)
class Rater:
    """Who judges: a backend under a name that stands for its whole configuration."""

    rater_id: str
    kind: str
    backend: Backend


@dataclass
class Graded:
    """Rows of `judgments`, `gradings` and `attempts`, in the order of the cases."""

    judgments: list[Record] = field(default_factory=list)
    gradings: list[Record] = field(default_factory=list)
    attempts: list[Record] = field(default_factory=list)


def judgment(case: Case, rater: Rater, decision: Decision, probabilities: list[float] | None) -> Record:
    """A decision as a row of `judgments`."""
    return {
        "response_id": case.response_id,
        "criterion_id": decision.criterion_id,
        "rater_id": rater.rater_id,
        "rater_kind": rater.kind,
        "sample": 0,
        "bundle_id": case.bundle_id,
        "decision": decision.level,
        "stated": decision.stated,
        "unscored_reason": decision.reason,
        "level_probabilities": probabilities,
        "evidence": list(decision.evidence),
        "verified": decision.verified,
        "action": decision.action,
    }


def grading(
    case: Case,
    rater: Rater,
    scored: Scored,
    signals: dict[str, float],
    confidence: float | None,
    reason: str | None,
) -> Record:
    """A graded response as a row of `gradings`."""
    signals = signals | {"length": math.log1p(len(case.text))}
    if confidence is not None:
        signals |= {"confidence": confidence, "uncertainty": 1 - confidence}
    status = "precheck" if "precheck" in signals else "scored" if scored.score is not None else "unscored"
    return {
        "response_id": case.response_id,
        "item_id": case.item_id,
        "rater_id": rater.rater_id,
        "rater_kind": rater.kind,
        "sample": 0,
        "bundle_id": case.bundle_id,
        "score": scored.score,
        "low": scored.low,
        "high": scored.high,
        "trait_scores": scored.traits,
        "signals": dict(sorted(signals.items())),
        "confidence": confidence,
        "status": status,
        "unscored_reason": reason,
    }


def attempts(case: Case, rater: Rater, part: str, answer: Asked[Any]) -> list[Record]:
    """The calls made for one part of a case as rows of `attempts`."""
    return [
        {
            "response_id": case.response_id,
            "rater_id": rater.rater_id,
            "sample": 0,
            "part": part,
            "attempt": number,
            "role": answer.request.role,
            "request_digest": attempt.digest,
            "model": rater.backend.model,
            "seed": attempt.request.sampling.seed,
            "reply": _writable(attempt.reply.text),
            "error": _writable(attempt.reply.error),
            "violations": list(attempt.checked.violations),
            "prompt_tokens": attempt.reply.prompt_tokens,
            "completion_tokens": attempt.reply.completion_tokens,
            "stored": attempt.stored,
            "latency_s": attempt.reply.latency_s,
        }
        for number, attempt in enumerate(answer.attempts)
    ]


def _writable(text: str | None) -> str | None:
    """A text as Arrow can hold it: half a surrogate pair, which some replies carry, becomes a replacement character."""
    return text and _LONE_SURROGATE.sub("\ufffd", text)
