"""What people say of scores as a table, and the one score that goes out."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders.graded import BUNDLE, answer, graded_run
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.tables.evaluation import Verdicts
from rubricflow.tasks.core.contracts.tables.people import Notes
from rubricflow.tasks.core.display.verdict import FINAL_SCORES, verdict
from rubricflow.tasks.core.store.catalogue import catalogue
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.board import score_texts
from rubricflow.tasks.people.review.ledger import LEDGER, Act, Ledger, digest
from rubricflow.tasks.people.review.settled_scores import keep_settled_scores
from rubricflow.tasks.people.review.waiting import waiting_scores

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


@pytest.mark.parametrize("outcome", ["fail", "undecided"])
def test_scores_of_a_broken_promise_wait_for_people_but_for_those_that_people_gave(
    tmp_path: Path, outcome: str
) -> None:
    run = graded_run(tmp_path, [answer("a"), answer("b"), answer("c", route="review")])
    row = dict.fromkeys(Verdicts.model_fields) | {
        "gate": "released_errors",
        "slice": "all",
        "value_of": "all",
    }
    row |= {"metric": "m", "n": 9, "outcome": outcome, "source": "s", "if_missed": "f"}
    run.commit("evaluate", "all", {Verdicts: [row, row | {"gate": "other", "outcome": "fail"}]})
    say(run, act("vote", "b", value="3"), act("submit", "b"))
    keep_settled_scores(run, "class")
    held = outcome == "fail"
    assert final(run) == {
        "a": (None, "waits", None, None) if held else (2.0, "machine", None, None),
        "b": (3.0, "person", "one_vote", None),
        "c": (None, "waits", None, None),
    }
    queue = {case["response_id"]: case["why"] for case in waiting_scores(run)}
    assert queue.keys() == ({"a", "b", "c"} if held else {"c"})
    assert not held or "held back" in queue["a"].lower()
    with catalogue(run) as tables:
        counted = tables.sql(FINAL_SCORES).to_arrow_table().to_pylist()
    found = verdict(counted, [], [row], "off")
    assert (found.released, found.held_back, found.by_people) == ((0, 1, 1) if held else (1, 0, 1))


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
VOTES: tuple[tuple[str, ...], ...] = ((), ("0",), ("3", "3"), ("3", "1"), ("x",), ("3", "3", "1"), ("0", "4", "x"))


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


# Marks in the data as decisions: what they come to, and which decision stands where there are several.


Marks = Mapping[str, float]


def marked_run(folder: Path, *classes: Marks, **more: Any) -> Run:
    """Answers a0, a1, … that wait for a person, each with these marks by rater."""
    people = [{(rater, "human"): mark for rater, mark in marks.items()} for marks in classes]
    return graded_run(folder, [answer(f"a{n}", route="review", people=of, **more) for n, of in enumerate(people)])


def vote(run: Run, name: str, value: str, rater: str = "cyd") -> None:
    say(run, act("vote", name, rater, value), act("submit", name, rater))


def settled(run: Run, target: str | None = "mean") -> dict[str, dict[str, Any]]:
    """Answer → its row of `final_scores`, once marks and votes are brought in."""
    keep_settled_scores(run, "class", target, keep=True)
    with catalogue(run) as tables:
        rows = tables.sql("SELECT * FROM final_scores").to_arrow_table().to_pylist(maps_as_pydicts="strict")
    return {row["response_id"]: row for row in rows}


SCORES = st.sampled_from([0.0, 1.0, 2.0, 3.0, 4.0])
CLASS = st.lists(st.dictionaries(st.sampled_from(["anna", "ben", "cem"]), SCORES, max_size=3), min_size=1, max_size=16)


@settings(max_examples=6)
@given(CLASS, st.sampled_from(["mean", "anna", "fair"]))
def test_marks_are_the_grades_and_only_the_others_wait(
    tmp_path_factory: pytest.TempPathFactory, marks: list[Marks], target: str
) -> None:
    found = settled(marked_run(tmp_path_factory.mktemp("w"), *marks), target)
    for number, of in enumerate(marks):
        row = found[f"a{number}"]
        if target == "mean":
            wanted = sum(of.values()) / len(of) if of else None
        else:  # nobody made a fair score here: it says as little of an answer as a rater who did not mark it
            wanted = of.get(target, next(iter(of.values())) if len(set(of.values())) == 1 else None)
        assert row["final_score"] == (None if wanted is None else pytest.approx(wanted))
        assert row["decided_by"] == ("waits" if wanted is None else "person")
        assert (row["marks"] or {}) == of
        # No reason of the machine's for waiting stands at what people marked.
        assert (row["route_reason"] is None) == bool(of)


def test_marks_that_only_calibrate_decide_nothing(tmp_path: Path) -> None:
    run = marked_run(tmp_path, {}, {"anna": 2.0}, {"anna": 1.0, "ben": 1.0}, {"ben": 0.0, "cem": 4.0})
    assert {row["decided_by"] for row in settled(run, None).values()} == {"waits"}
    assert not (run.warehouse.root / LEDGER).exists()


def test_a_score_that_people_had_settled_on_comes_before_the_mean_but_not_before_the_rater_named(
    tmp_path: Path,
) -> None:
    people = {
        ("anna", "human"): 1.0,
        ("ben", "human"): 3.0,
        ("board", "adjudication"): 4.0,
        ("fair", "adjudication"): 2.5,
    }
    run = graded_run(tmp_path, [answer("a0", route="review", people=people)])
    found = {target: settled(run, target)["a0"] for target in ("mean", "fair", "ben", "board")}
    assert {target: (row["final_score"], row["settled_by"]) for target, row in found.items()} == {
        "mean": (4.0, "in_data"),
        "fair": (4.0, "in_data"),
        "ben": (3.0, "marked"),
        "board": (4.0, "in_data"),
    }
    del people["board", "adjudication"]
    row = settled(graded_run(tmp_path, [answer("a0", route="review", people=people)]), "fair")["a0"]
    assert (row["final_score"], row["marks"]) == (2.5, {"anna": 1.0, "ben": 3.0})


STEP = st.one_of(
    st.tuples(st.just("file"), st.dictionaries(st.sampled_from(["anna", "ben"]), SCORES, max_size=2)),
    st.tuples(st.just("vote"), st.sampled_from("01234")),
)


@settings(max_examples=3)
@given(st.lists(STEP, min_size=4, max_size=6))
def test_the_latest_decision_that_stands_is_the_score_and_nothing_is_forgotten(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, Any]]
) -> None:
    """The rule once more, with a clock: a mark stands since the file began to say it, a vote since it was submitted."""
    folder, clock = tmp_path_factory.mktemp("w"), itertools.count(1)
    marks, since, told = dict[str, float](), dict[str, int](), list[tuple[str, float]]()
    voted: tuple[int, float | None] = (0, None)
    run = marked_run(folder, {})
    for kind, content in steps:
        now = next(clock)
        if kind == "vote":
            vote(run, "a0", content)
            voted = now, float(content)
        else:
            run = marked_run(folder, content)
            since = {rater: since[rater] if marks.get(rater) == mark else now for rater, mark in content.items()}
            told += [(rater, mark) for rater, mark in sorted(content.items()) if marks.get(rater) != mark]
            marks = dict(content)
        row = settled(run)["a0"]
        wanted = sum(marks.values()) / len(marks) if marks else None
        if voted[1] is not None and voted[0] > max(since.values(), default=0):
            wanted = voted[1]
        assert row["final_score"] == wanted
        said = [(step["who"], step["score"]) for step in row["history"] or () if step["kind"] == "mark"]
        assert [pair for pair in said if pair[1] is not None] == told
        if voted[1] is not None:
            assert voted[1] in [step["score"] for step in row["history"] if step["kind"] == "vote"]


def test_a_decision_on_the_page_stands_until_the_file_says_something_else(tmp_path: Path) -> None:
    settled(marked_run(tmp_path, {"anna": 2.0}, {"anna": 1.0}))
    run = marked_run(tmp_path, {"anna": 2.0}, {"anna": 1.0})
    vote(run, "a0", "3")
    assert settled(run)["a0"]["final_score"] == 3.0
    run = marked_run(tmp_path, {"anna": 2.0}, {"anna": 4.0})  # another answer's mark
    assert [settled(run)[name]["final_score"] for name in ("a0", "a1")] == [3.0, 4.0]
    run = marked_run(tmp_path, {"anna": 4.0}, {"anna": 4.0})
    row = settled(run)["a0"]
    assert (row["final_score"], row["settled_by"]) == (4.0, "marked")
    history = [(step["kind"], step["who"], step["score"]) for step in row["history"]]
    assert history == [("machine", "m", 2.0), ("mark", "anna", 2.0), ("vote", "cyd", 3.0), ("mark", "anna", 4.0)]
    assert all(step["at"] for step in row["history"][1:])
    assert settled(marked_run(tmp_path, {}, {"anna": 4.0}))["a0"]["final_score"] == 3.0  # the mark was taken away


@pytest.mark.parametrize(("mark", "score"), [(2.0, 3.0), (4.0, 4.0)])
def test_what_was_decided_while_marks_decided_nothing_gives_way_to_a_new_mark_only(
    tmp_path: Path, mark: float, score: float
) -> None:
    run = marked_run(tmp_path, {"anna": 2.0})
    settled(run, None)
    vote(run, "a0", "3")
    people = {("anna", "human"): mark}
    again = graded_run(tmp_path, [answer("a0", route="review", people=people)], digest="9876543210")
    for _ in range(2):
        row = settled(again)["a0"]
        assert (row["final_score"], row["marks"]) == (score, {"anna": mark})


def test_marked_answers_come_last_in_the_queue_and_are_marked_there(tmp_path: Path) -> None:
    run = marked_run(tmp_path, {"anna": 2.0}, {}, {"anna": 1.0, "ben": 3.0})
    settled(run, "fair")
    cases = [(case["response_id"], case.get("marked")) for case in waiting_scores(run)]
    # Two marks that differ, of which the target says nothing, wait before all others.
    assert cases == [("a2", False), ("a1", None), ("a0", True)]


def test_a_note_in_the_data_reaches_the_student_until_a_later_one_does(tmp_path: Path) -> None:
    def noted(words: str, mark: float = 2.0) -> Run:
        run = marked_run(tmp_path, {"anna": mark})
        run.commit("ingest", "notes", {Notes: [{"response_id": "a0", "rater_id": "anna", "note": words}]})
        return run

    run = noted("Well begun.")
    assert settled(run)["a0"]["note"] == "Well begun."
    assert settled(run, None)["a0"]["note"] == "Well begun."
    say(run, act("note", "a0", "cyd", comment="See page 3."))
    vote(run, "a0", "4")
    row = settled(run)["a0"]
    assert (row["note"], row["final_score"]) == ("See page 3.", 4.0)
    row = settled(noted("Look again."))["a0"]  # other words are no other mark
    assert (row["note"], row["final_score"]) == ("Look again.", 4.0)


@pytest.mark.parametrize("broken", [{"value": "x"}, {"criterion_id": "P1"}, {"subject_kind": "label"}])
def test_a_mark_in_the_ledger_is_a_number_about_a_score(broken: dict[str, Any]) -> None:
    right: dict[str, Any] = {"study": "class", "subject_kind": "score", "response_id": "a", "criterion_id": None}
    right |= {"act_id": str(uuid.uuid4()), "kind": "mark", "value": "2.5", "rater_id": "anna"}
    assert Act(**right).value == "2.5"
    with pytest.raises(ContractError, match="mark"):
        Act(**right | broken)
