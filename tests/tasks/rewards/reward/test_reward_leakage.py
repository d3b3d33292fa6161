"""Leakage and preservation: a worked rubric, plain loops over edges and children, and a plain bootstrap."""

import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from reward_scene import ACTIVATION, STRONG, WEAK, ancestors, locals_of, random_locals, rows_of, rubric, study

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.reward import PARENTS, Diagnostics
from rubricflow.tasks.core.stats.bootstrap import draw_totals, interval
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate
from rubricflow.tasks.rewards.reward.leakage import BOOLEAN, GATED, RELATIONS, SLICES, appraisals, diagnose, edge_cases

# c0 is weakly needed for c1, and makes the penalty c2 applicable.
THREE = rubric([5, 3, -2], [(0, 1, WEAK), (0, 2, ACTIVATION)])
SEEDS = st.integers(0, 2**32 - 1)


def told(locals_, aggregation="gear", settings=None, found=None):
    """(metric, by, slice) → its record."""
    settings = settings or study()
    found = found or aggregate(locals_.batch, aggregation, threshold=settings.threshold)
    records = diagnose(locals_, aggregation, found, settings)
    conform(Diagnostics, records)
    return {(one["metric"], one["per"], one["slice"]): one for one in records}


def shares(locals_, effective):
    """An aggregation with these shares."""
    nothing = np.full(len(locals_.batch.rubric_index), np.nan)
    return Aggregated(reward=nothing, low=nothing, high=nothing, marginal=np.array(effective))


def test_what_a_worked_rubric_leaks_and_preserves():
    locals_ = locals_of([THREE], [0, 0], [[0.2, 0.9, 0.5], [0.8, 0.6, 0.4]])
    found = told(locals_)
    licensed = 0.2 + 0.8 * 0.6
    leaks = [3 / 8 * 0.9 * licensed, 2 / 8 * 0.5 * 0.2]  # of the first response; the second has one satisfied case
    assert found["leakage", "edge", "all"]["value"] == pytest.approx(np.mean(leaks))
    assert found["leakage", "edge", "weak_prerequisite"]["value"] == pytest.approx(leaks[0])
    assert found["leakage", "edge", "activation"]["value"] == pytest.approx(leaks[1])
    assert found["preservation", "edge", "all"]["value"] == pytest.approx(0.8 + 0.2 * 0.6)
    flat = np.mean([3 / 8 * 0.9, 2 / 8 * 0.5])
    assert found["leakage_reduction", "edge", "all"]["value"] == pytest.approx(1 - np.mean(leaks) / flat)
    assert [found[metric, "edge", "all"]["n"] for metric in ("leakage", "preservation", "leakage_reduction")] == [
        2,
        1,
        2,
    ]


def test_another_graph_is_measured_on_the_dependencies_of_the_first():
    locals_ = locals_of([THREE], [0], [[0.0, 1.0, 1.0]])
    found = told(locals_, "random_graph", found=shares(locals_, [0.0, 0.5, np.nan]))
    assert found["leakage", "edge", "all"]["value"] == pytest.approx(3 / 8 * 0.5)
    assert found["leakage_reduction", "edge", "all"]["value"] == pytest.approx(0.5)
    assert found["leakage", "edge", "all"]["n"] == 1


def test_no_case_has_no_value_but_a_note():
    found = told(locals_of([THREE], [0], [[0.1, 0.2, 0.3]]))["leakage", "edge", "all"]
    assert (found["value"], found["low"], found["high"], found["n"]) == (None, None, None, 0)
    assert found["note"] == "there is no such case"


def test_responses_without_dependencies_have_no_cases():
    assert told(locals_of([rubric([1], [])], [0], [[1.0]]))["preservation", "child", "all"]["n"] == 0
    assert told(locals_of([], [], []))["leakage", "edge", "all"]["n"] == 0


def test_boolean_scores_are_noted_beside_leakage():
    found = told(locals_of([THREE], [0, 0], [[0.0, 1.0, None], [1.0, 1.0, 0.0]]))
    assert BOOLEAN in found["leakage", "edge", "all"]["note"]
    assert BOOLEAN not in (found["preservation", "edge", "all"]["note"] or "")


def test_gates_are_noted_beside_leakage():
    found = told(locals_of([THREE], [0], [[0.2, 0.9, 0.5]]), "hard_local")["leakage", "edge", "all"]
    assert found["value"] == 0
    assert GATED in found["note"]


def test_one_item_has_no_interval():
    found = told(locals_of([THREE], [0, 0], [[0.2, 0.9, 0.5]] * 2, ["i", "i"]))["leakage", "edge", "all"]
    assert (found["low"], found["high"]) == (None, None)
    assert "one item only" in found["note"]


def test_no_draws_make_no_interval():
    found = told(locals_of([THREE], [0, 0], [[0.2, 0.9, 0.5]] * 2), settings=study(draws=0))["leakage", "edge", "all"]
    assert found["value"] is not None
    assert (found["low"], found["high"]) == (None, None)


def by_hand(locals_, found, relations, threshold=0.5):
    """Per metric and by: (response, what it adds) of every case, by loops over responses, edges and children."""
    cases = defaultdict(list)
    for n, one, start in rows_of(locals_):
        local, scored = locals_.batch.local[start:], locals_.batch.scored[start:]
        edges = list(zip(one.parent.tolist(), one.child.tolist(), one.relation, strict=True))
        for child in range(len(one.criteria)):
            above = [parent for parent, to, _ in edges if to == child]
            inside = [parent for parent, to, relation in edges if to == child and relation in relations]
            if not all(scored[at] for at in (child, *ancestors(one, child))) or local[child] < threshold:
                continue
            share = found.marginal[start + child]
            positive = sum(weight for weight in one.weights if weight > 0)
            leak = abs(one.weights[child]) * share / (positive or sum(abs(weight) for weight in one.weights))
            for parent in inside:
                satisfied = local[parent] >= threshold
                case = ("preservation", share / local[child]) if satisfied else ("leakage", leak)
                cases[case[0], "edge"].append((n, case[1]))
            if any(local[parent] < threshold for parent in inside):
                cases["leakage", "child"].append((n, leak))
            if inside and all(local[parent] >= threshold for parent in above):
                cases["preservation", "child"].append((n, share / local[child]))
    return cases


@given(SEEDS, st.sampled_from(["flat", "hard_verdict", "hard_local", "hard_propagated", "gear"]))
@hypothesis_settings(max_examples=15)
def test_every_slice_is_that_of_a_plain_loop(seed, aggregation):
    locals_ = random_locals(np.random.default_rng(seed))
    found = told(locals_, aggregation, study(draws=0))
    for name, relations in SLICES.items():
        expected = by_hand(locals_, aggregate(locals_.batch, aggregation), relations)
        for metric in ("leakage", "preservation"):
            for by in ("edge", "child"):
                record, values = found[metric, by, name], [value for _, value in expected[metric, by]]
                assert record["n"] == len(values)
                assert record["value"] == (pytest.approx(np.mean(values)) if values else None)


def test_cases_say_where_they_are():
    other = rubric([1, 1], [(0, 1, STRONG)], "other")
    locals_ = locals_of([THREE, other], [1, 0, 1], [[0.9, 0.4], [0.2, 0.1, 0.6], [0.7, 0.8]])
    cases = edge_cases(locals_.batch, locals_.batch.local, 0.5)
    assert cases.response.tolist() == [1, 2]
    assert cases.edge.tolist() == [1, 0]
    assert cases.child.tolist() == [4, 6]
    assert [RELATIONS[at] for at in cases.relation] == [ACTIVATION, STRONG]
    assert cases.violated.tolist() == [True, False]
    np.testing.assert_allclose(cases.leaked, [0.6 * 2 / 8, np.nan])
    np.testing.assert_allclose(cases.preserved, [np.nan, 1.0])


@pytest.mark.parametrize("seed", range(3))
def test_intervals_are_those_of_a_loop_over_resampled_items(seed):
    locals_, settings = random_locals(np.random.default_rng(seed), responses=60, items=9), study(draws=40)
    gear, flat = (aggregate(locals_.batch, aggregation) for aggregation in ("gear", "flat"))
    items = sorted(set(locals_.item_id.to_pylist()))
    counts = draw_totals([np.eye(len(items))], settings.draws, settings.seed)[0]
    found = told(locals_, "gear", settings)
    for by in ("edge", "child"):
        ours, theirs = (by_hand(locals_, one, RELATIONS) for one in (gear, flat))
        drawn = defaultdict(list)
        for row in counts:
            times = dict(zip(items, row, strict=True))
            sums = defaultdict(list)
            for name, cases in (
                ("leakage", ours["leakage", by]),
                ("flat", theirs["leakage", by]),
                ("preservation", ours["preservation", by]),
            ):
                for n, value in cases:
                    sums[name] += [value] * int(times[locals_.item_id[n].as_py()])
            drawn["leakage"].append(np.mean(sums["leakage"]))
            drawn["preservation"].append(np.mean(sums["preservation"]))
            drawn["leakage_reduction"].append(1 - np.mean(sums["leakage"]) / np.mean(sums["flat"]))
        for metric, values in drawn.items():
            cases = ours["preservation" if metric == "preservation" else "leakage", by]
            held = len({locals_.item_id[n].as_py() for n, _ in cases})
            assert found[metric, by, "all"]["clusters"] == held
            ends = interval(np.array(values), held)[:2]
            assert [found[metric, by, "all"][end] for end in ("low", "high")] == pytest.approx(list(ends))


@given(SEEDS)
def test_parts_by_the_number_of_parents_hold_every_edge_once_and_each_child_with_its_own(seed):
    locals_ = random_locals(np.random.default_rng(seed))
    found = told(locals_, settings=study(draws=0))
    effective = aggregate(locals_.batch, "gear").marginal
    cases = edge_cases(locals_.batch, effective, 0.5)
    for metric, chosen, values in (
        ("leakage", cases.violated, cases.leaked),
        ("preservation", ~cases.violated, cases.preserved),
    ):
        assert sum(found[metric, "edge", name]["n"] for name in PARENTS) == found[metric, "edge", "all"]["n"]
        for number, name in enumerate(PARENTS, 1):
            mine = []
            for case in np.flatnonzero(chosen).tolist():
                one = locals_.batch.compiled[locals_.batch.rubric_index[cases.response[case]]]
                parents = one.child.tolist().count(one.child[cases.edge[case]])
                mine += [values[case]] * (parents == number or (number == 3 and parents > 3))
            value = found[metric, "edge", name]["value"]
            assert value is None if not mine else value == pytest.approx(np.mean(mine))


def test_with_one_satisfied_parent_gates_keep_all_and_gear_does_where_all_above_it_holds():
    locals_ = locals_of([THREE], [0, 0], [[1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    for aggregation in ("hard_local", "gear"):
        found = told(locals_, aggregation)["preservation", "edge", "1 parent"]
        assert (found["value"], found["n"]) == (1.0, 2)
        assert found["note"]
    chain = locals_of([rubric([1, 1, 1], [(0, 1, WEAK), (1, 2, WEAK)])], [0], [[0.0, 1.0, 1.0]])
    kept = [told(chain, name)["preservation", "edge", "1 parent"]["value"] for name in ("hard_local", "gear")]
    assert kept == pytest.approx([1.0, 0.6 + 0.6 * 0.4])


# Flat and GEAR side by side: every figure against a plain loop over criteria and edges.


THRESHOLD = 0.5


def appraised_by_hand(batch, gear, response):
    """(false credit, leaks by relation, supported, violated) of a response where all is scored."""
    compiled, first = batch.compiled[batch.rubric_index[response]], batch.start[response]
    own = batch.local[first : first + len(compiled.criteria)]
    licensed = gear.marginal[first : first + len(compiled.criteria)]
    credit = sum(max(0.0, weight) * (p - q) for weight, p, q in zip(compiled.weights, own, licensed, strict=True))
    leaks, supported, violated = {}, 0, 0
    for parent, child, relation in zip(compiled.parent, compiled.child, compiled.relation, strict=True):
        if own[child] < THRESHOLD:
            continue
        supported += 1
        if own[parent] < THRESHOLD:
            violated += 1
            leaks[relation] = leaks.get(relation, 0.0) + abs(compiled.weights[child]) * own[child] / compiled.mass
    return credit / compiled.mass, leaks, supported, violated


@given(st.integers(0, 2**32 - 1))
@hypothesis_settings(max_examples=15)
def test_every_figure_is_what_a_loop_makes_of_it(seed):
    batch = random_locals(np.random.default_rng(seed)).batch
    flat, gear = (aggregate(batch, name, threshold=THRESHOLD) for name in ("flat", "gear"))
    found = appraisals(batch, flat, gear, THRESHOLD)
    assert len(found) == len(batch.rubric_index)
    for response, appraisal in enumerate(found):
        first, last = batch.start[response], batch.start[response + 1]
        names = batch.compiled[batch.rubric_index[response]].criteria
        assert tuple(appraisal.shares) == names
        if not batch.scored[first:last].all():
            assert appraisal.flat is appraisal.gear is appraisal.false_credit is None
            continue
        credit, leaks, supported, violated = appraised_by_hand(batch, gear, response)
        assert appraisal.false_credit == pytest.approx(credit, abs=1e-12)
        assert appraisal.false_credit >= 0
        assert dict(appraisal.leaked) == pytest.approx(leaks)
        assert (appraisal.supported, appraisal.violated) == (supported, violated)
        assert appraisal.flat == pytest.approx(flat.reward[response])
        for name, own in zip(names, batch.local[first:last], strict=True):
            assert appraisal.shares[name]["own"] == own
            licensed = appraisal.shares[name]["licensed"]
            assert 0 <= licensed <= own or math.isclose(licensed, own)


def test_the_threshold_itself_counts_as_supported():
    found = told(locals_of([THREE], [0], [[0.5, 0.5, 0.0]]), "flat")
    assert (found["leakage", "edge", "all"]["n"], found["preservation", "edge", "all"]["n"]) == (0, 1)
