"""A bundle proved without a model: sound ones pass, broken ones are named."""

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from builders.bundles import bundle, criterion, trait
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, RegisteredProtocol
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.text.quotes import Match, Span
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import prompt, protocols
from rubricflow.tasks.grading.judge.protocol import JudgingProtocol, Question, protocol_of
from rubricflow.tasks.grading.judge.protocols.pairwise import ComparingProtocol
from rubricflow.tasks.grading.judge.prove import prove_bundle
from rubricflow.tasks.grading.lock.bundles import lock
from rubricflow.tasks.grading.lock.rubric import authored

DEMO = Path(__file__).resolve().parents[4] / "data" / "demo"
ANYWHERE = Match((Span(0, 1),), "exact")
TYPES = ("local_quote", "span_level", "global_diagnostic", "weakly_groundable", "none")


def bundle_of(formula="weighted_points", ends=(0, 4), **protocol):
    criteria = (
        criterion(f"C{n}", levels=("0", "1", "2"), evidence=kind, weight=1 - 2 * (n == 3))
        for n, kind in enumerate(TYPES)
    )
    return bundle(*criteria, ends=(0, 4), traits=(trait("t", *ends),), text="rubric", final_score=formula, **protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_demo_s_bundles_hold(protocol):
    rubrics = authored(DEMO / "rubrics.yaml")
    with (DEMO / "items.csv").open(encoding="utf-8", newline="") as file:
        items = list(csv.DictReader(file))
    by = {"backend": "trained", "grader": "g"} if protocol == "bottleneck" else {}
    for item in items[[*PROTOCOLS].index(protocol) % 4 :: 4]:
        bundle = lock(rubrics[item["rubric_id"]], Judge(protocol=protocol, **by).as_protocol(), [item["type"]])
        assert prove_bundle(bundle, item["question"], None, item["reference_answer"]) == []


@pytest.mark.parametrize("on_failure", ["demote", "count", "drop"])
@pytest.mark.parametrize("formula", ["weighted_points", "trait_mean", "trait_sum"])
def test_every_evidence_type_formula_and_failure_can_be_proved(formula, on_failure):
    assert prove_bundle(bundle_of(formula, failed_quote=on_failure), "Why is it so?", None, None) == []


def test_a_scale_that_the_traits_do_not_reach_is_named():
    problems = prove_bundle(bundle_of("trait_sum", (1, 3)), "Why?", None, None)
    assert problems == [
        "all points reached give 3.0, not the full score 4",
        "no point reached gives 1.0, not the lowest score 0",
    ]


@pytest.mark.parametrize("protocol", ["rulers", "dhs"])
def test_a_template_that_leaves_something_open_is_named(monkeypatch, protocol):
    monkeypatch.setattr("rubricflow.tasks.core.text.templates._read", lambda path: "{{question}} {{student_name}}")
    formula = "judged" if protocol == "dhs" else "weighted_points"
    problems = prove_bundle(bundle_of(formula, name=protocol), "Why?", None, None)
    assert problems == [f"prompt '{protocol}' leaves 'student_name' open"]


def test_a_verifier_that_accepts_anything_is_named(monkeypatch):
    monkeypatch.setattr(
        "rubricflow.tasks.grading.judge.evidence.find_folded", lambda needle, region, offset=0: ANYWHERE
    )
    problems = prove_bundle(bundle_of(), "Why?", None, None)
    assert [f"a fabricated quote is accepted for 'C{n}'" for n in range(4)] == problems


def test_a_verifier_that_accepts_nothing_is_named(monkeypatch):
    monkeypatch.setattr("rubricflow.tasks.grading.judge.evidence.find_folded", lambda needle, region, offset=0: None)
    problems = prove_bundle(bundle_of(), "Why?", None, None)
    assert [f"gold artifact: evidence_failed:C{n}" for n in range(3)] == problems


@pytest.mark.parametrize("name", ["rulers", "dhs"])
def test_a_contract_that_refuses_the_sound_is_named(monkeypatch, name):
    refusing = {"required": ["verdict"]} if name == "rulers" else {"properties": {"score": {"maximum": 3}}}
    monkeypatch.setattr(protocol_of(name), "schema", lambda bundle, part: refusing)
    problems = prove_bundle(bundle_of("judged" if name == "dhs" else "weighted_points", name=name), "Why?", None, None)
    assert len(problems) == 1
    assert problems[0].startswith("the contract refuses a sound artifact: ")


# A protocol is its registration, its module and its prompt, and nothing else: one is added here from outside.


LIGHTS = Path(__file__).parents[3] / "data/protocols"
RUBRIC = Rubric(
    rubric_id="r",
    scale=Scale(min=0, max=4),
    traits=(Trait(id="t", name="T", min=0, max=4),),
    criteria=(Criterion(id="c", trait="t", text="Plants need light."),),
)


@pytest.fixture
def lights(monkeypatch, tmp_path):
    monkeypatch.setitem(PROTOCOLS, "lights", RegisteredProtocol(final_score="judged", signals=("score",)))
    monkeypatch.setattr(protocols, "__path__", [*protocols.__path__, str(LIGHTS)])
    prompts = shutil.copytree(prompt.FOLDER, tmp_path / "prompts")
    shutil.copy(LIGHTS / "lights.txt", prompts)
    monkeypatch.setattr(prompt.fill.__self__, "_folder", prompts)
    yield
    protocol_of.cache_clear()


def test_a_protocol_from_outside_is_locked_proved_and_graded(lights, case_of, grade_all):
    locked = lock(RUBRIC, Judge(protocol="lights").as_protocol())
    bundle = Bundle.unlock(locked.bundle_id, locked.canonical())
    assert prove_bundle(bundle, "What do plants need?", None, None) == []
    cases = [case_of(bundle, text, text) for text in ("They need light.", "They need soil.")]
    graded = grade_all(cases, ['{"light": "amber"}', '{"light": "blue"}'])
    assert "Plants need light." in graded.backend.asked[0].messages[0].content
    assert [(row["score"], row["unscored_reason"]) for row in graded.gradings] == [(2.0, None), (None, "invalid_reply")]


def test_what_is_not_registered_is_no_protocol():
    with pytest.raises(ValidationError, match="'lights' is no protocol; there are rulers, "):
        Judge(protocol="lights")


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_registered_protocol_has_its_module(name):
    kind = ComparingProtocol if PROTOCOLS[name].compares else JudgingProtocol
    assert isinstance(protocol_of(name), kind)


# The digest of a question covers what an offline answer may depend on, and nothing else.


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
