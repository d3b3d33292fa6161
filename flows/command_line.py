"""What commands share: their options, the rows they print, the words with which one names the next; and how each ends:
with its message, stopped by a signal as by Ctrl-C, and with nothing left in the temporary directory."""

from __future__ import annotations

import atexit
import csv
import inspect
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rubricflow.tasks.core.contracts.errors import StoreError, UserError

DEFAULT_WAREHOUSE = "data/warehouse"


def folder_or_bucket(text: str) -> str:
    """A folder; for a bucket the folder that mirrors it on this machine and is used in its place everywhere."""
    from rubricflow.tasks.core.contracts.errors import StoreError
    from rubricflow.tasks.core.store.objects import mirrored_in, url_of

    url = url_of(text)
    try:
        return str(mirrored_in(url)) if url else text
    except StoreError as error:
        raise typer.BadParameter(str(error)) from error


StudyFile = Annotated[str, typer.Argument(help="The study file (YAML).")]
WarehouseFolder = Annotated[
    str,
    typer.Option(
        "--warehouse",
        envvar="RUBRICFLOW_WAREHOUSE",
        parser=folder_or_bucket,
        metavar="FOLDER",
        help="Where runs are kept: a folder, or s3://bucket/prefix.",
    ),
]
RunId = Annotated[str | None, typer.Argument(help="Run id; the latest one if not given.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="Only N responses of each item, drawn by chance.")]
TokenLimit = Annotated[
    int | None,
    typer.Option(
        "--token-budget", min=1, help="Stop before the run takes more than N tokens, by all commands together."
    ),
]
DollarLimit = Annotated[
    float | None,
    typer.Option(
        "--budget-usd",
        min=0.0001,
        help="Stop before the run costs more than so many US dollars, by all commands together.",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option("--engine", help="Who waits for models: local, dask or ray; as the study says if not given."),
]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Of a running cluster, host:port; without it one is started on this machine."),
]
ReplyStore = Annotated[
    str | None,
    typer.Option(
        "--replies",
        metavar="PLACE",
        help="Where models' replies are kept, if not in the warehouse: a file, or postgresql://…",
    ),
]
Browser = Annotated[bool, typer.Option(help="Open the page in this machine's browser.")]
Port = Annotated[int, typer.Option(min=1, max=65535, help="Port.")]
PageAddress = Annotated[str, typer.Option(help="Address to serve on; any but this machine's own needs --reviewer.")]
Reviewers = Annotated[
    list[str] | None, typer.Option("--reviewer", help="Who may give scores; each gets a link of their own.")
]
RubricTo = Annotated[Path, typer.Option("--to", help="Rubric file (YAML) to write, for people to edit.")]
Criterion = Annotated[str | None, typer.Option("--criterion", help="Of a log with several the one that is labelled.")]
LogFolder = Annotated[
    Path | None, typer.Option("--study", help="The folder for the study; LOG.calibration next to it if not given.")
]


def arguments(study: str | Path, warehouse: str | Path, limit: int | None) -> str:
    """What to type behind another command about the same study."""
    words = [str(study)]
    words += ["--warehouse", str(warehouse)] if Path(warehouse) != Path(DEFAULT_WAREHOUSE) else []
    words += ["--limit", str(limit)] if limit else []
    return shlex.join(words)


def print_rows(header: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """A table on a terminal, and CSV elsewhere; nothing in it runs as a formula, markup or control sequence."""
    if not sys.stdout.isatty():
        from rubricflow.tasks.core.text.formulas import cell

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(map(cell, header))
        writer.writerows(map(cell, row) for row in rows)
        return
    table = Table(*header)
    for row in rows:
        table.add_row(*map(_safe, row))
    Console().print(table)


def _safe(value: object) -> str:
    """A value as a terminal may show it: what a student wrote is neither markup nor a control sequence."""
    text = "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
    return escape("".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text))


Command = Callable[..., None]


def extends(work: Callable[..., Any], without: Iterable[str] = ()) -> Callable[[Command], Command]:
    """Gives a command the options of a flow, which it takes as **given, in front of its own; without those named."""

    def with_options(command: Command) -> Command:
        taken = inspect.signature(getattr(work, "fn", work), eval_str=True).parameters
        own = inspect.signature(command, eval_str=True).parameters.values()
        options = [option for name, option in taken.items() if name not in without]
        options += [option for option in own if option.kind is not inspect.Parameter.VAR_KEYWORD]
        command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        return command

    return with_options


_ORPHANS = Path(__file__).parents[1] / "tasks/core/monitor/orphans.py"
SUDDEN_END = (
    "rubricflow: the command ended without finishing: it was killed, or ran out of memory, or lost its cluster (where "
    "the lines above speak of GCS, start Ray's head again: ray start --head). What is finished stays, and the same "
    "command goes on"
)


@contextmanager
def for_people() -> Iterator[None]:
    """A UserError ends the command with its message and exit code 2, a signal with a message and by itself."""
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    try:
        with stoppable(), own_temporary_folder():
            yield
    except UserError as error:
        print(f"{_new_line()}rubricflow: {error}", file=sys.stderr)
        raise typer.Exit(2) from None
    except KeyboardInterrupt as stop:
        by = stop.signal if isinstance(stop, Stopped) else signal.SIGINT
        words = f"stopped by {by.name}; what is finished stays, the same command goes on"
        print(f"{_new_line()}rubricflow: {words}", file=sys.stderr)
        end_by(by)


def _new_line() -> str:
    """In a terminal: what is done may stand on the line."""
    return "\r\x1b[K" if sys.stderr.isatty() else ""


class Stopped(KeyboardInterrupt):
    """A signal that wants the process to end."""

    def __init__(self, by: signal.Signals) -> None:
        self.signal = by
        super().__init__(by.name)


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and a closed terminal raise `Stopped` where they would end the process without a word; twice they do."""
    ends = (signal.SIGTERM, signal.SIGHUP)
    numbers = [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():  # Python gives signals to that one alone
        numbers = []

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        raise Stopped(signal.Signals(number))

    for number in numbers:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def end_by(one: signal.Signals) -> NoReturn:
    """Ends this process by a signal, as whoever sent it expects (a shell says 128 and its number), after what was to be
    done at the exit. Threads that wait for an answer are not waited for."""
    signal.signal(one, signal.SIG_DFL)  # so that the same signal again ends it at once
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os.kill(os.getpid(), one)
    raise AssertionError("a signal that is neither caught nor ignored ends a process")


@contextmanager
def own_temporary_folder() -> Iterator[None]:
    """What this process and its children put into the temporary directory goes into a folder there, which is removed
    when the process ends, however it ends: a second process waits for that, and says what to do after a sudden end.
    StoreError where there can be none."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    try:
        folder = Path(tempfile.gettempdir(), f"rubricflow-{secrets.token_hex(8)}")
        # A signal to all processes of a terminal is not for the one that removes the folder.
        words = [sys.executable, "-I", "-S", str(_ORPHANS), str(os.getpid()), str(folder)]
        sweeper = subprocess.Popen(
            [*words, SUDDEN_END], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise StoreError(f"no temporary directory can be written ({error}); TMPDIR names another") from error
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        sweeper.kill()
        sweeper.wait()
        shutil.rmtree(folder, ignore_errors=True)
        os.environ.pop("TMPDIR")
        os.environ |= {"TMPDIR": before[0]} if before[0] else {}
        tempfile.tempdir = before[1]
