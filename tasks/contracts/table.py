"""One model per table. The Arrow schema, the expectations and the documented column list all derive from it.

A table is a frozen pydantic model that is read as a schema: rows stay in Arrow and are never instantiated one by one.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import annotated_types
import pyarrow as pa
from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

from tasks.contracts.errors import ContractError


class Frozen(BaseModel):
    """A value object: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Row(Frozen):
    """A table: its fields are the columns, their docstrings the documentation, their types and bounds the rules."""

    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]]


@dataclass(frozen=True)
class References:
    """Marks a column whose non-null values must occur in `column` of `table`."""

    table: str
    column: str


@dataclass(frozen=True)
class VolatileMark:
    """Marks a column that may differ between two runs with the same result (times); digests leave it out."""


VOLATILE = VolatileMark()
Share = Annotated[float, annotated_types.Ge(0.0), annotated_types.Le(1.0)]


@dataclass(frozen=True)
class Expectation:
    """One rule of a table, in a form that any engine can run.

    rule: `type` (value: Arrow type as text), `not_null`, `in_set` (value: tuple), `between` (value: (low, high), either
    may be None), `unique` (columns of the key), `references` (value: (table, column)).
    """

    rule: Literal["type", "not_null", "in_set", "between", "unique", "references"]
    columns: tuple[str, ...]
    value: Any = None


_SCALARS: dict[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


def _plain(annotation: Any) -> tuple[Any, bool]:
    """The annotation without `| None` and `Annotated`, and whether None is allowed."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [arg for arg in get_args(annotation) if arg is not type(None)]
        if len(rest) != 1:
            raise TypeError(f"a column holds one type or None, not {annotation}")
        return _plain(rest[0])[0], True
    return annotation, False


def arrow_type(annotation: Any) -> pa.DataType:
    """The Arrow type of a column annotation; TypeError for one that has none."""
    kind, _ = _plain(annotation)
    if kind in _SCALARS:
        return _SCALARS[kind]
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return pa.string()
    if origin is list:
        return pa.list_(arrow_type(args[0]))
    if origin is dict:
        return pa.map_(arrow_type(args[0]), arrow_type(args[1]))
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return pa.struct([pa.field(n, arrow_type(f.annotation)) for n, f in kind.model_fields.items()])
    raise TypeError(f"no Arrow type for {annotation}")


def _metadata(field: FieldInfo) -> list[Any]:
    """All marks of a field, also those inside an optional or an alias such as `Share | None`."""
    marks = list(field.metadata)
    todo: list[Any] = [field.annotation]
    while todo:
        part = todo.pop()
        if get_origin(part) is Annotated:
            marks.extend(get_args(part)[1:])
            todo.append(get_args(part)[0])
        elif get_origin(part) in (Union, types.UnionType):
            todo.extend(get_args(part))
    return marks


def schema(row: type[Row]) -> pa.Schema:
    """Arrow schema of a table: names, types, nullability, and each column's documentation as field metadata."""
    return pa.schema(
        [
            pa.field(name, arrow_type(f.annotation), nullable=_plain(f.annotation)[1], metadata={"doc": f.description or ""})
            for name, f in row.model_fields.items()
        ]
    )


def volatile(row: type[Row]) -> list[str]:
    """Columns that digests leave out."""
    return [name for name, f in row.model_fields.items() if VOLATILE in _metadata(f)]


def expectations(row: type[Row]) -> list[Expectation]:
    """Every rule the model states, in column order, the key's uniqueness last."""
    rules: list[Expectation] = []
    for name, field in row.model_fields.items():
        kind, nullable = _plain(field.annotation)
        rules.append(Expectation("type", (name,), str(arrow_type(field.annotation))))
        if not nullable:
            rules.append(Expectation("not_null", (name,)))
        if get_origin(kind) is Literal:
            rules.append(Expectation("in_set", (name,), get_args(kind)))
        marks = _metadata(field)
        low = next((m.ge for m in marks if isinstance(m, annotated_types.Ge)), None)
        high = next((m.le for m in marks if isinstance(m, annotated_types.Le)), None)
        if low is not None or high is not None:
            rules.append(Expectation("between", (name,), (low, high)))
        rules.extend(
            Expectation("references", (name,), (m.table, m.column)) for m in marks if isinstance(m, References)
        )
    return [*rules, Expectation("unique", row.key)]


def columns(row: type[Row]) -> list[tuple[str, str, bool, str]]:
    """The documented column list: name, Arrow type, nullable, what it holds."""
    return [(f.name, str(f.type), f.nullable, (f.metadata or {}).get(b"doc", b"").decode()) for f in schema(row)]


def conform(row: type[Row], rows: Iterable[Mapping[str, Any]] | pa.Table) -> pa.Table:
    """Records or an Arrow table as a table of the contract's exact schema.

    ContractError names the table, the column and the first offending key for a missing or unknown column, a value of
    another type, or a null where none is allowed.
    """
    want = schema(row)
    try:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist([dict(r) for r in rows], schema=want)
        if sorted(table.column_names) != sorted(want.names):
            odd = sorted(set(table.column_names) ^ set(want.names))
            raise ContractError(f"table '{row.table}': columns {odd} do not match the contract")
        table = table.select(want.names).cast(want)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, ValueError) as error:
        raise ContractError(f"table '{row.table}': {error}") from error
    for field in want:
        if not field.nullable and table[field.name].null_count:
            at = next(i for i, value in enumerate(table[field.name].to_pylist()) if value is None)
            key = {name: table[name][at].as_py() for name in row.key}
            raise ContractError(f"table '{row.table}', column '{field.name}': null is not allowed; first at {key}")
    return table
