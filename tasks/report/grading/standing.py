"""Where the judge stands: its agreement beside a baseline's and people's, and two answers of middle risk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from tasks.display import say
from tasks.report.grading.figures import Figures
from tasks.report.grading.parts import Outcome
from tasks.stats.bootstrap import MARK, is_few
from tasks.stats.estimate import Estimate

JUDGE, PEOPLE = "the judge", "people with each other"


class Agreeing(NamedTuple):
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


def standing(figures: Figures) -> tuple[Agreeing, ...]:
    """The judge, what it stands beside, and people with each other; nothing without human scores."""
    judge = Agreeing(JUDGE, "m", figures.machine("qwk"), figures.machine("qwk_item_mean"))
    if judge.shown.value is None:
        return ()
    names = figures.raters("other_qwk_item_mean")
    others = [Agreeing(name, "", *(figures.rater(of, name) for of in _OTHER)) for name in names]
    people = Agreeing(PEOPLE, "h", figures.people("qwk"), figures.people("qwk_item_mean"))
    return (judge, *others, *([people] if people.shown.value is not None else []))


_OTHER = ("other_qwk", "other_qwk_item_mean")


def sentence(rows: Sequence[Agreeing], found: Outcome, target: str) -> str:
    """What came of a run, in one sentence: where scores go, and who agrees how far with people."""
    start = (
        f"Of {say.plural(found.responses, 'response')} {say.count(found.released)} may be released, "
        f"{say.count(found.review)} go to people and {say.count(found.unscored)} have no score"
    )
    if not rows:
        return f"{start}; there are no human scores to agree with."
    told = [f"{row.name} {_of(row.shown)}" for row in rows]
    n = say.plural(rows[0].shown.n, "held-out response")
    return say.plain(f"{start}; on {n} agreement with '{say.name(target)}' (QWK) is: {', '.join(told)}.")


def _of(figure: Estimate) -> str:
    """0.55 (0.41 to 0.66)."""
    value, ends = say.number(figure.value or 0.0), say.interval(figure, "number")
    return f"{value} ({ends})" if ends else value


def lines(rows: Sequence[Agreeing]) -> list[tuple[str, ...]]:
    """Rows of text: who, QWK, its interval, mean over items, its interval, n."""
    return [(row.name, *_cells(row.pooled), *_cells(row.mean), say.count(row.shown.n)) for row in rows]


def _cells(figure: Estimate) -> tuple[str, str]:
    if figure.value is None:
        return "–", "–"
    few = MARK if is_few(figure.clusters) else ""
    ends = "–" if figure.low is None else f"{figure.low:.3f}…{figure.high:.3f}{few}"
    return f"{figure.value:.3f}", ends


def middle(scores: pd.DataFrame) -> list[str]:
    """A released response and one that people see: those of middle risk, so that nobody picks them.

    Both are of the upper half by what the judge itself gave: what earns nothing has nothing to quote.
    """
    known = scores[scores["calibrated"].notna()]
    released = known["route"] == "release"
    halves = (part[part["raw"] >= part["raw"].median()] for part in (known[released], known[~released]))
    ranked = (half.sort_values(["risk", "response_id"])["response_id"].tolist() for half in halves)
    return [names[len(names) // 2] for names in ranked if names]


def sources(manifest: Mapping[str, Any]) -> str:
    """Where replayed replies come from, in words; '' where nothing is replayed."""
    return "; ".join(manifest.get("identity", {}).get("recordings", {}).values())
