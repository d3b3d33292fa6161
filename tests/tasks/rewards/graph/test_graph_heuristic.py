"""The heuristic annotator: what its rules of thumb see, and that they answer in the contract."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.graph import Role
from rubricflow.tasks.core.llm.backends.scripted import Offline
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.rewards.graph import heuristic
from rubricflow.tasks.rewards.graph.annotator import ask_roles
from rubricflow.tasks.rewards.graph.dependencies import PairQuestion, ask_dependencies
from rubricflow.tasks.rewards.graph.heuristic import (
    answer,
    condition,
    content,
    coverage,
    is_signs,
    nearest,
    role,
    specialised,
    states_condition,
)
from rubricflow.tasks.rewards.graph.subject import GraphSubject, Pair, candidates


def a_role(text: str, weight: float = 5.0) -> Role:
    return role(Criterion(id="a", trait="t", text=text, weight=weight), usual=5.0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Names two causes of the war.", "core"),
        ("If the user is pregnant, advises against ibuprofen.", "core"),
        ("For patients who take insulin, explains the risk.", "core"),
        ("The user is asking for personal medical advice.", "applicability"),
        ("Wenn Daten fehlen.", "applicability"),
        ("如果用户怀孕。", "applicability"),
        ("Wenn Daten fehlen, fragt die Antwort nach.", "core"),
        ("Se o usuário for menor, recomenda um responsável.", "core"),
        ("如果用户怀孕，建议就医。", "core"),
        ("Asks if the user is pregnant.", "core"),
        ("当事人签订合同。", "core"),
        ("若干事实。", "core"),
        ("States a dose. Additionally, names a limit.", "core"),
        ("Iffy claims are avoided.", "core"),
        ("Optional: gives a table.", "additional"),
        ("Earns a bonus point for a citation.", "additional"),
        ("Zusätzlich wird eine Quelle genannt.", "additional"),
        ("Adicionalmente, cita uma fonte.", "additional"),
        ("加分项：引用案例。", "additional"),
    ],
)
def test_a_role_follows_cues_of_the_wording(text: str, expected: Role) -> None:
    assert a_role(text) == expected


@pytest.mark.parametrize(
    ("weight", "expected"), [(-1, "penalty"), (0, "applicability"), (1, "additional"), (2, "core")]
)
def test_a_role_follows_sign_and_relative_weight(weight: float, expected: Role) -> None:
    assert a_role("Names two causes.", weight) == expected


def test_what_costs_points_is_a_penalty_whatever_it_says() -> None:
    assert a_role("If asked, optionally refuses.", -3) == "penalty"


def test_a_condition_is_the_clause_before_the_comma() -> None:
    assert condition("If the user is pregnant, advises against ibuprofen.") == "If the user is pregnant"
    assert condition("Names two causes, and dates.") == "Names two causes, and dates."
    assert not states_condition("Whenceforth it ends.")


def test_content_is_word_stems_and_pairs_of_signs() -> None:
    assert content("Recommends paracetamol, recommending 500 mg.") == {"parace", "500", "recomm"}
    assert content("合同有效") == {"合同", "同有", "有效"}


@pytest.mark.parametrize(
    ("text", "expected"), [("合同有效 yes", True), ("The contract 合 is valid", False), ("", False)]
)
def test_texts_in_signs_are_told(text: str, expected: bool) -> None:
    assert is_signs(text) == expected


def test_coverage_is_a_worked_number() -> None:
    texts = ["alpha beta gamma", "alpha beta delta epsilon", "delta epsilon", "omega"]
    twice, once = np.log(5 / 2), np.log(5 / 1)
    found = coverage(texts, texts, "")
    assert found[0, 1] == pytest.approx(2 * twice / (2 * twice + once))
    assert found[1, 0] == pytest.approx(1 / 2)
    assert found[2, 1] == pytest.approx(1.0)
    with_query = coverage(texts, texts, "What is alpha?")
    assert with_query[0, 1] == pytest.approx(1.5 * twice / (1.5 * twice + once))


def test_one_word_in_common_is_chance_and_so_is_one_that_most_have() -> None:
    assert coverage(["alpha beta"], ["alpha gamma", "beta delta"], "").tolist() == [[0.0, 0.0]]
    texts = ["alpha beta one1", "alpha beta two2", "alpha beta three3", "alpha beta four4"]
    assert not (coverage(texts, texts, "") * (1 - np.eye(4))).any()


def test_a_text_without_content_covers_and_is_covered_by_nothing() -> None:
    texts = ["a", "alpha beta"]
    assert coverage(texts, texts, "").tolist() == [[0.0, 0.0], [0.0, 1.0]]


SHARES = st.floats(0, 1)
SQUARE = st.integers(1, 6).flatmap(lambda k: st.lists(st.lists(SHARES, min_size=k, max_size=k), min_size=k, max_size=k))


@given(SQUARE)
def test_no_criterion_is_a_specialisation_of_itself_or_both_ways(shares: list[list[float]]) -> None:
    found = specialised(np.array(shares), np.full((len(shares), len(shares)), 0.5))
    assert not np.any((found > 0) & (found.T > 0))
    assert np.all((found >= 0) & (found <= 1))


def test_support_is_the_mean_of_coverage_and_cosine_or_coverage_alone() -> None:
    covered = np.array([[1.0, 0.8], [0.3, 1.0]])
    assert specialised(covered, np.full((2, 2), 0.4))[0, 1] == pytest.approx(0.6)
    assert specialised(covered, np.full((2, 2), np.nan))[0, 1] == pytest.approx(0.8)
    assert specialised(covered, np.full((2, 2), -1.0))[0, 1] == pytest.approx(0.4)


@pytest.mark.parametrize(
    "covered",
    [
        [[1.0, 0.9], [0.9, 1.0]],  # both say the same
        [[1.0, 0.1], [0.05, 1.0]],  # little is shared
        [[1.0, 0.5], [0.45, 1.0]],  # the child has hardly more to say
        [[1.0, 0.9], [0.01, 1.0]],  # the child is about something else, at length
    ],
)
def test_what_is_alike_or_strange_is_no_specialisation(covered: list[list[float]]) -> None:
    assert not specialised(np.array(covered), np.full((2, 2), 0.9)).any()


@given(SQUARE, SHARES.filter(lambda least: least > 0))
def test_each_child_keeps_its_nearest_parents(measure: list[list[float]], least: float) -> None:
    found = nearest(np.array(measure), least)
    for child, column in enumerate(np.array(measure).T):
        expected = sorted((-value, at) for at, value in enumerate(column) if value >= least)[: heuristic.PARENTS]
        assert sorted(np.flatnonzero(found[:, child])) == sorted(at for _, at in expected)


GENERAL = "Recommends paracetamol for the fever."
SPECIAL = (
    "Recommends paracetamol for the fever at 15 mg per kg every six hours, with at most four doses in a single day."
)


def subject(*given: tuple[str, float]) -> GraphSubject:
    criteria = (Criterion(id=f"c{at}", trait="t", text=text, weight=weight) for at, (text, weight) in enumerate(given))
    return GraphSubject("r", "My child is hot.", None, tuple(criteria))


def relations(one: GraphSubject, roles: dict[str, Role]) -> dict[tuple[str, str], str]:
    asked = PairQuestion(one, roles, tuple(candidates(roles)))
    (reply,) = answer([asked])
    pairs = json.loads(reply.text or "")["pairs"]
    found = {pair: pairs[str(at)]["relation"] for at, pair in enumerate(asked.pairs, 1)}
    return {pair: relation for pair, relation in found.items() if relation != "none"}


def test_a_special_case_rests_on_its_general_one_and_on_nothing_else() -> None:
    one = subject((SPECIAL, 5), ("Asks how long the cough has lasted.", 5), (GENERAL, 5))
    found = relations(one, {"c0": "core", "c1": "core", "c2": "core"})
    assert found == {("c2", "c0"): "strong_prerequisite"}


def test_a_penalty_rests_on_no_criterion_by_its_wording() -> None:
    one = subject((GENERAL, 5), (f"Fails: {SPECIAL}", -5))
    assert relations(one, {"c0": "core", "c1": "penalty"}) == {}


def test_a_condition_activates_what_repeats_its_words() -> None:
    one = subject(
        ("If the child has a seizure, calls an ambulance.", 5),
        ("Tells a parent whose child has a seizure to drive by car.", -5),
        ("Uses a rude tone.", -5),
    )
    found = relations(one, {"c0": "applicability", "c1": "penalty", "c2": "penalty"})
    assert found == {("c0", "c1"): "activation"}


def test_chinese_is_compared_by_its_characters() -> None:
    one = subject(
        ("合同有效，公司应当承担违约责任。", 5),
        ("分析过程：第一步，合同有效，公司应当承担违约责任，因为转包未经同意；第二步，精神损害赔偿的依据是民法典。", 5),
        ("语言通顺，格式规范。", 5),
    )
    assert relations(one, dict.fromkeys(("c0", "c1", "c2"), "core")) == {("c0", "c1"): "strong_prerequisite"}


WORDS = (
    "paracetamol fever dose weight hours maximum child seizure ambulance parent recommends explains asks cough night "
    "liver allergy doctor emergency thermometer breathing rash hospital safety water rest warning 合同有效 违约责任"
)
TEXTS = st.lists(st.sampled_from(WORDS.split()), max_size=14).map(" ".join)
RUBRICS = st.lists(st.lists(TEXTS, min_size=1, max_size=7), min_size=1, max_size=4)


def plainly(one: GraphSubject, roles: dict[str, Role], pairs: Sequence[Pair]) -> list[tuple[str, int]]:
    """Relation and confidence of pairs where every text is read alone, whatever it is needed for."""
    texts = [criterion.text for criterion in one.criteria]
    compared = heuristic._ComparedTexts(one)
    compared.to_read = list(range(len(texts)))
    vectors = {text: minilm()([text])[0].astype(np.float64) for text in texts}
    label = compared.labels(roles, vectors)
    return [tuple(label(pair).values()) for pair in pairs]


@settings(max_examples=25)
@given(rubrics=RUBRICS)
def test_rubrics_that_are_read_together_get_what_each_gets_alone(rubrics: list[list[str]]) -> None:
    questions = []
    for texts in rubrics:
        one = subject(*((f"Says {text}", 5) for text in texts))
        roles: dict[str, Role] = dict.fromkeys(one.ids, "core")
        questions.append(PairQuestion(one, roles, tuple(candidates(roles))))
    for question, reply in zip(questions, answer(questions), strict=True):
        labels = json.loads(reply.text or "")["pairs"].values()
        expected = plainly(question.subject, dict(question.roles), question.pairs)
        assert [tuple(label.values()) for label in labels] == expected


def test_no_text_is_read_that_can_be_no_special_case_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise AssertionError("the encoder is not needed")

    monkeypatch.setattr(heuristic, "minilm", refuse)
    one = subject(("Asks how long the cough has lasted.", 5), (GENERAL, 5), (GENERAL, 5))
    assert relations(one, dict.fromkeys(one.ids, "core")) == {}


def test_every_reply_keeps_the_contract(scripted: Any) -> None:
    annotator = replace(scripted([])[0], backend=Offline(heuristic.MODEL, answer))
    one = subject((GENERAL, 5), (SPECIAL, 1), ("!?", -1), ("如果发烧，就医。", 0), ("-", 5))
    roled = ask_roles([one], annotator)["r"]
    labelled = ask_dependencies([PairQuestion(one, roled.roles, tuple(candidates(roled.roles)))], annotator)["r"]
    assert [call["violations"] for call in (*roled.calls, *labelled.calls)] == [[], []]
    assert roled.roles == dict(zip(one.ids, ("core", "additional", "penalty", "applicability", "core"), strict=True))


def test_a_reply_is_not_taken_for_another_rubric_with_the_same_pairs(scripted: Any) -> None:
    annotator = replace(scripted([])[0], backend=Offline(heuristic.MODEL, answer))
    small = subject((GENERAL, 5), (SPECIAL, 5))
    large = subject((GENERAL, 5), (SPECIAL, 5), ("Smiles.", 5))

    def digest(one: GraphSubject, roles: dict[str, Role]) -> str:
        asked = PairQuestion(one, roles, (("c0", "c1"),))
        return str(ask_dependencies([asked], annotator)["r"].calls[0]["request_digest"])

    roles: dict[str, Role] = {"c0": "core", "c1": "core", "c2": "core"}
    digests = {digest(small, roles), digest(large, roles), digest(large, {**roles, "c2": "penalty"})}
    assert len(digests) == 3
    assert digest(small, roles) in digests


def test_a_language_model_is_not_asked_again_because_of_criteria_it_is_not_shown(scripted: Any) -> None:
    annotator, backend = scripted([json.dumps({"pairs": {"1": {"relation": "none", "confidence": 5}}})])
    for one in (subject((GENERAL, 5), (SPECIAL, 5)), subject((GENERAL, 5), (SPECIAL, 5), ("Smiles.", 5))):
        ask_dependencies([PairQuestion(one, {"c0": "core", "c1": "core", "c2": "core"}, (("c0", "c1"),))], annotator)
    assert backend.calls == 1
