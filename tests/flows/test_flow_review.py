"""Scores that people settle on the page or in a sheet, as a file that a study can read."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from rubricflow.flows import votes as review
from rubricflow.flows.command_line import print_rows
from rubricflow.tasks.core.contracts.settings.data import ScoreColumns, Source
from rubricflow.tasks.core.contracts.tables.people import SettledScores
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.canonical import scored
from rubricflow.tasks.grading.ingest.columns import Chunk


def test_what_votes_on_scores_come_to_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled = {"r1": (1.5, "agreed_votes"), "r2": (1, "discussion"), "=r3": (0.5, "one_vote"), "r5": (2, "marked")}
    settled |= {"r4": (None, "cannot_be_judged"), "r6": (None, "open")}
    rows = [
        {"response_id": name, "score": score, "settled_by": by, "history": [], "levels": {}}
        for name, (score, by) in settled.items()
    ]
    run = Warehouse.open(tmp_path / "house").run("study")
    monkeypatch.setattr(review, "reviewed_run", lambda *_: (SimpleNamespace(name="study"), run))
    monkeypatch.setattr(review, "drawn_by_chance", lambda *_: {"r1"})
    assert review.write_settled(tmp_path, tmp_path, None, tmp_path / "before.csv") == 0
    run.commit("settle", "all", {SettledScores: rows})
    assert review.write_settled(tmp_path, tmp_path, None, tmp_path / "after.csv") == 3
    with (tmp_path / "after.csv").open(newline="") as file:
        assert list(csv.reader(file)) == [
            ["response_id", "score", "settled_by", "split"],
            ["r1", "1.5", "agreed_votes", ""],
            ["r2", "1", "discussion", "chosen"],
            ["'=r3", "0.5", "one_vote", "chosen"],
        ]


def test_a_file_of_settled_scores_is_read_with_the_ids_as_they_were() -> None:
    source = Source(file="after.csv", scored="response_id", scores=(ScoreColumns(rater="people", score="score"),))
    frame = pd.DataFrame({"response_id": ["r1", "'=r3", "'=r9"], "score": ["1", "2", "0"]}, dtype=object)
    assert scored(Chunk(source, frame), {"r1", "=r3", "'=r9"}) == ["r1", "=r3", "'=r9"]


def test_csv_of_a_query_runs_nothing_and_keeps_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["=a", "b"], [("=cmd|' /C calc'!A0", -1.5), ("-1.5", None), ("a\n- b;＝1", [1, -2.5])])
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["'=a", "b"],
        ["'=cmd|' /C calc'!A0", "-1.5"],
        ["-1.5", ""],
        ["a\n'- b;'＝1", "[1, -2.5]"],
    ]
