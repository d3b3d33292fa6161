"""The report of annotation and the questions about it: counts are those of the tables, and all text is text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders.annotation_scene import NAMES, agreement_rows, label, label_rows, made, queue_rows, vote, vote_rows
from builders.seen import Seen

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.people import Agreements, Labels, Queue, Votes
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.people.report import view as people
from rubricflow.tasks.people.report.view import HEADER, AgreementFigures, page, sentence, summary_rows

EVIL = '</td></style><script>alert(1)</script><img src=x onerror="1"> {{ 7*7 }} \u202e'


def cells(rows: tuple[tuple[Any, ...], ...]) -> dict[str, list[str]]:
    """Name of a row → its other cells as text."""
    return {str(row[0]): [str(cell) for cell in row[1:]] for row in rows}


def test_annotators_come_before_final_labels_and_those_before_people() -> None:
    found = AgreementFigures(conform(Agreements, agreement_rows()), NAMES)
    assert found.pairs == [("a and b", "before"), ("a and final", "after"), ("p and q", "after")]
    assert sentence(found).replace("\u2068", "").replace("\u2069", "") == (
        "Agreement on concepts, Krippendorff's alpha: a and b 0.50 [0.40, 0.60]; a and final 0.70 [0.60, 0.80]; "
        "p and q 0.80 [0.70, 0.90]"
    )


def test_the_short_table_has_the_numbers_of_every_concept() -> None:
    rows = [dict(zip(HEADER, row, strict=True)) for row in summary_rows(conform(Agreements, agreement_rows()), NAMES)]
    assert len(set(HEADER)) == len(HEADER)
    assert len(rows) == 3 * 3
    assert (rows[1]["concept"], rows[1]["alpha"]) == ("Factual correctness", "0.51 [0.41, 0.61]")
    assert (rows[2]["equal levels"], rows[2]["labels"]) == ("–", "40")


def test_what_is_undefined_has_its_reason() -> None:
    assert "1 number undefined: only one level was given" in page(made())


def test_the_weakest_concept_is_named() -> None:
    assert "agree least on \u2068Factual correctness\u2069: alpha 0.51" in page(made())


def test_labels_are_counted_by_what_settled_them() -> None:
    found = cells(people.settled_table(made().labels).rows)
    assert found["one person's vote"] == ["2", "28.6"]
    assert sum(int(row[0]) for row in found.values()) == len(label_rows())
    assert people.settled_takeaway(made().labels) == "People settled 57% of 7 labels; 14% are open"


def test_people_may_keep_one_annotators_level_or_neither() -> None:
    found = people.corrected_table(made().labels, made().queue)
    assert cells(found.rows) == {
        "the annotators differed": ["0", "1", "1", "50.0"],
        "they agreed": ["1", "0", "1", "50.0"],
        "they agreed, audited cases alone": ["1", "0", "0", "0.0"],
    }


def test_what_cannot_be_judged_corrects_nobody() -> None:
    rows = [label("r", "FC", None, "cannot_be_judged", ("a", "annotator", 1), ("b", "annotator", 1))]
    assert not people.corrected_table(conform(Labels, rows), made().queue).rows


def test_a_case_counts_for_each_of_its_reasons() -> None:
    found = cells(people.reason_table(made().queue).rows)
    assert found == {
        "the annotators' levels differ": ["2", "50.0"],
        "a level's evidence does not hold": ["1", "25.0"],
        "drawn though nothing speaks against it": ["2", "50.0"],
    }


def test_votes_find_their_case_whatever_its_name() -> None:
    view = made()
    voted = people.cases_of(view.votes).groupby(["subject_kind", "case"])["rater_id"].nunique().to_dict()
    assert voted == {("label", "r1"): 1, ("label", "r2"): 2, ("label", "r:3"): 1, ("score", "r1"): 1}
    assert people.queue_takeaway(view.queue, view.votes) == "People have voted on 3 of 4 cases"
    assert people.queue_takeaway(view.queue.slice(0, 0), view.votes) == "Nothing waits for people"


def test_a_long_queue_is_cut_and_says_so() -> None:
    rows = [queue_rows()[0] | {"response_id": f"r{at}", "rank": 41 - at} for at in range(1, 41)]
    found = people.case_table(conform(Queue, rows), made().votes)
    assert [row[2] for row in found.rows] == [str(rank) for rank in range(1, people.CASES + 1)]
    assert found.notes == ("28 more in the table queue",)


def test_everybodys_votes_are_counted() -> None:
    found = cells(people.progress_table(made().votes).rows)
    assert found["\u2068p\u2069"] == ["3", "4", "1", "1", "100", "\u20682026-11-21T11:00:00+00:00\u2069"]
    assert found["\u2068q\u2069"][:5] == ["2", "2", "0", "0", "50"]
    assert len(found) == 2  # who votes on graphs is not asked about labels


def test_checks_that_are_broken_come_first() -> None:
    seen = Seen(page(made()))
    assert seen.after("in words", 7) == [
        "\u2068FC and CC\u2069",
        "no two concepts say the same",
        "before people were asked",
        "broken",
        "0.95",
        "0.90",
        "too alike",
    ]
    assert "1 of 2 checks that could be made are not kept" in seen.words


@pytest.mark.parametrize("empty", [("agreements",), ("labels",), ("queue", "votes"), ("votes",), ("constructions",)])
def test_a_study_that_lacks_something_has_a_page(empty: tuple[str, ...]) -> None:
    view = made()
    assert "</html>" in page(replace(view, **{name: getattr(view, name).slice(0, 0) for name in empty}))


def test_what_people_wrote_is_text() -> None:
    view = made(
        study=EVIL,
        names=dict.fromkeys(NAMES, EVIL),
        agreements=conform(Agreements, [row | {"raters": EVIL, "phase": "after"} for row in agreement_rows()[-12:]]),
        queue=conform(Queue, [row | {"response_id": EVIL, "why": EVIL} for row in queue_rows()[:1]]),
        votes=conform(Votes, [vote(f"{EVIL}:FC", EVIL, "1", voted_at=EVIL)]),
    )
    html = page(view)
    seen = Seen(html)
    assert not {"img", "script", "iframe", "link"} & set(seen.tags)
    assert seen.tags.count("style") == 1
    assert "49" not in "".join(word for word in seen.words if "7*7" in word)
    assert "\u202e" not in html
    assert "default-src 'none'" in html
    assert "http" not in html.replace('http-equiv="', "")


@pytest.fixture
def asked(tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    run: Run = Warehouse.open(tmp_path).run("one")
    responses: list[dict[str, Any]] = [
        {"response_id": name, "item_id": "i", "text": f"Text of {name}.", "split": "test", "groups": {}}
        for name in ("r1", "r2", "r:3", "r4")
    ]
    item = {"item_id": "i", "question": "", "key_elements": [], "type": "t", "rubric_id": "r"}
    run.commit("ingest", "all", {Items: [item], Responses: responses})
    run.commit("compare", "all", {Agreements: [row for row in agreement_rows() if row["phase"] == "before"]})
    run.commit("compare-settled", "all", {Agreements: [row for row in agreement_rows() if row["phase"] == "after"]})
    run.commit("review", "all", {Labels: label_rows(), Queue: queue_rows(), Votes: vote_rows()})

    def rows(question: str, **parameters: str) -> list[dict[str, Any]]:
        answer = ask(run, question, parameters or None)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]

    return rows


def test_a_question_shows_the_queue_with_who_voted(asked: Callable[..., list[dict[str, Any]]]) -> None:
    rows = asked("queue")
    assert [(row["rank"], row["response_id"], row["voted"]) for row in rows] == [
        (1, "r2", 2),
        (2, "r1", 1),
        (3, "r:3", 1),
        (4, "r4", 0),
    ]
    assert rows[0]["begins"] == "Text of r2."


def test_a_question_tells_the_history_of_a_responses_labels(asked: Callable[..., list[dict[str, Any]]]) -> None:
    rows = asked("label_history", response_id="r2")
    assert [(row["criterion_id"], row["kind"], row["who"], row["said"], row["final"]) for row in rows] == [
        ("CC", "annotator", "a", 2, 1),
        ("CC", "annotator", "b", 0, 1),
        ("CC", "adjudication", "p", 1, 1),
        ("FC", "annotator", "a", 1, 0),
        ("FC", "annotator", "b", 1, 0),
        ("FC", "vote", "p", 0, 0),
        ("FC", "vote", "q", 0, 0),
    ]


def test_a_question_sets_agreement_before_and_after_side_by_side(asked: Callable[..., list[dict[str, Any]]]) -> None:
    rows = {(row["raters"], row["metric"], row["criterion_id"]): row for row in asked("concept_agreement")}
    assert len(rows) == len(agreement_rows())
    first, last = rows["a and b", "exact", "CC"], rows["a and final", "kappa", "all"]
    assert (first["before"], first["after"], first["note"]) == (None, None, "only one level was given")
    assert (last["before"], last["after"], last["after_n"]) == (None, pytest.approx(0.7), 40)


def test_a_question_finds_where_raters_part(asked: Callable[..., list[dict[str, Any]]]) -> None:
    rows = asked("disagreements")
    assert [(row["response_id"], row["criterion_id"], row["apart"]) for row in rows] == [
        ("r2", "CC", 2),
        ("r1", "CC", 1),
        ("r2", "FC", 1),
        ("r4", "FC", 1),
    ]
    assert rows[0]["said"] == ["a: 2", "b: 0", "p: 1"]
