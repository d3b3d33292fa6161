"""Asking for an artifact until it keeps its contract: what is wrong with a reply is told, and it is given again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tasks.contracts.errors import InputError
from tasks.llm.ask import Attempt, Checked, RequestOutcome, ask
from tasks.llm.backend import Backend
from tasks.llm.reply_store import Replies
from tasks.llm.request import Message, Reply, Request
from tasks.text.templates import Templates

AMENDMENTS = 2
"""Calls that may mend one artifact."""
LONGEST = 20_000
"""Characters of a broken reply that its amendment is shown."""

T = TypeVar("T")
History = tuple[Attempt[T], ...]


def ask_amending(
    requests: Sequence[Request],
    backend: Backend,
    replies: Replies,
    check: Callable[[Request, Reply], Checked[T]],
    demand: Callable[[Request, History[T]], tuple[str, Request] | None],
) -> list[RequestOutcome[T]]:
    """Asks as `ask` does; an amendment is the next turn of the same talk, after the reply that failed.

    demand: gets a first request and all attempts, and returns what is said of the last one, with the first request as
    far as it is still open; None where nothing is. After AMENDMENTS, or an error in place of a reply, it is over.
    """

    def amended(first: Request, history: History[T]) -> Request | None:
        last = history[-1]
        if len(history) > AMENDMENTS or last.reply.text is None or (demanded := demand(first, history)) is None:
            return None
        words, narrowed = demanded
        turns = (*first.messages, Message("assistant", last.reply.text[:LONGEST]), Message("user", words))
        return replace(narrowed, messages=turns, role="contract_repair", mends=last.checked.violations)

    return ask(requests, backend, replies, check, amended)


def all_again(prompts: Templates) -> Callable[[Request, History[T]], tuple[str, Request]]:
    """The demand for the whole artifact with its problems mended, in the words of the template `amend`."""

    def demand(first: Request, history: History[T]) -> tuple[str, Request]:
        problems = "\n".join(f"- {violation}" for violation in history[-1].checked.violations)
        return prompts.fill("amend", {"problems": problems}), first

    return demand


def usable(call: RequestOutcome[T], name: str, hint: str, field: str | None = None) -> T:
    """The artifact about a rubric; where there is none, InputError with what was wrong with the last reply.

    name: what the artifact is called; hint: what a person can do; field: of the study, where it was demanded.
    """
    if call.value is not None:
        return call.value
    last = call.attempts[-1]
    wrong = last.reply.error or "; ".join(last.checked.violations)
    rule = f"rubric '{call.request.subject}': no usable {name} by '{last.model}': {wrong}"
    raise InputError(rule, field=field, hint=f"{len(call.attempts)} calls; {hint}")
