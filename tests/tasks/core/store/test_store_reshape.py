"""Files that are not a row an answer: melted, given ids and names, and without their markup."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.data import Data, Source
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.cells import id_of
from rubricflow.tasks.core.store.reshape import Counted, label_of, matching, reshaped
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.sources import streams
from rubricflow.tasks.grading.ingest.task import ingest
from tests.builders.files import write_csv

NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=60)
CELLS = st.one_of(st.none(), st.text(max_size=8))


def frame(columns: dict[str, list[Any]]) -> Any:
    import pandas as pd

    return pd.DataFrame(columns, dtype=object)


def mapping(text: str) -> dict[str, Any]:
    return {"response_id": "id", "item_id": "id", "text": text}


def read(base: Path, **source: Any) -> list[dict[str, Any]]:
    (stream,) = streams(Data(sources=(Source.model_validate({"file": "a.csv"} | source),)), base)
    return [row for part in stream.chunks() for row in part.to_dict("records")]


@settings(max_examples=15)
@given(st.lists(NAMES, min_size=1, max_size=5, unique=True), st.data())
def test_a_wide_table_melted_is_the_long_one_written_by_hand(questions: list[str], data: st.DataObject) -> None:
    students = data.draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    answers = {(s, q): data.draw(CELLS) for s in students for q in questions}
    marks = {(s, q): data.draw(CELLS) for s in students for q in questions}
    wide: dict[str, list[Any]] = {"student": students}
    for question in data.draw(st.permutations(questions)):
        wide[f"Answer {question}!"] = [answers[student, question] for student in students]
        wide[f"Mark {question}?"] = [marks[student, question] for student in students]
    source = Source(file="x.csv", wide={"answer": "Answer {n}!", "mark": "Mark {n}?"})
    melted = reshaped(source, frame(wide))
    rows = {(row["student"], row["n"]): (row["answer"], row["mark"]) for row in melted.to_dict("records")}
    asked = [key for key in answers if (answers[key] or "").strip() or (marks[key] or "").strip()]
    assert rows == {key: (answers[key], marks[key]) for key in asked}
    assert len(melted) == len(rows)
    assert [students[place] for place in melted.index] == melted["student"].tolist()


@settings(max_examples=15)
@given(st.lists(st.tuples(NAMES, NAMES), min_size=2, max_size=6, unique=True), st.randoms())
def test_made_ids_tell_rows_apart_and_do_not_depend_on_their_order(keys: list[tuple[str, str]], chance: Any) -> None:
    source = Source(file="x.csv", ids={"id": ("student", "question")}, responses=mapping("text"))
    shuffled = chance.sample(keys, len(keys))

    def ids(rows: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
        columns = {"student": [s for s, _ in rows], "question": [q for _, q in rows], "text": ["t"] * len(rows)}
        return dict(zip(rows, reshaped(source, frame(columns))["id"], strict=True))

    assert ids(keys) == ids(shuffled)
    assert len(set(ids(keys).values())) == len(keys)


def test_long_parts_of_an_id_become_digests_and_short_ones_stay() -> None:
    assert id_of(["anna@school.example", "3"]) == "anna@school.example:3"
    assert id_of(["a:b", "c"]) != id_of(["a", "b:c"])
    assert len(id_of(["Why does the moon have phases, and not always the same?" * 9])) == 13


@pytest.mark.parametrize(
    ("pattern", "column", "words"),
    [
        ("Response {n}", "Response 12", {"n": "12"}),
        ("Question {n}", "Question ID 1", None),
        ("Response {n}", " Response 1 ", {"n": "1"}),
        ("{n}: {question}", "101: Why: because?", {"n": "101", "question": "Why: because?"}),
        ("Q. {n} /{points}", "Q. 2 /5.00", {"n": "2", "points": "5.00"}),
        ("a.b {n}", "axb 1", None),
    ],
)
def test_what_a_pattern_names(pattern: str, column: str, words: dict[str, str] | None) -> None:
    match = matching(pattern).fullmatch(column)
    assert (match.groupdict() if match else None) == words


def test_the_column_to_the_right_belongs_to_the_question_though_all_share_a_name(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["id", "7: Why?", "1.0", "8: How?", "1.0"], [["s", "so", "1", "thus", "0"]])
    rows = read(tmp_path, wide={"answer": "{n}: {question}", "points": {"right_of": "answer"}})
    kept = [(row["n"], row["question"], row["answer"], row["points"]) for row in rows]
    assert kept == [("7", "Why?", "so", "1"), ("8", "How?", "thus", "0")]


@pytest.mark.parametrize("who", [[], ["  points POSSIBLE "], ["Ada", "Points Possible", "Points"]])
def test_rows_that_are_no_student_s_are_left_out_and_no_column(who: list[str]) -> None:
    source = Source.model_validate({"file": "a.csv", "without": {"who": ["Points Possible"]}})
    kept = reshaped(source, frame({"who": who, "text": who}))
    assert list(kept.columns) == ["who", "text"]
    assert kept["who"].tolist() == [name for name in who if name in ("Ada", "Points")]


def test_columns_to_the_right_of_each_other_may_be_named_in_any_order(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["A 1", "m", "c", "A 2", "m", "c"], [["so", "1", "Good.", "thus", "0", ""]])
    wide = {"answer": "A {n}", "mark": {"right_of": "answer"}, "comment": {"right_of": "mark"}}
    for order in permutations(wide):
        rows = read(tmp_path, wide={name: wide[name] for name in order})
        kept = [(row["n"], row["answer"], row["mark"], row["comment"]) for row in rows]
        assert kept == [("1", "so", "1", "Good."), ("2", "thus", "0", "")]


def test_a_question_that_was_not_put_to_a_student_is_left_out_and_an_empty_answer_is_not(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["who", "Q 1", "A 1", "Q 2", "A 2"], [["x", "Why?", "-", "-", "-"]])
    rows = read(tmp_path, blank=["-"], wide={"question": "Q {n}", "answer": "A {n}"})
    assert [(row["n"], row["answer"]) for row in rows] == [("1", "")]
    write_csv(tmp_path / "a.csv", ["who", "A 1", "A 2"], [["x", "", "so"]])
    assert [row["answer"] for row in read(tmp_path, wide={"answer": "A {n}"})] == ["", "so"]


def test_a_line_of_averages_is_no_submission_and_an_answer_without_a_student_is_an_error(tmp_path: Path) -> None:
    rows = [["a@x.example", "so"], ["", ""]]
    write_csv(tmp_path / "a.csv", ["mail", "A 1"], rows)
    source = {"wide": {"answer": "A {n}"}, "ids": {"id": ["mail", "n"]}, "responses": mapping("answer")}
    assert [row["id"] for row in read(tmp_path, **source)] == ["a@x.example:1"]
    write_csv(tmp_path / "a.csv", ["mail", "A 1"], [*rows, ["", "mine"]])
    with pytest.raises(InputError, match=r"a\.csv, row 3, field 'mail': is empty, and 'id' is made of it"):
        read(tmp_path, **source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"wide": {"answer": "Reply {n}"}}, r"no column is named 'Reply \{n\}'; there are mail, A 1, A  2"),
        ({"wide": {"mail": "A {n}"}}, r"field 'mail': is to be made of several columns"),
        ({"ids": {"mail": ["A 1"]}}, r"field 'mail': is to be made of other columns"),
        ({"ids": {"id": ["post"]}}, r"field 'post': no such column"),
        ({"names": {"name": ["post"]}}, r"field 'post': no such column"),
        ({"wide": {"answer": "A {n}", "other": "A {n}"}, "ids": {"id": ["m"]}}, r"field 'm': no such column"),
    ],
)
def test_what_cannot_be_made_is_named(tmp_path: Path, source: dict[str, Any], message: str) -> None:
    write_csv(tmp_path / "a.csv", ["mail", "A 1", "A  2"], [["a@x.example", "so", "thus"]])
    with pytest.raises(InputError, match=message):
        read(tmp_path, **source)


@settings(max_examples=15)
@given(st.lists(NAMES, min_size=1, max_size=30), st.integers(1, 29))
def test_questions_keep_their_numbers_over_chunks_and_when_rows_are_added(words: list[str], cut: int) -> None:
    source = Source(file="x.csv", numbered={"q": ("words",)}, labels={"id": ("q", "{row}")}, responses=mapping("words"))
    whole = reshaped(source, frame({"words": words}))
    counted = Counted()
    parts = [frame({"words": words}).iloc[:cut], frame({"words": words}).iloc[cut:]]
    ids = [key for part in parts if len(part) for key in reshaped(source, part, counted)["id"]]
    assert ids == whole["id"].tolist()
    assert len(set(ids)) == len(words)
    numbers = dict(zip((" ".join(word.split()) for word in words), whole["q"], strict=True))
    assert len(set(numbers.values())) == len(numbers)
    own = {word: number for word, number in numbers.items() if word.isascii() and word.isdigit() and len(word) < 3}
    first = next(iter(numbers))
    assert numbers[first] == (f"Q{first}" if first in own else "Q1")


def test_namesakes_and_second_attempts_are_counted_row_by_row() -> None:
    source = Source(
        file="x.csv",
        wide={"answer": "A {n}"},
        repeats={"again": ("who",)},
        labels={"student": ("who", "again"), "id": ("student", "n")},
        responses=mapping("answer"),
    )
    table = frame({"who": ["Ada", "Bo", "Ada", ""], "A 1": ["a", "b", "c", ""], "A 2": ["d", "e", "f", ""]})
    assert reshaped(source, table)["id"].tolist() == ["Ada-1", "Ada-2", "Bo-1", "Bo-2", "Ada-2-1", "Ada-2-2"]


def test_a_label_shows_long_parts_and_nothing_that_cannot_be_seen() -> None:
    assert label_of(["a" * 60 + "@school.example", "Q1"]) == "a" * 60 + "@school.example-Q1"
    assert label_of(["9:05\u202e AM\n", "#x"]) == "9:05 AM-#x"


def test_two_columns_of_one_question_are_named(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["7: Why?", "7: How?"], [["so", "thus"]])
    with pytest.raises(InputError, match="'7: Why\\?' and '7: How\\?' are both of question '7'"):
        read(tmp_path, wide={"answer": "{n}: {question}"})


@pytest.mark.parametrize(
    "wide",
    [
        {"answer": "Response"},
        {"points": {"right_of": "answer"}},
        {"a": {"right_of": "a"}},
        {"x": "X {n}", "a": {"right_of": "b"}, "b": {"right_of": "a"}},
    ],
)
def test_settings_that_make_nothing_are_refused(wide: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="wide"):
        Source.model_validate({"file": "a.csv", "wide": wide})


def test_what_is_graded_of_html_is_its_text_and_the_table_says_so(tmp_path: Path) -> None:
    answers = [["1", "<p>x &lt; 3</p>", "Anna", "A."], ["2", "x < 3 and y > 2", "", ""]]
    write_csv(tmp_path / "a.csv", ["id", "text", "first", "last"], answers)
    write_csv(tmp_path / "q.csv", ["id", "q", "model"], [["i", "<b>Why</b>?", "<p>Heat.</p>"]])
    items = {"item_id": "id", "question": "q", "reference_answer": "model"}
    responses = {"response_id": "id", "item_id": {"const": "i"}, "text": "text", "author_name": "name"}
    sources = [
        {"file": "q.csv", "html": True, "items": items},
        {"file": "a.csv", "html": True, "names": {"name": ["first", "last"]}, "responses": responses},
    ]
    rubrics = {"derive": {"origin": "reference_answer", "scale": {"min": 0, "max": 1}}}
    study = Study.model_validate({"name": "s", "data": {"sources": sources}, "rubrics": rubrics})
    run = Warehouse.open(tmp_path / "house").run("one")
    data = ingest.fn(run, study, tmp_path)
    rows = run.read(data.responses).to_pylist()
    stored = [(row["text"], row["made_from"], row["author_name"]) for row in rows]
    assert stored == [("x < 3", "html", "Anna A."), ("x < 3 and y > 2", None, None)]
    (item,) = run.read(data.items).to_pylist()
    assert (item["question"], item["reference_answer"]) == ("Why?", "Heat.")
    units = run.read(data.units).to_pylist()
    assert {unit["response_id"]: unit["end"] for unit in units} == {"1": 5, "2": 15}
