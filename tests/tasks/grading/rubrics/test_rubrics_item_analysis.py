"""Item analysis against plain formulas, the judge's own scores and scipy; and what it says for sure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders.bundles import THREE, bundle, criterion, trait
from builders.graded import answer, graded_run
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr

from rubricflow.tasks.core.contracts.bundle import Bundle, Count, unlocked
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.judge.score import score
from rubricflow.tasks.grading.rubrics.item_analysis import (
    ScoredAnswers,
    analysed,
    checklist_sum,
    counted_shares,
    furthest,
    held_back,
    item_statistics,
    mark_findings,
    pairs_that_are_one,
    scored_answers,
    unnamed,
    without,
)

COUNT = Count(points=(0, 1, 1, 3), needs=("A",))
BUNDLES = {
    "added": bundle(criterion("A", levels=THREE), criterion("B", weight=2), criterion("C", weight=-1), ends=(0, 3)),
    "counted": bundle(
        *(criterion(name, levels=THREE, parent="K") for name in "ABC"),
        composites=(criterion("K", weight=3, count=COUNT),),
        ends=(0, 3),
        final_score="weighted_points",
    ),
    "two traits": bundle(
        criterion("A", "t"), criterion("B", "u", levels=THREE), criterion("C", "u"), ends=(1, 5),
        traits=(trait("t", 1, 5), trait("u", 1, 5)),
    ),
    "exclusive": bundle(criterion("A", excludes=("B",)), criterion("B"), criterion("C", weight=2), ends=(0, 6)),
}  # fmt: skip


def answers(of: Bundle, levels: dict[str, Sequence[float]], people: Sequence[float], **changes: Any) -> ScoredAnswers:
    n = len(people)
    usual: dict[str, Any] = {"text": ("Nothing.",) * n, "cluster": tuple(f"s{i}" for i in range(n))}
    usual |= {"credited": ((),) * n, "response_id": tuple(f"r{i}" for i in range(n)), "score": people}
    return ScoredAnswers(of, pd.DataFrame(usual | changes), pd.DataFrame(levels, dtype=float))


def drawn(of: Bundle, n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {one.id: rng.integers(0, one.top + 1, n).astype(float) for one in of.criteria}


@pytest.mark.parametrize("name", BUNDLES)
@given(seed=st.integers(0, 10_000))
@settings(max_examples=20)
def test_the_sum_is_the_score_that_the_judge_computes_one_by_one(name: str, seed: int) -> None:
    of = BUNDLES[name]
    levels = drawn(of, 12, seed)
    sums = checklist_sum(of, counted_shares(of, levels))
    for i in range(12):
        single = score(of, {key: int(column[i]) for key, column in levels.items()}).score
        assert single is not None
        # Traits are rounded to their steps before they are averaged there.
        assert abs(sums[i] - single) <= (1 if name == "two traits" else 0.5) + 1e-9


@pytest.mark.parametrize("name", ["added", "counted", "exclusive"])
def test_a_sum_on_a_step_is_exactly_the_judges(name: str) -> None:
    of = BUNDLES[name].model_copy(update={"scale": BUNDLES[name].scale.model_copy(update={"step": 0.001})})
    of = of.model_copy(
        update={"traits": (of.traits[0].model_copy(update={"step": 0.001, "min": 0, "max": of.scale.max}),)}
    )
    levels = drawn(of, 40, 1)
    sums = checklist_sum(of, counted_shares(of, levels))
    singles = [score(of, {key: int(column[i]) for key, column in levels.items()}).score for i in range(40)]
    assert sums == pytest.approx(np.array(singles, dtype=float), abs=0.0006)


def test_a_missing_decision_leaves_no_sum_and_the_others_stay() -> None:
    of = BUNDLES["added"]
    levels = {"A": np.array([2.0, np.nan]), "B": np.array([1.0, 1.0]), "C": np.array([0.0, 0.0])}
    sums = checklist_sum(of, counted_shares(of, levels))
    assert sums[0] == 3
    assert np.isnan(sums[1])


def test_a_criterion_is_taken_out_of_a_count_with_its_parent_when_it_was_the_last() -> None:
    fewer = without(BUNDLES["counted"], "A")
    assert fewer is not None
    assert [one.id for one in fewer.criteria] == ["B", "C"]
    assert fewer.composites[0].count == Count(points=COUNT.points)
    only = bundle(criterion("A", parent="K"), composites=(criterion("K", weight=1, count=Count(points=(0, 1))),))
    assert without(only, "A") is None
    assert without(BUNDLES["two traits"], "A") is None


def test_correlations_and_what_is_added_are_those_of_the_formulas() -> None:
    of = bundle(*(criterion(name, levels=THREE) for name in "ABC"), ends=(0, 6))
    levels, rng = drawn(of, 200), np.random.default_rng(5)
    people = np.clip(np.round(levels["A"] + levels["B"] + rng.normal(0, 1, 200)), 0, 6)
    rows = {row.criterion: row for row in item_statistics(answers(of, levels, people), 300, 0)}
    for name, row in rows.items():
        others = sum(levels[other] for other in "ABC" if other != name)
        expected = pearsonr(levels[name], people).statistic
        assert row.with_people == pytest.approx(expected)
        low, high = row.with_people_interval[:2]
        assert low is not None
        assert high is not None
        assert low < expected < high
        assert row.with_rest == pytest.approx(np.corrcoef(levels[name], others)[0, 1])
        assert row.shares == pytest.approx([np.mean(levels[name] == level) for level in range(3)])
        total = sum(levels.values())
        gain = np.corrcoef(total, people)[0, 1] ** 2 - np.corrcoef(others, people)[0, 1] ** 2
        assert row.adds_r2 == pytest.approx(gain)
        assert row.n == 200
    assert rows["A"].adds_r2 > 0 > rows["C"].adds_r2  # type: ignore[operator]
    width = np.tanh(np.arctanh(rows["A"].with_people) + 1.96 / np.sqrt(197)) - rows["A"].with_people
    assert rows["A"].with_people_interval.high - rows["A"].with_people == pytest.approx(width, rel=0.3)


def test_a_criterion_against_people_a_constant_one_and_a_copy_are_told() -> None:
    of = bundle(*(criterion(name) for name in "ABCDE"), criterion("M", weight=-1), ends=(0, 5))
    levels = drawn(of, 150, 3)
    levels["B"] = levels["A"].copy()
    levels["C"] = np.zeros(150)
    people = np.clip(1 + 2 * levels["A"] - levels["D"] + levels["E"] - levels["M"], 0, 5)
    told = analysed(answers(of, levels, people), None, 200, 0)
    found = {(finding.rule, finding.criteria) for finding in mark_findings("r", told)}
    assert ("against_people", ("D",)) in found
    assert ("constant", ("C",)) in found
    assert ("one_pair", ("A", "B")) in found
    assert ("against_people", ("M",)) not in found  # what costs points is to go the other way
    assert {rule for rule, _ in found} <= {"against_people", "constant", "one_pair", "harmful"}


@pytest.mark.parametrize(("met", "is_told"), [(4, False), (12, True)])
def test_a_criterion_that_hardly_any_answer_meets_is_not_held_against_people(met: int, is_told: bool) -> None:
    """Every resample of a few answers with no marks has them below the mean."""
    of = bundle(*(criterion(name) for name in "AB"), ends=(0, 5))
    levels = drawn(of, 60, 3)
    levels["B"] = np.where(np.arange(60) < met, float(of.criteria[1].top), 0.0)
    people = np.where(np.arange(60) < met, 0.0, 1.0 + levels["A"])
    told = analysed(answers(of, levels, people), None, 200, 0)
    found = {(finding.rule, finding.criteria) for finding in mark_findings("r", told)}
    assert (("against_people", ("B",)) in found) == is_told


def test_rare_criteria_are_not_one_because_both_are_nearly_always_absent() -> None:
    of = bundle(criterion("A"), criterion("B"))
    rare = np.zeros(100), np.zeros(100)
    rare[0][:3], rare[1][3:6] = 1, 1
    assert pairs_that_are_one(answers(of, {"A": rare[0], "B": rare[1]}, np.zeros(100))) == []
    often = np.arange(100) % 2.0
    (pair,) = pairs_that_are_one(answers(of, {"A": often, "B": often}, np.zeros(100)))
    assert pair == ("A", "B", 1.0)


def test_of_few_answers_nothing_is_told() -> None:
    of = bundle(criterion("A"))
    told = analysed(answers(of, {"A": [0, 1, 1]}, [1, 0, 0]), None, 10, 0)
    assert (told.n, told.items, told.apart) == (3, [], [])
    assert list(mark_findings("r", told)) == []


def by_words(texts: Sequence[str]) -> np.ndarray:
    """An encoder for tests: a text is the set of its words."""
    words = sorted({word for text in texts for word in text.lower().strip(".").split()})
    table = np.array([[word in text.lower().strip(".").split() for word in words] for text in texts], np.float32)
    return table / np.linalg.norm(table, axis=1, keepdims=True)


def test_what_people_pay_for_and_no_quote_covers_is_grouped() -> None:
    of = bundle(criterion("A"), ends=(0, 2))
    texts = [
        "Water leaves. The salt was too old.",
        "The salt was very old.",
        "I do not know this.",
        "The salt was old.",
    ]
    credited = (((0, 13),), (), (), ())
    many = answers(of, {"A": [1, 0, 0, 0]}, [2, 1, 0, 1], text=texts, credited=credited)
    assert unnamed(many, by_words) == [(("The salt was old."), ("r1", "r3"))]  # r0 has the top score already
    assert [(one.response_id, one.people, one.checklist) for one in furthest(many)] == [("r1", 1, 0), ("r3", 1, 0)]
    paid = answers(of, {"A": [0, 0, 0, 0]}, [2, 1, 0, 1], text=texts, credited=credited)
    (group,) = unnamed(paid, by_words)
    assert group.answers == ("r0", "r1", "r3")


def test_only_the_calibration_split_is_read(tmp_path: Path) -> None:
    run = graded_run(
        tmp_path,
        [
            answer("a", people={("one", "human"): 3.0}, levels={"P1": (1, "Water leaves"), "P2": (0, "")}),
            answer("b", people={}, levels={"P1": (1, ""), "P2": (1, "")}),
            answer("c", people={("one", "human"): 1.0}, levels={"P1": (0, ""), "P2": (1, "Osmosis")}, student=None),
        ],
    )
    assert scored_answers(run, "one", bundles_of(run)) == {}  # all of them are of the test split
    rows = run.read(run.ref(Responses, "ingest")).to_pylist()
    kept = {"a": "calibration", "b": "calibration", "c": "crossed"}
    split = [{**row, "split": kept[row["response_id"]]} for row in rows]
    others = {table: run.read(run.ref(table, "ingest")) for table in (Items, Gradings)}
    run.commit("ingest", "all", {Responses: split, **others})
    (read,) = scored_answers(run, "one", bundles_of(run)).values()
    assert read.rows[["response_id", "cluster", "score"]].to_numpy().tolist() == [["a", "s1", 3], ["c", "c", 1]]
    assert {name: column.tolist() for name, column in read.levels.items()} == {"P1": [1, 0], "P2": [0, 1]}
    assert read.rows["credited"].tolist() == [((0, 12),), ((14, 21),)]


def bundles_of(run: Run) -> dict[str, Bundle]:
    return unlocked(run.read(run.ref(Bundles, "lock")).to_pylist())


def test_half_of_the_authors_are_held_back_and_always_the_same() -> None:
    halves = [held_back(f"student {n}") for n in range(2000)]
    assert halves == [held_back(f"student {n}") for n in range(2000)]
    assert abs(np.mean(halves) - 0.5) < 0.04
