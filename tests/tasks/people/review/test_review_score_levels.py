"""Levels behind a score on the page: nobody has to set them, a score follows from them, and notes stand by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from review_scene import PORT, case, scene

from rubricflow.tasks.people.review.app import Access, create_app
from rubricflow.tasks.people.review.board import Board, PredictedScore
from rubricflow.tasks.people.review.ledger import Ledger
from rubricflow.tasks.people.review.reviews import Reviews
from rubricflow.tasks.people.review.settle import valid_acts

Visit = Callable[[str], TestClient]
IDS = (f"00000000-0000-4000-8000-{number:012d}" for number in count())
SCORE = replace(case("R-1"), subject_kind="score", item_id="q1", student="Mia")
MACHINE = PredictedScore(1.0, 3.0, 0.0, 2.0, 0.5, None)


def board() -> Board:
    return replace(
        scene((SCORE,)), predictions={"R-1": MACHINE}, rubric_texts={"r": "Two points for water."}, coverage=0.9
    )


def follow(response_id: str, levels: Mapping[str, int]) -> PredictedScore:
    """As many points as levels were set."""
    assert response_id == "R-1"
    return MACHINE._replace(score=float(sum(levels.values())))


@pytest.fixture
def visit(ledger_path: Path) -> Visit:
    app = create_app(board(), ledger_path, Access("127.0.0.1", PORT), follow)

    def let_in(name: str) -> TestClient:
        client = TestClient(app, base_url=f"http://127.0.0.1:{PORT}")
        assert client.post("/api/me", json={"name": name}).status_code == 200
        return client

    return let_in


def send(client: TestClient, kind: str, status: int = 200, **fields: Any) -> dict[str, Any]:
    """An act on the case, under a name of its own."""
    subject_kind = "label" if fields.get("criterion_id") else "score"
    about = {"act_id": next(IDS), "kind": kind, "subject_kind": subject_kind, "response_id": "R-1"}
    sent = about | {"rater": client.get("/api/me").json()["reviewer"]} | fields
    answer = client.post("/api/acts", json=sent)
    assert answer.status_code == status, answer.text
    return sent


def vote(client: TestClient, criterion: str | None, value: str, status: int = 200) -> dict[str, Any]:
    ballots = {ballot["criterion_id"]: ballot for ballot in board().ballots(SCORE)}
    return send(client, "vote", status, criterion_id=criterion, value=value, digest=ballots[criterion]["digest"])


def note(client: TestClient, words: str) -> dict[str, Any]:
    return send(client, "note", comment=words, digest=board().ballots(SCORE)[0]["digest"])


def view(client: TestClient) -> dict[str, Any]:
    content: dict[str, Any] = client.get("/api/cases/0").json()
    return content


def following(client: TestClient, levels: dict[str, int]) -> tuple[int, Any]:
    answer = client.post("/api/cases/0/following", json={"levels": levels})
    return answer.status_code, answer.json().get("value")


def test_the_page_is_told_the_calibrated_score_the_rubric_and_what_criteria_count(visit: Visit) -> None:
    ada = visit("Ada")
    told = view(ada)
    assert told["predicted"]["sentence"] == "1 of 4, probably between 0 and 2"
    assert (told["rubric"], told["student"]) == ("Two points for water.", "Mia")
    assert [(ballot["criterion_id"], ballot["weight"]) for ballot in told["asked"]] == [
        (None, None),
        ("C1", 1.0),
        ("C2", 1.0),
        ("C3", 1.0),
    ]
    listed = ada.get("/api/cases").json()
    assert [(row["student"], row["item_id"], row["asked"]) for row in listed["cases"]] == [("Mia", "q1", 1)]
    assert (listed["coverage"], listed["questions"]) == (0.9, {"q1": SCORE.question})


def test_a_score_alone_is_submitted_and_levels_count_with_it(visit: Visit, ledger_path: Path) -> None:
    ada = visit("Ada")
    vote(ada, "C1", "2")
    send(ada, "submit", 409)
    vote(ada, None, "3")
    assert ada.get("/api/cases").json()["cases"][0]["voted"] == 1
    send(ada, "submit")
    vote(ada, "C2", "1", 409)
    with Ledger(ledger_path) as ledger:
        acts = ledger.acts("science")
    current = {("R-1", ballot["criterion_id"]): ballot["digest"] for ballot in board().ballots(SCORE)}
    assert [(act.criterion_id, act.value) for act in valid_acts(acts, current).votes] == [("C1", "2"), (None, "3")]


def test_people_who_differ_on_a_level_alone_have_nothing_to_adjudicate(visit: Visit, ledger_path: Path) -> None:
    for name, level in (("Ada", "2"), ("Bo", "0")):
        client = visit(name)
        vote(client, "C1", level)
        vote(client, None, "3")
        send(client, "submit")
    reviews = Reviews(board())
    with Ledger(ledger_path) as ledger:
        reviews.add(ledger.acts("science"))
    assert reviews.state(SCORE).apart == ()


def test_what_follows_is_worked_out_from_the_levels_and_stored_nowhere(visit: Visit, ledger_path: Path) -> None:
    ada = visit("Ada")
    assert following(ada, {"C1": 2, "C3": 1}) == (200, "3")
    assert following(ada, {}) == (200, "0")
    with Ledger(ledger_path) as ledger:
        assert ledger.acts("science") == []


@pytest.mark.parametrize("levels", [{"C9": 0}, {"C1": 3}, {"C1": -1}, {"C1": "2"}, {"": 0}, {"C1": 1.5}, {"C1": True}])
def test_levels_that_there_are_not_are_refused(visit: Visit, levels: dict[str, Any]) -> None:
    assert following(visit("Ada"), levels)[0] == 422


def test_who_rates_second_is_told_of_no_score_until_they_submit(visit: Visit) -> None:
    ada, bo = visit("Ada"), visit("Bo")
    vote(ada, None, "3")
    note(ada, "Read page 3.")
    assert following(bo, {"C1": 2})[0] == 403
    told = view(bo)
    assert (told["predicted"], told["notes"], [ballot["machine"] for ballot in told["asked"]]) == (None, [], [[]] * 4)
    vote(bo, None, "2")
    send(bo, "submit")
    assert following(bo, {"C1": 2}) == (200, "2")
    assert [(words["rater"], words["text"]) for words in view(bo)["notes"]] == [("Ada", "Read page 3.")]


def test_a_note_is_kept_with_its_history_and_the_last_that_stands_is_shown_last(visit: Visit) -> None:
    ada = visit("Ada")
    note(ada, "Well begun.")
    vote(ada, None, "3")
    send(ada, "submit")
    last = note(ada, "Well done.")
    assert [words["text"] for words in view(ada)["notes"]] == ["Well begun.", "Well done."]
    assert view(ada)["submission"] is not None
    send(ada, "undo", undoes=last["act_id"])
    assert [words["text"] for words in view(ada)["notes"]] == ["Well begun."]


@pytest.mark.parametrize("act", [{"kind": "note", "comment": " "}, {"kind": "submit", "subject_kind": "label"}])
def test_an_empty_note_and_a_submission_of_levels_alone_are_refused(visit: Visit, act: dict[str, Any]) -> None:
    ada = visit("Ada")
    vote(ada, None, "3")
    digest = board().ballots(SCORE)[0]["digest"] if act["kind"] == "note" else ""
    sent = {"act_id": next(IDS), "subject_kind": "score", "response_id": "R-1", "rater": "Ada", "digest": digest}
    assert ada.post("/api/acts", json=sent | act).status_code in (404, 422)
