"""Plain lists of weighted criteria, as data sets of rubrics write them, and the JSONL files that hold them.

A line is a prompt with its criteria. Read are HealthBench's form (`prompt` as a chat, `rubrics` of `criterion` and
`points`), that of Rubrics as Rewards (`question`, `rubric` of `description` and `weight`), that of OpenRubrics
(`instruction`, `rubric` as numbered lines), and our own (`item_id`, `question`, `rubric` of `text` and `weight`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import Field, ValidationError

from rubricflow.tasks.core.contracts.bundle import EvidenceType
from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.core.contracts.schema import Frozen

_ITEM = ("item_id", "prompt_id", "id", "question_id", "uid")
_QUESTION = ("question", "prompt", "instruction", "messages")
_RUBRIC = ("rubric", "rubrics", "criteria")
_TEXT = ("text", "criterion", "description", "requirement")
_WEIGHT = ("weight", "points", "score")
_CONTEXT = ("context",)
_NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*•])\s+")
_HIDDEN_MARK = "canary"
"""What authors add whose examples are for evaluation only."""
_MOST_SHOWN = 20


class ListedCriterion(Frozen):
    """One criterion of a plain list."""

    text: str = Field(min_length=1, max_length=20_000)
    """What is looked for; with a negative weight a fault."""
    weight: float = Field(allow_inf_nan=False)
    """Its points; negative for what costs."""
    evidence: EvidenceType | None = None
    """What must support it, see tasks/grading/judge/verify.py; where not given a quote from one sentence for what is
    paid for."""


class ListedItem(NamedTuple):
    """A prompt with its criteria."""

    item_id: str
    question: str
    context: str | None
    criteria: tuple[ListedCriterion, ...]
    prompt: Any
    """The prompt as the file has it, for trainers: a text or a chat."""


def listed_criteria(rubric: Any) -> Any:
    """A rubric's criteria as `text` and `weight`, whatever its form calls them; what has no such form stays as it is,
    for the model to refuse.

    A criterion that is a plain text, or a numbered line of one, weighs 1.
    """
    if isinstance(rubric, str):
        return [{"text": line, "weight": 1.0} for line in _lines(rubric)]
    if not isinstance(rubric, Sequence):
        return rubric
    return [_criterion(entry) for entry in rubric]


def _criterion(entry: Any) -> Any:
    if isinstance(entry, str):
        return {"text": entry, "weight": 1.0}
    if not isinstance(entry, Mapping):
        return entry
    renamed = {"text": _first(entry, _TEXT), "weight": _first(entry, _WEIGHT)}
    if entry.get("evidence") in get_args(EvidenceType):  # other lists have texts of that name
        renamed["evidence"] = entry["evidence"]
    return {name: value for name, value in renamed.items() if value is not None}


def _lines(text: str) -> list[str]:
    """The criteria of a rubric in prose: its numbered lines with what follows each, or all its lines."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not any(_NUMBERED.match(line) for line in lines):
        return lines
    entries: list[str] = []
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
    items: dict[str, ListedItem] = {}
    errors: list[InputError] = []
    for number, line in _numbered_lines(path):
        try:
            item = _item(line)
        except InputErrors as several:
            errors += [error.placed(path, number) for error in several.errors]
            continue
        except InputError as error:
            errors.append(error.placed(path, number))
            continue
        earlier = items.setdefault(item.item_id, item)
        if earlier != item:
            errors.append(InputError(f"item '{item.item_id}' is given twice", file=path, line=number))
    if errors:
        raise errors[0] if len(errors) == 1 else InputErrors(errors[:_MOST_SHOWN], len(errors))
    if not items:
        raise InputError("the file holds no prompt with a rubric", file=path)
    return list(items.values())


def _numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=path) from error
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, line


def _item(line: str) -> ListedItem:
    """The item of a line; InputError or InputErrors without its place."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {str(error)[:120]}") from error
    if not isinstance(record, dict):
        raise InputError("is no JSON object")
    if _HIDDEN_MARK in record:
        rule = "carries a canary: its authors ask that nothing is trained on it"
        raise InputError(rule, field=_HIDDEN_MARK)
    prompt, rubric = _first(record, _QUESTION), _first(record, _RUBRIC)
    question = _as_question(prompt)
    criteria = _checked_criteria(rubric) if rubric is not None else ()
    missing = [
        InputError(f"there is no {what}", field=" or ".join(names))
        for what, names, value in (("prompt", _QUESTION, question), ("rubric", _RUBRIC, rubric))
        if not value
    ]
    if missing:
        raise missing[0] if len(missing) == 1 else InputErrors(missing, len(missing))
    if not any(criterion.weight for criterion in criteria):
        raise InputError("no criterion has another weight than 0", field="rubric")
    context = _first(record, _CONTEXT)
    name = _first(record, _ITEM)
    return ListedItem(
        item_id=str(name) if name is not None else item_digest(question, _text(context), criteria),
        question=question,
        context=_text(context),
        criteria=criteria,
        prompt=prompt,
    )


def item_digest(question: str, context: str | None, criteria: Sequence[ListedCriterion]) -> str:
    """What an item without an id is called: 24 hex digits of the SHA-256 of its content."""
    listed = [[of.text, of.weight, *([of.evidence] if of.evidence else [])] for of in criteria]
    content = [question, context, listed]
    written = json.dumps(content, ensure_ascii=True)
    return hashlib.sha256(written.encode()).hexdigest()[:24]


def _checked_criteria(rubric: Any) -> tuple[ListedCriterion, ...]:
    """The criteria of a line; InputErrors names all that cannot be used."""
    entries, criteria, errors = listed_criteria(rubric), [], []
    if not isinstance(entries, list) or not entries:
        raise InputError("the rubric is no list of criteria", field="rubric")
    for number, entry in enumerate(entries, 1):
        try:
            criteria.append(ListedCriterion.model_validate(entry))
        except ValidationError as error:
            errors += [_criterion_error(number, detail) for detail in error.errors(include_url=False)]
    if errors:
        raise InputErrors(errors, len(errors))
    return tuple(criteria)


def _criterion_error(number: int, detail: Any) -> InputError:
    names = {"text": _TEXT, "weight": _WEIGHT}
    part = str(detail["loc"][0]) if detail["loc"] else ""
    missing = detail["type"] == "missing"
    rule = f"criterion {number} has no {part}" if missing else f"criterion {number}: {detail['msg']}"
    return InputError(rule, field=" or ".join(names.get(part, ("rubric",))))


def _as_question(prompt: Any) -> str:
    """A prompt as the judge reads it: a text, or a chat with its roles."""
    if not isinstance(prompt, list):
        return _text(prompt) or ""
    turns = [turn for turn in prompt if isinstance(turn, dict) and isinstance(turn.get("content"), str)]
    if len(turns) == 1:
        return str(turns[0]["content"])
    return "\n\n".join(f"{str(turn.get('role', 'user')).capitalize()}: {turn['content']}" for turn in turns)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    """What stands under the first of these names that says something."""
    return next((record[name] for name in names if record.get(name) is not None), None)
