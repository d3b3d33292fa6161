"""What a study's marked answers suffice for, said before anything is graded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from tasks.contracts.settings.study import Release, Split, Study
from tasks.stats.promise import fewest_without_error
from tasks.stats.target import target_scores

Finding = tuple[str, str, str]
"""(kind, what, message), as `validate` prints it."""


class MarkedAnswers(NamedTuple):
    """The answers to a question that people marked."""

    item_id: str
    marked: int
    calibrating: int
    """Those of them that the calibration is fitted to and a promise rests on."""


def marked_answers(study: Study, responses: pa.Table, gradings: pa.Table) -> list[MarkedAnswers]:
    """The marked answers of every item. responses: response_id, item_id, split; gradings: as for `target_scores`."""
    marked = set(target_scores(gradings, study.evaluation.target)["response_id"].to_pylist())
    counts: dict[str, list[int]] = {}
    columns = (responses[name].to_pylist() for name in ("response_id", "item_id", "split"))
    for response_id, item_id, split in zip(*columns, strict=True):
        count = counts.setdefault(item_id, [0, 0])
        count[0] += response_id in marked
        count[1] += response_id in marked and split == "calibration"
    return [MarkedAnswers(item_id, *count) for item_id, count in sorted(counts.items())]


def release_needs(study: Study, items: Sequence[MarkedAnswers]) -> Iterator[Finding]:
    """What the promise about released scores needs, beside what there is; and whether the split gets the calibration
    that it wishes for."""
    if not any(item.marked for item in items):
        yield "warning", "release", "no answer is marked by people: nothing is calibrated, and no score is released"
        return
    is_whole = study.release.by == "set" or len(items) == 1
    yield _needs_of_set(study.release, items) if is_whole else _needs_of_items(study.release, items)
    yield from _cut_calibration(study.split, items)


def _needed(release: Release) -> tuple[int, str]:
    """How many marked answers a promise needs at least, and that in words."""
    needed = fewest_without_error(release.risk, release.confidence)
    promise = f"{100 * release.risk:.3g} % at {100 * release.confidence:.3g} %"
    return needed, f"{needed} marked answers without an error for {promise}"


def _needs_of_set(release: Release, items: Sequence[MarkedAnswers]) -> Finding:
    needed, words = _needed(release)
    have = sum(item.calibrating for item in items)
    return "warning" if have < needed else "ok", "release", f"{words}; you have {have} to calibrate on"


def _needs_of_items(release: Release, items: Sequence[MarkedAnswers]) -> Finding:
    needed, words = _needed(release)
    fewest = min(items, key=lambda item: item.calibrating)
    short = sum(item.calibrating < needed for item in items)
    have = f"you have {fewest.calibrating} or more to calibrate on"
    if short:
        have = f"{short} of {len(items)} questions have fewer, '{fewest.item_id}' the fewest: {fewest.calibrating}"
    return "warning" if short else "ok", "release", f"{words}, for every question; {have}"


def _cut_calibration(plan: Split, items: Sequence[MarkedAnswers]) -> Iterator[Finding]:
    wished = plan.calibration * (len(items) if plan.per == "item" else 1)
    marked, calibrating = sum(item.marked for item in items), sum(item.calibrating for item in items)
    if plan.shares is None and calibrating < wished and calibrating <= marked // 2:
        each = " for each question" if plan.per == "item" else ""
        wish = f"split.calibration wishes for {plan.calibration} marked answers{each}, {calibrating} are taken"
        yield "warning", "calibration", f"{wish}: at most half of the {marked} marked ones, the others test the scores"
