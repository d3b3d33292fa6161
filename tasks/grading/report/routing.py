"""What goes to people: the promise of release, and the risk that each share of released scores would carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.reasons import against_constant
from rubricflow.tasks.core.stats.conformal import risk_coverage
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.promises import above_promise
from rubricflow.tasks.grading.report.sections import FoldedList, NamedEstimate, listed

Row = Mapping[str, Any]
Points = tuple[tuple[float, float], ...]
ScaleBounds = tuple[float, float, float]
MOST_POINTS = 100
NO_RISK = "Every score goes to a person: nothing tells its risk"


@dataclass(frozen=True)
class Rule:
    """One promise of release, in words."""

    scope: str
    promise: str
    holds: bool


@dataclass(frozen=True)
class Risk:
    """Risk–coverage on held-out responses: (coverage, share wrong), both 0 to 1."""

    machine: tuple[tuple[float, float], ...]
    oracle: tuple[tuple[float, float], ...]
    random: float
    ends: float
    chosen: tuple[float, float] | None
    target: float
    wrong: str


@dataclass(frozen=True)
class Routing:
    """What goes to people."""

    title: str
    curve: Risk | None
    rules: FoldedList[Rule]
    above: FoldedList[Rule]
    """Items of which more is wrong than promised, or may be."""
    figures: tuple[NamedEstimate, ...]
    missing: str = ""


def wrong_score_words(tolerance: float, scales: Mapping[str, ScaleBounds]) -> tuple[str, str]:
    """What a wrong score is: as a predicate ('are more than one point from the human score'), and without the verb."""
    points = all(bounds[2] == 1 for bounds in scales.values())
    unit, units = ("point", "points") if points else ("step of the scale", "steps of the scale")
    if not tolerance:
        return "differ from the human score", "different from the human score"
    amount = f"one {unit}" if tolerance == 1 else f"{tolerance:g} {units}"
    return f"are more than {amount} from the human score", f"more than {amount} from the human score"


def routing(
    scores: pd.DataFrame,
    scales: Mapping[str, ScaleBounds],
    rules: Sequence[Row],
    figures: Figures,
    tolerance: float,
    target: float,
    gates: Sequence[Row],
    released: int,
) -> Routing:
    """The risk–coverage curve on held-out responses, the chosen point, the rules, and the items above the promise.
    target: the share promised; released: scores of the whole run that may go out."""
    wrong = wrong_score_words(tolerance, scales)[1]
    curve = _risk(scores, scales, tolerance, target, wrong)
    ordered = sorted(rules, key=lambda row: (row["threshold"] is not None, row["scope"]))
    shown = [_rule(row, wrong, released) for row in ordered]
    statistics = tuple(figures.figure(metric, figures.any(metric.name)) for metric in figures.listed("routing"))
    missing = "" if curve else "no held-out response has a human score, a machine score and an estimated risk"
    above_rules = listed([_above_rule(row, wrong_score_words(tolerance, scales)[0]) for row in above_promise(gates)])
    return Routing(_title(curve, rules), curve, listed(shown), above_rules, statistics, missing)


def _above_rule(row: Row, wrong: str) -> Rule:
    wrong_share = f"{say.share(row['estimate'])} of {say.plural(row['n'], 'released held-out score')}"
    interval = f"95% interval {say.share(row['low']).removesuffix('%')} to {say.share(row['high'])}"
    return Rule(
        say.name(row["value_of"]), f"{wrong_share} {wrong} ({interval}; {say.rate(row['most'])} promised)", False
    )


def _title(curve: Risk | None, rules: Sequence[Row]) -> str:
    if curve is None:
        return "What releasing would risk is not known" if rules else NO_RISK
    every = curve.machine[-1][1]
    if curve.chosen is None:
        return f"Nothing is released; releasing every held-out score would leave {say.share(every)} wrong"
    share, wrong = curve.chosen
    stands = "keeps" if wrong <= curve.target else "does not keep"
    consequence = "would not" if every > curve.target >= wrong else f"would leave {say.share(every)}"
    promise = f"{stands} errors within {say.rate(curve.target)} ({say.share(wrong)} on held-out responses)"
    return f"Releasing {say.share(share)} {promise}; releasing all {consequence}"


def _rule(row: Row, wrong: str, released: int) -> Rule:
    scope = "all items" if row["scope"] == "all" else say.name(row["scope"])
    labels = say.plural(row["n"], "labelled response")
    if row["threshold"] is None:
        return Rule(scope, f"Nothing may be released: {row['note']}.", False)
    if not released:
        return Rule(scope, f"No score is at or below the estimated risk of {say.share(row['threshold'])}.", False)
    worth, upper = "", ""
    if row["worth"] < row["released"] - 0.5:
        worth = f", worth {say.count(round(row['worth']))} independent ones as answers of an author are alike"
    if row["upper"] is not None:
        upper = f", so with {say.rate(row['confidence'])} confidence at most {say.share(row['upper'])}"
    return Rule(
        scope,
        f"A score is released at an estimated risk up to {say.share(row['threshold'])}: {say.count(row['released'])} "
        f"of {labels}{worth}, {say.count(row['wrong'])} of them {wrong}{upper}; {against_constant(row)}.",
        True,
    )


def _risk(
    scores: pd.DataFrame, scales: Mapping[str, ScaleBounds], tolerance: float, target: float, wrong: str
) -> Risk | None:
    """Unscored responses are never covered: the curve ends before 1."""
    labelled = scores[scores["target"].notna()]
    judged = labelled[labelled["calibrated"].notna() & labelled["risk"].notna()]
    if judged.empty:
        return None
    step = judged["item_id"].map({item: bounds[2] for item, bounds in scales.items()}).astype(float)
    gap = (judged["calibrated"] - judged["target"]).abs() / step
    loss = np.asarray(gap > tolerance + 1e-9, dtype=np.float64)
    total = len(labelled)
    released = (judged["route"] == "release").to_numpy()
    return Risk(
        machine=_covered(loss, judged["risk"].to_numpy(float), total),
        oracle=_covered(loss, loss, total),
        random=float(loss.mean()),
        ends=len(judged) / total,
        chosen=(float(released.sum() / total), float(loss[released].mean())) if released.any() else None,
        target=target,
        wrong=wrong,
    )


def _covered(loss: npt.NDArray[np.float64], risk: npt.NDArray[np.float64], total: int) -> Points:
    """(coverage, share wrong) of the surest scores, thinned for drawing."""
    curve = risk_coverage(loss, -risk, total)
    keep = np.unique(np.linspace(0, len(loss) - 1, MOST_POINTS).round().astype(int))
    return tuple((float(curve.coverage[index]), float(curve.risk[index])) for index in keep)
