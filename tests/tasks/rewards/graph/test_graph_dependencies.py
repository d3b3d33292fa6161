"""A rubric is asked about whole, in two orders: what both replies name is an edge; what cannot be used is mended. And
what criteria state themselves: explicit references in a condition, and nothing else."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from graph_scene import annotating, by_sign, edge, said
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.rewards.graph.annotator import Annotator
from rubricflow.tasks.rewards.graph.dependencies import ask_graphs, check, stated_dependencies
from rubricflow.tasks.rewards.graph.subject import GraphSubject

CORE = {"c0": "core", "c1": "core", "c2": "core"}
PAIRS = st.sets(
    st.tuples(st.sampled_from(list(CORE)), st.sampled_from(list(CORE))).filter(lambda pair: pair[0] != pair[1])
)


def listed(request: Request) -> list[dict[str, Any]]:
    return [json.loads(line) for line in request.messages[1].content.splitlines() if line.startswith('{"id":"c')]


def test_a_rubric_is_listed_in_two_orders_with_points_and_material(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(annotating({}, {}))
    ask_graphs([rubric(5, -2.5, question="Is it safe?", context="A leaflet.")], annotator)
    first, second = backend.asked
    assert [one["id"] for one in listed(first)] == ["c0", "c1"]
    assert listed(second) == listed(first)[::-1]
    assert listed(first)[1] == {"id": "c1", "points": -2.5, "text": "Text 1."}
    assert first.messages[0] == second.messages[0]
    assert all(text in first.messages[1].content for text in ("Is it safe?", "A leaflet."))


def test_all_rubrics_share_their_instructions_and_each_profile_has_its_own(rubric: Any, scripted: Any) -> None:
    prompts = set()
    for profile in ("general", "health", "writing", "law", "work"):
        annotator, backend = scripted(annotating({}, {}), profile=profile)
        ask_graphs([rubric(1, 1, name=name, question=name) for name in ("a", "b")], annotator)
        (one,) = {request.messages[0].content for request in backend.asked}
        prompts.add(one)
    assert len(prompts) == 5
    assert not any("{{" in prompt for prompt in prompts)


@given(forwards=PAIRS, backwards=PAIRS)
@settings(max_examples=15)
def test_an_edge_stays_where_both_orders_name_it(forwards: set[Any], backwards: set[Any]) -> None:
    one = GraphSubject("r", "Why?", None, tuple(Criterion(id=name, trait="t", text="x") for name in CORE))
    script = annotating({}, *(dict.fromkeys(pairs, "weak_prerequisite") for pairs in (forwards, backwards)))
    with ReplyStore(":memory:") as replies:
        found = ask_graphs([one], Annotator(Scripted(script), replies, Graphs()))["r"]
    assert {edge.pair for edge in found.proposals if not edge.dropped} == forwards & backwards
    assert {edge.pair for edge in found.proposals if edge.dropped == "one_order"} == forwards ^ backwards
    assert len(found.proposals) == len(forwards | backwards)


def test_a_third_order_has_its_say(rubric: Any, scripted: Any) -> None:
    named = iter((["c1", "c2", "c3"], ["c1", "c2"], ["c2", "c3"]))
    annotator, backend = scripted(
        lambda request: said(by_sign(request), *(edge("c0", to) for to in next(named))), orders=3
    )
    (found,) = ask_graphs([rubric(1, 1, 1, 1, 1, 1)], annotator).values()
    assert {e.child: e.dropped for e in found.proposals} == {"c1": "one_order", "c2": None, "c3": "one_order"}
    own, backwards, drawn = (tuple(entry["id"] for entry in listed(request)) for request in backend.asked)
    assert sorted(drawn) == sorted(own)
    assert drawn not in (own, backwards)


def test_of_two_relations_the_weaker_stays_with_its_reason(rubric: Any, scripted: Any) -> None:
    replies = [
        said(CORE, edge("c0", "c1", "strong_prerequisite", "Nothing is left.")),
        said(CORE, edge("c0", "c1", "weak_prerequisite", "Part is left.")),
    ]
    annotator, _ = scripted(replies)
    (one,) = ask_graphs([rubric(1, 1, 1)], annotator)["r"].proposals
    assert (one.relation, one.detail, one.dropped) == ("weak_prerequisite", "Part is left.", None)


@pytest.mark.parametrize(
    ("first", "second", "role"),
    [("core", "additional", "core"), ("additional", "applicability", "applicability"), ("additional",) * 3],
)
def test_of_two_roles_the_one_that_licenses_more_counts(
    first: str, second: str, role: str, rubric: Any, scripted: Any
) -> None:
    annotator, _ = scripted([said({"c0": first, "c1": "core"}), said({"c0": second, "c1": "core"})])
    assert ask_graphs([rubric(1, 1)], annotator)["r"].roles["c0"] == role


@pytest.mark.parametrize(
    ("reply", "violation"),
    [
        ("I cannot do that.", "unreadable:no_object"),
        ('{"roles": {"c0": "core"}}', "unreadable:missing_keys"),
        ('{"roles": ["core"], "edges": []}', "malformed: 'roles' is no object"),
        ('{"roles": {}, "edges": {}}', "malformed: 'edges' is no list"),
        (said({"c0": "core", "c1": "foundation"}), "'c1': 'foundation' is no role that it can have"),
        (said({"c0": "core"}), "'c1': no role"),
        (said({"c0": "core", "c1": "penalty"}), "'c1': 'penalty' is no role that it can have"),
        (said({**CORE, "c9": "core"}), "'c9': no criterion that was asked about"),
        (said(CORE, "c0"), "edge 1: 'c0' is no edge"),
        (said(CORE, edge("c0", "c7")), "edge 1: there is no criterion 'c7'"),
        (said(CORE, edge(["c0"], "c1")), "edge 1: there is no criterion ['c0']"),
        (said(CORE, edge("c0", "c0")), "edge 1: from one to itself"),
        (said(CORE, edge("c0", "c1", "trigger")), "edge 1: 'trigger' is no relation"),
        (said(CORE, edge("c0", "c1", "activation")), "edge 1: core → core allows no activation"),
        (said(CORE, edge("c0", "c1"), edge("c0", "c1")), "edge 2: c0 → c1 is given twice"),
    ],
)
def test_what_cannot_be_used_is_named_and_asked_for_again(
    reply: str, violation: str, rubric: Any, scripted: Any
) -> None:
    good = said({name: CORE[name] for name in ("c0", "c1")}, edge("c0", "c1"))
    subject = rubric(1, 1, 1) if "c2" in reply else rubric(1, 1)
    if "c2" in reply:
        good = said(CORE, edge("c0", "c1"))
    annotator, backend = scripted([reply, good, good])
    found = ask_graphs([subject], annotator)["r"]
    assert violation in found.calls[0]["violations"]
    assert [edge.pair for edge in found.proposals if not edge.dropped] == [("c0", "c1")]
    assert [call["role"] for call in found.calls] == ["graph", "contract_repair", "graph"]
    assert violation in backend.asked[2].messages[-1].content


def test_what_of_a_reply_can_be_used_counts_where_no_mending_helps(rubric: Any, scripted: Any) -> None:
    half = said({"c0": "core"}, edge("c0", "c1"), edge("c0", "c9"))
    annotator, backend = scripted(lambda request: half)
    found = ask_graphs([rubric(1, 1)], annotator)["r"]
    assert backend.calls == 4, "the same reply ends the mending, in each order"
    assert found.roles == {"c0": "core"}
    assert [edge.pair for edge in found.proposals] == [("c0", "c1")]


@pytest.mark.parametrize("broken", [Reply(error="timeout: after 120 s"), "Sorry."])
def test_an_order_without_a_reply_leaves_no_edge(broken: Any, rubric: Any, scripted: Any) -> None:
    def answer(request: Request) -> Any:
        return said(CORE, edge("c0", "c1")) if "in the rubric's order" in request.messages[1].content else broken

    annotator, _ = scripted(answer)
    found = ask_graphs([rubric(1, 1, 1)], annotator)["r"]
    assert found.failed == 1
    assert [(edge.pair, edge.dropped) for edge in found.proposals] == [(("c0", "c1"), "one_order")]


def test_the_schema_admits_what_is_meant_and_nothing_else(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(lambda request: said(by_sign(request)))
    ask_graphs([rubric(1, -1, 1)], annotator)
    contract = backend.asked[0].schema
    jsonschema.Draft202012Validator.check_schema(contract)
    roles = {"c0": "core", "c1": "penalty", "c2": "applicability"}
    jsonschema.validate(json.loads(said(roles, edge("c0", "c1"), edge("c2", "c1", "activation"))), contract)
    for wrong in (
        said(roles | {"c1": "core"}),
        said({"c0": "core"}),
        said(roles, edge("c0", "c9")),
        said(roles, edge("c0", "c1", "none")),
        said(roles, edge("c0", "c1", reason="")),
        said(roles, *[edge("c0", "c1")] * 4),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(wrong), contract)


@given(
    weight=st.floats(-10, 10, allow_nan=False),
    role=st.sampled_from(["core", "additional", "penalty", "applicability"]),
)
def test_no_role_goes_against_the_sign_of_the_points(weight: float, role: str) -> None:
    criterion = Criterion(id="c0", trait="t", text="Text.", weight=weight)
    question = GraphSubject("r", "Why?", None, (criterion,))
    request = Request(messages=(), role="graph", subject="r", keys=frozenset({"roles", "edges"}), data=question)
    checked = check(request, Reply(text=said({"c0": role})))
    allowed = role == "applicability" or (role == "penalty") == (weight < 0)
    assert checked.value is not None
    assert checked.value.roles == ({"c0": role} if allowed else {})
    assert bool(checked.violations) == (not allowed)


def test_a_model_that_is_not_held_to_a_schema_gets_none(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(annotating({}, {}), backend="openai", engine={"model": "m", "structured": False})
    ask_graphs([rubric(1, 1)], annotator)
    assert backend.asked[0].schema is None


def test_a_long_rubric_leaves_room_for_its_reply(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(annotating({}, {}), sampling={"max_tokens": 16})
    ask_graphs([rubric(*[1] * 40)], annotator)
    assert backend.asked[0].sampling.max_tokens >= 40 * (20 + 2 * 60)


def edges(*texts: str, ids: tuple[str, ...] = ("C1", "C2", "C3", "C10")) -> set[tuple[str, str]]:
    criteria = tuple(Criterion(id=name, trait="t", text=text) for name, text in zip(ids, texts, strict=False))
    found = stated_dependencies(GraphSubject("r", "Why?", None, criteria))
    assert {one.relation for one in found} <= {"activation"}
    return {one.pair for one in found}


@pytest.mark.parametrize(
    "text",
    [
        "If C1 is met, gives the unit.",
        "Gives the unit, but only if criterion 1 is met.",
        "Where criterion C1 holds, gives the unit.",
        "Gives the unit, provided that requirement 1 is satisfied.",
        "Falls Kriterium 1 erfüllt ist, nennt die Einheit.",
        "Se o critério 1 for atendido, dá a unidade.",
        "如果标准1满足，给出单位。",
        'Gives the unit when "C1" counts.',
        "Gives the unit; depends on criterion 1.",
    ],
)
def test_a_criterion_that_is_named_as_a_condition_licenses(text: str) -> None:
    assert edges("Names the gas.", "Gives a number.", text) == {("C1", "C3")}


@pytest.mark.parametrize(
    "text", ["If the criterion above is met, gives the unit.", "Se o critério anterior for atendido, x."]
)
def test_the_one_before_may_be_named_by_its_place(text: str) -> None:
    assert edges("Names the gas.", "Gives a number.", text) == {("C2", "C3")}
    assert edges(text, "Gives a number.") == set()


@pytest.mark.parametrize(
    "text",
    [
        "If C1 is not met, says so.",
        "Unless criterion 1 is met, gives the unit.",
        "If criterion 1 fails, gives the unit.",
        "Falls Kriterium 1 nicht erfüllt ist, nennt die Einheit.",
        "Says that C1 is a name. If it is warm, gives the unit.",
        "If C10H22 burns, names the products; this is met by CO2.",
        "If the gas is named, gives its unit.",
        "If C1 is dissolved, names the ions.",
        "As in criterion 1, names a gas.",
        "If it is warm, says so; criterion 1 is another matter.",
    ],
)
def test_what_is_denied_or_only_mentioned_licenses_nothing(text: str) -> None:
    assert edges("Names the gas.", "Gives a number.", text) == set()


def test_an_id_is_a_whole_word_and_a_plain_word_needs_quotes() -> None:
    several = edges("A.", "B.", "D.", "If C10, C2 and C1 are met, names C3.", ids=("C1", "C2", "C3", "C100"))
    assert several == {("C1", "C100"), ("C2", "C100")}
    ids = ("gas", "unit")
    assert edges("Names the gas.", "If the gas is met by water, gives the unit.", ids=ids) == set()
    assert edges("Names the gas.", "If 'gas' is met, gives the unit.", ids=ids) == {("gas", "unit")}


def test_numbers_are_ids_where_ids_are_numbers() -> None:
    assert edges("A.", "B.", "If requirement 1 is met, C.", ids=("0", "1", "2")) == {("1", "2")}


def test_any_text_is_read_in_time_linear_in_it() -> None:
    draw = random.Random(3)
    words = ["if", "criterion", "1", "C1", "not", ".", ",", "met", "when", "falls", "\n", "se", "如果", "标准"]
    text = " ".join(draw.choices(words, k=20_000))
    assert edges("A.", text) <= {("C1", "C2")}
