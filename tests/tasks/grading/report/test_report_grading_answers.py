"""The report's table of all answers: their order, what it leaves out, where it leads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders.bundles import criterion
from builders.graded import answer, graded_run
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.display.page import Section
from rubricflow.tasks.core.display.say import plain
from rubricflow.tasks.core.store.catalogue import catalogue
from rubricflow.tasks.grading.report.answers import (
    FIRST_ANSWERS,
    MOST_ANSWERS,
    ORDERS,
    answer_row,
    answers_section,
    destination,
    level_words,
    middle,
)

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


def told(record: dict[str, Any], tolerance: float = 9.0, **rules: Any) -> dict[str, str]:
    """The cells of a row."""
    cells = answer_row(record, {}, rules, (0, 4, 1), tolerance)["cells"]
    return {name: plain(cell) for name, cell in cells.items()}


def section_of(rows: list[dict[str, Any]], links: dict[str, str] | None = None) -> Section | None:
    items = {row["item_id"] for row in rows}
    scales, tolerances = dict.fromkeys(items, (0.0, 4.0, 1.0)), dict.fromkeys(items, 9.0)
    return answers_section(rows, links or {}, {}, scales, tolerances, [])


def queried(folder: Path, *graded: dict[str, Any]) -> list[dict[str, Any]]:
    with catalogue(graded_run(folder, graded)) as tables:
        return list(tables.sql(FIRST_ANSWERS).to_arrow_table().to_pylist())


def test_what_waits_comes_first_and_has_no_score(tmp_path: Path) -> None:
    rows = queried(tmp_path, answer("a1"), answer("a2", "q2", route="review"))
    waiting, released = ([*told(row).values()][3:] for row in rows)
    assert (waiting[0], waiting[1], waiting[2][:18]) == ("", "", "waits for a person")
    assert released == ["2 of 4", "1 to 3", "released"]
    section = section_of(rows)
    assert section is not None
    assert section.title == "All 2 answers and their scores"
    assert section_of([]) is None


def test_a_page_holds_a_part_of_many_answers_and_says_so(tmp_path: Path) -> None:
    rows = queried(tmp_path, *(answer(f"a{number}", student=f"s{number}") for number in range(MOST_ANSWERS + 7)))
    section = section_of(rows)
    assert section is not None
    assert len(rows) == MOST_ANSWERS
    assert section.title.startswith("500 of 507 answers")
    assert "in the sheet" in section.lead


SCORES = st.one_of(st.none(), st.integers(0, 8).map(lambda number: number / 2))


@given(st.lists(st.tuples(SCORES, st.sampled_from(["ann", "ben", None]), st.sampled_from("qrs")), min_size=1))
def test_every_order_is_one_of_all_rows(drawn: list[tuple[Any, Any, str]]) -> None:
    rows = [row(f"a{n}", final_score=score, author_id=who, item_id=item) for n, (score, who, item) in enumerate(drawn)]
    page = drawn_rows(rows)
    by: dict[str, list[dict[str, Any]]] = {}
    for order, name in enumerate(ORDERS, 1):
        places = [int(place) for place in re.findall(rf"--o{order}:(\d+)", page)]
        assert sorted(places) == list(range(1, len(rows) + 1))
        by[name] = [record for _, record in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])]
    assert by["waiting first"] == rows
    assert [record["item_id"] for record in by["question"]] == sorted(record["item_id"] for record in rows)
    scores = sorted(record["final_score"] for record in rows if record["final_score"] is not None)
    unscored = [None] * (len(rows) - len(scores))
    assert [record["final_score"] for record in by["lowest score first"]] == [*scores, *unscored]
    assert [record["final_score"] for record in by["highest score first"]] == [*scores[::-1], *unscored]


def drawn_rows(rows: list[dict[str, Any]], links: dict[str, str] | None = None) -> str:
    section = section_of(rows, links)
    assert section is not None
    return str(section.parts[0])


def test_a_row_leads_to_the_page_of_its_student() -> None:
    page = drawn_rows([row("a1"), row("a2")], {"a1": "../feedback/students/ann-0.html"})
    assert re.findall(r'href="([^"]*)"', page) == ["../feedback/students/ann-0.html", "#answer-a2"]
    assert re.findall(r'id="([^"]*)"', page) == ["answer-a1", "answer-a2"]


def test_hostile_ids_stay_text_and_nothing_runs() -> None:
    page = drawn_rows([row(EVIL, item_id=EVIL, author_id=EVIL)])
    assert not re.search(r"<(script|img)", page)
    assert "&lt;script&gt;" in page


def test_who_settled_it_or_why_it_waits_is_said() -> None:
    rows = [
        row("a1", decided_by="person", settled_by="one_vote"),
        row("a2", decided_by="waits", settled_by="open", final_score=None),
        row("a3", decided_by="waits", route_reason="unscored", final_score=None),
    ]
    assert [told(record)["State"] for record in rows] == [
        "one person's vote",
        "waits for a person: nothing yet: open",
        "waits for a person: no score",
    ]


@given(st.floats(0, 10), st.floats(0, 10), st.floats(0, 3))
def test_a_released_score_far_from_the_judge_says_so(judged: float, score: float, tolerance: float) -> None:
    shown = told(row(judge_score=judged, final_score=score), tolerance)
    far = abs(judged - score) > tolerance + 1e-9
    assert ("what the judge itself gave" in shown["State"]) == far


def test_an_answer_that_waits_says_the_number_that_decides() -> None:
    rule = {"scope": "all", "threshold": 0.13, "note": None}
    waiting = row(decided_by="waits", final_score=None, route_reason="risk", risk=0.24)
    assert told(waiting, all=rule)["State"].endswith("risk 24%, limit 13%")


@pytest.mark.parametrize("reason", sorted(ROUTE_REASONS))
def test_no_reason_for_waiting_is_given_of_a_marked_answer(reason: str) -> None:
    row = {"item_id": "q", "route": "review", "route_reason": reason, "risk": 0.4, "raw": 2.0, "calibrated": 2.0}
    assert ROUTE_REASONS[reason] in destination(row, {}, 1.0)
    assert ROUTE_REASONS[reason] not in destination(row, {}, 1.0, by_people=True)


def test_levels_are_numbers_of_their_scale_with_short_anchors() -> None:
    levels = criterion("P1", levels=("absent", "said in part", "said with every reason that there could be"))
    assert [level_words(levels, level) for level in (0, 1, 2)] == ["0 of 2, absent", "1 of 2, said in part", "2 of 2"]


@given(st.lists(st.tuples(st.sampled_from(["release", "review"]), st.floats(0, 1), st.integers(0, 9)), max_size=30))
def test_the_two_answers_are_of_middle_risk_whatever_the_order(rows: list[tuple[str, float, int]]) -> None:
    columns = {"route": [r[0] for r in rows], "risk": [r[1] for r in rows], "raw": [float(r[2]) for r in rows]}
    frame = pd.DataFrame({"response_id": [f"r{i:02d}" for i in range(len(rows))], "calibrated": 1.0, **columns})
    frame["route_reason"] = None
    shown = middle(frame)
    assert shown == middle(frame.iloc[::-1])
    by_id = frame.set_index("response_id")
    assert [by_id["route"][name] for name in shown] == sorted(set(columns["route"]), key=["release", "review"].index)
    for name in shown:
        like = frame[(frame["route"] == by_id["route"][name])]
        like = like[like["raw"] >= like["raw"].median()]
        below = (like["risk"] < by_id["risk"][name]).sum()
        above = (like["risk"] > by_id["risk"][name]).sum()
        assert max(below, above) <= len(like) / 2


@pytest.mark.parametrize(("calibrated", "reason"), [(np.nan, None), (1.0, "precheck")])
def test_an_answer_without_a_score_or_settled_by_a_rule_is_not_shown(calibrated: float, reason: str | None) -> None:
    row = {"response_id": "a", "route": "review", "route_reason": reason, "risk": np.nan, "raw": 1.0}
    assert middle(pd.DataFrame([row | {"calibrated": calibrated}])) == []
