"""Arms of judged answers, and means of a judge's scores corrected by people's labels on some of them, by slice:
prediction-powered, tuned, clustered.

The mean by labels alone is true and wide, that by the judge alone narrow and biased. The corrected one adds to the mean
label λ (mean of all scores - mean of the labelled ones) (Angelopoulos et al. 2023; with λ tuned Angelopoulos, Duchi and
Zrnic 2023, the regression estimator of two-phase sampling). All is a sum of influences: what each cluster of cases does
to the estimate. λ makes their squares least, for one mean or for the difference of two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, inf, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.optimize import nnls
from scipy.stats import t

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.stats.arrays import Floats

CLASS_SIZE = 10
"""Answers to a case from which on cases are parts that stay the same, and answers what was sampled."""


def together(logs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The verdicts of several logs, with the log's name in `log`. An answer_id that stands for other words in another
    log becomes `<answer_id>:<log>`, with the log as its subject, so that labels say which they mean."""
    rows = pd.concat([frame.assign(log=name) for name, frame in logs.items()], ignore_index=True)
    texts = rows.dropna(subset=["answer"]).groupby("answer_id")["answer"].nunique()
    unlike = rows["answer_id"].isin(texts.index[texts > 1])
    rows.loc[unlike, "answer_id"] = rows.loc[unlike, "answer_id"] + ":" + rows.loc[unlike, "log"]
    rows.loc[unlike, "subject"] = rows.loc[unlike, "log"]
    return rows


def mean_rows(verdicts: pd.DataFrame, labels: pd.DataFrame) -> list[Record]:
    """Rows as of `means`: of each arm, and of its difference from the first, over all and by criterion and group.

    verdicts: of `together`; arms are the logs, or the subjects of a single log that has several. labels: answer_id,
    criterion, score, a row for each rater, perhaps `probability` with which an answer was drawn, and `split`: what was
    'chosen' stands for no other answer and is left out. A slice of an arm without labels has no row, nor has the
    difference of two that judge the same answers.
    """
    people = labels[labels["split"] != "chosen"] if "split" in labels else labels
    by = ["answer_id", "criterion"]
    chance = people.groupby("answer_id")["probability"].first() if "probability" in people else pd.Series(dtype=float)
    rows = verdicts[verdicts["score"].notna()].join(people.groupby(by)["score"].mean().rename("label"), on=by)
    several = rows["log"].nunique() > 1
    rows["arm"] = rows["log"] if several or rows["subject"].nunique() < 2 else rows["subject"].fillna("?")
    rows["all"] = "all"
    made = []
    for slice_ in ("all", "criterion", "group"):
        if slice_ != "all" and rows[slice_].nunique() < 2:
            continue
        for value_of, part in rows.groupby(slice_, sort=True):
            arms = {str(arm): of for arm, of in _arms(part, chance)}
            made += [_row(arm, "", slice_, value_of, corrected_mean([of])) for arm, of in arms.items()]
            first = next(iter(arms), "")
            answers = part.groupby("arm")["answer_id"].agg(set)
            for arm, of in list(arms.items())[1:]:
                if answers[arm] != answers[first]:  # the same answers have the same mean
                    made.append(_row(arm, first, slice_, value_of, corrected_mean([arms[first], of])))
    return made


def _arms(rows: pd.DataFrame, chance: pd.Series[float]) -> Iterator[tuple[str, Cases]]:
    """Each arm's answers; an answer's score and label are means over the criteria that are labelled, or all."""
    for arm, part in rows.groupby("arm", sort=False):
        kept = part[part["criterion"].isin(set(part.loc[part["label"].notna(), "criterion"]))]
        if kept.empty:
            continue
        answers = kept.groupby("answer_id", sort=False).agg(
            {"score": "mean", "label": "mean", "case_id": "first", "group": "first"}
        )
        is_class = answers.groupby("case_id").size().median() >= CLASS_SIZE
        clusters = answers.index if is_class else answers["case_id"]
        probability = (
            answers.index.to_series().map(chance).to_numpy(float) if len(chance) else np.full(len(answers), np.nan)
        )
        weights = np.where(np.isnan(probability), 1.0, 1 / np.where(np.isnan(probability), 1.0, probability))
        has = answers["label"].notna()
        strata = answers["case_id"] if is_class else answers["group"].fillna("")
        # Parts that labels were drawn in apart, or that are fixed, and that hold labels enough to stand for themselves.
        apart = has.groupby(strata).sum().min() >= 2 and (is_class or len(chance) > 0)
        yield (
            str(arm),
            Cases(
                answers["score"].to_numpy(float),
                answers["label"].to_numpy(float),
                clusters.to_numpy(str),
                weights,
                strata.to_numpy(str) if apart else None,
            ),
        )


def _row(arm: str, less: str, slice_: str, value_of: object, found: CorrectedMean) -> Record:
    both = found.corrected
    labels = found.labels
    judge = found.judge
    return {
        "arm": arm,
        "less": less,
        "slice": slice_,
        "value_of": str(value_of),
        "value": both.value,
        "low": both.low,
        "high": both.high,
        "by_labels": labels.value,
        "labels_low": labels.low,
        "labels_high": labels.high,
        "by_judge": judge.value,
        "judge_low": judge.low,
        "judge_high": judge.high,
        "labels": both.n,
        "answers": judge.n,
        "clusters": both.clusters,
        "weight": found.weights[-1],
        "to_halve": found.to_halve,
    }


FEWEST = 5
"""Labelled clusters below which there is no interval."""
MOST_LEVERAGE = 0.9


class Cases(NamedTuple):
    """What one judge scored, a row a case; arrays of shape (n,)."""

    scores: Floats
    """By the judge: finite, in any unit."""
    labels: Floats
    """By people: NaN where there is none, in a unit of their own."""
    clusters: npt.NDArray[Any]
    """Ids of what was sampled together (question, author), of one sortable kind; its own where a case stands alone."""
    weights: Floats
    """One over the probability that the case was labelled, up to a factor; 1 where labels were drawn by chance."""
    strata: npt.NDArray[Any] | None = None
    """Parts in which labels were drawn apart, whose shares among all cases are known."""


class Mean(NamedTuple):
    """A mean or a difference of means, with its interval; None as ends with fewer than FEWEST clusters."""

    value: float
    low: float | None
    high: float | None
    n: int
    """Rows that it rests on, of both arms of a difference."""
    clusters: int
    """Clusters that these rows are of."""


class CorrectedMean(NamedTuple):
    """What can be said of a mean, `corrected` and `labels` in the labels' unit."""

    corrected: Mean
    """By labels and judge: what to report. Its interval is never wider than that by labels alone."""
    labels: Mean
    """By labels alone."""
    judge: Mean
    """By the judge alone: its interval does not hold its bias."""
    weights: tuple[float, ...]
    """λ of each arm; 0 where the judge adds nothing."""
    to_halve: int | None
    """Further labels that would halve the interval; None where all of these cases, labelled, would not."""


def corrected_mean(arms: Sequence[Cases]) -> CorrectedMean:
    """The mean label over all cases of one arm, or the difference of two, the second less the first.

    Two arms are paired as far as they have clusters in common. The intervals hold for cases like these of which labels
    were drawn by chance, or as `weights` and `strata` say; with 20 labels, and labels of which 9 of 10 are alike, at
    the least .91 of the time instead of .95 (data/results). ValueError for an arm without labels, or a stratum.
    """
    signs = (1.0,) if len(arms) == 1 else (-1.0, 1.0)
    parts = [_influences(arm) for arm in arms]
    codes = np.unique(np.concatenate([arm.clusters for arm in arms]), return_inverse=True)[1]
    size = int(codes.max()) + 1
    at = np.split(codes, np.cumsum([len(arm.scores) for arm in arms])[:-1])
    labelled = len(np.unique(codes[np.concatenate([~np.isnan(arm.labels) for arm in arms])]))

    def by_cluster(columns: Sequence[Floats]) -> Floats:
        return np.stack([s * np.bincount(c, column, size) for s, c, column in zip(signs, at, columns, strict=True)])

    def total(values: Sequence[float]) -> float:
        return float(np.dot(signs, values))

    of_labels = by_cluster([part.of_labels for part in parts]).sum(axis=0)
    of_scores = by_cluster([part.of_scores for part in parts]).T
    labels, cases = (
        int(sum(counts)) for counts in zip(*((part.labels, len(part.of_labels)) for part in parts), strict=True)
    )
    unseen = _unseen(arms, [part.label_mean for part in parts], signs, float(of_labels @ of_labels), labelled)
    value = total([part.label_mean for part in parts])
    low, high = _interval(value, of_labels, labelled, 0, unseen)
    alone = Mean(value, low, high, labels, labelled)
    weights = _tuned(of_labels, of_scores, labelled)
    used = weights > 0
    both, influence = alone, of_labels
    if used.any():
        columns = of_scores[:, used]
        leverage = np.sum(columns @ np.linalg.pinv(columns.T @ columns) * columns, axis=1)
        influence = (of_labels + of_scores @ weights) / (1.0 - np.minimum(leverage, MOST_LEVERAGE))
        value = total([part.label_mean + weight * part.gap for part, weight in zip(parts, weights, strict=True)])
        low, high = _interval(value, influence, labelled, int(used.sum()), unseen)
        both = Mean(value, low, high, labels, labelled)
        if _width(both) >= _width(alone):
            both = alone
            influence = of_labels
            weights = np.zeros(len(arms))
    sampled = [part.sampled + weight * part.sampled_scores for part, weight in zip(parts, weights, strict=True)]
    kept = float(np.sum(by_cluster(sampled).sum(axis=0) ** 2))
    value = total([float(arm.scores.mean()) for arm in arms])
    of_judge = by_cluster([(arm.scores - arm.scores.mean()) / len(arm.scores) for arm in arms]).sum(axis=0)
    low, high = _interval(value, of_judge, size, 0, None)
    judge = Mean(value, low, high, cases, size)
    # What more labels make smaller, of the variance; a quarter of it halves the interval.
    target = float(influence @ influence) / 4 - max(0.0, float(influence @ influence) - kept)
    needed = labels * kept / target if target > 0 else inf
    to_halve = max(0, ceil(needed) - labels) if needed <= cases else None
    return CorrectedMean(both, alone, judge, tuple(map(float, weights)), to_halve)


class _Influences(NamedTuple):
    """Of every case on the mean label, and on the judge's part per λ; and the parts of both that labels alone have."""

    label_mean: float
    gap: float
    """Mean of all scores less that of the labelled ones."""
    of_labels: Floats
    of_scores: Floats
    sampled: Floats
    sampled_scores: Floats
    labels: int


def _influences(arm: Cases) -> _Influences:
    has = ~np.isnan(arm.labels)
    n = len(arm.scores)
    strata = np.zeros(n, dtype=int) if arm.strata is None else np.unique(arm.strata, return_inverse=True)[1]
    weights = np.where(has, arm.weights, 0.0)
    mass = np.bincount(strata, weights)
    if not (mass > 0).all():
        raise ValueError("every arm and stratum needs a label")
    weights = weights / mass[strata]
    share: Floats = weights * (np.bincount(strata) / n)[strata]
    labels = np.where(has, arm.labels, 0.0)
    of_label = np.bincount(strata, weights * labels)[strata]
    of_score = np.bincount(strata, weights * arm.scores)[strata]
    label_mean = float(share @ labels)
    score_mean = float(share @ arm.scores)
    whole = float(arm.scores.mean())
    sampled = share * (labels - of_label)
    sampled_scores = -share * (arm.scores - of_score)
    of_labels = sampled + (of_label - label_mean) / n
    of_scores = sampled_scores + (arm.scores - whole - of_score + score_mean) / n
    if has.all() and np.ptp(arm.weights) == 0:  # the judge has nothing to add, and what is left of it is rounding
        sampled_scores = np.zeros(n)
        of_scores = np.zeros(n)
        score_mean = whole
    return _Influences(label_mean, whole - score_mean, of_labels, of_scores, sampled, sampled_scores, int(has.sum()))


def _tuned(of_labels: Floats, of_scores: Floats, clusters: int) -> Floats:
    """λ >= 0 of each arm that makes the squared influences least, less the share of that which chance explains."""
    none = np.zeros(of_scores.shape[1])
    if clusters <= len(none) + 1:
        return none
    weights, rest = nnls(-of_scores, of_labels)
    used = np.count_nonzero(weights)
    explained = float(np.sum((of_scores @ weights) ** 2))
    if explained == 0:
        return none
    return np.asarray(weights * max(0.0, 1.0 - used * rest**2 / (clusters - 1 - used) / explained))


class _Unseen(NamedTuple):
    """Labels that few cases do not show: at both ends of what there is, two of each where labels are 0 or 1 (Agresti
    and Coull 1998), else half a one."""

    pulled: float
    """Share by which they pull a mean to the middle."""
    middle: float
    variance: float
    """That they add."""


def _unseen(
    arms: Sequence[Cases], means: Sequence[float], signs: Sequence[float], variance: float, clusters: int
) -> _Unseen:
    squares = middle = chance = more = rows = 0.0
    for arm, mean, sign in zip(arms, means, signs, strict=True):
        labels = arm.labels[~np.isnan(arm.labels)]
        is_binary = np.isin(labels, (0.0, 1.0)).all()
        ends = np.array([0.0, 1.0] if is_binary else [labels.min(), labels.max()])
        each = 2.0 if is_binary else 0.5
        more, rows = max(more, 2 * each), rows + len(labels)
        chance += float(labels.var()) / len(labels)
        squares, middle = squares + each * float(np.sum((ends - mean) ** 2)), middle + sign * float(ends.mean())
    # As many as independent labels of this spread would be: between clusters and rows.
    size = min(max(rows * chance / variance, clusters), rows) if variance > 0 else clusters
    return _Unseen(more / (size + more), middle, squares / (size + more) ** 2)


def _interval(
    value: float, influence: Floats, clusters: int, used: int, unseen: _Unseen | None
) -> tuple[float, float] | tuple[None, None]:
    """By Student's t with the clusters' degrees of freedom, less one for every λ."""
    if clusters < FEWEST:
        return None, None
    pulled, middle, variance = unseen or (0.0, 0.0, 0.0)
    freedom = clusters - 1 - used
    variance += float(influence @ influence) * (1 - pulled) ** 2 * clusters / freedom
    centre = value + pulled * (middle - value)
    half = sqrt(variance) * float(t.ppf(0.975, freedom))
    return min(value, centre - half), max(value, centre + half)


def _width(mean: Mean) -> float:
    return inf if mean.low is None or mean.high is None else mean.high - mean.low
