"""A run looked at as a whole: every byte against its done-mark, every digest made again, on and on past every fault.

What resumes a run looks at the same files, but stops at the first fault and trusts the sums in a sound done-mark.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.store.catalogue import MANIFEST, listed_in, manifest_of, refuse_other
from rubricflow.tasks.core.store.files import ASIDE, digest_of
from rubricflow.tasks.core.store.manifest import digests
from rubricflow.tasks.core.store.part import LAST, MarkedTable, content_of, forget, hold, read_mark, reading
from rubricflow.tasks.core.store.warehouse import EXPERIMENTS, Run, Warehouse

_REMOVE = "and readers that go by patterns take it for one: put it elsewhere, or remove it"


class Look(NamedTuple):
    """What a look at one thing came to."""

    subject: str
    amount: str
    """How much of it there is, in words."""
    seconds: float
    problems: tuple[str, ...]


AmountAndProblems = tuple[str, list[str]]
"""How much there is in words, and what is wrong."""
Parts = dict[tuple[str, str], list[tuple[Path, MarkedTable]]]
"""(Table, stage) → its files, each with its entry in the done-mark."""


def timed(subject: str, look: Callable[..., AmountAndProblems], *given: Any) -> Look:
    """A look at what is given, with its time; a StoreError is a problem."""
    start, amount, problems = time.perf_counter(), "cannot be read", list[str]()
    with _noted(problems):
        amount, problems = look(*given)
    return Look(subject, amount, time.perf_counter() - start, tuple(problems))


@contextmanager
def _noted(problems: list[str]) -> Iterator[None]:
    """A StoreError is a problem, and what comes after it is looked at all the same."""
    try:
        yield
    except StoreError as error:
        problems.append(str(error))


def look_at_run(run: Run) -> Iterator[Look]:
    """The done-marks of a run, the files of every table and stage, its manifest where it finished."""
    forget()
    parts: Parts = defaultdict(list)
    yield timed("done-marks", _marks, run, parts)
    for (table, stage), files in sorted(parts.items()):
        yield timed(f"{table} of {stage}", _files, run, table, files)
    if not run.warehouse.mirrored:  # in a bucket lies what lost attempts wrote, and nothing reads it
        yield timed("other files", _others, run, {path for files in parts.values() for path, _ in files})
    if run.fetched(MANIFEST).exists():
        yield timed("manifest", _manifest, run)
        yield timed("grade_digest", _graded, run)


def _marks(run: Run, parts: Parts) -> AmountAndProblems:
    """Fills in the parts of every (table, stage)."""
    problems, paths = list[str](), run.marks()
    run.warehouse.fetch_all(paths)
    for path in paths:
        with _noted(problems):
            stage, mark = path.parent.name, read_mark(path, run.mend())
            for table, marked in mark.tables.items():
                parts[table, stage].append((run.file(table, stage, path.stem, mark.attempt), marked))
            for other in map(path.with_stem, mark.others):  # only a stage's last mark names any
                if other not in paths:
                    problems.append(f"{other} is lost, and its stage is done; {run.mend()}")
    return f"{len(paths):,} shards", problems


def _files(run: Run, table: str, files: list[tuple[Path, MarkedTable]]) -> AmountAndProblems:
    problems, row = list[str](), BY_NAME[table]
    run.warehouse.fetch_all(path for path, _ in files)
    for path, marked in files:
        with _noted(problems), reading(path, run.mend()):
            hold(path, row, marked, run.mend())
            if content_of(path, row) != marked.content:
                problems.append(f"{path}: its rows do not add up to what its done-mark says; {run.mend()}")
    return f"{sum(marked.rows for _, marked in files):,} rows in {len(files):,} files", problems


def _others(run: Run, marked: set[Path]) -> AmountAndProblems:
    """Parquet files of which no done-mark speaks. A run that did not finish may have one where it was killed: of a
    shard and a stage that are not finished."""
    others, is_finished = [], (run.folder / MANIFEST).exists()
    for path in sorted(set(run.folder.rglob("*.parquet")) - marked):
        table, stage, *names = (*path.relative_to(run.folder).parts, "")
        is_shard = table in BY_NAME and len(names) == 2
        if is_finished or not is_shard or run.done(stage, path.stem) or run.done(stage, LAST):
            others.append(path)
    return f"{len(others):,}", [f"{path} is none of the run's files, {_REMOVE}" for path in others]


def strays(warehouse: Warehouse) -> AmountAndProblems:
    """Parquet files of a folder that are in no run; those of an experiment's tables belong there."""
    begun, problems = set(warehouse.begun()), []
    for path in sorted(warehouse.root.rglob("*.parquet")):
        first, *inner = path.relative_to(warehouse.root).parts
        is_left = len(inner) == 3 and inner[0] in BY_NAME  # of a run that was killed before its first done-mark
        is_table = first == EXPERIMENTS and inner[1:] == ["numbers.parquet"]
        if first not in begun and first != ASIDE and not (is_left or is_table):
            problems.append(f"{path} is in no run, {_REMOVE}")
    return f"{len(problems):,}", problems


def _manifest(run: Run) -> AmountAndProblems:
    problems, listed = list[str](), listed_in(manifest_of(run))
    for ref in listed:
        with _noted(problems):
            refuse_other(run, ref)
    return f"{len(listed):,} tables", problems


def _graded(run: Run) -> AmountAndProblems:
    manifest = manifest_of(run)
    graded: dict[str, Any] = manifest["graded_by"]
    again = digests(run, graded["target"])
    problems = [f"{name} digest" for name, value in again.items() if graded.get(name) != value]
    problems += ["digest of them all"] if digest_of(graded) != manifest["grade_digest"] else []
    amount = f"{len(again)} digests made again"
    return amount, [f"{run.place}/{MANIFEST}: the {digest} is not that of the tables" for digest in problems]
