"""What a grader is worth: rows of table `trials` for its concepts and grades, and the same of one person by another;
and what leaks through its concepts.

Levels and grades count as classes 0, 1, …; what has no label (MISSING) leaves every measure. Definitions, ranges and
undefined cases are those of `tasks.core.stats.agreement` and `tasks.core.stats.ordinal`.

Concept leakage, measured: what predicted concepts say beyond what they are called.

Task leakage: how much better the grade is told by the true labels together with s̃ than by the labels alone. Between
concepts: how much better c_k is told by s̃_k together with the s̃_j of another concept than by s̃_k alone. Both are
differences of log-loss, in nats per response, of cross-fitted multinomial logistic regressions: about 0, or a little
below for the price of useless features, where nothing leaks.

Each has a control: the same number after every s̃_j was shuffled among the responses with the same label of
concept j. What a label and its relation to the others explain, the control keeps; what else the soft value carries, it
loses. The excess over the control is the leakage.

What it shows: that soft values carry such information, in a form that a linear model can use. What it cannot: whether
the grade head uses it; where it comes from (labels are coarse and noisy, so that an honest estimate between two levels
may know more of the concept than its label, and counts as leakage here); that there is none, as a leak that only
non-linear models see stays unseen. Use responses that the grader was not trained on: on the others its estimates
remember labels.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np
from scipy.stats import entropy
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.stats.agreement import Stat, exact_agreement, macro_f1, mae, qwk
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import Interval, draw_totals, interval
from rubricflow.tasks.core.stats.probability import log_loss, ordinal_ece, rps
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, Estimates, LabelledData

FOLDS = 5
DRAWS = 2000
FEWEST = 50
"""Responses below which nothing is fitted."""
TOO_FEW = f"undefined: fewer than {FEWEST} responses with two classes of {FOLDS} each"
NO_INTERVAL = Interval(None, None, 0)
MEASURES = {"accuracy": exact_agreement, "macro_f1": macro_f1, "qwk": qwk}
"""Of concepts and of grades alike."""


def trial_rows(estimates: Estimates, data: LabelledData, rows: Ints, calibrated: Floats) -> list[Record]:
    """All measures of a grader on some responses: metric, criterion_id, value, n and note of `trials`.

    estimates: of `rows`, in their order; a grader of the first concepts alone is measured on those. calibrated: (rows,
    S + 1) probabilities of the grades after calibration. task_mae is in units of the score.
    """
    grades = data.grades[rows]
    found = _task(grades, estimates.grade, data.scores)
    on = grades != MISSING
    for name, measure in (("task_rps", rps), ("task_ece", ordinal_ece)):
        found.append(_row(name, "", measure(calibrated[on], grades[on]), int(on.sum())))
        found.append(_row(f"{name}_uncalibrated", "", measure(estimates.grades[on], grades[on]), int(on.sum())))
    if estimates.levels is not None:
        found = _concepts(data.levels[rows], estimates.chosen(), data.concepts) + found
    return found


def human_rows(
    levels_a: Ints, levels_b: Ints, grades_a: Ints, grades_b: Ints, concepts: Concepts, scores: Floats
) -> list[Record]:
    """The human ceiling: one person measured by another on the responses that both marked, as `trial_rows`.

    levels: (n, K), grades: (n,) classes, MISSING where a person gave none; scores: (S + 1,) of the classes. All
    measures are symmetric, so that it does not matter who is a.
    """
    found = _concepts(np.where(levels_b == MISSING, MISSING, levels_a), levels_b, concepts)
    return found + _task(np.where(grades_b == MISSING, MISSING, grades_a), grades_b, scores)


def _concepts(labels: Ints, chosen: Ints, concepts: Concepts) -> list[Record]:
    """Every concept by itself, then the mean over those where a measure is defined."""
    count = chosen.shape[1]
    labelled = labels[:, :count] != MISSING
    rows = []
    for name, measure in MEASURES.items():
        defined = []
        for k in range(count):
            on = labelled[:, k]
            stat = measure(labels[on, k], chosen[on, k], 0, int(concepts.tops[k]))
            rows.append(_row(f"concept_{name}", concepts.ids[k], stat, int(on.sum())))
            if stat.value is not None:
                defined.append(stat.value)
        mean = Stat(float(np.mean(defined))) if defined else Stat(None, "undefined: for every concept")
        if 0 < len(defined) < count:
            mean = mean._replace(note=f"over the {len(defined)} of {count} concepts where it is defined")
        rows.append(_row(f"concept_{name}", "all", mean, int(labelled.any(axis=1).sum())))
    return rows


def _task(labels: Ints, chosen: Ints, scores: Floats) -> list[Record]:
    on = labels != MISSING
    y = labels[on]
    by = chosen[on]
    rows = [_row(f"task_{name}", "", measure(y, by, 0, len(scores) - 1), len(y)) for name, measure in MEASURES.items()]
    return [*rows, _row("task_mae", "", mae(scores[y], scores[by]), len(y))]


def _row(metric: str, criterion_id: str, stat: Stat, n: int) -> Record:
    return {"metric": metric, "criterion_id": criterion_id, "value": stat.value, "n": n, "note": stat.note}


class Leak(NamedTuple):
    """What is gained on n responses: value, nats per response; control, the same without what leaks; within and excess,
    95% intervals of the value and of its excess over the control, over responses at these fits; entropy, of what is
    predicted, nats. None with a note where undefined."""

    n: int
    value: float | None = None
    control: float | None = None
    within: Interval = NO_INTERVAL
    excess: Interval = NO_INTERVAL
    entropy: float | None = None
    note: str | None = None


def leakage_rows(shares: Floats, data: LabelledData, rows: Ints, seed: int) -> list[Record]:
    """Rows as of `trial_rows`: leakage_task, leakage_task_share (of the grade's entropy) and leakage_concepts (mean
    over ordered pairs), and the first's and last's controls.

    shares: (rows, K) s̃ of `rows`. What is undefined is null with a note.
    """
    levels = data.levels[rows][:, : shares.shape[1]]
    tops = data.concepts.tops[: shares.shape[1]]
    task = task_leakage(shares, levels, data.grades[rows], tops, seed)
    between = concept_leakage(shares, levels, seed)
    part = None if task.value is None or not task.entropy else task.value / task.entropy
    of_task = {
        "leakage_task": Stat(task.value, _intervals(task)),
        "leakage_task_share": Stat(part, task.note),
        "leakage_task_control": Stat(task.control, task.note),
    }
    among_concepts = {
        "leakage_concepts": Stat(between.value, _intervals(between)),
        "leakage_concepts_control": Stat(between.control, between.note),
    }
    found = [_row(metric, "", stat, task.n) for metric, stat in of_task.items()]
    return found + [_row(metric, "all", stat, between.n) for metric, stat in among_concepts.items()]


def task_leakage(shares: Floats, levels: Ints, grades: Ints, tops: Ints, seed: int) -> Leak:
    """What s̃ says of the grade beyond the true labels; shares, levels: (n, K), grades: (n,), tops: (K,).

    On responses with a grade and all labels; labels enter as indicators of each level, so that only what they say
    together, not by sum, is left to s̃. A grade with fewer responses than folds leaves.
    """
    complete = (levels != MISSING).all(axis=1) & (grades != MISSING)
    complete[complete] = _in_every_fold(grades[complete])
    y = grades[complete]
    if _too_few(y):
        return Leak(len(y), note=TOO_FEW)
    shares, levels = shares[complete], levels[complete]
    indicators = [levels[:, [k]] == np.arange(1, top + 1) for k, top in enumerate(tops)]
    labels = np.hstack(indicators).astype(np.float64)
    shuffled = within_labels(shares, levels, seed)
    base = cross_fitted(labels, y, seed)
    gain = base - cross_fitted(np.hstack([labels, shares]), y, seed)
    control = base - cross_fitted(np.hstack([labels, shuffled]), y, seed)
    return _leak(gain, control, _entropy(y), seed)


def concept_leakage(shares: Floats, levels: Ints, seed: int) -> Leak:
    """What s̃_j says of c_k beyond s̃_k, mean over ordered pairs of concepts; shares, levels: (n, K).

    On responses with all labels. Related concepts tell of each other without any leak: read it against the control. A
    concept with fewer than two levels of `FOLDS` responses is not predicted.
    """
    complete = (levels != MISSING).all(axis=1)
    shares, levels = shares[complete], levels[complete]
    shuffled = within_labels(shares, levels, seed)
    frequent = [_in_every_fold(column) for column in levels.T]
    usable = {k: on for k, on in enumerate(frequent) if not _too_few(levels[on, k])}
    if not usable or levels.shape[1] < 2:
        return Leak(len(levels), note=TOO_FEW)
    gain, control, pairs = np.zeros((3, len(levels)))
    base = {k: cross_fitted(shares[on][:, [k]], levels[on, k], seed) for k, on in usable.items()}
    for k, j in permutations(range(levels.shape[1]), 2):
        if k not in usable:
            continue
        on = usable[k]
        for total, other in ((gain, shares), (control, shuffled)):
            both = np.stack([shares[:, k], other[:, j]], axis=1)[on]
            total[on] += base[k] - cross_fitted(both, levels[on, k], seed)
        pairs[on] += 1
    on = pairs > 0
    mean_entropy = float(np.mean([_entropy(levels[some, k]) for k, some in usable.items()]))
    return _leak(gain[on] / pairs[on], control[on] / pairs[on], mean_entropy, seed)


def within_labels(shares: Floats, levels: Ints, seed: int) -> Floats:
    """(n, K) every s̃_k shuffled among the responses with the same label of concept k: what is left of it is what the
    label says, and noise."""
    rng = np.random.default_rng([seed, 3])
    shuffled = shares.copy()
    for k, column in enumerate(levels.T):
        for level in np.unique(column):
            rows = np.flatnonzero(column == level)
            shuffled[rows, k] = shares[rng.permutation(rows), k]
    return shuffled


def cross_fitted(features: Floats, classes: Ints, seed: int) -> Floats:
    """(n,) log-loss of each response's class, nats, by a logistic regression fitted on the other folds.

    features: (n, F), standardised before they are fitted with an L2 penalty of C = 1; classes: (n,), each with at least
    `FOLDS` responses.
    """
    _, y = np.unique(classes, return_inverse=True)
    loss = np.empty(len(y))
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(features, y):
        spread = features[train].std(axis=0)
        scaled = (features - features[train].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
        model = LogisticRegression(max_iter=1000).fit(scaled[train], y[train])
        loss[test] = log_loss(model.predict_proba(scaled[test]), y[test])
    return loss


def _leak(gain: Floats, control: Floats, predicted_entropy: float, seed: int) -> Leak:
    (totals,) = draw_totals([np.stack([gain, gain - control, np.ones_like(gain)], axis=1)], DRAWS, seed)
    within = interval(totals[:, 0] / totals[:, 2], len(gain))
    excess = interval(totals[:, 1] / totals[:, 2], len(gain))
    return Leak(len(gain), float(gain.mean()), float(control.mean()), within, excess, predicted_entropy)


def _in_every_fold(classes: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """(n,) whether a response's class is frequent enough to be in every fold."""
    _, codes, counts = np.unique(classes, return_inverse=True, return_counts=True)
    return np.asarray(counts[codes] >= FOLDS, np.bool_)


def _too_few(classes: Ints) -> bool:
    return len(classes) < FEWEST or len(np.unique(classes)) < 2


def _entropy(classes: Ints) -> float:
    return float(entropy(np.unique(classes, return_counts=True)[1]))


def _intervals(leak: Leak) -> str | None:
    if leak.value is None or leak.control is None:
        return leak.note
    (low, high), (least, most) = leak.within[:2], leak.excess[:2]
    over = leak.value - leak.control
    return f"nats, [{low:.4f}, {high:.4f}]; over its control {over:+.4f} [{least:+.4f}, {most:+.4f}]"
