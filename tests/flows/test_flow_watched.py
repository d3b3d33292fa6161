"""A run as people see it in Prefect: name, tags, what came of it, one line a stage, artifacts and events."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import loopback
from builders.bundles import bundle, criterion
from builders.cases import to_judge
from builders.waiting import until
from prefect import flow as prefect_flow
from prefect.blocks.system import Secret
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId, LogFilter, LogFilterFlowRunId
from prefect.events.schemas.automations import AutomationCore
from prefect.exceptions import Pause
from prefect.flow_engine import run_flow
from prefect.flow_runs import resume_flow_run
from prometheus_client.parser import text_string_to_metric_families
from tiny_study import make_study

from rubricflow.flows.grade import grade
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.engine import HERE, Engine, Placement
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.evaluation import Checks
from rubricflow.tasks.core.llm.calls import serve_meters
from rubricflow.tasks.core.llm.reply_store import looking
from rubricflow.tasks.core.monitor import artifacts, runs
from rubricflow.tasks.core.monitor.runs import ANSWERED, announce_answered, credential, introduce, wait_for_people
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.judge.task import judge

HOUSE = Path(__file__).resolve().parents[2]
ANSWERS, MODEL = 48, "metered"


@pytest.fixture(scope="module")
def events() -> list[tuple[str, dict[str, Any]]]:
    """Events that were emitted, by name."""
    return []


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, prefect_server: None, events: list[Any]) -> Run:
    """The tiny study, graded under a server's eyes."""
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            artifacts, "emit_event", lambda name, resource, payload: events.append((name, resource | payload))
        )
        run_id = grade(str(make_study(folder)), str(folder / "house"))
    return Warehouse.open(folder / "house").run(run_id)


def flow_run() -> Any:
    """The flow run of the study."""
    with get_client(sync_client=True) as client:
        (found,) = [one for one in client.read_flow_runs() if "flow:grade" in one.tags]
        return found


def test_the_run_is_called_after_its_study_and_says_what_came_of_it(watched: Run) -> None:
    found = flow_run()
    assert found.name == "tiny"
    assert set(found.tags) == {"study:tiny", "flow:grade", "backend:replay"}
    assert found.state.is_completed()
    assert " released" in found.state.message


def test_every_stage_has_one_line_with_its_rows(watched: Run) -> None:
    found, lines = flow_run(), list[str]()
    stages = ("ingest", "lock", "judge", "calibrate", "evaluate")

    def has_come() -> bool:
        with get_client(sync_client=True) as client:
            logs = client.read_logs(LogFilter(flow_run_id=LogFilterFlowRunId(any_=[found.id])), limit=200)
        lines[:] = [log.message for log in logs]
        return any(line.startswith("evaluate: ") for line in lines)

    until(has_come)  # logs are sent by the second
    for stage in stages:
        (line,) = [line for line in lines if line.startswith(f"{stage}: ") and "quarantined" in line]
        assert "0 quarantined" in line
    assert any("40 responses" in line or "responses" in line for line in lines)


def test_artifacts_are_the_studys_and_open_with_the_verdict(watched: Run) -> None:
    with get_client(sync_client=True) as client:
        only = FlowRunFilter(id=FlowRunFilterId(any_=[flow_run().id]))
        found = {artifact.key: artifact for artifact in client.read_artifacts(flow_run_filter=only)}
    assert {"tiny-summary", "tiny-metrics"} <= found.keys()
    assert str(found["tiny-summary"].data).startswith(f"# {flow_run().state.message}")


def test_missed_gates_are_an_event_that_an_automation_waits_for(watched: Run, events: list[Any]) -> None:
    waited = {name for core in automations() for name in core.trigger.expect}
    assert {name for name, _ in events} <= waited
    named = ("checkpoint.failed", "gate.missed", "drift.found", "queue.answered")
    assert waited == {f"rubricflow.{name}" for name in named}
    missed = "gates missed" in flow_run().state.message or "gate missed" in flow_run().state.message
    assert bool(events) == missed


def test_checks_are_kept_as_without_a_server(watched: Run) -> None:
    assert watched.ref(Checks, "check-judge").rows > 0


def automations() -> list[Any]:
    """What `prefect automation create --from-file automations.yaml` makes."""
    return [
        AutomationCore.model_validate(row)
        for row in yaml.safe_load((HOUSE / "automations.yaml").read_text())["automations"]
    ]


def test_a_deployed_run_is_suspended_and_resumed_by_the_event(
    prefect_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, dict[str, str], list[dict[str, str]]]] = []
    monkeypatch.setattr(runs, "emit_event", lambda name, about, related: told.append((name, about, related)))
    left = [True, True, False]

    @prefect_flow
    def chain() -> str:
        introduce("concepts", flow="pipeline")
        return wait_for_people("run-1", "concepts", "2 cases wait") if left.pop(0) else "graded"

    with get_client(sync_client=True) as client:
        deployment = client.create_deployment(client.create_flow(chain), name="concepts")
        first, nightly = (client.create_flow_run_from_deployment(deployment) for _ in range(2))
        with pytest.raises(Pause):  # which ends the process, and no more
            run_flow(chain, flow_run=first)
        assert client.read_flow_run(first.id).state_name == "Suspended"
        assert run_flow(chain, flow_run=nightly) == "run-1"  # it does not wait beside the first
        announce_answered({"another study"})
        assert told == []
        announce_answered({"concepts"})
        ((name, about, (run,)),) = told
        assert run["prefect.resource.id"] == f"prefect.flow-run.{first.id}"
        (core,) = [core for core in automations() if ANSWERED in core.trigger.expect]
        assert name == ANSWERED
        (wanted,) = core.trigger.match["prefect.resource.id"]
        assert about["prefect.resource.id"].startswith(wanted[:-1])
        assert [action.type for action in core.actions] == ["resume-flow-run"]
        resume_flow_run(first.id)
        assert run_flow(chain, flow_run=client.read_flow_run(first.id)) == "graded"


def test_a_credential_is_a_variable_or_a_secret_block(prefect_server: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "of the environment")
    monkeypatch.delenv("NO_KEY", raising=False)
    Secret(value="of the block").save("judge-key")
    held = [credential(name) for name in ("MY_KEY", "NO_KEY", "block:judge-key")]
    assert held == ["of the environment", None, "of the block"]
    with pytest.raises(BackendError, match="no secret block named 'nowhere'"):
        credential("block:nowhere")


@pytest.fixture
def meters(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    port = str(loopback.free_port())
    monkeypatch.setenv("RUBRICFLOW_METERS", port)
    serve_meters.cache_clear()
    serve_meters()
    yield f"http://127.0.0.1:{port}/metrics"
    serve_meters.cache_clear()


def calls_told(url: str) -> float:
    with urllib.request.urlopen(url) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    samples = {(s.name, s.labels.get("model")): s.value for family in families for s in family.samples}
    return samples.get(("rubricflow_judge_calls_total", MODEL), 0)


def test_workers_are_metered_while_they_work_and_a_lost_one_is_named_and_paid_for(
    tmp_path: Path,
    prefect_server: None,
    meters: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Processes, one of which is killed."""
    dask = pytest.importorskip("dask", reason="needs the extra 'dask'")
    distributed = pytest.importorskip("distributed", reason="needs the extra 'dask'")
    pytest.importorskip("prefect_dask", reason="needs the extra 'dask'")
    said = json.dumps({"decisions": {"P": {"evidence": [{"unit": "s1", "quote": "plants"}], "level": 1}}})
    held, go_on = threading.Event(), threading.Event()

    def play(n: int, body: dict[str, Any]) -> bytes:
        if n == ANSWERS + 20:
            held.set()
            go_on.wait(300)
        return loopback.http(200, loopback.body_of(said))

    server = loopback.Server(play, pause=0.1)
    engine = Engine(model=MODEL, urls=(server.url,), concurrency=4, structured=False)
    plan = Judge(protocol="rulers", backend="openai", engine=engine)
    texts = {"i1": {f"r{n:02d}": f"plants need light {n}" for n in range(ANSWERS)}, "i2": {"s1": ""}}
    given = {name: to_judge(Warehouse.open(tmp_path / name).run("run"), bundle(criterion("P")), texts) for name in "ab"}
    here = judge.fn(Warehouse.open(tmp_path / "a").run("run"), plan, tmp_path, *given["a"], placement=HERE)
    before, looks, killed = calls_told(meters), list[float](), list[int]()
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        distributed.utils.get_mp_context()
        multiprocessing.get_context("forkserver").set_forkserver_preload(
            ["distributed", "rubricflow.tasks.grading.judge.task"]
        )
        with (
            distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None) as cluster,
            distributed.Client(cluster) as client,
        ):

            def look() -> None:
                """Kills a worker when all is told that was answered before the server held up."""
                looks.append(calls_told(meters) - before)
                if held.is_set() and not killed and looks[-1] >= len(server.calls) - ANSWERS - server.in_flight:
                    killed.append(next(iter(client.run(os.getpid).values())))
                    os.kill(killed[0], signal.SIGKILL)
                    go_on.set()

            run, address = Warehouse.open(tmp_path / "b").run("run"), cluster.scheduler_address
            placement = Placement(engine="dask", address=address, piece=ANSWERS // 2)
            with looking(look, 0.2), caplog.at_level("INFO"):
                there = judge.fn(run, plan, tmp_path, *given["b"], placement=placement)
    server.close()
    assert [ref.digest for ref in there if ref] == [ref.digest for ref in here if ref]
    assert any(0 < calls < ANSWERS for calls in looks)
    (line,) = [line for line in caplog.messages if "was lost" in line]
    assert f"(process {killed[0]})" in line.partition(" was lost")[0]
    assert calls_told(meters) - before == ANSWERS  # what was under way when it was killed is asked again, and told once
