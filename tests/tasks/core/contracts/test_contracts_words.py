"""Every closed word of every table says something to people, in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rubricflow.tasks.core.contracts.schema import closed_words
from rubricflow.tasks.core.contracts.tables.catalogue import TABLES

OTHER_TEXTS = ("recipes.py", "card.py", "study_text.py", "revision.py")
"""Phrases of a prompt that policies were trained under, measures of a card that is sealed with its grader: neither may
change with what people read elsewhere; comments of a drafted study, which are
about its keys; and what a revision did to a criterion, whose words happen to hold those of a smaller list."""
TASKS = Path(__file__).parents[4] / "tasks"


def parts(annotation: Any) -> Iterator[Any]:
    """An annotation and everything in it."""
    yield annotation
    for part in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield from parts(part)


def closed_columns(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo, set[str]]]:
    """The columns of closed words, with those words; those of nested models, too."""
    for name, field in model.model_fields.items():
        for part in parts(field.annotation):
            if get_origin(part) is Literal:
                yield f"{model.__name__}.{name}", field, set(get_args(part))
            elif isinstance(part, type) and issubclass(part, BaseModel):
                yield from closed_columns(part)


CLOSED = [column for row in TABLES for column in closed_columns(row)]
WORDS: list[Mapping[str, str]] = [words for _, field, _ in CLOSED for words in closed_words(field)]


@pytest.mark.parametrize(("field", "values"), [case[1:] for case in CLOSED], ids=[case[0] for case in CLOSED])
def test_every_closed_word_of_a_column_says_something(field: FieldInfo, values: set[str]) -> None:
    (words,) = closed_words(field)
    assert values <= set(words)
    assert all(says.strip() for says in words.values())


def test_no_word_is_explained_that_no_column_has() -> None:
    used: dict[int, set[str]] = {}
    for _, field, values in CLOSED:
        used.setdefault(id(closed_words(field)[0]), set()).update(values)
    assert [words for words in WORDS if used[id(words)] != set(words)] == []


def texts(path: Path) -> Iterator[tuple[int, set[str]]]:
    """Line and keys of every mapping of words to texts that a file spells out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            says = [value.value for value in node.values if isinstance(value, ast.Constant)]
            if len(says) == len(node.values) and any(" " in str(text) and "<" not in str(text) for text in says):
                yield node.lineno, {key for key in keys if isinstance(key, str)}


@pytest.mark.parametrize("room", sorted({path.parent for path in TASKS.rglob("*.py")} - {TASKS}), ids=str)
def test_no_other_place_explains_closed_words(room: Path) -> None:
    places = [(path.name, line, keys) for path in room.glob("*.py") for line, keys in texts(path)]
    if "contracts" not in room.parts:
        second = [place for place in places if any(place[2] >= set(words) for words in WORDS)]
        assert {name for name, _, _ in second} <= set(OTHER_TEXTS)
