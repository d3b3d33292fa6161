"""What the server is given, checked at the border: the JSONL files of weighted criteria, and what clients send. Every
error names the place and the rule, all of them at once.

A line of a file is a prompt with its criteria. Read are HealthBench's form (`prompt` as a chat, `rubrics` of
`criterion` and `points`), that of Rubrics as Rewards (`question`, `rubric` of `description` and `weight`), that of
OpenRubrics (`instruction`, `rubric` as numbered lines), and our own (`item_id`, `question`, `rubric` of `text` and
`weight`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from rubricflow.tasks.core.contracts.bundle import EvidenceType
from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.text.digest import text_digest

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
_NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
_HIDDEN_MARK = "canary"
"""What authors add whose examples are for evaluation only."""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _named(*names: str) -> AliasChoices:
    """What a field is called in one form or another of rubric lists."""
    return AliasChoices(*names)


class _Listed(Frozen):
    """What has further keys in some form, and null where it says nothing."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if _HIDDEN_MARK in value:
            raise ValueError("carries a canary: its authors ask that nothing is trained on it")
        return {name: entry for name, entry in value.items() if entry is not None}


class ListedCriterion(_Listed):
    """One criterion of a plain list."""

    text: str = Field(
        min_length=1, max_length=20_000, validation_alias=_named("text", "criterion", "description", "requirement")
    )
    """What is looked for; with a negative weight a fault."""
    weight: float = Field(allow_inf_nan=False, validation_alias=_named("weight", "points", "score"))
    """Its points; negative for what costs."""
    evidence: EvidenceType | None = None
    """What must support it, see tasks/grading/judge/verify.py; where not given a quote from one sentence for what is
    paid for."""

    @field_validator("evidence", mode="before")
    @classmethod
    def _is_ours(cls, value: Any) -> Any:
        """Other lists have texts of that name."""
        return value if value in get_args(EvidenceType) else None


def listed_criteria(rubric: Any) -> Any:
    """A rubric as a list of criteria; what has no such form stays as it is, for the model to refuse.

    A criterion that is a plain text, or a numbered line of one, weighs 1.
    """
    if isinstance(rubric, str):
        rubric = _lines(rubric)
    if not isinstance(rubric, list | tuple):
        return rubric
    return [{"text": entry, "weight": 1.0} if isinstance(entry, str) else entry for entry in rubric]


class ListedItem(_Listed):
    """A prompt with its criteria."""

    item_id: str = Field(default="", validation_alias=_named("item_id", "prompt_id", "id", "question_id", "uid"))
    """The digest of its content where the file has none."""
    prompt: Any = Field(validation_alias=_named("question", "prompt", "instruction", "messages"))
    """The prompt as the file has it, for trainers: a text or a chat."""
    context: Annotated[str | None, BeforeValidator(_text)] = None
    criteria: Annotated[tuple[ListedCriterion, ...], BeforeValidator(listed_criteria)] = Field(
        validation_alias=_named("rubric", "rubrics", "criteria")
    )

    @field_validator("item_id", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) else value

    @model_validator(mode="after")
    def _can_be_paid(self) -> ListedItem:
        if not self.question:
            raise ValueError("there is no prompt")
        if not any(criterion.weight for criterion in self.criteria):
            raise ValueError("no criterion has another weight than 0")
        if not self.item_id:
            named = {"item_id": item_digest(self.question, self.context, self.criteria)}
            return self.model_copy(update=named)
        return self

    @property
    def question(self) -> str:
        """The prompt as the judge reads it: a text, or a chat with its roles."""
        if not isinstance(self.prompt, list):
            return _text(self.prompt) or ""
        turns = [turn for turn in self.prompt if isinstance(turn, dict) and isinstance(turn.get("content"), str)]
        if len(turns) == 1:
            return str(turns[0]["content"])
        return "\n\n".join(f"{str(turn.get('role', 'user')).capitalize()}: {turn['content']}" for turn in turns)


def _lines(text: str) -> list[str]:
    """The criteria of a rubric in prose: its numbered lines with what follows each, or all its lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not any(_NUMBERED.match(line) for line in lines):
        return lines
    entries = []
    for line in lines:
        if _NUMBERED.match(line):
            entries.append(_NUMBERED.sub("", line))
        elif entries:
            entries[-1] += f" {line}"
    return entries


def read_listed(path: Path) -> list[ListedItem]:
    """The items of a JSONL file; InputError names file, line, field and rule of every line that cannot be used.

    An item without an id is called by the digest of its content. Lines that are the same are one item.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from error
    items: dict[str, ListedItem] = {}
    errors = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            item = parsed(line.encode("utf-8", "replace"), ListedItem)
        except InputErrors as several:
            errors += [error.placed(path, number) for error in several.errors]
        except InputError as error:
            errors.append(error.placed(path, number))
        else:
            if items.setdefault(item.item_id, item) != item:
                errors.append(InputError(f"item '{item.item_id}' is given twice", file=path, line=number))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors[:_MOST_SHOWN], len(errors))
    if not items:
        raise InputError("the file holds no prompt with a rubric", file=path)
    return list(items.values())


def item_digest(question: str, context: str | None, criteria: Sequence[ListedCriterion]) -> str:
    """What an item without an id is called: 24 hex digits of the SHA-256 of its content."""
    listed = [[of.text, of.weight, *([of.evidence] if of.evidence else [])] for of in criteria]
    content = [question, context, listed]
    written = json.dumps(content, ensure_ascii=True)
    return text_digest(written)[:24]


# What clients send.

Text = Annotated[str, StringConstraints(max_length=MOST_CHARACTERS)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class SentRollout(Frozen):
    """One completion, with the item that it answers or with its own question and rubric."""

    completion: Text
    """What the policy wrote."""
    item_id: str | None = None
    """The item, as the server knows it."""
    question: Text | None = None
    """Where there is no item: the question."""
    context: Text | None = None
    """What belongs to the question."""
    rubric: Annotated[
        Annotated[tuple[ListedCriterion, ...], Field(max_length=MOST_CRITERIA)] | None, BeforeValidator(listed_criteria)
    ] = None
    """Where there is no item: the weighted criteria, in the form of any rubric list."""

    @model_validator(mode="after")
    def _names_one_rubric(self) -> SentRollout:
        inline = self.question is not None and self.rubric is not None
        has_own = self.question is not None or self.rubric is not None or self.context is not None
        if self.item_id is None and not inline:
            raise ValueError("a rollout needs 'item_id', or both 'question' and 'rubric'")
        if self.item_id is not None and has_own:
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


Body = TypeVar("Body", bound=Frozen)


def parsed(body: bytes, kind: type[Body]) -> Body:
    """A body as a request of this kind; InputError names every place that is wrong.

    Half a surrogate pair, which a policy may write and no table holds, becomes a question mark.
    """
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {str(error)[:200]}") from error
    try:
        return kind.model_validate(_without_halves(value) if b"\\ud" in body.lower() else value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False, include_context=False)
        errors = [_as_place(detail) for detail in details[:_MOST_SHOWN]]
        raise errors[0] if len(details) == 1 else InputErrors(errors, len(details)) from error


def _without_halves(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list):
        return [_without_halves(entry) for entry in value]
    if isinstance(value, dict):
        return {_without_halves(name): _without_halves(entry) for name, entry in value.items()}
    return value


def _as_place(detail: ErrorDetails) -> InputError:
    """An error with its row, from 1, where it lies in a rollout."""
    place: Sequence[int | str] = detail["loc"]
    rule = "is missing" if detail["type"] == "missing" else detail["msg"].removeprefix("Value error, ")
    if len(place) > 1 and place[0] == "rollouts" and isinstance(place[1], int):
        return InputError(rule, row=place[1] + 1, field=_path(place[2:]) or "rollouts")
    return InputError(rule, field=_path(place) or None)


def _path(place: Sequence[int | str]) -> str:
    """A place as people write it: `rubric[3].points`."""
    path = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in place)
    return path.removeprefix(".")[:200]
