"""Limits of a cascade: against plain loops, against the promise of one judge, and in simulation."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import binomtest, norm

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.promise import promise
from rubricflow.tasks.grading.cascade import limits
from rubricflow.tasks.grading.cascade.limits import NEVER, CascadeTerms, StepRisks, least_cost, least_costs, stopping
from rubricflow.tasks.grading.cascade.scopes import scope_limits

COSTS, PEOPLE = (1.0, 10.0), 200.0
TERMS = CascadeTerms(COSTS, PEOPLE, 0.1, 0.9)


def drawn(rng, n, easiness=(2.0, 3.5), clusters=None):
    """Two judges, of whom the second errs less; hard answers are hard for both, and half of their luck is one."""
    hard = 1.8 * rng.normal(size=n)
    chance = np.column_stack([expit(hard - ease + 0.8 * rng.normal(size=n)) for ease in easiness])
    luck = np.sqrt(0.5) * rng.normal(size=n)[:, None] + np.sqrt(0.5) * rng.normal(size=chance.shape)
    wrong = luck < norm.ppf(chance)
    cluster = np.arange(n) if clusters is None else rng.integers(0, clusters, n)
    return StepRisks(chance, wrong, rng.random(chance.shape) < 0.95, cluster.astype(str))


def in_a_loop(rows, limits):
    """(released, wrong, cost without people, cost with them), answer by answer."""
    released = wrong = 0
    asking = people = 0.0
    for at in range(len(rows.risk)):
        for step, limit in enumerate(limits):
            if step and limit == NEVER:
                continue
            asking += COSTS[step]
            if rows.open[at, step] and rows.risk[at, step] <= limit:
                released += 1
                wrong += rows.wrong[at, step]
                break
        else:
            people += PEOPLE
    n = len(rows.risk)
    return released, wrong, asking / n, (asking + people) / n


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(30, 150), st.booleans())
def test_limits_do_what_a_loop_says_and_their_test_passes(seed, n, clustered):
    rows = drawn(np.random.default_rng(seed), n, clusters=n // 3 if clustered else None)
    made = least_cost(rows, TERMS)
    if made is None:
        return
    released, wrong, asking, cost = in_a_loop(rows, made.limits)
    assert (made.released, made.wrong) == (released, wrong)
    assert (made.asking, made.cost) == (pytest.approx(asking), pytest.approx(cost))
    assert made.upper <= 0.1 + 1e-9
    assert 0 < made.worth <= made.released
    if not clustered:
        assert binomtest(int(wrong), released, 0.1, "less").pvalue <= 0.1 + 1e-9
    shuffled = np.random.default_rng(seed).permutation(n)
    again = least_cost(StepRisks(*(part[shuffled] for part in rows[:4])), TERMS)
    assert again is not None
    assert again.limits == made.limits
    assert again[1:] == pytest.approx(made[1:])


def test_what_stops_where():
    risk = np.array([[0.1, 0.9], [0.2, 0.1], [0.9, 0.9], [0.1, 0.1]])
    is_open = np.array([[True, True], [True, True], [True, True], [False, True]])
    assert stopping(risk, is_open, (0.1, 0.1)).tolist() == [0, 1, 2, 1]
    assert stopping(risk, is_open, (NEVER, 0.1)).tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize("seed", range(5))
def test_one_step_lets_out_about_as_much_as_the_promise_of_a_judge(seed):
    rows = drawn(np.random.default_rng(seed), 300, easiness=(2.5,))
    alone = promise(rows.risk[rows.open[:, 0], 0], rows.wrong[rows.open[:, 0], 0], 0.1, 0.9)
    made = least_cost(rows, TERMS._replace(costs=(1.0,)))
    assert made is not None
    assert alone.released
    assert made.released / alone.released == pytest.approx(1, abs=0.25)


def test_too_few_labels_and_judges_who_always_err_allow_nothing():
    rng = np.random.default_rng(0)
    assert least_cost(drawn(rng, 21), TERMS) is None
    rows = drawn(rng, 300)
    assert least_cost(rows._replace(wrong=np.ones_like(rows.wrong)), TERMS) is None
    assert least_cost(rows._replace(open=np.zeros_like(rows.open)), TERMS) is None


def test_what_a_constant_keeps_is_no_promise():
    rows = drawn(np.random.default_rng(1), 400)
    assert least_cost(rows, TERMS) is not None
    assert least_cost(rows._replace(constant=np.full(400, 0.001)), TERMS) is None
    assert least_cost(rows._replace(constant=np.full(400, 0.6)), TERMS) is not None


def test_a_step_that_adds_nothing_is_not_asked():
    rows = drawn(np.random.default_rng(2), 400)
    twice = StepRisks(*(np.column_stack([part[:, 0]] * 2) for part in rows[:3]), rows.cluster)
    made = least_cost(twice, TERMS)
    assert made is not None
    assert made.limits[1] == NEVER
    assert made.asking == COSTS[0]


def test_a_stated_cost_holds():
    rows = drawn(np.random.default_rng(3), 400, easiness=(1.5, 4.0))
    free = least_cost(rows, TERMS)
    bound = least_cost(rows, TERMS._replace(most=3.0))
    assert free is not None
    assert bound is not None
    assert bound.asking <= 3.0 < free.asking


@pytest.mark.parametrize(("easiness", "noise"), [((1.0, 2.0), 0.0), ((2.0, 3.5), 1.0), ((3.0, 4.5), 0.0)])
def test_the_promise_of_the_whole_cascade_holds(easiness, noise):
    """30 studies of 120 labels at 90 %: by chance more than 7 of them break it in one case of 100."""
    rng = np.random.default_rng(5)
    broken = made_any = 0
    for _ in range(30):
        rows, new = drawn(rng, 120, easiness), drawn(rng, 3000, easiness)
        told = [
            expit(np.log(one.risk / (1 - one.risk)) + noise * rng.normal(size=one.risk.shape)) for one in (rows, new)
        ]
        made = least_cost(rows._replace(risk=told[0]), TERMS)
        if made is None:
            continue
        made_any += 1
        place = stopping(told[1], new.open, made.limits)
        out = np.flatnonzero(place < 2)
        broken += new.wrong[out, place[out]].mean() > 0.1
    assert made_any >= 8
    assert broken <= 7


def test_limits_are_the_same_however_few_combinations_are_held_at_a_time(monkeypatch):
    rows = drawn(np.random.default_rng(3), 400, clusters=40)
    whole = least_cost(rows, TERMS)
    monkeypatch.setattr(limits, "_CELLS", 400 * 7)
    assert whole == least_cost(rows, TERMS) is not None


def test_where_the_first_step_alone_costs_too_much_the_note_says_so():
    rows = drawn(np.random.default_rng(3), 400)
    told = {"item_id": "q", "human": 0.0, "lowest": 0.0, "highest": 1.0, "step": 1.0, "refused": None}
    risks = pd.DataFrame({"response_id": np.arange(400).astype(str), "cluster": rows.cluster, "open": True, **told})
    risks = risks.assign(risk=rows.risk[:, 0], wrong=rows.wrong[:, 0], score=rows.wrong[:, 0].astype(float))
    release = Release(risk=0.1, confidence=0.9)
    (found,) = scope_limits([risks], ["q"], [0.5], release, 0.002)
    assert found.made is None
    assert "0.5" in found.note
    assert "0.002" in found.note


def test_samples_are_decided_as_if_each_were_drawn_by_itself(monkeypatch):
    rng, per = np.random.default_rng(5), 3
    rows = drawn(rng, 240)._replace(cluster=(np.arange(240) // per).astype(str), constant=np.full(240, 0.5))
    grid, terms = limits._grid(rows), TERMS._replace(target=0.15)
    monkeypatch.setattr(limits, "_grid", lambda _: grid)
    names, codes = np.unique(rows.cluster, return_inverse=True)
    times = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), 3).T[codes]
    found = list(least_costs(rows, times.astype(np.float32), terms))
    assert any(found)
    for one, often in zip(found, times.T, strict=True):
        at = np.repeat(np.arange(240), often)
        copy = np.concatenate([np.arange(number) for number in often])
        cluster = np.char.add(np.char.add(rows.cluster[at], "-"), copy.astype(str))
        part = StepRisks(rows.risk[at], rows.wrong[at], rows.open[at], cluster, rows.constant[at])
        alone = least_cost(part, terms)
        assert (one is None) == (alone is None)
        assert one is None or (one.limits, *one[1:]) == (alone.limits, *map(pytest.approx, alone[1:]))


def test_where_all_marked_questions_are_idle_the_note_says_that_and_not_that_nothing_is_marked():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"response_id": [f"r{at}" for at in range(60)], "item_id": "easy", "human": 4.0})
    rows = rows.assign(cluster=rows["response_id"], score=4.0, risk=rng.random(60) / 50, wrong=False, open=False)
    rows = rows.assign(refused="asks_nothing", lowest=0.0, highest=4.0, step=1.0)
    release = Release(tolerance=0, risk=0.1, by="set")
    found = {one.scope: one for one in scope_limits([rows, rows], ["easy", "new"], COSTS, release, np.inf)}
    assert found["easy"].refused == "asks_nothing"
    assert "1 question" in found["all"].note
    assert found["all"].note != "no answer is marked by people"
    bare = {one.scope: one for one in scope_limits([rows.iloc[:0]] * 2, ["easy", "new"], COSTS, release, np.inf)}
    assert bare["all"].note == "no answer is marked by people"
