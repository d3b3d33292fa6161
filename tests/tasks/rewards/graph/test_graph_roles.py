"""Asking for roles: what is there stays, what is missing is asked for again, and they alone."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.rewards.graph.annotator import PER_CALL, RoleQuestion, ask_roles, check
from rubricflow.tasks.rewards.graph.subject import GraphSubject


def said(**roles: Any) -> str:
    return json.dumps({"roles": roles})


def by_data(request: Request) -> str:
    return said(**dict.fromkeys(request.data.ids, "core"))


def test_a_rubric_takes_one_call(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted([said(c0="core", c1="penalty", c2="applicability")])
    found = ask_roles([rubric(1, -1, 1)], annotator)["r"]
    assert found.roles == {"c0": "core", "c1": "penalty", "c2": "applicability"}
    assert [(call["role"], call["violations"]) for call in found.calls] == [("role", [])]
    assert backend.calls == 1


def test_the_annotator_sees_texts_and_signed_points(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(by_data)
    ask_roles([rubric(5, -2.5, question="Is it safe?", context="A leaflet.")], annotator)
    system, user = (message.content for message in backend.asked[0].messages)
    assert "Is it safe?" in system
    assert "A leaflet." in system
    assert '{"id":"c0","points":5.0,"text":"Text 0."}' in user.splitlines()
    assert '{"id":"c1","points":-2.5,"text":"Text 1."}' in user.splitlines()


def test_the_profile_is_told(rubric: Any, scripted: Any) -> None:
    prompts = set()
    for profile in ("general", "health", "writing", "law"):
        annotator, backend = scripted(by_data, profile=profile)
        ask_roles([rubric(1)], annotator)
        prompts.add(backend.asked[0].messages[0].content)
    assert len(prompts) == 4
    assert not any("{{" in prompt for prompt in prompts)


def test_only_missing_roles_are_asked_for_again(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted([said(c0="core", c2="nonsense"), said(c1="additional", c2="core")])
    found = ask_roles([rubric(1, 1, 1)], annotator)["r"]
    assert found.roles == {"c0": "core", "c1": "additional", "c2": "core"}
    assert backend.asked[1].data.ids == ("c1", "c2")
    assert set(backend.asked[1].schema["properties"]["roles"]["required"]) == {"c1", "c2"}
    assert [call["role"] for call in found.calls] == ["role", "contract_repair"]
    assert found.calls[0]["violations"] == ["'c1': no role", "'c2': 'nonsense' is no role that it can have"]


def test_what_an_earlier_reply_said_is_carried_over_a_reply_that_says_nothing(rubric: Any, scripted: Any) -> None:
    annotator, _ = scripted([said(c0="additional"), "no JSON at all"])
    assert ask_roles([rubric(1, 1)], annotator)["r"].roles == {"c0": "additional"}


@pytest.mark.parametrize(
    ("reply", "violation"),
    [
        ("I cannot do that.", "unreadable:no_object"),
        ("", "unreadable:empty"),
        ('{"nodes": {"c0": "core"}}', "unreadable:missing_keys"),
        ('{"roles": ["core"]}', "malformed: 'roles' is no object"),
        (said(c0=["core"]), "'c0': ['core'] is no role that it can have"),
        (said(c0="foundation"), "'c0': 'foundation' is no role that it can have"),
        (said(c0=None), "'c0': None is no role that it can have"),
        (said(), "'c0': no role"),
    ],
)
def test_a_reply_that_breaks_the_contract_is_mended_twice_and_then_left(
    reply: str, violation: str, rubric: Any, scripted: Any
) -> None:
    annotator, backend = scripted([reply, reply + " ", reply + "  ", said(c0="core")])
    found = ask_roles([rubric(1)], annotator)["r"]
    assert found.roles == {}
    assert found.calls[0]["violations"] == [violation]
    assert backend.calls == 3


def test_an_error_is_left_at_once(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted([Reply(error="timeout: after 120 s"), said(c0="core")])
    found = ask_roles([rubric(1)], annotator)["r"]
    assert (found.roles, backend.calls) == ({}, 1)
    assert found.calls[0]["violations"] == ["no_reply"]


def test_a_reply_that_is_cut_off_is_asked_for_again(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(['{"roles": {"c0": "core", "c1": "pen', said(c0="core", c1="penalty")])
    found = ask_roles([rubric(1, -1)], annotator)["r"]
    assert found.roles == {"c0": "core", "c1": "penalty"}
    assert backend.asked[1].data.ids == ("c0", "c1")


def test_a_criterion_that_nobody_asked_about_is_noted_and_costs_no_call(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted([said(c0="core", c9="core")])
    found = ask_roles([rubric(1)], annotator)["r"]
    assert found.roles == {"c0": "core"}
    assert found.calls[0]["violations"] == ["'c9': no criterion that was asked about"]
    assert backend.calls == 1


def test_a_long_rubric_is_asked_about_in_parts_of_even_size(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(by_data)
    found = ask_roles([rubric(*[1] * (2 * PER_CALL + 1))], annotator)["r"]
    assert [len(request.data.ids) for request in backend.asked] == [27, 27, 27]
    assert list(found.roles) == [f"c{at}" for at in range(2 * PER_CALL + 1)]


def test_rubrics_are_asked_about_together_and_told_apart(rubric: Any, scripted: Any) -> None:
    annotator, _ = scripted({"a": [said(c0="core")], "b": [said(c0="additional")]})
    found = ask_roles([rubric("One.", name="a"), rubric("Two.", name="b")], annotator)
    assert {name: one.roles for name, one in found.items()} == {"a": {"c0": "core"}, "b": {"c0": "additional"}}


def test_the_schema_admits_what_is_meant_and_nothing_else(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(by_data)
    ask_roles([rubric(1, -1)], annotator)
    contract = backend.asked[0].schema
    jsonschema.Draft202012Validator.check_schema(contract)
    jsonschema.validate({"roles": {"c0": "core", "c1": "penalty"}}, contract)
    wrong_roles = (
        {"c0": "core"},
        {"c0": "core", "c1": "foundation"},
        {"c0": "core", "c1": "penalty", "c2": "core"},
        {"c0": "core", "c1": "core"},
        {"c0": "penalty", "c1": "penalty"},
    )
    for wrong in wrong_roles:
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({"roles": wrong}, contract)


@given(
    weight=st.floats(-10, 10, allow_nan=False),
    role=st.sampled_from(["core", "additional", "penalty", "applicability"]),
)
def test_no_role_goes_against_the_sign_of_the_points(weight: float, role: str) -> None:
    criterion = Criterion(id="c0", trait="t", text="Text.", weight=weight)
    asked = RoleQuestion(GraphSubject("r", "Why?", None, (criterion,)), ("c0",))
    request = Request(messages=(), role="role", subject="r", keys=frozenset({"roles"}), data=asked)
    checked = check(request, Reply(text=said(c0=role)))
    allowed = role == "applicability" or (role == "penalty") == (weight < 0)
    assert checked.value == ({"c0": role} if allowed else {})
    assert bool(checked.violations) == (not allowed)


def test_a_model_that_is_not_held_to_a_schema_gets_none(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(by_data, backend="openai", engine={"model": "m", "structured": False})
    ask_roles([rubric(1)], annotator)
    assert backend.asked[0].schema is None


def test_a_long_list_leaves_room_for_its_reply(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(by_data, sampling={"max_tokens": 16})
    ask_roles([rubric(*[1] * PER_CALL)], annotator)
    assert backend.asked[0].sampling.max_tokens >= PER_CALL * 20
