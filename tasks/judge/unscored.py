"""Why a call brought nothing to score with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasks.llm.ask import Checked, RequestOutcome

_BREAKS_OFF = ("truncated", "damaged")


def reason_of(answer: RequestOutcome[Any]) -> str:
    """The reason, as `UnscoredReason` has it, that the last attempt gives."""
    if answer.attempts[-1].reply.text is None:
        return "no_reply"
    violations = answer.attempts[-1].checked.violations
    kinds = {violation.partition(":")[0] for violation in violations}
    if "score_off_scale" in kinds:
        return "off_scale"
    if {"unreadable:truncated", "incomplete:truncated"} & {*violations}:
        return "truncated"
    return "unreadable_reply" if "unreadable" in kinds else "invalid_reply"


def incomplete(checked: Checked[Any], note: str | None) -> Checked[Any]:
    """What is said of a reply of which `note` tells how it was read: where it breaks off and something is missing, the
    violation `incomplete:` with how, and where it was cut off the reason `truncated` for what is missing."""
    how = (note or "").rpartition("+")[2]
    if how not in _BREAKS_OFF or not any(violation.startswith("missing") for violation in checked.violations):
        return checked
    value: Any = checked.value
    if how == "truncated" and hasattr(value, "decisions"):
        value = replace(value, decisions=tuple(map(_cut_off, value.decisions)))
    return Checked(value, (f"incomplete:{how}", *checked.violations))


def _cut_off(decision: Any) -> Any:
    return decision._replace(reason="truncated") if decision.reason == "criterion_missing" else decision
