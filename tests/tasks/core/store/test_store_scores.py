"""What the score frame is made from, read some responses at a time: the same frame, however many at a time."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd
import pytest
from builders.rows import grading, item, response
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.stats.scores import score_frame
from rubricflow.tasks.core.store import ordered
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

SIZES = st.dictionaries(st.sampled_from(["a", "b", "ö", "c d"]), st.integers(1, 7), max_size=4)


def run_of(house: Path, sizes: dict[str, int], seed: int) -> Run:
    """Items with so many responses each, in shards and rows of any order."""
    run, draw = Warehouse.open(house).run("run"), random.Random(seed)
    asked = [(f"{name}-{n}", name) for name, size in sizes.items() for n in range(size)]
    draw.shuffle(asked)
    run.commit("ingest", "items", {Items: [item(name, type=f"type {name}") for name in sizes]})
    for number, part in enumerate((asked[::2], asked[1::2])):
        said = [response(key, name, author_id=f"s{key[-1]}", groups={"g": key[-1]}) for key, name in part]
        people = [grading(key, "h1", draw.random(), item_id=name) for key, name in part]
        run.commit("ingest", f"{number:05d}", {Responses: said, Gradings: people})
        own = [grading(key, "m", draw.random(), item_id=name, signals={"length": draw.random()}) for key, name in part]
        run.commit("judge", f"{number:05d}", {Gradings: own})
        run.commit("calibrate", f"{number:05d}", {Predictions: [prediction(key, name) for key, name in part]})
    return run


def prediction(response_id: str, item_id: str) -> dict[str, object]:
    score = float(len(response_id))
    fixed = {"calibration_id": "c", "clipped": False, "route": "release", "rater_id": "m", "split": "test"}
    return {"response_id": response_id, "item_id": item_id, "score": score} | fixed


def frame(run: Run) -> pd.DataFrame:
    refs = (run.ref(row, stage) for row, stage in ((Items, "ingest"), (Responses, "ingest"), (Gradings, "ingest")))
    read = ordered.read_scores(run, *refs, run.ref(Gradings, "judge"), run.ref(Predictions, "calibrate"))
    rows = score_frame(read, "mean").frame.drop(columns="row")
    return rows.sort_values("response_id", ignore_index=True)


@settings(max_examples=6)
@given(SIZES, st.integers(1, 8), st.integers(0, 9))
def test_the_frame_is_the_same_however_many_are_read_at_a_time(sizes: dict[str, int], batch: int, seed: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        run = run_of(Path(folder), sizes, seed)
        whole = frame(run)
        patch.setattr(ordered, "BATCH", batch)
        assert_frame_equal(frame(run), whole, check_dtype=bool(sizes))
        assert len(whole) == sum(sizes.values())


@settings(max_examples=10)
@given(SIZES, st.integers(0, 9), st.sampled_from(["mean", "h1", "key"]))
def test_marked_answers_are_counted_as_one_by_one(sizes: dict[str, int], seed: int, target: str) -> None:
    draw = random.Random(seed)
    with TemporaryDirectory() as folder:
        run = Warehouse.open(Path(folder)).run("run")
        rows, marks = list[dict[str, object]](), list[dict[str, object]]()
        for key, name in ((f"{name}-{n}", name) for name, size in sizes.items() for n in range(size)):
            split = draw.choice(["train", "calibration", "test", "crossed", "chosen"])
            text = draw.choice(["", "  two\n words ", "one", "a\u2003b\tc"])
            rows.append(response(key, name, split=split, text=text))
            for rater in draw.sample(["h1", "h2", "key"], draw.randint(0, 2)):
                kind = "adjudication" if rater == "key" else "human"
                marks.append(grading(key, rater, draw.choice([None, 1.0]), item_id=name, rater_kind=kind))
        run.commit("ingest", "all", {Responses: rows, Gradings: marks})
        found = ordered.read_marked(run, run.ref(Responses, "ingest"), run.ref(Gradings, "ingest"), target)
    has = {
        mark["response_id"]
        for mark in marks
        if mark["score"] is not None
        and (mark["rater_id"] == target or (target, mark["rater_kind"]) == ("mean", "human"))
    }
    assert [one.item_id for one in found] == sorted(sizes)
    for one in found:
        own = [row for row in rows if row["item_id"] == one.item_id]
        marked = [row for row in own if row["response_id"] in has]
        counting = sum(row["split"] in ("calibration", "crossed") for row in marked)
        words = sum(len(str(row["text"]).split()) for row in own)
        assert one == (one.item_id, len(own), len(marked), counting, words)


def test_crossed_answers_are_measured_on_and_those_that_calibrate_alone_are_not() -> None:
    with TemporaryDirectory() as folder:
        run = Warehouse.open(Path(folder)).run("run")
        keys = ("train", "calibration", "test", "crossed", "chosen")
        said = [response(key, "q", split=key, groups={}) for key in keys]
        people = [grading(key, "h1", 1.0, item_id="q") for key in keys]
        run.commit("ingest", "all", {Items: [item("q")], Responses: said, Gradings: people})
        run.commit("judge", "all", {Gradings: [grading(key, "m", 1.0, item_id="q") for key in keys]})
        run.commit("calibrate", "all", {Predictions: [prediction(key, "q") | {"split": key} for key in keys]})
        assert set(frame(run)["response_id"]) == {"test", "crossed"}
