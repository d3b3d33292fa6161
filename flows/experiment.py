"""The command `experiment`: every arm is an ordinary run of the warehouse; then tables and figures over all of them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, Limit, WarehouseFolder
from rubricflow.flows.finished_runs import is_finished, item_bundles, keep_arms, read_finished
from rubricflow.flows.grade import stages
from rubricflow.flows.plan import planned, record
from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.experiment import Planned, load_experiment
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, Numbers
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings
from rubricflow.tasks.core.display.table import markdown, records, show, show_sentences
from rubricflow.tasks.core.monitor.artifacts import leave_text
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce, log, task
from rubricflow.tasks.core.stats.scores import GIVEN, score_frame, target_scores
from rubricflow.tasks.core.store.part import as_parquet
from rubricflow.tasks.core.store.warehouse import EXPERIMENTS, Run, Warehouse, counted
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.grading.calibrate.fit import fit_items
from rubricflow.tasks.grading.calibrate.predictions import predict
from rubricflow.tasks.grading.calibrate.rows import GRADING, graded_items, only_rater
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan as Bootstrap
from rubricflow.tasks.grading.evaluate.experiment.arm import ExperimentArm
from rubricflow.tasks.grading.evaluate.experiment.tables import main_contrast, page, tables
from rubricflow.tasks.grading.report.task import refuse_unscored

CALLS = ["response_id", "role", "attempt", "violations", "prompt_tokens", "completion_tokens", "latency_s"]


@flow(name="experiment", flow_run_name="{file}")
def experiment(
    file: Annotated[str, typer.Argument(help="The experiment file (YAML).")],
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
) -> str:
    """Run every arm of an experiment file and make its tables; returns the folder that holds them: numbers.parquet,
    tables.md, report.html and arms.json.

    Arms that finished are passed over, an interrupted one goes on where it stopped.
    """
    plan = load_experiment(Path(file))
    introduce(plan.experiment.name, flow="experiment")
    opened = Warehouse.open(warehouse)
    runs = {name: planned(study, plan.base, opened.root, limit).run for name, study in plan.studies.items()}
    keep_arms(opened, plan.experiment.name, runs)
    for name, run in runs.items():
        if is_finished(run):
            log(f"arm {name}: finished, {run.run_id}")
        else:
            arm(file, name, warehouse, limit)
    folder = conclude(plan, runs)
    for run in runs.values():
        refuse_unscored(run)
    return str(folder)


@flow(name="arm", flow_run_name="{name}")
def arm(file: str, name: str, warehouse: str = DEFAULT_WAREHOUSE, limit: int | None = None) -> str:
    """Grade one arm of an experiment file; returns the run's id."""
    plan = load_experiment(Path(file))
    job = planned(plan.studies[name], plan.base, warehouse, limit)
    introduce(job.study.name, flow="arm", experiment=plan.experiment.name, backend=job.study.judge.backend)
    record(job, stages(job))
    return completed(job.run.run_id, f"arm {name} graded")


@task(task_run_name="tables")
def conclude(plan: Planned, runs: dict[str, Run]) -> Path:
    """Write and print the tables of finished runs; leave them as artifacts in the Prefect UI."""
    name = plan.experiment.name
    warehouse = next(iter(runs.values())).warehouse
    size = plan.experiment.tables.calibration_size
    sizes = dict.fromkeys(size.arms, size.sizes) if size else {}
    arms = {arm_name: read_arm(arm_name, run, sizes.get(arm_name, ())) for arm_name, run in runs.items()}
    reference = next(iter(plan.studies.values())).evaluation.target
    made = tables(arms, plan.experiment, reference)
    contrast = main_contrast(arms, plan.experiment, Bootstrap(plan.experiment.draws, plan.experiment.seed))
    ids = {arm_name: run.run_id for arm_name, run in runs.items()}
    simulated = any(one.simulated for one in arms.values())
    folder = warehouse.root / EXPERIMENTS / name
    opening = [contrast] if contrast else []
    listed = ["## Runs", "", *(f"- {arm}: `{run_id}`" for arm, run_id in ids.items())]
    text = markdown(f"Experiment {name}", opening, made, listed)
    report = folder / "report.html"
    numbers = conform(Numbers, chain.from_iterable(map(records, made)))
    warehouse.write(folder / "numbers.parquet", as_parquet(numbers))
    warehouse.write(folder / "tables.md", text.encode())
    warehouse.write(report, page(name, contrast, made, ids, simulated).encode())
    leave_text(name, "experiment", text)
    show_sentences(opening)
    show(made)
    print(f"tables: {warehouse.shown(folder)}\nreport: {warehouse.shown(report)}")
    return folder


def read_arm(name: str, run: Run, sizes: Iterable[int] = ()) -> ExperimentArm:
    """A finished run as an arm; sizes: numbers of labels to calibrate it on anew.

    UserError where its items have different scales: agreement over all of them would mean nothing.
    """
    study, parts, scales = read_finished(run)
    if len(set(scales.values())) > 1:
        raise UserError(f"arm '{name}': its items have different scales; take those of one scale with 'where'")
    scores = score_frame(parts, study.evaluation.target, ("train", "calibration", "test")).frame
    gradings = run.table(Gradings, "judge", ["response_id", "rater_kind", "status", "signals"]).to_pandas()
    return ExperimentArm(
        name=name,
        scores=scores,
        gradings=gradings.assign(signals=list(map(dict, gradings["signals"]))),
        # Those of a jury are its jurors'.
        attempts=pd.concat(
            [run.table(Attempts, stage, CALLS).to_pandas() for stage in run.stages(Attempts)], ignore_index=True
        ),
        scale=next(iter(scales.values())),
        simulated=bool((gradings["rater_kind"] == "simulated").any()),
        resized={size: resized(run, study, scores, size) for size in sizes},
        metrics=run.table(Metrics, "evaluate", where=pc.field("slice") == "all").to_pandas(),
    )


def resized(run: Run, study: Study, scores: pd.DataFrame, size: int) -> pd.DataFrame | None:
    """The score frame with phase III fitted to the first `size` labelled responses of the calibration split, by the
    SHA-256 of seed and id; None where it has fewer. Sizes are nested, and what is held out stays the same."""
    responses = run.table(Responses, "ingest", ["response_id", "split", "author_id"])
    people = run.table(Gradings, "ingest", GIVEN)
    target = study.evaluation.target
    seed = study.split.seed
    labelled = target_scores(people, target)["response_id"].combine_chunks()
    calibrates = pc.equal(responses["split"], "calibration")
    names = responses["response_id"].filter(pc.and_(calibrates, pc.is_in(responses["response_id"], labelled)))
    if len(names) < size:
        return None
    ordered = sorted(names.to_pylist(), key=lambda name: digest_bytes(f"{seed}:{name}"))
    chosen = pc.is_in(responses["response_id"], pa.array(ordered[:size], pa.string()))
    splits = pc.if_else(pc.and_(calibrates, pc.invert(chosen)), "train", responses["split"])
    judged = run.ref(Gradings, "judge")
    graded = graded_items(
        item_bundles(run), run.read(judged, GRADING), responses.set_column(1, "split", splits), people, target
    )
    by_phase_three = study.model_copy(update={"calibration": study.calibration.model_copy(update={"method": "rulers"})})
    fitted = fit_items(graded, only_rater(counted(run, judged, "rater_id")), by_phase_three)
    predicted = pa.concat_tables(
        predict(fitted.mappings[item.item_id], item).select(["response_id", "score"])
        for item in graded
        if len(item.rows)
    ).to_pandas()
    return scores.assign(calibrated=scores["response_id"].map(predicted.set_index("response_id")["score"]))
