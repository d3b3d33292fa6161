"""Which rule makes one score of the jurors', by people's scores of the calibration split.

The standard is a mean whose weights are learned from labels, drawn towards equal voices as if by `PRIOR` labels: with
none it is the equal mean, with many a regression without negative weights. It stands unless the single juror that
agrees best, itself chosen inside the same folds, is better by more than one standard error of their difference. Asking
more of it, that folds show it to be better than that juror, was tried on recorded judges and loses: few labels cannot
show what is so, and choosing one juror by them loses most of all (data/results).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import GroupKFold

from rubricflow.tasks.core.contracts.protocols import Combine
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import cluster_sums
from rubricflow.tasks.grading.jury.combine import Rule, plain

FEWEST = 10
"""Usable labels below which none is looked at."""
FOLDS = 10
PRIOR = 30.0
"""Labels that the equal voices are worth; 10 and 100 agree a little less over recorded judges."""
CLEARLY = 1.0
"""Standard errors by which a single juror must be better than the weighted ones to be taken alone."""
TRIED: tuple[Combine, ...] = ("best", "mean", "standardised_mean", "median", "majority", "weighted")
FITTED = frozenset({"best", "weighted"})


@dataclass(frozen=True, eq=False)
class LabelledShares:
    """n responses with a person's score that all J jurors scored.

    shares: (n, J), human: (n,), of their scales; group: (n,) codes of items, those with one label together; cluster:
    (n,) authors.
    """

    shares: Floats
    human: Floats
    group: Ints
    cluster: npt.NDArray[Any]

    def take(self, rows: npt.NDArray[Any]) -> LabelledShares:
        return LabelledShares(self.shares[rows], self.human[rows], self.group[rows], self.cluster[rows])

    def only(self, jurors: Sequence[int]) -> LabelledShares:
        return LabelledShares(self.shares[:, jurors], self.human, self.group, self.cluster)


@dataclass(frozen=True, eq=False)
class Trial:
    """A rule inside folds: its agreement of all labels, then without each author in turn, (1 + authors,), NaN where
    undefined."""

    rule: Rule
    worth: Floats


def of_labels(shares: Floats, human: Floats, item: Sequence[str], cluster: Sequence[str]) -> LabelledShares:
    """Of the responses, (n, J), those that have a human score, NaN otherwise, and every juror's."""
    kept = ~(np.isnan(shares).any(axis=1) | np.isnan(human))
    _, code, size = np.unique(np.asarray(item, dtype=np.str_)[kept], return_inverse=True, return_counts=True)
    group = np.where(size[code] > 1, code, -1)
    return LabelledShares(
        shares[kept], human[kept], np.unique(group, return_inverse=True)[1], np.asarray(cluster)[kept]
    )


def trials(labels: LabelledShares, voices: Floats, common: tuple[Floats, Floats]) -> dict[Combine, Trial]:
    """Every rule tried; none with fewer than `FEWEST` labels, or labels of one author.

    voices: (J,) of sum 1, the equal weights; common: mean and standard deviation of every juror's shares over all
    responses, (J,) each.
    """
    if len(labels.human) < FEWEST or len(np.unique(labels.cluster)) < 2:
        return {}
    makers = {name: _maker(name, voices, common) for name in TRIED}
    return {name: Trial(make(labels), agreement(crossed(make, labels), labels)) for name, make in makers.items()}


def chosen(
    name: Combine, tried: dict[Combine, Trial], voices: Floats, common: tuple[Floats, Floats]
) -> tuple[Rule, str]:
    """The rule that scores are made by, and why. name: what the study asks for."""
    if name == "columns":
        # By shifts that cancel where all give a score: a severe juror that gives none takes no severity with it.
        known = common[0][~np.isnan(common[0])]
        mean = np.nan_to_num(common[0], nan=float(known.mean()) if len(known) else 0.0)
        shift = float(voices @ mean) - mean
        reason = "asked for by the study: each juror is a column of the calibration"
        return Rule("columns", voices, shift, np.ones(len(voices))), reason
    if name not in ("choose", *FITTED):
        return _maker(name, voices, common)(None), "asked for by the study"
    if not tried:
        return plain(
            "mean", voices
        ), f"fewer than {FEWEST} labels that all jurors scored: equal voices of model families"
    if name != "choose":
        return tried[name].rule, "asked for by the study"
    gap = tried["best"].worth - tried["weighted"].worth
    if np.isnan(gap[0]):
        return plain("mean", voices), "agreement is undefined for these labels: equal voices of model families"
    error = standard_error(gap)
    if gap[0] > CLEARLY * error:
        return tried["best"].rule, "better by more than a standard error than weighted jurors"
    return tried["weighted"].rule, "the standard: no single juror is better by more than a standard error"


def fold_rules(labels: LabelledShares, voices: Floats) -> list[Rule]:
    """For each label the weighted rule that was fitted without those of its fold; nothing where labels are too few."""
    if len(labels.human) < FEWEST or len(np.unique(labels.cluster)) < 2:
        return []
    rules: list[Rule] = [plain("weighted", voices)] * len(labels.human)
    for inside, outside in _folds(labels):
        rule = plain("weighted", weights(labels.take(inside), voices))
        for row in outside:
            rules[row] = rule
    return rules


def leave_out(labels: LabelledShares, voices: Floats) -> list[Floats]:
    """What the agreement of weighted jurors inside folds gains without each juror in turn, jackknifed as in `Trial`."""
    everybody = range(len(voices))

    def worth(jurors: Sequence[int]) -> Floats:
        own = labels.only(jurors)
        part = voices[jurors] / voices[jurors].sum()
        return agreement(crossed(lambda some: plain("weighted", weights(some, part)), own), own)

    whole = worth(everybody)
    return [worth([juror for juror in everybody if juror != out]) - whole for out in everybody]


def crossed(make: Callable[[LabelledShares], Rule], labels: LabelledShares) -> Floats:
    """(n,) scores of labels by a rule that was made without those of their fold."""
    scores = np.empty(len(labels.human))
    for inside, outside in _folds(labels):
        scores[outside] = make(labels.take(inside)).scores(labels.shares[outside])
    return scores


def _folds(labels: LabelledShares) -> Iterator[tuple[Ints, Ints]]:
    """Rows inside and outside of each fold; folds are cut between authors."""
    folds = GroupKFold(min(FOLDS, len(np.unique(labels.cluster))), shuffle=True, random_state=0)
    yield from folds.split(labels.shares, groups=labels.cluster)


def agreement(scores: Floats, labels: LabelledShares) -> Floats:
    """Correlation with people's scores within groups: of all labels, then without each author, (1 + authors,)."""
    machine = centred(scores, labels.group)
    human = centred(labels.human, labels.group)
    sums = cluster_sums(np.column_stack([machine * human, machine**2, human**2]), labels.cluster)
    total = sums.sum(axis=0, keepdims=True)
    product, own, others = np.vstack([total, total - sums]).T
    scale = np.sqrt(np.maximum(own * others, 0.0))
    return np.asarray(np.divide(product, scale, out=np.full(len(product), np.nan), where=scale > 1e-12))


def standard_error(jackknifed: Floats) -> float:
    """Of a figure of all rows and without each author, by the delete-one jackknife; infinite where undefined."""
    parts = jackknifed[1:][~np.isnan(jackknifed[1:])]
    return float(np.sqrt((len(parts) - 1) * parts.var())) if len(parts) > 1 else np.inf


def centred(values: Floats, group: Ints) -> Floats:
    """Values, (n,) or (n, J), less the mean of their group."""
    size = np.maximum(np.bincount(group), 1)
    columns = values.reshape(len(values), -1).T
    means = np.array([np.bincount(group, column) / size for column in columns])[:, group]
    return np.asarray((columns - means).T.reshape(values.shape))


def weights(labels: LabelledShares, voices: Floats) -> Floats:
    """(J,), >= 0, of sum 1: ridge regression of people's scores on the jurors' within groups, drawn towards the voices
    at their own best slope, each juror in units of its own spread. The voices where it finds no positive weight."""
    jurors = centred(labels.shares, labels.group)
    human = centred(labels.human, labels.group)
    equal = jurors @ voices
    slope = max(0.0, float(equal @ human) / max(float(equal @ equal), 1e-12))
    prior = slope * voices
    gram = jurors.T @ jurors + np.diag(np.maximum(PRIOR * (jurors**2).mean(axis=0), 1e-9))
    found = np.maximum(prior + np.linalg.solve(gram, jurors.T @ (human - jurors @ prior)), 0.0)
    total = float(found.sum())
    return found / total if total > 0 else voices


def errors(labels: LabelledShares) -> Floats:
    """(J, J) correlations of the jurors' errors: of what is left of people's scores when a juror's are put onto their
    scale, within groups. NaN for a juror whose errors do not vary."""
    jurors = centred(labels.shares, labels.group)
    human = centred(labels.human, labels.group)
    square = (jurors**2).sum(axis=0)
    slope = np.divide(jurors.T @ human, square, out=np.zeros(len(square)), where=square > 1e-12)
    # On the human scale a shrunken score hides what jurors say alike: each is stretched to people's spread.
    spread = np.sqrt(np.divide((human**2).sum(), square, out=np.zeros(len(square)), where=square > 1e-12))
    left = np.where(slope > 0, spread, 0.0) * jurors - human[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.corrcoef(left.T)
    return np.asarray(found)


def _maker(name: Combine, voices: Floats, common: tuple[Floats, Floats]) -> Callable[[Any], Rule]:
    """What makes a rule of labels; of none, where it needs none."""
    if name == "best":
        return lambda labels: plain("best", np.eye(len(voices))[int(np.argmax(_alone(labels)))])
    if name == "weighted":
        return lambda labels: plain("weighted", weights(labels, voices))
    if name == "standardised_mean":
        mean, spread = common
        usual = float(np.nanmean(spread[spread > 0])) if (spread > 0).any() else 1.0
        factor = np.where(spread > 0, usual / np.where(spread > 0, spread, 1.0), 1.0)
        rule = Rule(name, voices, float(np.nanmean(mean)) - factor * np.nan_to_num(mean), factor)
        return lambda _: rule
    rule = plain(name, voices)
    return lambda _: rule


def _alone(labels: LabelledShares) -> list[float]:
    """Each juror's own agreement; -1 where it is undefined."""
    found = [agreement(labels.shares[:, juror], labels)[0] for juror in range(labels.shares.shape[1])]
    return [-1.0 if np.isnan(value) else float(value) for value in found]
