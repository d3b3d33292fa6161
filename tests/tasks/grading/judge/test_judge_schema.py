"""The contract as JSON Schema: exactly the sound artifacts."""

from typing import get_args

import jsonschema
import pytest
from builders.bundles import bundle, trait

from rubricflow.tasks.core.contracts.bundle import Criterion, EvidenceType
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.schema import MAX_PROSE, MAX_QUOTE, MAX_QUOTES, PLAIN, stated

CRITERIA = (
    Criterion(id="B", trait="t", text="b", levels=("no", "some", "yes")),
    Criterion(id="A", trait="t", text="a", evidence="none"),
    Criterion(id="G", trait="t", text="g", evidence="global_diagnostic"),
)
UNITS = units("Its words. And more.")
QUOTE = {"unit": "sentence 1", "quote": "its words"}


def checklist(criteria):
    return contract.citing(contract.checklist(criteria), UNITS, PLAIN)


def sound():
    return {
        "decisions": {
            "B": {"evidence": [QUOTE], "level": 2},
            "A": {"level": 0},
            "G": {"evidence": [QUOTE], "diagnostic": "calm", "level": 1},
        }
    }


def on_scale(low, high, step=1.0):
    ends = low, high, step
    return bundle(ends=ends, traits=(trait("t", *ends),), name="dhs", final_score="judged")


def admits(schema, artifact):
    return jsonschema.Draft202012Validator(schema).is_valid(artifact)


def with_decision(name, **changes):
    artifact = sound()
    artifact["decisions"][name] |= changes
    return artifact


NEEDS_A_QUOTE = ("local_quote", "span_level", "global_diagnostic")


@pytest.mark.parametrize("levels", [2, 3, 5])
@pytest.mark.parametrize("type_", get_args(EvidenceType))
def test_a_level_above_0_has_evidence_where_its_type_needs_some(type_, levels):
    criterion = Criterion(id="C", trait="t", text="c", evidence=type_, levels=tuple(map(str, range(levels))))
    diagnostic = {"diagnostic": "calm"} if type_ == "global_diagnostic" else {}
    for level in range(levels):
        for evidence in ([], [QUOTE], [QUOTE] * MAX_QUOTES):
            cited = {} if type_ == "none" else {"evidence": evidence}
            artifact = {"decisions": {"C": {**diagnostic, "level": level, **cited}}}
            is_sound = bool(evidence) or level == 0 or type_ not in NEEDS_A_QUOTE
            assert admits(checklist([criterion]), artifact) == is_sound


@pytest.mark.parametrize("ends", [(0, 4, 1), (-1, 1, 1), (1, 3, 0.5)])
def test_a_score_above_the_lowest_has_evidence(ends):
    schema = contract.citing(contract.traits((trait("t", *ends),)), UNITS, PLAIN)
    low, high, step = ends
    for n in range(-4, 12):
        score = low + step * n
        for evidence in ([], [QUOTE]):
            is_sound = score == low or (low < score <= high and bool(evidence))
            assert admits(schema, {"traits": {"t": {"score": score, "evidence": evidence}}}) == is_sound


@pytest.mark.parametrize("level", [-1, 3, 1.5, "1", None, True, [1]])
def test_refuses_what_is_no_level(level):
    assert not admits(checklist(CRITERIA), with_decision("B", level=level))


@pytest.mark.parametrize(
    "evidence",
    [
        None,
        "its words",
        QUOTE,
        ["its words"],
        [{"quote": "its words"}],
        [QUOTE | {"more": 1}],
        [QUOTE | {"unit": "s1"}],
        [QUOTE | {"unit": "sentence 3"}],
        [QUOTE | {"unit": "paragraph 1"}],
        [QUOTE | {"unit": None}],
        [QUOTE | {"quote": ""}],
        [QUOTE | {"quote": "w" * (MAX_QUOTE + 1)}],
        [QUOTE] * (MAX_QUOTES + 1),
    ],
)
def test_refuses_unsound_evidence(evidence):
    assert not admits(checklist(CRITERIA), with_decision("B", evidence=evidence))


@pytest.mark.parametrize(
    "artifact",
    [
        {},
        {"decisions": []},
        sound() | {"score": 4},
        {"decisions": sound()["decisions"] | {"C": {"level": 0}}},
        with_decision("A", evidence=[]),
        with_decision("B", diagnostic="x"),
        with_decision("G", diagnostic="x" * (MAX_PROSE + 1)),
        with_decision("G", diagnostic=None),
        with_decision("G", diagnostic=""),
    ],
)
def test_refuses_anything_more_or_less(artifact):
    assert not admits(checklist(CRITERIA), artifact)


def test_strings_are_bounded_everywhere():
    todo, strings = [checklist(CRITERIA), stated(on_scale(0, 5).scale)], []
    while todo:
        node = todo.pop()
        strings += [node] if node.get("type") == "string" else []
        todo += [child for child in node.values() if isinstance(child, dict)] + node.get("anyOf", [])
    assert strings
    assert all(node.keys() & {"maxLength", "pattern", "enum"} for node in strings)


@pytest.mark.parametrize(
    ("bundle", "scores"),
    [
        (on_scale(0, 3), [0, 1, 2, 3]),
        (on_scale(-2, 0), [-2, -1, 0]),
        (on_scale(1, 10, 3), [1, 4, 7, 10]),
        (on_scale(1, 3, 0.5), [1, 1.5, 2, 2.5, 3]),
        (on_scale(0.5, 2.5), [0.5, 1.5, 2.5]),
        (on_scale(0, 0.5, 0.1), [0, 0.1, 0.2, 0.3, 0.4, 0.5]),
    ],
)
def test_holistic_score_is_on_the_scale_and_nothing_else(bundle, scores):
    contract = stated(bundle.scale)
    tried = {round(n * 0.1, 2) for n in range(-25, 110)} | {0.25}
    assert {s for s in tried if admits(contract, {"rationale": "r", "score": s})} == set(scores)
    assert not admits(contract, {"rationale": "r", "score": str(scores[0])})
    assert not admits(contract, {"rationale": "r", "score": None})
