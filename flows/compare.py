"""Two finished runs side by side."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd

from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import UserError
from tasks.contracts.study import Study
from tasks.contracts.tables import Bundles, Gradings, Items, Predictions, Responses
from tasks.evaluate.agree import ScaleBounds
from tasks.evaluate.compare import compare
from tasks.evaluate.scores import ScoreTables, score_frame
from tasks.store.warehouse import Run


def compared(a: Run, b: Run) -> Iterator[tuple[str, float | None, float | None, float | None, float | None, int, str]]:
    """(statistic, difference b − a, its interval, p, responses, what was resampled) for the calibrated scores."""
    scores_a, study, scales = scores_of(a)
    scores_b, _, others = scores_of(b)
    if len({*scales.values(), *others.values()}) != 1:
        raise UserError("the items of the two runs have several scales; compare runs of one scale")
    plan = study.evaluation
    found, n, resampled = compare(scores_a, scores_b, next(iter(scales.values())), plan.draws, plan.seed)
    for name, difference in found.items():
        yield name, difference.estimate, difference.low, difference.high, difference.p, n, resampled


def scores_of(run: Run) -> tuple[pd.DataFrame, Study, dict[str, ScaleBounds]]:
    """(score frame of the held-out responses, the study, the scale of every item) of a finished run."""
    study = Study.model_validate(json.loads((run.folder / "manifest.json").read_bytes())["identity"]["study"])
    wanted = (
        (Items, "ingest"),
        (Responses, "ingest"),
        (Gradings, "ingest"),
        (Gradings, "judge"),
        (Predictions, "calibrate"),
    )
    tables = ScoreTables(*(run.read(run.ref(row, stage)) for row, stage in wanted))
    scores, _, _ = score_frame(tables, study.evaluation.target)
    bundles = run.read(run.ref(Bundles, "lock")).to_pylist()
    scales = {row["rubric_id"]: Bundle.unlock(row["bundle_id"], row["content"]).scale.bounds for row in bundles}
    return scores, study, {row["item_id"]: scales[row["rubric_id"]] for row in tables.items.to_pylist()}
