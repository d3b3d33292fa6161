"""Which mapping each item gets, fitted on the labelled rows that calibrate and on nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.grading.calibrate.calibration import POOLED, FoldFit, ScaleMapping
from rubricflow.tasks.grading.calibrate.choose import FEWEST, decide
from rubricflow.tasks.grading.calibrate.methods import inputs
from rubricflow.tasks.grading.calibrate.outcome import outcome
from rubricflow.tasks.grading.calibrate.release import Scope, release_rules
from rubricflow.tasks.grading.calibrate.rows import Collected, Item, collect


class FittedItems(NamedTuple):
    """mappings: item → its mapping; candidates, release_rules: rows of the tables of these names."""

    mappings: dict[str, ScaleMapping]
    candidates: list[dict[str, object]]
    release_rules: list[dict[str, object]]


def fit_items(items: Sequence[Item], rater_id: str, study: Study, encoder: str | None = None) -> FittedItems:
    """Fit, compare and choose for every item by itself given `minimum` usable labels, but at least ten, else for all
    such items together, whose scores are then shares of each item's scale.

    Usable labels are those of `collect`; where they are crossed, a mapping keeps its fits without each fold, too.
    Without the items' `blocks` no method takes what their texts tell. The order of items and rows does not matter, to
    the last bit. encoder: what encoded the texts, for the record.
    """
    collected, pool = list[tuple[Collected, str | None]](), list[Item]()
    for item in sorted(items, key=lambda item: item.item_id):
        of_item = collect([item], pooled=False)
        if len(of_item.drawn) < max(study.calibration.minimum, FEWEST):
            pool.append(item)
        else:
            collected.append((of_item, item.bundle.bundle_id))
    if pool:
        collected.append((collect(pool, pooled=True), None))
    decisions = [decide(labels, study.calibration, chosen) for (labels, chosen), _ in collected]
    outcomes = [
        decision.tried and outcome(labels, decision.tried, decision.fold, study.release)
        for ((labels, _), _), decision in zip(collected, decisions, strict=True)
    ]
    rows = pd.concat([item.rows.select(["item_id", "split", "target"]).to_pandas() for item in items])
    marked = Counter(rows.loc[rows["split"].isin(CALIBRATES) & rows["target"].notna(), "item_id"])
    crossed = set(rows.loc[rows["split"] == "crossed", "item_id"])
    scopes = [Scope(one.drawn, found and found[1]) for (one, _), found in zip(collected, outcomes, strict=True)]
    rules = release_rules(scopes, study.release, marked)
    mappings, candidates = dict[str, ScaleMapping](), list[dict[str, object]]()
    for ((labels, chosen), bundle_id), decision, found in zip(collected, decisions, outcomes, strict=True):
        scope = labels.items[0] if bundle_id else POOLED
        folds = []
        if decision.tried and found and not crossed.isdisjoint(labels.items):
            for k, (part, text, own) in enumerate(
                zip(decision.tried.parts, decision.text_only[1:], found[2], strict=True)
            ):
                clusters = tuple(np.unique(labels.cluster[decision.fold == k]))
                folds.append(FoldFit(clusters=clusters, mapping=part, text_only=text, spread=own))
        calibration = ScaleMapping(
            scope=scope,
            bundle_id=bundle_id,
            rater_id=rater_id,
            method=decision.method,
            reason=decision.reason,
            features=inputs(decision.method, labels.names),
            left_out=labels.left_out,
            n=len(labels) + len(chosen),
            target=study.evaluation.target,
            mapping=decision.tried.mapping if decision.tried else None,
            weight=decision.tried.weight if decision.tried else 1.0,
            text_only=decision.text_only[0],
            texts=study.calibration.texts if labels.blocks else (),
            encoder=encoder if "embedding" in labels.blocks else None,
            spread=found[0] if found else None,
            rules={item: rules.items[item] for item in labels.items},
            new=None if bundle_id else rules.new,
            folds=tuple(folds),
        )
        mappings |= dict.fromkeys(labels.items, calibration)
        for trial in decision.candidates:
            candidates.append(trial.row(scope, len(labels), decision.folds, trial.method == decision.method))
    return FittedItems(mappings, candidates, rules.promises)
