"""Identical answers and empty ones are one decision; what could not be read is none of them."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

from review_scene import PLAIN, case, scene

from rubricflow.tasks.people.review.board import Board, PredictedScore
from rubricflow.tasks.people.review.ledger import Ledger
from rubricflow.tasks.people.review.view import ReviewService, Sent

ZERO = PredictedScore(0.0, 0.0, None, None, None, None)
TEXTS = {"a": PLAIN, "b": f"{PLAIN}\n", "c": PLAIN, "empty": "", "blank": " \n", "unread": "", "other": "Salt."}
QUESTIONS = {"c": "q2", "blank": "q2"}


def board() -> Board:
    """a and b say the same to one question, c to another one; empty and blank are empty, unread has no score."""
    cases = tuple(
        replace(case(name, "waits", text), subject_kind="score", item_id=QUESTIONS.get(name, "q1"))
        for name, text in TEXTS.items()
    )
    return replace(scene(cases), predictions={name: ZERO for name in TEXTS if name != "unread"})


def act(service: ReviewService, number: int, kind: str, criterion: str | None = None, **fields: str) -> str:
    """Something that Ada does on a case; gives its id."""
    shown = service.show_case(number, "Ada", adjudicating=False)
    digests = {ballot["criterion_id"]: ballot["digest"] for ballot in shown["asked"]}
    about = {"digest": digests[criterion], "criterion_id": criterion} if kind in ("vote", "note") else {}
    sent = Sent.model_validate(
        {"act_id": str(uuid.uuid4()), "kind": kind, "subject_kind": "label" if criterion else "score"}
        | {"response_id": shown["response_id"], "rater": "Ada", **about, **fields}
    )
    service.store(sent)
    service.store(sent)  # sent again it is the same act
    return sent.act_id


def decided(service: ReviewService) -> set[str]:
    rows = service.list_cases("Ada", adjudicating=False)["cases"]
    return {row["response_id"] for row in rows if row["submitted"]}


def test_a_submission_decides_what_says_the_same_and_its_undo_takes_all_back(tmp_path: Path) -> None:
    with Ledger(tmp_path / "votes.sqlite") as ledger:
        service = ReviewService(board(), ledger)
        assert service.show_case(0, "Ada", adjudicating=False)["alike"] == ["b"]
        act(service, 0, "vote", value="3")
        act(service, 0, "vote", "C1", value="2")
        act(service, 0, "note", comment="Well said.")
        submission = act(service, 0, "submit")
        assert decided(service) == {"a", "b"}
        copied = service.show_case(1, "Ada", adjudicating=False)
        assert [one["mine"] and one["mine"]["value"] for one in copied["asked"]] == ["3", "2", None, None]
        assert [note["text"] for note in copied["notes"]] == ["Well said."]
        act(service, 0, "undo", undoes=submission)
        again = service.show_case(1, "Ada", adjudicating=False)
        assert decided(service) == set()
        assert (again["asked"][0]["mine"], again["notes"]) == (None, [])


def test_those_that_are_alike_are_held_once_however_many_they_are() -> None:
    alike = board().alike
    assert alike["a"] is alike["b"]
    assert [case.response_id for case in alike["empty"]] == ["empty", "blank"]


def test_empty_answers_of_all_questions_are_one_decision_but_what_could_not_be_read_waits(tmp_path: Path) -> None:
    with Ledger(tmp_path / "votes.sqlite") as ledger:
        service = ReviewService(board(), ledger)
        number = list(TEXTS).index("empty")
        act(service, number, "vote", value="0")
        act(service, number, "vote", "C1", value="1")
        act(service, number, "submit")
        assert decided(service) == {"empty", "blank"}
        blank = service.show_case(number + 1, "Ada", adjudicating=False)
        assert [one["mine"] and one["mine"]["value"] for one in blank["asked"]] == ["0", None, None, None]


def test_what_somebody_has_voted_on_is_left_to_them(tmp_path: Path) -> None:
    with Ledger(tmp_path / "votes.sqlite") as ledger:
        service = ReviewService(board(), ledger)
        act(service, 1, "vote", value="1")
        act(service, 0, "vote", value="3")
        act(service, 0, "submit")
        assert decided(service) == {"a"}
