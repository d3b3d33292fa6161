"""The parent that watches a command: it ends as the command did, and says what to do where that could not."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[2]
STUDY = """
name: watched
data: {sources: [{file: none.csv}]}
rubrics: {derive: {origin: reference_answer, scale: {min: 0, max: 5}}}
"""


def ended(then: str, study: str) -> tuple[int, str, int]:
    """Exit code, last words, and how many processes there were, of a command that does this."""
    script = (
        "import os, signal, sys, time; from pathlib import Path; from flows.watching import watch_engine; "
        "first = os.getpid(); watch_engine(Path(sys.argv[1]), None); "
        f"print('processes', 1 + (os.getpid() != first), flush=True); {then}"
    )
    words = [sys.executable, "-c", script, study]
    done = subprocess.run(words, capture_output=True, text=True, cwd=HOUSE, timeout=60)
    return done.returncode, done.stderr, int(done.stdout.split()[1])


@pytest.fixture
def study(tmp_path: Path) -> str:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY + "run: {engine: ray}")
    return str(path)


@pytest.mark.parametrize(
    ("then", "code", "words"),
    [
        ("os._exit(1)", 1, "ended without finishing it (exit code 1)"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "ended without finishing it (by SIGKILL)"),
        ("os._exit(0)", 0, ""),
        ("os._exit(2)", 2, ""),
    ],
)
def test_the_parent_ends_as_the_command_did(study: str, then: str, code: int, words: str) -> None:
    returncode, said, processes = ended(then, study)
    assert (returncode, processes) == (code, 2)
    assert words in said
    assert ("same command goes on" in said) == bool(words)


def test_a_study_of_one_machine_has_no_parent(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    assert ended("os._exit(0)", str(path)) == (0, "", 1)
    assert ended("os._exit(0)", str(tmp_path / "missing.yaml")) == (0, "", 1)


def test_a_signal_is_passed_on(study: str) -> None:
    script = (
        "import sys, time; from pathlib import Path; from flows.watching import watch_engine; "
        "watch_engine(Path(sys.argv[1]), None); print('ready', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script, study], cwd=HOUSE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        started = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 128 + signal.SIGTERM
        assert time.monotonic() - started < 20
