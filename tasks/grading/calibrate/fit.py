"""Which mapping each item gets, fitted on the labelled rows that calibrate and on nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.settings.study import Release, Study
from rubricflow.tasks.core.contracts.tables.calibration import Refusal
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.probability import conformal_quantile
from rubricflow.tasks.grading.calibrate.calibration import POOLED, FoldFit, ScaleMapping
from rubricflow.tasks.grading.calibrate.choose import FEWEST, decide
from rubricflow.tasks.grading.calibrate.features import LONE
from rubricflow.tasks.grading.calibrate.methods import CrossFitted, inputs
from rubricflow.tasks.grading.calibrate.release import Scope, may_go, release_rules, seen_levels
from rubricflow.tasks.grading.calibrate.rows import Collected, Item, LabelledRows, RiskRows, collect
from rubricflow.tasks.grading.calibrate.spread import (
    ErrorModel,
    Placed,
    Sigma,
    Spread,
    error_risk,
    fit_errors,
    fit_sigma,
    grain_of,
    risks,
    sigmas,
    thinned,
)


class FittedItems(NamedTuple):
    """mappings: item → its mapping; candidates, release_rules, label_risks: rows of the tables of these names."""

    mappings: dict[str, ScaleMapping]
    candidates: list[dict[str, object]]
    release_rules: list[dict[str, object]]
    label_risks: list[dict[str, object]]


def fit_items(items: Sequence[Item], rater_id: str, study: Study, encoder: str | None = None) -> FittedItems:
    """Fit, compare and choose for every item by itself given `minimum` usable labels, but at least ten, else for all
    such items together, whose scores are then shares of each item's scale.

    Usable labels are those of `collect`; where they are crossed, a mapping keeps its fits without each fold, too.
    Without the items' `blocks` no method takes what their texts tell. The order of items and rows does not matter, to
    the last bit. encoder: what encoded the texts, for the record.
    """
    collected = list[tuple[Collected, str | None]]()
    pool = list[Item]()
    for item in sorted(items, key=lambda item: item.item_id):
        of_item = collect([item], pooled=False)
        if len(of_item.drawn) < max(study.calibration.minimum, FEWEST):
            pool.append(item)
        else:
            collected.append((of_item, item.bundle.bundle_id))
    if pool:
        collected.append((collect(pool, pooled=True), None))
    decisions = [decide(labels, study.calibration, chosen) for (labels, chosen, _), _ in collected]
    outcomes = [
        decision.tried and outcome(labels, decision.tried, decision.fold, study.release)
        for ((labels, *_), _), decision in zip(collected, decisions, strict=True)
    ]
    rows = pd.concat([item.rows.select(["item_id", "split", "target"]).to_pandas() for item in items])
    marked = Counter(rows.loc[rows["split"].isin(CALIBRATES) & rows["target"].notna(), "item_id"])
    crossed = set(rows.loc[rows["split"] == "crossed", "item_id"])
    scopes = [Scope(one.drawn, found and found[1]) for (one, _), found in zip(collected, outcomes, strict=True)]
    rules = release_rules(scopes, study.release, marked)
    mappings = dict[str, ScaleMapping]()
    candidates = []
    label_risks = list[dict[str, object]]()
    for ((labels, chosen, responses), bundle_id), decision, found in zip(collected, decisions, outcomes, strict=True):
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
        if found:
            refused = {item: rules.items[item].refused for item in labels.items}
            label_risks += _label_risks(labels, found[1], responses, rater_id, refused)
    return FittedItems(mappings, candidates, rules.promises, label_risks)


def _label_risks(
    labels: LabelledRows, outcome: RiskRows, responses: list[str], rater_id: str, refused: Mapping[str, Refusal | None]
) -> Iterator[dict[str, object]]:
    lowest, highest, step = np.array([scale.bounds for scale in labels.scales])[labels.item].T
    columns = {
        "response_id": responses,
        "item_id": labels.item_id.tolist(),
        "cluster": labels.cluster.tolist(),
        "human": (lowest + step * labels.steps(labels.human)).tolist(),
        "score": (lowest + step * outcome.level).tolist(),
        "lowest": lowest.tolist(),
        "highest": highest.tolist(),
        "step": step.tolist(),
        "risk": outcome.risk.tolist(),
        "wrong": outcome.wrong.tolist(),
        "open": may_go(labels, outcome, seen_levels(labels)).tolist(),
    }
    for row in zip(*columns.values(), strict=True):
        values = dict(zip(columns, row, strict=True))
        yield values | {"rater_id": rater_id, "refused": refused[str(values["item_id"])]}


# What cross-fitted scores of labelled rows are worth: residuals, the risk of each, and whether it was wrong.


def outcome(
    labels: LabelledRows, tried: CrossFitted, fold: Ints, release: Release
) -> tuple[Spread, RiskRows, tuple[Spread, ...]]:
    """The spread fitted on all labels, for new rows, the outcome of each label by a spread that had not seen it, and
    these spreads, one for each fold.

    fold: (n,). A label's sigma, epsilons and error model come from the other folds; their residuals come from mappings
    fitted with its fold among others, so that the split is not a fully nested one. What a fold's risks go by and what
    teaches its error model come from one distribution, of the other folds: with those of its own, each fold's risks
    would give away how many errors it has. Where the other folds teach nothing, the risk is as the distribution has it.
    """
    names = tuple(name for name in labels.names if name in LONE)
    signals = labels.matrix[:, [labels.names.index(name) for name in names]]
    residual = labels.human - tried.aligned
    span = labels.high - labels.low
    level = labels.levels(tried.aligned)
    wrong = np.abs(labels.steps(labels.human) - level) > release.tolerance + SLACK
    grain = grain_of(labels.steps(labels.human), labels.weight)
    sigma, by_distribution, risk = np.empty((3, len(labels)))
    spreads = []

    def fitted(size: Sigma, epsilon: Floats) -> Spread:
        # 1 - 0.9 is 0.09999999999999998; the rank is counted from the study's own figure.
        reach = conformal_quantile(np.abs(epsilon), round(1 - release.coverage, 12))
        return Spread(
            signals=names,
            sigma=size,
            epsilon=tuple(thinned(epsilon).tolist()),
            reach=float(reach) if np.isfinite(reach) else None,
            tolerance=release.tolerance,
            grain=grain,
        )

    for out in (fold == k for k in range(fold.max() + 1)):
        size = fit_sigma(residual[~out], tried.aligned[~out], signals[~out], span)
        sigma_of_fold = sigmas(size, tried.aligned, signals)
        sigma[out] = sigma_of_fold[out]
        spread = fitted(size, (residual / sigma_of_fold)[~out])
        placed = _placed(labels, tried, sigma_of_fold, spread)
        model = _errors(labels.take(~out), placed.take(~out), wrong[~out])
        spreads.append(spread.model_copy(update={"errors": model}))
        by_distribution[out] = risk[out] = placed.by_distribution[out]
        if model is not None:
            unseen = labels.take(out)
            effect = np.array([model.effect(item) for item in labels.items])[unseen.item]
            risk[out] = error_risk(model, placed.take(out), unseen.matrix, effect)
    whole = fitted(fit_sigma(residual, tried.aligned, signals, span), residual / sigma)
    placed = _placed(labels, tried, sigmas(whole.sigma, tried.aligned, signals), whole)
    rows = RiskRows(level, by_distribution, risk, wrong, tried.clipped)
    return whole.model_copy(update={"errors": _errors(labels, placed, wrong)}), rows, tuple(spreads)


def _placed(labels: LabelledRows, tried: CrossFitted, sigma: Floats, spread: Spread) -> Placed:
    """Where the cross-fitted scores lie, and the risk by sigma, (n,), and the spread's epsilons."""
    aligned = labels.steps(tried.aligned)
    level = labels.levels(tried.aligned)
    top = labels.top
    steps = sigma / (labels.high - labels.low) * top
    epsilon = np.array(spread.epsilon)
    risk = risks(aligned, steps, level, top, epsilon, tolerance=spread.tolerance, grain=spread.grain)
    return Placed(aligned, level, top, risk)


def _errors(labels: LabelledRows, placed: Placed, wrong: Bools) -> ErrorModel | None:
    least = 0.5 / len(labels)
    return fit_errors(placed, labels.matrix, labels.names, labels.item, labels.items, wrong=wrong, least=least)
