"""What people say of scores as a table, and the one score that goes out."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path
from typing import Any

import pytest
from builders.graded import BUNDLE, answer, graded_run
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.store.catalogue import catalogue
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.board import score_texts
from rubricflow.tasks.people.review.ledger import LEDGER, Act, Ledger, digest
from rubricflow.tasks.people.review.settled_scores import keep_settled_scores

TEXT = "Water leaves. Osmosis."
SCORE_DIGEST = digest(TEXT, "", score_texts(BUNDLE.scale))
COLUMNS = "response_id, final_score, decided_by, settled_by, note"


def act(kind: str, name: str, rater: str = "anna", value: str | None = None, **more: Any) -> Act:
    needs_digest = kind in ("vote", "adjudicate", "note")
    fixed = {"study": "class", "subject_kind": "score", "criterion_id": None, "value": value}
    fixed["digest"] = SCORE_DIGEST if needs_digest else ""
    return Act(**{"act_id": str(uuid.uuid4()), "kind": kind, "response_id": name, "rater_id": rater} | fixed | more)


def say(run: Run, *acts: Act) -> None:
    with Ledger(run.warehouse.root / LEDGER) as ledger:
        ledger.add_all(acts)


def final(run: Run) -> dict[str, tuple[Any, ...]]:
    with catalogue(run) as tables:
        rows = tables.sql(f"SELECT {COLUMNS} FROM final_scores").fetchall()
    return {name: tuple(rest) for name, *rest in rows}


def test_a_vote_comes_before_the_released_score_and_the_rest_waits(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a"), answer("b"), answer("c", route="review")])
    say(run, act("vote", "a", value="3", comment="Says more."), act("submit", "a"))
    keep_settled_scores(run, "class")
    assert final(run) == {
        "a": (3.0, "person", "one_vote", None),
        "b": (2.0, "machine", None, None),
        "c": (None, "waits", None, None),
    }


def test_history_says_who_when_from_what_and_why(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a", route="review")])
    say(run, act("vote", "a", value="3", comment="Says more."), act("submit", "a"))
    keep_settled_scores(run, "class")
    with catalogue(run) as tables:
        ((history,),) = tables.sql("SELECT history FROM settled_scores").fetchall()
    machine, vote = history
    assert (machine["who"], machine["kind"], machine["score"]) == ("m", "machine", 2.0)
    assert (vote["who"], vote["kind"], vote["score"], vote["comment"]) == ("anna", "vote", 3.0, "Says more.")
    assert vote["at"].startswith("20")


def test_a_note_alone_decides_nothing_and_the_last_one_counts(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a"), answer("b", route="review")])
    say(run, *(act("note", name, comment=words) for name in "ab" for words in ("Well begun.", "See page 3.")))
    keep_settled_scores(run, "class")
    assert final(run) == {
        "a": (2.0, "machine", None, "See page 3."),
        "b": (None, "waits", None, "See page 3."),
    }


def test_a_note_that_was_taken_back_is_gone(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a")])
    note = act("note", "a", comment="Well begun.")
    say(run, note, act("undo", "a", undoes=note.act_id))
    keep_settled_scores(run, "class")
    assert final(run)["a"][-1] is None


def test_votes_on_an_answer_that_has_changed_do_not_count_and_are_counted(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a", text="Something else.", levels={})])
    say(run, act("vote", "a", value="3"), act("submit", "a"), act("note", "a", comment="Old."))
    assert keep_settled_scores(run, "class") == 1
    assert final(run)["a"] == (2.0, "machine", None, None)


@pytest.mark.parametrize("value", ["9", "-1", "2.5"])
def test_a_vote_off_the_scale_is_an_error_that_names_the_answer(tmp_path: Path, value: str) -> None:
    run = graded_run(tmp_path, [answer("a")])
    say(run, act("vote", "a", value=value), act("submit", "a"))
    with pytest.raises(ContractError, match=r"anna says .* of response a"):
        keep_settled_scores(run, "class")


def test_a_run_that_nobody_spoke_of_gets_no_table_and_one_taken_back_is_emptied(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a")])
    keep_settled_scores(run, "class")
    assert not run.done("settle", "all")
    vote = act("vote", "a", value="3")
    say(run, vote, act("submit", "a"))
    keep_settled_scores(run, "class")
    assert final(run)["a"][0] == 3.0
    say(run, act("undo", "a", undoes=vote.act_id))
    keep_settled_scores(run, "class")
    assert final(run)["a"] == (2.0, "machine", None, None)


def test_levels_that_people_settled_stand_beside_the_score(tmp_path: Path) -> None:
    run = graded_run(tmp_path, [answer("a")])
    label = digest(TEXT, BUNDLE.criteria[1].text, BUNDLE.criteria[1].levels)
    level = {"subject_kind": "label", "criterion_id": "P2", "digest": label}
    say(run, act("vote", "a", value="4"), act("submit", "a"))
    say(run, act("vote", "a", value="1", **level), act("submit", "a", subject_kind="label"))
    keep_settled_scores(run, "class")
    with catalogue(run) as tables:
        assert tables.sql("SELECT settled_levels FROM final_scores").fetchall() == [({"P2": 1},)]


ROUTES = ("release", "review")
DATA = ({}, {("res", "adjudication"): 1.0}, {("r1", "adjudication"): 1.0, ("r2", "adjudication"): 3.0})
OTHERS = ({("h", "human"): 4.0, ("fair", "adjudication"): 4.0},)
VOTES: tuple[tuple[str, ...], ...] = ((), ("0",), ("3", "3"), ("3", "1"), ("x",), ("3", "3", "1"))


def expected(route: str, data: dict[Any, float], votes: tuple[str, ...], machine: float | None) -> tuple[Any, str]:
    """The rule once more, in plain words: people's votes, then scores that people had settled on, then the machine's
    where it was released."""
    if votes:
        most = max(set(votes), key=votes.count)
        if 2 * votes.count(most) <= len(votes):
            return None, "waits"
        return (None, "cannot_be_judged") if most == "x" else (float(most), "person")
    if data:
        values = set(data.values())
        return (values.pop(), "person") if len(values) == 1 else (None, "waits")
    if route == "release" and machine is not None:
        return machine, "machine"
    return None, "waits"


def test_the_final_score_of_every_combination(tmp_path: Path) -> None:
    cases = list(itertools.product(ROUTES, DATA, VOTES, (2.0, None)))
    answers, acts = [], []
    for number, (route, data, votes, machine) in enumerate(cases):
        answers.append(answer(f"r{number}", route=route, score=machine, people={**data, **OTHERS[0]}))
        for rater, value in zip(("anna", "ben", "cyd"), votes, strict=False):
            acts.append(act("vote", f"r{number}", rater, value, comment="why"))
            acts.append(act("submit", f"r{number}", rater))
    run = graded_run(tmp_path, answers)
    say(run, *acts)
    keep_settled_scores(run, "class")
    scores = final(run)
    for number, case in enumerate(cases):
        assert scores[f"r{number}"][:2] == expected(*case), case


@settings(max_examples=20)
@given(st.lists(st.sampled_from("01234x"), max_size=5))
def test_no_score_is_made_up(tmp_path_factory: pytest.TempPathFactory, values: list[str]) -> None:
    run = graded_run(tmp_path_factory.mktemp("w"), [answer("a", route="review")])
    for rater, value in enumerate(values):
        say(run, act("vote", "a", f"t{rater}", value, comment="why"), act("submit", "a", f"t{rater}"))
    keep_settled_scores(run, "class")
    score = final(run)["a"][0]
    assert score is None or f"{score:g}" in values
