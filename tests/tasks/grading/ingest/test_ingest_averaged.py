"""A recorded mean of several persons is told as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import studies
from builders.files import write_csv

from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.task import ingest


@pytest.mark.parametrize(("averaged", "signals"), [(True, [("averaged", 1.0)]), (False, [])])
def test_a_mean_is_told_in_the_signals(tmp_path: Path, averaged: bool, signals: list[tuple[str, float]]) -> None:
    write_csv(tmp_path / "x.csv", ["id", "item", "text", "mean"], [["r", "i", "Heat.", 2.5]])
    source = {
        "file": "x.csv",
        "items": {"item_id": "item", "question": {"const": "Why?"}},
        "responses": {"response_id": "id", "item_id": "item", "text": "text"},
        "scores": [{"rater": "panel", "score": "mean", "averaged": averaged}],
    }
    run = Warehouse.open(tmp_path / "house").run("one")
    data = ingest.fn(run, studies.study(data={"sources": [source]}), tmp_path)
    assert run.read(data.gradings).column("signals").to_pylist() == [signals]
