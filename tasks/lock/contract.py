"""Asking a model for a rubric: prompts, bounded schemas, repair of what breaks the contract, and a record of it all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tasks.contracts.bundle import Rubric
from tasks.contracts.settings.engine import Sampling
from tasks.llm.amend import all_again, ask_amending, usable
from tasks.llm.ask import Checked, RequestOutcome, as_call
from tasks.llm.backend import Backend
from tasks.llm.reply_store import Replies
from tasks.llm.request import Message, Reply, Request
from tasks.text.templates import Templates

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
    brief: RubricBrief, prompt: str, schema: Mapping[str, Any], sampling: Sampling, structured: bool
) -> Request:
    """The request for one rubric; structured: whether the model is held to the schema."""
    return Request(
        messages=(Message("user", prompt),),
        role=brief.role,
        subject=brief.rubric.rubric_id,
        keys=frozenset(schema["required"]),
        schema=schema if structured else None,
        sampling=sampling,
        data=brief,
    )


def make(
    requests: Sequence[Request],
    backend: Backend,
    replies: Replies,
    check: Callable[[Request, Reply], Checked[Rubric]],
) -> dict[str, MadeRubric]:
    """Rubric id → what was made of it. A rubric that the store holds a reply for is not asked for again.

    InputError names a rubric for which there is no usable reply within the budget, and what was wrong with the last.
    """
    answers = ask_amending(requests, backend, replies, check, all_again(PROMPTS))
    return {answer.request.subject: _made_rubric(answer) for answer in answers}


def _made_rubric(answer: RequestOutcome[Rubric]) -> MadeRubric:
    rubric = usable(answer, answer.request.role, "write its criteria by hand", field="rubrics")
    return MadeRubric(rubric, tuple(as_call(attempt) for attempt in answer.attempts))
