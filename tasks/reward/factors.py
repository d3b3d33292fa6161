"""Edge-specific retention factors: read from a table, or learned from a study's own human scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tasks.contracts.errors import InputError
from tasks.contracts.graph import Graph
from tasks.contracts.settings.reward import Learn
from tasks.reward.figures import Record
from tasks.reward.gain import GainFigure, gains, predict
from tasks.reward.learn import Learned, learn
from tasks.reward.local import Locals
from tasks.reward.wire import Batch, Wired, batch
from tasks.stats.arrays import Bools, Floats
from tasks.store.cells import as_number, need, quoted, text_or_none
from tasks.store.source import chunks

Factors = dict[str, dict[tuple[str, str], float]]
"""Rubric → (parent, child) → retention factor before η."""


def read_factors(path: Path, graphs: Mapping[str, Graph]) -> Factors:
    """The factors of a table with rubric_id, parent, child and retention, such as `retentions`.

    InputError names file, row, field and rule: a rubric or edge that there is not, one given twice, a factor outside
    [0, 1].
    """
    known = {name: {(edge.parent, edge.child) for edge in graph.edges} for name, graph in graphs.items()}
    found: Factors = {}
    for frame in chunks(path):
        for name in ("rubric_id", "parent", "child", "retention"):
            need(frame, name, path)
        for number, cells in zip(frame.index.tolist(), frame.to_dict("records"), strict=True):
            row = int(number) + 1
            rubric, parent, child = (text_or_none(cells[name]) or "" for name in ("rubric_id", "parent", "child"))
            if rubric not in known:
                raise InputError(f"there is no rubric {quoted(rubric)}", file=path, row=row, field="rubric_id")
            if (parent, child) not in known[rubric]:
                rule = f"rubric {quoted(rubric)} has no edge {parent} → {child}"
                raise InputError(rule, file=path, row=row, field="child")
            mine = found.setdefault(rubric, {})
            if (parent, child) in mine:
                raise InputError(f"edge {parent} → {child} is given twice", file=path, row=row, field="child")
            value = as_number(cells["retention"], path, row, "retention")
            if value is None or not 0 <= value <= 1:
                raise InputError(
                    f"{quoted(cells['retention'])} is not in [0, 1]", file=path, row=row, field="retention"
                )
            mine[parent, child] = value
    return found


class Lesson(NamedTuple):
    """What a study's human scores teach."""

    retentions: list[Record]
    """Rows of `retentions`, without the rubrics for which nothing could be fitted."""
    diagnostics: list[Record]
    """Rows of `diagnostics`: each method's error and agreement on the test split, and what learning gains there."""


@dataclass(frozen=True)
class HumanScores:
    """Human scores of the n responses of a batch."""

    score: Floats
    """(n,) on the scale of the response's rubric; NaN where there is none."""
    cluster: NDArray[Any]
    """(n,) ids of what stays together in folds and draws, such as authors."""
    split: NDArray[Any]
    """(n,) train, calibration or test."""
    scale: tuple[float, float, float]
    """(low, high, step) that all scores are on."""


def taught(of: Locals, wired: Mapping[str, Wired], given: HumanScores, plan: Learn, draws: int) -> Lesson:
    """Factors fitted on the calibration split and tried on the test split.

    wired: each rubric at η = 1 with the relations' factors. InputError where no response of the calibration split has a
    human score: a set for evaluation only has none, whatever it is.
    """
    mine = [wired[one.rubric_id] for one in of.batch.wired]
    fitted_on = (given.split == "calibration") & ~np.isnan(given.score)
    if not fitted_on.any():
        rule = f"no response of the calibration split has a score by '{plan.target}' to learn from"
        raise InputError(rule, field="reward.learn")
    train, test = (_part(of.batch, mine, kept) for kept in (fitted_on, given.split == "test"))
    found = learn(train, given.score[fitted_on], given.cluster[fitted_on], plan.folds, plan.seed)
    held_out = given.split == "test"
    predicted = predict(train, given.score[fitted_on], found, test)
    tried = gains(given.score[held_out], predicted, given.cluster[held_out], given.scale, draws, plan.seed)
    labelled = int((~np.isnan(given.score[held_out])).sum())
    return Lesson(_rows(mine, found, plan), [_record(one, labelled - one.n) for one in tried] + _unfitted(found))


def _part(whole: Batch, wired: list[Wired], kept: Bools) -> Batch:
    cells = np.repeat(kept, np.diff(whole.start))
    return batch(wired, whole.of[kept], whole.local[cells], whole.scored[cells], whole.decided[cells])


def _rows(wired: list[Wired], found: list[Learned], plan: Learn) -> list[Record]:
    return [
        {
            "rubric_id": one.rubric_id,
            "parent": parent,
            "child": child,
            "relation": relation,
            "retention": one.factors[parent, child],
            "by_relation": float(factor),
            "n": one.n,
            "target": plan.target,
        }
        for graph, one in zip(wired, found, strict=True)
        for (parent, child), relation, factor in zip(graph.edges, graph.relation, graph.retention, strict=True)
        if (parent, child) in one.factors
    ]


def _record(one: GainFigure, left_out: int) -> Record:
    """left_out: labelled test responses without a prediction."""
    metric = f"predicts people: {one.statistic}" if one.over is None else f"gain over {one.over}: {one.statistic}"
    return {
        "metric": metric,
        "aggregation": one.method,
        "per": "response",
        "slice": "all",
        "value": one.value,
        "low": one.low,
        "high": one.high,
        "clusters": one.clusters,
        "n": one.n,
        "unscored": left_out,
        "note": None if one.value is not None else "is not defined",
    }


def _unfitted(found: list[Learned]) -> list[Record]:
    """How many rubrics could not be fitted, and why the first could not."""
    without = [one for one in found if not one.fitted]
    value = float(len(without))
    note = f"{without[0].rubric_id}: {without[0].note}" if without else None
    row = {"metric": "rubrics without learned factors", "aggregation": "learned", "per": "graph", "slice": "all"}
    return [row | {"value": value, "low": None, "high": None, "n": len(found), "unscored": 0, "note": note}]


def human_scores(of: Locals, people: pa.Table, responses: pa.Table, scale: tuple[float, float, float]) -> HumanScores:
    """Human scores in the order of a batch. people: response_id and score; responses: response_id, author_id, split."""
    at = pc.index_in(of.response_id, value_set=responses["response_id"].combine_chunks())
    mine = responses.take(at)
    cluster = pc.coalesce(mine["author_id"], mine["response_id"])
    place = pc.index_in(of.response_id, value_set=people["response_id"].combine_chunks())
    score = np.asarray(people["score"].take(place), dtype=np.float64)
    return HumanScores(score, np.asarray(cluster), np.asarray(mine["split"]), scale)
