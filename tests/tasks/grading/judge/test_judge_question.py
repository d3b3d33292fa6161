"""The digest of a question covers what an offline answer may depend on, and nothing else."""

from dataclasses import replace

import pytest
from builders.bundles import bundle

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.protocol import Question

CRITERIA = (Criterion(id="A", trait="t", text="a"), Criterion(id="B", trait="t", text="b"))
BUNDLE = bundle(*CRITERIA, ends=(0, 4), name="pointwise", final_score="weighted_points")
RENAMED = BUNDLE.model_copy(update={"text": "another rubric"})
ASKED = Question(
    bundle=BUNDLE,
    criteria=CRITERIA[:1],
    text="some words",
    units=tuple(units("some words")),
    item_id="i",
    question="Why?",
    context=None,
)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "other words"},
        {"question": "How?"},
        {"criteria": CRITERIA[1:]},
        {"criteria": CRITERIA},
        {"criteria": (CRITERIA[0].model_copy(update={"text": "c"}),)},
        {"criteria": ()},
    ],
)
def test_another_text_or_criterion_is_another_question(change):
    assert replace(ASKED, **change).digest != ASKED.digest


@pytest.mark.parametrize("change", [{"bundle": RENAMED}, {"item_id": "j"}])
def test_the_rest_of_the_bundle_does_not_matter_to_a_criterion(change):
    assert replace(ASKED, **change).digest == ASKED.digest


def test_a_holistic_question_covers_the_bundle():
    assert replace(ASKED, criteria=(), bundle=RENAMED).digest != replace(ASKED, criteria=()).digest


def test_half_a_surrogate_pair_has_a_digest():
    assert len(replace(ASKED, text="\ud800").digest) == 64
