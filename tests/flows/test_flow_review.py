"""Scores that people settle on the page or in a sheet, as a file that a study can read."""

from __future__ import annotations

import csv
import io
import uuid
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rubricflow.flows import votes as review
from rubricflow.flows.command_line import print_rows
from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.data import ScoreColumns, Source
from rubricflow.tasks.grading.ingest.canonical import scored
from rubricflow.tasks.people.review.board import Board, QueuedCase
from rubricflow.tasks.people.review.ledger import LEDGER, Act, Ledger


def board() -> Board:
    cases = tuple(
        QueuedCase(name, "score", "r", "Not released", "An answer.", "Why?") for name in ("r1", "r2", "=r3", "r4")
    )
    return Board("study", "Study", cases, {"r": ()}, {"r": Scale(min=0, max=2, step=0.5)}, {})


def act(kind: str, response: str, rater: str, value: str | None = None, **more: Any) -> Act:
    case = next(case for case in board().cases if case.response_id == response)
    digest = "" if value is None else board().ballots(case)[0]["digest"]
    fixed = {"study": "study", "subject_kind": "score", "criterion_id": None, "digest": digest}
    return Act(act_id=str(uuid.uuid4()), kind=kind, response_id=response, value=value, rater_id=rater, **fixed, **more)


def test_what_votes_on_scores_come_to_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(review, "board_of", lambda *_: board())
    monkeypatch.setattr(review, "drawn_by_chance", lambda *_: {"r1"})
    study = tmp_path / "study.yaml"
    study.write_text("{name: study, data: {sources: [{file: x.csv}]}, rubrics: {file: r.yaml}}")
    said = {"r1": ("1.5", "1.5"), "r2": ("0", "2"), "=r3": ("0.5",), "r4": ("x", "x")}
    with Ledger(tmp_path / LEDGER) as ledger:
        for response, values in said.items():
            for rater, value in zip(("anna", "ben"), values, strict=False):
                ledger.add(act("vote", response, rater, value, comment="why" if value == "x" else None))
                ledger.add(act("submit", response, rater))
        assert review.write_settled(study, tmp_path, None, tmp_path / "before.csv") == 2
        ledger.add(act("adjudicate", "r2", "cyd", "1", comment="Both looked again."))
    assert review.write_settled(study, tmp_path, None, tmp_path / "after.csv") == 3
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
    assert scored(source, frame, {"r1", "=r3", "'=r9"})[1] == ["r1", "=r3", "'=r9"]


def test_csv_of_a_query_runs_nothing_and_keeps_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows(["=a", "b"], [("=cmd|' /C calc'!A0", -1.5), ("-1.5", None), ("a\n- b;＝1", [1, -2.5])])
    assert list(csv.reader(io.StringIO(capsys.readouterr().out))) == [
        ["'=a", "b"],
        ["'=cmd|' /C calc'!A0", "-1.5"],
        ["-1.5", ""],
        ["a\n'- b;'＝1", "[1, -2.5]"],
    ]
