"""Which mapping each item gets, fitted on the labelled rows that calibrate and on nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.grading.calibrate.calibration import POOLED, FoldFit, ScaleMapping
from rubricflow.tasks.grading.calibrate.choose import FEWEST, MethodChoice, decide
from rubricflow.tasks.grading.calibrate.methods import inputs
from rubricflow.tasks.grading.calibrate.outcome import outcome
from rubricflow.tasks.grading.calibrate.release import Scope, release_rules
from rubricflow.tasks.grading.calibrate.rows import Collected, Item, LabelledRows, collect
from rubricflow.tasks.grading.calibrate.spread import Spread


class FittedItems(NamedTuple):
    """mappings: item → its mapping; candidates, release_rules: rows of the tables of these names."""

    mappings: dict[str, ScaleMapping]
    candidates: list[dict[str, object]]
    release_rules: list[dict[str, object]]


class Decided(NamedTuple):
    """One mapping decision: its labels, how many others were chosen to teach it, the bundle of its item (None where
    pooled), and what came of it, without each fold too."""

    labels: LabelledRows
    chosen: int
    bundle_id: str | None
    decision: MethodChoice
    spread: Spread | None
    scope: Scope
    folds: tuple[FoldFit, ...] = ()

    @property
    def name(self) -> str:
        """The item, or 'pooled'."""
        return self.labels.items[0] if self.bundle_id else POOLED


def fit_items(items: Sequence[Item], rater_id: str, study: Study, encoder: str | None = None) -> FittedItems:
    """Fit, compare and choose for every item by itself given `minimum` usable labels, but at least ten, else for all
    such items together, whose scores are then shares of each item's scale.

    Usable labels are those of `collect`; where they are crossed, a mapping keeps its fits without each fold, too.
    Without the items' `blocks` no method takes what their texts tell. The order of items and rows does not matter, to
    the last bit. encoder: what encoded the texts, for the record.
    """
    decided: list[Decided] = []
    pool: list[Item] = []
    for item in sorted(items, key=lambda item: item.item_id):
        collected = collect([item], pooled=False)
        if len(collected.drawn) < max(study.calibration.minimum, FEWEST):
            pool.append(item)
        else:
            decided.append(_decide(collected, item.bundle.bundle_id, study))
    if pool:
        decided.append(_decide(collect(pool, pooled=True), None, study))
    marked, crossed = dict[str, int](), set[str]()
    for item in items:
        split = item.rows["split"]
        counts = pc.and_(pc.is_in(split, value_set=pa.array(CALIBRATES)), pc.is_valid(item.rows["target"]))
        marked[item.item_id] = pc.sum(counts).as_py() or 0
        if pc.any(pc.equal(split, "crossed")).as_py():
            crossed.add(item.item_id)
    rules = release_rules([one.scope for one in decided], study.release, marked)
    mappings: dict[str, ScaleMapping] = {}
    candidates = list[dict[str, object]]()
    for one in decided:
        labels, decision = one.labels, one.decision
        calibration = ScaleMapping(
            scope=one.name,
            bundle_id=one.bundle_id,
            rater_id=rater_id,
            method=decision.method,
            reason=decision.reason,
            features=inputs(decision.method, labels.names),
            left_out=labels.left_out,
            n=len(labels) + one.chosen,
            target=study.evaluation.target,
            mapping=decision.tried.mapping if decision.tried else None,
            text_only=decision.text_only[0],
            texts=study.calibration.texts if labels.blocks else (),
            encoder=encoder if "embedding" in labels.blocks else None,
            spread=one.spread,
            rules={item: rules.items[item] for item in labels.items},
            new=None if one.bundle_id else rules.new,
            folds=() if crossed.isdisjoint(labels.items) else one.folds,
        )
        mappings |= dict.fromkeys(labels.items, calibration)
        for trial in decision.candidates:
            candidates.append(trial.row(one.name, len(labels), decision.folds, trial.method == decision.method))
    return FittedItems(mappings, candidates, [promise._asdict() for promise in rules.promises])


def _decide(collected: Collected, bundle_id: str | None, study: Study) -> Decided:
    labels, chosen = collected
    decision = decide(labels, study.calibration, chosen)
    if decision.tried is None:
        return Decided(labels, len(chosen), bundle_id, decision, None, Scope(labels, None))
    spread, risk_rows, spreads = outcome(labels, decision.tried, decision.fold, study.release)
    each = enumerate(zip(decision.tried.parts, decision.text_only[1:], spreads, strict=True))
    folds = tuple(
        FoldFit(clusters=tuple(np.unique(labels.cluster[decision.fold == k])), mapping=part, text_only=text, spread=own)
        for k, (part, text, own) in each
    )
    return Decided(labels, len(chosen), bundle_id, decision, spread, Scope(labels, risk_rows), folds)
