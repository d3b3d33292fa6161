"""Every closed word of every table says something to people, in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from rubricflow.tasks.core.contracts.schema import closed_words
from rubricflow.tasks.core.contracts.tables.catalogue import TABLES

OTHER_TEXTS = ("recipes.py", "card.py", "study_text.py", "revision.py")
"""Phrases of a prompt that policies were trained under, measures of a card that is sealed with its grader: neither may
change with what people read elsewhere; comments of a drafted study, which are
about its keys; and what a revision did to a criterion, whose words happen to hold those of a smaller list."""
TASKS = Path(__file__).parents[4] / "tasks"


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """A table's model and those within it."""
    yield model
    for field in model.model_fields.values():
        for part in parts(field.annotation):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from models(part)


def parts(annotation: Any) -> Iterator[Any]:
    """An annotation and everything in it."""
    yield annotation
    for part in get_args(annotation) if get_origin(annotation) is not Literal else ():
        yield from parts(part)


FIELDS = [field for row in TABLES for model in models(row) for field in model.model_fields.values()]
WORDS: list[Mapping[str, str]] = [words for field in FIELDS for words in closed_words(field)]


def test_every_closed_word_says_something_and_every_literal_has_words() -> None:
    assert all(says.strip() for words in WORDS for says in words.values())
    for field in FIELDS:
        for part in parts(field.annotation):
            if get_origin(part) is Literal:
                (words,) = closed_words(field)
                assert set(get_args(part)) < set(words)  # all of them: a text with the mapping says it


def texts(path: Path) -> Iterator[tuple[int, set[str]]]:
    """Line and keys of every mapping of words to texts that a file spells out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Dict):
            keys = [key.value for key in node.keys if isinstance(key, ast.Constant)]
            says = [value.value for value in node.values if isinstance(value, ast.Constant)]
            if len(says) == len(node.values) and any(" " in str(text) and "<" not in str(text) for text in says):
                yield node.lineno, {key for key in keys if isinstance(key, str)}


def test_no_other_place_explains_closed_words() -> None:
    files = (path for path in TASKS.rglob("*.py") if "contracts" not in path.parts)
    places = [(path.name, keys) for path in files for _, keys in texts(path)]
    assert {name for name, keys in places if any(keys >= set(words) for words in WORDS)} <= set(OTHER_TEXTS)
