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

from tasks.contracts.tables.calibration import Predictions
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.judging import Gradings
from tasks.stats.scores import score_frame
from tasks.store import scores
from tasks.store.warehouse import Run, Warehouse

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
    read = scores.read_scores(run, *refs, run.ref(Gradings, "judge"), run.ref(Predictions, "calibrate"))
    rows = score_frame(read, "mean").frame.drop(columns="row")
    return rows.sort_values("response_id", ignore_index=True)


@settings(max_examples=25, deadline=None)
@given(SIZES, st.integers(1, 8), st.integers(0, 9))
def test_the_frame_is_the_same_however_many_are_read_at_a_time(sizes: dict[str, int], batch: int, seed: int) -> None:
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        run = run_of(Path(folder), sizes, seed)
        whole = frame(run)
        patch.setattr(scores, "BATCH", batch)
        assert_frame_equal(frame(run), whole, check_dtype=bool(sizes))
        assert len(whole) == sum(sizes.values())
