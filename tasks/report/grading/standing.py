"""Where the judge stands: its agreement beside a baseline's and people's, and two answers of middle risk."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from tasks.report.grading.figures import Figures
from tasks.stats.estimate import Estimate

JUDGE, PEOPLE = "the judge", "people with each other"


class RaterStanding(NamedTuple):
    """One rater's agreement with the human score (QWK): all held-out responses as one set, and the mean over items."""

    name: str
    by: str
    """m for the machine, h for people, '' for what stands beside them."""
    pooled: Estimate
    mean: Estimate

    @property
    def shown(self) -> Estimate:
        """The pooled figure, or the mean where items have different scales."""
        return self.mean if self.pooled.value is None else self.pooled


def standing(figures: Figures) -> tuple[RaterStanding, ...]:
    """The judge, what it stands beside, and people with each other; nothing without human scores."""
    judge = RaterStanding(JUDGE, "m", figures.machine("qwk"), figures.machine("qwk_item_mean"))
    if judge.shown.value is None:
        return ()
    others = [_other(figures, name) for name in figures.raters("other_qwk_item_mean")]
    people = RaterStanding(PEOPLE, "h", figures.people("qwk"), figures.people("qwk_item_mean"))
    return (judge, *others, *([people] if people.shown.value is not None else []))


def _other(figures: Figures, name: str) -> RaterStanding:
    return RaterStanding(name, "", figures.rater("other_qwk", name), figures.rater("other_qwk_item_mean", name))


def middle(scores: pd.DataFrame) -> list[str]:
    """A released response and one that people see: those of middle risk, so that nobody picks them.

    Both are of the upper half by what the judge itself gave: what earns nothing has nothing to quote.
    """
    scored = scores[scores["calibrated"].notna()]
    released = scored["route"] == "release"
    halves = (part[part["raw"] >= part["raw"].median()] for part in (scored[released], scored[~released]))
    ranked = (half.sort_values(["risk", "response_id"])["response_id"].tolist() for half in halves)
    return [names[len(names) // 2] for names in ranked if names]


def sources(manifest: Mapping[str, Any]) -> str:
    """Where replayed replies come from, in words; '' where nothing is replayed."""
    return "; ".join(manifest.get("identity", {}).get("recordings", {}).values())
