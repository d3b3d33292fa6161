"""Counted sub-points against the rule of the key, by worked cases and enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders.cases import case
from builders.keys import counting, criterion, locked
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.judge.rater import rater
from rubricflow.tasks.grading.judge.score import (
    counted,
    decided_shares,
    expected_share,
    round_half_up,
    score,
    whole_shares,
)
from rubricflow.tasks.grading.judge.simulated import human_marks

LEVELS = (0, 1, 2)


def scores(bundle: Bundle, *levels: Mapping[str, int]) -> list[float | None]:
    return [score(bundle, {c.id: 0 for c in bundle.criteria} | given).score for given in levels]


def test_one_or_two_three_four_elements_are_one_two_three_points() -> None:
    parts = [criterion(f"P{n}", parent="K") for n in range(8)]
    bundle = locked(counting("K", [0, 1, 1, 2, 3]), *parts)
    met = [{f"P{n}": 2 for n in range(count)} for count in range(9)]
    assert scores(bundle, *met) == [0, 1, 1, 2, 3, 3, 3, 3, 3]
    hinted = [{f"P{n}": 1 for n in range(count)} for count in range(9)]
    assert scores(bundle, *hinted) == [0] * 9
    lenient = locked(counting("K", [0, 1, 1, 2, 3], least=1), *parts)
    assert scores(lenient, *hinted) == [0, 1, 1, 2, 3, 3, 3, 3, 3]


@st.composite
def groups(draw: Callable[..., Any]) -> tuple[Bundle, Callable[[Mapping[str, int]], float]]:
    """Groups with a count each, some of which cost, and the share of the points that their definition gives."""
    size = draw(st.integers(1, 2))
    criteria, rules = [], []
    for g in range(size):
        n = draw(st.integers(1, 4))
        sign = -1 if g and draw(st.booleans()) else 1
        steps = draw(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0]), min_size=1, max_size=n).filter(any))
        points, least = [0.0, *itertools.accumulate(steps)], draw(st.sampled_from([None, 1, 2]))
        names = [f"g{g}{c}" for c in "abcd"[:n]]
        needs = draw(st.lists(st.sampled_from(names), unique=True, max_size=2))
        whole = counting(f"G{g}", points, sign, least=least, needs=tuple(needs))
        criteria += [whole, *(criterion(name, parent=f"G{g}", weight=float(sign)) for name in names)]
        rules.append((sign, points, least or 2, names, needs))

    def share(levels: Mapping[str, int]) -> float:
        earned = 0.0
        for sign, points, least, names, needs in rules:
            met = [name for name in names if levels[name] >= least]
            if set(needs) <= set(met):
                earned += sign * points[min(len(met), len(points) - 1)]
        return min(1.0, max(0.0, earned / sum(points[-1] for sign, points, *_ in rules if sign > 0)))

    bundle = locked(*draw(st.permutations(criteria)), top=draw(st.sampled_from([2, 3, 7])), unscored="bounds")
    return bundle, share


@settings(max_examples=20)
@given(st.data(), groups())
def test_counts_are_their_official_rule(data: Any, case: tuple[Bundle, Any]) -> None:
    bundle, share = case
    levels = {c.id: data.draw(st.sampled_from(LEVELS)) for c in bundle.criteria}
    assert score(bundle, levels).score == round_half_up(bundle.scale.max * share(levels), bundle.scale)


@settings(max_examples=20)
@given(st.data(), groups())
def test_probabilities_make_the_expected_points(data: Any, case: tuple[Bundle, Any]) -> None:
    """Over all outcomes, each as probable as its levels together."""
    bundle, _ = case
    spreads = st.sampled_from([(0, 0, 1), (0.5, 0.25, 0.25), (0.1, 0.6, 0.3)])
    likely = {c.id: data.draw(spreads) for c in bundle.criteria}
    reached = whole_shares(
        bundle, {name: expected_share(worth, 0, likely[name]) for name, worth in counted(bundle).items()}
    )
    for whole in bundle.whole:
        parts = [c.id for c in bundle.sub_points(whole.id)]
        outcomes = [dict(zip(parts, of, strict=True)) for of in itertools.product(LEVELS, repeat=len(parts))]
        worth = [
            whole_shares(bundle, decided_shares(bundle, {c.id: of.get(c.id, 0) for c in bundle.criteria}))
            for of in outcomes
        ]
        chances = [math.prod(likely[name][level] for name, level in of.items()) for of in outcomes]
        assert reached[whole.id] == pytest.approx(sum(w[whole.id] * p for w, p in zip(worth, chances, strict=True)))


# A rubric with counts from its lock to its gradings: raters decide the sub-points, and code counts them.


QUESTION = "What do plants need to grow?"
TEXTS = (
    "Plants need light for photosynthesis. Their roots take up water from the soil. They need warmth.",
    "They need light.",
    "A plant grows best in the dark.",
)
POINTS = {"P1": "Plants need light for photosynthesis", "P2": "Roots take up water", "P3": "Plants need warmth"}
PLANS = [
    {"protocol": "pointwise"},
    {"protocol": "checkeval"},
    {"protocol": "concepts"},
]


def bundle_of(plan: dict[str, Any]) -> Bundle:
    """One of three is 1 point, all are 3; growth in the dark costs 1 and excludes light."""
    parts = [
        criterion(name, text=text, parent="K", evidence="weakly_groundable", kind="gold_point")
        for name, text in POINTS.items()
    ]
    dark = criterion("M", text="Plants grow in the dark", weight=-1, excludes=("P1",), evidence="weakly_groundable")
    made = locked(counting("K", [0, 1, 1, 3]), *parts, dark, final_score="weighted_points", **plan)
    return made.model_copy(update={"protocol": made.protocol.model_copy(update={"echo": "allowed"})})


def official(bundle: Bundle, levels: dict[str, int]) -> int:
    top = {c.id: c.top for c in bundle.criteria}
    light = levels["P1"] == top["P1"] and levels["M"] < top["M"]
    dark = levels["M"] / top["M"] if levels["M"] >= levels["P1"] else 0
    met = light + sum(levels[name] == top[name] for name in ("P2", "P3"))
    return max(0, int((0, 1, 1, 3)[met] - dark + 0.5))


@pytest.mark.parametrize("judge", PLANS)
def test_raters_decide_the_sub_points_and_the_count_makes_the_score(judge: dict[str, Any], tmp_path: Path) -> None:
    plan, bundle = Judge.model_validate(judge), bundle_of(judge)
    cases = [case(bundle, text, f"r{n}", "i", question=QUESTION) for n, text in enumerate(TEXTS)]
    with ReplyStore(":memory:") as replies:
        found = grade_batch(cases, rater(plan, tmp_path, replies), replies).tables()
    rows = found[Judgments].to_pylist()
    assert [row["criterion_id"] for row in rows] == ["P1", "P2", "P3", "M"] * len(TEXTS)
    for row in found[Gradings].to_pylist():
        levels = {j["criterion_id"]: j["decision"] for j in rows if j["response_id"] == row["response_id"]}
        assert row["score"] == dict(row["trait_scores"])["t"] == official(bundle, levels)
        clash = levels["P1"] > 0 and levels["M"] > 0
        assert dict(row["signals"]).get("conflicts", 0) == clash
    assert len(set(found[Gradings]["score"].to_pylist())) > 1
    assert prove_bundle(bundle, QUESTION, None, TEXTS[0]) == []


@pytest.mark.parametrize(("highest", "score"), [(2, 3), (4, 3)])
def test_a_simulated_rater_counts_marks_of_more_levels_by_where_they_lie(
    highest: int, score: float, tmp_path: Path
) -> None:
    """People's highest mark is the highest level, and what lies below it is not met."""
    truth = {"rater": "key", "noise": 0, "invented": 0, "broken": 0}
    plan = Judge.model_validate({"protocol": "dhs", "backend": "simulated", "truth": truth})
    bundle = bundle_of({}).model_copy(update={"protocol": plan.as_protocol()})
    given = {"r0": dict.fromkeys(POINTS, highest) | {"M": 0}, "r1": dict.fromkeys(POINTS, highest - 1) | {"M": 0}}
    marks = [
        {"response_id": r, "criterion_id": name, "decision": level}
        for r, of in given.items()
        for name, level in of.items()
    ]
    scores = [{"response_id": r, "item_id": "i", "score": None, "trait_scores": {}} for r in given]
    cases = [case(bundle, TEXTS[0], r, "i", question=QUESTION) for r in given]
    with ReplyStore(":memory:") as replies:
        who = rater(plan, tmp_path, replies, marks=human_marks(scores, marks))
        found = grade_batch(cases, who, replies).gradings
    assert [one.scored.score for one in found] == [score, 0]


def test_who_states_a_score_is_told_how_points_are_counted() -> None:
    plan = Judge.model_validate({"protocol": "dhs"}).as_protocol()
    names = counting("R", [0, 1, 2], needs=("T",)), counting("T", [0, 1], parent="R"), criterion("D", parent="R")
    bundle = locked(*names, criterion("t1", parent="T"), criterion("t2", parent="T"), top=2)
    told = prompt.system(bundle.model_copy(update={"protocol": plan}), bundle.criteria, QUESTION, None)
    assert "R is worth 0, 1, 2 points for 0, 1, 2 or more of D, T, and 0 without T" in told
    assert "T is worth 0, 1 points for 0, 1 or more of t1, t2" in told
    guided = bundle.model_copy(update={"protocol": plan, "text": "0 points for none, 2 for both."})
    assert "worth" not in prompt.system(guided, bundle.criteria, QUESTION, None)  # the guide says it in its own words
    decided = prompt.system(bundle, bundle.criteria, QUESTION, None)
    assert "worth" not in decided  # who decides criteria one by one does so for its own sake
