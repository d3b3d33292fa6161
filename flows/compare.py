"""Two finished runs side by side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pandas as pd

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Study
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations, Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses, Split
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.core.stats.scores import ScoreTables, score_frame
from rubricflow.tasks.core.store.ordered import read_scores
from rubricflow.tasks.core.store.recorded import read_manifest
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.compared.page import AgreementGap
from rubricflow.tasks.grading.compared.task import write_compared
from rubricflow.tasks.grading.evaluate.compare import (
    agreements,
    alike,
    compare,
    compare_over_items,
    in_common,
    most_changed,
    side_by_side,
)
from rubricflow.tasks.grading.evaluate.slices import ScaleBounds

Scales = dict[str, ScaleBounds]
Methods = tuple[list[str], list[str]]


def compared(a: Run, b: Run) -> tuple[list[AgreementGap], str, Path]:
    """(differences between the runs' agreement with people, one for each statistic on each scale; what came of it in a
    sentence; the page beside them, `compared-with-<a>.html` in b's folder). No differences where no response that both
    runs hold out and score has a human score. UserError where both score no response, or score it on different scales.
    """
    tables, study, scales = finished(a)
    frame_a, groups, *_ = score_frame(tables, study.evaluation.target, get_args(Split))
    tables, other, others = finished(b)
    frame_b = score_frame(tables, other.evaluation.target, get_args(Split)).frame
    if any(others[item] != scales[item] for item in scales.keys() & others.keys()):
        raise UserError("the two runs score the same items on different scales")
    both = side_by_side(frame_a, frame_b)
    if not (both["a"].notna() & both["b"].notna()).any():
        raise UserError("the two runs score no response in common")
    plan = study.evaluation
    held_out_a, held_out_b = (frame[frame["split"] == "test"] for frame in (frame_a, frame_b))
    differences = list(_differences(held_out_a, held_out_b, scales, plan, (_methods(a), _methods(b))))
    figures = {}
    for scale in sorted({scales[item] for item in both["item_id"]}):
        part = both[both["item_id"].map(scales) == scale]
        figures[scale] = list(agreements(part, groups, scales, plan.draws, plan.seed))
    unscored = (both["a"].notna() & both["b"].isna()).sum(), (both["b"].notna() & both["a"].isna()).sum()
    sentence, path = write_compared(
        (a, b), (study, other), figures, differences, most_changed(both, scales), (int(unscored[0]), int(unscored[1]))
    )
    return differences, sentence, path


def _differences(
    scores_a: pd.DataFrame, scores_b: pd.DataFrame, scales: Scales, plan: Evaluation, methods: Methods
) -> Iterator[AgreementGap]:
    """For the calibrated scores, apart for items of each scale; beside the QWK of several items that of their mean."""
    items = in_common(scores_a, scores_b)["item_id_a"].unique()
    for scale in sorted({scales[item] for item in items}):
        part = scores_a[scores_a["item_id"].map(scales) == scale]
        differences, n, resampled = compare(part, scores_b, scale, plan.draws, plan.seed)
        if part.loc[part["item_id"].isin(items), "item_id"].nunique() > 1:
            within = compare_over_items(part, scores_b, scales, plan.draws, plan.seed)
            differences = {"qwk": differences.pop("qwk"), "qwk, mean over items": within} | differences
        equal = alike(part, scores_b, methods)
        for name, gap in differences.items():
            note = "; ".join(filter(None, (equal, next(cautions([gap.clusters]), None)))) or None
            ends = gap.estimate, gap.low, gap.high, gap.p
            yield AgreementGap(f"{scale[0]:g} to {scale[1]:g}", name, *ends, n, resampled, gap.clusters, note)


def _methods(run: Run) -> list[str]:
    """The methods of a run's mappings."""
    names = run.read(run.ref(Calibrations, "calibrate"), ["method"])["method"]
    return sorted(set(names.to_pylist()))


def finished(run: Run) -> tuple[Iterator[ScoreTables], Study, dict[str, ScaleBounds]]:
    """The scores of a finished run, its study, and the scale of every item."""
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    written_by = (
        (Items, "ingest"),
        (Responses, "ingest"),
        (Gradings, "ingest"),
        (Gradings, "judge"),
        (Predictions, "calibrate"),
    )
    locked = unlocked(run.read(run.ref(Bundles, "lock")).to_pylist())
    items = run.read(run.ref(Items, "ingest")).to_pylist()
    scales = {row["item_id"]: locked[row["rubric_id"]].scale.bounds for row in items}
    refs = (run.ref(table, stage) for table, stage in written_by)
    return read_scores(run, *refs), study, scales
