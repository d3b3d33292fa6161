"""What marked answers suffice for, in words, before anything is graded."""

from __future__ import annotations

from typing import Any

from builders import studies

from tasks.calibrate.needs import MarkedAnswers, release_needs


def told(*items: tuple[int, int], **settings: Any) -> list[str]:
    groups = [MarkedAnswers(f"q{place}", *counts) for place, counts in enumerate(items)]
    return [f"{kind} {message}" for kind, _, message in release_needs(studies.study(**settings), groups)]


def test_a_set_with_too_few() -> None:
    first, second = told((12, 6), (14, 7), release={"by": "set"}, split={"per": "set", "calibration": 100})
    assert first == "warning 45 marked answers without an error for 5 % at 90 %; you have 13 to calibrate on"
    assert second == (
        "warning split.calibration wishes for 100 marked answers, 13 are taken: at most half of the 26 marked ones, "
        "the others test the scores"
    )


def test_a_set_with_enough() -> None:
    (only,) = told((200, 100), release={"by": "set"}, split={"per": "set", "calibration": 100})
    assert only == "ok 45 marked answers without an error for 5 % at 90 %; you have 100 to calibrate on"


def test_by_item_the_poorest_is_named() -> None:
    first, *_ = told((200, 100), (20, 10), release={"by": "item", "risk": 0.1, "confidence": 0.95})
    assert first == (
        "warning 29 marked answers without an error for 10 % at 95 %, for every question; "
        "1 of 2 questions have fewer, 'q1' the fewest: 10"
    )


def test_without_marks_nothing_is_promised() -> None:
    assert told((0, 0)) == ["warning no answer is marked by people: nothing is calibrated, and no score is released"]
