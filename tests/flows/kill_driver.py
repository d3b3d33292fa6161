"""The command in a process that kills itself at a named point, and then again to its end.

    python tests/flows/kill_driver.py FOLDER    # the results that test_durability.py looks at, as JSON

Nothing of the pipeline knows of it: the faults are patched in here. The flow runs each time in a child that is forked
from one process with all imports done. Shards are made small, so that the study of tiny_study.py has several of
everything.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from left_driver import left_in

HOUSE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(HOUSE), str(HOUSE / "tests"), str(Path(__file__).parent)]
from builders.plain_checks import measure_nothing, use_plain_checks  # noqa: E402  (which imports the pipeline)

SHARD = 40
REPLY_S = 0.002


class Point(NamedTuple):
    """Where to die: at the `nth` time that `act` happens to a path (or a function) whose name matches."""

    act: str
    """half written, before rename, after rename; before call, after call; before commit (of the reply store). Or, to
    live on without room: disk full."""
    name: str
    nth: int = 1


NO_ROOM: dict[str, Point] = {
    "no room for the marker": Point("disk full", r"\.rubricflow\.json"),
    "no room for a shard": Point("disk full", r"gradings/judge/.*\.parquet", 2),
    "no room for a done-mark": Point("disk full", r"_done/judge/.*\.json", 2),
    "no room for a checkpoint's results": Point("disk full", r"checks/check-judge/.*\.parquet"),
    "no room for a validation": Point("disk full", r"_validations/.*judge-.*\.json"),
    "no room for the manifest": Point("disk full", r"manifest\.json"),
    "no room for the report": Point("disk full", r"report\.html"),
}
STORED = "rubricflow.tasks.core.llm.reply_store:ReplyStore.put_many"
POINTS: dict[str, Point] = {
    "the warehouse's marker half written": Point("half written", r"\.rubricflow\.json"),
    "before the first reply is stored": Point("before call", STORED),
    "before a reply is stored": Point("before call", STORED, 60),
    "in the store's transaction": Point("before commit", "", 60),
    "after a reply is stored": Point("after call", STORED, 60),
    "after the last reply is stored": Point("after call", STORED, 118),
    "a source's shard half written": Point("half written", r"responses/ingest/.*\.parquet", 2),
    "between files of an ingest shard": Point("after rename", r"responses/ingest/.*\.parquet", 2),
    "before ingest's last done-mark": Point("before rename", r"_done/ingest/all\.json"),
    "after ingest's last done-mark": Point("after rename", r"_done/ingest/all\.json"),
    "between the files of lock": Point("after rename", r"rubrics/lock/all\.parquet"),
    "a judged shard half written": Point("half written", r"judgments/judge/.*\.parquet"),
    "between files of a judged shard": Point("after rename", r"gradings/judge/.*\.parquet", 2),
    "before a judged shard's done-mark": Point("before rename", r"_done/judge/.*\.json", 2),
    "a judged shard's done-mark half written": Point("half written", r"_done/judge/.*\.json", 2),
    "after a judged shard's done-mark": Point("after rename", r"_done/judge/.*\.json", 2),
    "before a checkpoint's results": Point("before rename", r"checks/check-judge/.*\.parquet"),
    "between a checkpoint's files and its mark": Point("before rename", r"_done/check-judge/.*\.json"),
    "after a checkpoint's mark": Point("after rename", r"_done/check-judge/.*\.json"),
    "in a checkpoint": Point("before call", "rubricflow.tasks.core.check.checkpoint:check_values", 7),
    "a checkpoint's validation half written": Point("half written", r"_validations/.*judge-.*\.json"),
    "between files of calibrate": Point("after rename", r"calibrations/calibrate/.*\.parquet"),
    "a part of the predictions half written": Point("half written", r"predictions/calibrate/.*\.parquet"),
    "before evaluate's done-mark": Point("before rename", r"_done/evaluate/all\.json"),
    "after evaluate, before the manifest": Point("after rename", r"_done/evaluate/all\.json"),
    "before the Data Docs": Point("before call", "rubricflow.tasks.core.check.docs:_render"),
    "in the Data Docs, half made": Point("after call", "rubricflow.tasks.core.check.docs:_render"),
    "in the catalogue": Point("after call", "rubricflow.tasks.core.store.manifest:catalogue"),
    "the manifest half written": Point("half written", r"manifest\.json"),
    "before the manifest's rename": Point("before rename", r"manifest\.json"),
    "after the manifest": Point("after rename", r"manifest\.json"),
    "in the report": Point("before call", "rubricflow.tasks.grading.report.task:write_page"),
    "report.html half written": Point("half written", r"report\.html"),
    "after report.html": Point("after rename", r"report\.html"),
}


class Result(NamedTuple):
    """What a kill and the run after it came to."""

    point: str
    killed: bool
    replies: int
    """In the store when it was killed."""
    ended: bool
    """Whether the run after it came to its end."""
    equal: bool
    """Whether digests of all tables and the grade digest are those of a run that nobody killed."""
    twice: int
    """Requests asked in the run after it whose reply was in the store."""
    again: int
    """Requests asked again because their reply was lost on its way to the store."""
    left: tuple[str, ...]
    """Of the killed one: processes, ports, temporary files."""
    log: str
    """What the run after it said on its way down; empty if it ended."""


def die() -> None:
    """Gone, without a word to anybody."""
    os.kill(os.getpid(), signal.SIGKILL)


def fault(point: Point) -> None:
    """Let this process die at a point."""
    left = point.nth

    def here(name: str) -> bool:
        nonlocal left
        left -= bool(re.search(point.name, name))
        return left == 0 and bool(re.search(point.name, name))

    if point.act in ("before call", "after call"):
        _wrap_call(point, here)
    elif point.act == "before commit":
        _wrap_commit(here)
    elif point.act in ("half written", "disk full"):
        flush = os.fsync

        def half(number: int) -> None:
            if here(os.readlink(f"/proc/self/fd/{number}")):
                os.ftruncate(number, os.fstat(number).st_size // 2)
                if point.act == "disk full":
                    raise OSError(errno.ENOSPC, "No space left on device")
                die()
            flush(number)

        os.fsync = half
    else:
        move = Path.replace

        def moving(path: Path, target: Path) -> Path:
            found = here(str(target))
            if found and point.act == "before rename":
                die()
            moved = move(path, target)
            if found:
                die()
            return moved

        Path.replace = moving  # type: ignore[method-assign]


def _wrap_call(point: Point, here: Callable[[str], bool]) -> None:
    module, _, path = point.name.partition(":")
    *owners, name = path.split(".")
    owner: Any = importlib.import_module(module)
    for part in owners:
        owner = getattr(owner, part)
    real = getattr(owner, name)

    def wrapped(*arguments: Any, **more: Any) -> Any:
        found = here(point.name)
        if found and point.act == "before call":
            die()
        answer = real(*arguments, **more)
        if found:
            die()
        return answer

    setattr(owner, name, wrapped)


def _wrap_commit(here: Callable[[str], bool]) -> None:
    from rubricflow.tasks.core.store import sqlite_file

    real = sqlite_file.transaction

    @contextlib.contextmanager
    def transaction(*arguments: Any) -> Iterator[None]:
        with real(*arguments):
            yield
            if here(""):
                die()

    sqlite_file.transaction = transaction


class Counting:
    """A backend that writes down the digest of every request it is asked, one at a time."""

    def __init__(self, backend: Any, calls: Path) -> None:
        self.name, self.model, self.by_subject = backend.name, backend.model, backend.by_subject
        self.batch_size, self.reads_prose = 16, backend.reads_prose
        self._backend, self._calls = backend, calls

    def answer(self, requests: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """Yields in order."""
        from rubricflow.tasks.core.llm.request import digest

        for index, request in enumerate(requests):
            with self._calls.open("a") as file:
                file.write(digest(request, self.model, self.by_subject) + "\n")
            time.sleep(REPLY_S)
            for _, reply in self._backend.answer([request]):
                yield index, reply


def watch(calls: Path) -> None:
    """Write down what the judge's backend is asked; make shards small; keep the run's id where others edit the code."""
    import rubricflow.flows.plan
    from rubricflow.tasks.core.store import source
    from rubricflow.tasks.grading.calibrate import task as calibrate
    from rubricflow.tasks.grading.judge import shard_judge
    from rubricflow.tasks.grading.judge import task as judge

    def rater(real: Callable[..., Any], *arguments: Any) -> Any:
        who = real(*arguments)
        return replace(who, backend=Counting(who.backend, calls))

    shard_judge.rater = partial(rater, shard_judge.rater)  # type: ignore[assignment]
    judge.SHARD = SHARD
    source.ROWS = calibrate.SHARD_ROWS = SHARD
    rubricflow.flows.plan.code_digest = lambda: "0" * 64  # type: ignore[assignment]


def child(act: Callable[[], object], log: Path) -> int:
    """Do something in a forked process; its id."""
    sys.stdout.flush()
    if number := os.fork():
        return number
    code = 1
    try:
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            try:
                act()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
            except BaseException:
                traceback.print_exc(file=file)
    finally:
        os._exit(code)


def ended(number: int) -> int:
    """How a child ended: 0, an exit code, or minus the signal."""
    return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])


def run(study: Path, house: Path, calls: Path, point: Point | None = None) -> None:
    """The command in this process, to its end or to the point."""
    from rubricflow.flows import cli

    watch(calls)
    if point:
        fault(point)
    cli.app(["grade", str(study), "--warehouse", str(house)])


def outcome(house: Path) -> list[Any]:
    """What runs must have in common: by run, its tables' digests and its grade digest."""
    found = []
    for path in sorted(house.glob("*/manifest.json")):
        manifest = json.loads(path.read_bytes())
        found.append([manifest["run_id"], manifest["grade_digest"], manifest["tables"]])
    return found


def stored(house: Path) -> set[str]:
    """Digests in the reply store."""
    file = house / "replies.sqlite"
    if not file.exists():
        return set()
    with contextlib.closing(sqlite3.connect(file)) as store:
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'replies'").fetchone():
            return set()
        return {digest for (digest,) in store.execute("SELECT digest FROM replies")}


def lines(calls: Path) -> list[str]:
    """Digests of the requests asked so far."""
    return calls.read_text().split() if calls.exists() else []


class Trial:
    """A study, the outcome of a run of it that nobody killed, and kills."""

    def __init__(self, folder: Path, plain_checks: bool = False) -> None:
        """plain_checks: for all runs, and no figures: they take half of the time."""
        from tiny_study import make_study

        import rubricflow.flows.cli
        import rubricflow.flows.grade  # noqa: F401
        from rubricflow.tasks.core.llm import prices
        from rubricflow.tasks.core.store import catalogue
        from rubricflow.tasks.core.text import languages

        # What every run loads once, so that no child has to.
        if not plain_checks:
            import great_expectations  # noqa: F401
        prices.table_in_words(), languages.language_of("heat moves"), catalogue._nulls()

        self.folder, self.plain_checks = folder, plain_checks
        self.study = make_study(folder / "study")
        start = time.monotonic()
        number = child(partial(self._run, "whole", None), folder / "whole.log")
        if ended(number):
            raise RuntimeError((folder / "whole.log").read_text())
        self.seconds = time.monotonic() - start
        self.whole = outcome(folder / "whole")

    def _run(self, name: str, point: Point | None, study: Path | None = None) -> None:
        if self.plain_checks:
            use_plain_checks(pytest.MonkeyPatch())
            measure_nothing(pytest.MonkeyPatch())
        tempfile.tempdir = os.environ["TMPDIR"] = str(self._temporary(name))
        run(study or self.study, self.folder / name, self.folder / f"{name}.calls", point)

    def _temporary(self, name: str) -> Path:
        folder = self.folder / f"{name}.tmp"
        folder.mkdir(exist_ok=True)
        return folder

    def kill(self, what: str, point: Point | None, after: float | None = None) -> Result:
        """Kill a run at a point, or from outside after some seconds, and start it again."""
        name = re.sub(r"\W+", "-", what)
        house, calls, log = (self.folder / f"{name}{end}" for end in ("", ".calls", ".log"))
        number = child(partial(self._run, name, point), log)
        if after is not None:
            time.sleep(after)
            os.kill(number, signal.SIGKILL)
        killed = ended(number) == -signal.SIGKILL
        left = left_in(self._temporary(name))
        return self._resume(what, killed, house, calls, log, partial(self._again, name, log), left)

    def _again(self, name: str, log: Path) -> bool:
        return ended(child(partial(self._run, name, None), log)) == 0

    def _resume(
        self,
        what: str,
        killed: bool,
        house: Path,
        calls: Path,
        log: Path,
        again: Callable[[], bool],
        left: Sequence[str] = (),
    ) -> Result:
        known, before = stored(house), lines(calls)
        ended_well = again()
        asked = lines(calls)[len(before) :]
        return Result(
            point=what,
            killed=killed,
            replies=len(known),
            ended=ended_well,
            equal=outcome(house) == self.whole,
            twice=len(set(asked) & known) + len(asked) - len(set(asked)),
            again=len(set(before) & set(asked) - known),
            left=tuple(left),
            log="" if ended_well else log.read_text()[-3000:],
        )

    def together(self, studies: Sequence[Path | None], name: str) -> dict[str, Any]:
        """Runs in one warehouse at once: how they ended, and whether all is as after runs one by one."""
        alone = list(self.whole)
        for number, study in enumerate({study for study in studies if study}):
            house = f"{name}-alone-{number}"
            if ended(child(partial(self._run, house, None, study), self.folder / f"{house}.log")):
                raise RuntimeError((self.folder / f"{house}.log").read_text())
            alone += outcome(self.folder / house)
        logs = [self.folder / f"{name}-{number}.log" for number in range(len(studies))]
        numbers = [child(partial(self._run, name, None, study), log) for study, log in zip(studies, logs, strict=True)]
        codes = [ended(number) for number in numbers]
        kept = stored(self.folder / name)
        asked = [digest for digest in lines(self.folder / f"{name}.calls") if digest in kept]  # errors are not kept
        return {
            "codes": codes,
            "equal": outcome(self.folder / name) == sorted(alone),
            "replies": kept == stored(self.folder / "whole"),
            "twice": len(asked) - len(set(asked)),
            "log": "".join(log.read_text()[-3000:] for log, code in zip(logs, codes, strict=True) if code),
        }

    def refused(self, what: str, harm: Callable[[Path], object]) -> dict[str, Any]:
        """The command on a finished run to which harm was done: its exit code, and what it said."""
        name = re.sub(r"\W+", "-", what)
        house, log = self.folder / name, self.folder / f"{name}.log"
        shutil.copytree(self.folder / "whole", house)
        harm(house)
        before = set(house.rglob("*"))
        code = ended(child(partial(self._run, name, None), log))
        new = [path.name for path in house.rglob("*") if path not in before]
        return {"code": code, "said": log.read_text(), "new": new}

    def without_room(self, what: str) -> dict[str, Any]:
        """The command while there is no room for a file, and again when there is."""
        name = re.sub(r"\W+", "-", what)
        house, log = self.folder / name, self.folder / f"{name}.log"
        code = ended(child(partial(self._run, name, NO_ROOM[what]), log))
        said, left = log.read_text(), [str(path) for path in house.rglob("*.tmp")]
        again = self._resume(what, False, house, self.folder / f"{name}.calls", log, partial(self._again, name, log))
        return {"code": code, "said": said, "left": left, **again._asdict()}

    def small_disk(self) -> dict[str, Any] | None:
        """The command on a disk that is too small for it, and again when the disk is larger; None where there can be no
        such disk."""
        house, log = self.folder / "disk", self.folder / "disk.log"
        house.mkdir()
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=160k", "none", str(house)], capture_output=True
        ).returncode:
            return None
        try:
            seen = []
            for size in ("160k", "400k"):
                subprocess.run(["mount", "-o", f"remount,size={size}", str(house)], check=True)
                code = ended(child(partial(self._run, "disk", None), log))
                seen.append([code, log.read_text(), [str(path) for path in house.rglob("*.tmp")]])
            subprocess.run(["mount", "-o", "remount,size=64m", str(house)], check=True)
            calls = self.folder / "disk.calls"
            again = self._resume("disk", False, house, calls, log, partial(self._again, "disk", log))
            return {"seen": seen, **again._asdict()}
        finally:
            subprocess.run(["umount", str(house)], check=True)

    def other_study(self) -> Path:
        """A study that shares all requests with the first one and differs after them."""
        other = self.study.with_name("other.yaml")
        other.write_text(self.study.read_text().replace("draws: 50", "draws: 60"))
        return other

    def random_moments(self, count: int, seed: int) -> list[tuple[str, float]]:
        """Moments between the start and the end of a run: what, seconds."""
        found = random.Random(seed)
        moments = sorted(found.uniform(0.0, self.seconds) for _ in range(count))
        return [(f"random moment: {seconds:.2f} s of {self.seconds:.2f} s", seconds) for seconds in moments]


def _first(folder: Path, glob: str) -> Path:
    return sorted(folder.glob(glob))[0]


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-9])


def _older(file: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(file).drop_columns(["route"]), file)


def _without_run(house: Path) -> None:
    for marks in house.glob("*/_done"):
        shutil.rmtree(marks.parent)


def _file_for_run(house: Path) -> None:
    name = _first(house, "*/_done").parent.name
    _without_run(house)
    (house / name).write_text("in the way")


def _foreign_store(house: Path) -> None:
    _without_run(house)
    (house / "replies.sqlite").unlink()
    with contextlib.closing(sqlite3.connect(house / "replies.sqlite")) as store:
        store.execute("CREATE TABLE recipes(name)")


def _corrupt_store(house: Path) -> None:
    _without_run(house)
    with contextlib.closing(sqlite3.connect(house / "replies.sqlite")) as store:
        store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = (house / "replies.sqlite").read_bytes()
    (house / "replies.sqlite").write_bytes(content[:4096] + random.Random(0).randbytes(len(content) - 4096))


def _foreign_folder(house: Path) -> None:
    (house / ".rubricflow.json").unlink()


HARMS: dict[str, Callable[[Path], object]] = {
    "a lost shard": lambda house: _first(house, "*/judgments/judge/*.parquet").unlink(),
    "a shard cut off": lambda house: _cut(_first(house, "*/responses/ingest/*.parquet")),
    "a done-mark cut off": lambda house: _cut(_first(house, "*/_done/judge/*.json")),
    "a table of an older version": lambda house: _older(_first(house, "*/predictions/calibrate/*.parquet")),
    "a reply store of something else": _foreign_store,
    "a corrupt reply store": _corrupt_store,
    "a foreign folder": _foreign_folder,
    "a newer format": lambda house: (house / ".rubricflow.json").write_text('{"format": 9}'),
    "a file in place of the run": _file_for_run,
}


KILLS = (
    "after a reply is stored",
    "between files of a judged shard",
    "a checkpoint's validation half written",
    "the manifest half written",
)
FULL = ("no room for a done-mark",)


def _results(folder: str) -> None:
    """What test_durability.py looks at, made by two children side by side."""
    trial = Trial(Path(folder), plain_checks=True)
    jobs: dict[str, Callable[[], Any]] = {what: partial(trial.kill, what, POINTS[what]) for what in KILLS}
    jobs |= {what: partial(trial.without_room, what) for what in FULL}
    jobs |= {what: partial(trial.refused, what, harm) for what, harm in HARMS.items()}
    jobs["together"] = partial(trial.together, [None, None, trial.other_study()], "together")
    jobs["small disk"] = trial.small_disk
    files = [Path(folder) / f"half-{half}.json" for half in (0, 1)]

    def some(half: int) -> None:
        found = {what: job() for what, job in list(jobs.items())[half::2]}
        files[half].write_text(json.dumps({k: v._asdict() if isinstance(v, Result) else v for k, v in found.items()}))

    halves = [child(partial(some, half), Path(folder) / f"half-{half}.log") for half in (0, 1)]
    codes = [ended(number) for number in halves]
    if any(codes):
        raise RuntimeError("".join((Path(folder) / f"half-{half}.log").read_text() for half in (0, 1)))
    print(json.dumps({what: found for file in files for what, found in json.loads(file.read_text()).items()}))


if __name__ == "__main__":
    _results(sys.argv[1])
