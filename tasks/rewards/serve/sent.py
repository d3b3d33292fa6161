"""What clients send, checked at the border: every error names the place and the rule, all of them at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError, model_validator
from pydantic_core import ErrorDetails

from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.rewards.serve.listed import ListedCriterion, listed_criteria

MOST_CHARACTERS = 1_000_000
"""Of one text."""
MOST_ROLLOUTS = 4_096
"""In one request."""
MOST_CRITERIA = 100
"""Of a rubric that comes with its rollout, whose graph is built while the trainer waits: seconds for a hundred."""
MOST_HELD_OUT = 100_000
"""Items of one evaluation."""
_MOST_SHOWN = 20
"""Errors that an answer names; the others are counted."""
Text = Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class SentRollout(Frozen):
    """One completion, with the item that it answers or with question and rubric beside it."""

    completion: Text
    """What the policy wrote."""
    item_id: str | None = None
    """The item, as the server knows it."""
    question: Text | None = None
    """Where there is no item: the question."""
    context: Text | None = None
    """What belongs to the question."""
    rubric: tuple[ListedCriterion, ...] | None = None
    """Where there is no item: the weighted criteria."""

    @model_validator(mode="before")
    @classmethod
    def _reads_any_list(cls, value: Any) -> Any:
        """A rubric may stand in the form of any rubric list."""
        if not isinstance(value, dict) or value.get("rubric") is None:
            return value
        criteria = listed_criteria(value["rubric"])
        if isinstance(criteria, list) and len(criteria) > MOST_CRITERIA:
            rule = f"the rubric has {len(criteria):,} criteria; one that comes with its rollout has at most"
            raise ValueError(f"{rule} {MOST_CRITERIA}, so put it into the list that is served")
        return {**value, "rubric": criteria}

    @model_validator(mode="after")
    def _names_one_rubric(self) -> SentRollout:
        inline = self.question is not None and self.rubric is not None
        beside = self.question is not None or self.rubric is not None or self.context is not None
        if self.item_id is None and not inline:
            raise ValueError("a rollout needs 'item_id', or both 'question' and 'rubric'")
        if self.item_id is not None and beside:
            raise ValueError("a rollout has either 'item_id' or its own 'question' and 'rubric', not both")
        return self


class RewardRequest(Frozen):
    """The body of a request for rewards."""

    rollouts: Annotated[tuple[SentRollout, ...], Field(max_length=MOST_ROLLOUTS)]
    """What is to be rewarded."""
    step: int | None = Field(default=None, ge=0)
    """The step of the training, for curves."""
    deadline_s: float | None = Field(default=None, gt=0, le=3600, allow_inf_nan=False)
    """Seconds after which an answer comes in any case; the server's own limit where not given."""

    @model_validator(mode="after")
    def _asks_something(self) -> RewardRequest:
        if not self.rollouts:
            raise ValueError("'rollouts' is empty")
        return self


class HeldOutRequest(Frozen):
    """The body that tells of an evaluation of the policy on held-out items."""

    step: int = Field(ge=0)
    """The step of the training that it came after."""
    quality: Annotated[dict[str, Finite], Field(min_length=1, max_length=MOST_HELD_OUT)]
    """Held-out item → its quality, higher is better."""


class RemoteRewardRequest(Frozen):
    """The body that OpenRLHF sends to a remote reward model."""

    model_config = {"extra": "ignore"}

    query: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_ROLLOUTS)]
    """Prompt and completion in one text."""
    prompts: tuple[Text, ...]
    """The prompts alone."""
    labels: tuple[str, ...]
    """The item of each: name the data set's column `item_id` as the label."""

    @model_validator(mode="after")
    def _is_parallel(self) -> RemoteRewardRequest:
        sizes = {"query": len(self.query), "prompts": len(self.prompts), "labels": len(self.labels)}
        if len(set(sizes.values())) > 1:
            listed = ", ".join(f"{size} in '{name}'" for name, size in sizes.items())
            raise ValueError(f"the lists differ in length: {listed}")
        return self


def reward_request(body: bytes) -> RewardRequest:
    """The request of a body; InputError names every place that is wrong."""
    try:
        return RewardRequest.model_validate(_json(body))
    except ValidationError as error:
        raise _as_input_error(error) from error


def held_out_request(body: bytes) -> HeldOutRequest:
    """The same for a held-out evaluation."""
    try:
        return HeldOutRequest.model_validate(_json(body))
    except ValidationError as error:
        raise _as_input_error(error) from error


def remote_reward_request(body: bytes) -> RemoteRewardRequest:
    """The same for OpenRLHF's form."""
    try:
        return RemoteRewardRequest.model_validate(_json(body))
    except ValidationError as error:
        raise _as_input_error(error) from error


def _json(body: bytes) -> Any:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON: {str(error)[:200]}") from error
    return _without_halves(value) if b"\\ud" in body.lower() else value


def _without_halves(value: Any) -> Any:
    """The same with a question mark for each half of a surrogate pair, which a policy may write and no table holds."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_without_halves(entry) for entry in value]
    if isinstance(value, dict):
        return {_without_halves(name): _without_halves(entry) for name, entry in value.items()}
    return value


def _as_input_error(error: ValidationError) -> InputError:
    details = error.errors(include_url=False, include_input=False, include_context=False)
    errors = [_as_place(detail) for detail in details[:_MOST_SHOWN]]
    return errors[0] if len(details) == 1 else InputErrors(errors, len(details))


def _as_place(detail: ErrorDetails) -> InputError:
    """An error with its row, from 1, where it lies in a rollout."""
    place: Sequence[int | str] = detail["loc"]
    rule = detail["msg"].removeprefix("Value error, ")
    if len(place) > 1 and place[0] == "rollouts" and isinstance(place[1], int):
        return InputError(rule, row=place[1] + 1, field=_path(place[2:]) or "rollouts")
    return InputError(rule, field=_path(place) or None)


def _path(place: Sequence[int | str]) -> str:
    """A place as people write it: `rubric[3].points`."""
    path = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in place)
    return path.removeprefix(".")[:200]
