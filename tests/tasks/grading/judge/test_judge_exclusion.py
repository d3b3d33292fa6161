"""Criteria that exclude each other, alone and among counts and groups at random, against enumeration."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from builders.bundles import THREE
from builders.keys import criterion, locked, rubric
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle, Count, Criterion
from rubricflow.tasks.core.contracts.composite import composed, composition, share_of_points
from rubricflow.tasks.core.contracts.graph import Graph, Node
from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.grading.judge.score import (
    conflicts,
    decided_shares,
    round_half_up,
    score,
    whole_shares,
)
from rubricflow.tasks.grading.lock.rubric import broken
from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.compiled import Batch, compile_graph
from rubricflow.tasks.rewards.reward.local import local_scores

KEEP_ALL = Retention(weak_prerequisite=1, strong_prerequisite=1, activation=1)
LEVELS = (0, 1, 2)
EARNS = ((), (0.0, 0.75, 1.0), (0.0, 0.2, 1.0), (0.0, 1.0, 1.0), (0.0, 0.0, 1.0))
"""What three levels may earn."""


def scores(bundle: Bundle, *levels: Mapping[str, int]) -> list[float | None]:
    return [score(bundle, {c.id: 0 for c in bundle.criteria} | given).score for given in levels]


@st.composite
def exclusive(draw: Callable[..., Any]) -> Bundle:
    """Criteria in one trait of which any may exclude each other."""
    names = "abcde"[: draw(st.integers(2, 5))]
    weights = draw(st.lists(st.sampled_from([-2.0, -1.0, 0.5, 1.0, 3.0]), min_size=len(names), max_size=len(names)))
    pairs = draw(st.lists(st.sampled_from(list(itertools.combinations(names, 2))), unique=True, max_size=6))
    excludes = {name: [b for a, b in pairs if a == name] for name in names}
    earns = [draw(st.sampled_from(EARNS)) for _ in names]
    parts = zip(names, weights, earns, strict=True)
    criteria = [criterion(n, weight=w, excludes=excludes[n], earns=e) for n, w, e in parts]
    formula = draw(st.sampled_from(["weighted_points", "trait_mean"]))
    return locked(*draw(st.permutations(criteria)), top=7, unscored="bounds", final_score=formula)


def enumerated(bundle: Bundle, levels: Mapping[str, int]) -> float:
    """The share of the points by trying every set of criteria."""
    known = {c.id: c for c in bundle.criteria}
    pairs = {frozenset((a, b)) for a, c in known.items() for b in c.excludes}
    opposed = [
        tuple(sorted(p, key=lambda n: -known[n].weight)) for p in pairs if math.prod(known[n].weight for n in p) < 0
    ]
    reached = {name: (known[name].earns or (0, 0.5, 1))[level] for name, level in levels.items()}
    fallen = {m if reached[p] > reached[m] else p for p, m in opposed}

    def most(sign: int, at: Mapping[str, float]) -> float:
        mine = [n for n, c in known.items() if c.weight * sign > 0]
        sets = itertools.chain.from_iterable(itertools.combinations(mine, k) for k in range(len(mine) + 1))
        free = (s for s in sets if not any(frozenset(pair) in pairs for pair in itertools.combinations(s, 2)))
        return max(sum(abs(known[n].weight) * at[n] for n in s) for s in free)

    held = {name: 0 if name in fallen else share for name, share in reached.items()}
    earned, credit, cost = (
        most(1, held) - most(-1, held),
        most(1, dict.fromkeys(known, 1)),
        most(-1, dict.fromkeys(known, 1)),
    )
    return min(1.0, max(0.0, earned / credit if credit else 1 + earned / cost))


@settings(max_examples=20)
@given(st.data(), exclusive())
def test_exclusions_are_their_rule(data: Any, bundle: Bundle) -> None:
    levels = {c.id: data.draw(st.sampled_from(LEVELS)) for c in bundle.criteria}
    assert score(bundle, levels).score == round_half_up(7 * enumerated(bundle, levels), bundle.scale)


@st.composite
def any_rubric(draw: Callable[..., Any]) -> Bundle:
    """A rubric of counts, groups and exclusions at random, of those that can be locked."""
    luck = random.Random(draw(st.integers(0, 10**6)))
    for _ in range(200):
        bundle = _at_random(luck)
        if bundle is not None:
            return bundle
    assume(False)
    raise AssertionError


def _at_random(luck: random.Random) -> Bundle | None:
    traits = luck.choice([("t",), ("t", "u")])
    criteria: list[Criterion] = []

    def grow(name: str, parent: Criterion | None, depth: int) -> None:
        counted = parent is not None and parent.count is not None
        weight = math.copysign(1, parent.weight) if counted else luck.choice([-2.0, -1.0, 1.0, 2.0])
        own = Criterion(
            id=name, trait=parent.trait if parent else luck.choice(traits), text=f"names {name}", levels=THREE,
            weight=weight, parent=parent.id if parent else None,
        )  # fmt: skip
        below = luck.randint(1, 3) if depth < 2 and luck.random() < 0.6 else 0
        if not (below or counted):
            own = own.model_copy(update={"earns": luck.choice(EARNS)})
        if below and (counted or luck.random() < 0.6):
            size = abs(own.weight)
            points = sorted(luck.choice([0.0, size] if counted else [0.0, size / 2, size]) for _ in range(below - 1))
            needs = [f"{name}0"] if luck.random() < 0.3 else []
            own = own.model_copy(update={"count": Count(points=(0.0, *points, size), needs=tuple(needs))})
        criteria.append(own)
        for at in range(below):
            grow(f"{name}{at}", own, depth + 1)

    for at in range(luck.randint(2, 4)):
        grow("abcd"[at], None, 0)
    names = [c.id for c in criteria]
    excluding = [
        c.model_copy(update={"excludes": tuple(n for n in luck.sample(names, min(2, len(names))) if n != c.id)})
        if luck.random() < 0.3 else c
        for c in criteria
    ]  # fmt: skip
    if broken(rubric(*excluding, top=5)) or not any(c.excludes or c.count for c in excluding):
        return None
    return locked(*excluding, top=5, unscored="bounds", final_score=luck.choice(["weighted_points", "trait_mean"]))


@settings(max_examples=20)
@given(st.data(), any_rubric())
def test_scores_stay_on_the_scale_move_with_the_weights_and_are_bounded(data: Any, bundle: Bundle) -> None:
    levels = {c.id: data.draw(st.sampled_from(LEVELS)) for c in bundle.criteria}
    whole = score(bundle, levels).score
    assert 0 <= whole <= 5
    moved = data.draw(st.sampled_from([c for c in bundle.criteria if levels[c.id] < c.top] or [None]))
    if moved:
        more = score(bundle, levels | {moved.id: levels[moved.id] + 1}).score
        assert (more - whole) * moved.weight >= 0
    open_ = data.draw(st.lists(st.sampled_from(sorted(levels)), unique=True, min_size=1, max_size=3))
    made = [levels | dict(zip(open_, of, strict=True)) for of in itertools.product(LEVELS, repeat=len(open_))]
    completions = [score(bundle, of).score for of in made]
    bounded = score(bundle, levels | dict.fromkeys(open_))
    assert (bounded.score, bounded.low, bounded.high) == (None, min(completions), max(completions))
    shuffled = bundle.model_copy(
        update={name: tuple(data.draw(st.permutations(getattr(bundle, name)))) for name in ("criteria", "composites")}
    )
    assert score(shuffled, levels).score == whole


def locals_of(bundle: Bundle, given: Sequence[Mapping[str, int | None]]) -> Batch:
    """The local scores of responses with these decisions, whose graph suppresses nothing."""
    rows = [
        {"response_id": f"r{n}", "rater_id": "j", "sample": 0, "action": "none"}
        | {"criterion_id": c, "decision": level}
        for n, levels in enumerate(given)
        for c, level in levels.items()
    ]
    graph = Graph(nodes=tuple(Node(criterion_id=c.id, role="core") for c in bundle.whole), edges=())
    told = (
        {f"r{n}": "i" for n in range(len(given))},
        {"i": "b"},
        {"b": bundle},
        {"b": compile_graph("b", bundle, graph, KEEP_ALL)},
    )
    return local_scores(pa.Table.from_pylist(rows, schema(Judgments)), *told, "decision").batch


@settings(max_examples=10)
@given(st.data(), any_rubric())
def test_rewards_see_the_same_shares_and_the_same_full_credit(data: Any, bundle: Bundle) -> None:
    levels = {c.id: data.draw(st.sampled_from(LEVELS)) for c in bundle.criteria}
    found = locals_of(bundle, [levels])
    shares = whole_shares(bundle, decided_shares(bundle, levels))
    assert found.local.tolist() == pytest.approx([shares[c.id] for c in bundle.whole])
    left = 0 if any(c.weight > 0 for c in bundle.whole) else 1  # a rubric that only costs rewards from -1 to 0
    (reward,) = aggregate(found, "flat").reward + left
    assert min(1, max(0, reward)) == pytest.approx(share_of_points(bundle.whole, shares))


@settings(max_examples=20)
@given(st.data(), any_rubric())
def test_bounds_of_rewards_hold_every_completion(data: Any, bundle: Bundle) -> None:
    levels: dict[str, int | None] = {c.id: data.draw(st.sampled_from(LEVELS)) for c in bundle.criteria}
    open_ = data.draw(st.lists(st.sampled_from(sorted(levels)), unique=True, min_size=1, max_size=3))
    made = [levels | dict(zip(open_, of, strict=True)) for of in itertools.product(LEVELS, repeat=len(open_))]
    rewards = aggregate(locals_of(bundle, made), "flat").reward
    bounded = aggregate(locals_of(bundle, [levels | dict.fromkeys(open_)]), "flat", unscored="bounds")
    assert np.isnan(bounded.reward[0])
    assert bounded.low[0] <= rewards.min() + 1e-9
    assert bounded.high[0] >= rewards.max() - 1e-9


def test_arrays_and_numbers_are_composed_alike() -> None:
    luck = random.Random(7)
    for _ in range(60):
        bundle = _at_random(luck)
        if bundle is None:
            continue
        of, levels = (
            composition(bundle),
            np.array([[luck.choice([0.0, 0.5, 1.0]) for _ in bundle.criteria] for _ in range(9)]),
        )
        columns = {c.id: levels[:, at] for at, c in enumerate(bundle.criteria)}
        together = composed(of, columns)
        for n, row in enumerate(levels):
            alone = composed(of, dict(zip(columns, row.tolist(), strict=True)))
            assert {name: share[n] for name, share in together.items()} == pytest.approx(alone)


def test_of_alternatives_one_counts_and_alone_it_can_earn_all() -> None:
    colours = [
        criterion("white", excludes=("grey", "black")),
        criterion("grey", excludes=("black",)),
        criterion("black"),
    ]
    bundle = locked(*colours, criterion("reason"), top=2)
    assert scores(bundle, {"white": 2}, {"white": 2, "black": 2}, {"grey": 2, "reason": 2}) == [1, 1, 2]
    assert conflicts(bundle, {"white": 2, "grey": 1, "black": None, "reason": 2}) == {"conflicts": 1}
    assert conflicts(bundle, {"white": 2, "grey": 0, "reason": 2}) == {}
