"""prefect.yaml: its deployments load, and the smoke deployment runs on a worker of the process work pool."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import yaml
from prefect.client.orchestration import get_client
from prefect.flows import load_flow_from_entrypoint
from prefect.settings import get_current_settings

from tasks.store.warehouse import Warehouse

HOUSE = Path(__file__).resolve().parents[2]


def test_every_deployment_loads_and_takes_its_parameters() -> None:
    for deployment in yaml.safe_load((HOUSE / "prefect.yaml").read_text())["deployments"]:
        flow = load_flow_from_entrypoint(str(HOUSE / deployment["entrypoint"]))
        flow.validate_parameters(deployment["parameters"])
        assert (HOUSE / deployment["parameters"]["study"]).is_file()


def test_the_smoke_deployment_runs_on_a_worker(tmp_path: Path, prefect_server: None) -> None:
    """The worker is started elsewhere, as on another machine: a variable says where its checkout is."""
    environment = os.environ | {"PREFECT_API_URL": str(get_current_settings().api.url), "RUBRICFLOW_POOL": "local"}
    command = [str(Path(sys.executable).with_name("prefect")), "--no-prompt"]

    def prefect(*words: str) -> None:
        done = subprocess.run(
            [*command, *words], cwd=HOUSE, env=environment, capture_output=True, text=True, timeout=180
        )
        assert done.returncode == 0, done.stdout + done.stderr

    prefect("work-pool", "create", "local", "--type", "process")
    prefect("deploy", "--name", "smoke")
    prefect("deployment", "run", "grade/smoke", "--param", f"warehouse={tmp_path / 'house'}")
    with (tmp_path / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            [*command, "worker", "start", "--pool", "local"],
            cwd=tmp_path,
            env=environment | {"RUBRICFLOW_HOME": str(HOUSE)},
            stdout=log,
            stderr=log,
        )
    try:
        state = _ended(240)
    finally:
        _stop(worker)
    assert state == "Completed", (tmp_path / "worker.log").read_text()
    house = Warehouse.open(tmp_path / "house")
    assert (house.run(house.runs()[-1]).folder / "report.html").is_file()


def _stop(worker: subprocess.Popen[bytes]) -> None:
    """Asks the worker to end; one that hangs, as Prefect's does while the run's process is just ending, is killed."""
    worker.terminate()
    try:
        worker.wait(15)
    except subprocess.TimeoutExpired:
        worker.kill()
        worker.wait()


def _ended(seconds: float) -> str | None:
    """The last state of the one run of a deployment, once it is a final one or the time is over."""
    give_up = time.monotonic() + seconds
    with get_client(sync_client=True) as client:
        while True:
            (run,) = [run for run in client.read_flow_runs() if run.deployment_id is not None]
            if (run.state and run.state.is_final()) or time.monotonic() > give_up:
                return run.state_name
            time.sleep(1)
