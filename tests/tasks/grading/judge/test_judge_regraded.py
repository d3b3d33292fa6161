"""Levels that a person sets: the grading is then what the judge's own code makes of a reply that says them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from builders.bundles import bundle, criterion, trait
from builders.cases import case
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle, Count
from rubricflow.tasks.core.llm.ask import Attempt, Checked, RequestOutcome
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.grading.judge.protocol import Answer, Part
from rubricflow.tasks.grading.judge.protocols import rulers
from rubricflow.tasks.grading.judge.rows import Decision, Rater, gradings, judgments
from rubricflow.tasks.grading.judge.score import regraded, score_follows
from rubricflow.tasks.grading.judge.verify import Verdict

Levels = Mapping[str, int | None]
ANCHORS = ("none", "some", "most", "all")
REQUEST = Request(messages=(), role="grade", subject="r1")


def rows(of: Bundle, levels: Levels, chances: Mapping[str, list[float]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The rows of `gradings` and `judgments` that the protocol makes of a reply."""
    decisions = tuple(Decision(name, level, level, None if level is not None else "criterion_missing")
                      for name, level in levels.items())  # fmt: skip
    reply = Reply(text="{}", level_probabilities=dict(chances))
    verdict = Verdict(decisions)
    attempt = Attempt(REQUEST, "m", "d", reply, Checked(verdict, ()), False)
    outcome = rulers.PROTOCOL.outcome(
        case(of), [Answer(Part("all", of.criteria), RequestOutcome(REQUEST, (attempt,), verdict))]
    )
    rater = Rater("m", "llm", cast(Any, None))
    (grading,) = gradings(rater, [outcome.grading]).to_pylist(maps_as_pydicts="strict")
    return grading, judgments(rater, [outcome.judged]).to_pylist()


@st.composite
def bundles(draw: st.DrawFn) -> Bundle:
    """Some criteria of two traits, some of them sub-points or alternatives of each other."""
    names = "abcde"[: draw(st.integers(1, 5))]
    weights = st.sampled_from((-1.0, 0.5, 1.0, 2.0))
    criteria = [
        criterion(name, draw(st.sampled_from("tu")), levels=ANCHORS[: draw(st.integers(2, 4))], weight=draw(weights))
        for name in names
    ]
    composites = ()
    if len(names) > 2 and draw(st.booleans()):
        count = draw(st.sampled_from((None, Count(points=(0, 1, 3)), Count(points=(0, 2), least=1))))
        composites = (criterion("K", "t", weight=count.points[-1] if count else 2.0, count=count),)
        changes = {"parent": "K", "trait": "t", "weight": 1.0}
        criteria[:2] = [one.model_copy(update=changes) for one in criteria[:2]]
        criteria[1] = criteria[1].model_copy(update={"excludes": ("a",) if draw(st.booleans()) else ()})
    return bundle(
        *criteria,
        composites=composites,
        ends=(0, draw(st.sampled_from((4, 10))), draw(st.sampled_from((0.5, 1)))),
        name=draw(st.sampled_from(("rulers", "pointwise", "concepts", "checkeval"))),
        final_score=draw(st.sampled_from(("weighted_points", "trait_mean", "trait_sum"))),
        unscored=draw(st.sampled_from(("null", "bounds", "zero"))),
        signals=("criteria", "trait_means", "trait_scores", "tie"),
    )


def levels_of(of: Bundle, draw: st.DrawFn, some: bool, decided: bool) -> dict[str, int | None]:
    names = [one for one in of.criteria if not some or draw(st.booleans())]
    return {one.id: draw(st.integers(0, one.top) if decided else st.none() | st.integers(0, one.top)) for one in names}


@settings(max_examples=20)
@given(st.data())
def test_it_is_what_the_protocol_makes_of_a_reply_with_these_levels(data: st.DataObject) -> None:
    of = data.draw(bundles())
    before = levels_of(of, data.draw, some=False, decided=False)
    changes = cast(dict[str, int], levels_of(of, data.draw, some=True, decided=True))
    chances = {
        one.id: [1 / len(one.levels)] * len(one.levels)
        for one in of.criteria
        if before[one.id] is not None and data.draw(st.booleans())
    }
    grading, decided = rows(of, before, chances)
    unmoved = {name: likely for name, likely in chances.items() if name not in changes}
    wanted, _ = rows(of, before | changes, unmoved)
    result = regraded(of, grading, decided, changes)
    assert regraded(of, grading, decided, {}) == grading
    if not changes:
        return
    for name in ("score", "low", "high", "trait_scores", "status"):
        assert result[name] == wanted[name], name
    sure = ("confidence", "uncertainty", "tie")  # of the reply as it was
    assert result["signals"]["tie"] == grading["signals"]["tie"]
    assert {name: value for name, value in result["signals"].items() if name not in sure} == pytest.approx(
        {name: value for name, value in wanted["signals"].items() if name not in sure}, abs=0
    )
    assert (result["unscored_reason"] is None) == (result["score"] is not None)


def test_an_answer_that_was_settled_without_the_judge_stays_so_and_gets_the_points_of_its_levels() -> None:
    of = bundle(criterion("a"), criterion("b"))
    grading, _ = rows(of, {"a": 0, "b": 0}, {})
    short = grading | {"status": "precheck", "signals": {"precheck": 1.0, "short_answer_gate": 1.0, "length": 0.0}}
    result = regraded(of, short, [], {"a": 1, "b": 1})
    assert (result["status"], result["score"], result["signals"]["mean.t"]) == ("precheck", 10.0, 1.0)
    assert regraded(of, short, [], {"a": 1})["status"] == "unscored"


def test_a_score_that_the_judge_states_follows_from_no_levels() -> None:
    stated = trait("u", source="judged")
    assert score_follows(bundle(criterion("a")))
    assert not score_follows(bundle(criterion("a"), name="dhs", final_score="judged"))
    assert not score_follows(bundle(criterion("a"), traits=(trait("t"), stated)))
    assert score_follows(bundle(criterion("a"), traits=(trait("t"), stated), final_score="weighted_points"))
