"""The composite rule: what a criterion with sub-points is worth follows from theirs, for the judge's scores and for
rewards alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import add
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from tasks.contracts.bundle import Bundle, Criterion
from tasks.contracts.errors import ContractError

Share = TypeVar("Share", float, NDArray[np.float64])
Composition = tuple[tuple[Criterion, tuple[Criterion, ...]], ...]
"""Composites, each with its direct sub-points, after the composites among these."""


def composition(bundle: Bundle) -> Composition:
    """The composites of a bundle; ContractError for one without weight, of which no share can be made."""
    known = {composite.id: composite for composite in bundle.composites}

    def depth(criterion: Criterion) -> int:
        return 1 + depth(known[criterion.parent]) if criterion.parent is not None else 0

    if weightless := [name for name, composite in known.items() if not composite.weight]:
        raise ContractError(f"criterion '{weightless[0]}' is made of its sub-points and has weight 0")
    deepest_first = sorted(bundle.composites, key=depth, reverse=True)
    return tuple((composite, bundle.sub_points(composite.id)) for composite in deepest_first)


def composed(of: Composition, shares: Mapping[str, Share], clipped: Callable[[Share], Share]) -> dict[str, Share]:
    """The shares with those of the composites, as far as all of their sub-points have one.

    A composite's share is Σ w·share of its sub-points over its own weight, clipped to [0, 1]. shares: of decided
    criteria, numbers or arrays over responses, in which NaN is no share; clipped: what keeps such a value in [0, 1].
    """
    reached = dict(shares)
    for composite, sub_points in of:
        if all(point.id in reached for point in sub_points):
            earned: Share = reduce(add, (point.weight * reached[point.id] for point in sub_points))
            reached[composite.id] = clipped(earned / composite.weight)
    return reached
