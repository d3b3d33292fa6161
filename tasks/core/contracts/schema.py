"""One model per table. The Arrow schema, the expectations and the documented column list all derive from it.

A table is a frozen pydantic model that is read as a schema: rows stay in Arrow and are never instantiated one by one.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

import annotated_types
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field
from pydantic.fields import FieldInfo

from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.errors import ContractError


class Frozen(BaseModel):
    """A value object: immutable, and an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def left_out(default: Any, **rules: Any) -> Any:
    """A field that the content leaves out where it has its default: what was made before it was keeps its digest."""
    return Field(default=default, exclude_if=lambda value: value == default, **rules)


class Row(Frozen):
    """A table: its fields are the columns, their docstrings the documentation, their types and bounds the rules."""

    table: ClassVar[str]
    key: ClassVar[tuple[str, ...]]

    def __init_subclass__(cls, table: str = "", key: tuple[str, ...] = (), **config: Any) -> None:
        """table: its name; key: the columns that name a row."""
        super().__init_subclass__(**config)
        if table:
            cls.table, cls.key = table, key


@dataclass(frozen=True)
class References:
    """Marks a column whose non-null values must occur in `column` of `table`."""

    table: str
    column: str


@dataclass(frozen=True)
class VolatileMark:
    """Marks a column that may differ between two runs with the same result (times); digests leave it out."""


MostlyRule = Literal["mostly_not_null", "mostly_null", "mostly_filled", "mostly_in_set"]


@dataclass(frozen=True)
class Usually:
    """Marks a column most of whose values ought to keep a rule: where fewer do, that is a warning and stops nothing.

    mostly: the least share of values, above 0 and below 1. rule: `mostly_not_null`, `mostly_null`, `mostly_filled` (a
    text with more than white space in it) or `mostly_in_set` (value: tuple). unless: (column, value), the rows left
    out; the column is one with a closed set of values.
    """

    mostly: float
    rule: MostlyRule
    value: Any = None
    unless: tuple[str, str] | None = None


VOLATILE = VolatileMark()
_MARKS = (References, VolatileMark, Usually, Mapping, annotated_types.Ge, annotated_types.Le)
"""A mapping marks a column of closed words: each word with what it says to people."""
Natural = Annotated[int, annotated_types.Ge(0)]
Positive = Annotated[int, annotated_types.Ge(1)]
NonNegative = Annotated[float, annotated_types.Ge(0)]
AboveZero = Annotated[float, annotated_types.Gt(0)]
Share = Annotated[float, annotated_types.Ge(0.0), annotated_types.Le(1.0)]
ResponseId = Annotated[str, References("responses", "response_id")]
ItemId = Annotated[str, References("items", "item_id")]
RubricId = Annotated[str, References("rubrics", "rubric_id")]


@dataclass(frozen=True)
class Expectation:
    """One rule of a table, in a form that any engine can run.

    rule: `type` (value: Arrow type as text), `not_null`, `in_set` (value: tuple), `between` (value: (low, high), either
    may be None), `unique` (columns of the key), `references` (value: (table, column)), or one that `Usually` names.
    """

    rule: Literal["type", "not_null", "in_set", "between", "unique", "references"] | MostlyRule
    columns: tuple[str, ...]
    value: Any = None
    mostly: float | None = None
    """The least share of values that keep it; None: all of them."""
    unless: tuple[str, str] | None = None
    """(column, value): the rows it does not hold for."""

    @property
    def severity(self) -> Literal["critical", "warning"]:
        """A rule of every value stops a run, a rule of most values does not."""
        return "critical" if self.mostly is None else "warning"


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
        kinds = [arg for arg in get_args(annotation) if arg is not type(None)]
        if len(kinds) != 1:
            raise TypeError(f"a column holds one type or None, not {annotation}")
        return _plain(kinds[0])[0], True
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


@cache
def schema(row: type[Row]) -> pa.Schema:
    """Arrow schema of a table: names, types, nullability, and each column's documentation as field metadata."""
    fields = []
    for name, field in row.model_fields.items():
        words = ["; ".join(f"{word}: {says}" for word, says in of.items()) + "." for of in closed_words(field)]
        doc = " ".join([field.description or "", *words])
        fields.append(pa.field(name, arrow_type(field.annotation), _plain(field.annotation)[1], {"doc": doc}))
    return pa.schema(fields)


def closed_words(field: FieldInfo) -> list[Mapping[str, str]]:
    """The words of a column of closed ones, each with what it says to people; empty for a column of other values."""
    return [mark for mark in _metadata(field) if isinstance(mark, Mapping)]


@cache
def lasting(row: type[Row]) -> list[str]:
    """Columns that digests are of: all but those marked VOLATILE."""
    return [name for name, field in row.model_fields.items() if VOLATILE not in _metadata(field)]


@cache
def expectations(row: type[Row]) -> tuple[Expectation, ...]:
    """Every rule the model states, in column order, the key's uniqueness last; TypeError for a bound that no rule can
    express."""
    rules = []
    for name, field in row.model_fields.items():
        kind, nullable = _plain(field.annotation)
        rules.append(Expectation("type", (name,), str(arrow_type(field.annotation))))
        if not nullable:
            rules.append(Expectation("not_null", (name,)))
        words = get_args(kind) if get_origin(kind) is Literal else tuple(*closed_words(field))
        if words and get_origin(kind) is not list:
            rules.append(Expectation("in_set", (name,), words))
        marks = _metadata(field)
        unknown = [m for m in marks if not isinstance(m, _MARKS)]
        if unknown:
            raise TypeError(f"table '{row.table}', column '{name}': no rule for {unknown[0]}")
        low = next((m.ge for m in marks if isinstance(m, annotated_types.Ge)), None)
        high = next((m.le for m in marks if isinstance(m, annotated_types.Le)), None)
        if low is not None or high is not None:
            rules.append(Expectation("between", (name,), (low, high)))
        targets = [(m.table, m.column) for m in marks if isinstance(m, References)]
        rules.extend(Expectation("references", (name,), target) for target in targets)
        soft = [m for m in marks if isinstance(m, Usually)]
        rules.extend(Expectation(m.rule, (name,), m.value, m.mostly, m.unless) for m in soft)
    return (*rules, Expectation("unique", row.key))


def columns(row: type[Row]) -> list[tuple[str, str, bool, str]]:
    """The documented column list: name, Arrow type, nullable, what it holds."""
    return [(f.name, str(f.type), f.nullable, (f.metadata or {}).get(b"doc", b"").decode()) for f in schema(row)]


def conform(row: type[Row], rows: Iterable[Fields] | pa.Table) -> pa.Table:
    """Records or an Arrow table as a table of the contract's exact schema.

    A record may leave out a column that allows null; an Arrow table has every column. ContractError names the table and
    the column for a missing or unknown column, a value of another type, or a null where none is allowed, of which it
    also names the first key.
    """
    want = schema(row)
    if isinstance(rows, pa.Table):
        odd = sorted(set(rows.column_names) ^ set(want.names)) or rows.column_names[len(want) :]
        given: Fields = {} if odd else dict(zip(rows.column_names, rows.columns, strict=True))
    else:
        records = list(rows)
        odd = sorted(set(chain.from_iterable(records)) - set(want.names))
        given = {name: [record.get(name) for record in records] for name in want.names}
    if odd:
        raise ContractError(f"table '{row.table}': columns {odd} do not match the contract")
    columns = []
    for field in want:
        try:
            columns.append(_array(given[field.name], field.type))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            rule = f"is not {field.type}: {error}"
            raise ContractError(f"table '{row.table}', column '{field.name}': {rule}") from error
    table = pa.Table.from_arrays(columns, schema=want)
    for field in want:
        if not field.nullable and table[field.name].null_count:
            place = pc.index(table[field.name].is_null(), True).as_py()
            key = {name: table[name][place].as_py() for name in row.key}
            rule = f"null is not allowed; first at {key}"
            raise ContractError(f"table '{row.table}', column '{field.name}': {rule}")
    return table


def _array(values: list[Any] | pa.ChunkedArray, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.ChunkedArray):
        return values.cast(kind)
    if pa.types.is_list(kind) and any(isinstance(value, str) for value in values):
        raise TypeError("a text is no list")  # Arrow would take it for the list of its characters
    return pa.array(values, kind)


class TableRef(Frozen):
    """A reference to one writer's part of a table; what stages pass to each other instead of rows."""

    table: str
    """Name of the table."""
    stage: str
    """The stage that wrote it."""
    path: str
    """Its folder, relative to the warehouse."""
    digest: str
    """SHA-256 of the sorted logical content without volatile columns, the same however it is sharded."""
    rows: int
    """Number of rows."""
