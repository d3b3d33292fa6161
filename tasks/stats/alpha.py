"""Agreement among any number of raters, with gaps."""

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from tasks.stats.agreement import Stat
from tasks.stats.ratings import checked_ratings


def krippendorff_ordinal(ratings: npt.ArrayLike) -> Stat:
    """Krippendorff's alpha for ordered levels, <= 1; 0 is chance, below it systematic disagreement (Krippendorff 2004).

    ratings: (n responses, k raters), NaN where a rater gave none; responses with one rating do not count. The distance
    of two levels counts the ratings between them, so that the unit of the scale does not matter. None where no response
    has two ratings, and where all ratings of the responses that have are one. ValueError on another shape or an
    infinity.
    """
    table = checked_ratings(ratings)
    table = table[(~np.isnan(table)).sum(axis=1) >= 2]
    if not len(table):
        return Stat(None, "undefined: no response has two ratings")
    if np.nanmin(table) == np.nanmax(table):
        return Stat(None, "undefined: all ratings are one")
    # The ratings between two levels, half of those on the levels included, are the difference of the levels' mean
    # ranks. Sums over pairs of ranks are then sums of squares: no matrix of levels, which may be many.
    present = ~np.isnan(table)
    ranks = np.zeros_like(table)
    ranks[present] = rankdata(table[present])
    counts, size = present.sum(axis=1), int(present.sum())
    centres = ranks.sum(axis=1, keepdims=True) / counts[:, None]
    within = np.where(present, (ranks - centres) ** 2, 0.0).sum(axis=1)
    total = float(((ranks[present] - (size + 1) / 2) ** 2).sum())
    return Stat(1 - float((within * counts / (counts - 1)).sum()) * (size - 1) / size / total)
