"""A parent that watches the command: where an engine's library ends the process, somebody is left to say what to do."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

from tasks.contracts.errors import UserError
from tasks.contracts.settings.study import load_study

LAST_WORDS = (
    "rubricflow: the process that drove the run ended without finishing it ({how}). Where the lines above speak of "
    "GCS, Ray's head is gone: start it again (ray start --head). What is finished stays, and the same command goes on"
)
_TOLD = frozenset({0, 2})
"""Exit codes of a command that has said by itself how it ended."""


def watch_engine(study: Path, engine: str | None) -> None:
    """Goes on in a child process where Ray works the study: a minute after Ray lost its head, it ends its driver's
    process, and no handler of Python's runs."""
    if _engine(study, engine) == "ray":
        go_on_in_child()


def go_on_in_child() -> None:
    """Returns in a child; the parent waits for it and ends as it did, with words where the child had none."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda signal_number, _: os.kill(child, signal_number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to both
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in _TOLD and code not in (-signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP):
        how = f"exit code {code}" if code > 0 else f"by {signal.Signals(-code).name}"
        print(LAST_WORDS.format(how=how), file=sys.stderr, flush=True)
    os._exit(code if code >= 0 else 128 - code)


def _engine(study: Path, engine: str | None) -> str | None:
    """The engine that the command, or else the study, names; None for a study that cannot be read, as is told later."""
    if engine is None:
        with suppress(UserError):
            return load_study(study).run.engine
    return engine
