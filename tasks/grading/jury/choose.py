"""Which rule makes one score of the jurors', by people's scores of the calibration split.

The standard is a mean whose weights are learned from labels, drawn as if by `PRIOR` labels towards those that agreement
among the jurors tells: with fewer than `FEWEST` it is these, with many a regression without negative weights. Its
scores are spread as a juror's are, where those of a mean lie closer together. It stands unless the single juror that
agrees best, itself chosen inside the same folds, is better by more than one standard error of their difference. Asking
more of it, that folds show it to be better than that juror, was tried on recorded judges and loses: few labels cannot
show what is so, and choosing one juror by them loses most of all (data/results).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold

from rubricflow.tasks.core.contracts.protocols import Combine
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import cluster_sums
from rubricflow.tasks.grading.jury.combine import Rule, plain

FEWEST = 10
"""Usable labels below which none is looked at."""
FOLDS = 10
PRIOR = 30.0
"""Labels that agreement among the jurors is worth; 10 and 100 agree a little less over recorded judges."""
CHOICES = 0.01
"""Of the regression of choices: the inverse of its penalty; .0003 and .1 choose a little worse on RewardBench 2."""
OWN = 0.3
"""Variance that each juror's score is taken to have beyond what responses show, in its own: it keeps weights apart from
one another no further than responses can tell (tests/studies/juries.py)."""
AGREES = 0.15
"""Correlation with the jurors of other families below which a juror has no part without labels."""
ROUNDS = 4
"""Times that jurors are held against one another, each time weighted by the time before; more change nothing."""
CLEARLY = 1.0
"""Standard errors by which a single juror must be better than the weighted ones to be taken alone; 2 agree more over
recorded judges, and less where simulated ones differ much."""
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

    @property
    def suffice(self) -> bool:
        """Whether anything is learned from them: of more than one author, and not fewer than `FEWEST`."""
        return len(self.human) >= FEWEST and len(np.unique(self.cluster)) > 1

    def take(self, rows: npt.NDArray[Any]) -> LabelledShares:
        return LabelledShares(self.shares[rows], self.human[rows], self.group[rows], self.cluster[rows])

    def only(self, jurors: Sequence[int]) -> LabelledShares:
        return LabelledShares(self.shares[:, jurors], self.human, self.group, self.cluster)


class Unlabelled(NamedTuple):
    """What all responses tell of J jurors without a label.

    voices: (J,) of sum 1, the equal weights; agreed: the same by agreement (`by_agreement`); mean: (J,), covariance:
    (J, J), of their shares, 0 where undefined.
    """

    voices: Floats
    agreed: Floats
    mean: Floats
    covariance: Floats

    def stretched(self, weights: Floats) -> Rule:
        """The weighted mean, spread around its own mean as a juror is around its; by no more than is lost where jurors
        have nothing in common."""
        spread = weights @ np.sqrt(np.diag(self.covariance))
        variance = max(float(weights @ self.covariance @ weights), 1e-12)
        factor = max(1.0, float(np.sqrt(min(spread**2 / variance, 1 / (weights @ weights)))))
        each = np.ones(len(weights))
        return Rule("weighted", weights, (1 - factor) * (self.mean @ weights) * each, factor * each)


@dataclass(frozen=True, eq=False)
class Trial:
    """A rule inside folds: its agreement of all labels, then without each author in turn, (1 + authors,), NaN where
    undefined."""

    rule: Rule
    worth: Floats


def of_labels(shares: Floats, human: Floats, item: Sequence[str], cluster: Sequence[str]) -> LabelledShares:
    """Of the responses, (n, J), those that have a human score, NaN otherwise, and every juror's."""
    kept = ~(np.isnan(shares).any(axis=1) | np.isnan(human))
    group = pd.factorize(_groups(np.asarray(item)[kept]))[0]
    return LabelledShares(shares[kept], human[kept], group, np.asarray(cluster)[kept])


def _groups(item: ArrayLike) -> pd.Series[str]:
    """Items by themselves, those with one response together."""
    items = pd.Series(item, dtype=str)
    return items.where(items.duplicated(keep=False), "")


def unlabelled(shares: Floats, item: Sequence[str], families: Sequence[str], voices: Floats) -> Unlabelled:
    """shares: (n, J), NaN where a juror gave none; item: (n,); families: of the jurors; voices: (J,) of sum 1."""
    table = pd.DataFrame(shares)
    alike = (table - table.groupby(_groups(item)).transform("mean")).corr(min_periods=FEWEST).fillna(0.0)
    mean, covariance = table.mean(), table.cov(ddof=0).fillna(0.0).to_numpy()
    agreed = by_agreement(alike.to_numpy(), families, voices)
    return Unlabelled(voices, agreed, np.nan_to_num(mean.fillna(mean.mean())), covariance)


def by_agreement(alike: Floats, families: Sequence[str], voices: Floats) -> Floats:
    """(J,), >= 0, of sum 1: weights of jurors by their correlations, (J, J), 0 where undefined; the voices where no
    juror goes with others.

    What jurors of other families say, each weighted by the square of its own such correlation, stands for the truth;
    where no families agree, or there is one, what any other jurors say. The weights are those of a ridge regression of
    it on the jurors, so that jurors that say the same share what one of them would have.
    """
    family = np.equal.outer(np.asarray(families), np.asarray(families))
    goes = np.zeros(len(voices))
    for one in (family, np.eye(len(voices), dtype=np.bool_)):
        trusted = voices
        for _ in range(ROUNDS):
            others = np.where(one, 0.0, trusted)
            spread = np.sqrt(np.maximum(((others @ alike) * others).sum(axis=1), 1e-12))
            goes = (others * alike).sum(axis=1) / spread
            goes[goes < AGREES] = 0.0
            trusted = voices * goes**2 / max(voices @ goes**2, 1e-12)
        if goes.any():
            break
    within = alike * np.outer(goes > 0, goes > 0) + OWN * np.eye(len(voices))
    found = np.maximum(np.linalg.solve(within, goes), 0.0)
    return found / found.sum() if found.any() else voices


def trials(labels: LabelledShares, known: Unlabelled) -> dict[Combine, Trial]:
    """Every rule tried; none with fewer than `FEWEST` labels, or labels of one author."""
    if not labels.suffice:
        return {}
    makers = {name: _maker(name, known) for name in TRIED}
    return {name: Trial(make(labels), agreement(crossed(make, labels), labels)) for name, make in makers.items()}


def chosen(name: Combine, tried: dict[Combine, Trial], known: Unlabelled) -> tuple[Rule, str]:
    """The rule that scores are made by, and why. name: what the study asks for."""
    if name == "columns":
        # By shifts that cancel where all give a score: a severe juror that gives none takes no severity with it.
        shift = known.voices @ known.mean - known.mean
        reason = "asked for by the study: each juror is a column of the calibration"
        return Rule("columns", known.voices, shift, np.ones(len(shift))), reason
    if name not in ("choose", *FITTED):
        return _maker(name, known)(None), "asked for by the study"
    if not tried:
        few = f"fewer than {FEWEST} labels that all jurors scored: weights by how jurors of different families agree"
        return known.stretched(known.agreed), few
    if name != "choose":
        return tried[name].rule, "asked for by the study"
    gap = tried["best"].worth - tried["weighted"].worth
    if np.isnan(gap[0]):
        undefined = "agreement is undefined for these labels: weights by how jurors of different families agree"
        return known.stretched(known.agreed), undefined
    error = standard_error(gap)
    if gap[0] > CLEARLY * error:
        return tried["best"].rule, "better by more than a standard error than weighted jurors"
    return tried["weighted"].rule, "the standard: no single juror is better by more than a standard error"


def fold_rules(labels: LabelledShares, known: Unlabelled) -> list[Rule]:
    """For each label the weighted rule that was fitted without those of its fold; nothing where labels are too few."""
    if not labels.suffice:
        return []
    rules: list[Rule] = [plain("weighted", known.voices)] * len(labels.human)
    for inside, outside in _folds(labels):
        rule = known.stretched(weights(labels.take(inside), known.agreed))
        for row in outside:
            rules[row] = rule
    return rules


def leave_out(labels: LabelledShares, voices: Floats) -> list[Floats]:
    """What the agreement of weighted jurors inside folds gains without each juror in turn, jackknifed as in `Trial`."""
    everybody = range(len(voices))

    def worth(jurors: Sequence[int]) -> Floats:
        own, part = labels.only(jurors), voices[jurors] / (voices[jurors].sum() or 1.0)
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
    """Correlation with people's scores within groups: of all labels, then without each author, (1 + authors,). Where
    people choose one response of each group, of ranks: the share of the others that score lower, less that which score
    higher."""
    chosen_ones, others = choices(labels)
    if len(others):
        above = np.sign(np.round(scores[chosen_ones] - scores[others], 9))
        columns, cluster = np.column_stack([above, np.ones((len(above), 2))]), labels.cluster[others]
    else:
        machine, human = centred(scores, labels.group), centred(labels.human, labels.group)
        columns, cluster = np.column_stack([machine * human, machine**2, human**2]), labels.cluster
    sums = cluster_sums(columns, cluster)
    total = sums.sum(axis=0, keepdims=True)
    product, own, theirs = np.vstack([total, total - sums]).T
    scale = np.sqrt(np.maximum(own * theirs, 0.0))
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
    """(J,), >= 0, of sum 1: `ridge`; where people choose one response of each group, as the best of several, by a
    logistic regression of what they choose. The voices where it finds no positive weight."""
    chosen_ones, others = choices(labels)
    if not len(others):
        return ridge(labels, voices)
    above = labels.shares[chosen_ones] - labels.shares[others]
    spread = np.sqrt(np.maximum((above**2).mean(axis=0), 1e-9))
    both, won = np.vstack([above, -above]) / spread, np.repeat([1, 0], len(above))
    model = LogisticRegression(C=CHOICES, fit_intercept=False).fit(both, won)
    found = np.maximum(model.coef_[0] / spread, 0.0)
    return found / found.sum() if found.any() else voices


def ridge(labels: LabelledShares, voices: Floats) -> Floats:
    """Ridge regression of people's scores on the jurors' within groups, drawn towards the voices at their own best
    slope, each juror in units of its own spread. The voices where it finds no positive weight."""
    jurors, human = centred(labels.shares, labels.group), centred(labels.human, labels.group)
    equal = jurors @ voices
    slope = max(0.0, float(equal @ human) / max(float(equal @ equal), 1e-12))
    prior = slope * voices
    gram = jurors.T @ jurors + np.diag(np.maximum(PRIOR * (jurors**2).mean(axis=0), 1e-9))
    found = np.maximum(prior + np.linalg.solve(gram, jurors.T @ (human - jurors @ prior)), 0.0)
    return found / found.sum() if found.any() else voices


def choices(labels: LabelledShares) -> tuple[Ints, Ints]:
    """(m,) and (m,) rows of the response that people choose of a group, and of each other of it; none where people say
    more than that."""
    best = centred(labels.human, labels.group) > 0
    if len(np.unique(labels.human)) > 2 or np.bincount(labels.group, best).max(initial=0) > 1:
        best[:] = False
    place = np.full(len(best), -1)
    place[labels.group[best]] = np.flatnonzero(best)
    others = np.flatnonzero(~best & (place[labels.group] >= 0))
    return place[labels.group[others]], others


def errors(labels: LabelledShares) -> Floats:
    """(J, J) correlations of the jurors' errors: of what is left of people's scores when a juror's are put onto their
    scale, within groups. NaN for a juror whose errors do not vary."""
    every = centred(np.column_stack([labels.shares, labels.human]), labels.group)
    size = np.sqrt((every**2).sum(axis=0))
    jurors, human = np.split(np.divide(every, size, out=np.zeros_like(every), where=size > 1e-12), [-1], axis=1)
    # On the human scale a shrunken score hides what jurors say alike: each is stretched to people's spread.
    left = jurors * (jurors.T @ human > 0).T - human
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.corrcoef(left.T))


def _maker(name: Combine, known: Unlabelled) -> Callable[[Any], Rule]:
    """What makes a rule of labels; of none, where it needs none."""
    if name == "best":
        return lambda labels: plain("best", np.eye(len(known.voices))[int(np.argmax(_alone(labels)))])
    if name == "weighted":
        return lambda labels: known.stretched(weights(labels, known.agreed))
    if name == "standardised_mean":
        spread = np.sqrt(np.diag(known.covariance))
        usual = spread.sum() / max(1, np.count_nonzero(spread))
        factor = np.divide(usual, spread, out=np.ones(len(spread)), where=spread > 0)
        rule = Rule(name, known.voices, known.mean.mean() - factor * known.mean, factor)
        return lambda _: rule
    rule = plain(name, known.voices)
    return lambda _: rule


def _alone(labels: LabelledShares) -> list[float]:
    """Each juror's own agreement; -1 where it is undefined."""
    found = [agreement(labels.shares[:, juror], labels)[0] for juror in range(labels.shares.shape[1])]
    return [-1.0 if np.isnan(value) else float(value) for value in found]
