"""The command `compare`: two finished runs on a page."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import get_args

import pandas as pd

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, WarehouseFolder, print_rows
from rubricflow.flows.finished_runs import find_run, read_finished
from rubricflow.flows.mean import run_as_log
from rubricflow.flows.mean import table as mean_table
from rubricflow.tasks.core.contracts import ScaleBounds
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.settings.study import Evaluation
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations
from rubricflow.tasks.core.contracts.tables.data import Split
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.worth import QUERIES, compared
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.core.stats.scores import score_frame
from rubricflow.tasks.core.store.catalogue import catalogue
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.compared.task import AgreementGap, write_compared
from rubricflow.tasks.grading.evaluate.agree import (
    agreements,
    alike,
    compare_over_items,
    in_common,
    most_changed,
    side_by_side,
)
from rubricflow.tasks.grading.evaluate.agree import compare as compare_scores
from rubricflow.tasks.grading.trends.means import mean_rows, together


def compare(a: str, b: str, warehouse: WarehouseFolder = DEFAULT_WAREHOUSE) -> None:
    """Prints the differences b - a between the runs' agreement with people, one for each statistic on each scale, none
    where no response that both runs hold out and score has a human score; writes `compared-with-<a>.html` into b.

    UserError where both score no response, or score it on different scales.
    """
    run_a = find_run(warehouse, a)
    run_b = find_run(warehouse, b)
    (study, scores_a, scales), (other, scores_b, others) = read_finished(run_a), read_finished(run_b)
    frame_a, groups, *_ = score_frame(scores_a, study.evaluation.target, get_args(Split))
    frame_b = score_frame(scores_b, other.evaluation.target, get_args(Split)).frame
    if any(others[item] != scales[item] for item in scales.keys() & others.keys()):
        raise UserError("the two runs score the same items on different scales")
    both = side_by_side(frame_a, frame_b)
    in_a = both["a"].notna()
    in_b = both["b"].notna()
    if not (in_a & in_b).any():
        raise UserError("the two runs score no response in common")
    plan = study.evaluation
    held_out_a, held_out_b = (frame[frame["split"] == "test"] for frame in (frame_a, frame_b))
    differences = list(agreement_gaps(held_out_a, held_out_b, scales, plan, (_methods(run_a), _methods(run_b))))
    figures = {}
    for scale in sorted({scales[item] for item in both["item_id"]}):
        part = both[both["item_id"].map(scales) == scale]
        figures[scale] = list(agreements(part, groups, scales, plan.draws, plan.seed))
    unscored = int((in_a & ~in_b).sum()), int((in_b & ~in_a).sum())
    found = {"A": (_worth(run_a), study.release.model_dump()), "B": (_worth(run_b), other.release.model_dump())}
    worth = compared(found)
    changed = most_changed(both, scales)
    sentence, page = write_compared((run_a, run_b), (study, other), figures, differences, changed, unscored, worth)
    print(f"{sentence}.", file=sys.stderr)
    if differences:
        header = ("scale", "statistic", "b - a", "low", "high", "p", "responses", "resampled", "clusters", "note")
        print_rows(header, differences)
    logs = {"a": run_as_log(run_a), "b": run_as_log(run_b)}
    people = pd.concat([log.labels for log in logs.values()]).drop_duplicates(["answer_id", "criterion"])
    means = mean_rows(together({name: log.verdicts for name, log in logs.items()}), people)
    for table in (*(worth.tables if worth else ()), *([mean_table(means)] if means else [])):
        print_rows(table.header, [tuple(map(say.plain, map(str, cells))) for cells in table.rows])
    print(f"report: {page}", file=sys.stderr)


def _worth(run: Run) -> dict[str, pd.DataFrame]:
    with catalogue(run) as tables:
        return {name: tables.sql(query).df() for name, query in QUERIES.items()}


def agreement_gaps(
    scores_a: pd.DataFrame,
    scores_b: pd.DataFrame,
    scales: dict[str, ScaleBounds],
    plan: Evaluation,
    methods: tuple[list[str], list[str]],
) -> Iterator[AgreementGap]:
    """For the calibrated scores, apart for items of each scale; with the QWK of several items that of their mean."""
    items = in_common(scores_a, scores_b)["item_id_a"].unique()
    for scale in sorted({scales[item] for item in items}):
        part = scores_a[scores_a["item_id"].map(scales) == scale]
        differences, n, resampled = compare_scores(part, scores_b, scale, plan.draws, plan.seed)
        if part.loc[part["item_id"].isin(items), "item_id"].nunique() > 1:
            within = compare_over_items(part, scores_b, scales, plan.draws, plan.seed)
            differences = {"qwk": differences.pop("qwk"), "qwk, mean over items": within} | differences
        equal = alike(part, scores_b, methods)
        for name, gap in differences.items():
            note = "; ".join(filter(None, (equal, next(cautions([gap.clusters]), None)))) or None
            ends = gap.estimate, gap.low, gap.high, gap.p
            yield AgreementGap(f"{scale[0]:g} to {scale[1]:g}", name, *ends, n, resampled, gap.clusters, note)


def _methods(run: Run) -> list[str]:
    names = run.table(Calibrations, "calibrate", ["method"])["method"]
    return sorted(set(names.to_pylist()))
