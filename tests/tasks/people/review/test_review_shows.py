"""What whoever is first sees of the machine before they submit: all, its words and quotes, or nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from review_scene import PLAIN, case, machine_label, quote, scene, span

from rubricflow.tasks.people.review.board import Board, Vouching
from rubricflow.tasks.people.review.ledger import Ledger
from rubricflow.tasks.people.review.view import ReviewService, Sent

SAID = "It says 'because of osmosis' and 'by magic'."
QUOTES = (span(PLAIN, "because of osmosis"), quote("by magic", "fabricated"))


def board(shows: str) -> Board:
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
        service = ReviewService(board(shows), ledger, on_stored=lambda: told.append(1))
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
