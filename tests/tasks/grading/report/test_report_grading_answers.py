"""The report's table of all answers: their order, what it leaves out, where it leads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from builders.graded import answer, graded_run
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.store.catalogue import catalogue
from rubricflow.tasks.grading.report.answers import FIRST_ANSWERS, MOST_ANSWERS, ORDERS, answer_rows, answers_section

EVIL = '</td></style><script>alert(1)</script><img src=x onerror="1"> {{ 7*7 }} \u202e'


def row(name: str = "a1", **changes: Any) -> dict[str, Any]:
    usual = {"response_id": name, "item_id": "q1", "author_id": "ann", "final_score": 2.0, "decided_by": "machine"}
    machine = {
        "settled_by": None,
        "low": 1.0,
        "high": 3.0,
        "risk": 0.1,
        "route_reason": None,
        "answers": 1,
        "question": "Why?",
        "judge_score": 2.0,
    }
    return usual | machine | changes


def queried(folder: Path, *graded: dict[str, Any]) -> list[dict[str, Any]]:
    with catalogue(graded_run(folder, graded)) as tables:
        return list(tables.sql(FIRST_ANSWERS).to_arrow_table().to_pylist())


def test_what_waits_comes_first_and_has_no_score(tmp_path: Path) -> None:
    rows = queried(tmp_path, answer("a1"), answer("a2", "q2", route="review"))
    waiting, released = answer_rows(rows, {}, [], {})
    assert (waiting.score, waiting.interval, waiting.state[:18]) == ("", "", "waits for a person")
    assert (released.score, released.interval, released.state) == ("2", "1 to 3", "released")
    section = answers_section(rows, {}, [], {})
    assert section is not None
    assert section.title == "All 2 answers and their scores"
    assert answers_section([], {}, [], {}) is None


def test_a_page_holds_a_part_of_many_answers_and_says_so(tmp_path: Path) -> None:
    rows = queried(tmp_path, *(answer(f"a{number}", student=f"s{number}") for number in range(MOST_ANSWERS + 7)))
    section = answers_section(rows, {}, [], {})
    assert section is not None
    assert len(rows) == MOST_ANSWERS
    assert section.title.startswith("500 of 507 answers")
    assert " 7 more are in the sheet" in section.lead


SCORES = st.one_of(st.none(), st.integers(0, 8).map(lambda number: number / 2))


@given(st.lists(st.tuples(SCORES, st.sampled_from(["ann", "ben", None]), st.sampled_from("qrs")), min_size=1))
def test_every_order_is_one_of_all_rows(drawn: list[tuple[Any, Any, str]]) -> None:
    rows = [row(f"a{n}", final_score=score, author_id=who, item_id=item) for n, (score, who, item) in enumerate(drawn)]
    shown = answer_rows(rows, {}, [], {})
    by: dict[str, list[dict[str, Any]]] = {}
    for order, name in enumerate(ORDERS):
        places = [line.places[order] for line in shown]
        assert sorted(places) == list(range(1, len(rows) + 1))
        by[name] = [record for _, record in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])]
    assert by["waiting first"] == rows
    assert [record["item_id"] for record in by["question"]] == sorted(record["item_id"] for record in rows)
    scores = sorted(record["final_score"] for record in rows if record["final_score"] is not None)
    unscored = [None] * (len(rows) - len(scores))
    assert [record["final_score"] for record in by["lowest score first"]] == [*scores, *unscored]
    assert [record["final_score"] for record in by["highest score first"]] == [*scores[::-1], *unscored]


def drawn(rows: list[dict[str, Any]], links: dict[str, str]) -> str:
    section = answers_section(rows, links, [], {})
    assert section is not None
    return str(section.parts[0])


def test_a_row_leads_to_the_page_of_its_student() -> None:
    page = drawn([row("a1"), row("a2")], {"a1": "../feedback/students/ann-0.html"})
    assert re.findall(r'href="([^"]*)"', page) == ["../feedback/students/ann-0.html"]


def test_hostile_ids_stay_text_and_nothing_runs() -> None:
    page = drawn([row(EVIL, item_id=EVIL, author_id=EVIL)], {})
    assert not re.search(r"<(script|img)", page)
    assert "&lt;script&gt;" in page


def test_who_settled_it_or_why_it_waits_is_said() -> None:
    rows = [
        row("a1", decided_by="person", settled_by="one_vote"),
        row("a2", decided_by="waits", settled_by="open", final_score=None),
        row("a3", decided_by="waits", route_reason="unscored", final_score=None),
    ]
    assert [line.state for line in answer_rows(rows, {}, [], {})] == [
        "one person's vote",
        "waits for a person: nothing yet: open",
        "waits for a person: no score",
    ]


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 3))
def test_a_released_score_far_from_the_judge_says_so(judged: float, score: float, tolerance: float) -> None:
    (shown,) = answer_rows([row(judge_score=judged, final_score=score)], {}, [], {"q1": tolerance})
    far = abs(judged - score) > tolerance + 1e-9
    assert ("what the judge itself gave" in shown.state) == far


def test_an_answer_that_waits_says_the_number_that_decides() -> None:
    rule = {"scope": "all", "threshold": 0.13, "note": None}
    waiting = row(decided_by="waits", final_score=None, route_reason="risk", risk=0.24)
    (shown,) = answer_rows([waiting], {}, [rule], {})
    assert shown.state.endswith("estimated risk 24%, at most 13% may go out")
