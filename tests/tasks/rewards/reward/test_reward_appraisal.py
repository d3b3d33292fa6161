"""Flat and GEAR side by side: every figure against a plain loop over criteria and edges."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from reward_scene import random_locals

from rubricflow.tasks.rewards.reward.aggregate import aggregate
from rubricflow.tasks.rewards.reward.leakage import appraisals

THRESHOLD = 0.5


def by_hand(batch, gear, response):
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
        credit, leaks, supported, violated = by_hand(batch, gear, response)
        assert appraisal.false_credit == pytest.approx(credit, abs=1e-12)
        assert appraisal.false_credit >= 0
        assert dict(appraisal.leaked) == pytest.approx(leaks)
        assert (appraisal.supported, appraisal.violated) == (supported, violated)
        assert appraisal.flat == pytest.approx(flat.reward[response])
        for name, own in zip(names, batch.local[first:last], strict=True):
            assert appraisal.shares[name]["own"] == own
            licensed = appraisal.shares[name]["licensed"]
            assert 0 <= licensed <= own or math.isclose(licensed, own)
