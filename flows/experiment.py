"""An experiment: every arm is an ordinary run of the warehouse; then tables and figures over all of them."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

from rubricflow.flows.arms import read_arm
from rubricflow.flows.grade import stages
from rubricflow.flows.logs import without_tracebacks
from rubricflow.flows.plan import planned, record
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.experiment import Planned, load_experiment
from rubricflow.tasks.core.contracts.tables.evaluation import Numbers
from rubricflow.tasks.core.display.printed import markdown, show, show_ending
from rubricflow.tasks.core.display.table import records
from rubricflow.tasks.core.monitor.artifacts import leave_text
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce, log, task
from rubricflow.tasks.core.store.part import as_parquet
from rubricflow.tasks.core.store.recorded import read_manifest
from rubricflow.tasks.core.store.warehouse import ARMS, EXPERIMENTS, Run, Warehouse
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan as Bootstrap
from rubricflow.tasks.grading.evaluate.experiment.contrast import main_contrast
from rubricflow.tasks.grading.evaluate.experiment.tables import tables
from rubricflow.tasks.grading.report.task import refuse_unscored
from rubricflow.tasks.methods.report.experiment import page

without_tracebacks()


@flow(name="experiment", flow_run_name="{file}")
def experiment(file: str, warehouse: str = "data/warehouse", limit: int | None = None) -> str:
    """Run every arm of an experiment file and make its tables; returns the folder that holds them: numbers.parquet,
    tables.md, report.html and arms.json.

    Arms that finished are passed over, an interrupted one goes on where it stopped.
    """
    plan = load_experiment(Path(file))
    introduce(plan.experiment.name, flow="experiment")
    runs = {arm: _run(plan, arm, warehouse, limit) for arm in plan.studies}
    ids = {name: run.run_id for name, run in runs.items()}
    house = Warehouse.open(warehouse)
    house.write(house.root / EXPERIMENTS / plan.experiment.name / ARMS, json.dumps(ids).encode())
    for name, run in runs.items():
        if is_finished(run):
            log(f"arm {name}: finished, {run.run_id}")
        else:
            arm(file, name, warehouse, limit)
    shown = conclude(plan, runs)
    for run in runs.values():
        refuse_unscored(run)
    return str(shown)


@flow(name="arm", flow_run_name="{name}")
def arm(file: str, name: str, warehouse: str = "data/warehouse", limit: int | None = None) -> str:
    """Grade one arm of an experiment file; returns the run's id."""
    plan = load_experiment(Path(file))
    job = planned(plan.studies[name], plan.base, warehouse, limit)
    introduce(job.study.name, flow="arm", experiment=plan.experiment.name, backend=job.study.judge.backend)
    record(job, stages(job))
    return completed(job.run.run_id, f"arm {name} graded")


@task(task_run_name="tables")
def conclude(plan: Planned, runs: dict[str, Run]) -> Path:
    """Write and print the tables of finished runs; leave them as artifacts in the Prefect UI."""
    name, house = plan.experiment.name, next(iter(runs.values())).warehouse
    size = plan.experiment.tables.calibration_size
    resized = dict.fromkeys(size.arms, size.sizes) if size else {}
    arms = {arm_name: read_arm(arm_name, run, resized.get(arm_name, ())) for arm_name, run in runs.items()}
    reference = next(iter(plan.studies.values())).evaluation.target
    experiment_tables = tables(arms, plan.experiment, reference)
    ids = {arm_name: run.run_id for arm_name, run in runs.items()}
    folder = house.root / EXPERIMENTS / name
    numbers = as_parquet(conform(Numbers, chain.from_iterable(map(records, experiment_tables))))
    simulated = any(arm_name.simulated for arm_name in arms.values())
    contrast = main_contrast(arms, plan.experiment, Bootstrap(plan.experiment.draws, plan.experiment.seed))
    text, report = markdown(name, contrast, experiment_tables, ids), folder / "report.html"
    house.write(folder / "numbers.parquet", numbers)
    house.write(folder / "tables.md", text.encode())
    house.write(report, page(name, contrast, experiment_tables, ids, simulated).encode())
    leave_text(name, "experiment", text)
    show_ending([contrast] if contrast else [], "", (), ())
    show(experiment_tables)
    print(f"tables: {house.shown(folder)}\nreport: {house.shown(report)}")
    return folder


def is_finished(run: Run) -> bool:
    """Whether the run's manifest, which is written last, is there."""
    return run.fetched("manifest.json").is_file() and bool(read_manifest(run))


def _run(plan: Planned, name: str, warehouse: str, limit: int | None) -> Run:
    return planned(plan.studies[name], plan.base, Warehouse.open(warehouse).root, limit).run


if __name__ == "__main__":
    experiment("data/experiments/gradeagentops.yaml")
