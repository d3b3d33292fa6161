"""Where a run is worked: it names no run, changes no dump, and a wrong word is told in words."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from rubricflow.flows.plan import check_places, plan, with_placement
from rubricflow.tasks.core.contracts import errors
from rubricflow.tasks.core.contracts.errors import BackendError, InputError, InputErrors, StoppedError, UserError
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.llm.request import Reply

STUDY = """
name: placed
data: {sources: [{file: none.csv}]}
rubrics: {derive: {origin: reference_answer, scale: {min: 0, max: 5}}}
"""
RUNS = ("", "run: {engine: local}", "run: {engine: dask, workers: 3}", "run: {engine: ray, address: 'head:6379'}")


def written(tmp_path: Path, run: str) -> Path:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY + run)
    return path


def test_no_engine_changes_the_run(tmp_path: Path) -> None:
    jobs = [plan(written(tmp_path, run), tmp_path / "house") for run in RUNS]
    assert len({job.study.run for job in jobs}) == 3
    assert len({job.run.run_id for job in jobs}) == 1
    assert [job.identity for job in jobs] == [jobs[0].identity] * 4
    assert "run" not in jobs[0].study.model_dump()


@pytest.mark.parametrize(
    ("engine", "address", "expected"),
    [
        (None, None, Placement(engine="dask", address="tcp://a:1")),
        ("local", None, HERE),
        ("ray", None, Placement(engine="ray")),
        (None, "b:2", Placement(engine="dask", address="b:2")),
        ("dask", "b:2", Placement(engine="dask", address="b:2")),
        ("ray", "b:2", Placement(engine="ray", address="b:2")),
    ],
)
def test_the_command_wins(tmp_path: Path, engine: str | None, address: str | None, expected: Placement) -> None:
    job = plan(written(tmp_path, "run: {engine: dask, address: 'tcp://a:1'}"), tmp_path / "house")
    changed = with_placement(job, engine, address)
    assert changed.study.run == expected
    assert changed.run == job.run
    assert changed.identity == job.identity


@pytest.mark.parametrize(
    ("run", "words"),
    [
        ("run: {engine: spark}", "'local', 'dask' or 'ray'"),
        ("run: {workers: 2}", "engine: local works in this process"),
        ("run: {engine: ray, address: auto}", "'auto' is no address of a cluster"),
        ("run: {engine: dask, address: head}", "'head' is no address of a cluster; write host:port"),
        ("run: {engine: dask, workers: 0}", "greater than or equal to 1"),
    ],
)
def test_what_there_cannot_be_is_told(tmp_path: Path, run: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        load_study(written(tmp_path, run))


def test_a_wrong_word_of_the_command_is_told(tmp_path: Path) -> None:
    job = plan(written(tmp_path, ""), tmp_path / "house")
    with pytest.raises(InputError, match="'local', 'dask' or 'ray'"):
        with_placement(job, "spark", None)
    with pytest.raises(InputError, match="engine: local works in this process"):
        with_placement(job, None, "head:8786")


@pytest.mark.parametrize(
    ("address", "host", "elsewhere"),
    [
        ("tcp://head:8786", ("head", 8786), True),
        ("ray://10.0.0.7:10001/", ("10.0.0.7", 10001), True),
        ("127.0.0.1:6379", ("127.0.0.1", 6379), False),
        ("tcp://[::1]:8786", ("::1", 8786), False),
    ],
)
def test_an_address_has_a_host_and_a_port(address: str, host: tuple[str, int], elsewhere: bool) -> None:
    placement = Placement(engine="dask", address=address)
    assert (placement.host, placement.is_elsewhere) == (host, elsewhere)


@pytest.mark.parametrize(
    ("url", "patience_s", "refused"),
    [
        ("http://no-such-host.invalid/v1", 300, True),
        ("http://127.0.0.1:9/v1", 300, False),  # it may be starting
    ],
)
def test_a_model_s_server_that_is_not_there_is_told_before_anything_is_read(
    tmp_path: Path, url: str, patience_s: float, refused: bool
) -> None:
    engine = f"{{model: m, urls: ['{url}'], patience_s: {patience_s}}}"
    job = plan(written(tmp_path, f"judge: {{protocol: dhs, backend: openai, engine: {engine}}}"), tmp_path / "house")
    if refused:
        with pytest.raises(BackendError, match=url):
            check_places(job)
    with open_replies(job.run.warehouse.replies) as replies:
        replies.put_many([("a", "m", Reply(text="x", latency_s=1.0))])
    check_places(job)  # all replies may be stored


def every_error() -> list[UserError]:
    fault = InputError("is blank", file="answers.csv", line=3, field="text", hint="fill it")
    plain = [getattr(errors, name)("words") for name in ("UserError", "ContractError", "StoreError", "BackendError")]
    return [*plain, fault, InputErrors([fault, fault], 9), StoppedError("the server is full", passing=True)]


@pytest.mark.parametrize("error", every_error(), ids=lambda error: type(error).__name__)
def test_an_error_of_a_worker_is_the_same_here(error: UserError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), vars(back).keys()) == (type(error), str(error), vars(error).keys())
