"""A bundle's id is the hash of its canonical content and of nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rubricflow.tasks.core.contracts.bundle import Anchor, Bundle, Count, Criterion, Protocol, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.errors import ContractError

CONTENT: dict[str, Any] = {
    "text": "Marks for causes.",
    "scale": {"min": 0, "max": 4, "step": 1},
    "traits": [
        {
            "id": "t",
            "name": "T",
            "min": 0,
            "max": 4,
            "step": 1,
            "source": "derived",
            "anchors": [{"score": 4, "text": "full"}],
        },
        {"id": "u", "name": "U", "min": 0, "max": 4, "step": 1, "source": "derived", "anchors": []},
    ],
    "criteria": [
        {"id": "a", "trait": "t", "text": "Names heat.", "kind": "gold_point", "levels": ["no", "yes"], "weight": 1}
        | {"earns": [0, 2]}
        | {"parent": "b", "excludes": ["c"], "evidence": "local_quote", "evidence_from": "response"},
        {"id": "c", "trait": "u", "text": "Names sound."},
        {"id": "e", "trait": "t", "text": "Names a lamp.", "parent": "b"},
    ],
    "composites": [
        {"id": "d", "trait": "t", "text": "Names causes."},
        {"id": "b", "trait": "t", "text": "Names lights.", "parent": "d"}
        | {"count": {"points": [0, 1], "least": 1, "needs": ["e"]}, "evidence_kind": "call"},
    ],
    "examples": [
        {
            "question": "Why?",
            "response": "Heat.",
            "reference": "Heat rises.",
            "labels": {"a": {"level": 1, "evidence": "Heat"}},
        }
    ],
    "protocol": {"name": "rulers", "final_score": "trait_mean", "signals": ["trait_scores", "length"]}
    | {"failed_quote": "demote", "show_weights": False, "unscored": "null", "min_tokens": 1}
    | {"shared_quotes": 2, "support": {"limit": 0.3, "failed": "demote", "asked": 0.2}, "in_parts": True}
    | {"jurors": ["one", "two"], "combine": "mean", "steps": 2}
    | {"compare": {"opponents": 4, "at_once": 5, "seed": 1}, "units": "turns"}
    | {"unknown_fields": "refused", "top_is_rare": False},
}
LATER = ("shared_quotes", "support", "in_parts", "jurors", "combine", "steps", "compare", "units")
LATER += ("unknown_fields", "top_is_rare")
"""Fields of a protocol that are left out of the content where they are null, or false."""


def bundle(content: dict[str, Any] = CONTENT) -> Bundle:
    return Bundle.model_validate(content)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every leaf, and of every list of two or more."""
    if isinstance(value, dict):
        return [place for key, item in value.items() for place in places(item, (*at, key))]
    if isinstance(value, list):
        inner = [place for key, item in enumerate(value) for place in places(item, (*at, key))]
        return inner + ([at] if len(value) > 1 else [])
    return [at]


OTHER = {
    "source": "judged",
    "kind": "concept",
    "evidence": "none",
    "evidence_from": "response_and_context",
    "name": "pointwise",
    "final_score": "weighted_points",
    "failed_quote": "drop",
    "unscored": "bounds",
    "show_weights": True,
    "step": 2,
    "repair": {"contract": 1},
    "rubric_memory": {"points": 1},
    "consistency_memory": {"exemplars": 1},
    "context_tokens": 2048,
    "evidence_match": "semantic",
    "echo": "allowed",
    "levels_shown": "descending",
    "in_parts": False,
    "combine": "median",
    "opponents": 8,
    "least": 2,
    "evidence_kind": "user",
    "units": "sentences",
    "failed": "review",
    "limit": 0.7,
    "asked": 0.7,
    "unknown_fields": "counted",
    "top_is_rare": True,
}


def changed(content: dict[str, Any], place: tuple[Any, ...]) -> dict[str, Any]:
    copy = json.loads(json.dumps(content))
    inside = copy
    for key in place[:-1]:
        inside = inside[key]
    last, old = place[-1], inside[place[-1]]
    if isinstance(old, list):
        inside[last] = old[::-1]
    elif place[:2] == ("protocol", "signals"):
        inside[last] = "tie"
    elif last in OTHER and not (last == "name" and place[0] == "traits"):
        inside[last] = OTHER[last]
    else:
        inside[last] = (
            old + (4 if last == "max" else -2 if last == "min" else 1) if isinstance(old, int) else f"{old} more"
        )
    return copy


FULL = json.loads(bundle().canonical())
# A count's points begin with 0 and never fall: in another order, or from another number, they are none.
PLACES = [
    place
    for place in places(FULL)
    if (place[:1] != ("criteria",) or place[1:2] in ((), (0,)))
    and (place[-1] != "points" and place[-2:] != ("points", 0))
]


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_every_change_of_content_changes_the_id(place: tuple[Any, ...]) -> None:
    assert bundle(changed(FULL, place)).bundle_id != bundle().bundle_id


def test_a_bundle_without_what_came_later_has_the_id_that_it_had_before() -> None:
    later = ("count", "evidence_kind", "earns")
    criteria, composites = (
        [{name: of[name] for name in of if name not in later} for of in CONTENT[kind]]
        for kind in ("criteria", "composites")
    )
    before = "2fa59b64f78d95d09d0e5acd838af5ae816e226db433ff67000572ae416df8d5"
    protocol = {name: of for name, of in CONTENT["protocol"].items() if name not in LATER}
    content = CONTENT | {"criteria": criteria, "composites": composites, "protocol": protocol}
    assert bundle(content).bundle_id == before
    equal = [{**criteria[0], "earns": [0, 1]}, {**criteria[1], "levels": ["no", "yes"], "earns": [0.0, 1.0]}]
    without = {name: of for name, of in equal[1].items() if name != "earns"}
    spaced, plain = (content | {"criteria": [*some, criteria[2]]} for some in (equal, [criteria[0], without]))
    assert bundle(spaced).bundle_id == bundle(plain).bundle_id


@pytest.mark.parametrize(
    ("points", "rule"),
    [
        ([], "do not go from 0"),
        ([1, 2], "points 1, 2 do not go from 0"),
        ([0, 0], "points 0, 0 do not go from 0"),
        ([0, -1], "do not go from 0"),
        ([0, math.nan], "do not go from 0"),
        ([0, 1, math.inf], "do not go from 0"),
        ([0, 2, 1], "points 0, 2, 1 fall: more sub-points met would be worth less"),
    ],
)
def test_the_points_of_a_count_go_from_nothing_to_something_and_never_fall(points: list[float], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        Count(points=points)
    assert Count(points=[0, 1, 1]).points[-1] == 1  # one more may add nothing


def test_the_places_are_all_fields() -> None:
    """Every field of every part of a bundle is among the places changed above."""
    seen = {key for place in PLACES for key in place if isinstance(key, str)}
    assert {
        name for part in (Bundle, Scale, Trait, Anchor, Criterion, Count, Protocol) for name in part.model_fields
    } <= seen


def floats(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [floats(item) for item in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def test_integers_and_integral_floats_are_one_content() -> None:
    content = floats(CONTENT) | {"protocol": CONTENT["protocol"]}
    assert bundle(content).canonical() == bundle().canonical()


def test_the_order_of_the_yaml_keys_does_not_matter() -> None:
    turned = dict(reversed(CONTENT.items()))
    assert bundle(turned).bundle_id == bundle().bundle_id


def test_a_rubrics_name_and_title_are_no_content() -> None:
    content = set(Bundle.model_fields) | {"notes"}  # which the text of a bundle ends with
    assert set(Rubric.model_fields) - content == {"rubric_id", "title"}


def test_the_hash_is_of_the_canonical_text() -> None:
    import hashlib

    assert bundle().bundle_id == hashlib.sha256(bundle().canonical().encode()).hexdigest()
    assert bundle().canonical() == json.dumps(
        json.loads(bundle().canonical()), sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


@settings(max_examples=20)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.floats(-1e6, 1e6).filter(bool))
def test_a_locked_bundle_unlocks_to_itself(text: str, weight: float) -> None:
    content = CONTENT | {"criteria": [{"id": "a", "trait": "t", "text": text, "weight": weight}]}
    locked = bundle(content)
    assert Bundle.unlock(locked.bundle_id, locked.canonical()) == locked


def test_unlock_refuses_content_that_was_changed() -> None:
    tampered = bundle().canonical().replace('"weight":1', '"weight":2', 1)
    with pytest.raises(ContractError, match="changed after locking"):
        Bundle.unlock(bundle().bundle_id, tampered)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"text": "x"}', bundle().canonical()[:-1] + ',"more":1}'])
def test_unlock_refuses_what_is_no_bundle(content: str) -> None:
    with pytest.raises(ContractError, match=f"^bundle {bundle().bundle_id[:12]}: "):
        Bundle.unlock(bundle().bundle_id, content)


@pytest.mark.parametrize(
    ("low", "high", "step"),
    [
        *((0, 0, 1), (1, 0, 1), (0, 1, 0), (0, 1, -1), (0, 1, 2), (0, 5, 2), (0, math.inf, 1), (0, math.nan, 1)),
        *((math.nan, 1, 1), (-math.inf, math.inf, 1), (0, 1, math.inf), (0, 1, math.nan)),
    ],
)
def test_what_is_no_scale_is_refused(low: float, high: float, step: float) -> None:
    with pytest.raises(ValidationError, match="is not a scale"):
        Scale(min=low, max=high, step=step)


@pytest.mark.parametrize(
    ("low", "high", "step", "levels"), [(0, 1, 1, 2), (0, 5, 0.5, 11), (0, 1, 0.1, 11), (-3, 3, 1, 7), (10, 60, 1, 51)]
)
def test_a_scale_counts_its_scores(low: float, high: float, step: float, levels: int) -> None:
    scale = Scale(min=low, max=high, step=step)
    assert (scale.levels, scale.bounds) == (levels, (low, high, step))


def test_criteria_of_a_trait_keep_their_order() -> None:
    assert [criterion.id for criterion in bundle().of_trait("t")] == ["a", "e"]
    assert bundle().criteria[0].top == 1


def test_the_whole_criteria_come_in_the_order_in_which_each_is_first_decided() -> None:
    assert [criterion.id for criterion in bundle().whole] == ["d", "c"]
    turned = bundle(CONTENT | {"criteria": CONTENT["criteria"][::-1]})
    assert [criterion.id for criterion in turned.whole] == ["d", "c"]  # e is decided before c, as a was
    later = bundle(CONTENT | {"criteria": CONTENT["criteria"][1:]})
    assert [criterion.id for criterion in later.whole] == ["c", "d"]


def test_sub_points_are_the_direct_ones() -> None:
    found = {name: [criterion.id for criterion in bundle().sub_points(name)] for name in "dba"}
    assert found == {"d": ["b"], "b": ["a", "e"], "a": []}


def test_a_criterion_is_called_by_its_heading_its_trait_or_its_id() -> None:
    traits = [{"id": name, "name": f"Trait {name}", "min": 0, "max": 4} for name in ("t", "u")]
    criteria = [
        {"id": "FC", "trait": "t", "text": "Factual correctness: what is claimed is true."},
        {"id": "word_choice", "trait": "t", "text": f"{'A long sentence, ' * 4}and then: a colon."},
        {"id": "c", "trait": "u", "text": "Names sound."},
    ]
    found = bundle(CONTENT | {"traits": traits, "criteria": criteria, "composites": []}).names
    assert found == {"FC": "Factual correctness", "word_choice": "Word choice", "c": "Trait u"}
