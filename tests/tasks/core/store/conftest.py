"""A small finished run with something in every table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pyarrow as pa
import pytest
from builders.buckets import new_bucket, s3_server, variables
from builders.bundles import bundle, criterion
from builders.rows import attempt, grading, item, locked, response, rubric

from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.tables import BY_NAME, TABLES
from rubricflow.tasks.core.store import part
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Records = dict[str, list[dict[str, Any]]]
BUNDLE = bundle(criterion("P1"), ends=(0, 2), signals=("length",))


def _response(key: str, split: str) -> dict[str, Any]:
    return response(key, author_id=f"a-{key}", text=f"Heat {key}.", split=split, groups={"first": "yes"})


def _grading(key: str, rater: str, kind: str, score: float | None) -> dict[str, Any]:
    marked = {"rater_kind": kind, "trait_scores": {"t": 1.0}, "signals": {"recorded": 1.0}}
    return grading(key, rater, score, **marked)


def _prediction(key: str, split: str, score: float | None) -> dict[str, Any]:
    row = {"response_id": key, "item_id": "i", "rater_id": "m", "calibration_id": "c", "split": split, "raw": 1.0}
    return row | {"latent": 1.1, "aligned": 1.0, "score": score, "clipped": False, "route": "release"}


def any_row(row: type[Row]) -> dict[str, Any]:
    """A row with a value in every column that must have one, of r2 and its item, rubric, criterion and rater."""
    known = {"response_id": "r2", "item_id": "i", "rubric_id": "r", "criterion_id": "P1", "rater_id": "m"}
    kinds = ((pa.types.is_string, "x"), (pa.types.is_boolean, True), (pa.types.is_floating, 0.5), (pa.types.is_map, {}))
    values: dict[str, Any] = {}
    for column in schema(row):
        annotation = row.model_fields[column.name].annotation
        if column.nullable:
            continue
        default = next((value for is_kind, value in kinds if is_kind(column.type)), 1)
        default = [] if pa.types.is_list(column.type) else default
        words = get_args(annotation) if get_origin(annotation) is Literal else ()
        values[column.name] = known.get(column.name, next(iter(words), default))
    return values


def filled() -> Records:
    """Rows of every table: r1 calibrates, r2 and r3 test, r3 is unscored."""
    quote = {"unit_id": "s1", "quote": "Heat", "start": 0, "end": 4, "status": "verified"}
    judged = {"response_id": "r2", "criterion_id": "P1", "rater_id": "m", "rater_kind": "encoder", "sample": 0}
    people = [_grading(key, "h", "human", score) for key, score in (("r1", 1.0), ("r2", 2.0), ("r3", 0.0))]
    machine = [_grading(key, "m", "encoder", 1.0) for key in ("r1", "r2", "r3")]
    recorded = [_grading(key, "f", "replayed", score) for key, score in (("r2", 1.0), ("r3", 2.0))]
    some = {row.table: any_row(row) for row in TABLES}
    decided = {"who": "m", "kind": "annotator", "level": 0}
    asked_for: dict[str, dict[str, Any]] = {  # by the questions of sql/questions
        "metrics": {"metric": "qwk", "rater_a": "target", "stage": "raw", "slice": "all", "value_of": "all"},
        "labels": {"level": 1, "settled_by": "one_vote", "history": [decided]},
        "graph_nodes": {"criterion_id": "x"},
        "edge_cases": {"state": "violated", "aggregation": "flat"},
        "trials": {"setting": "", "split": "test", "criterion_id": ""},
        "rater_effects": {"trait": "", "slice": "all", "flags": ["strict"]},
    }
    return {name: [row | asked_for.get(name, {})] for name, row in some.items()} | {
        "items": [item(rubric_id="r")],
        "responses": [_response("r1", "calibration"), _response("r2", "test"), _response("r3", "test")],
        "units": [{"response_id": "r2", "unit_id": "s1", "kind": "sentence", "start": 0, "end": 8}],
        "rubrics": [rubric("r", lint=["P1: vague"])],
        "bundles": [locked(BUNDLE, "r")],
        "judgments": [
            judged
            | {"decision": 1, "stated": 1, "evidence": [quote], "verified": True, "action": "none"}
            | {"level_probabilities": [0.2, 0.8]},
            judged | {"rater_id": "h", "rater_kind": "human", "decision": 1, "evidence": [], "action": "none"},
        ],
        "gradings": [*people, *machine, _grading("r1", "g", "human", 2.0), *recorded],
        "attempts": [attempt(f"r{n}", violations=["v"], latency_s=0.5, memory=["example:r1"]) for n in (1, 2, 3)],
        "predictions": [
            _prediction("r1", "calibration", 1.0),
            _prediction("r2", "test", 1.0),
            _prediction("r3", "test", None) | {"unscored_reason": "no_reply"},
        ],
    }


def store(run: Run, records: Records) -> Run:
    """Write the tables, people's gradings and machines' by different stages, as the flow does."""
    for name, rows in records.items():
        if name == "gradings":
            run.commit("ingest", name, {BY_NAME[name]: [row for row in rows if row["rater_kind"] == "human"]})
            run.commit("judge", name, {BY_NAME[name]: [row for row in rows if row["rater_kind"] != "human"]})
        else:
            run.commit("some", name, {BY_NAME[name]: rows})
    return run


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A filled run that nobody changes."""
    return store(Warehouse.open(tmp_path_factory.mktemp("finished")).run("one"), filled())


@pytest.fixture
def filled_run(finished: Run, tmp_path: Path) -> Callable[..., Run]:
    """A function that stores a filled run, changed by a function of its rows: a copy, in which what changed is written
    anew."""
    house = Warehouse.open(tmp_path / "warehouse")
    count = iter(range(100))

    def make(change: Callable[[Records], object] = lambda rows: None) -> Run:
        records, plain = filled(), filled()
        change(records)
        run = house.run(f"run{next(count)}")
        shutil.copytree(finished.folder, run.folder)
        return store(run, {name: rows for name, rows in records.items() if rows != plain[name]})

    return make


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, s3_server() as endpoint:
        for name, value in variables(endpoint).items():
            patch.setenv(name, value)
        yield endpoint


@pytest.fixture
def url(server: str, machine: Callable[[str], None]) -> str:
    return new_bucket(server)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on this is the machine of that name: it has a mirror of its own and has seen nothing."""

    def change(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        part._seen.clear()
        part._indexed.clear()

    change("first")
    return change
