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
from rubricflow.tasks.grading.calibrate.release import Rules, Scope, release_rules
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
    rules = release_rules([fit_decision.scope for fit_decision in decided], study.release, _marked(items))
    mappings: dict[str, ScaleMapping] = {}
    crossed = {item.item_id for item in items if pc.any(pc.equal(item.rows["split"], "crossed")).as_py()}
    for fit_decision in decided:
        members = fit_decision.labels.items
        is_crossed = not crossed.isdisjoint(members)
        calibration = _calibration(fit_decision, rules, rater_id, study, is_crossed, encoder)
        mappings |= dict.fromkeys(members, calibration)
    candidates = list[dict[str, object]]()
    for fit_decision in decided:
        candidates += _candidates(fit_decision)
    return FittedItems(mappings, candidates, [promise._asdict() for promise in rules.promises])


def _marked(items: Sequence[Item]) -> dict[str, int]:
    """Item → its marked answers that calibrate, judged or not."""
    rows = {item.item_id: item.rows for item in items}
    counting = pa.array(CALIBRATES)
    return {
        name: pc.sum(pc.and_(pc.is_in(own["split"], value_set=counting), pc.is_valid(own["target"]))).as_py() or 0
        for name, own in rows.items()
    }


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


def _candidates(fit_decision: Decided) -> list[dict[str, object]]:
    decision = fit_decision.decision
    return [
        candidate.row(fit_decision.name, len(fit_decision.labels), decision.folds, candidate.method == decision.method)
        for candidate in decision.candidates
    ]


def _calibration(
    fit_decision: Decided, rules: Rules, rater_id: str, study: Study, crossed: bool, encoder: str | None
) -> ScaleMapping:
    labels, decision = fit_decision.labels, fit_decision.decision
    return ScaleMapping(
        scope=fit_decision.name,
        bundle_id=fit_decision.bundle_id,
        rater_id=rater_id,
        method=decision.method,
        reason=decision.reason,
        features=inputs(decision.method, labels.names),
        left_out=labels.left_out,
        n=len(labels) + fit_decision.chosen,
        target=study.evaluation.target,
        mapping=decision.tried.mapping if decision.tried else None,
        text_only=decision.text_only[0],
        texts=study.calibration.texts if labels.blocks else (),
        encoder=encoder if "embedding" in labels.blocks else None,
        spread=fit_decision.spread,
        rules={item: rules.items[item] for item in labels.items},
        new=None if fit_decision.bundle_id else rules.new,
        folds=fit_decision.folds if crossed else (),
    )
