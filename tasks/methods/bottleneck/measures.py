"""What a grader is worth: rows of table `trials` for its concepts and grades, and the same of one person by another.

Levels and grades count as classes 0, 1, …; what has no label (MISSING) leaves every measure. Definitions, ranges and
undefined cases are those of `tasks.core.stats.agreement` and `tasks.core.stats.ordinal`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rubricflow.tasks.core.stats.agreement import Stat, exact_agreement, macro_f1, mae, qwk
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.ordinal import ordinal_ece, rps
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, Estimates, LabelledData

Record = dict[str, Any]
MEASURES = {"accuracy": exact_agreement, "macro_f1": macro_f1, "qwk": qwk}
"""Of concepts and of grades alike."""
NOT_CALIBRATED = "the probabilities are not calibrated"


def trial_rows(
    estimates: Estimates,
    data: LabelledData,
    split: str,
    method: str,
    seed: int,
    setting: str,
    calibrated: Floats | None = None,
) -> list[Record]:
    """All measures of a grader on a split.

    estimates: of `data.rows(split)`, in their order; a grader of the first concepts alone is measured on those.
    calibrated: (rows, S + 1) probabilities of the grades after calibration; without them task_rps and task_ece are
    those of the estimates, with a note. task_mae is in units of the score. ValueError on another number of rows.
    """
    rows = data.rows(split)
    if len(estimates.grades) != len(rows):
        raise ValueError(f"{len(estimates.grades)} estimates for the {len(rows)} responses of split {split}")
    values = _task(data.grades[rows], estimates.grade, data.scores)
    values += _probabilities(data.grades[rows], estimates.grades, calibrated)
    if estimates.levels is not None:
        values = _concepts(data.levels[rows], estimates.chosen(), data.concepts) + values
    return [_row(method, seed, setting, split, *measured) for measured in values]


def human_rows(
    levels_a: Ints, levels_b: Ints, grades_a: Ints, grades_b: Ints, concepts: Concepts, scores: Floats, split: str
) -> list[Record]:
    """The human ceiling: one person measured by another on the responses that both marked, under method 'human'.

    levels: (n, K), grades: (n,) classes, MISSING where a person gave none; scores: (S + 1,) of the classes. All
    measures are symmetric, so that it does not matter who is a.
    """
    values = _concepts(np.where(levels_b == MISSING, MISSING, levels_a), levels_b, concepts)
    values += _task(np.where(grades_b == MISSING, MISSING, grades_a), grades_b, scores)
    return [_row("human", 0, "", split, *measured) for measured in values]


Measured = tuple[str, str, Stat, int]
"""Metric, concept, its value, responses."""


def _concepts(labels: Ints, chosen: Ints, concepts: Concepts) -> list[Measured]:
    """Every concept by itself, then the mean over those where a measure is defined."""
    count = chosen.shape[1]
    labelled = labels[:, :count] != MISSING
    values: list[Measured] = []
    for name, measure in MEASURES.items():
        stats = []
        for k in range(count):
            on = labelled[:, k]
            stats.append(measure(labels[on, k], chosen[on, k], 0, int(concepts.tops[k])))
            values.append((f"concept_{name}", concepts.ids[k], stats[-1], int(on.sum())))
        values.append((f"concept_{name}", "all", _mean(stats), int(labelled.any(axis=1).sum())))
    return values


def _mean(stats: list[Stat]) -> Stat:
    defined = [stat.value for stat in stats if stat.value is not None]
    if not defined:
        return Stat(None, "undefined: for every concept")
    mean = float(np.mean(defined))
    if len(defined) == len(stats):
        return Stat(mean)
    return Stat(mean, f"over the {len(defined)} of {len(stats)} concepts where it is defined")


def _task(labels: Ints, chosen: Ints, scores: Floats) -> list[Measured]:
    on = labels != MISSING
    y, by = labels[on], chosen[on]
    values = []
    for name, measure in MEASURES.items():
        values.append((f"task_{name}", "", measure(y, by, 0, len(scores) - 1), len(y)))
    return [*values, ("task_mae", "", mae(scores[y], scores[by]), len(y))]


def _probabilities(labels: Ints, raw: Floats, calibrated: Floats | None) -> list[Measured]:
    on = labels != MISSING
    y = labels[on]
    values: list[Measured] = []
    for name, measure in (("task_rps", rps), ("task_ece", ordinal_ece)):
        before = measure(raw[on], y)
        after = Stat(before.value, before.note or NOT_CALIBRATED) if calibrated is None else measure(calibrated[on], y)
        values += [(name, "", after, len(y)), (f"{name}_uncalibrated", "", before, len(y))]
    return values


def _row(
    method: str, seed: int, setting: str, split: str, metric: str, criterion_id: str, stat: Stat, n: int
) -> Record:
    return {
        "method": method,
        "seed": seed,
        "setting": setting,
        "split": split,
        "metric": metric,
        "criterion_id": criterion_id,
        "value": stat.value,
        "n": n,
        "note": stat.note,
    }
