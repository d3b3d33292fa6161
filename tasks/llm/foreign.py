"""A foreign table of raw replies: its rows, the score that each is read for, and that score on the bundle's scale."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pandas as pd

from tasks.contracts.bundle import Scale
from tasks.contracts.errors import InputError
from tasks.contracts.settings.judge import Foreign
from tasks.llm.readers import read_score
from tasks.store.cells import as_number, as_text, missing, need, select, text_or_none
from tasks.store.source import read


def foreign_rows(foreign: Foreign, base: Path) -> list[dict[str, Any]]:
    """The rows of a foreign table that the study selects: response_id, reply and, if there is one, the recorded score.

    Several columns of the response's id are joined by colons, several of the reply become one JSON object. A cell
    without a value is None, and so is a reply of which a column has none. InputError for a missing column or id, a
    response with two replies, a recorded score that is no finite number, or a selection that leaves nothing.
    """
    path = base / foreign.file
    frame = read(path)
    for name in (*_names(foreign.response_id), *_names(foreign.reply), *_names(foreign.recorded)):
        need(frame, name, path)
    frame = select(frame, foreign.where, path)
    ids, replies = _records(frame, foreign.response_id), _records(frame, foreign.reply)
    scores = frame[foreign.recorded].tolist() if foreign.recorded else [None] * len(frame)
    numbers = [number + 1 for number in frame.index.tolist()]
    for number, key in zip(numbers, ids, strict=True):
        for name, cell in key.items():
            if text_or_none(cell) is None:
                raise InputError("is empty", file=path, row=number, field=name)
    rows: list[dict[str, Any]] = []
    for number, key, reply, score in zip(numbers, ids, replies, scores, strict=True):
        response_id = ":".join(map(as_text, key.values()))
        recorded = as_number(score, path, number, foreign.recorded)
        rows.append({"response_id": response_id, "reply": _reply(reply), "recorded": recorded})
    if not rows:
        raise InputError("no reply is left; look at 'where'", file=path)
    names: set[str] = set()
    for row in rows:
        if row["response_id"] in names:
            problem = f"response '{row['response_id']}' has several replies; select one with 'where'"
            raise InputError(problem, file=path, field=", ".join(_names(foreign.response_id)))
        names.add(row["response_id"])
    return rows


def _records(frame: pd.DataFrame, columns: str | tuple[str, ...]) -> list[dict[str, Any]]:
    return cast(list[dict[str, Any]], frame[list(_names(columns))].to_dict("records"))


def _names(columns: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else columns or ()


def _reply(cells: dict[str, Any]) -> str | None:
    """One cell as text, several as a JSON object; None where one is missing."""
    if any(missing(cell) for cell in cells.values()):
        return None
    return as_text(*cells.values()) if len(cells) == 1 else json.dumps(cells, ensure_ascii=False, default=as_text)


def foreign_score(foreign: Foreign, item_id: str, response_id: str, reply: str, response: str = "") -> float | None:
    """The score that a reply is read for, on the scale that its judge used; None where none can be read. response: the
    text that was judged, whose own objects are no verdict.

    InputError for a pattern that cannot be used.
    """
    special = foreign.items.get(item_id)
    try:
        return read_score(reply, (special and special.reader) or foreign.reader, response)
    except InputError as error:
        rule = f"reply about response '{response_id}': {error.rule}"
        raise InputError(rule, file=foreign.file, field=f"reader.{error.field}", hint=error.hint) from error


def is_off_scale(value: float, foreign: Foreign, item_id: str) -> bool:
    """Whether a score lies off the scale that the study says its judge used; False where it says none."""
    scale = _scale(foreign, item_id)
    return scale is not None and not scale.min <= value <= scale.max


def rescale(value: float, foreign: Foreign, item_id: str, scale: Scale) -> float:
    """A score of the foreign judge's scale, linearly on the bundle's."""
    used = _scale(foreign, item_id) or scale
    return scale.min + (value - used.min) / (used.max - used.min) * (scale.max - scale.min)


def _scale(foreign: Foreign, item_id: str) -> Scale | None:
    special = foreign.items.get(item_id)
    return (special and special.scale) or foreign.scale


def foreign_scores(foreign: Foreign, base: Path) -> dict[str, float]:
    """Response → the score that the foreign system itself read from the reply, on the scale that its judge used."""
    rows = foreign_rows(foreign, base)
    return {row["response_id"]: row["recorded"] for row in rows if row["recorded"] is not None}
