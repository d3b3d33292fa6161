"""Files that people write in YAML, read into models: what is wrong is named by file, key and rule.

YAML here is its version 1.2 with the types of JSON: no, off and 12:30 are texts, as they look, and only true, false,
null, ~ and numbers are something else. Where a text is due these are refused with the advice to quote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from tasks.contracts.errors import InputError
from tasks.contracts.schema import Frozen

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
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    raise yaml.MarkedYAMLError(
                        problem=f"the key '{key.value}' is given twice", problem_mark=key.start_mark
                    )
                seen.add((key.tag, key.value))
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
    """The content of a YAML file as a model; InputError names the first offending key and the rule it breaks."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        more = f"and {error.error_count() - 1} more" if error.error_count() > 1 else None
        if first["type"] in ("string_type", "invalid_key") and not isinstance(first["input"], list | dict):
            key, written = _written(file, first["loc"])
            raise InputError(_unquoted(first["input"], written), file=file, field=key) from error
        field = ".".join(str(part) for part in first["loc"]) or None
        if first["type"] == "string_type":
            raise InputError(_no_scalar(first["input"]), file=file, field=field, hint=more) from error
        raise InputError(first["msg"], file=file, field=field, hint=more) from error


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
            known = [pair for pair in node.value if _reads_as(pair[0], part)]
            if known:
                path.append(known[0][0].value)
                node = known[0][0 if after == "[key]" else 1]
    if not isinstance(node, yaml.ScalarNode):
        return ".".join(map(str, place)), None
    return ".".join(path), str(node.value)


def _reads_as(key: yaml.Node, part: int | str) -> bool:
    """Whether a key is the one that pydantic names: as a text, or as what YAML made of it."""
    if not isinstance(key, yaml.ScalarNode):
        return False
    value = _Loader("").construct_object(key)
    return part in (key.value, value) or part == str(value)
