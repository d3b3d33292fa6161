"""Which mapping is taken, and how far: the one asked for, or what the labels show inside folds.

Of the mappings the standard one stands unless another is clearly better. It is taken by a weight, and the raw score has
the rest: few labels, and a judge who agrees with people anyway, leave the raw score. Of several items pooled the best
mapping stands, and only the part of its gain within items that is not noise counts. Of one item a bar, with the mapping
taken whole, was tried and loses more (data/results, tests/studies/never_worse.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
from scipy.special import expit

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.settings.study import Calibration as Plan
from rubricflow.tasks.core.contracts.tables.calibration import CalibrationMethod
from rubricflow.tasks.core.stats.arrays import Floats, Ints, defined
from rubricflow.tasks.core.stats.bootstrap import cluster_sums, pair_terms, statistics_of_totals
from rubricflow.tasks.grading.calibrate.alignment import Refusal
from rubricflow.tasks.grading.calibrate.methods import STANDARD, CrossFitted, cross_fit, folds, towards_raw
from rubricflow.tasks.grading.calibrate.rows import LabelledRows
from rubricflow.tasks.grading.calibrate.stack import Stack

FEWEST = 10
"""Usable labels below which no method is tried and the raw score is kept."""
CLEARLY = 1.0
"""Standard errors by which another mapping must be better than the standard one."""
ODDS = 0.5
"""Odds of a mapping against the raw score before any label."""
TRUST = 0.25
"""Weight of a label in these odds: half of what it has in those of two regressions with normal errors, since figures
inside folds depend on one another."""
STEPS = 4
"""A mapping is taken by so many parts or fewer: as little as the choice does the weight then hang on a single label."""
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
    qwk_within: float | None = None
    rmse: float | None = None
    sd_ratio: float | None = None
    distinct: int = 0
    behind: float | None = None
    behind_se: float | None = None

    @property
    def usable(self) -> bool:
        """Whether it was fitted in every fold, and its worth is known."""
        return self.tried is not None and not np.isnan(self.worth[0])

    def row(self, scope: str, n: int, folds: int, chosen: bool) -> dict[str, object]:
        names = ("method", "note", "qwk", "qwk_within", "rmse", "sd_ratio", "distinct", "behind", "behind_se")
        figures = {name: getattr(self, name) for name in names}
        return figures | {"scope": scope, "n": n, "folds": folds, "chosen": chosen}


class MethodChoice(NamedTuple):
    """The method chosen for some labels.

    reason: why, in plain words; tried: the method in and over the folds, mixed with the raw score by its weight, None
    where there were too few labels to try; fold: (n,) fold of every label, empty then; candidates: all methods, each by
    itself, in the order of `STANDARD`.
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

    @property
    def text_only(self) -> tuple[Stack | None, ...]:
        """The baseline without the judge, fitted to all, then without each fold; None where it could not be fitted."""
        tried = next((trial.tried for trial in self.candidates if trial.method == "text_only"), None)
        fits = (tried.mapping, *tried.parts) if tried else (None,) * (1 + self.folds)
        return tuple(fit if isinstance(fit, Stack) else None for fit in fits)


def decide(labels: LabelledRows, plan: Plan, chosen: LabelledRows | None = None) -> MethodChoice:
    """Compare the methods inside folds of the labels, and choose. Ridge stands among them only where it is asked for,
    and `text_only`, the baseline of all others, is taken only by name.

    The first of `STANDARD` that can be fitted is taken unless another is better by more than one standard error of
    their difference, by the delete-one-author jackknife; the score lies between it and the raw one by `weight_of`. Of
    pooled items what counts is agreement within items: the best mapping there is taken, its weight times 1 less the
    square of a standard error over its gain on the raw score (James and Stein 1961). A method by name is taken whole
    where the labels allow its fit, in every fold too. With fewer than ten labels, or labels of one author only, the raw
    score is kept; ContractError where the study's signals leave that out. chosen: labels that teach, but have no part
    in any figure.
    """
    methods: list[CalibrationMethod] = [*STANDARD, "text_only"]
    if plan.method == "ridge":
        methods.append("ridge")
    lack = None
    if len(labels) < FEWEST:
        lack = f"{len(labels)} usable labels, fewer than {FEWEST}"
    elif len(np.unique(labels.cluster)) < 2:
        lack = "all usable labels are of one author, none is left to try a fit on"
    if lack:
        untried = [MethodTrial(method, note=lack) for method in methods]
        _raw_is_kept(labels, lack)
        return MethodChoice("identity", f"{lack}: the raw score is kept", None, np.empty(0, dtype=np.int64), untried)
    fold = folds(labels.cluster)
    candidates = [_try(method, labels, fold, plan, chosen) for method in methods]
    standard = next((trial for trial in candidates if trial.usable and trial.method in STANDARD), None)
    # How far each is behind the standard one, with the error of the jackknife (Tukey 1958), undefined values left out.
    for place, trial in enumerate(candidates):
        gap = (standard.worth if standard else np.nan) - trial.worth
        if not np.isnan(gap[0]):
            candidates[place] = replace(trial, behind=float(gap[0]), behind_se=_standard_error(gap))
    method, reason = _choice(candidates, standard, plan, labels)
    trials = {trial.method: trial for trial in candidates}
    tried = trials[method].tried
    raw = trials["identity"]
    if tried is None or plan.method != "choose" or method == "identity":
        return MethodChoice(method, reason, tried, fold, candidates)
    figure = f"{NAMES[plan.choose_by]} {_figure(trials[method], plan):.3f} inside {fold.max() + 1} folds"
    if not raw.usable:
        return MethodChoice(method, f"{reason}: {figure}", tried, fold, candidates)
    figures = f"{figure}, the raw score {_figure(raw, plan):.3f}"
    # Errors over pooled items get smaller where every score moves to its item's mean, which tells no two responses of
    # an item apart: there agreement within items has to be better, too, and of few labels much of a gain is noise.
    gain = trials[method].worth - raw.worth
    weight = weight_of(tried.aligned, labels)
    if len(labels.items) > 1:
        noise = (_standard_error(gain) or 0.0) / gain[0] if gain[0] > 0 else 1.0
        weight = round(STEPS * weight * max(0.0, 1 - noise**2)) / STEPS
    if weight == 0:
        kept = f"the raw score is kept, which {len(labels)} labels do not show {method} to be better than: {figures}"
        return MethodChoice("identity", kept, raw.tried, fold, candidates)
    part = "" if weight == 1 else f", {weight:g} of the way from the raw score"
    return MethodChoice(method, f"{reason}{part}: {figures}", towards_raw(tried, labels, weight), fold, candidates)


def weight_of(mapped: Floats, labels: LabelledRows) -> float:
    """Weight of what a mapping gave labels that it had not seen, (n,) on the scale fitted on, against their raw scores:
    0 .. 1 in fourths.

    It is the odds of the mapping. Misfit is 1 - QWK and the mean squared error of the levels, in shares of the scale,
    and the evidence is the mean log ratio of raw to mapped misfit, counted for each author. No misfit is taken for less
    than one author in n, or one rounding in n, may hide.
    """
    n = len(np.unique(labels.cluster))
    human = labels.levels(labels.human) / labels.top
    misfits = []
    for scores in (labels.raw, mapped):
        qwk, within, _ = _figures(scores, labels)
        agreement = qwk[0] if np.isnan(within[0]) else within[0]
        squares = (human - labels.levels(scores) / labels.top) ** 2 + 1 / (12 * n * labels.top**2)
        misfits.append([1 - agreement + 1 / n, float(squares.mean())])
    gain = np.log(misfits[0]) - np.log(misfits[1])
    evidence = np.nanmean(gain)  # without a QWK, the errors alone
    return round(STEPS * float(expit(np.log(ODDS) + TRUST * n * evidence))) / STEPS


def _raw_is_kept(labels: LabelledRows, why: str) -> None:
    """ContractError where a study's signals leave the judge's score out and there are labels: raw scores held against
    them would pass for a control's."""
    if len(labels) and not labels.has_score:
        raise ContractError(
            f"items {', '.join(labels.items[:3])}: the study's signals leave the judge's score out, and nothing else "
            f"can be mapped ({why}); give more labels, or signals with the score"
        )


def _try(
    method: CalibrationMethod, labels: LabelledRows, fold: Ints, plan: Plan, chosen: LabelledRows | None
) -> MethodTrial:
    """The figures of a method inside folds.

    QWK is that of the levels as shares of their scale: the usual one where all items have one scale, and defined where
    they have not. Within items it is twice the covariance within items over both variances within items and the squared
    differences of the items' means, summed over items. RMSE is in score units or, where scales differ, in shares.
    """
    try:
        tried = cross_fit(method, labels, fold, plan.alpha, chosen)
    except Refusal as refusal:
        return MethodTrial(method, note=str(refusal))
    human = labels.levels(labels.human)
    level = labels.levels(tried.aligned)
    if method != "identity" and (flat := _one_score_each(labels, human, level)):
        return MethodTrial(method, note=flat)
    qwk, within, rmse = _figures(tried.aligned, labels)
    agreement = qwk if np.isnan(within[0]) else within
    worth = agreement if plan.choose_by == "qwk" else -rmse
    spread = float(labels.human.std())
    return MethodTrial(
        method,
        note=f"{NAMES[plan.choose_by]} is undefined" if np.isnan(worth[0]) else None,
        tried=tried,
        worth=worth,
        qwk=defined(qwk[0]),
        qwk_within=defined(within[0]),
        rmse=float(rmse[0]),
        sd_ratio=float(tried.aligned.std()) / spread if spread > 0 else None,
        distinct=len(np.unique(level / labels.top)),
    )


def _figures(scores: Floats, labels: LabelledRows) -> tuple[Floats, Floats, Floats]:
    """QWK, that within items and RMSE, as `_try` has them: of all scores, (n,) on the scale fitted on, then without
    each author, (1 + authors,), NaN where undefined, as within a single item."""
    share = np.array([labels.levels(values) / labels.top for values in (labels.human, scores)])
    qwk = statistics_of_totals(_jackknifed(pair_terms(share[0], share[1], UNIT), labels))["qwk_continuous"]
    errors = pair_terms(labels.shares(labels.human), labels.shares(scores), UNIT)
    rmse = statistics_of_totals(_jackknifed(errors, labels))["rmse"] * labels.span
    if len(labels.items) < 2:
        return qwk, qwk * np.nan, rmse
    size = np.bincount(labels.item)[labels.item]
    mean = np.array([np.bincount(labels.item, weights=values)[labels.item] / size for values in share])
    (human_gap, machine_gap), apart = share - mean, mean[0] - mean[1]
    products = np.array([2 * human_gap * machine_gap, human_gap**2 + machine_gap**2])
    # A row that is left out moves its item's means, too; without that few labels of an item look surer than they are.
    left = np.maximum(size - 1, 1)
    lost = products * size / left
    lost[1] += size * apart**2 - (size - 1) * (apart - (human_gap - machine_gap) / left) ** 2
    products[1] += apart**2
    top, bottom = (_jackknifed(lost.T, labels) + (products - lost).sum(axis=1)).T
    return qwk, np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0), rmse


def _one_score_each(labels: LabelledRows, human: Floats, level: Floats) -> str | None:
    """Why scores that do not tell responses of an item apart are refused: in every item where people and the judge do,
    they are the same."""
    by_item = [labels.item == index for index in np.unique(labels.item)]
    telling = [rows for rows in by_item if np.ptp(human[rows]) > 0 and np.ptp(labels.raw[rows]) > 0]
    if not telling or any(np.ptp(level[rows]) > 0 for rows in telling):
        return None
    return "it gives all responses of an item one score, where people and the judge tell them apart"


def _jackknifed(terms: Floats, labels: LabelledRows) -> Floats:
    """Totals of terms, (n, t), over all rows, then without each author, (1 + authors, t)."""
    sums = cluster_sums(terms, labels.cluster)
    total = sums.sum(axis=0, keepdims=True)
    return np.vstack([total, total - sums])


def _standard_error(jackknifed: Floats) -> float | None:
    """Of a figure, (1 + authors,): of all rows, then without each author; None where fewer than two are defined."""
    without = jackknifed[1:][~np.isnan(jackknifed[1:])]
    if len(without) < 2:
        return None
    return float(np.sqrt(len(without) - 1) * without.std())


def _choice(
    candidates: list[MethodTrial], standard: MethodTrial | None, plan: Plan, labels: LabelledRows
) -> tuple[CalibrationMethod, str]:
    """The method asked for, or of the mappings the one to take, and why; `identity` where there is no other."""
    if plan.method != "choose":
        asked = next(trial for trial in candidates if trial.method == plan.method)
        if asked.tried is not None:
            return asked.method, "asked for by the study"
        why = f"the study asks for {asked.method}, but {asked.note}"
        _raw_is_kept(labels, why)
        return "identity", f"{why}: the raw score is kept"
    name = NAMES[plan.choose_by]
    if standard is None:
        _raw_is_kept(labels, f"{name} is undefined for every method")
        return "identity", f"{name} is undefined for every method: the raw score is kept"
    # Beyond noise; of pooled items, what noise may be in a gain is taken off it by `decide`.
    clearly = CLEARLY * (len(labels.items) == 1)
    mapped = (trial for trial in candidates if trial.method in STANDARD[:-1])
    better = [trial for trial in mapped if -(trial.behind or 0.0) > clearly * (trial.behind_se or 0.0)]
    if not better:
        return standard.method, "the standard mapping" if standard.method != "identity" else "no mapping can be fitted"
    best = max(better, key=lambda trial: float(trial.worth[0]))
    far = " by more than a standard error" if clearly else ""
    return best.method, f"better{far} than the standard mapping, {standard.method} with {_figure(standard, plan):.3f}"


def _figure(trial: MethodTrial, plan: Plan) -> float:
    return abs(float(trial.worth[0])) if plan.choose_by == "rmse" else float(trial.worth[0])
