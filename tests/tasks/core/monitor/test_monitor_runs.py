"""Flows and tasks are plain calls where no server is named: none is started, and nothing is left anywhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prefect import Flow, Task
from prefect.settings import PREFECT_API_URL, PREFECT_SERVER_EPHEMERAL_ENABLED, temporary_settings
from prefect.states import Failed

from rubricflow.tasks.core.contracts.errors import InputError, StoppedError
from rubricflow.tasks.core.monitor import artifacts
from rubricflow.tasks.core.monitor.artifacts import announce, artifact_key, leave_table, leave_text, saying
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce, is_transient, is_watched, log, task
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.judge.task import judge


@task(task_run_name="double")
def double(number: int) -> int:
    """Twice a number."""
    leave_text("study-0123456789", "text", "# text")
    leave_table("study-0123456789", "table", [{"a": 1}])
    announce("rubricflow.gate.missed", "study-0123456789", gates=["qwk"])
    saying("study-0123456789", "judge")("half of it", 0.5)
    return 2 * number


@flow(name="quadruple", flow_run_name="{number}")
def quadruple(number: int) -> str:
    """Four times a number, as text."""
    introduce("study", flow="quadruple")
    log(f"{number} comes in")
    return completed(str(double(double(number))), "done")


@pytest.fixture
def no_server() -> Iterator[None]:
    """Whoever asks for a client of Prefect's has made a mistake: there is no server, and none may be started."""
    with temporary_settings({PREFECT_API_URL: None, PREFECT_SERVER_EPHEMERAL_ENABLED: False}):
        yield


@pytest.mark.usefixtures("no_server")
def test_without_a_server_a_flow_is_a_function(capsys: pytest.CaptureFixture[str]) -> None:
    assert not is_watched()
    assert quadruple(3) == "12"
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "3 comes in\nhalf of it\nhalf of it\n")


@pytest.mark.usefixtures("no_server")
def test_an_error_in_a_plain_flow_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise RuntimeError("Failed to reach API, says somebody else")

    monkeypatch.setattr(artifacts, "in_run", failing)
    with pytest.raises(RuntimeError, match="somebody else"):
        quadruple(3)


def test_a_server_that_is_named_watches() -> None:
    with temporary_settings({PREFECT_API_URL: "http://127.0.0.1:4200/api"}):
        assert is_watched()


def test_deployments_find_prefects_own_kinds() -> None:
    assert isinstance(quadruple, Flow)
    assert isinstance(double, Task)


@pytest.mark.parametrize(
    ("run_id", "key"),
    [
        ("My_Study-0123456789", "my-study-summary"),
        ("two-words-0123456789", "two-words-summary"),
        ("nodash", "nodash-summary"),
    ],
)
def test_artifacts_are_keyed_by_study(run_id: str, key: str) -> None:
    assert artifact_key(run_id, "summary") == key


@pytest.mark.parametrize(
    ("error", "again"),
    [
        (StoppedError("the server answers 503", passing=True), True),
        (StoppedError("the key is wrong", passing=False), False),
        (InputError("row 3 is wrong"), False),
        (KeyError("x"), False),
    ],
)
def test_only_what_may_pass_by_itself_is_tried_again(error: Exception, again: bool) -> None:
    assert is_transient(None, None, Failed(data=error)) == again


def test_the_judge_alone_is_tried_again_and_the_longer_the_later() -> None:
    assert (judge.retries, judge.retry_delay_seconds) == (3, [60, 300, 900])
    assert ingest.retries == 0
