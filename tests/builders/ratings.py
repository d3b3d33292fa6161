"""Made-up people's scores, by raters of known severity on responses of known ability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.stats.facet_likelihood import Design
from rubricflow.tasks.core.stats.facet_likelihood import design as design_of

Array = np.ndarray[Any, np.dtype[Any]]


class Rating(NamedTuple):
    """One person's score of one response; group: responses whose scores have the same steps."""

    response: str
    group: str
    rater: str
    score: float


def design(ratings: list[Rating]) -> Design:
    """Ratings as the many-facet model takes them."""
    return design_of(pd.DataFrame(ratings, columns=[*Rating._fields]))


@dataclass(frozen=True)
class World:
    """A scale of 0 … levels - 1 and its steps; severity: rater -> logits a level; slope: logits over the scale."""

    severity: dict[str, float]
    levels: int = 5
    slope: float = 8.0

    def chances(self, ability: float) -> Array:
        """Of each level, at ability less severity."""
        share = np.linspace(0, 1, self.levels)
        weights = np.exp(self.slope * share * ability + 0.9 * self.slope * share * (1 - share))
        return np.asarray(weights / weights.sum())

    def fair(self, ability: float) -> float:
        """What a rater of severity 0 gives on average."""
        return float(self.chances(ability) @ np.arange(self.levels))


def world(seed: int, raters: int = 4, spread: float = 0.5, **scale: Any) -> World:
    """Raters p0, p1, … whose severities are 0 on average."""
    drawn = np.random.default_rng(seed).normal(size=raters) * spread
    return World({f"p{at}": float(one) for at, one in enumerate(drawn - drawn.mean())}, **scale)


def marked(
    of: World, seed: int, n: int = 300, each: int = 2, doubles: float = 1.0, sorted_out: bool = False
) -> tuple[list[Rating], dict[str, float]]:
    """Ratings of n responses, `each` a response (of the share `doubles`, else one), and each response's fair score.

    sorted_out: weak responses go to the first raters, good ones to the last, with neighbours overlapping.
    """
    rng = np.random.default_rng(seed)
    names = list(of.severity)
    ratings, truth = [], {}
    for at in range(n):
        ability = float(rng.normal())
        key = f"r{at:04d}"
        truth[key] = of.fair(ability)
        middle = (ability + rng.normal() * 0.5) / 2.2
        place = (1 + np.tanh(middle)) / 2 * (len(names) - 1)
        likely = np.exp(-0.5 * ((np.arange(len(names)) - place) / 0.8) ** 2) if sorted_out else np.ones(len(names))
        count = each if rng.random() < doubles else 1
        for who in rng.choice(len(names), count, replace=False, p=likely / likely.sum()):
            chances = of.chances(ability - of.severity[names[who]])
            ratings.append(Rating(key, "g", names[who], float(rng.choice(of.levels, p=chances))))
    return ratings, truth
