"""The page's interface: acts are stored once and for good, and nobody is shown what they may not see."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from review_scene import HOSTILE, PLAIN, case, scene

from rubricflow.tasks.people.review.ledger import Act, Ledger, Stored
from rubricflow.tasks.people.review.view import ReviewService, Sent

Visit = Callable[..., TestClient]
IDS = (f"00000000-0000-4000-8000-{number:012d}" for number in count())


def sent(client: TestClient, act: str, number: int = 0, /, status: int = 200, **fields: Any) -> dict[str, Any]:
    """An act as the page sends it, about a case of the list; its id."""
    listed = client.get("/api/cases").json()
    row = listed["cases"][number]
    body = {
        "act_id": next(IDS),
        "kind": act,
        "subject_kind": row["subject_kind"],
        "response_id": row["response_id"],
        "rater": listed["reviewer"],
        **fields,
    }
    answer = client.post("/api/acts", json=body)
    assert answer.status_code == status, answer.text
    return body | answer.json()


def vote(client: TestClient, criterion: str | None, value: str, number: int = 0, **more: Any) -> dict[str, Any]:
    asked = client.get(f"/api/cases/{number}").json()["asked"]
    digest = next(one["digest"] for one in asked if one["criterion_id"] == criterion)
    return sent(client, "vote", number, criterion_id=criterion, value=value, digest=digest, **more)


def rate(client: TestClient, values: str, number: int = 0) -> None:
    """Votes on C1, C2, C3 and the submission."""
    for criterion, value in zip(("C1", "C2", "C3"), values, strict=True):
        vote(client, criterion, value, number, comment="it breaks off" if value == "x" else None)
    sent(client, "submit", number)


def told(client: TestClient, number: int = 0, adjudicating: bool = False) -> dict[str, Any]:
    answer = client.get(f"/api/cases/{number}", params={"adjudicating": adjudicating})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def is_blind(view: dict[str, Any]) -> bool:
    """Whether nothing but the response and the questions is in it."""
    secrets = ("annotator", "evidence", "Annotators", "repair budget", "weights", "0.93", "Ada")
    machine = [view["why"], view["grader"], view["predicted"], view["others"], view["apart"], view["settled"]]
    marked = [piece["of"] for piece in view["pieces"]] + [one["machine"] for one in view["asked"]]
    marked += [one["doubtful"] for one in view["asked"]]
    return not any(machine) and not any(marked) and not any(secret in json.dumps(view) for secret in secrets)


def test_the_first_sees_the_machine_and_the_second_nothing_until_submitted(visit: Visit) -> None:
    ada, bo = visit("Ada"), visit("Bo")
    assert [row["why"] for row in ada.get("/api/cases").json()["cases"]] == [None] * 4  # nobody has opened any
    first = told(ada)
    assert first["why"] == "Annotators 2 levels apart on C3"
    assert ada.get("/api/cases").json()["cases"][0]["why"] == "Annotators 2 levels apart on C3"
    assert first["asked"][0]["machine"][0]["value"] == "2"
    assert first["grader"]["shares"] == [0.95, 0.5, 0.25]
    assert vote(ada, "C1", "2")["blind"] is False

    assert is_blind(told(bo))
    assert bo.get("/api/cases").json()["cases"][0]["why"] is None
    for criterion, value in (("C1", "2"), ("C2", "0"), ("C3", "1")):
        assert vote(bo, criterion, value)["blind"] is True
        assert is_blind(told(bo))
    sent(bo, "submit")
    opened = told(bo)
    assert opened["sees_machine"]
    assert opened["others"] == []  # Ada has not submitted

    vote(ada, "C2", "1"), vote(ada, "C3", "1")
    assert told(ada)["others"] == []
    sent(ada, "submit")
    for client, other in ((ada, "Bo"), (bo, "Ada")):
        view = told(client)
        assert [one["rater"] for one in view["others"]] == [other]
        assert view["apart"] == ["C2"]
    assert [one["votes"]["C2"]["value"] for one in told(bo)["others"]] == ["1"]


def test_whoever_has_seen_more_is_not_recorded_as_blind(visit: Visit, ledger_path: Path) -> None:
    ada, bo = visit("Ada"), visit("Bo")
    told(bo)  # nobody has voted yet: Bo sees the machine's work
    vote(ada, "C1", "2")
    assert is_blind(told(bo))
    assert vote(bo, "C1", "2")["blind"] is False
    cyd = visit("Cyd")
    assert vote(cyd, "C1", "2", shown=True)["blind"] is False  # her browser says so: the server may have forgotten
    assert vote(cyd, "C2", "2")["blind"] is False
    dan = visit("Dan")
    rate(dan, "000")
    submission = told(dan)["submission"]
    sent(dan, "undo", undoes=submission)
    assert is_blind(told(dan))
    assert vote(dan, "C1", "1")["blind"] is False  # seen it once, whatever is hidden now
    restarted = visit("Dan", scene())
    assert vote(restarted, "C2", "1")["blind"] is False


def test_a_conflict_is_settled_with_a_record_of_the_discussion(visit: Visit) -> None:
    ada, bo, cyd = visit("Ada"), visit("Bo"), visit("Cyd")
    rate(ada, "201")
    rate(bo, "20x")
    assert cyd.get("/api/cases").json()["cases"][0]["conflicts"] == 0
    assert is_blind(told(cyd))
    unseen = {"criterion_id": "C3", "value": "1", "digest": told(cyd)["asked"][2]["digest"], "comment": "so"}
    sent(cyd, "adjudicate", status=403, **unseen)
    assert cyd.get("/api/cases", params={"adjudicating": True}).json()["cases"][0]["conflicts"] == 1
    digest = told(cyd)["asked"][2]["digest"]
    by = {"criterion_id": "C3", "value": "1", "digest": digest}
    assert told(cyd, adjudicating=True)["apart"] == ["C3"]
    sent(cyd, "adjudicate", status=422, **by)
    sent(cyd, "adjudicate", status=422, comment="  ", **by)
    sent(
        cyd,
        "adjudicate",
        status=409,
        comment="agreed",
        **(by | {"criterion_id": "C1", "digest": told(cyd)["asked"][0]["digest"]}),
    )
    sent(cyd, "adjudicate", comment="Bo had overlooked a sentence.", **by)
    for client in (ada, bo):
        view = told(client)
        assert view["apart"] == []
        assert view["settled"]["C3"]["rater"] == "Cyd"
        assert view["settled"]["C3"]["comment"] == "Bo had overlooked a sentence."
    assert is_blind(told(cyd))
    assert vote(cyd, "C1", "2")["blind"] is False


def test_whoever_has_votes_of_their_own_submits_before_adjudicating(visit: Visit) -> None:
    ada, bo, cyd = visit("Ada"), visit("Bo"), visit("Cyd")
    rate(ada, "201")
    rate(bo, "200")
    digest = vote(cyd, "C3", "0")["digest"]
    assert cyd.get("/api/cases").json()["cases"][0]["conflicts"] == 0
    assert cyd.get("/api/cases/0?adjudicating=true").status_code == 403
    by = {"criterion_id": "C3", "value": "0", "digest": digest, "comment": "as I said"}
    sent(cyd, "adjudicate", status=403, **by)
    sent(bo, "adjudicate", **by)


def test_adjudicating_is_no_way_round_blindness(visit: Visit) -> None:
    ada, bo = visit("Ada"), visit("Bo")
    rate(ada, "201")
    assert is_blind(told(bo, adjudicating=True))


def test_an_act_is_stored_once_however_often_it_is_sent(visit: Visit, ledger_path: Path) -> None:
    ada, bo = visit("Ada"), visit("Bo")
    first = vote(ada, "C1", "2", comment="clear")
    rate(bo, "222")
    body = {key: value for key, value in first.items() if key not in ("number", "at", "blind")}
    again = ada.post("/api/acts", json=body)
    assert again.json() == {key: first[key] for key in ("number", "at", "blind")}
    assert ada.post("/api/acts", json=body | {"value": "1"}).status_code == 409
    with Ledger(ledger_path) as ledger:
        assert [act.value for act in ledger.acts("science") if act.rater_id == "Ada"] == ["2"]


def test_undo_is_an_act_and_takes_back_only_ones_own(visit: Visit, ledger_path: Path) -> None:
    ada, bo = visit("Ada"), visit("Bo")
    vote(ada, "C1", "1")
    second = vote(ada, "C1", "2")
    sent(bo, "undo", status=404, undoes=second["act_id"])
    sent(ada, "undo", undoes=second["act_id"])
    assert told(ada)["asked"][0]["mine"]["value"] == "1"
    sent(ada, "undo", status=409, undoes=second["act_id"])
    assert [act["value"] for act in ada.get("/api/cases").json()["latest"]] == ["1"]
    with Ledger(ledger_path) as ledger:
        assert [act.kind for act in ledger.acts("science")] == ["vote", "vote", "undo"]


def test_a_submission_is_whole_and_closes_the_case(visit: Visit) -> None:
    ada = visit("Ada")
    assert "C1, C2, C3" in sent(ada, "submit", status=409)["error"]
    first = vote(ada, "C1", "x")
    vote(ada, "C2", "0"), vote(ada, "C3", "0")
    assert "C1" in sent(ada, "submit", status=409)["error"]
    vote(ada, "C1", "x", comment="illegible")
    sent(ada, "submit")
    sent(ada, "submit", status=409)
    sent(ada, "vote", status=409, criterion_id="C1", value="1", digest=first["digest"])
    sent(ada, "undo", status=409, undoes=first["act_id"])
    sent(ada, "undo", undoes=told(ada)["submission"])
    assert vote(ada, "C1", "1")["value"] == "1"


def test_what_has_changed_since_it_was_shown_is_not_voted_on(visit: Visit) -> None:
    ada = visit("Ada")
    old = vote(ada, "C1", "2")
    changed = scene((case("R-0412", text=PLAIN + " And more."),))
    again = visit("Ada", changed)
    assert told(again)["asked"][0]["mine"] is None
    error = sent(again, "vote", status=409, criterion_id="C1", value="2", digest=old["digest"])["error"]
    assert "changed" in error


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ({"value": "3"}, 422),
        ({"value": "-1"}, 422),
        ({"value": None}, 422),
        ({"criterion_id": "C9"}, 404),
        ({"criterion_id": None}, 422),
        ({"response_id": "R-9"}, 404),
        ({"response_id": "' OR 1=1 --"}, 404),
        ({"act_id": "1"}, 422),
        ({"act_id": "../../x"}, 422),
        ({"kind": "delete"}, 422),
        ({"digest": ""}, 422),
        ({"undoes": "x"}, 422),
        ({"comment": "a" * 4001}, 422),
        ({"rater": "Bo"}, 401),
        ({"blind": True}, 422),
        ({"study": "other"}, 422),
    ],
)
def test_an_act_that_makes_no_sense_is_refused_and_not_stored(
    visit: Visit, ledger_path: Path, wrong: dict[str, Any], status: int
) -> None:
    ada = visit("Ada")
    digest = told(ada)["asked"][0]["digest"]
    sent(ada, "vote", status=status, **({"criterion_id": "C1", "value": "1", "digest": digest} | wrong))
    with Ledger(ledger_path) as ledger:
        assert ledger.acts("science") == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 422),
        (b"[" * 60_000, 422),
        (b'{"act_id": "\\ud800"}', 422),
        (b"\xff\xfe", 422),
        (b" " * 70_000, 413),
        (b"null", 422),
    ],
)
def test_a_body_that_is_no_act_is_refused(visit: Visit, body: bytes, status: int) -> None:
    ada = visit("Ada")
    json_kind = {"content-type": "application/json"}
    assert ada.post("/api/acts", content=body, headers=json_kind).status_code == status
    assert ada.post("/api/acts", content=iter([body]), headers=json_kind).status_code == status  # length not said
    assert ada.post("/api/acts", content=body, headers={"content-type": "text/plain"}).status_code == 415


def test_hostile_text_travels_whole_as_ascii_json(visit: Visit) -> None:
    ada = visit("Ada")
    answer = ada.get("/api/cases/1")
    assert answer.headers["content-type"] == "application/json"
    assert answer.content.isascii()
    assert "".join(piece["text"] for piece in answer.json()["pieces"]) == HOSTILE
    page = ada.get("/").text
    assert "salt sucks" not in page


def test_a_ledger_that_cannot_be_written_is_said_and_nothing_is_taken_for_stored(
    visit: Visit, ledger_path: Path
) -> None:
    ada = visit("Ada")
    first = vote(ada, "C1", "1")
    with sqlite3.connect(ledger_path) as other:
        other.execute("DROP TABLE acts")
    body = {key: value for key, value in first.items() if key not in ("number", "at", "blind")}
    answer = ada.post("/api/acts", json=body | {"act_id": next(IDS)})
    assert answer.status_code == 503
    assert str(ledger_path) not in answer.text


def test_what_another_process_stores_in_between_is_seen(ledger_path: Path) -> None:
    class Raced(Ledger):
        """Where somebody else's act comes first every time."""

        def add_all(self, acts: Iterable[Act]) -> list[Stored]:
            acts = list(acts)
            with Ledger(ledger_path) as other:
                other.add_all(replace(act, act_id=next(IDS), rater_id="Bo") for act in acts)
            return super().add_all(acts)

    board = scene()
    ballot = board.ballots(board.cases[0])[0]
    fields = {"criterion_id": ballot["criterion_id"], "value": "1", "digest": ballot["digest"], "rater": "Ada"}
    with Raced(ledger_path) as ledger:
        desk = ReviewService(board, ledger)
        desk.store(Sent(act_id=next(IDS), kind="vote", subject_kind="label", response_id="R-0412", **fields))
        assert desk.show_case(0, "Ada", adjudicating=False)["second"]
