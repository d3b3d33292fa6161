"""What a judge's scores are worth after n labels: raw, as they are chosen to be mapped, and by every method."""

from __future__ import annotations

import numpy as np

from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.stats.bootstrap import pair_terms, statistics_of_totals
from rubricflow.tasks.grading.calibrate.choose import decide
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels
from rubricflow.tasks.grading.calibrate.rows import LabelledRows


def drawn(labels: LabelledRows, n: int, seed: int, most: int) -> tuple[Bools, Bools]:
    """n rows that teach, whole authors at random, the last one in part, and up to `most` rows of other authors."""
    names, author = np.unique(labels.cluster, return_inverse=True)
    luck = np.random.default_rng([seed, n])
    place = luck.permutation(len(names))[author]
    order = np.argsort(place, kind="stable")
    others = luck.permutation(order[place[order] > (place[order[n - 1]] if n else -1)])
    teach, unseen = np.zeros((2, len(labels)), dtype=np.bool_)
    teach[order[:n]], unseen[others[:most]] = True, True
    return teach, unseen


def agreement(scores: Floats, labels: LabelledRows) -> float:
    """QWK of the levels as shares of their scales; NaN where undefined."""
    shares = (labels.levels(values) / labels.top for values in (labels.human, scores))
    return float(statistics_of_totals(pair_terms(*shares, (0.0, 1.0, 1.0)).sum(axis=0)[None])["qwk_continuous"][0])


def agreement_within(scores: Floats, labels: LabelledRows) -> float:
    """The mean over items of the QWK of each; of those in which it is defined."""
    each = [agreement(scores[labels.item == at], labels.take(labels.item == at)) for at in range(len(labels.items))]
    return float(np.nanmean(each))


def agreements(labels: LabelledRows, n: int, seed: int, most: int = 320) -> dict[str, float]:
    """QWK on unseen rows: `chosen`, `raw`, and every method by its name, the raw score's where it cannot be fitted."""
    teach, unseen = drawn(labels, n, seed, most)
    known, new = labels.take(teach), labels.take(unseen)
    decision = decide(known, Calibration())
    raw = agreement(new.raw, new)
    found = {"raw": raw, "chosen": raw}
    if decision.tried is not None:
        found["chosen"] = agreement(apply_to_labels(decision.tried.mapping, new, decision.tried.weight).aligned, new)
    for trial in decision.candidates:
        mapped = trial.tried and agreement(apply_to_labels(trial.tried.mapping, new).aligned, new)
        found[trial.method] = raw if mapped is None else mapped
    return found
