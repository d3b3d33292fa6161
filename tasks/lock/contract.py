"""Asking a model for a rubric: prompts, bounded schemas, repair of what breaks the contract, and a record of it all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tasks.contracts.bundle import Rubric
from tasks.contracts.errors import InputError
from tasks.contracts.settings.engine import Sampling
from tasks.llm.ask import Asked, Attempt, Checked, as_call, ask
from tasks.llm.backend import Backend
from tasks.llm.replies import ReplyStore
from tasks.llm.request import Message, Reply, Request
from tasks.text.templates import Templates

REPAIRS = 2
"""Calls that may mend one artifact."""
_LONGEST = 20_000
"""Characters of a broken reply that its repair is shown."""
PROMPTS = Templates(Path(__file__).with_name("prompts"))


@dataclass(frozen=True)
class RubricBrief:
    """What is to be made of a rubric; the `data` of its request."""

    role: Literal["induce", "paraphrase"]
    rubric: Rubric
    criteria: int
    """About how many checklist items an induction shall make; 0 for a paraphrase."""
    seed: int


@dataclass(frozen=True)
class MadeRubric:
    """A rubric, and the calls that it took as rows of `Rubrics.calls`."""

    rubric: Rubric
    calls: tuple[dict[str, Any], ...] = ()


def request(
    wanted: RubricBrief, prompt: str, schema: Mapping[str, Any], sampling: Sampling, structured: bool
) -> Request:
    """The request for one rubric; structured: whether the model is held to the schema."""
    return Request(
        messages=(Message("user", prompt),),
        role=wanted.role,
        subject=wanted.rubric.rubric_id,
        keys=frozenset(schema["required"]),
        schema=schema if structured else None,
        sampling=sampling,
        data=wanted,
    )


def make(
    requests: Sequence[Request],
    backend: Backend,
    replies: ReplyStore,
    check: Callable[[Request, Reply], Checked[Rubric]],
) -> dict[str, MadeRubric]:
    """Rubric id → what was made of it. A rubric that the store holds a reply for is not asked for again.

    InputError names a rubric for which there is no usable reply within the budget, and what was wrong with the last.
    """
    return {one.request.subject: _made(one) for one in ask(requests, backend, replies, check, amend)}


def amend(first: Request, history: tuple[Attempt[Rubric], ...]) -> Request | None:
    """The next request that mends what broke the contract; None when the budget is spent or there was no reply."""
    last = history[-1]
    if len(history) > REPAIRS or last.reply.text is None:
        return None
    problems = "\n".join(f"- {violation}" for violation in last.checked.violations)
    turns = (
        *first.messages,
        Message("assistant", last.reply.text[:_LONGEST]),
        Message("user", PROMPTS.fill("amend", {"problems": problems})),
    )
    return Request(
        messages=turns,
        role="contract_repair",
        subject=first.subject,
        keys=first.keys,
        schema=first.schema,
        sampling=first.sampling,
        data=first.data,
        mends=last.checked.violations,
    )


def _made(asked: Asked[Rubric]) -> MadeRubric:
    last = asked.attempts[-1]
    if asked.value is None or last.checked.violations:
        wrong = last.reply.error or "; ".join(last.checked.violations)
        rule = f"rubric '{asked.request.subject}': no usable {asked.request.role} by '{last.model}': {wrong}"
        raise InputError(rule, field="rubrics", hint=f"{len(asked.attempts)} calls; write its criteria by hand")
    return MadeRubric(asked.value, tuple(as_call(attempt) for attempt in asked.attempts))
