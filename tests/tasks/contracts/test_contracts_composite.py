"""What a criterion with sub-points is worth, by brute force and in both rooms that ask."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.contracts.bundle import Bundle, Criterion, Rubric, Scale, Trait
from tasks.contracts.graph import Graph, Node
from tasks.contracts.schema import schema
from tasks.contracts.settings.judge import Judge
from tasks.contracts.settings.reward import Retention
from tasks.contracts.tables.judging import Judgments
from tasks.judge.score import whole_shares
from tasks.lock.lock import lock
from tasks.reward.local import local_scores
from tasks.reward.wire import wire

LEVELS = ("none", "some", "all")
JUDGED = {"response_id": "x", "rater_id": "j", "sample": 0, "action": "none"}
WEIGHTS = st.integers(1, 6).map(float) | st.integers(-3, -1).map(float)


@st.composite
def nested(draw: st.DrawFn) -> Bundle:
    """A rubric whose criteria hang on earlier ones at will, as deep as that goes."""
    parents = [
        draw(st.none() | st.integers(0, at - 1).map(str)) if at else None for at in range(draw(st.integers(2, 9)))
    ]
    criteria = tuple(
        Criterion(id=f"c{at}", trait="t", text="T", levels=LEVELS, weight=draw(WEIGHTS), parent=parent and f"c{parent}")
        for at, parent in enumerate(parents)
    )
    scale, trait = Scale(min=0, max=1), Trait(id="t", name="T", min=0, max=1)
    rubric = Rubric(rubric_id="r", scale=scale, traits=(trait,), criteria=draw(st.permutations(criteria)))
    return lock(rubric, Judge(final_score="weighted_points").as_protocol())


def by_hand(bundle: Bundle, name: str, levels: dict[str, int | None]) -> float:
    """The share of a criterion, from the top down; NaN where anything that it is made of is unscored."""
    known = {criterion.id: criterion for criterion in (*bundle.criteria, *bundle.composites)}
    parts = [criterion for criterion in known.values() if criterion.parent == name]
    if not parts:
        level = levels[name]
        return math.nan if level is None else level / known[name].top
    earned = sum(part.weight * by_hand(bundle, part.id, levels) for part in parts)
    return float(np.clip(earned / known[name].weight, 0, 1))


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_judge_and_reward_make_the_same_of_sub_points(data: st.DataObject) -> None:
    bundle = data.draw(nested())
    levels = {c.id: data.draw(st.sampled_from([None, 0, 1, 2]), label=c.id) for c in bundle.criteria}
    shares = whole_shares(bundle, {c.id: levels[c.id] / c.top for c in bundle.criteria if levels[c.id] is not None})
    graph = Graph(nodes=tuple(Node(criterion_id=c.id, role="core") for c in bundle.whole), edges=())
    rows = [{"criterion_id": name, "decision": level} | JUDGED for name, level in levels.items()]
    judgments = pa.Table.from_pylist(rows, schema(Judgments))
    wired = {"r": wire("r", bundle, graph, Retention(weak_prerequisite=1, strong_prerequisite=1, activation=1))}
    made = local_scores(judgments, {"x": "i"}, {"i": "r"}, {"r": bundle}, wired, "decision").batch
    for criterion, local, scored in zip(bundle.whole, made.local, made.scored, strict=True):
        expected = by_hand(bundle, criterion.id, levels)
        assert shares.get(criterion.id, math.nan) == pytest.approx(expected, nan_ok=True)
        assert local == shares.get(criterion.id, 0.0)
        assert scored == (criterion.id in shares)
