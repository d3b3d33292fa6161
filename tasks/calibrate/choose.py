"""Which method maps the scores: the one asked for or, compared inside folds, the simplest of the best."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from tasks.calibrate.curve import Refusal
from tasks.calibrate.folds import CrossFitted, cross_fit, folds
from tasks.calibrate.labels import LabelledRows
from tasks.calibrate.methods import COMPLEXITY
from tasks.contracts.settings.study import Calibration as Plan
from tasks.contracts.tables.calibration import CalibrationMethod
from tasks.stats.arrays import Floats, Ints
from tasks.stats.bootstrap import cluster_sums
from tasks.stats.pair_sums import pair_terms, statistics_of_totals

FEWEST = 10
"""Usable labels below which no method is tried and the raw score is kept."""
NAMES: dict[Literal["qwk", "rmse"], str] = {"qwk": "QWK", "rmse": "RMSE"}
UNIT = (0.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class MethodTrial:
    """One method tried inside folds; fields that table `candidates` has too mean the same there.

    tried: the method in and over the folds, None where it could not be tried; worth: what the choice goes by, made so
    that more is better: of all labels, then without each author in turn, (1 + authors,), NaN where undefined.
    """

    method: CalibrationMethod
    note: str | None = None
    tried: CrossFitted | None = None
    worth: Floats = field(default_factory=lambda: np.array([np.nan]))
    qwk: float | None = None
    rmse: float | None = None
    sd_ratio: float | None = None
    distinct: int = 0
    behind: float | None = None
    behind_se: float | None = None

    def row(self, scope: str, n: int, folds: int, chosen: bool) -> dict[str, object]:
        """Its row of table `candidates`."""
        names = ("method", "note", "qwk", "rmse", "sd_ratio", "distinct", "behind", "behind_se")
        return {name: getattr(self, name) for name in names} | {
            "scope": scope,
            "n": n,
            "folds": folds,
            "chosen": chosen,
        }


class MethodChoice(NamedTuple):
    """The method chosen for some labels.

    reason: why, in plain words; tried: the method in and over the folds, None where there were too few labels to try;
    fold: (n,) fold of every label, empty then; candidates: all methods, the simplest first.
    """

    method: CalibrationMethod
    reason: str
    tried: CrossFitted | None
    fold: Ints
    candidates: list[MethodTrial]

    @property
    def folds(self) -> int:
        """Number of folds; 0 where there were too few labels to try."""
        return int(self.fold.max()) + 1 if len(self.fold) else 0


def decide(labels: LabelledRows, plan: Plan) -> MethodChoice:
    """Compare the methods inside folds of the labels, and choose. Ridge stands among them only where it is asked for.

    A simpler method stands unless a more complex one is better by more than one standard error of their difference, by
    the delete-one-author jackknife. A method by name is taken where the labels allow its fit, in every fold too. With
    fewer than ten labels, or labels of one author only, the raw score is kept.
    """
    lack = _lack(labels)
    methods: list[CalibrationMethod] = [*COMPLEXITY]
    if plan.method == "ridge":
        methods.append("ridge")
    if lack:
        untried = [MethodTrial(method, note=lack) for method in methods]
        return MethodChoice("identity", f"{lack}: the raw score is kept", None, np.empty(0, dtype=np.int64), untried)
    fold = folds(labels.cluster)
    candidates = _against_best([_try(method, labels, fold, plan) for method in methods])
    method, reason = _choice(candidates, plan, int(fold.max()) + 1)
    tried = next(one.tried for one in candidates if one.method == method)
    return MethodChoice(method, reason, tried, fold, candidates)


def _lack(labels: LabelledRows) -> str | None:
    """What labels lack for trying anything on them."""
    if len(labels) < FEWEST:
        return f"{len(labels)} usable labels, fewer than {FEWEST}"
    if len(np.unique(labels.cluster)) < 2:
        return "all usable labels are of one author, none is left to try a fit on"
    return None


def _try(method: CalibrationMethod, labels: LabelledRows, fold: Ints, plan: Plan) -> MethodTrial:
    """The figures of a method inside folds.

    QWK is that of the levels as shares of their scale: the usual one where all items have one scale, and defined where
    they have not. RMSE is in score units or, where scales differ, in shares.
    """
    try:
        tried = cross_fit(method, labels, fold, plan.alpha)
    except Refusal as refusal:
        return MethodTrial(method, note=str(refusal))
    rounded = labels.levels(tried.aligned) / labels.top
    qwk = _jackknifed("qwk_continuous", labels.levels(labels.human) / labels.top, rounded, labels)
    rmse = _jackknifed("rmse", labels.shares(labels.human), labels.shares(tried.aligned), labels) * labels.span
    worth = qwk if plan.choose_by == "qwk" else -rmse
    spread = float(labels.human.std())
    return MethodTrial(
        method,
        note=f"{NAMES[plan.choose_by]} is undefined" if np.isnan(worth[0]) else None,
        tried=tried,
        worth=worth,
        qwk=None if np.isnan(qwk[0]) else float(qwk[0]),
        rmse=float(rmse[0]),
        sd_ratio=float(tried.aligned.std()) / spread if spread > 0 else None,
        distinct=len(np.unique(rounded)),
    )


def _jackknifed(name: str, human: Floats, machine: Floats, labels: LabelledRows) -> Floats:
    """A statistic on all rows, then without each author, shape (1 + authors,)."""
    sums = cluster_sums(pair_terms(human, machine, UNIT), labels.cluster)
    whole = sums.sum(axis=0, keepdims=True)
    return statistics_of_totals(np.vstack([whole, whole - sums]))[name]


def _against_best(candidates: list[MethodTrial]) -> list[MethodTrial]:
    """The candidates with their distance from the best one and its standard error, where both are defined."""
    worth = [one.worth[0] for one in candidates]
    if np.isnan(worth).all():
        return candidates
    best = candidates[int(np.nanargmax(worth))]
    gaps = [best.worth - one.worth for one in candidates]
    return [
        one if np.isnan(gap[0]) else replace(one, behind=float(gap[0]), behind_se=_jackknife_se(gap[1:]))
        for one, gap in zip(candidates, gaps, strict=True)
    ]


def _jackknife_se(without: Floats) -> float | None:
    """Standard error of a statistic from its values without each cluster (Tukey 1958), undefined ones left out."""
    known = without[~np.isnan(without)]
    if len(known) < 2:
        return None
    return float(np.sqrt((len(known) - 1) / len(known) * np.sum((known - known.mean()) ** 2)))


def _choice(candidates: list[MethodTrial], plan: Plan, folds: int) -> tuple[CalibrationMethod, str]:
    """The method to take and why."""
    if plan.method != "choose":
        return _named(next(one for one in candidates if one.method == plan.method))
    name = NAMES[plan.choose_by]
    behind = {one.method: one for one in candidates if one.behind is not None}
    if not behind:
        return "identity", f"{name} is undefined for every method: the raw score is kept"
    near = [one for one in behind.values() if _gap(one) <= (one.behind_se or 0.0)]
    taken = min(near, key=lambda one: (COMPLEXITY[one.method], _gap(one)))
    best = next(one for one in behind.values() if one.behind == 0)
    if taken is best:
        return taken.method, f"best {name} inside {folds} folds: {_figure(best, plan):.3f}"
    return taken.method, (
        f"{name} {_figure(taken, plan):.3f} inside {folds} folds; the best, {best.method} with "
        f"{_figure(best, plan):.3f}, is no simpler and within one standard error ({taken.behind_se:.3f})"
    )


def _named(asked: MethodTrial) -> tuple[CalibrationMethod, str]:
    if asked.tried is None:
        return "identity", f"the study asks for {asked.method}, but {asked.note}: the raw score is kept"
    return asked.method, "asked for by the study"


def _figure(one: MethodTrial, plan: Plan) -> float:
    return abs(float(one.worth[0])) if plan.choose_by == "rmse" else float(one.worth[0])


def _gap(one: MethodTrial) -> float:
    return np.inf if one.behind is None else one.behind
