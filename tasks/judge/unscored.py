"""The verdict in a judge's reply, and why a call brought nothing to score with."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tasks.judge.schema import repeats_example
from tasks.llm.ask import Checked, RequestOutcome
from tasks.llm.extract import Found, Serves, find
from tasks.llm.request import Reply, Request

_BREAKS_OFF = ("truncated", "damaged")
_WHOSE = {"ambiguous": "ambiguous_reply", "quoted": "quoted_verdict"}
"""Violation → reason, where it is in doubt whether a verdict is the judge's."""
NOT_READ = frozenset({"unreadable", *_WHOSE})
"""Kinds of violation of a reply in which no verdict was read."""


def verdict_in(
    request: Request, reply: Reply, itemised: frozenset[str] = frozenset(), serves: Serves | None = None
) -> Found:
    """The judge's own verdict in a reply, see `tasks.llm.extract.find`; none, as `repeats_example`, in one that gives
    the prompt's example back. serves: where other objects than those with all keys of the request do."""
    wanted = serves or request.keys.issubset
    found = find(reply.text, wanted, itemised, request.data.text)
    return Found(None, "repeats_example") if repeats_example(found.artifact, request.data.text) else found


def unread(note: str | None) -> str:
    """The violation of a reply without a verdict: `ambiguous`, `quoted`, or `unreadable:` with why."""
    return note if note in _WHOSE else f"unreadable:{note}"


def reason_of(answer: RequestOutcome[Any]) -> str:
    """The reason, as `UnscoredReason` has it, that the last attempt gives."""
    if answer.attempts[-1].reply.text is None:
        return "no_reply"
    violations = answer.attempts[-1].checked.violations
    kinds = {violation.partition(":")[0] for violation in violations}
    if "score_off_scale" in kinds:
        return "off_scale"
    if doubts := [_WHOSE[kind] for kind in _WHOSE if kind in kinds]:
        return doubts[0]
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
