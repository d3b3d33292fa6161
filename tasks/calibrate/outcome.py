"""What cross-fitted scores of labelled rows are worth: residuals, the risk told for each, and whether it was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tasks.calibrate.errors import ErrorModel, Placed, error_risk, fit_errors
from tasks.calibrate.features import LONE
from tasks.calibrate.folds import CrossFitted
from tasks.calibrate.labels import LabelledRows
from tasks.calibrate.spread import Spread, fit_sigma, grain_of, risks, sigmas, thinned
from tasks.contracts.settings.study import Release
from tasks.stats.agreement import SLACK
from tasks.stats.arrays import Bools, Floats, Ints
from tasks.stats.conformal import conformal_quantile


class RiskRows(NamedTuple):
    """Labelled rows with cross-fitted scores, (n,) each.

    level: of the score, in steps from 0; told: risk by the residuals of other folds; risk: as an error model of other
    folds has learned it; wrong: whether the human score differs from the level by more than the tolerance; clipped: as
    cross-fitted.
    """

    level: Floats
    told: Floats
    risk: Floats
    wrong: Bools
    clipped: Bools


def outcome(labels: LabelledRows, tried: CrossFitted, fold: Ints, release: Release) -> tuple[Spread, RiskRows]:
    """The spread fitted on all labels, for new rows, and the outcome of each label by a spread that had not seen it.

    fold: (n,). A label's sigma, epsilons and error model come from the other folds; their residuals and risks come from
    fits with its fold among others, so that the split is not a fully nested one.
    """
    names = tuple(name for name in labels.names if name in LONE)
    signals = labels.matrix[:, [labels.names.index(name) for name in names]]
    residual, span = labels.human - tried.aligned, labels.high - labels.low
    sigma = np.empty(len(labels))
    for out in _folds(fold):
        model = fit_sigma(residual[~out], tried.aligned[~out], signals[~out], span)
        sigma[out] = sigmas(model, tried.aligned[out], signals[out])
    epsilon = residual / sigma
    # 1 - 0.9 is 0.09999999999999998; the rank is counted from what the study says.
    reach = conformal_quantile(np.abs(epsilon), round(1 - release.coverage, 12))
    spread = Spread(
        signals=names,
        sigma=fit_sigma(residual, tried.aligned, signals, span),
        epsilon=tuple(thinned(epsilon).tolist()),
        reach=float(reach) if np.isfinite(reach) else None,
        tolerance=release.tolerance,
        grain=grain_of(labels.steps(labels.human), labels.weight),
    )
    placed = _placed(labels, tried, fold, sigma, spread)
    wrong = np.abs(labels.steps(labels.human) - placed.level) > release.tolerance + SLACK
    risk = _cross_fitted_risk(labels, placed, wrong, fold)
    rows = RiskRows(placed.level, placed.told, risk, wrong, tried.clipped)
    return spread.model_copy(update={"errors": _errors(labels, placed, wrong)}), rows


def _folds(fold: Ints) -> Iterator[Bools]:
    """The rows of each fold, (n,)."""
    return (fold == k for k in range(fold.max() + 1))


def _placed(labels: LabelledRows, tried: CrossFitted, fold: Ints, sigma: Floats, spread: Spread) -> Placed:
    """Where the cross-fitted scores lie, and the risk that the residuals of other folds tell."""
    aligned, level, top = labels.steps(tried.aligned), labels.levels(tried.aligned), labels.top
    sigma_steps = sigma / (labels.high - labels.low) * top
    epsilon = (labels.human - tried.aligned) / sigma
    told = np.empty(len(labels))
    for out in _folds(fold):
        others = thinned(epsilon[~out])
        told[out] = risks(aligned[out], sigma_steps[out], level[out], top[out], others, spread.tolerance, spread.grain)
    return Placed(aligned, level, top, told)


def _errors(labels: LabelledRows, placed: Placed, wrong: Bools) -> ErrorModel | None:
    least = 0.5 / len(labels)
    return fit_errors(placed, labels.matrix, labels.names, labels.item, labels.items, wrong, least)


def _cross_fitted_risk(labels: LabelledRows, placed: Placed, wrong: Bools, fold: Ints) -> Floats:
    """The risk of each label by an error model of the other folds; as told where these teach none."""
    risk = placed.told.copy()
    for out in _folds(fold):
        model = _errors(labels.take(~out), placed.take(~out), wrong[~out])
        if model is not None:
            effect = np.array([model.effect(item) for item in labels.items])[labels.item[out]]
            risk[out] = error_risk(model, placed.take(out), labels.matrix[out], effect)
    return risk
