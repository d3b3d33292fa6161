"""Levels to scores, by worked numbers and by brute force."""

import itertools

import pyarrow as pa
import pytest
from builders import bundles
from builders.bundles import THREE, trait
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.composite import share_of_points
from rubricflow.tasks.core.contracts.graph import Graph, Node
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.grading.judge.score import (
    is_tie,
    round_half_up,
    score,
    whole_shares,
)
from rubricflow.tasks.rewards.reward.compiled import compile_graph
from rubricflow.tasks.rewards.reward.local import local_scores

MIDDLE = (0.5, 0.75, 0.2, 1.0, 0.0)
"""Shares that a middle level may earn."""


def criterion(name, trait="t", weight=1.0, levels=THREE, middle=0.5):
    earns = (0.0, middle, 1.0) if len(levels) == 3 and middle != 0.5 else ()
    return bundles.criterion(name, trait, weight=weight, levels=levels, earns=earns)


def bundle_of(criteria, formula="trait_mean", scale=(1, 6), ranges=None, unscored="null"):
    traits = tuple(trait(name, *ends) for name, ends in (ranges or {}).items())
    return bundles.bundle(*criteria, ends=scale, traits=traits, final_score=formula, unscored=unscored)


@pytest.mark.parametrize(
    ("weights", "shares", "share"),
    [
        ((2, 1, 1), (1, 0.5, 0), 0.625),
        ((3, 1), (0, 1), 0.25),
        ((2, 2, -1), (1, 0, 1), 0.25),
        ((1, 1, -4), (1, 1, 1), 0.0),
        ((-1, -3), (0, 0), 1.0),
        ((-1, -3), (1, 0), 0.75),
        ((-1, -3), (1, 1), 0.0),
        ((2, 0), (0.5, 1), 0.5),
        ((-1, 0), (0, 1), 1.0),
        ((0, 0), (1, 0), 1.0),
    ],
)
def test_weights_misconceptions_and_rubrics_without_credit(weights, shares, share):
    criteria = [criterion(f"c{i}", weight=w) for i, w in enumerate(weights)]
    assert share_of_points(criteria, {f"c{i}": s for i, s in enumerate(shares)}) == pytest.approx(share)


def test_final_score_formulas():
    criteria = [criterion("x", "a", 3), criterion("y", "b", 1)]
    ranges, levels = {"a": (0, 4), "b": (1, 6)}, {"x": 2, "y": 0}
    assert score(bundle_of(criteria, "trait_sum", (1, 10), ranges), levels).score == 5
    assert score(bundle_of(criteria, "trait_mean", (0, 10), ranges), levels).score == 5
    assert score(bundle_of(criteria, "weighted_points", (0, 100), ranges), levels).score == 75


def test_a_judged_score_is_not_derived():
    with pytest.raises(ValueError, match="stated"):
        score(bundle_of([criterion("x")], "judged"), {"x": 1})


@pytest.mark.parametrize(
    ("value", "rounded", "tie"),
    [(2.5, 3, True), (2.4999, 2, False), (2.5001, 3, False), (3, 3, False), (0.2, 1, False), (9, 6, False)],
)
def test_half_goes_up_and_the_scale_clips(value, rounded, tie):
    assert (round_half_up(value, Scale(min=1, max=6)), is_tie(value, Scale(min=1, max=6))) == (rounded, tie)


@st.composite
def partly_scored(draw):
    """A bundle that asks for bounds, and levels some of which are unscored."""
    count = draw(st.integers(1, 5))
    weights = draw(st.lists(st.sampled_from([-2.0, -1.0, 0.5, 1.0, 3.0]), min_size=count, max_size=count))
    traits = draw(st.lists(st.sampled_from("ab"), min_size=count, max_size=count))
    middle = draw(st.lists(st.sampled_from(MIDDLE), min_size=count, max_size=count))
    parts = zip(traits, weights, middle, strict=True)
    criteria = [criterion(f"c{i}", t, w, middle=m) for i, (t, w, m) in enumerate(parts)]
    formula = draw(st.sampled_from(["weighted_points", "trait_mean", "trait_sum"]))
    ranges = dict.fromkeys(dict.fromkeys(traits), (0, 3))
    scale = (0, 3 * len(ranges)) if formula == "trait_sum" else (0, 7)
    levels = {c.id: draw(st.sampled_from([None, 0, 1, 2])) for c in criteria}
    return bundle_of(criteria, formula, scale, ranges, "bounds"), levels


@settings(max_examples=20)
@given(partly_scored())
def test_bounds_are_the_ends_of_all_fillings(case):
    bundle, levels = case
    open_ = [name for name, level in levels.items() if level is None]
    fillings = itertools.product(range(3), repeat=len(open_))
    scores = [score(bundle, levels | dict(zip(open_, filling, strict=True))).score for filling in fillings]
    scored = score(bundle, levels)
    if open_:
        assert (scored.score, scored.low, scored.high) == (None, min(scores), max(scores))
    else:
        assert (scored.score, scored.low) == (scores[0], None)


# criteria made of sub-points

WEIGHTS = (-2.0, -1.0, 0.5, 1.0, 3.0)


def middle_of(path):
    return MIDDLE[sum(map(ord, path)) % len(MIDDLE)]


def parted(tree, parent=None, path="c"):
    """Criteria of a tree (weight, [sub-trees]): those decided and those made of others."""
    weight, below = tree
    middle = middle_of(path) if not below else 0.5
    made = criterion(path, "a", weight, middle=middle).model_copy(update={"parent": parent})
    if not below:
        return [made], []
    parts = [parted(one, path, f"{path}.{n}") for n, one in enumerate(below)]
    return [c for decided, _ in parts for c in decided], [made, *(c for _, inner in parts for c in inner)]


def share_in(tree, levels, path="c"):
    """The share of a tree, by its definition."""
    weight, below = tree
    if not below:
        return (0, middle_of(path), 1)[levels[path]]
    return min(1, max(0, sum(one[0] * share_in(one, levels, f"{path}.{n}") for n, one in enumerate(below)) / weight))


def bundle_of_trees(trees, formula="weighted_points", unscored="null", top=100):
    parts = [parted(tree, None, f"c{n}") for n, tree in enumerate(trees)]
    bundle = bundle_of([c for decided, _ in parts for c in decided], formula, (0, top), unscored=unscored)
    return bundle.model_copy(update={"composites": tuple(c for _, inner in parts for c in inner)})


TREES = st.recursive(
    st.sampled_from(WEIGHTS).map(lambda weight: (weight, [])),
    lambda trees: st.tuples(st.sampled_from(WEIGHTS), st.lists(trees, min_size=1, max_size=3)),
    max_leaves=4,
)


@settings(max_examples=20)
@given(st.data(), st.lists(TREES, min_size=1, max_size=2), st.sampled_from(["weighted_points", "trait_mean"]))
def test_scores_and_bounds_of_composites_are_those_of_their_definition(data, trees, formula):
    bundle = bundle_of_trees(trees, formula, "bounds")
    levels = {c.id: data.draw(st.sampled_from([None, 0, 1, 2])) for c in bundle.criteria}
    open_ = [name for name, level in levels.items() if level is None][:4]
    levels |= {name: 1 for name, level in levels.items() if level is None and name not in open_}
    whole = [criterion(f"w{n}", "a", weight) for n, (weight, _) in enumerate(trees)]

    def expected(filling):
        full = levels | dict(zip(open_, filling, strict=True))
        shares = {f"w{n}": share_in(tree, full, f"c{n}") for n, tree in enumerate(trees)}
        return round_half_up(100 * share_of_points(whole, shares), bundle.scale)

    scores = [expected(filling) for filling in itertools.product(range(3), repeat=len(open_))]
    scored = score(bundle, levels)
    if open_:
        assert (scored.score, scored.low, scored.high) == (None, min(scores), max(scores))
        zero = bundle.model_copy(update={"protocol": bundle.protocol.model_copy(update={"unscored": "zero"})})
        if len(open_) < len(levels):
            assert score(zero, levels).score == expected([0] * len(open_))
    else:
        assert scored.score == scores[0]


@settings(max_examples=25)
@given(st.data(), st.lists(TREES, min_size=1, max_size=2))
def test_judge_and_reward_make_the_same_of_sub_points(data, trees):
    bundle = bundle_of_trees(trees)
    levels = {c.id: data.draw(st.sampled_from([None, 0, 1, 2])) for c in bundle.criteria}
    decided = {name: level for name, level in levels.items() if level is not None}
    shares = whole_shares(bundle, {name: (0, middle_of(name), 1)[level] for name, level in decided.items()})
    judged = {"response_id": "r", "rater_id": "j", "sample": 0, "action": "none"}
    rows = [judged | {"criterion_id": name, "decision": level} for name, level in levels.items()]
    graph = Graph(nodes=tuple(Node(criterion_id=c.id, role="core") for c in bundle.whole), edges=())
    compiled = {
        "b": compile_graph("b", bundle, graph, Retention(weak_prerequisite=1, strong_prerequisite=1, activation=1))
    }
    told = pa.Table.from_pylist(rows, schema(Judgments)), {"r": "i"}, {"i": "b"}, {"b": bundle}, compiled
    made = local_scores(*told, "decision").batch
    for (n, tree), local, scored in zip(enumerate(trees), made.local, made.scored, strict=True):
        open_ = any(level is None for name, level in levels.items() if name.split(".")[0] == f"c{n}")
        assert scored == (f"c{n}" in shares) == (not open_)
        assert local == shares.get(f"c{n}", 0.0)
        assert open_ or local == pytest.approx(share_in(tree, levels, f"c{n}"))
