"""Responses, scores and marks of a chunk as tables."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.contracts.schema import Row, schema
from tasks.contracts.tables.data import Responses, Units
from tasks.contracts.tables.judging import Gradings, Judgments
from tasks.ingest.canonical import Answers, ChunkMarks, Scores
from tasks.text.units import units


def answer_tables(found: Answers, graded: Sequence[Scores], sides: Sequence[str | None]) -> dict[type[Row], pa.Table]:
    """Rows of `responses`, `units` and `gradings`; sides: the split of each answer, None for one to leave out."""
    keep = [at for at, side in enumerate(sides) if side is not None]
    ids, words = [found.response_id[at] for at in keep], [found.text[at] for at in keep]
    responses = {
        "response_id": ids,
        "item_id": [found.item_id[at] for at in keep],
        "author_id": [found.author_id[at] for at in keep],
        "text": words,
        "split": [sides[at] for at in keep],
        "groups": [found.groups[at] for at in keep],
        "author_name": [found.author_name[at] for at in keep],
        "made_from": [found.made_from[at] for at in keep],
    }
    return {
        Responses: _table(Responses, responses),
        Units: unit_table(ids, words),
        Gradings: grading_table(found.response_id, found.item_id, graded, keep),
    }


def grading_table(
    response_id: Sequence[str], item_id: Sequence[str], graded: Sequence[Scores], keep: Sequence[int]
) -> pa.Table:
    """Rows of `gradings` by all raters; keep: places of the responses to write."""
    gradings = [_grading_table(response_id, item_id, one, keep) for one in graded]
    return pa.concat_tables(gradings) if gradings else schema(Gradings).empty_table()


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


def _grading_table(response_id: Sequence[str], item_id: Sequence[str], one: Scores, keep: Sequence[int]) -> pa.Table:
    given = [at for at in keep if one.score[at] is not None or one.traits[at]]
    scored = [one.score[at] is not None for at in given]
    columns = {
        "response_id": [response_id[at] for at in given],
        "item_id": [item_id[at] for at in given],
        "rater_id": [one.rater] * len(given),
        "rater_kind": [one.kind] * len(given),
        "sample": [0] * len(given),
        "score": [one.score[at] for at in given],
        "trait_scores": [one.traits[at] for at in given],
        "signals": [[("averaged", 1.0)] if one.averaged else []] * len(given),
        "status": ["scored" if has else "unscored" for has in scored],
        "unscored_reason": [None if has else "traits_only" for has in scored],
    }
    return _table(Gradings, columns)


def mark_table(found: ChunkMarks, keep: Sequence[bool]) -> pa.Table:
    """Rows of `judgments`; keep: whether each mark's response is graded."""
    kept = [at for at, wanted in enumerate(keep) if wanted]
    levels = [found.level[at] for at in kept]
    columns = {
        "response_id": [found.response_id[at] for at in kept],
        "criterion_id": [found.criterion_id[at] for at in kept],
        "rater_id": [found.rater_id[at] for at in kept],
        "rater_kind": [found.rater_kind[at] for at in kept],
        "sample": [0] * len(kept),
        "decision": levels,
        "stated": levels,
        "evidence": [[]] * len(kept),
        "action": ["none"] * len(kept),
    }
    return _table(Judgments, columns)


def _table(row: type[Row], columns: Mapping[str, Any]) -> pa.Table:
    """Columns as a table of the contract's schema; those that are not given are null."""
    count = len(next(iter(columns.values())))
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in schema(row)
    ]
    return pa.Table.from_arrays(arrays, schema=schema(row))
