"""What the report says about the promise: nothing of the kind where nothing is released, and how near it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders.grading_scene import MANIFEST, STUDY, made_run
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables.calibration import ReleaseRules
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.reasons import needs_of
from rubricflow.tasks.core.display.say import plain
from rubricflow.tasks.core.stats.promise import UNLIKELY, MarkedAnswers
from rubricflow.tasks.grading.calibrate.release import ReleaseCandidates, _promise
from rubricflow.tasks.grading.report.release import nothing_released, promise
from rubricflow.tasks.grading.report.view import view

PROMISING = ("Promised with", "A score is released at", "of released scores are")
RISKS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=120)


def rules_of(drawn: list[list[tuple[float, bool]]], release: Release) -> list[dict[str, Any]]:
    rows = []
    for number, labels in enumerate(drawn):
        risk, wrong = np.array([r for r, _ in labels]), np.array([w for _, w in labels], dtype=np.bool_)
        who = np.array([f"p{n}" for n in range(len(labels))], dtype=np.str_)
        scope = "all" if len(drawn) == 1 else f"q{number}"
        half = np.arange(len(labels)) % 2 == 0
        rated = ReleaseCandidates(risk, wrong, who, risk, half, np.full(len(risk), 0.5), half)
        rows.append(_promise(scope, rated, [], release, UNLIKELY, None, len(risk)))
    return conform(ReleaseRules, rows).to_pylist()


@given(st.lists(RISKS, min_size=1, max_size=4), st.sampled_from([0.05, 0.1, 0.2]), st.integers(1, 500))
def test_where_nothing_goes_out_no_sentence_promises(drawn: Any, risk: float, responses: int) -> None:
    rules = rules_of(drawn, Release(risk=risk))
    possible = [row | {"n": 3} for row in rules if row["possible_target"] is not None]
    said = nothing_released(rules, possible, responses)
    assert said.endswith(".")
    assert not any(words in said for words in PROMISING)
    assert not any(missing in said for missing in ("None", "nan"))
    assert all(row["possible_target"] > risk for row in possible)
    assert all((row["threshold"] is None) == (row["note"] is not None) for row in rules)


@pytest.mark.parametrize("labels", [0, 12, 60])
def test_no_page_of_a_run_with_nothing_released_promises(labels: int) -> None:
    run = made_run(items=2, each=60, releases=False)
    rules = rules_of([[(0.1, n % 3 == 0) for n in range(labels)]], Release())
    possible = pa.table({"scope": ["all"], "possible_target": [0.24], "n": [80]})
    tables = replace(run, release_rules=conform(ReleaseRules, rules), counts=run.counts | {"possible": possible})
    shown = rendered(view(tables, STUDY, MANIFEST).page)
    assert not any(words in shown for words in PROMISING)
    assert "If up to 24% of them were allowed to be wrong, about 80 of 120 answers could go out" in shown


def test_too_few_marked_answers_are_counted() -> None:
    (few,) = rules_of([[(0.1, False)] * 12], Release())
    assert nothing_released([few], [], 9) == "Too few marked answers to promise anything: 45 needed, 12 here."
    assert few["possible_target"] == 0.18  # 0.82 to the power of 12 is below a tenth, 0.83 is not
    rules = rules_of([[(0.1, False)] * 12, [(0.1, True)] * 60], Release())
    said = nothing_released(rules, [], 9)
    assert said == (
        "Too few marked answers to promise anything for 1 of 2 questions: 45 needed for each, at most 12 here; "
        "for the other 1, the marked answers do not show, even for the surest scores, that at most 5% are wrong."
    )
    none = "There are no marked answers that a promise could rest on."
    assert nothing_released([], [], 9) == none
    assert nothing_released([few | {"refused": "asks_nothing", "n": 0}], [], 9) == none


def test_how_near_it_was_is_said_with_what_is_allowed() -> None:
    rules = [{"scope": "q1", "n": 60, "target": 0.2, "confidence": 0.9, "threshold": None}]
    rules[0] |= {"refused": "no_promise", "note": "because"}
    near = [{"scope": "q1", "possible_target": 0.24, "n": 80}]
    said = plain(nothing_released(rules, near, 400))
    assert said == (
        "Because. If up to 24% of them were allowed to be wrong, about 80 of 400 answers to question q1 could go out; "
        "this study allows 20%."
    )


def test_a_promise_names_the_answers_that_it_rests_on() -> None:
    rules = rules_of([[(0.1, False)] * 60, [(0.1, False)] * 9], Release())
    assert promise(rules, "far off") == (
        "Promised with 90% confidence, from 60 marked answers (1 of 2 questions, each by its own): "
        "at most 5% of released scores are far off."
    )


@pytest.mark.parametrize("by_item", [False, True])
def test_agreement_by_question_means_alone_is_the_reason_given(by_item: bool) -> None:
    rule = {"scope": "q1", "n": 60, "target": 0.2, "confidence": 0.9, "threshold": None, "note": "because"}
    rules = [rule | {"refused": "question_means"}] * (2 if by_item else 1)
    assert nothing_released(rules, [], 100) == "Because."


def test_what_a_promise_wants_is_said_once_beside_whatever_else_stands_in_its_way() -> None:
    needs = needs_of(Release(by="set"), [MarkedAnswers("q1", 40, 40, 40, 4000)])
    rule = {"scope": "all", "n": 38, "target": 0.05, "confidence": 0.9, "threshold": None, "note": "because"}
    said = nothing_released([rule | {"refused": "question_means"}], [], 40, needs)
    assert said.startswith(
        "Because. A promise of at most 5% wrong at 90% confidence takes 45 marked answers without an"
    )
    assert "error: 45 needed, 40 here. This class is too small for any promise" in said
    few = "too few marked answers to promise anything: 45 needed, 40 here, of which 2 go to a person in any case"
    said = nothing_released([rule | {"refused": "no_promise", "note": few}], [], 40, needs)
    assert said.count("45 needed, 40 here") == 1
    assert "too small for any promise" in said
    # Where the promise asks nothing, no number of marks would do.
    said = nothing_released([rule | {"refused": "asks_nothing"}], [], 40, needs)
    assert said == "Because."


def test_questions_are_short_of_marks_by_the_marks_that_they_have() -> None:
    needs = needs_of(Release(by="item"), [MarkedAnswers(f"q{n}", 90, 60, 14 + n, 900) for n in range(2)])
    rules = rules_of([[(0.1, False)] * 12, [(0.1, False)] * 9], Release())
    assert "45 needed for each, at most 15 here" in nothing_released(rules, [], 180, needs)
