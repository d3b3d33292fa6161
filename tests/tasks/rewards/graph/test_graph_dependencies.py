"""Asking for dependencies: batches fail small, and every pair ends as a label or as a failure with its reason."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

import jsonschema
import pytest

from rubricflow.tasks.core.contracts.graph import Role
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.rewards.graph.dependencies import PairQuestion, ask_dependencies
from rubricflow.tasks.rewards.graph.project import project
from rubricflow.tasks.rewards.graph.subject import GraphSubject, candidates

Pair = tuple[str, str]


def label(relation: Any = "none", confidence: Any = 80) -> dict[str, Any]:
    return {"relation": relation, "confidence": confidence}


def said(*labels: Any) -> str:
    return json.dumps({"pairs": {str(at): one for at, one in enumerate(labels, 1) if one is not None}})


def all_of(subject: GraphSubject, roles: Mapping[str, Role] | None = None) -> PairQuestion:
    roles = roles or dict.fromkeys(subject.ids, "core")
    return PairQuestion(subject, roles, tuple(candidates(roles)))


def failing_for(pairs: set[Pair]) -> Callable[[Request], Reply | str]:
    """Fails, without naming a pair, whenever one of these is asked about."""

    def answer(request: Request) -> Reply | str:
        if pairs & set(request.data.pairs):
            return Reply(error="broken: no")
        return said(*[label() for _ in request.data.pairs])

    return answer


def halving(count: int, bad: set[int], size: int) -> list[tuple[int, ...]]:
    """The batches that are asked about when every one with a bad pair fails as a whole: by recursion, wave by wave."""
    waves = [[tuple(range(count))[at : at + size] for at in range(0, count, size)]]
    while waves[-1]:
        following = []
        for part in waves[-1]:
            if bad & set(part) and len(part) > 1:
                middle = (len(part) + 1) // 2
                following += [part[:middle], part[middle:]]
        waves.append(following)
    return [part for wave in waves for part in wave]


def test_labels_become_proposals_with_their_confidence(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted([said(label("weak_prerequisite", 70), label("none", 90))])
    found = ask_dependencies([all_of(rubric(1, 1))], annotator)["r"]
    assert [(*one.pair, one.relation, one.confidence, one.dropped) for one in found.proposals] == [
        ("c0", "c1", "weak_prerequisite", 0.7, None)
    ]
    assert [(call["role"], call["violations"]) for call in found.calls] == [("dependency", [])]
    assert backend.calls == 1


def test_a_batch_shows_pairs_with_ids_roles_texts_and_the_labels_allowed(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(failing_for(set()))
    roles: dict[str, Role] = {"c0": "core", "c1": "additional", "c2": "applicability"}
    ask_dependencies([all_of(rubric("A.", "B.", "C.", question="Q?"), roles)], annotator)
    (request,) = backend.asked
    assert "Q?" in request.messages[0].content
    shown = [json.loads(line) for line in request.messages[1].content.splitlines() if line.startswith('{"pair":')]
    assert shown == [
        {
            "pair": 1,
            "parent": {"id": "c0", "role": "core", "text": "A."},
            "child": {"id": "c1", "role": "additional", "text": "B."},
            "labels": ["none", "weak_prerequisite", "strong_prerequisite"],
        },
        {
            "pair": 2,
            "parent": {"id": "c2", "role": "applicability", "text": "C."},
            "child": {"id": "c1", "role": "additional", "text": "B."},
            "labels": ["none", "activation"],
        },
    ]


def test_the_instructions_are_the_same_for_all_batches_of_a_rubric(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(failing_for(set()), pairs_per_call=2)
    ask_dependencies([all_of(rubric(1, 1, 1))], annotator)
    assert len({request.messages[0].content for request in backend.asked}) == 1
    assert [len(request.data.pairs) for request in backend.asked] == [2, 2, 2]


@pytest.mark.parametrize("size", [1, 2, 5, 8, 100])
@pytest.mark.parametrize("bad", [set(), {0}, {11}, {3, 4}, set(range(12))])
def test_a_failing_batch_is_halved_until_what_fails_stands_alone(
    bad: set[int], size: int, rubric: Any, scripted: Any
) -> None:
    wanted = all_of(rubric(1, 1, 1, 1))
    pairs = list(itertools.permutations(wanted.subject.ids, 2))
    annotator, backend = scripted(failing_for({pairs[at] for at in bad}), pairs_per_call=size)
    found = ask_dependencies([wanted], annotator)["r"]
    expected = halving(12, bad, size)
    assert [tuple(map(pairs.index, request.data.pairs)) for request in backend.asked] == expected
    assert {one.pair for one in found.proposals} == {pairs[at] for at in bad}
    assert {(one.dropped, one.relation, one.detail) for one in found.proposals} <= {("failed", None, "broken: no")}
    assert len(found.calls) == len(expected)


def test_what_a_partly_valid_reply_labels_stays_and_the_rest_is_asked_again_in_halves(
    rubric: Any, scripted: Any
) -> None:
    first = said(label("weak_prerequisite"), None, label("nonsense"), label(), "no label", label("strong_prerequisite"))
    annotator, backend = scripted([first, said(label("strong_prerequisite"), label()), said(label())])
    found = ask_dependencies([all_of(rubric(1, 1, 1))], annotator)["r"]
    pairs = [request.data.pairs for request in backend.asked]
    assert pairs[1:] == [(("c0", "c2"), ("c1", "c0")), (("c2", "c0"),)]
    assert {one.pair: one.relation for one in found.proposals} == {
        ("c0", "c1"): "weak_prerequisite",
        ("c2", "c1"): "strong_prerequisite",
        ("c0", "c2"): "strong_prerequisite",
    }
    assert [call["role"] for call in found.calls] == ["dependency", "contract_repair", "contract_repair"]
    assert found.calls[0]["violations"] == [
        "pair 2: no label",
        "pair 3: 'nonsense' is no relation",
        "pair 5: 'no label' is no label",
    ]


@pytest.mark.parametrize(
    ("reply", "detail"),
    [
        ("Sorry.", "unreadable:no_object"),
        ("{}", "unreadable:missing_keys"),
        ('{"pairs": []}', "malformed: 'pairs' is no object"),
        (said(), "pair 1: no label"),
        (said(label("trigger")), "pair 1: 'trigger' is no relation"),
        (said({"confidence": 3}), "pair 1: None is no relation"),
        (Reply(error="timeout: after 120 s"), "timeout: after 120 s"),
    ],
)
def test_a_pair_alone_that_gets_no_label_has_failed_with_the_reason(
    reply: Any, detail: str, rubric: Any, scripted: Any
) -> None:
    annotator, backend = scripted([reply, said(label())], pairs_per_call=1)
    found = ask_dependencies([all_of(rubric(1, 1))], annotator)["r"]
    (failed,) = found.proposals
    assert (failed.pair, failed.dropped, failed.detail) == (("c0", "c1"), "failed", detail)
    assert backend.calls == 2


def test_a_relation_that_the_roles_do_not_allow_is_asked_again_and_then_dropped_as_that(
    rubric: Any, scripted: Any
) -> None:
    annotator, backend = scripted([said(label("activation", 60), label()), said(label("activation", 50))])
    wanted = all_of(rubric(1, 1))
    found = ask_dependencies([wanted], annotator)["r"]
    assert backend.asked[1].data.pairs == (("c0", "c1"),)
    assert found.calls[0]["violations"] == ["pair 1: its roles allow no activation"]
    (one,) = project(wanted.roles, found.proposals)
    assert (one.relation, one.confidence, one.dropped) == ("activation", 0.5, "roles")


@pytest.mark.parametrize("confidence", [-1, 101, "high", True, [1]])
def test_a_confidence_off_its_range_is_left_out_and_noted(confidence: Any, rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted([said(label("weak_prerequisite", confidence), label())])
    found = ask_dependencies([all_of(rubric(1, 1))], annotator)["r"]
    assert [(one.relation, one.confidence) for one in found.proposals] == [("weak_prerequisite", None)]
    assert found.calls[0]["violations"] == [f"pair 1: confidence {confidence!r} is not between 0 and 100"]
    assert backend.calls == 1


def test_a_number_that_no_pair_has_is_noted_and_costs_no_call(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted([said(label(), label(), label("weak_prerequisite"))])
    found = ask_dependencies([all_of(rubric(1, 1))], annotator)["r"]
    assert (found.proposals, backend.calls) == ([], 1)
    assert found.calls[0]["violations"] == ["pair 3: not asked about"]


def test_all_rubrics_go_out_as_one_wave_and_again_what_failed_of_them(rubric: Any, scripted: Any) -> None:
    def answer(request: Request) -> Reply | str:
        return failing_for({("c0", "c1")})(request)

    annotator, backend = scripted(answer)
    wanted = [all_of(rubric(f"A {name}.", "B.", name=name)) for name in ("x", "y", "z")]
    found = ask_dependencies(wanted, annotator)
    assert [request.subject for request in backend.asked] == ["x", "y", "z", "x", "x", "y", "y", "z", "z"]
    assert {name: len(one.proposals) for name, one in found.items()} == {"x": 1, "y": 1, "z": 1}


def test_a_rubric_without_candidates_needs_no_call(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted([])
    subject = rubric(-1, -2)
    found = ask_dependencies(
        [all_of(subject, {"c0": "penalty", "c1": "penalty"}), all_of(rubric(1, name="one"))], annotator
    )
    assert {name: (one.proposals, one.calls) for name, one in found.items()} == {"r": ([], []), "one": ([], [])}
    assert backend.calls == 0


def test_what_was_answered_once_is_not_asked_again(rubric: Any, scripted: Any) -> None:
    wanted = all_of(rubric(1, 1, 1))
    annotator, backend = scripted(failing_for(set()), pairs_per_call=2)
    first = ask_dependencies([wanted], annotator)
    assert ask_dependencies([wanted], annotator) == first
    assert backend.calls == 3


def test_the_schema_admits_what_the_roles_allow_and_nothing_else(rubric: Any, scripted: Any) -> None:
    annotator, backend = scripted(failing_for(set()))
    roles: dict[str, Role] = {"c0": "core", "c1": "penalty", "c2": "applicability"}
    ask_dependencies([all_of(rubric(1, -1, 1), roles)], annotator)
    contract = backend.asked[0].schema
    jsonschema.Draft202012Validator.check_schema(contract)
    jsonschema.validate(json.loads(said(label("strong_prerequisite"), label("activation"))), contract)
    for wrong in (
        said(label("activation"), label()),
        said(label()),
        said(label(), label(), label()),
        said(label(), {}),
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(json.loads(wrong), contract)
