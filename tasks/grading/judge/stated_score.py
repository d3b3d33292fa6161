"""Contracts that state one number: how it is read, and mended as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.llm.ask import Attempt, Checked, RequestOutcome
from rubricflow.tasks.core.llm.extract import said
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.grading.judge import itemised, mend
from rubricflow.tasks.grading.judge.itemised import follow_up
from rubricflow.tasks.grading.judge.mend import next_role, unread, verdict_in
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.score import round_half_up

FIELD = "score"


def check(request: Request, reply: Reply, scale: Scale, on_step: bool = False) -> Checked[float]:
    """The number that the reply states, within the scale; on_step: and on one of its steps; or what counts in its
    place, see `tasks.grading.judge.itemised`.

    Violations: those of `unread`, `malformed_score`, `score_off_scale`, `score_off_step`.
    """
    artifact, note, _ = verdict_in(request, reply)
    if artifact is None:
        return Checked(None, (unread(note),))
    stated = artifact.get(FIELD)
    if isinstance(stated, bool) or not isinstance(stated, int | float):
        return Checked(None, ("malformed_score",))
    if not scale.min - 1e-9 <= stated <= scale.max + 1e-9:
        return Checked(None, ("score_off_scale",))
    if on_step and abs(round_half_up(stated, scale) - stated) > 1e-9:
        return Checked(None, ("score_off_step",))
    likely = (reply.level_probabilities or {}).get(FIELD)
    return Checked(itemised.value(request.data.bundle.protocol, likely, float(stated), scale), ())


def confidence(stated: Sequence[tuple[RequestOutcome[float], Scale]]) -> float | None:
    """Mean probability of the numbers stated, each on its scale; None where the rater gives none."""
    probabilities = []
    for call, scale in stated:
        likely = (call.attempts[-1].reply.level_probabilities or {}).get(FIELD, [])
        if call.value is not None and len(likely) == scale.levels:
            probabilities.append(itemised.confidence(call.request.data.bundle.protocol, likely, call.value, scale))
    return sum(probabilities) / len(probabilities) if probabilities else None


def repair(request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
    """The same again with what failed; None where the bundle's budget is spent."""
    question: Question = request.data
    role = next_role(history, question.bundle.protocol.repair)
    if role is None:
        return None
    last = history[-1]
    text = mend.task(role, (FIELD,), last.checked.violations, said(last.reply.text))
    return follow_up(request, replace(question, role=role), request.schema, (FIELD,), text)
