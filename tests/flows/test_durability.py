"""A killed run is made good, a full disk or a broken warehouse is named, and runs at once leave each other alone.

All in processes of their own, see kill_driver.py; tests/studies/kills.py goes through every point.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kill_driver import FULL, KILLS

DRIVER = Path(__file__).with_name("kill_driver.py")
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to see which file is written")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, str(DRIVER), str(tmp_path_factory.mktemp("kills"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("point", KILLS)
def test_a_killed_run_ends_as_if_it_had_not_been_and_asks_nothing_twice(results: dict[str, Any], point: str) -> None:
    found = results[point]
    assert found["killed"]
    assert found["ended"], found["log"]
    assert (found["equal"], found["twice"], found["again"], found["left"]) == (True, 0, 0, [])


@pytest.mark.parametrize("point", FULL)
def test_a_full_disk_is_named_and_the_run_goes_on_when_it_is_freed(results: dict[str, Any], point: str) -> None:
    found = results[point]
    assert found["code"] == 2
    assert "cannot write " in found["said"]
    assert "No space left on device" in found["said"]
    assert "Traceback" not in found["said"]
    assert found["left"] == []
    assert found["ended"], found["log"]
    assert (found["equal"], found["twice"]) == (True, 0)


def test_a_disk_that_is_too_small_is_named_wherever_it_is_full(results: dict[str, Any]) -> None:
    found = results["small disk"]
    if found is None:
        pytest.skip("needs to mount a disk, which only root may on a Linux machine")
    for code, said, left in found["seen"]:
        assert (code, left) == (2, [])
        assert "No space left on device" in said or "database or disk is full" in said
        assert "Traceback" not in said
    assert found["ended"], found["log"]
    assert (found["equal"], found["twice"]) == (True, 0)


SAID = {
    "a lost shard": "/judgments/judge/00000.parquet is lost, and its shard is marked as done; remove ",
    "a shard cut off": "/responses/ingest/00000.parquet cannot be read: ",
    "a done-mark cut off": "/_done/judge/00000.json: this done-mark cannot be read: ",
    "a table of an older version": ".parquet was written by another version of rubricflow: its table differs in route",
    "a reply store of something else": "/replies.sqlite: the reply store cannot be used: the file is a database of",
    "a corrupt reply store": "/replies.sqlite: the reply store cannot be used: database disk image is malformed; bring",
    "a foreign folder": " holds other things and is no rubricflow warehouse; name an empty or new folder",
    "a newer format": " has format 9; this version reads format 1: use the version of rubricflow that made it",
    "a file in place of the run": "cannot write ",
}


@pytest.mark.parametrize("harm", SAID)
def test_a_warehouse_that_cannot_be_used_ends_with_2_and_one_message(results: dict[str, Any], harm: str) -> None:
    found = results[harm]
    assert found["code"] == 2
    assert SAID[harm] in found["said"]
    assert sum(line.startswith("rubricflow: ") for line in found["said"].splitlines()) == 1
    assert "Traceback" not in found["said"]
    assert not [name for name in found["new"] if name.endswith(".tmp") or name == "manifest.json"]


def test_runs_at_once_in_one_warehouse_end_as_runs_one_by_one(results: dict[str, Any]) -> None:
    found = results["together"]
    assert found["codes"] == [0, 0, 0], found["log"]
    assert (found["equal"], found["replies"], found["twice"]) == (True, True, 0)
