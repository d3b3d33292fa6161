"""Counts over all responses of a run, against rows counted by hand."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from builders.rows import attempt, connected, grading, judgment, response
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import conform, schema
from rubricflow.tasks.core.contracts.tables import TABLES
from rubricflow.tasks.grading.report.figures import QUERIES, counts
from rubricflow.tasks.grading.report.view import alike


def counted(target: str = "mean", **rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    given = {table: rows.get(table.table) for table in TABLES}
    connection = connected({row: conform(row, of) if of else schema(row).empty_table() for row, of in given.items()})
    return {name: found.to_pylist() for name, found in counts(connection, target).items()}


def prediction(name: str, score: float | None, **more: Any) -> dict[str, Any]:
    row = {"response_id": name, "item_id": "i", "rater_id": "judge", "split": "test", "score": score, "clipped": False}
    return row | {"route": "review", "route_reason": "risk"} | more


def test_nothing_is_counted_where_there_is_nothing() -> None:
    found = counted()
    assert found.pop("set") == [{"responses": 0, "items": 0, "with_author": 0, "authors": 0, "longest": 0}]
    assert found.pop("repeats") == [{"responses": 0, "same": 0, "asked": 0, "spread": None}]
    assert set(found.pop("worth")[0].values()) == {0}
    assert not any(found.values())


@pytest.mark.parametrize(("target", "labelled"), [("mean", {"a", "b"}), ("hanna", {"a"}), ("board", {"c"})])
def test_a_response_is_labelled_where_the_human_score_that_counts_is_there(target: str, labelled: set[str]) -> None:
    people = [
        grading("a", "hanna", 1.0),
        grading("a", "hugo", 2.0),
        grading("b", "hugo", 2.0),
        grading("b", "hanna", None),
        grading("c", "board", 2.0, rater_kind="adjudication"),
        grading("d", "judge", 2.0, rater_kind="llm"),
    ]
    splits = dict(zip("abcd", ("train", "calibration", "test", "test"), strict=True))
    rows = counted(target, responses=[response(name, split=part) for name, part in splits.items()], gradings=people)[
        "responses"
    ]
    labels = {(row["split"], row["labelled"]): row["n"] for row in rows}
    assert {(split, True) for name, split in splits.items() if name in labelled} == {key for key in labels if key[1]}
    assert sum(row["n"] for row in rows) == 4
    assert {row["split"]: row["persons"] for row in rows if row["split"] != "test"} == {"train": 2, "calibration": 1}


def test_a_response_without_a_prediction_is_unscored_and_counted() -> None:
    rows = counted(
        responses=[response("a"), response("b"), response("c")],
        predictions=[prediction("a", 2.0), prediction("b", None)],
    )["responses"]
    assert {row["scored"]: row["n"] for row in rows} == {True: 1, False: 2}


def test_passages_to_read_are_at_most_fifty_of_a_kind_with_peoples_word_and_the_criterions() -> None:
    bundle = {"rubric_id": "r", "bundle_id": "b", "content": '{"criteria": [{"id": "C", "text": "Names it."}]}'}
    look = {"criterion_id": "C", "rater_id": "judge", "sample": 0, "unit_id": None, "similarity": 0.5, "rank": 0.5}
    look |= {"percent": None, "lacks": None, "limit": None, "start": 4, "end": 8, "probability": 0.25}
    names = [f"a{number}" for number in range(60)]
    kinds = [{"kind": "credit", "doubted": True}, {"kind": "missing", "doubted": False}]
    rows = counted(
        responses=[response(name, text="the rain fell") for name in names],
        items=[{"item_id": "i", "rubric_id": "r", "question": "", "key_elements": [], "type": "open"}],
        bundles=[bundle],
        supports=[
            look | kind | {"response_id": name} for kind in kinds for name in names[:: 1 if kind["doubted"] else 30]
        ],
        judgments=[judgment(name, "C", 0, "hanna") for name in names],
    )["to_read"]
    assert [row["look"] for row in rows] == ["credit, doubted"] * 50 + ["no credit"] * 2
    assert [*rows[0].values()][1:5] == ["do not", "Names it.", "rain", "0.25"]


def test_quotes_and_decisions_of_people_are_not_the_machines() -> None:
    def decided(name: str, decision: int | None, *status: str, rater: str = "m", **more: Any) -> dict[str, Any]:
        quotes = [{"unit_id": None, "quote": "q", "start": None, "end": None, "status": one} for one in status]
        return judgment(name, "G", decision, rater, evidence=quotes, **more)

    found = counted(
        judgments=[
            decided("a", 1, "verified", "fabricated", verified=True),
            decided("b", 1),
            decided("c", None, "fabricated"),
            decided("a", 1, "verified", rater="hanna"),
        ]
    )
    assert {row["status"]: row["n"] for row in found["quotes"]} == {"verified": 1, "fabricated": 2}
    assert {(row["unscored"], row["ungrounded"]): row["n"] for row in found["decisions"]} == {
        (False, False): 1,
        (False, True): 1,
        (True, False): 1,
    }


@pytest.mark.parametrize(("bundle_id", "counts_it"), [(None, False), ("b", True)])
def test_what_the_data_recorded_of_a_machine_is_not_the_judges(bundle_id: str | None, counts_it: bool) -> None:
    quote = {"unit_id": None, "quote": "q", "start": None, "end": None, "status": "verified"}
    decided = judgment("a", "G", rater_kind="replayed", bundle_id=bundle_id, evidence=[quote])
    rows = [
        grading("a", "m", score, sample=n, rater_kind="replayed", bundle_id=bundle_id) for n, score in ((0, 1), (1, 2))
    ]
    found = counted(gradings=rows, judgments=[decided])
    assert [sum(row["n"] for row in found[query]) for query in ("quotes", "decisions")] == [counts_it] * 2
    assert found["repeats"][0]["responses"] == counts_it


def test_repeats_are_the_machines_scores_of_one_response() -> None:
    machine = {"rater_kind": "llm"}
    rows = [grading("a", "judge", score, sample=at, **machine) for at, score in enumerate((1.0, 1.0, 1.0))]
    rows += [grading("b", "judge", score, sample=at, **machine) for at, score in enumerate((1.0, 3.0))]
    rows += [grading("c", "judge", 1.0, **machine), grading("c", "hanna", 2.0), grading("c", "hugo", 1.0)]
    assert counted(gradings=rows)["repeats"] == [{"responses": 2, "same": 1, "asked": 3, "spread": 1.0}]


def test_tokens_that_no_backend_counts_stay_unknown() -> None:
    rows = [attempt("a", prompt_tokens=5), attempt("a", attempt=1, violations=["v"])]
    found = counted(attempts=rows)["attempts"]
    assert [(one["violated"], one["calls"], one["prompt_tokens"], one["completion_tokens"]) for one in found] == [
        (False, 1, 5, None),
        (True, 1, None, None),
    ]


@settings(max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("pq"), st.sampled_from([0.0, 1.0, 2.0])), max_size=60))
def test_answers_with_their_questions_most_frequent_score_are_counted(rows: list[tuple[str, float]]) -> None:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE predictions (item_id TEXT, raw DOUBLE, route_reason TEXT)")
        for row in [*rows, ("p", None)]:
            connection.execute("INSERT INTO predictions VALUES (?, ?, NULL)", row)
        connection.execute("INSERT INTO predictions VALUES ('p', 9, 'precheck')")
        found = connection.sql(QUERIES["alike"]).fetchall()
    expected = []
    for item in "pq":
        scores = [score for name, score in rows if name == item]
        if len(scores) > 1:
            expected.append((len(scores), max(scores.count(score) for score in scores)))
    assert found == expected


@pytest.mark.parametrize(
    ("answers", "same", "told"), [(100, 95, True), (100, 94, False), (5, 5, True), (4, 4, False), (0, 0, False)]
)
def test_a_judge_that_says_the_same_of_every_answer_is_told(answers: int, same: int, told: bool) -> None:
    judged = [{"answers": answers, "same": same}] if answers else []
    assert bool(alike(judged)) == told
    if told:
        assert str(same) in alike(judged)
