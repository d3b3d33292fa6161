"""Identical answers and empty ones are one decision; what could not be read is none of them."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from review_scene import PLAIN, case, machine_label, quote, scene, span

from rubricflow.tasks.people.review.board import Board, PredictedScore, Vouching
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


# What whoever is first sees of the machine before they submit: all, its words and quotes, or nothing.


SAID = "It says 'because of osmosis' and 'by magic'."
QUOTES = (span(PLAIN, "because of osmosis"), quote("by magic", "fabricated"))


def shown_board(shows: str) -> Board:
    one = replace(scene((case("a", "drawn by chance", PLAIN),)), shows=shows, explanations={"a": SAID})
    machine = {("a", "C2"): [machine_label("judge", 2, 0.9, QUOTES, stated=2)]}
    return replace(one, machine=machine, vouching=Vouching(5, 1, frozenset({"a"}), "little wrong"))


def submit(service: ReviewService) -> None:
    shown = service.show_case(0, "Ada", adjudicating=False)
    about = {"subject_kind": "label", "response_id": "a", "rater": "Ada"}
    votes = [
        {"kind": "vote", "criterion_id": one["criterion_id"], "value": "1", "digest": one["digest"]}
        for one in shown["asked"]
    ]
    for number, act in enumerate([*votes, {"kind": "submit"}]):
        name = f"00000000-0000-4000-8000-{number:012d}"
        service.store(Sent.model_validate({"act_id": name, **about, **act}))


@pytest.mark.parametrize(
    ("shows", "words", "verdict", "blind"),
    [("verdict", True, True, False), ("explanation", True, False, False), ("nothing", False, False, True)],
)
def test_a_board_shows_as_much_as_it_says(tmp_path: Path, shows: str, words: bool, verdict: bool, blind: bool) -> None:
    told = []
    with Ledger(tmp_path / "votes.sqlite") as ledger:
        service = ReviewService(shown_board(shows), ledger, on_stored=lambda: told.append(1))
        before = service.show_case(0, "Ada", adjudicating=False)
        assert before["sees_machine"] == verdict
        assert before["why"] == service.list_cases("Ada", False)["cases"][0]["why"] == "drawn by chance"
        holds = {piece["text"]: piece["holds"] for piece in before["explanation"] if piece["holds"] is not None}
        assert holds == ({"because of osmosis": True, "by magic": False} if words else {})
        assert "".join(piece["text"] for piece in before["explanation"]) == (SAID if words else "")
        assert [piece["text"] for piece in before["pieces"] if piece["of"]] == ["because of osmosis"] * words
        (label,) = next(one["machine"] for one in before["asked"] if one["criterion_id"] == "C2") or [None]
        assert (label is not None) == words
        if label and not verdict:
            assert {label[name] for name in ("value", "probability", "stated", "action", "reason")} == {None}
            assert not any(one["doubtful"] for one in before["asked"])
            assert "0.9" not in json.dumps(before)
        submit(service)
        after = service.show_case(0, "Ada", adjudicating=False)
        assert after["sees_machine"]
        acts = ledger.acts(service.list_cases("Ada", False)["study"])
        assert [act.blind for act in acts if act.kind == "vote"] == [blind] * 3
    assert len(told) == 4
