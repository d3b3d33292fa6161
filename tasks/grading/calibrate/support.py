"""What the labels of a graded run support now, and how many more it would take, in plain words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables.calibration import ReleaseRules
from rubricflow.tasks.core.contracts.tables.data import SPLITS
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.reasons import wanted_words
from rubricflow.tasks.core.stats.promise import PromiseNeeds, labels_for_promise, labels_for_width
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.next_labels import HeldOut
from rubricflow.tasks.grading.calibrate.release import ALL
from rubricflow.tasks.grading.calibrate.rows import Item

HALF = 0.05
"""Half the width of the interval for agreement that labels are counted for."""
Record = Mapping[str, Any]


def read_agreement(run: Run) -> list[Record]:
    """QWK of the calibrated scores with the target on all held-out responses, and that of people with each other."""
    figures = run.ref(Metrics, "evaluate")
    of_all = (pc.field("metric") == "qwk") & (pc.field("slice") == "all")
    of_stage = (pc.field("stage") == "human") | (
        (pc.field("stage") == "calibrated") & (pc.field("rater_a") == "target")
    )
    return list(run.read(figures, ["stage", "value", "low", "high", "n", "note"], of_all & of_stage).to_pylist())


def read_promises(run: Run) -> list[Record]:
    """Rows of `release_rules`."""
    return list(run.read(run.ref(ReleaseRules, "calibrate")).to_pylist())


def labels(items: Sequence[Item]) -> str:
    """How many labels there are and what becomes of them."""
    splits = Counter[str]()
    for item in items:
        labelled = item.rows.filter(pc.is_valid(item.rows["target"]))
        splits.update(labelled["split"].to_pylist())
    counts_in_words = ", ".join(f"{say.count(splits[name])} {name}" for name in SPLITS if splits[name])
    graded = sum(len(item.rows) for item in items)
    of_responses = f"{say.plural(splits.total(), 'label')} of {say.plural(graded, 'graded response')}"
    return f"{of_responses}: {counts_in_words or 'none yet'}"


def agreement(figures: Iterable[Record]) -> str:
    """How well the scores agree with people, how well that is known, and what it takes to know it better."""
    rows = sorted(figures, key=lambda row: -row["n"])
    people = next((row for row in rows if row["stage"] == "human" and row["value"] is not None), None)
    machine = next((row for row in rows if row["stage"] == "calibrated"), None)
    if machine is None or machine["value"] is None:
        return f"agreement: QWK is not known: {machine['note'] if machine else 'no labels are held out'}"
    beside = f"; two people: {say.number(people['value'])} on {say.count(people['n'])}" if people else ""
    sentence = f"agreement: QWK {say.number(machine['value'])}"
    if machine["low"] is None or machine["high"] is None:
        return f"{sentence} on {say.plural(machine['n'], 'held-out response')}, without an interval{beside}"
    needed = labels_for_width(machine["low"], machine["high"], machine["n"], HALF) - machine["n"]
    precision = f"it within ±{HALF}"
    more = f"about {say.count(needed)} more held out would tell {precision}" if needed else f"they tell {precision}"
    ends = f"[{say.number(machine['low'])}, {say.number(machine['high'])}]"
    return f"{sentence}, 95% interval {ends}, on {say.plural(machine['n'], 'held-out response')}{beside}; {more}"


def promise(rules: Sequence[Record], held_out: HeldOut, release: Release, needs: Sequence[PromiseNeeds] = ()) -> str:
    """What may be released by the promise now, how many labels would do at least, and about how many if scores stay as
    often wrong. needs: what every promise wants."""
    target = f"promise of at most {say.rate(release.risk)} wrong at {say.rate(release.confidence)} confidence"
    promises_kept = [rule for rule in rules if rule["threshold"] is not None]
    asking = [rule for rule in rules if rule["refused"] != "asks_nothing"]
    if not asking and rules:
        return f"{target}: nothing may be released; {rules[0]['note']}"
    if not promises_kept:
        wanted = f"{wanted_words(release.risk, release.confidence, needs)}; " if needs else ""
        return f"{target}: nothing may be released; {wanted}{_needed(held_out, release)}"
    if rules[0]["scope"] == ALL:
        rule = rules[0]
        bound = f"{rule['wrong']} wrong, at most {say.share(rule['upper'])}"
        return f"{target}: kept for {rule['released']} of {say.plural(rule['n'], 'label')} ({bound})"
    sentence = f"{target}: kept for {len(promises_kept)} of {say.plural(len(rules), 'item')}"
    return (
        sentence if len(promises_kept) == len(asking) else f"{sentence}; for the others, {_needed(held_out, release)}"
    )


def _needed(held_out: HeldOut, release: Release) -> str:
    """About how many labels a promise takes, by the held-out scores."""
    if not len(held_out.risk):
        return "no held-out score tells how many labels it takes"
    estimate = labels_for_promise(held_out.risk, held_out.wrong, release.risk, release.confidence)
    if estimate is None:
        scores = say.plural(len(held_out.risk), "held-out score")
        return f"by {scores}, the least risky are wrong too often for any number of labels, or too few to tell"
    needed, coverage = estimate
    each = " of each item" if release.by == "item" else ""
    return f"about {say.count(needed)} calibration labels{each} would do for {say.share(coverage)} of the scores"
