"""The page of a graded study in a real browser: the calibrated score, levels that move it, notes, and the list."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from review_scene import HOSTILE, PLAIN, case, machine_label, quote, scene, span

from rubricflow.tasks.people.review.board import Board, PredictedScore
from rubricflow.tasks.people.review.ledger import Ledger, Stored

Person = Callable[..., Any]
Serving = Callable[..., str]
MACHINE = PredictedScore(1.0, 3.0, 0.0, 2.0, 0.45, None)
TEXTS = {"R-2": HOSTILE, "R-3": f"{PLAIN} So it shrinks."}
STUDENTS = {"R-1": ("Mia", "q1"), "R-2": ("<b>Tom</b>", "q2"), "R-3": ("Zoë", "q1")}


def board() -> Board:
    """Three answers to two questions; the first has a quote that holds, one that does not, and a criterion without."""
    cases = tuple(
        replace(case(name, "Risk above 20%", TEXTS.get(name, PLAIN)), subject_kind="score",
                student=student, item_id=question)
        for name, (student, question) in STUDENTS.items()
    )  # fmt: skip
    machine = {
        ("R-1", "C1"): (machine_label("judge", 2, 0.93, (span(PLAIN, "water comes out of the potato"),), None, 2),),
        ("R-1", "C2"): (machine_label("judge", 0, 0.8, (quote("membrane", "fabricated"),), None, 2, "demoted"),),
        ("R-1", "C3"): (machine_label("judge", None, reason="invalid_reply"),),
    }
    return replace(
        scene(cases),
        machine=machine,
        predictions=dict.fromkeys(STUDENTS, MACHINE),
        rubric_texts={"r": "One point for <i>water</i>."},
        coverage=0.9,
        grader=None,
    )


def follow(response_id: str, levels: Mapping[str, int]) -> PredictedScore:
    """A point for every level that was set, 4 at most."""
    return MACHINE._replace(score=float(min(4, sum(levels.values()))), low=0.0, high=4.0)


def acts(path: Path) -> list[Stored]:
    with Ledger(path) as ledger:
        return ledger.acts("science")


def said(path: Path) -> list[tuple[str, str | None, str | None]]:
    return [(act.kind, act.criterion_id, act.value or act.comment) for act in acts(path)]


def press(page: Any, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def shows(page: Any, selector: str, text: str) -> None:
    page.locator(selector, has_text=text).first.wait_for()


@pytest.fixture
def page(serving: Serving, person: Person) -> Any:
    return person(serving(board(), follow=follow), "Ada")


def test_the_calibrated_score_stands_with_its_evidence_and_the_rubric(page: Any) -> None:
    shows(page, ".card", "1 of 4, probably between 0 and 2")
    shows(page, ".card", "By the judge alone: 3 of 4; people’s scores of other answers moved it")
    shows(page, ".why", "Risk above 20%")
    page.click("#sure summary")
    shows(page, "#sure", "In about 45 of 100 such answers, a person would give exactly 1.")
    shows(page, "#sure", "hold 90% of the scores that people give")
    shows(page, "#c1 .counts", "counts 1")
    shows(page, "#c1 .by-machine", "judge")
    shows(page, "#c1 .machine", "level 2 (93% sure)")
    shows(page, "#c2 s.quote", "membrane")
    shows(page, "#c2 .machine", "not in the text")
    shows(page, "#c2 .machine", "it said 2; the credit was withdrawn")
    shows(page, "#c3 .machine", "no level: the reply breaks the contract")
    assert page.locator(".evidence").inner_text().startswith("water comes out of the potato")
    assert page.locator(".evidence.on").count() == 0
    page.hover("#c1 h3")
    assert page.locator(".evidence.on").count() == 1
    page.locator("details.more summary", has_text="Rubric").click()
    shows(page, "main", "One point for <i>water</i>.")
    assert page.locator("main i").count() == 0


def test_a_moved_level_moves_the_score_and_can_be_taken_over_by_keys_alone(page: Any, ledger_path: Path) -> None:
    shows(page, "#take", "Take 1, the machine’s")
    press(page, "j", "1", "j", "2")
    shows(page, "#follows", "3 of 4, probably between 0 and 4")
    shows(page, "#take", "Take 3, which follows from your criteria")
    assert page.locator("#c0 [aria-checked=true]").count() == 0  # moving is not scoring
    press(page, "s")
    shows(page, "#say", "Score has no vote yet. t takes 3.")
    press(page, "u")
    shows(page, "#follows", "1 of 4, probably between 0 and 4")
    press(page, "2", "t")
    shows(page, "#c0 [aria-checked=true]", "3")
    press(page, "s")
    shows(page, "h2", "R-2")
    shows(page, "#done", "1 of 3 looked at")
    shows(page, "#stored", "Everything stored")
    assert said(ledger_path) == [
        ("vote", "C1", "1"),
        ("vote", "C2", "2"),
        ("undo", None, None),
        ("vote", "C2", "2"),
        ("vote", None, "3"),
        ("submit", None, None),
    ]


def test_a_note_is_stored_before_the_page_says_so_and_can_be_wiped_out(page: Any, ledger_path: Path) -> None:
    press(page, "w")
    page.keyboard.type("Well begun. t s 4")
    shows(page, "#noteState", "Not stored yet")
    press(page, "Escape")
    page.locator("#noteState", has_text="Stored.").wait_for()
    assert said(ledger_path) == [("note", None, "Well begun. t s 4")]
    page.reload()
    page.wait_for_selector("#studentNote")
    assert page.input_value("#studentNote") == "Well begun. t s 4"
    page.fill("#studentNote", "")
    press(page, "Escape")
    shows(page, "#noteState", "reads it on their page")
    shows(page, "#stored", "Everything stored")
    assert [act.kind for act in acts(ledger_path)] == ["note", "undo"]


def test_the_list_is_filtered_and_ordered_and_keys_go_through_what_it_shows(page: Any) -> None:
    names = page.locator("#list bdi")
    assert names.all_inner_texts() == ["Mia", "<b>Tom</b>", "Zoë"]
    press(page, "/")
    page.keyboard.type("zo")
    assert names.all_inner_texts() == ["Zoë"]
    shows(page, "#done", "0 of 3 looked at, 1 in the list")
    press(page, "Escape", "n")
    shows(page, "h2", "R-3")
    page.fill("#by-text", "")
    page.select_option("#by-question", "q1")
    assert names.all_inner_texts() == ["Mia", "Zoë"]
    page.select_option("#by-question", "")
    page.select_option("#by-order", "student")
    assert names.all_inner_texts() == ["<b>Tom</b>", "Mia", "Zoë"]
    page.locator("#c0 [role=radio]").first.focus()
    press(page, "2", "s")
    shows(page, "#done", "1 of 3")
    page.select_option("#by-state", "open")
    assert names.all_inner_texts() == ["<b>Tom</b>", "Mia"]


def test_who_rates_second_sees_no_score_of_the_machine_and_none_that_follows(
    serving: Serving, person: Person, ledger_path: Path
) -> None:
    url = serving(board(), follow=follow)
    first = person(url, "Ada")
    press(first, "4", "s")
    shows(first, "#done", "1 of 3 looked at")
    shows(first, "#stored", "Everything stored")
    second = person(url, "Bo")
    shows(second, ".card", "The machine’s score stays hidden until you submit")
    press(second, "j", "2")
    shows(second, "#stored", "Everything stored")
    assert second.locator("#follows, #sure, .machine, .evidence, .by-machine").count() == 0
    assert not second.locator("#take").is_visible()
    press(second, "k", "3", "s")
    shows(second, "#outcome", "To adjudicate: Score")
    shows(second, ".card", "1 of 4, probably between 0 and 2")
    assert {act.rater_id: act.blind for act in acts(ledger_path) if act.kind == "vote"} == {"Ada": False, "Bo": True}


def test_nothing_is_wider_than_the_page(page: Any) -> None:
    shows(page, ".card", "1 of 4")
    for width in (360, 800, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_marked_answer_asks_nobody_and_a_submitted_score_takes_the_marks_place(
    serving: Serving, person: Person, ledger_path: Path
) -> None:
    history = ("2 (judge)", "3 (anna, 2026-11-23 15:00)")
    first, *others = board().cases
    marked = [replace(one, marked=True, history=history, why="Marked 3 by anna") for one in others]
    page = person(serving(replace(board(), cases=(first, *marked)), follow=follow), "Ada")
    shows(page, "#done", "0 of 1 looked at, 2 marked beforehand")
    assert page.locator(".queue li button", has_text="Marked 3 by anna").count() == 2
    page.locator(".queue li button", has_text="Zoë").click()
    shows(page, ".why", "The mark stands; a score that you submit takes its place.")
    assert history[1] in page.locator("main").text_content()
    press(page, "4", "s")
    shows(page, "h2", "R-1")  # the one answer that waits
    shows(page, "#stored", "Everything stored")
    assert said(ledger_path) == [("vote", None, "4"), ("submit", None, None)]
