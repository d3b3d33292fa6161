"""Which scores go out without a person looking first: levels seen, a risk that the labels allow, and the route."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables.calibration import Refusal
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.agreement import SLACK, level_count
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.stats.bootstrap import within_items
from rubricflow.tasks.core.stats.promise import UNLIKELY, Promise, fewest_without_error, missed_by_constant, promise
from rubricflow.tasks.grading.calibrate.alignment import snap
from rubricflow.tasks.grading.calibrate.rows import LabelledRows, RiskRows

ALL = "all"
NO_PROMISE = Promise(None, 0, 0, 0.0, None)
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


class ReleaseCandidates(NamedTuple):
    """Labelled rows that would be released but for their risk, (n,) each.

    risk, wrong: as in `RiskRows`; cluster: the author or, where not known, the response; human: human scores in steps
    above the lowest level; missed: whether they differ by more than the tolerance from the best constant score of
    their item, which is the best of these very rows; constant: share of the item's rows that are missed; exact:
    whether the cross-fitted score is the human one.
    """

    risk: Floats
    wrong: Bools
    cluster: npt.NDArray[np.str_]
    human: Floats
    missed: Bools
    constant: Floats
    exact: Bools

    @classmethod
    def joined(cls, parts: Iterable[ReleaseCandidates]) -> ReleaseCandidates:
        """Those of several items."""
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class Rules(NamedTuple):
    """items: item → its rule; new: largest risk released of an item that has no rule; promises: rows of
    `release_rules`."""

    items: dict[str, ReleaseRule]
    new: float | None
    promises: list[Record]


def release_rules(scopes: Sequence[Scope], release: Release, marked: Mapping[str, int]) -> Rules:
    """The rule of every item, by its own labels or, where the study promises for the set, by all labels together.

    Promised about are the labelled responses that no other rule sends to a person: without weak evidence, on a level
    seen and inside the range seen, as cross-fitted; those of one author count for as many as they are worth. Seen is a
    level that people gave, on the same scale, to any item that shares the mapping. An item of which one and the same
    score keeps the promise has no part in it and releases nothing. The level at which scores could pass for better
    than constants is shared among the promises, so that it is the level at which any could. Nothing is promised of
    several items where the labels do not show that scores agree with people inside items. marked: item → its marked
    answers that count, those without a usable grading too.
    """
    levels: Levels = {}
    scales: dict[str, tuple[float, float, float]] = {}
    rows: dict[str, ReleaseCandidates] = {}
    for scope in scopes:
        levels_seen = seen_levels(scope.labels)
        levels |= levels_seen
        scales |= zip(scope.labels.items, (scale.bounds for scale in scope.labels.scales), strict=True)
        rows |= release_candidates(scope, levels_seen, release.tolerance)
    items = sorted(levels)
    by_set = release.by == "set"
    fewest = fewest_without_error(release.risk, release.confidence)

    def asks_something(item: str, enough: bool) -> bool:
        """Whether no constant score keeps the promise about an item: not on every label that its scale allows nor,
        where there are enough labels to promise anything, on each marked answer by the best constant of the others."""
        top = level_count(*scales[item]) - 1
        missed = missed_by_constant(rows[item].human, top, release.tolerance, of_others=True)
        may_miss = bool(missed_by_constant(np.array([0.0, top]), top, release.tolerance).any())
        return may_miss and not (enough and len(missed) and _keeps(missed, release))

    members = {ALL: items} if by_set else {item: [item] for item in items}
    asked = {}
    for name, own in members.items():
        enough = sum(len(rows[item].risk) for item in own) >= fewest
        asking = [item for item in own if asks_something(item, enough)]
        kept = asking and enough and _keeps(np.concatenate([rows[item].missed for item in asking]), release)
        asked[name] = [] if kept else asking
    tested = sum(sum(len(rows[item].risk) for item in asking) >= fewest for asking in asked.values())
    unlikely = UNLIKELY / max(1, tested)
    question_means = _by_question_means(scopes)
    promises = {}
    for name, asking in asked.items():
        if not asking:
            promises[name] = _refused(name, members[name], rows, scales, release)
            continue
        seen = sorted(set[float]().union(*(levels[item] for item in asking)))
        count = sum(marked[item] for item in members[name])
        joined = ReleaseCandidates.joined(rows[item] for item in asking)
        promises[name] = _promise(name, joined, seen, release, unlikely, question_means, count)
        for item in members[name]:
            if item not in asking:
                promises[item] = _refused(item, [item], rows, scales, release)
    rules = {}
    for item in items:
        promised = promises.get(item) or promises[ALL]
        rules[item] = ReleaseRule(
            scale=scales[item], levels=levels[item], threshold=promised["threshold"], refused=promised["refused"]
        )
    return Rules(rules, promises[ALL]["threshold"] if by_set else None, list(promises.values()))


def _by_question_means(scopes: Sequence[Scope]) -> str | None:
    """Why the labels do not show that the scores agree with people inside items; None where they do, where there is one
    item, and without cross-fitted scores."""
    known = [(labels, rows) for labels, rows in scopes if rows is not None]
    items = np.concatenate([np.empty(0, np.str_), *(labels.item_id for labels, _ in known)])
    if len(np.unique(items)) < 2:
        return None
    human = np.concatenate([labels.shares(labels.human) for labels, _ in known])
    machine = np.concatenate([rows.level / labels.top for labels, rows in known])
    stat, ends = within_items(human, machine, items, np.concatenate([labels.cluster for labels, _ in known]))
    found = say.number(stat.value) if stat.value is not None else "none"
    if ends is not None and ends.low is not None and ends.high is not None:
        if stat.value is not None and ends.low > 0:
            return None
        found += f", 95% interval {say.number(ends.low)} to {say.number(ends.high)}"
    return (
        f"the {say.count(len(human))} marked answers do not show that the scores agree with people inside questions "
        f"(correlation {found}): agreement by question means alone releases nothing"
    )


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
        # A risk that is the threshold's own may differ in the last bit where scores are pooled.
        "risk": risk > (1.0 if rule.threshold is None else rule.threshold) + SLACK,
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


def release_candidates(scope: Scope, levels: Levels, tolerance: float) -> dict[str, ReleaseCandidates]:
    """Item → its labelled rows that would be released but for their risk; none where the risk is not known."""
    labels, outcome = scope
    if outcome is None:
        labels = labels.take(np.zeros(len(labels), dtype=np.bool_))
        outcome = RiskRows(*np.empty((3, 0)), *np.empty((2, 0), dtype=np.bool_))
    human = labels.steps(labels.human)
    found = {}
    is_open = may_go(labels, outcome, levels)
    for index, (item, scale) in enumerate(zip(labels.items, labels.scales, strict=True)):
        rows = (labels.item == index) & is_open
        missed = missed_by_constant(human[rows], scale.levels - 1, tolerance)
        found[item] = ReleaseCandidates(
            risk=outcome.risk[rows],
            wrong=outcome.wrong[rows],
            cluster=labels.cluster[rows],
            human=human[rows],
            missed=missed,
            constant=np.full(len(missed), missed.mean() if len(missed) else np.nan),
            exact=(labels.levels(labels.human) == outcome.level)[rows],
        )
    return found


def may_go(labels: LabelledRows, outcome: RiskRows, levels: Levels) -> Bools:
    """Whether nothing but its risk keeps each labelled row's score from being released, (n,)."""
    rows = ~outcome.clipped & ~labels.weak
    for index, (item, scale) in enumerate(zip(labels.items, labels.scales, strict=True)):
        own = rows & (labels.item == index)
        rows[own] = np.isin(snap(scale.min + scale.step * outcome.level[own], scale.bounds), levels[item])
    return rows


def _keeps(missed: Bools, release: Release) -> bool:
    return bool(len(missed) and missed.mean() <= release.risk + SLACK)


def _refused(
    scope: str,
    items: Sequence[str],
    rows: Mapping[str, ReleaseCandidates],
    scales: Mapping[str, tuple[float, float, float]],
    release: Release,
) -> Record:
    """No promise about items of which a constant score for each would keep it."""
    joined = ReleaseCandidates.joined(rows[item] for item in items)
    asking = None
    for tolerance in range(ceil(release.tolerance) - 1, -1, -1):
        missed = [missed_by_constant(rows[item].human, level_count(*scales[item]) - 1, tolerance) for item in items]
        if len(joined.human) and not _keeps(np.concatenate(missed), release):
            asking = tolerance
            break
    share = say.share(joined.missed.mean()) if len(joined.missed) else "none"
    remedy = "on these answers no smaller tolerance would ask something"
    if asking is not None:
        remedy = f"a tolerance of {say.plural(asking, 'step')} would ask something"
    note = (
        f"the promise would ask nothing: one and the same score for every answer to a question is wrong for {share} of "
        f"the {say.plural(len(joined.missed), 'marked answer')}, and {say.rate(release.risk)} may be; {remedy}"
    )
    why = {"refused": "asks_nothing", "note": note, "asking_tolerance": asking}
    return _row(scope, joined, NO_PROMISE, [], release) | why


def _row(scope: str, rows: ReleaseCandidates, made: Promise, levels: list[float], release: Release) -> Record:
    """The row of a promise that is made, or of one for whose absence there is no reason yet."""
    out = rows.risk <= (-np.inf if made.threshold is None else made.threshold)
    parts = rows.missed, rows.missed[out], rows.exact, rows.exact[out]
    constant, constant_released, exact, exact_released = (float(part.mean()) if len(part) else None for part in parts)
    return {
        "scope": scope,
        "tolerance": release.tolerance,
        "target": release.risk,
        "confidence": release.confidence,
        "n": len(rows.risk),
        "levels": levels,
        "refused": None,
        "constant": constant,
        "constant_released": constant_released,
        "exact": exact,
        "exact_released": exact_released,
        **made._asdict(),
    }


def _promise(
    scope: str,
    rows: ReleaseCandidates,
    levels: list[float],
    release: Release,
    unlikely: float,
    question_means: str | None,
    marked: int,
) -> Record:
    """The promise about some rows, which asks something.

    unlikely: as in `promise`; question_means: why nothing is promised of any item, where the scores agree by question
    means alone; marked: marked answers that count, those too that a person has to look at for another reason.
    """
    if question_means:
        why = {"refused": "question_means", "note": question_means}
        return _row(scope, rows, NO_PROMISE, levels, release) | why

    def made_at(target: float, constant: Floats | None = rows.constant) -> Promise:
        return promise(rows.risk, rows.wrong, target, release.confidence, rows.cluster, constant, unlikely)

    promised = _row(scope, rows, made_at(release.risk), levels, release)
    if promised["threshold"] is not None:
        return promised
    n = len(rows.cluster)
    authors = len(np.unique(rows.cluster))
    fewest = fewest_without_error(release.risk, release.confidence)
    if made_at(release.risk, None).threshold is not None:
        note = (
            f"the {say.plural(n, 'marked answer')} do not show that scores are wrong less often than "
            f"one and the same score for every answer to a question, which is wrong for {say.share(rows.missed.mean())}"
        )
        return promised | {"refused": "no_promise", "note": note}
    if n < fewest:
        others = f", of which {say.count(marked - n)} go to a person in any case" if marked > n else ""
        here = f"{say.count(marked)} here{others}"
        note = f"too few marked answers to promise anything: {say.count(fewest)} needed, {here}"
    else:
        by = f" of {say.plural(authors, 'author')}" if authors < n else ""
        note = (
            f"the {say.count(n)} marked answers{by} do not show, even for the surest scores, "
            f"that at most {say.rate(release.risk)} are wrong"
        )
    promised |= {"refused": "no_promise", "note": note}
    # Where a constant would keep it, a promise of more wrong scores is none.
    most = min([MOST_POSSIBLE, *np.unique(rows.constant - SLACK)])
    for percent in range(int(100 * release.risk) + 1, int(100 * most) + 1):
        threshold = made_at(percent / 100).threshold
        if threshold is not None:
            return promised | {"possible_target": percent / 100, "possible_threshold": threshold}
    return promised
