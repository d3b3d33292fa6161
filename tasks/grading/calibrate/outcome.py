"""What cross-fitted scores of labelled rows are worth: residuals, the risk of each, and whether it was wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.conformal import conformal_quantile
from rubricflow.tasks.grading.calibrate.features import LONE
from rubricflow.tasks.grading.calibrate.methods import CrossFitted
from rubricflow.tasks.grading.calibrate.rows import LabelledRows
from rubricflow.tasks.grading.calibrate.spread import (
    ErrorModel,
    Placed,
    Spread,
    error_risk,
    fit_errors,
    fit_sigma,
    grain_of,
    risks,
    sigmas,
    thinned,
)


class RiskRows(NamedTuple):
    """Labelled rows with cross-fitted scores, (n,) each.

    level: of the score, in steps from 0; by_distribution: risk by the residuals of other folds; risk: as an error
    model of other folds has learned it; wrong: whether the human score differs from the level by more than the
    tolerance; clipped: as cross-fitted.
    """

    level: Floats
    by_distribution: Floats
    risk: Floats
    wrong: Bools
    clipped: Bools


def outcome(
    labels: LabelledRows, tried: CrossFitted, fold: Ints, release: Release
) -> tuple[Spread, RiskRows, tuple[Spread, ...]]:
    """The spread fitted on all labels, for new rows, the outcome of each label by a spread that had not seen it, and
    these spreads, one for each fold.

    fold: (n,). A label's sigma, epsilons and error model come from the other folds; their residuals come from mappings
    fitted with its fold among others, so that the split is not a fully nested one.
    """
    names = tuple(name for name in labels.names if name in LONE)
    signals = labels.matrix[:, [labels.names.index(name) for name in names]]
    residual, span = labels.human - tried.aligned, labels.high - labels.low
    sigma = np.empty(len(labels))
    for out in _folds(fold):
        model = fit_sigma(residual[~out], tried.aligned[~out], signals[~out], span)
        sigma[out] = sigmas(model, tried.aligned[out], signals[out])
    epsilon = residual / sigma
    spread = Spread(
        signals=names,
        sigma=fit_sigma(residual, tried.aligned, signals, span),
        epsilon=tuple(thinned(epsilon).tolist()),
        reach=_reach(epsilon, release),
        tolerance=release.tolerance,
        grain=grain_of(labels.steps(labels.human), labels.weight),
    )
    rows, spreads = _cross_fitted(labels, tried, fold, signals, spread, release)
    placed = _placed(labels, tried, sigmas(spread.sigma, tried.aligned, signals), np.array(spread.epsilon), spread)
    return spread.model_copy(update={"errors": _errors(labels, placed, rows.wrong)}), rows, spreads


def _reach(epsilon: Floats, release: Release) -> float | None:
    # 1 - 0.9 is 0.09999999999999998; the rank is counted from what the study says.
    reach = conformal_quantile(np.abs(epsilon), round(1 - release.coverage, 12))
    return float(reach) if np.isfinite(reach) else None


def _cross_fitted(
    labels: LabelledRows, tried: CrossFitted, fold: Ints, signals: Floats, spread: Spread, release: Release
) -> tuple[RiskRows, tuple[Spread, ...]]:
    """The outcome of each label by what the other folds tell and teach, as told where they teach nothing, and the
    spread of each fold: what the others tell and teach.

    What a fold is told, and what teaches its error model, comes from one distribution, of the other folds: told
    by those of its own, each fold's risks would give away how many errors it has.
    """
    level = labels.levels(tried.aligned)
    wrong = np.abs(labels.steps(labels.human) - level) > spread.tolerance + SLACK
    residual, span = labels.human - tried.aligned, labels.high - labels.low
    by_distribution, risk = np.empty(len(labels)), np.empty(len(labels))
    spreads = list[Spread]()
    for out in _folds(fold):
        fitted = fit_sigma(residual[~out], tried.aligned[~out], signals[~out], span)
        sigma = sigmas(fitted, tried.aligned, signals)
        epsilon = (residual / sigma)[~out]
        placed = _placed(labels, tried, sigma, thinned(epsilon), spread)
        model = _errors(labels.take(~out), placed.take(~out), wrong[~out])
        told = {"sigma": fitted, "epsilon": tuple(thinned(epsilon).tolist()), "reach": _reach(epsilon, release)}
        spreads.append(spread.model_copy(update=told | {"errors": model}))
        by_distribution[out] = placed.by_distribution[out]
        risk[out] = by_distribution[out] if model is None else _learned(model, labels.take(out), placed.take(out))
    return RiskRows(level, by_distribution, risk, wrong, tried.clipped), tuple(spreads)


def _folds(fold: Ints) -> Iterator[Bools]:
    """The rows of each fold, (n,)."""
    return (fold == k for k in range(fold.max() + 1))


def _placed(labels: LabelledRows, tried: CrossFitted, sigma: Floats, epsilon: Floats, spread: Spread) -> Placed:
    """Where the cross-fitted scores lie, and the risk that sigma, (n,), and the epsilons, rising, tell."""
    aligned, level, top = labels.steps(tried.aligned), labels.levels(tried.aligned), labels.top
    steps = sigma / (labels.high - labels.low) * top
    risk = risks(aligned, steps, level, top, epsilon, tolerance=spread.tolerance, grain=spread.grain)
    return Placed(aligned, level, top, risk)


def _errors(labels: LabelledRows, placed: Placed, wrong: Bools) -> ErrorModel | None:
    least = 0.5 / len(labels)
    return fit_errors(placed, labels.matrix, labels.names, labels.item, labels.items, wrong=wrong, least=least)


def _learned(model: ErrorModel, labels: LabelledRows, placed: Placed) -> Floats:
    effect = np.array([model.effect(item) for item in labels.items])[labels.item]
    return error_risk(model, placed, labels.matrix, effect)
