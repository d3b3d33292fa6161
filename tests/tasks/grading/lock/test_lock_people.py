"""What people gave, held against the rubrics."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.data import Data
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.grading.ingest.sources import streams
from rubricflow.tasks.grading.lock.people import Offence, mark_place, off_scale, score_place, unknown_mark
from tests.builders.files import write_csv

ANSWERED = pa.table({"response_id": ["w", "x"], "item_id": ["j", "i"]})


def rubric(top: float, *criteria: str) -> Rubric:
    """A criterion 'P1.a' is a sub-point of 'P1'."""
    trait = {"id": "t", "name": "T", "min": 0, "max": 3}
    made = [
        {"id": name, "trait": "t", "text": "x", "levels": ["no", "part", "yes"]}
        | ({"parent": name.rpartition(".")[0]} if "." in name else {})
        for name in criteria
    ]
    content = {"rubric_id": f"r{top:g}", "scale": {"min": 0, "max": top}, "traits": [trait], "criteria": made}
    return Rubric.model_validate(content)


RUBRIC_OF = {"i": rubric(5, "P1", "P3", "P3.a"), "j": rubric(9, "P1", "P2")}


def gradings(*rows: tuple[str, float | None, dict[str, float]], **signals: float) -> pa.Table:
    same = {"rater_id": "a", "rater_kind": "human", "sample": 0, "signals": signals, "status": "scored"}
    records = [
        {"response_id": f"x{n}", "item_id": item, "score": score, "trait_scores": traits} | same
        for n, (item, score, traits) in enumerate(rows)
    ]
    return conform(Gradings, records)


def marks(*rows: tuple[str, str, int]) -> pa.Table:
    columns = list(zip(*rows, strict=True))
    names = ("response_id", "criterion_id", "decision")
    return pa.table(dict(zip(names, columns, strict=True)) | {"rater_id": ["a"] * len(rows)})


@pytest.mark.parametrize("score", [-0.5, 5.5])
def test_a_score_off_the_scale_of_its_own_item_is_named(score: float) -> None:
    (found,) = off_scale(gradings(("j", 9, {}), ("i", None, {}), ("i", score, {})), RUBRIC_OF)
    rule = f"rater 'a' gave response 'x2' {score:g}, off the scale 0 to 5 of item 'i'"
    assert found == Offence("x2", "a", None, rule)


def test_a_mark_out_of_other_points_than_its_scale_ends_at_is_named() -> None:
    assert [one.response_id for one in off_scale(gradings(("i", 4, {}), ("j", 4, {}), out_of=5), RUBRIC_OF)] == ["x1"]
    found = off_scale(gradings(("i", 4, {"t": 2}), ("i", 4, {}), **{"out_of t": 5}), RUBRIC_OF)
    assert [(one.response_id, one.part) for one in found] == [("x0", "t")]


@pytest.mark.parametrize("mark", [-1.0, 3.5])
def test_a_trait_score_off_the_range_is_named(mark: float) -> None:
    (found,) = off_scale(gradings(("i", 5, {"t": 3}), ("j", None, {"u": 99, "t": mark})), RUBRIC_OF)
    rule = f"rater 'a' gave response 'x1' {mark:g}, off the range 0 to 3 of trait 't' of item 'j'"
    assert found == Offence("x1", "a", "t", rule)


@pytest.mark.parametrize(
    ("mark", "rule"),
    [
        (("x", "P2", 0), "level 0 of criterion 'P2'; rubric 'r5' has no criterion 'P2'"),
        (("x", "P3", 0), "level 0 of criterion 'P3'; rubric 'r5' makes it of its sub-points"),
        (("x", "P1", 3), "level 3 of criterion 'P1'; rubric 'r5' has levels 0 to 2 for it"),
    ],
)
def test_a_mark_that_the_rubric_of_its_response_does_not_have_is_named(mark: tuple[str, str, int], rule: str) -> None:
    found = unknown_mark(marks(("w", "P2", 2), ("x", "P1", 2), mark), ANSWERED, RUBRIC_OF)
    assert found == Offence("x", "a", mark[1], f"rater 'a' marked response 'x' with {rule}")


def data(source: dict[str, Any]) -> Data:
    return Data.model_validate({"folder": "in", "sources": [{"file": "other.csv"}, {"file": "a.csv"} | source]})


def test_the_place_of_a_score_is_its_row_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,set,one,ideas\nx,0,1,2\n\nx,1,9,9\n")
    scores = [{"rater": "b", "score": "two"}, {"rater": "a", "score": "one", "traits": {"t": "ideas"}}]
    source = {"responses": {"response_id": "id", "item_id": "id", "text": "id"}, "where": {"set": 1}, "scores": scores}
    assert score_place(data(source), tmp_path, Offence("x", "a", None, "")) == ("a.csv", 3, "one", 4)
    assert score_place(data(source), tmp_path, Offence("x", "a", "t", "")) == ("a.csv", 3, "ideas", 4)


def test_the_place_of_a_mark_is_its_row_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("id,point,mark\nx,P1,1\nx,P2,9\n")
    source = {"marks": {"response_id": "id", "rater_id": {"const": "a"}, "criterion_id": "point", "level": "mark"}}
    assert mark_place(data(source), tmp_path, Offence("x", "a", "P2", "")) == ("a.csv", 2, "mark", 3)


def test_the_place_of_a_score_is_that_of_the_row_that_gives_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,one\nx,\n'=x,9\nx,8\n")
    source = {"file": "a.csv", "scored": "id", "scores": [{"rater": "a", "score": "one"}]}
    votes = Data.model_validate({"sources": [source]})
    assert score_place(votes, tmp_path, Offence("x", "a", None, "")) == ("a.csv", 3, "one", 4)
    assert score_place(votes, tmp_path, Offence("=x", "a", None, "")) == ("a.csv", 2, "one", 3)
    assert score_place(votes, tmp_path, Offence("z", "a", None, "")) is None


WORDS = st.sampled_from(["p", "q", "", " p ", "a:b", "#", "-", "<b>p</b>", "long " * 10])
IDS = st.lists(st.sampled_from(["who", "when", "{row}", "n"]), min_size=1, max_size=3, unique=True)


@settings(max_examples=20)
@given(st.lists(st.tuples(WORDS, WORDS), min_size=1, max_size=6), IDS, st.booleans(), st.booleans())
def test_every_score_that_ingest_reads_has_the_place_of_its_cell(
    rows: list[tuple[str, str]], ids: list[str], wide: bool, html: bool
) -> None:
    ids = [name for name in ids if wide or name != "n"] or ["who"]
    header, table = ["who", "when", "text 1", "mark 1", "text 2", "mark 2"], []
    for n, (who, when) in enumerate(rows):
        table.append([who, when, "so", str(2 * n), "no" if n % 2 else "-", str(2 * n + 1)])
    source: dict[str, Any] = {"file": "a.csv", "ids": {"id": ids}, "html": html, "blank": ["-"]}
    pattern, score = ("{n}", "mark") if wide else ("1", "mark 1")
    source["wide"] = {"text": f"text {pattern}", "mark": f"mark {pattern}"} if wide else {}
    source["responses"] = {"response_id": "id", "item_id": {"const": "i"}, "text": "text" if wide else "text 1"}
    source["scores"] = [{"rater": "a", "score": score}]
    data = Data.model_validate({"sources": [source]})
    with TemporaryDirectory() as folder:
        write_csv(Path(folder) / "a.csv", header, table)
        (stream,) = streams(data, Path(folder))
        try:
            (frame,) = stream.chunks()
        except InputError:  # a row with an answer lacks a part of its id
            return
        for name, mark in zip(frame["id"], frame[score], strict=True):
            of_one = frame.loc[frame["id"] == name]
            if len(of_one) == 1:
                place = score_place(data, Path(folder), Offence(name.strip(), "a", None, ""))
                assert table[place.row - 1][header.index(place.field)] == mark
