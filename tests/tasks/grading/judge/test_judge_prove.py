"""A bundle proved without a model: sound ones pass, broken ones are named."""

import csv
from pathlib import Path

import pytest
from builders.bundles import bundle, criterion, trait

from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.text.quotes import Match, Span
from rubricflow.tasks.grading.judge.protocol import protocol_of
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


@pytest.mark.parametrize(
    ("question", "reference"),
    [("Why?", "5"), ("Why?", "  "), ("", None), ("", ""), ("Why?", "a line\n" * 300), ("é?", "e\u0301 x")],
)
def test_there_is_always_a_text_to_prove_with(question, reference):
    assert prove_bundle(bundle_of(), question, None, reference) == []


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
