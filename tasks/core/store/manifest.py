"""The manifest: what a run was made from and what it made; and a run looked at as a whole.

`look_at_run` holds every byte against its done-mark and makes every digest again, on and on past every fault. What
resumes a run looks at the same files, but stops at the first fault and trusts the sums in a sound done-mark.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables import BY_NAME
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.store.catalogue import (
    MANIFEST,
    catalogue,
    listed_in,
    manifest_of,
    read_manifest,
    refuse_other,
)
from rubricflow.tasks.core.store.files import ASIDE, digest_of, file_digest, sealed
from rubricflow.tasks.core.store.part import LAST, MarkedTable, content_of, forget, hold, read_mark, reading
from rubricflow.tasks.core.store.warehouse import EXPERIMENTS, Run, Warehouse

ROOT = Path(__file__).resolve().parents[3]
LIBRARIES = ("rubricflow", "prefect", "pyarrow", "duckdb", "numpy", "scikit-learn", "openvino", "torch", "transformers")
_BATCH = 50_000
"""Digests of rows that are held at a time."""


@cache
def code_digest() -> str:
    """SHA-256 over the pipeline's source files, so that no run resumes on tables that other code wrote."""
    files = [path for room in ("tasks", "flows") for path in (ROOT / room).rglob("*")]
    code = sorted(path for path in files if path.suffix in {".py", ".txt", ".yaml"})
    return digest_of([[path.relative_to(ROOT).as_posix(), file_digest(path)] for path in code])


def versions() -> dict[str, str]:
    """Python and the libraries that results rest on, those that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state() -> Record:
    """Commit and dirty flag of the checkout; empty where the package does not run from one, or git does not."""
    if not (ROOT / ".git").exists():
        return {}
    git = "git", "--no-optional-locks", "-C", ROOT  # or a look would lock out who commits at that moment
    try:
        commit, changes = (
            subprocess.run([*git, *words], capture_output=True, text=True, timeout=10).stdout.strip()
            for words in (("rev-parse", "HEAD"), ("status", "--porcelain"))
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return {"commit": commit, "dirty": bool(changes)} if commit else {}


def study_of(run: Run) -> Study:
    """The study of a finished run as its manifest holds it; StoreError as `read_manifest`."""
    return Study.model_validate(read_manifest(run)["identity"]["study"])


def graded_by(run: Run, target: str, settings: Record) -> Record:
    """Exactly what can change a released score of a finished run.

    Digests of the texts with their items and calibration membership; of the bundle of every item; of every request
    (which covers prompts, model, sampling and order of asking); and of the human scores calibrated on. `settings` are
    the calibration's settings and the versions of the code that verifies, scores and calibrates. StoreError for a table
    that cannot be read.
    """
    return digests(run, target) | settings | {"target": target}


def digests(run: Run, target: str) -> Record:
    """The digests of `graded_by`, made of the tables as they are; StoreError for a table that cannot be read."""
    responses = "responses JOIN items USING (item_id) JOIN bundles USING (rubric_id)"
    rater = "rater_id = $target OR (rater_kind = 'human' AND $target = 'mean')"
    fitted = f"split IN {CALIBRATES}"
    label = f"{fitted} AND g.score IS NOT NULL AND ({rater})"
    parts = {
        "texts": f"SELECT response_id, item_id, text, {fitted} AS fitted FROM responses",
        "bundles": f"SELECT DISTINCT item_id, bundle_id FROM {responses}",
        "requests": "SELECT response_id, part, attempt, request_digest, reply, error FROM attempts",
        "labels": f"SELECT response_id, g.score FROM gradings g JOIN responses USING (response_id) WHERE {label}",
    }
    found = {}
    with catalogue(run) as connection:
        for name, query in parts.items():
            # SHA-256 over the digests of the rows, these in order, whatever the order of the rows; None of no rows.
            ordered = f"SELECT sha256(to_json(p)::VARCHAR) AS j FROM ({query}) p ORDER BY j"
            answer = connection.sql(ordered, params={"target": target} if "$target" in query else {})
            digest, count = hashlib.sha256(), 0
            for batch in answer.to_arrow_reader(_BATCH):
                digest.update("".join(batch["j"].to_pylist()).encode())
                count += len(batch)
            found[name] = digest.hexdigest() if count else None
    return found


def write_manifest(
    run: Run,
    identity: Record,
    graded_by: Record,
    tables: list[TableRef],
    base: Path,
    read_as: Mapping[str, str] | None = None,
    costs: Fields | None = None,
) -> Path:
    """Write `<run>/manifest.json`.

    `identity` is what names the run (study, input digests, code). `graded_by` is exactly what can change a released
    score; its digest is the `grade_digest`. `base` is the folder that the study's files are named from;
    `read_as`: how each of them was read; `costs`: what models cost by whose table; `calls_changed`: which parameters
    the judge's server did not take. Tables that another flow of the same run wrote stay listed. StoreError where a
    table that the run finished with is another now.
    """
    path = run.folder / MANIFEST
    paths = {ref.path for ref in tables}
    try:
        earlier = listed_in(manifest_of(run))
    except StoreError:  # it is written anew
        earlier = []
    for ref in earlier:
        refuse_other(run, ref)
    changed: set[str | None] = set()
    for stage in run.stages(Attempts):
        changed |= set(pc.unique(run.table(Attempts, stage, ["changed"])["changed"]).to_pylist())
    folder = base.resolve()
    mirrored = run.warehouse.mirrored
    content = {
        "run_id": run.run_id,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "grade_digest": digest_of(graded_by),
        "graded_by": graded_by,
        "identity": identity,
        "read_as": dict(read_as or {}),
        "costs": dict(costs or {}),
        "calls_changed": sorted(filter(None, changed)),
        "versions": versions(),
        "git": git_state(),
        "tables": [ref.model_dump() for ref in (*tables, *(ref for ref in earlier if ref.path not in paths))],
        "study_folder": str(folder) if mirrored else os.path.relpath(folder, run.warehouse.root.resolve()),
    }
    run.warehouse.write(path, sealed(content))
    return path


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
    start = time.perf_counter()
    amount = "cannot be read"
    problems = list[str]()
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
    problems = list[str]()
    paths = run.marks()
    run.warehouse.fetch_all(paths)
    for path in paths:
        with _noted(problems):
            stage = path.parent.name
            mark = read_mark(path, run.mend())
            for table, marked in mark.tables.items():
                parts[table, stage].append((run.file(table, stage, path.stem, mark.attempt), marked))
            for other in map(path.with_stem, mark.others):  # only a stage's last mark names any
                if other not in paths:
                    problems.append(f"{other} is lost, and its stage is done; {run.mend()}")
    return f"{len(paths):,} shards", problems


def _files(run: Run, table: str, files: list[tuple[Path, MarkedTable]]) -> AmountAndProblems:
    problems = list[str]()
    row = BY_NAME[table]
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
    others = []
    is_finished = (run.folder / MANIFEST).exists()
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
    problems = list[str]()
    listed = listed_in(manifest_of(run))
    for ref in listed:
        with _noted(problems):
            refuse_other(run, ref)
    return f"{len(listed):,} tables", problems


def _graded(run: Run) -> AmountAndProblems:
    manifest = manifest_of(run)
    graded: Record = manifest["graded_by"]
    again = digests(run, graded["target"])
    problems = [f"{name} digest" for name, value in again.items() if graded.get(name) != value]
    problems += ["digest of them all"] if digest_of(graded) != manifest["grade_digest"] else []
    amount = f"{len(again)} digests made again"
    return amount, [f"{run.place}/{MANIFEST}: the {digest} is not that of the tables" for digest in problems]
