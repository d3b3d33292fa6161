"""What cross-fitted scores of labelled rows are worth: residuals, the risk of each, and whether it was wrong."""

from __future__ import annotations

import numpy as np

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.conformal import conformal_quantile
from rubricflow.tasks.grading.calibrate.features import LONE
from rubricflow.tasks.grading.calibrate.methods import CrossFitted
from rubricflow.tasks.grading.calibrate.rows import LabelledRows, RiskRows
from rubricflow.tasks.grading.calibrate.spread import (
    ErrorModel,
    Placed,
    Sigma,
    Spread,
    error_risk,
    fit_errors,
    fit_sigma,
    grain_of,
    risks,
    sigmas,
    thinned,
)


def outcome(
    labels: LabelledRows, tried: CrossFitted, fold: Ints, release: Release
) -> tuple[Spread, RiskRows, tuple[Spread, ...]]:
    """The spread fitted on all labels, for new rows, the outcome of each label by a spread that had not seen it, and
    these spreads, one for each fold.

    fold: (n,). A label's sigma, epsilons and error model come from the other folds; their residuals come from mappings
    fitted with its fold among others, so that the split is not a fully nested one. What a fold's risks go by and what
    teaches its error model come from one distribution, of the other folds: with those of its own, each fold's risks
    would give away how many errors it has. Where the other folds teach nothing, the risk is as the distribution has it.
    """
    names = tuple(name for name in labels.names if name in LONE)
    signals = labels.matrix[:, [labels.names.index(name) for name in names]]
    residual, span = labels.human - tried.aligned, labels.high - labels.low
    level = labels.levels(tried.aligned)
    wrong = np.abs(labels.steps(labels.human) - level) > release.tolerance + SLACK
    grain = grain_of(labels.steps(labels.human), labels.weight)
    sigma, by_distribution, risk = np.empty((3, len(labels)))
    spreads = []

    def fitted(size: Sigma, epsilon: Floats) -> Spread:
        # 1 - 0.9 is 0.09999999999999998; the rank is counted from the study's own figure.
        reach = conformal_quantile(np.abs(epsilon), round(1 - release.coverage, 12))
        return Spread(
            signals=names,
            sigma=size,
            epsilon=tuple(thinned(epsilon).tolist()),
            reach=float(reach) if np.isfinite(reach) else None,
            tolerance=release.tolerance,
            grain=grain,
        )

    for out in (fold == k for k in range(fold.max() + 1)):
        size = fit_sigma(residual[~out], tried.aligned[~out], signals[~out], span)
        sigma_of_fold = sigmas(size, tried.aligned, signals)
        sigma[out] = sigma_of_fold[out]
        spread = fitted(size, (residual / sigma_of_fold)[~out])
        placed = _placed(labels, tried, sigma_of_fold, spread)
        model = _errors(labels.take(~out), placed.take(~out), wrong[~out])
        spreads.append(spread.model_copy(update={"errors": model}))
        by_distribution[out] = risk[out] = placed.by_distribution[out]
        if model is not None:
            unseen = labels.take(out)
            effect = np.array([model.effect(item) for item in labels.items])[unseen.item]
            risk[out] = error_risk(model, placed.take(out), unseen.matrix, effect)
    whole = fitted(fit_sigma(residual, tried.aligned, signals, span), residual / sigma)
    placed = _placed(labels, tried, sigmas(whole.sigma, tried.aligned, signals), whole)
    rows = RiskRows(level, by_distribution, risk, wrong, tried.clipped)
    return whole.model_copy(update={"errors": _errors(labels, placed, wrong)}), rows, tuple(spreads)


def _placed(labels: LabelledRows, tried: CrossFitted, sigma: Floats, spread: Spread) -> Placed:
    """Where the cross-fitted scores lie, and the risk by sigma, (n,), and the spread's epsilons."""
    aligned, level, top = labels.steps(tried.aligned), labels.levels(tried.aligned), labels.top
    steps, epsilon = sigma / (labels.high - labels.low) * top, np.array(spread.epsilon)
    risk = risks(aligned, steps, level, top, epsilon, tolerance=spread.tolerance, grain=spread.grain)
    return Placed(aligned, level, top, risk)


def _errors(labels: LabelledRows, placed: Placed, wrong: Bools) -> ErrorModel | None:
    least = 0.5 / len(labels)
    return fit_errors(placed, labels.matrix, labels.names, labels.item, labels.items, wrong=wrong, least=least)
