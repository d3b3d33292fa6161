"""What cross-fitted scores of labelled rows are worth: residuals, the risk told for each, and whether it was wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

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

    level: of the score, in steps from 0; risk: as told by rows of other folds; wrong: whether the human score differs
    from the level by more than the tolerance; clipped: as cross-fitted.
    """

    level: Floats
    risk: Floats
    wrong: Bools
    clipped: Bools


def outcome(labels: LabelledRows, tried: CrossFitted, fold: Ints, release: Release) -> tuple[Spread, RiskRows]:
    """The spread fitted on all labels, for new rows, and the outcome of each label by a spread that had not seen it.

    fold: (n,). A label's sigma and epsilons come from the other folds; their residuals come from mappings fitted with
    its fold among others, so that the split is not a fully nested one.
    """
    names = tuple(name for name in labels.names if name in LONE)
    signals = labels.matrix[:, [labels.names.index(name) for name in names]]
    residual, span = labels.human - tried.aligned, labels.high - labels.low
    sigma = np.empty(len(labels))
    for out in (fold == k for k in range(fold.max() + 1)):
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
    return spread, _outcome(labels, tried, fold, sigma, spread)


def _outcome(labels: LabelledRows, tried: CrossFitted, fold: Ints, sigma: Floats, spread: Spread) -> RiskRows:
    aligned, level, top = labels.steps(tried.aligned), labels.levels(tried.aligned), labels.top
    sigma_steps = sigma / (labels.high - labels.low) * top
    epsilon = (labels.human - tried.aligned) / sigma
    risk = np.empty(len(labels))
    for out in (fold == k for k in range(fold.max() + 1)):
        others = thinned(epsilon[~out])
        risk[out] = risks(aligned[out], sigma_steps[out], level[out], top[out], others, spread.tolerance, spread.grain)
    wrong = np.abs(labels.steps(labels.human) - level) > spread.tolerance + SLACK
    return RiskRows(level, risk, wrong, tried.clipped)
