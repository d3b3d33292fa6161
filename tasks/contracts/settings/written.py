"""Files that people write in YAML, read into models: what is wrong is named by file, key and rule.

YAML here is its version 1.2 with the types of JSON: no, off and 12:30 are texts, as they look, and only true, false,
null, ~ and numbers are something else. Where a text is due these are refused with the advice to quote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from tasks.contracts.errors import InputError, InputErrors
from tasks.contracts.schema import Frozen

SHOWN = 20
"""Errors that are shown at once."""
Model = TypeVar("Model", bound=Frozen)
_PLAIN = {
    "bool": r"true|True|TRUE|false|False|FALSE",
    "null": r"~|null|Null|NULL|",
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "merge": "<<",
}
"""What an unquoted scalar that is no text looks like, in the order in which it is tried."""


class _Loader(yaml.SafeLoader):
    """YAML 1.2 in which no key is given twice: the last one would win and nobody would know."""

    yaml_implicit_resolvers: dict[str | None, Any] = {}  # PyYAML's name for those of YAML 1.1

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in keys:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key '{key.value}' is given twice", problem_mark=key.start_mark
                    )
                keys.add((key.tag, key.value))
        return super().construct_mapping(node, deep)


for _kind, _pattern in _PLAIN.items():
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), None)
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))  # YAML 1.1 reads 010 as 8


def read_yaml(path: Path) -> Any:
    """The content of a YAML file in UTF-8; InputError where it cannot be read or gives a key twice."""
    try:
        return yaml.load(path.read_text(encoding="utf-8-sig"), _Loader)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason} at byte {error.start}", file=path) from error
    except yaml.MarkedYAMLError as error:
        line = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"is not YAML: {error.problem}{line}", file=path) from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a number of thousands of digits
        raise InputError(f"is not YAML: {' '.join(str(error).split())}", file=path) from error
    except RecursionError as error:
        raise InputError("is not YAML: nested too deeply", file=path) from error


def parse(model: type[Model], content: Any, file: Path) -> Model:
    """The content of a YAML file as a model; InputErrors name the offending keys and the rules they break."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _all_faults(model, error, file) from error


def _all_faults(model: type[Model], error: ValidationError, file: Path) -> InputError:
    """What is wrong with the keys and values of a file, all at once."""
    faults = [_fault(model, fault, file) for fault in error.errors()[:SHOWN]]
    return faults[0] if error.error_count() == 1 else InputErrors(faults, error.error_count())


def _fault(model: type[Model], fault: ErrorDetails, file: Path) -> InputError:
    place, value = fault["loc"], fault["input"]
    if fault["type"] in ("string_type", "invalid_key") and not isinstance(value, list | dict):
        key, written = _written(file, place)
        return InputError(_unquoted(value, written), file=file, field=key)
    field = ".".join(map(str, place)) or None
    if fault["type"] == "string_type":
        return InputError(_no_scalar(value), file=file, field=field)
    if fault["type"] == "extra_forbidden":
        hint = _key_hint(str(place[-1]), _keys(model, place[:-1]))
        return InputError("there is no such key", file=file, field=field, hint=hint)
    return InputError(fault["msg"], file=file, field=field)


def _key_hint(key: str, keys: Sequence[str]) -> str | None:
    """The key that is probably meant, else all that there are."""
    alike = get_close_matches(key, keys, n=1, cutoff=0.6)
    if alike:
        return f"did you mean '{alike[0]}'?"
    return f"there are {', '.join(keys)}" if keys else None


def _keys(model: type[Frozen], place: Sequence[int | str]) -> list[str]:
    """The keys that there are where a place of a file leads; none where that depends on more than the place."""
    for part in place:
        if isinstance(part, str) and part in model.model_fields:
            inner = _model_in(model.model_fields[part].annotation)
            if inner is None:
                return []
            model = inner
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[Frozen] | None:
    """The one model in an annotation such as `tuple[Source, ...]` or `Reward | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Frozen):
        return annotation
    models = {model for part in get_args(annotation) if (model := _model_in(part)) is not None}
    return models.pop() if len(models) == 1 else None


def _no_scalar(value: Mapping[Any, Any] | Sequence[Any]) -> str:
    """What to do about a list or a mapping where a text, or a mapping of another form, is due."""
    if isinstance(value, Mapping):
        return f"a text is due, and this is a mapping of {', '.join(map(str, value)) or 'nothing'}"
    return f"a text is due, and this is a list of {len(value)}"


def _unquoted(value: object, written: str | None) -> str:
    """What to do about a scalar that is no text; written: how it stands in the file, where that is known."""
    if written == "":
        return "is empty; write a text"
    kind = {bool: "true or false", type(None): "nothing"}.get(type(value), "a number")
    written = written or json.dumps(value)
    return f"YAML reads {written} as {kind}, and a text is due; quote it: '{written}'"


def _written(file: Path, place: Sequence[int | str]) -> tuple[str, str | None]:
    """(the keys that lead to an offending scalar, the scalar as it stands in the file or, where another file is merged
    into this one, None). place: of pydantic, which puts kinds of types between the keys, and '[key]' after a key that
    is itself the offence."""
    node, path = yaml.compose(file.read_text(encoding="utf-8-sig"), _Loader), list[str]()
    for part, after in zip(place, [*place[1:], None], strict=True):
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int):
            path.append(str(part))
            node = node.value[part]
        elif isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if _reads_as(pair[0], part)]
            if pairs:
                key, value = pairs[0]
                path.append(key.value)
                node = key if after == "[key]" else value
    if not isinstance(node, yaml.ScalarNode):
        return ".".join(map(str, place)), None
    return ".".join(path), str(node.value)


def _reads_as(key: yaml.Node, part: int | str) -> bool:
    """Whether a key is the one that pydantic names: as a text, or as what YAML made of it."""
    if not isinstance(key, yaml.ScalarNode):
        return False
    value = _Loader("").construct_object(key)
    return part in (key.value, value) or part == str(value)
