"""docs/scheduled-runs.md to the letter: a server, a worker, a run by hand, a failing checkpoint."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest
import yaml
from builders.command import last_run
from builders.loopback import free_port
from builders.waiting import until
from prefect.flows import load_flow_from_entrypoint
from tiny_study import make_study

from rubricflow.flows.checkout import find_checkout
from rubricflow.flows.plan import plan
from rubricflow.flows.stage import references
from rubricflow.tasks.core.contracts.tables import BY_NAME
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.grading.ingest.task import ingest

HOUSE = Path(__file__).resolve().parents[2]
GUIDE = HOUSE / "docs" / "scheduled-runs.md"
PATIENCE_S = 300
"""For how long one step may take on a busy machine."""


def test_every_deployment_loads_and_takes_its_parameters() -> None:
    for deployment in yaml.safe_load((HOUSE / "prefect.yaml").read_text())["deployments"]:
        flow = load_flow_from_entrypoint(str(HOUSE / deployment["entrypoint"]))
        flow.validate_parameters(deployment["parameters"])
        study = deployment["parameters"].get("study")
        assert study is None or (HOUSE / study).is_file()


def test_the_checkout_is_found_or_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUBRICFLOW_HOME", raising=False)
    monkeypatch.chdir(tmp_path)
    assert find_checkout() == {"directory": str(HOUSE)}
    monkeypatch.setenv("RUBRICFLOW_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="RUBRICFLOW_HOME"):
        find_checkout()
    (tmp_path / "prefect.yaml").touch()
    assert find_checkout() == {"directory": str(tmp_path)}


class Guided(NamedTuple):
    """What the guide's commands have started."""

    api: httpx.Client
    warehouse: Path
    worker_log: Path
    type: Callable[[str], None]
    """Types a command in the terminal in which the guide's commands are typed."""


@pytest.fixture(scope="module")
def guided(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guided]:
    """Types the guide's block of commands in the checkout, in terminals of its own where the guide says so.

    Another port, a home of Prefect's, a warehouse of the test's own, shorter waits and more patience are all that
    differs from the guide.
    """
    folder = tmp_path_factory.mktemp("guided")
    port = str(free_port())
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "RUBRICFLOW_"))
    }
    environment |= {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_API_PORT": port}
    environment |= {"PREFECT_WORKER_QUERY_SECONDS": "2", "PREFECT_API_REQUEST_TIMEOUT": str(PATIENCE_S)}
    environment |= {f"PREFECT_SERVER_DATABASE_{name}TIMEOUT": str(PATIENCE_S) for name in ("", "CONNECTION_")}
    api = httpx.Client(base_url=f"http://127.0.0.1:{port}/api/", timeout=PATIENCE_S)
    terminals: list[subprocess.Popen[bytes]] = []

    def typed(command: str) -> None:
        words = shlex.split(command.replace("4200", port), comments=True)
        if words[0] == "export":
            environment.update([words[1].split("=", 1)])
            return
        assert words[0] == ".venv/bin/prefect"
        words[0] = str(Path(sys.executable).with_name("prefect"))
        if words[1:3] == ["deployment", "run"]:
            words += ["--param", f"warehouse={folder / 'house'}"]
        if words[2] == "start":
            with (folder / f"{words[1]}.log").open("wb") as log:
                own: Any = {"cwd": HOUSE, "env": environment, "stdout": log, "stderr": log, "start_new_session": True}
                terminals.append(subprocess.Popen(words, **own))
            if words[1] == "server":
                until(lambda: _answers(api))
            return
        done = subprocess.run(words, cwd=HOUSE, env=environment, capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr

    try:
        block = GUIDE.read_text().partition("```sh\n")[2].partition("```")[0]
        for line in block.splitlines():
            typed(line)
        yield Guided(api, folder / "house", folder / "worker.log", typed)
    finally:
        api.close()
        for terminal in reversed(terminals):
            with suppress(ProcessLookupError):
                os.killpg(terminal.pid, signal.SIGKILL)
            terminal.wait()
        for process in psutil.process_iter():  # runs that the worker had begun, in sessions of their own
            with suppress(psutil.Error):
                if process.environ().get("PREFECT_HOME") == environment["PREFECT_HOME"]:
                    process.kill()


def test_the_run_that_the_guide_starts_completes_on_the_worker(guided: Guided) -> None:
    run = _ended(guided, lambda run: not run["auto_scheduled"])
    assert run["state_type"] == "COMPLETED", guided.worker_log.read_text()
    assert (last_run(guided.warehouse).folder / "report.html").is_file()


def test_a_failing_checkpoint_sets_its_automation_off(guided: Guided, tmp_path: Path) -> None:
    """Ingest left the same item twice, as no ingest would; the worker's run passes over the finished stage."""
    guided.type(".venv/bin/prefect automation create --from-file automations.yaml")
    study, house = make_study(tmp_path / "study"), tmp_path / "house"
    job = plan(str(study), str(tmp_path / "sound house"))
    rows = {
        BY_NAME[ref.table]: job.run.read(ref).to_pylist()
        for ref in references(ingest.fn(job.run, job.study, job.base, job.limit))
    }
    rows[Items] += rows[Items][:1]
    plan(str(study), str(house)).run.commit("ingest", "all", rows)
    deployment = _asked(guided, "GET", "deployments/name/grade/grade")
    parameters = {"study": str(study), "warehouse": str(house)}
    made = _asked(guided, "POST", f"deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
    run = _ended(guided, lambda run: run["id"] == made["id"])
    assert run["state_type"] == "FAILED", guided.worker_log.read_text()
    assert "checkpoint" in run["state"]["message"]
    named = {"event": {"name": ["prefect.automation.triggered"]}}

    def names() -> list[str]:
        found = _asked(guided, "POST", "events/filter", {"filter": named})["events"]
        return [event["resource"]["prefect.resource.name"] for event in found]

    until(lambda: "rubricflow checkpoint failed" in names())


def _answers(api: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return api.get("health").is_success
    return False


def _asked(guided: Guided, method: str, path: str, content: object = None) -> Any:
    """What the server answers; while its database is locked by the worker it says 503, and is asked again."""
    give_up = time.monotonic() + PATIENCE_S
    while (reply := guided.api.request(method, path, json=content)).status_code == httpx.codes.SERVICE_UNAVAILABLE:
        assert time.monotonic() < give_up, reply.text
        time.sleep(0.5)
    return reply.raise_for_status().json()


def _ended(guided: Guided, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first of the runs that are wanted, once it has ended."""

    def found() -> list[dict[str, Any]]:
        runs = _asked(guided, "POST", "flow_runs/filter", {"sort": "EXPECTED_START_TIME_ASC"})
        return [run for run in runs if wanted(run)][:1]

    def has_ended() -> bool:
        return any(run["state_type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED") for run in found())

    until(has_ended)
    return found()[0]
