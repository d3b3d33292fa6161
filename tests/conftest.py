"""Fixtures that several rooms share."""

from __future__ import annotations

import atexit
import gc
import importlib.util
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

os.environ |= {
    "PREFECT_API_URL": "",  # a server that a developer's settings name sees no run of the tests
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",  # figures are a processor's, in whose arithmetic the tests say how near is equal
    "PREFECT_API_REQUEST_TIMEOUT": "300",  # on a busy machine a server of Prefect answers late, and is waited for
    "PREFECT_SERVER_DATABASE_TIMEOUT": "300",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "300",
    "OMP_NUM_THREADS": "1",  # the models are tiny: a second thread waits more than it computes, twice under xdist
}

if importlib.util.find_spec("hypothesis"):  # the environment of tests/engines has none
    from hypothesis import HealthCheck, settings

    # A test that asks for more memory than all tests together need fails in its own line: the machine kills nothing.
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, resource.getrlimit(resource.RLIMIT_DATA)[1]))

    # Nothing is timed in a test. `make test` draws the same cases every time, plain pytest draws new ones.
    untimed: Any = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "max_examples": 30}
    settings.register_profile("plain", **untimed)
    settings.register_profile("repeatable", derandomize=True, **untimed)
    settings.load_profile("plain")

# Nothing waits for the disk: what survives a power cut no test can say.
os.fsync = lambda descriptor: None  # type: ignore[assignment]

if "PYTEST_XDIST_WORKER" in os.environ:
    atexit.register(os._exit, 0)  # pytest is over: to collect its objects would take each process seconds
atexit.register(gc.unfreeze)  # nanobind, under DuckDB, takes for leaks what is not collected at the end
gc.disable()  # until all tests are collected: what that imports stays, and would be gone through again and again

HOUSE = Path(__file__).resolve().parents[1]


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.freeze()  # pytest ends with a collection, and xdist interrupts a process that takes 5 s to end


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes name no test: those of an archive hold the time, and processes that collect other names run nothing."""
    return argname if isinstance(val, bytes) else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Says how a process of the tests ended that crashed (-9: also for want of memory)."""
    if error:
        with suppress(AttributeError, subprocess.TimeoutExpired):  # xdist names the test all the same
            print(f"\n{node.gateway.id} ended with exit code {node.gateway._io.popen.wait(10)}: {error}")


@pytest.fixture(scope="module")
def prefect_server() -> Iterator[None]:
    """A Prefect server of the tests' own. It costs seconds: a module asks for it only where Prefect is what is
    tested, and other modules' flows are plain calls."""
    import httpx
    from prefect.testing.utilities import prefect_test_harness

    with ExitStack() as server:
        with pytest.MonkeyPatch.context() as patch:  # the harness gives up a server whose first answer takes 5 s
            patch.setattr(httpx, "Client", partial(httpx.Client, timeout=300))
            server.enter_context(prefect_test_harness(server_startup_timeout=300))
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout; a test that needs it is skipped elsewhere."""
    folder = HOUSE.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("needs the real data sets in ../shared/data, which only this project's own machines have")
    return folder


@pytest.fixture
def serve() -> Iterator[Callable[..., Any]]:
    """serve(play, …): a server of `builders.loopback`, which is closed when the test ends."""
    from builders.loopback import Server

    with ExitStack() as servers:
        yield lambda *words, **more: servers.enter_context(closing(Server(*words, **more)))
