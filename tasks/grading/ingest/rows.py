"""Responses, scores and marks of a chunk as tables."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.tables.data import Responses, Units
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.people import Notes
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.ingest.canonical import Answers, ChunkMarks, Scores


def answer_tables(answers: Answers, graded: Sequence[Scores], sides: Sequence[str | None]) -> dict[type[Row], pa.Table]:
    """Rows of `responses`, `units`, `gradings` and, where there are any, `notes`; sides: the split of each answer, None
    for one to leave out."""
    kept = [row for row, side in enumerate(sides) if side is not None]
    responses = {
        "response_id": _picked(answers.response_id, kept),
        "item_id": _picked(answers.item_id, kept),
        "author_id": _picked(answers.author_id, kept),
        "text": _picked(answers.text, kept),
        "split": _picked(sides, kept),
        "groups": _picked(answers.groups, kept),
        "author_name": _picked(answers.author_name, kept),
        "made_from": _picked(answers.made_from, kept),
    }
    return {
        Responses: _table(Responses, responses),
        Units: unit_table(responses["response_id"], responses["text"]),
        **grading_tables(answers.response_id, answers.item_id, graded, kept),
    }


def grading_tables(
    response_id: Sequence[str], item_id: Sequence[str], graded: Sequence[Scores], keep: Sequence[int]
) -> dict[type[Row], pa.Table]:
    """Rows of `gradings` by all raters and, where one of them has a column of notes, of `notes`; keep: places of the
    responses to write."""
    gradings = [_grading_table(response_id, item_id, scores, keep) for scores in graded]
    tables = {Gradings: pa.concat_tables(gradings) if gradings else schema(Gradings).empty_table()}
    said = [_note_table(response_id, scores, keep) for scores in graded if scores.notes is not None]
    return tables | ({Notes: pa.concat_tables(said)} if said else {})


def unit_table(ids: Sequence[str], words: Sequence[str]) -> pa.Table:
    """Rows of `units` for all texts."""
    unit_id: list[str] = []
    kind: list[str] = []
    start, end, counts = array("q"), array("q"), array("q")
    for text in words:
        cut = units(text)
        unit_id += [unit.unit_id for unit in cut]
        kind += [unit.kind for unit in cut]
        start.extend(unit.start for unit in cut)
        end.extend(unit.end for unit in cut)
        counts.append(len(cut))
    owner = np.repeat(np.arange(len(words)), np.asarray(counts))
    repeated = pa.array(ids, pa.string()).take(pa.array(owner))
    return _table(Units, {"response_id": repeated, "unit_id": unit_id, "kind": kind, "start": start, "end": end})


def _grading_table(response_id: Sequence[str], item_id: Sequence[str], scores: Scores, keep: Sequence[int]) -> pa.Table:
    rows = [row for row in keep if scores.score[row] is not None or scores.traits[row]]
    score = _picked(scores.score, rows)
    columns = {
        "response_id": _picked(response_id, rows),
        "item_id": _picked(item_id, rows),
        "rater_id": [scores.rater] * len(rows),
        "rater_kind": [scores.kind] * len(rows),
        "sample": [0] * len(rows),
        "score": score,
        "trait_scores": _picked(scores.traits, rows),
        "signals": [[("averaged", 1.0)] if scores.averaged else []] * len(rows),
        "status": ["unscored" if value is None else "scored" for value in score],
        "unscored_reason": ["traits_only" if value is None else None for value in score],
    }
    return _table(Gradings, columns)


def _note_table(response_id: Sequence[str], scores: Scores, keep: Sequence[int]) -> pa.Table:
    notes = scores.notes or []
    rows = [row for row in keep if notes[row] is not None]
    columns = {
        "response_id": _picked(response_id, rows),
        "rater_id": [scores.rater] * len(rows),
        "note": _picked(notes, rows),
    }
    return _table(Notes, columns)


def mark_table(marks: ChunkMarks, keep: Sequence[bool]) -> pa.Table:
    """Rows of `judgments`; keep: whether each mark's response is graded."""
    rows = [row for row, is_graded in enumerate(keep) if is_graded]
    levels = _picked(marks.level, rows)
    columns = {
        "response_id": _picked(marks.response_id, rows),
        "criterion_id": _picked(marks.criterion_id, rows),
        "rater_id": _picked(marks.rater_id, rows),
        "rater_kind": _picked(marks.rater_kind, rows),
        "sample": [0] * len(rows),
        "decision": levels,
        "stated": levels,
        "evidence": [[]] * len(rows),
        "action": ["none"] * len(rows),
    }
    return _table(Judgments, columns)


def _picked(values: Sequence[Any], rows: Sequence[int]) -> list[Any]:
    return [values[row] for row in rows]


def _table(row: type[Row], columns: Mapping[str, Any]) -> pa.Table:
    """Columns as a table of the contract's schema; those that are not given are null."""
    count = len(next(iter(columns.values())))
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema(row)
    ]
    return pa.Table.from_arrays(arrays, schema=schema(row))
