"""An experiment: every arm is an ordinary run of the warehouse; then tables and figures over all of them."""

from __future__ import annotations

from pathlib import Path

from prefect import flow, task
from prefect.artifacts import create_link_artifact, create_markdown_artifact

from flows.arms import read_arm
from flows.grade import stages
from flows.logs import without_tracebacks
from flows.plan import planned, record
from flows.server import own_server
from tasks.contracts.schema import conform
from tasks.contracts.settings.experiment import Planned, load_experiment
from tasks.contracts.tables.experiment import Numbers
from tasks.display.printed import markdown, show
from tasks.display.table import records
from tasks.evaluate.experiment.tables import tables
from tasks.report.experiment.page import page
from tasks.store.part import as_parquet
from tasks.store.recorded import read_manifest
from tasks.store.warehouse import Run, Warehouse, write_atomically

without_tracebacks()
own_server()

FOLDER = "experiments"
"""Where a warehouse keeps what was made of several runs: <name>/numbers.parquet, tables.md and report.html."""


@flow(name="experiment", flow_run_name="{file}")
def experiment(file: str, warehouse: str = "data/warehouse", limit: int | None = None) -> str:
    """Run every arm of an experiment file and make its tables; returns the folder that holds them.

    Arms that finished are passed over, an interrupted one goes on where it stopped.
    """
    plan = load_experiment(Path(file))
    runs = {arm: _run(plan, arm, warehouse, limit) for arm in plan.studies}
    for name, run in runs.items():
        if is_finished(run):
            print(f"arm {name}: finished, {run.run_id}")
        else:
            arm(file, name, warehouse, limit)
    return str(conclude(plan, runs))


@flow(name="arm", flow_run_name="{name}")
def arm(file: str, name: str, warehouse: str = "data/warehouse", limit: int | None = None) -> str:
    """Grade one arm of an experiment file; returns the run's id."""
    plan = load_experiment(Path(file))
    job = planned(plan.studies[name], plan.base, warehouse, limit)
    record(job, stages(job))
    return job.run.run_id


@task(task_run_name="tables")
def conclude(plan: Planned, runs: dict[str, Run]) -> Path:
    """Write and print the tables of finished runs; leave them as artifacts in the Prefect UI."""
    name, house = plan.experiment.name, next(iter(runs.values())).warehouse
    size = plan.experiment.tables.calibration_size
    arms = {one: read_arm(one, run, size.sizes if size and one in size.arms else ()) for one, run in runs.items()}
    reference = next(iter(plan.studies.values())).evaluation.target
    made, ids = tables(arms, plan.experiment, reference), {one: run.run_id for one, run in runs.items()}
    folder = house.root / FOLDER / name
    numbers = as_parquet(conform(Numbers, [row for table in made for row in records(table)]))
    simulated = any(one.simulated for one in arms.values())
    text, report = markdown(name, made, ids), folder / "report.html"
    write_atomically(folder / "numbers.parquet", numbers)
    write_atomically(folder / "tables.md", text.encode())
    write_atomically(report, page(name, made, ids, simulated).encode())
    create_link_artifact(report.resolve().as_uri(), link_text="tables", key="experiment-report", description=name)
    create_markdown_artifact(text, key="experiment-tables")
    show(made)
    print(f"tables: {folder}\nreport: {report}")
    return folder


def is_finished(run: Run) -> bool:
    """Whether the run's manifest, which is written last, is there."""
    return (run.folder / "manifest.json").is_file() and bool(read_manifest(run))


def _run(plan: Planned, name: str, warehouse: str, limit: int | None) -> Run:
    return planned(plan.studies[name], plan.base, Warehouse.open(warehouse).root, limit).run


if __name__ == "__main__":
    experiment("data/experiments/gradeagentops.yaml")
