"""Risk and coverage: what the mean loss would be if only the most confident scores were kept.

loss: (n,) finite, >= 0, such as the absolute error or whether it is two steps or more; confidence: (n,) finite, larger
where a score is trusted more. R(k) is the mean loss of the k most confident rows. Rows tied in confidence are kept or
left together: each of them counts with the mean loss of its tie. ValueError on another shape, NaN, infinity or no rows.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.stats.agreement import checked_pair
from tasks.stats.arrays import Floats


class RiskCoverage(NamedTuple):
    """R(k) for k = 1 .. n, (n,) each.

    coverage: k over all rows, rising to 1, or to less where rows are unscored; risk: R(k), in the unit of the loss.
    """

    coverage: Floats
    risk: Floats


def risk_coverage(loss: npt.ArrayLike, confidence: npt.ArrayLike, total: int | None = None) -> RiskCoverage:
    """The risk-coverage curve (El-Yaniv and Wiener 2010).

    total: rows including those without a score, which are never covered, so that the curve ends early; None where
    every row has one. ValueError for a total below n.
    """
    loss, confidence = checked_pair(loss, confidence)
    n = len(loss)
    every = n if total is None else total
    if not n or every < n:
        raise ValueError(f"needs rows, and a total that counts them: got {n} and {total}")
    _, tie, size = np.unique(-confidence, return_inverse=True, return_counts=True)
    shared = np.repeat(np.bincount(tie, weights=loss) / size, size)
    covered = np.arange(1, n + 1)
    return RiskCoverage(covered / every, np.cumsum(shared) / covered)


def aurc(loss: npt.ArrayLike, confidence: npt.ArrayLike) -> float:
    """Area under the risk-coverage curve: mean of R(k) over the covered rows, unit as loss (Geifman et al. 2019)."""
    return float(risk_coverage(loss, confidence).risk.mean())


def augrc(loss: npt.ArrayLike, confidence: npt.ArrayLike, total: int | None = None) -> float:
    """Area under the generalised curve: mean of (k / total) R(k) over the covered rows, unit of the loss (Traub et al.
    2024).

    (k / total) R(k) is the loss let through per row, kept or not; total as in `risk_coverage`.
    """
    curve = risk_coverage(loss, confidence, total)
    return float(np.mean(curve.coverage * curve.risk))


def oracle_aurc(loss: npt.ArrayLike) -> float:
    """The least `aurc` that any confidence reaches: rows kept in order of their loss."""
    values = np.asarray(loss, dtype=np.float64)
    return aurc(values, -values)


def random_aurc(loss: npt.ArrayLike) -> float:
    """The `aurc` of a confidence that knows nothing, on average: the mean loss."""
    values = np.asarray(loss, dtype=np.float64)
    return aurc(values, np.zeros_like(values))
