"""Source rows to rows of the canonical tables, by the study's column mapping."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from tasks.contracts.errors import InputError
from tasks.contracts.study import Column, ScoreColumns, Source
from tasks.store.cells import as_number, as_text, missing, need, select, text_or_none
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
    wanted = [(source, select(frame, source.where, source.file)) for source, frame in sources]
    for source, rows in wanted:
        if source.items:
            _items(found, source, rows)
    for source, rows in wanted:
        if source.responses:
            _responses(found, source, rows)
    for source, rows in wanted:
        if source.marks:
            _marks(found, source, rows)
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


def _column(source: Source, frame: pd.DataFrame, column: Column) -> list[Any]:
    if isinstance(column, dict):
        return [column["const"]] * len(frame)
    need(frame, column, source.file)
    return frame[column].tolist()


def _records(
    source: Source, frame: pd.DataFrame, mapping: Mapping[str, Column], allowed: set[str], required: tuple[str, ...]
) -> list[tuple[int, Record]]:
    """(row number, record) for each row; row 1 is the first of the file."""
    known = ", ".join(sorted(allowed))
    for name in sorted(set(mapping) - allowed):
        raise InputError(f"'{name}' is no canonical column; there are {known}", file=source.file, field=name)
    for name in required:
        if name not in mapping:
            raise InputError(f"the mapping names no column for '{name}'", file=source.file, field=name)
    columns = {name: _column(source, frame, column) for name, column in mapping.items()}
    numbers = [int(i) + 1 for i in frame.index]
    for name in required:
        for number, cell in zip(numbers, columns[name], strict=True):
            if text_or_none(cell) is None:
                raise InputError("is empty", file=source.file, row=number, field=_name(mapping[name]))
    records = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return list(zip(numbers, records, strict=True))


def _name(column: Column) -> str:
    """A column as the user calls it."""
    return column if isinstance(column, str) else "const"


def _items(found: Canonical, source: Source, frame: pd.DataFrame) -> None:
    allowed = {"item_id", "question", "context", "reference_answer", "key_elements", "type", "rubric_id"}
    for number, record in _records(source, frame, source.items, allowed, ("item_id", "question")):
        item_id = as_text(record["item_id"])
        row = {
            "item_id": item_id,
            "question": as_text(record["question"]),
            "context": text_or_none(record.get("context")),
            "reference_answer": text_or_none(record.get("reference_answer")),
            "key_elements": _list(record.get("key_elements"), source, number),
            "type": text_or_none(record.get("type")) or "item",
            "rubric_id": text_or_none(record.get("rubric_id")) or item_id,
        }
        known = found.items.setdefault(item_id, row)
        if known != row:
            other = next(name for name in row if known[name] != row[name])
            rule = f"item '{item_id}' is given twice with different content"
            raise InputError(rule, file=source.file, row=number, field=other)


def _responses(found: Canonical, source: Source, frame: pd.DataFrame) -> None:
    if "text" not in source.responses:
        raise InputError("the mapping names no column for 'text'", file=source.file, field="text")
    allowed = {"response_id", "item_id", "author_id", "text", "split"}
    records = _records(source, frame, source.responses, allowed, ("response_id", "item_id"))
    columns = {name: _name(column) for name, column in source.responses.items()}
    groups = {name: _column(source, frame, column) for name, column in source.groups.items()}
    for at, (number, record) in enumerate(records):
        response_id, item_id = as_text(record["response_id"]), as_text(record["item_id"])
        if response_id in found.responses:
            rule = f"response id '{response_id}' occurs twice"
            raise InputError(rule, file=source.file, row=number, field=columns["response_id"])
        if item_id not in found.items:
            raise InputError(f"item '{item_id}' is unknown", file=source.file, row=number, field=columns["item_id"])
        split = text_or_none(record.get("split"))
        if split is not None and split not in SPLITS:
            rule = f"'{split}' is no split; use {', '.join(SPLITS)}"
            raise InputError(rule, file=source.file, row=number, field=columns["split"])
        found.responses[response_id] = {
            "response_id": response_id,
            "item_id": item_id,
            "author_id": text_or_none(record.get("author_id")),
            "text": "" if missing(record["text"]) else as_text(record["text"]),
            "split": split,
            "groups": {name: group for name, cells in groups.items() if (group := text_or_none(cells[at])) is not None},
        }
    keys = [(number, as_text(row["response_id"]), as_text(row["item_id"])) for number, row in records]
    for rater in source.scores:
        _gradings(found, source, frame, rater, keys)


def _gradings(
    found: Canonical, source: Source, frame: pd.DataFrame, rater: ScoreColumns, keys: list[tuple[int, str, str]]
) -> None:
    scores = _column(source, frame, rater.score) if rater.score else [None] * len(frame)
    traits = {name: _column(source, frame, column) for name, column in rater.traits.items()}
    for at, (number, response_id, item_id) in enumerate(keys):
        score = as_number(scores[at], source.file, number, rater.score)
        marks = {name: as_number(cells[at], source.file, number, rater.traits[name]) for name, cells in traits.items()}
        given = {name: mark for name, mark in marks.items() if mark is not None}
        if score is None and not given:
            continue
        found.gradings.append(
            {
                "response_id": response_id,
                "item_id": item_id,
                "rater_id": rater.rater,
                "rater_kind": rater.kind,
                "sample": 0,
                "score": score,
                "trait_scores": given,
                "signals": {},
                "status": "scored" if score is not None else "unscored",
                "unscored_reason": None if score is not None else "traits_only",
            }
        )


def _marks(found: Canonical, source: Source, frame: pd.DataFrame) -> None:
    names = ("response_id", "rater_id", "criterion_id", "level")
    records = _records(source, frame, source.marks, set(names), names)
    columns = {name: _name(column) for name, column in source.marks.items()}
    known = {(row["response_id"], row["rater_id"], row["criterion_id"]) for row in found.judgments}
    for number, record in records:
        response_id, rater_id, criterion_id = (as_text(record[name]) for name in names[:3])
        key = (response_id, rater_id, criterion_id)
        if response_id not in found.responses:
            rule = f"response '{response_id}' is unknown"
            raise InputError(rule, file=source.file, row=number, field=columns["response_id"])
        if key in known:
            rule = f"rater '{rater_id}' marks criterion '{criterion_id}' of response '{response_id}' twice"
            raise InputError(rule, file=source.file, row=number)
        known.add(key)
        level = as_number(record["level"], source.file, number, columns["level"])
        if level is None or level != int(level) or level < 0:
            raise InputError(f"'{record['level']}' is no level", file=source.file, row=number, field=columns["level"])
        found.judgments.append(
            {
                "response_id": response_id,
                "criterion_id": criterion_id,
                "rater_id": rater_id,
                "rater_kind": "human",
                "sample": 0,
                "decision": int(level),
                "stated": int(level),
                "evidence": [],
                "action": "none",
            }
        )


def _list(cell: Any, source: Source, number: int) -> list[str]:
    if not isinstance(cell, list) and text_or_none(cell) is None:
        return []
    if not isinstance(cell, list):
        raise InputError("is not a list", file=source.file, row=number, field="key_elements")
    return [as_text(element) for element in cell]
