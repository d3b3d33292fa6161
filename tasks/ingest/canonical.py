"""Source rows to rows of the canonical tables, by the study's column mapping."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tasks.contracts.errors import InputError
from tasks.contracts.study import Column, ScoreColumns, Source
from tasks.text.units import units

Record = dict[str, Any]
SPLITS = ("train", "calibration", "test")


@dataclass
class Canonical:
    """Rows of the tables that a data set fills, in the order of the sources."""

    items: dict[str, Record] = field(default_factory=dict)
    responses: dict[str, Record] = field(default_factory=dict)
    gradings: list[Record] = field(default_factory=list)
    judgments: list[Record] = field(default_factory=list)


def canonical(sources: Sequence[tuple[Source, pd.DataFrame]], limit: int | None = None) -> Canonical:
    """All sources as canonical rows; `split` is None where the source gives none. With a limit, the first `limit`
    responses of each item.

    InputError names the file, row, field and rule: a missing column or value, a duplicate id, an item repeated with
    another content, an unknown item or response, a score that is no finite number.
    """
    found = Canonical()
    for source, frame in sources:
        rows = _where(source, frame)
        if source.items:
            _items(found, source, rows)
    for source, frame in sources:
        rows = _where(source, frame)
        if source.responses:
            _responses(found, source, rows)
    for source, frame in sources:
        if source.marks:
            _marks(found, source, _where(source, frame))
    if not found.responses:
        raise InputError("no response is left to grade", file=sources[0][0].file if sources else None)
    return found if limit is None else _first(found, limit)


def _first(found: Canonical, limit: int) -> Canonical:
    counts: Counter[str] = Counter()
    kept = {}
    for key, row in found.responses.items():
        counts[row["item_id"]] += 1
        if counts[row["item_id"]] <= limit:
            kept[key] = row
    return Canonical(
        {key: row for key, row in found.items.items() if counts[key]},
        kept,
        [row for row in found.gradings if row["response_id"] in kept],
        [row for row in found.judgments if row["response_id"] in kept],
    )


def unit_rows(responses: Mapping[str, Record]) -> list[Record]:
    """Rows of `units` for all responses."""
    return [{"response_id": key, **unit._asdict()} for key, row in responses.items() for unit in units(row["text"])]


def _where(source: Source, frame: pd.DataFrame) -> pd.DataFrame:
    for name, value in source.where.items():
        _need(source, frame, name)
        frame = frame[frame[name].map(lambda cell, wanted=value: cell == wanted or _text(cell) == str(wanted))]
    return frame


def _need(source: Source, frame: pd.DataFrame, name: str) -> None:
    if name not in frame.columns:
        raise InputError(f"no such column; there are {', '.join(map(str, frame.columns))}", file=source.file, field=name)


def _column(source: Source, frame: pd.DataFrame, column: Column) -> list[Any]:
    if isinstance(column, dict):
        return [column["const"]] * len(frame)
    _need(source, frame, column)
    return frame[column].tolist()


def _records(source: Source, frame: pd.DataFrame, mapping: Mapping[str, Column], allowed: set[str], required: set[str]) -> list[tuple[int, Record]]:
    """(row number, record) for each row; row 1 is the first of the file."""
    for name in set(mapping) - allowed:
        raise InputError(f"'{name}' is no canonical column; there are {', '.join(sorted(allowed))}", file=source.file, field=name)
    for name in sorted(required - set(mapping)):
        raise InputError(f"the mapping names no column for '{name}'", file=source.file, field=name)
    columns = {name: _column(source, frame, column) for name, column in mapping.items()}
    numbers = [int(i) + 1 for i in frame.index]
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for number, record in zip(numbers, records, strict=True):
        for name in required:
            if _missing(record[name]) or _text(record[name]).strip() == "":
                raise InputError("is empty", file=source.file, row=number, field=str(mapping[name]))
    return list(zip(numbers, records, strict=True))


def _items(found: Canonical, source: Source, frame: pd.DataFrame) -> None:
    allowed = {"item_id", "question", "context", "reference_answer", "key_elements", "type", "rubric_id"}
    for number, record in _records(source, frame, source.items, allowed, {"item_id", "question"}):
        item_id = _text(record["item_id"])
        row = {
            "item_id": item_id,
            "question": _text(record["question"]),
            "context": _optional(record.get("context")),
            "reference_answer": _optional(record.get("reference_answer")),
            "key_elements": _list(record.get("key_elements"), source, number),
            "type": _optional(record.get("type")) or "item",
            "rubric_id": _optional(record.get("rubric_id")) or item_id,
        }
        known = found.items.setdefault(item_id, row)
        if known != row:
            other = next(name for name in row if known[name] != row[name])
            raise InputError(f"item '{item_id}' is given twice with different content", file=source.file, row=number, field=other)


def _responses(found: Canonical, source: Source, frame: pd.DataFrame) -> None:
    allowed = {"response_id", "item_id", "author_id", "text", "split"}
    records = _records(source, frame, source.responses, allowed, {"response_id", "item_id"})
    if "text" not in source.responses:
        raise InputError("the mapping names no column for 'text'", file=source.file, field="text")
    groups = {name: _column(source, frame, column) for name, column in source.groups.items()}
    for at, (number, record) in enumerate(records):
        response_id, item_id = _text(record["response_id"]), _text(record["item_id"])
        if response_id in found.responses:
            raise InputError(f"response id '{response_id}' occurs twice", file=source.file, row=number, field="response_id")
        if item_id not in found.items:
            raise InputError(f"item '{item_id}' is unknown", file=source.file, row=number, field="item_id")
        split = _optional(record.get("split"))
        if split is not None and split not in SPLITS:
            raise InputError(f"'{split}' is no split; use {', '.join(SPLITS)}", file=source.file, row=number, field="split")
        found.responses[response_id] = {
            "response_id": response_id,
            "item_id": item_id,
            "author_id": _optional(record.get("author_id")),
            "text": "" if _missing(record["text"]) else _text(record["text"]),
            "split": split,
            "groups": {name: _text(cells[at]) for name, cells in groups.items() if not _missing(cells[at])},
        }
    for rater in source.scores:
        _gradings(found, source, frame, rater, [(n, _text(r["response_id"]), _text(r["item_id"])) for n, r in records])


def _gradings(found: Canonical, source: Source, frame: pd.DataFrame, rater: ScoreColumns, keys: list[tuple[int, str, str]]) -> None:
    scores = _column(source, frame, rater.score) if rater.score else [None] * len(frame)
    traits = {name: _column(source, frame, column) for name, column in rater.traits.items()}
    for at, (number, response_id, item_id) in enumerate(keys):
        score = _number(scores[at], source, number, rater.score)
        marks = {name: _number(cells[at], source, number, rater.traits[name]) for name, cells in traits.items()}
        given = {name: mark for name, mark in marks.items() if mark is not None}
        if score is None and not given:
            continue
        found.gradings.append(
            {
                "response_id": response_id,
                "item_id": item_id,
                "rater_id": rater.rater,
                "rater_kind": "human",
                "sample": 0,
                "score": score,
                "trait_scores": given,
                "signals": {},
                "status": "scored" if score is not None else "unscored",
                "unscored_reason": None if score is not None else "traits_only",
            }
        )


def _marks(found: Canonical, source: Source, frame: pd.DataFrame) -> None:
    names = {"response_id", "rater_id", "criterion_id", "level"}
    for number, record in _records(source, frame, source.marks, names, names):
        response_id = _text(record["response_id"])
        if response_id not in found.responses:
            raise InputError(f"response '{response_id}' is unknown", file=source.file, row=number, field="response_id")
        level = _number(record["level"], source, number, "level")
        if level is None or level != int(level) or level < 0:
            raise InputError(f"'{record['level']}' is no level", file=source.file, row=number, field="level")
        found.judgments.append(
            {
                "response_id": response_id,
                "criterion_id": _text(record["criterion_id"]),
                "rater_id": _text(record["rater_id"]),
                "rater_kind": "human",
                "sample": 0,
                "decision": int(level),
                "stated": int(level),
                "evidence": [],
                "action": "none",
            }
        )


def _missing(cell: Any) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def _text(cell: Any) -> str:
    """A cell as text; 3.0 of a numeric column is the id '3'."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _optional(cell: Any) -> str | None:
    return None if _missing(cell) or _text(cell) == "" else _text(cell)


def _list(cell: Any, source: Source, number: int) -> list[str]:
    if _missing(cell) or cell == "":
        return []
    if not isinstance(cell, list):
        raise InputError("is not a list", file=source.file, row=number, field="key_elements")
    return [_text(element) for element in cell]


def _number(cell: Any, source: Source, row: int, name: str | None) -> float | None:
    if _missing(cell) or cell == "":
        return None
    try:
        number = float(cell)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(f"'{cell}' is not a finite number", file=source.file, row=row, field=name)
    return number
