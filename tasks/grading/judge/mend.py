"""Bounded repair: what kind of failure a reply has, whether another call may mend it, and the words that ask for it
(GradeAgentOps, section 2.4).

Violations are `kind:what`. What a check says of a repair is what is still wrong with the whole, so that a repair whose
reply could not be read (`NOT_READ` next to the rest) is judged by the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from rubricflow.tasks.core.contracts.bundle import Protocol
from rubricflow.tasks.core.llm.ask import Attempt, Checked, RequestOutcome
from rubricflow.tasks.core.llm.extract import Found, Serves, find
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.text.digest import nonce
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge.schema import repeats_example

_BREAKS_OFF = ("truncated", "damaged")
_WHOSE = {"ambiguous": "ambiguous_reply", "quoted": "quoted_verdict"}
"""Violation → reason, where it is in doubt whether a verdict is the judge's."""
NOT_READ = frozenset({"unreadable", *_WHOSE})
"""Kinds of violation of a reply in which no verdict was read."""


Kind = Literal["contract", "semantic"]
Role = Literal["contract_repair", "semantic_repair"]

SEMANTIC = frozenset(
    {"evidence_failed", "echo", "misattributed", "too_short", "no_diagnostic", "shared_quote"}
    | {"other_kind"}
    | {"contradicted_score"}
)
"""Kinds of violation that leave the artifact well-formed; all others break the contract."""
MAX_PREVIOUS = 4_000
"""Characters of the reply that a repair shows."""
_WORDS = (
    ("unreadable:repeats_example", "it repeats the example or the form, and not the response"),
    ("unreadable", "no JSON object with the required fields could be read ({what})"),
    ("ambiguous", "the reply holds several objects with the required fields that differ: give yours alone"),
    ("quoted", "the object stands in the response, so that it cannot count as yours"),
    ("incomplete", "the reply breaks off ({what}); what is whole in it stands"),
    ("missing_point", "{what} is said to be neither covered nor missed"),
    ("contradictory_point", "{what} is said to be both covered and missed"),
    ("missing", "{what} is missing"),
    ("malformed", "{what} does not have the form that the contract names"),
    ("evidence_failed", "no quote given for {what} holds: it must be copied from the response, word for word"),
    (
        "echo",
        "the words quoted for {what} repeat the question, its text or the rubric: quote what the response says itself",
    ),
    ("other_kind", "the words quoted for {what} stand in a turn or step of another kind than it asks for"),
    ("misattributed", "the words quoted for {what} stand elsewhere in the response: cite the unit that holds them"),
    ("too_short", "the words quoted for {what} are too few to show anything: quote more of what the response says"),
    ("no_diagnostic", "{what} has no diagnostic: say in a sentence what the quoted words show"),
    ("shared_quote", "the words quoted for {what} are quoted for too many others: each needs words of its own"),
    ("contradicted_score", "{what} is more than one step from what the points credited add up to"),
    ("unknown_point", "{what} is in doubt: a number names no point"),
    ("unknown_misconception", "{what} holds a number that names no misconception"),
    ("unknown", "{what} was not asked for"),
)
_DEMAND = {
    "contract_repair": "Give exactly these again, in the form that the contract names: {mends}.",
    "semantic_repair": "Decide exactly these again: {mends}. Either give words that stand in the response, or withdraw "
    "the claim.",
    "contradicted": "Decide exactly these again: {mends}. Change the score, or keep it where the guide as it "
    "is written says so.",
}


def kind_of(violations: Sequence[str]) -> Kind:
    """`semantic` where only evidence fails, else `contract`. A reply in which nothing was read counts only where
    nothing else is said."""
    kinds = {violation.partition(":")[0] for violation in violations}
    return "semantic" if kinds & SEMANTIC and kinds <= SEMANTIC | NOT_READ else "contract"


def mendable(violations: Sequence[str], protocol: Protocol) -> tuple[str, ...]:
    """The violations that a repair may mend: an answer that nobody asked for is passed over, and where the bundle only
    counts failed quotes they stand."""
    passed = {"unknown_criterion"} | (SEMANTIC if protocol.failed_quote == "count" else set())
    return tuple(violation for violation in violations if violation.partition(":")[0] not in passed)


def next_role(history: Sequence[Attempt[Any]], protocol: Protocol) -> Role | None:
    """What the next call may mend; None where the budget of that kind is spent, or nothing is to be mended.

    What breaks the contract comes first: evidence is mended in a well-formed artifact only. The budgets are counted
    apart, by role. What the backend could not answer is not mended: a rerun asks it again.
    """
    violations = mendable(history[-1].checked.violations, protocol)
    budgets = protocol.repair
    if budgets is None or not violations or "no_reply" in violations:
        return None
    role: Role = "semantic_repair" if kind_of(violations) == "semantic" else "contract_repair"
    budget = budgets.semantic if role == "semantic_repair" else budgets.contract
    return role if sum(attempt.request.role == role for attempt in history[1:]) < budget else None


def task(role: Role, mends: Sequence[str], violations: Sequence[str], previous: str) -> str:
    """What stands behind the response in a repair: what failed, the reply that failed, and what alone is to be given.

    mends: names of the fields, criteria or points to be given again. previous: what the reply said, of which the first
    MAX_PREVIOUS characters are shown as data: every line of it is marked, and the fence carries a code made from it.
    """
    shown = previous[:MAX_PREVIOUS]
    marked = [f"| {line}" for line in shown.splitlines()]
    failures = [f"- {_in_words(violation)}" for violation in violations]
    is_contradicted = bool(violations) and all(v.startswith("contradicted") for v in violations)
    values = {
        "nonce": nonce(shown),
        "previous": "\n".join(marked) or "| (nothing)",
        "failed": "\n".join(failures),
        "demand": _DEMAND["contradicted" if is_contradicted else role].format(mends=", ".join(mends)),
    }
    return prompt.fill("repair", values).rstrip("\n")


def _in_words(violation: str) -> str:
    """A violation as a sentence. What it names may come from the reply, so it stays on one line."""
    kind, _, field = violation.partition(":")
    name = " ".join(field.split()) or "it"
    if "_off_" in kind or kind.startswith("off_"):
        return f"the value of {name} is outside its range"
    pattern = next(
        (words for start, words in _WORDS if violation.startswith(start)), kind.replace("_", " ") + ": {what}"
    )
    return pattern.replace("{what}", name)


# The verdict in a judge's reply, and why a call brought nothing to score with.


def verdict_in(
    request: Request, reply: Reply, itemised: frozenset[str] = frozenset(), serves: Serves | None = None
) -> Found:
    """The judge's own verdict in a reply, see `tasks.core.llm.extract.find`; none, as `repeats_example`, in one that
    gives the prompt's example back. serves: where other objects than those with all keys of the request do."""
    wanted = serves or request.keys.issubset
    found = find(reply.text, wanted, itemised, request.data.text, asked=request.keys)
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
        decisions = []
        for decision in value.decisions:
            is_missing = decision.reason == "criterion_missing"
            decisions.append(decision._replace(reason="truncated") if is_missing else decision)
        value = replace(value, decisions=tuple(decisions))
    return Checked(value, (f"incomplete:{how}", *checked.violations))
