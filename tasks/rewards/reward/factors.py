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

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.settings.reward import Learn
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.store.cells import as_number, need, quoted, text_or_none
from rubricflow.tasks.core.store.source import chunks
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph, batch
from rubricflow.tasks.rewards.reward.figures import Record
from rubricflow.tasks.rewards.reward.gain import GainFigure, gains, predict
from rubricflow.tasks.rewards.reward.learn import learn
from rubricflow.tasks.rewards.reward.local import Locals

Factors = dict[str, dict[tuple[str, str], float]]
"""Rubric → (parent, child) → retention factor before η."""


def read_factors(path: Path, graphs: Mapping[str, Graph]) -> Factors:
    """The factors of a table with rubric_id, parent, child and retention, such as `retentions`.

    InputError names file, row, field and rule: a rubric or edge that there is not, one given twice, a factor outside
    [0, 1].
    """
    edges = {name: _pairs(graph) for name, graph in graphs.items()}
    factors: Factors = {}
    for frame in chunks(path):
        for name in ("rubric_id", "parent", "child", "retention"):
            need(frame, name, path)
        for number, cells in zip(frame.index.tolist(), frame.to_dict("records"), strict=True):
            row = int(number) + 1
            rubric, parent, child = (text_or_none(cells[name]) or "" for name in ("rubric_id", "parent", "child"))
            if rubric not in edges:
                raise InputError(f"there is no rubric {quoted(rubric)}", file=path, row=row, field="rubric_id")
            if (parent, child) not in edges[rubric]:
                rule = f"rubric {quoted(rubric)} has no edge {parent} → {child}"
                raise InputError(rule, file=path, row=row, field="child")
            of_rubric = factors.setdefault(rubric, {})
            if (parent, child) in of_rubric:
                raise InputError(f"edge {parent} → {child} is given twice", file=path, row=row, field="child")
            value = as_number(cells["retention"], path, row, "retention")
            if value is None or not 0 <= value <= 1:
                raise InputError(
                    f"{quoted(cells['retention'])} is not in [0, 1]", file=path, row=row, field="retention"
                )
            of_rubric[parent, child] = value
    return factors


def _pairs(graph: Graph) -> set[tuple[str, str]]:
    """(parent, child) of every edge."""
    return {(edge.parent, edge.child) for edge in graph.edges}


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


def taught(
    judged: Locals, compiled: Mapping[str, CompiledGraph], human: HumanScores, plan: Learn, draws: int
) -> Lesson:
    """Factors fitted on the calibration split and tried on the test split.

    compiled: each rubric at η = 1 with the relations' factors. InputError where no response of the calibration split
    has a human score: a set for evaluation only has none, whatever it is.
    """
    rubrics = [compiled[graph.rubric_id] for graph in judged.batch.compiled]
    fitted_on = (human.split == "calibration") & ~np.isnan(human.score)
    if not fitted_on.any():
        rule = f"no response of the calibration split has a score by '{plan.target}' to learn from"
        raise InputError(rule, field="reward.learn")
    held_out = human.split == "test"
    train, test = _part(judged.batch, rubrics, fitted_on), _part(judged.batch, rubrics, held_out)
    learned = learn(train, human.score[fitted_on], human.cluster[fitted_on], plan.folds, plan.seed)
    predicted = predict(train, human.score[fitted_on], learned, test)
    gained = gains(human.score[held_out], predicted, human.cluster[held_out], human.scale, draws, plan.seed)
    labelled = int((~np.isnan(human.score[held_out])).sum())
    figures = [_record(figure, labelled - figure.n) for figure in gained]
    # How many rubrics could not be fitted, and why the first could not.
    without = [rubric for rubric in learned if not rubric.fitted]
    value = float(len(without))
    note = f"{without[0].rubric_id}: {without[0].note}" if without else None
    row = {"metric": "rubrics without learned factors", "aggregation": "learned", "per": "graph", "slice": "all"}
    unfitted = [row | {"value": value, "low": None, "high": None, "n": len(learned), "unscored": 0, "note": note}]
    rows = []
    for graph, of_rubric in zip(rubrics, learned, strict=True):
        # A row for each edge that has a learned factor
        edges = zip(graph.edges, graph.relation, graph.retention, strict=True)
        rows_of_rubric = [
            {
                "rubric_id": of_rubric.rubric_id,
                "parent": edge[0],
                "child": edge[1],
                "relation": relation,
                "retention": of_rubric.factors[edge],
                "by_relation": float(factor),
                "n": of_rubric.n,
                "target": plan.target,
            }
            for edge, relation, factor in edges
            if edge in of_rubric.factors
        ]
        rows += rows_of_rubric
    return Lesson(rows, figures + unfitted)


def _part(responses: Batch, compiled: list[CompiledGraph], chosen: Bools) -> Batch:
    cells = np.repeat(chosen, np.diff(responses.start))
    return batch(
        compiled,
        responses.rubric_index[chosen],
        responses.local[cells],
        responses.scored[cells],
        responses.decided[cells],
    )


def _record(figure: GainFigure, left_out: int) -> Record:
    """left_out: labelled test responses without a prediction."""
    metric = (
        f"predicts people: {figure.statistic}"
        if figure.over is None
        else f"gain over {figure.over}: {figure.statistic}"
    )
    return {
        "metric": metric,
        "aggregation": figure.method,
        "per": "response",
        "slice": "all",
        "value": figure.value,
        "low": figure.low,
        "high": figure.high,
        "clusters": figure.clusters,
        "n": figure.n,
        "unscored": left_out,
        "note": None if figure.value is not None else "is not defined",
    }


def human_scores(
    judged: Locals, people: pa.Table, responses: pa.Table, scale: tuple[float, float, float]
) -> HumanScores:
    """Human scores in the order of a batch. people: response_id and score; responses: response_id, author_id, split."""
    places = pc.index_in(judged.response_id, value_set=responses["response_id"].combine_chunks())
    rows = responses.take(places)
    cluster = pc.coalesce(rows["author_id"], rows["response_id"])
    place = pc.index_in(judged.response_id, value_set=people["response_id"].combine_chunks())
    score = np.asarray(people["score"].take(place), dtype=np.float64)
    return HumanScores(score, np.asarray(cluster), np.asarray(rows["split"]), scale)
