"""docs/settings.md says every key of a study and an experiment file as the settings' models do. After a change
`python tests/test_settings_document.py` writes it anew."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from rubricflow.tasks.core.contracts.settings.experiment import Experiment
from rubricflow.tasks.core.contracts.settings.study import Study

DOCUMENT = Path(__file__).parents[1] / "docs" / "settings.md"
HEAD = """# Settings

Every key of a study file and of an experiment file: its type, its default and what it is for. An unknown key is an
error, and paths are relative to the file. This page is made from the settings' models. How the keys work together
is told in [I grade a class](grade-a-class.md), [judges](judges.md), [train with rewards](train-with-rewards.md) and
[study methods](study-methods.md).
"""
NAMES = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path", Any: "any value"}
BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def name_of(kind: Any) -> str:
    """A type in words; models lead to their table."""
    origin, inner = get_origin(kind), [one for one in get_args(kind) if one is not Ellipsis]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return f"[{kind.__name__}](#{kind.__name__.lower()})"
    if origin is Annotated:
        return name_of(inner[0]) + bounds(inner[1:])
    if origin is Literal:
        return ", ".join(f"`{one}`" for one in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(name_of(one) for one in inner if one is not type(None)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"{name_of(inner[0])} → {name_of(inner[1])}"
    if origin is not None:
        return f"list of {', '.join(dict.fromkeys(name_of(one) for one in inner))}"
    return NAMES.get(kind) or str(getattr(kind, "__name__", "value")).lower()


def bounds(metadata: Any) -> str:
    found = [(words, getattr(one, name)) for one in metadata for name, words in BOUNDS.items() if hasattr(one, name)]
    return "".join(f", {words} {value:g}" for words, value in found if value is not None)


def default_of(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    if value is None or value is PydanticUndefined or value in ((), {}, ""):
        return "none"
    if isinstance(value, BaseModel):
        return "its defaults"
    many = isinstance(value, tuple | list | frozenset)
    return ", ".join(f"`{str(one).lower() if isinstance(one, bool) else one}`" for one in (value if many else [value]))


def purpose_of(field: FieldInfo) -> str:
    """What a key is for: its own words or, where it has none, the first sentence of what it holds."""
    inner = (one for one in leaves(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel))
    return field.description or next((f"{(one.__doc__ or '').split('. ')[0].rstrip('.')}." for one in inner), "")


def models_of(model: type[BaseModel], known: dict[type[BaseModel], None]) -> dict[type[BaseModel], None]:
    """A model and all that its keys hold, in the order in which they are met."""
    if model not in known:
        known[model] = None
        for field in model.model_fields.values():
            for inner in leaves(field.annotation):
                if isinstance(inner, type) and issubclass(inner, BaseModel):
                    models_of(inner, known)
    return known


def leaves(kind: Any) -> Iterator[Any]:
    yield kind
    for inner in get_args(kind):
        yield from leaves(inner)


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def document() -> str:
    lines = [HEAD]
    for model in models_of(Experiment, models_of(Study, {})):
        about = cell(model.__doc__ or "")
        lines += [f"## {model.__name__}\n", f"{about}\n", "| key | type | default | what for |", "|---|---|---|---|"]
        for name, field in model.model_fields.items():
            kind = cell(name_of(field.annotation) + bounds(field.metadata))
            lines.append(
                f"| `{field.alias or name}` | {kind} | {cell(default_of(field))} | {cell(purpose_of(field))} |"
            )
        lines.append("")
    return "\n".join(lines)


def test_the_document_of_the_settings_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document()


def test_every_key_says_what_it_is_for() -> None:
    silent = [
        f"{model.__name__}.{name}"
        for model in models_of(Experiment, models_of(Study, {}))
        for name, field in model.model_fields.items()
        if not purpose_of(field)
    ]
    assert silent == []


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
