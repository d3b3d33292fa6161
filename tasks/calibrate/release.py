"""Which scores go out without a person looking first: levels seen, a risk that the labels allow, and the route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tasks.calibrate.alignment import snap
from tasks.calibrate.labels import LabelledRows
from tasks.calibrate.outcome import RiskRows
from tasks.contracts.schema import Frozen
from tasks.contracts.settings.study import Release
from tasks.contracts.tables.calibration import Refusal
from tasks.display import say
from tasks.stats.arrays import Bools, Floats
from tasks.stats.promise import fewest_without_error, promise
from tasks.stats.within import within_items

ALL = "all"
MOST_POSSIBLE = 0.5
"""Largest share of wrong scores at which it is still said that some could go out."""
Levels = dict[str, tuple[float, ...]]


class ReleaseRule(Frozen):
    """What may be released of one item."""

    scale: tuple[float, float, float]
    """Its scale: lowest, highest, step."""
    levels: tuple[float, ...]
    """Human scores seen in calibration, rounded to the scale's steps, rising."""
    threshold: float | None
    """Largest estimated risk that is released; null where nothing may be."""
    refused: Refusal | None = None
    """Why nothing may be; null where something may."""


class Scope(NamedTuple):
    """The labels of one mapping and what its cross-fitted scores were worth, None where none could be tried."""

    labels: LabelledRows
    outcome: RiskRows | None


class ReleasePromise(NamedTuple):
    """A row of table `release_rules`."""

    scope: str
    tolerance: float
    target: float
    confidence: float
    n: int
    threshold: float | None
    released: int
    wrong: int
    worth: float
    upper: float | None
    levels: list[float]
    refused: Refusal | None
    note: str | None
    possible_target: float | None = None
    possible_threshold: float | None = None


class Vouching(NamedTuple):
    """Labelled rows that would be released but for their risk, (n,) each.

    risk, wrong: as in `RiskRows`; cluster: the author or, where not known, the response.
    """

    risk: Floats
    wrong: Bools
    cluster: npt.NDArray[np.str_]


class Rules(NamedTuple):
    """items: item → its rule; new: largest risk released of an item that has no rule; promises: those made."""

    items: dict[str, ReleaseRule]
    new: float | None
    promises: list[ReleasePromise]


def release_rules(scopes: Sequence[Scope], release: Release) -> Rules:
    """The rule of every item, by its own labels or, where the study promises for the set, by all labels together.

    Promised about are the labelled responses that no other rule sends to a person: without weak evidence, on a level
    seen and inside the range seen, as cross-fitted; those of one author count for as many as they are worth. Seen is a
    level that people gave, on the same scale, to any item that shares the mapping. Nothing is promised of several items
    where the labels do not show that scores agree with people inside items.
    """
    levels: Levels = {}
    scales: dict[str, tuple[float, float, float]] = {}
    rows: dict[str, Vouching] = {}
    for scope in scopes:
        levels_seen = seen_levels(scope.labels)
        levels |= levels_seen
        bounds = (scale.bounds for scale in scope.labels.scales)
        scales |= zip(scope.labels.items, bounds, strict=True)
        rows |= vouching(scope, levels_seen)
    alike = _by_question_means(scopes)
    if release.by == "set":
        all_rows = Vouching(*(np.concatenate(columns) for columns in zip(*rows.values(), strict=True)))
        every = sorted(set[float]().union(*levels.values()))
        promises = [_promise(ALL, all_rows, every, release, alike)]
        promise_of = dict.fromkeys(levels, promises[0])
    else:
        promises = [_promise(item, rows[item], list(levels[item]), release, alike) for item in sorted(levels)]
        promise_of = {promised.scope: promised for promised in promises}
    rules = {
        item: ReleaseRule(
            scale=scales[item],
            levels=levels[item],
            threshold=promise_of[item].threshold,
            refused=promise_of[item].refused,
        )
        for item in sorted(levels)
    }
    return Rules(rules, promises[0].threshold if release.by == "set" else None, promises)


def reasons(score: Floats, prechecked: Bools, weak: Bools, clipped: Bools, risk: Floats, rule: ReleaseRule) -> pa.Array:
    """Why a person looks at each row before its score goes out, null where it may go: the first reason that applies.

    score, risk: (n,), NaN where there is none; prechecked, weak, clipped: (n,). Weak evidence routes and
    no more: confidence and uncertainty stay the published ones, and the decision stands (Rulers, Table 5).
    """
    first = {
        "unscored": np.isnan(score),
        "precheck": prechecked,
        "weak_evidence": weak,
        "uncalibrated": np.isnan(risk),
        "out_of_range": clipped,
        "level_unseen": ~np.isin(score, rule.levels),
        rule.refused or "no_promise": np.full(len(score), rule.threshold is None),
        "risk": risk > (1.0 if rule.threshold is None else rule.threshold),
    }
    reason = np.select(list(first.values()), list(first), default="")
    return pa.array(reason, pa.string(), mask=reason == "")


def seen_levels(labels: LabelledRows) -> Levels:
    """Item → human scores in the labels of all items on its scale, rounded to the scale's steps, rising."""
    level = labels.levels(labels.human)
    on_scale: dict[tuple[float, float, float], set[float]] = {}
    for index, scale in enumerate(labels.scales):
        steps = np.unique(level[labels.item == index])
        scores = snap(scale.min + scale.step * steps, scale.bounds)
        on_scale.setdefault(scale.bounds, set()).update(scores.tolist())
    return {
        item: tuple(sorted(on_scale[scale.bounds])) for item, scale in zip(labels.items, labels.scales, strict=True)
    }


def vouching(scope: Scope, levels: Levels) -> dict[str, Vouching]:
    """Item → its labelled rows that would be released but for their risk; none where the risk is not known."""
    labels, outcome = scope
    if outcome is None:
        return dict.fromkeys(labels.items, Vouching(np.empty(0), np.empty(0, dtype=np.bool_), np.empty(0, np.str_)))
    vouches = {}
    for index, (item, scale) in enumerate(zip(labels.items, labels.scales, strict=True)):
        rows = (labels.item == index) & ~outcome.clipped & ~labels.weak
        rows[rows] = np.isin(snap(scale.min + scale.step * outcome.level[rows], scale.bounds), levels[item])
        vouches[item] = Vouching(outcome.risk[rows], outcome.wrong[rows], labels.cluster[rows])
    return vouches


def _by_question_means(scopes: Sequence[Scope]) -> str | None:
    """Why the labels do not show that the scores agree with people inside items; None where they do, where there is one
    item, and without cross-fitted scores."""
    known = [(labels, rows) for labels, rows in scopes if rows is not None]
    items = [labels.item_id for labels, _ in known]
    if not items or len(np.unique(np.concatenate(items))) < 2:
        return None
    human = np.concatenate([labels.shares(labels.human) for labels, _ in known])
    machine = np.concatenate([rows.level / labels.top for labels, rows in known])
    clusters = np.concatenate([labels.cluster for labels, _ in known])
    stat, ends = within_items(human, machine, np.concatenate(items), clusters)
    if stat.value is not None and ends is not None and ends.low is not None and ends.low > 0:
        return None
    found = say.number(stat.value) if stat.value is not None else "none"
    if ends is not None and ends.low is not None and ends.high is not None:
        found += f", 95% interval {say.number(ends.low)} to {say.number(ends.high)}"
    return (
        f"the {say.count(len(human))} marked answers do not show that the scores agree with people inside questions "
        f"(correlation {found}): agreement by question means alone releases nothing"
    )


def _promise(
    scope: str, rows: Vouching, levels: list[float], release: Release, question_means: str | None = None
) -> ReleasePromise:
    """question_means: why nothing is promised of any item, where the scores agree by question means alone."""
    best = promise(rows.risk, rows.wrong, release.risk, release.confidence, rows.cluster)
    promised = ReleasePromise(
        scope=scope,
        tolerance=release.tolerance,
        target=release.risk,
        confidence=release.confidence,
        n=len(rows.risk),
        threshold=best.threshold,
        released=best.released,
        wrong=best.wrong,
        worth=best.worth,
        upper=best.upper,
        levels=levels,
        refused=None,
        note=None,
    )
    if question_means:
        nothing = {"threshold": None, "released": 0, "wrong": 0, "worth": 0.0, "upper": None}
        return promised._replace(**nothing, refused="question_means", note=question_means)
    if best.threshold is not None:
        return promised
    target, threshold = _possible(rows, release)
    return promised._replace(
        refused="no_promise",
        note=_why_none(rows, release),
        possible_target=target,
        possible_threshold=threshold,
    )


def _possible(rows: Vouching, release: Release) -> tuple[float | None, float | None]:
    """The smallest whole per cent above the target at which the labels would allow a release, and its threshold."""
    for percent in range(int(100 * release.risk) + 1, int(100 * MOST_POSSIBLE) + 1):
        threshold = promise(rows.risk, rows.wrong, percent / 100, release.confidence, rows.cluster).threshold
        if threshold is not None:
            return percent / 100, threshold
    return None, None


def _why_none(rows: Vouching, release: Release) -> str:
    n, authors = len(rows.cluster), len(np.unique(rows.cluster))
    fewest = fewest_without_error(release.risk, release.confidence)
    if n < fewest:
        return f"too few marked answers to promise anything: {say.count(fewest)} needed, {say.count(n)} here"
    by = f" of {say.plural(authors, 'author')}" if authors < n else ""
    return (
        f"the {say.count(n)} marked answers{by} do not show, even for the surest scores, "
        f"that at most {say.rate(release.risk)} are wrong"
    )
