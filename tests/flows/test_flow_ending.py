"""However the command ends, nothing of it is left: no process, no port, no temporary file.

tests/studies/kills.py stops it in more ways and moments.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from left_driver import Left, stopped
from tiny_study import make_study

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").is_file(), reason="finds processes by /proc")

WAYS = (
    ("SIGKILL", "while it imports"),
    ("SIGTERM", "in the flow"),
)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Left]:
    folder = tmp_path_factory.mktemp("left")
    study = make_study(folder / "study")
    with ThreadPoolExecutor(2) as pool:
        return dict(zip(WAYS, pool.map(lambda way: stopped(study, folder, *way), WAYS), strict=True))


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_nothing_is_left_of_a_stopped_command(left: dict[tuple[str, str], Left], way: tuple[str, str]) -> None:
    found = left[way]
    assert found.code == -signal.Signals[way[0]]
    assert not [line for line in found.before if "prefect" in line.lower()]  # it has no server
    assert (found.processes, found.ports, found.files) == ([], [], [])
    assert found.nothing(), found.said
    assert "Traceback" not in found.said
    assert "the same command goes on" in found.said
    assert ("ended without finishing" in found.said) == (way[0] == "SIGKILL")  # nobody else could say it
