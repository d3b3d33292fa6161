"""Files that people write in YAML, read into models: what is wrong is named by file, key and rule.

YAML here is its version 1.2 with the types of JSON: no, off and 12:30 are texts, as they look, and only true, false,
null, ~ and numbers are something else. Where a text is due these are refused with the advice to quote them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails
from yaml.reader import ReaderError

from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.core.contracts.schema import Frozen

SHOWN = 20
"""Errors that are shown at once."""
LARGEST = 4 << 20
"""The size of a file in characters, every alias written out, and _NODE more for each value."""
DEEPEST = 100
"""How deep lists and mappings may be nested."""
_NODE = 32
_DIGITS = 300
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")
_TOO_LARGE = f"it is larger than {LARGEST >> 20} MiB, or its aliases make it so"
Model = TypeVar("Model", bound=Frozen)
_PLAIN = {
    "bool": r"true|True|TRUE|false|False|FALSE",
    "null": r"~|null|Null|NULL|",
    "int": r"[-+]?[0-9]+",
    "float": r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "merge": "<<",
}
"""What an unquoted scalar that is no text looks like, in the order in which it is tried."""


_TAG = "tag:yaml.org,2002:"
_KINDS: dict[type[yaml.Node], set[str]] = {
    yaml.ScalarNode: {"str", *_PLAIN},
    yaml.SequenceNode: {"seq"},
    yaml.MappingNode: {"map"},
}
"""What a value may be, by its form."""


class _Loader(yaml.SafeLoader):
    """YAML 1.2 with the types of JSON, of bounded size: every fault is a MarkedYAMLError that says where it is.

    No key is given twice: the last one would win and nobody would know.
    """

    yaml_implicit_resolvers: dict[str | None, Any] = {}  # PyYAML's name for those of YAML 1.1

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._sizes: dict[int, int] = {}
        """id of a node that is composed → its size, and with it that of all that its aliases stand for."""
        self._size = self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event, before = cast(yaml.Event, self.peek_event()), self._size  # type: ignore[no-untyped-call]
        self._depth += 1
        if self._depth > DEEPEST:
            raise _fault_at(event.start_mark, f"lists and mappings are nested more than {DEEPEST} deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise _fault_at(event.start_mark, f"the alias '*{event.anchor}' stands within what it names")
            self._size += self._sizes[id(node)]
        elif node is not None:
            _refuse_other_types(node)
            self._size += _NODE + (len(node.value) if isinstance(node, yaml.ScalarNode) else 0)
            self._sizes[id(node)] = self._size - before
        if self._size > LARGEST:
            raise _fault_at(event.start_mark, _TOO_LARGE)
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _fault_at(key.start_mark, "a key is a text or a number, and this is a list or a mapping")
            value = self.construct_object(key)
            if value in keys:
                raise _fault_at(key.start_mark, f"the key '{key.value}' is given twice")
            keys.add(value)
        return node


def _fault_at(mark: Any, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


def _refuse_other_types(node: yaml.Node) -> None:
    """MarkedYAMLError for a tag of another type than JSON has, or one that the value does not keep."""
    kind = node.tag.removeprefix(_TAG)
    if kind not in _KINDS[type(node)]:
        tag = f"!!{kind}" if node.tag.startswith(_TAG) else node.tag
        raise _fault_at(node.start_mark, f"the tag '{tag}' is not read here: leave it out")
    if kind in _PLAIN and not re.fullmatch(_PLAIN[kind], node.value):
        raise _fault_at(node.start_mark, f"'{node.value[:40]}' is no '!!{kind}'")
    if kind == "str" and _HALF_A_PAIR.search(node.value):
        raise _fault_at(node.start_mark, "a text holds half a character (\\ud800 to \\udfff): write the whole one")
    if kind == "int" and len(node.value) > _DIGITS:
        raise _fault_at(node.start_mark, f"a number has at most {_DIGITS} digits")


for _kind, _pattern in _PLAIN.items():
    _Loader.add_implicit_resolver(_TAG + _kind, re.compile(f"^(?:{_pattern})$"), None)
_Loader.add_constructor(_TAG + "int", lambda _, node: int(node.value))  # YAML 1.1 reads 010 as 8
_Loader.add_constructor(_TAG + "merge", lambda _, node: node.value)  # where it is no key


def read_yaml(path: Path) -> Any:
    """The content of a YAML file in UTF-8; InputError where it cannot be read, gives a key twice, holds what JSON does
    not, is nested more than DEEPEST deep, or larger than LARGEST with every alias written out."""
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"is not read: {_TOO_LARGE}", file=path)
        text = path.read_text(encoding="utf-8-sig")
        return yaml.load(text, _Loader)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=path) from error
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8: {error.reason} at byte {error.start}", file=path) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"is not YAML: {error.problem}{where}", file=path) from error
    except ReaderError as error:
        *before, line = text[: error.position].split("\n")
        where = f"in line {len(before) + 1}, column {len(line) + 1}"
        raise InputError(f"is not YAML: the character U+{error.character:04X} {where}", file=path) from error


def parse(model: type[Model], content: Any, file: Path) -> Model:
    """The content of a YAML file as a model; InputErrors name the offending keys and the rules they break."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        root = composed(file)
        # A default that follows from other settings is not made where one of those is wrong: that one is said.
        found = [fault for fault in error.errors() if fault["type"] != "default_factory_not_called"]
        faults = [_fault(model, fault, file, root) for fault in found[:SHOWN]]
        raise (faults[0] if len(found) == 1 else InputErrors(faults, len(found))) from error


def _fault(model: type[Model], fault: ErrorDetails, file: Path, root: yaml.Node | None) -> InputError:
    place, value = fault["loc"], fault["input"]
    line, column = position(root, place)
    where: Fields = {"file": file, "line": line, "column": column}
    if fault["type"] in ("string_type", "invalid_key") and not isinstance(value, list | dict):
        key, written = _written(root, place)
        if written == "":
            return InputError("is empty; write a text", field=key, **where)
        kind = {bool: "true or false", type(None): "nothing"}.get(type(value), "a number")
        written = written or json.dumps(value)
        rule = f"YAML reads {written} as {kind}, and a text is due; quote it: '{written}'"
        return InputError(rule, field=key, **where)
    field = ".".join(map(str, place)) or None
    if fault["type"] == "string_type":
        found = f"list of {len(value)}"
        if isinstance(value, Mapping):
            found = f"mapping of {', '.join(map(str, value)) or 'nothing'}"
        return InputError(f"a text is due, and this is a {found}", field=field, **where)
    if fault["type"] == "extra_forbidden":
        keys = _keys(model, place[:-1])
        alike = get_close_matches(str(place[-1]), keys, n=1, cutoff=0.6)  # the key that is probably meant, else all
        hint = f"did you mean '{alike[0]}'?" if alike else f"there are {', '.join(keys)}" if keys else None
        return InputError("there is no such key", field=field, hint=hint, **where)
    return InputError(fault["msg"].removeprefix("Value error, "), field=field, **where)


def composed(file: Path) -> yaml.Node | None:
    """A YAML file as nodes, which know where they stand; None where it cannot be read."""
    try:
        return yaml.compose(file.read_text(encoding="utf-8-sig"), _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return None


def position(root: yaml.Node | None, place: Sequence[int | str]) -> tuple[int | None, int | None]:
    """(line, column), both from 1, of what a place leads to: the key, where it is one, else the value; of a key that is
    missing those of the mapping that it is missing in. None where that is not known. place: as in `_written`."""
    found = list(_followed(root, place))
    if not found:
        return None, None
    mark = found[-1][0].start_mark
    return mark.line + 1, mark.column + 1


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


def _written(root: yaml.Node | None, place: Sequence[int | str]) -> tuple[str, str | None]:
    """(the keys that lead to an offending scalar, the scalar as it stands in the file or, where another file is merged
    into this one, None). place: of pydantic, which puts kinds of types between the keys, and '[key]' after a key that
    is itself the offence."""
    steps = list(_followed(root, place))
    node = steps[-1][1] if steps else root
    if not isinstance(node, yaml.ScalarNode):
        return ".".join(map(str, place)), None
    return ".".join(name for _, _, name in steps), str(node.value)


def _followed(root: yaml.Node | None, place: Sequence[int | str]) -> Iterator[tuple[yaml.Node, yaml.Node, str]]:
    """(where it stands, what it leads to, its name) of each part of a place that a file has."""
    node = root
    for part, after in zip(place, [*place[1:], None], strict=False):
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            yield node, node, str(part)
        elif isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if _reads_as(pair[0], part)]
            if pairs:
                key, value = pairs[0]
                node = key if after == "[key]" else value
                yield key, node, key.value


def _reads_as(key: yaml.Node, part: int | str) -> bool:
    """Whether a key is the one that pydantic names: as a text, or as what YAML made of it."""
    if not isinstance(key, yaml.ScalarNode):
        return False
    value = _Loader("").construct_object(key)
    return part in (key.value, value) or part == str(value)
