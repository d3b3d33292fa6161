"""What the work took: repeats, calls, tokens and time, and what is ahead of people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.contracts.tables.judging import CALL_ROLES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.grading.report.sections import Facts

Row = Mapping[str, Any]
PARTS = ("bundle", "memory", "response", "repair")


def stability(repeats: Row) -> Facts:
    """Whether the same response asked again gets the same score."""
    repeated = repeats["responses"]
    if not repeated:
        return Facts(
            "Whether the same answer gets the same score again is untested", (), "every response was judged once"
        )
    same = repeats["same"] / repeated
    facts = (
        ("Judged more than once", say.plural(repeated, "response")),
        ("Times at most", say.count(repeats["asked"])),
        ("Always the same score", f"{say.share(same)} (flag below 95%)"),
        ("Mean distance of highest and lowest", f"{say.number(repeats['spread'])} points"),
    )
    return Facts(f"Asked again, {say.share(same)} of responses get the same score every time", facts)


def cost(attempts: Sequence[Row], responses: int, prechecked: int, waiting: int) -> Facts:
    """Calls, tokens and time; and what is ahead of people."""
    if not attempts:
        ahead = ("People's work ahead", say.plural(waiting, "case"))
        return Facts("No model call was made", (ahead,), "nothing was asked")
    calls = sum(row["calls"] for row in attempts)
    stored = sum(row["calls"] for row in attempts if row["stored"])
    failed = sum(row["calls"] for row in attempts if row["failed"])
    violated = sum(row["calls"] for row in attempts if row["violated"])
    roles = Counter({row["role"]: 0 for row in attempts})
    for row in attempts:
        roles[row["role"]] += row["calls"]
    by_role = [f"{say.count(n)} {CALL_ROLES.get(role, say.worded(role))}" for role, n in roles.most_common()]
    models = sorted({row["model"] for row in attempts})
    facts = (
        ("Model", ", ".join(map(say.name, models[:4]))),
        ("Calls", f"{say.count(calls)}: {', '.join(by_role)}"),
        ("From the reply store", f"{say.count(stored)}, not asked again"),
        ("Without a reply", say.count(failed)),
        ("Replies that broke a rule", f"{say.count(violated)} ({say.share(violated / calls)})"),
        ("Settled without a call", say.plural(prechecked, "response")),
        ("Tokens", _tokens(attempts)),
        ("Tokens of a prompt", _by_part(attempts, calls)),
        ("Held by the engine's prefix cache", _cached(attempts)),
        ("Time in calls", _time(attempts)),
        ("People's work ahead", say.plural(waiting, "case")),
    )
    title = f"{say.plural(calls, 'call')} for {say.plural(responses, 'response')}"
    if stored:
        title += f", {say.share(stored / calls)} of them answered from the store"
    return Facts(title, facts)


def _time(attempts: Sequence[Row]) -> str:
    seconds = _column_sum(attempts, "latency_s")
    return "not known: the backend tells none" if seconds is None else say.duration(seconds)


def _tokens(attempts: Sequence[Row]) -> str:
    tokens_in, tokens_out = (_column_sum(attempts, column) for column in ("prompt_tokens", "completion_tokens"))
    if tokens_in is None and tokens_out is None:
        return "not known: the backend counts none"
    return f"{say.count(int(tokens_in or 0))} in, {say.count(int(tokens_out or 0))} out"


def _by_part(attempts: Sequence[Row], calls: int) -> str:
    """Mean tokens of a prompt by what they were spent on: the counted ones, shared out by characters."""
    prompt_tokens = _column_sum(attempts, "prompt_tokens")
    characters = {part: _column_sum(attempts, part) or 0.0 for part in PARTS}
    every = sum(characters.values())
    if prompt_tokens is None or not every:
        return "not known: the backend counts none"
    shares = (f"{part} {say.count(round(prompt_tokens / calls * n / every))}" for part, n in characters.items() if n)
    return f"{', '.join(shares)} a call (shared out by characters)"


def _cached(attempts: Sequence[Row]) -> str:
    cached, cacheable = (_column_sum(attempts, column) for column in ("cached_tokens", "cacheable_tokens"))
    return (
        f"{say.share(cached / cacheable)} of the prompts' tokens" if cached is not None and cacheable else "not known"
    )


def _column_sum(attempts: Sequence[Row], column: str) -> float | None:
    """The sum of a column's numbers; None where it has none."""
    defined = [row[column] for row in attempts if row[column] is not None]
    return sum(defined) if defined else None
