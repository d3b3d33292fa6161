"""Two finished runs side by side."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.contracts.bundle import unlocked
from tasks.contracts.errors import UserError
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.calibration import Calibrations, Predictions
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.judging import Gradings
from tasks.contracts.tables.rubrics import Bundles
from tasks.evaluate.compare import alike, compare, compare_over_items, in_common
from tasks.evaluate.slices import ScaleBounds
from tasks.stats.bootstrap import cautions
from tasks.stats.scores import ScoreTables, score_frame
from tasks.store.recorded import read_manifest
from tasks.store.scores import read_scores
from tasks.store.warehouse import Run


def compared(a: Run, b: Run) -> Iterator[tuple[str | int | float | None, ...]]:
    """(scale, statistic, difference b − a, its interval, p, responses, what was resampled and how many, what to know of
    equal scores and of so few) for the calibrated scores, apart for items of each scale; beside the QWK of several
    items that of their mean."""
    tables, study, scales = finished(a)
    scores_a = score_frame(tables, study.evaluation.target).frame
    tables, other, others = finished(b)
    scores_b = score_frame(tables, other.evaluation.target).frame
    if any(others[item] != scales[item] for item in scales.keys() & others.keys()):
        raise UserError("the two runs score the same items on different scales")
    plan, methods = study.evaluation, (_methods(a), _methods(b))
    items = in_common(scores_a, scores_b)["item_id_a"].unique()
    for scale in sorted({scales[item] for item in items} or set(scales.values())):
        part = scores_a[scores_a["item_id"].map(scales) == scale]
        differences, n, resampled = compare(part, scores_b, scale, plan.draws, plan.seed)
        if part.loc[part["item_id"].isin(items), "item_id"].nunique() > 1:
            within = compare_over_items(part, scores_b, scales, plan.draws, plan.seed)
            differences = {"qwk": differences.pop("qwk"), "qwk, mean over items": within} | differences
        equal = alike(part, scores_b, methods)
        for name, gap in differences.items():
            note = "; ".join(filter(None, (equal, next(cautions([gap.clusters]), None)))) or None
            counts = n, resampled, gap.clusters
            yield f"{scale[0]:g} to {scale[1]:g}", name, gap.estimate, gap.low, gap.high, gap.p, *counts, note


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
