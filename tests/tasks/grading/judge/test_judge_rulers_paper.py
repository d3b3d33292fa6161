"""Rulers' own numbers: Eq. 3 and the trace of Appendix B, from a judge's reply to the feature vector."""

import json
import math

import pyarrow as pa
import pytest
from builders.bundles import THREE, bundle, criterion
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import schema
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.calibrate.features import features
from rubricflow.tasks.grading.judge.score import score

LENGTH = 2307
DECISIONS = {
    "claim": (2, 1, 1, 1, 1),
    "evidence": (2, 2, 1, 1, 0),
    "organization": (1, 1, 1, 1, 0),
    "language": (2, 1, 1, 0, 0),
}
"""Four traits of five items, as the appendix has them; it prints the trait scores, not the decisions."""
TRAITS = {"claim": 4, "evidence": 4, "organization": 3, "language": 3}


def bundle_of(traits=DECISIONS, low=1, high=6, protocol=None, evidence="none"):
    asked = {"levels": THREE, "kind": "checklist", "evidence": evidence}
    criteria = (criterion(f"{name}{i}", name, **asked) for name, of in traits.items() for i in range(len(of)))
    plan = protocol or Judge().as_protocol()
    return bundle(*criteria, ends=(low, high)).model_copy(update={"protocol": plan})


def reply_of(decisions, chosen):
    """A reply with these decisions, and `chosen` as the probability of every level chosen."""
    made = {f"{name}{i}": {"level": d} for name, levels in decisions.items() for i, d in enumerate(levels)}
    likely = {key: [(1 - chosen) / 2] * 3 for key in made}
    for key, decision in made.items():
        likely[key][decision["level"]] = chosen
    return Reply(text=json.dumps({"decisions": made}), level_probabilities=likely)


def row_of(found):
    """The one grading as calibration reads it."""
    fields = [schema(Gradings).field(name) for name in found.gradings[0]]
    return pa.Table.from_pylist(found.gradings, schema=pa.schema(fields))


def test_the_feature_vector_of_the_appendix_comes_out_of_a_reply(case_of, grade_all):
    bundle, text = bundle_of(), ("A point is made here. " * 200)[:LENGTH]
    found = grade_all([case_of(bundle, text)], lambda r: reply_of(DECISIONS, 0.85))
    assert found.gradings[0]["trait_scores"] == TRAITS
    vector = features([(row_of(found), bundle)], pooled=False)
    assert vector.names == (*(f"trait.{name}" for name in TRAITS), "length", "confidence", "uncertainty", "tie")
    assert vector.matrix[0] == pytest.approx([4, 4, 3, 3, math.log(1 + LENGTH), 0.85, 0.15, 0], abs=1e-12)
    assert round(vector.matrix[0][4], 2) == 7.74


def test_confidence_is_the_mean_probability_of_the_levels_that_were_chosen(case_of, grade_all):
    reply = json.dumps({"decisions": {"claim0": {"level": 2}, "claim1": {"level": 0}}})
    likely = {"claim0": [0.1, 0.3, 0.6], "claim1": [0.2, 0.7, 0.1]}
    bundle = bundle_of({"claim": (2, 0)})
    found = grade_all([case_of(bundle, "A point.")], lambda r: Reply(text=reply, level_probabilities=likely))
    assert found.gradings[0]["confidence"] == pytest.approx((0.6 + 0.2) / 2)
    assert found.gradings[0]["signals"]["uncertainty"] == pytest.approx(1 - 0.4)


def equation_3(levels, low, high):
    """μ = Σd / 2|C|; the linear mapping of μ on low..high, rounded half up in whole numbers, clipped."""
    numerator, denominator = low * 2 * len(levels) + sum(levels) * (high - low), 2 * len(levels)
    rounded = (2 * numerator + denominator) // (2 * denominator)
    return min(high, max(low, rounded)), 2 * (numerator % denominator) == denominator


@given(
    st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=7), min_size=1, max_size=4),
    st.integers(-1, 2),
    st.integers(1, 8),
)
def test_trait_scores_and_ties_are_those_of_a_plain_loop(rows, low, span):
    given_levels = {f"t{k}": tuple(row) for k, row in enumerate(rows)}
    scored = score(
        bundle_of(given_levels, low, low + span),
        {f"{name}{i}": d for name, row in given_levels.items() for i, d in enumerate(row)},
    )
    expected = {name: equation_3(row, low, low + span) for name, row in given_levels.items()}
    assert scored.traits == {name: value for name, (value, _) in expected.items()}
    assert scored.means == pytest.approx({name: sum(row) / (2 * len(row)) for name, row in given_levels.items()})
    assert scored.tie == any(tie for _, tie in expected.values())
