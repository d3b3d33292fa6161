"""Variants of a rubric: other order, other wording, the same ids, weights and levels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from builders.rows import item
from builders.studies import study

from rubricflow.tasks.core.contracts.bundle import Bundle, Rubric, Scale
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.study import RubricSettings
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.llm.backend import Offline, Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.lock import offline
from rubricflow.tasks.grading.lock.bundles import Maker, as_judged
from rubricflow.tasks.grading.lock.induce import MadeRubric, order_turned, paraphrase, prose_turned, words
from rubricflow.tasks.grading.lock.induce import check_paraphrase as check
from rubricflow.tasks.grading.lock.induce import paraphrase_schema as schema
from rubricflow.tasks.grading.lock.lint import reversed_bands
from rubricflow.tasks.grading.lock.task import lock

TEXT = (
    "Judge the whole.\n\nScore 3: It argues. It proves.\nScore 2: It argues.\nScore 1: It does neither.\n\nThank you."
)
SCALE = Scale(min=1, max=3)


def rubric(**changes: Any) -> Rubric:
    anchors = [{"score": 1, "text": "It is confusing."}, {"score": 3, "text": "It is clear."}]
    traits = [{"id": "t", "name": "Clarity", "min": 1, "max": 3, "anchors": anchors}]
    traits += [{"id": "u", "name": "Proof", "min": 1, "max": 3}]
    levels = ["not said", "said in part", "said"]
    criteria = [
        {"id": "a", "trait": "t", "text": "The writer gives a reason.", "levels": levels, "weight": 2},
        {"id": "b", "trait": "u", "text": "An example is given.", "levels": levels, "excludes": ["c"]},
        {"id": "c", "trait": "u", "text": "Zebras zigzag.", "kind": "misconception", "weight": -1},
    ]
    whole = {"rubric_id": "r", "text": TEXT, "scale": SCALE.model_dump(), "traits": traits, "criteria": criteria}
    return Rubric.model_validate(whole | changes)


def shape(one: Rubric) -> Any:
    """All but the wording."""
    told = one.model_dump(exclude={"text"})
    for trait in told["traits"]:
        trait.pop("name")
        trait["anchors"] = [anchor["score"] for anchor in trait["anchors"]]
    for criterion in told["criteria"]:
        criterion.pop("text")
        criterion["levels"] = len(criterion["levels"])
    return told


def checked(given: Any, source: Rubric | None = None) -> Any:
    text = given if isinstance(given, str) else json.dumps(given)
    return check(paraphrase(source or rubric(), Sampling()), Reply(text=text))


def other(**changes: Any) -> dict[str, Any]:
    """Every word in other words."""

    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turned(item) for key, item in value.items()}
        return [turned(item) for item in value] if isinstance(value, list) else f"{value} indeed"

    return turned(words(rubric())) | changes


@pytest.mark.parametrize(
    ("text", "turned"),
    [
        (
            TEXT,
            "Judge the whole.\n\nScore 1: It does neither.\nScore 2: It argues.\n"
            "Score 3: It argues. It proves.\n\nThank you.",
        ),
        ("Score 3: a. Score 2: b. Score 1: c.", "Score 1: c. Score 2: b. Score 3: a."),
        ("- 3 points: a\n- 2 points: b", "- 2 points: b\n- 3 points: a"),
        ("3 = a\n\n1 = b", "1 = b\n\n3 = a"),
    ],
)
def test_bands_turn_round_and_twice_is_as_before(text: str, turned: str) -> None:
    assert reversed_bands(text, SCALE) == turned
    assert reversed_bands(turned, SCALE) == text


def test_reversed_criteria_are_the_same_criteria() -> None:
    made = order_turned(prose_turned(rubric()))
    assert [c.id for c in made.criteria] == ["c", "b", "a"]
    assert [t.id for t in made.traits] == ["u", "t"]
    assert {c.id: c for c in made.criteria} == {c.id: c for c in rubric().criteria}
    assert made.text.index("Score 1") < made.text.index("Score 3")
    assert order_turned(prose_turned(made)) == rubric()


def test_a_paraphrase_changes_words_alone() -> None:
    made = checked(other()).value
    assert shape(made) == shape(rubric())
    assert made.text == TEXT + " indeed"
    assert made.criteria[0].levels == ("not said indeed", "said in part indeed", "said indeed")
    assert made.traits[0].anchors[1].text == "It is clear. indeed"


@pytest.mark.parametrize(
    ("given", "violation"),
    [
        ("no", "unreadable:no_object"),
        (
            other(criteria={"a": {"text": "x", "levels": ["a", "b", "c"]}}),
            "criteria: 'b' is a required property",
        ),
        (
            other(traits={**other()["traits"], "u": {"name": "x", "anchors": ["new"]}}),
            "malformed: traits.u.anchors: ['new']",
        ),
        (other(text="  "), "malformed: text: '  ' is no text"),
        (
            other(criteria={**other()["criteria"], "a": {"text": "x", "levels": ["b", "B", "c"]}}),
            "unusable: criterion 'a' has overlapping levels",
        ),
        (words(rubric()), "not in other words: 'The writer gives a reason.'"),
    ],
)
def test_what_is_no_paraphrase_is_named(given: Any, violation: str) -> None:
    found = checked(given)
    assert found.value is None
    assert any(violation in one for one in found.violations)


def test_rules_of_thumb_reword_every_statement_within_the_contract() -> None:
    asked = paraphrase(rubric(), Sampling())
    (reply,) = offline.answer([asked.data])
    jsonschema.validate(json.loads(reply.text or ""), schema(rubric()))
    made = check(asked, reply).value
    assert made is not None
    assert shape(made) == shape(rubric())
    assert [c.text for c in made.criteria] == [
        "The author provides a ground.",
        "An instance is provided.",
        "It holds that zebras zigzag.",
    ]
    assert offline.answer([asked.data]) == [reply]


@pytest.mark.parametrize(
    "name", ["rubrics.yaml", "../studies/asap_aes_rubrics.yaml", "../studies/asap_sas_rubrics.yaml"]
)
def test_rules_of_thumb_reword_the_shipped_rubrics(name: str) -> None:
    path = Path(__file__).parents[4] / "data" / "demo" / name
    for given in yaml.safe_load(path.read_text())["rubrics"]:
        source = Rubric.model_validate(given)
        asked = paraphrase(source, Sampling())
        (reply,) = offline.answer([asked.data])
        assert check(asked, reply).violations == ()


def variant(name: str, source: Rubric, backend: Any = None, **plan: Any) -> MadeRubric:
    rubrics = RubricSettings.model_validate({"file": "r.yaml", "variant": name, **plan})
    with ReplyStore(":memory:") as replies:
        maker = Maker(backend or Offline(offline.MODEL, offline.answer), replies, Sampling(), True)
        return as_judged({"r": source}, {"r"}, [{"rubric_id": "r", "question": "Q"}], rubrics, maker)["r"]


def test_what_is_induced_is_induced_from_the_variant() -> None:
    plain = rubric(criteria=(), traits=())
    reworded = variant("paraphrased", plain, induce={"criteria": 4})
    assert [call["role"] for call in reworded.calls] == ["paraphrase", "induce"]
    assert reworded.rubric.text != plain.text
    standard = variant("standard", plain, induce={"criteria": 4}).rubric
    turned = variant("criteria_reversed", plain, induce={"criteria": 4}).rubric
    assert turned.text == reversed_bands(plain.text, SCALE)
    assert [c.text for c in turned.criteria] != [c.text for c in standard.criteria]


def test_levels_in_reverse_are_shown_to_the_induction_too() -> None:
    asked = {}
    for name in ("standard", "levels_reversed"):
        backend = Scripted([json.dumps({"traits": {t: {"items": [given(t)]} for t in "tu"}})])
        variant(name, rubric(), backend, induce={"criteria": 4})
        asked[name] = backend.asked[0].messages[0].content
    assert asked["standard"].index("1: It is confusing") < asked["standard"].index("3: It is clear")
    assert asked["levels_reversed"].index("3: It is clear") < asked["levels_reversed"].index("1: It is confusing")


def given(text: str) -> dict[str, Any]:
    return {
        "text": f"{text} is met.",
        "evidence": "span_level",
        "levels": {"absent": "0", "partial": "1", "clear": "2"},
    }


def written(folder: Path, name: str, **judge: str) -> tuple[Run, Any]:
    (folder / "rubrics.yaml").write_text(yaml.safe_dump({"rubrics": [rubric().model_dump(mode="json")]}))
    run = Warehouse.open(folder / "warehouse").run(name)
    rows = [item(key, reference_answer="Heat. Light.") for key in ("r", "d")]
    run.commit("ingest", "all", {Items: rows, Responses: [], Gradings: [], Judgments: []})
    rubrics = {
        "file": "rubrics.yaml",
        "variant": name,
        "derive": {"origin": "reference_answer", "scale": SCALE.model_dump()},
    }
    refs = [run.ref(table, "ingest") for table in (Items, Responses, Gradings, Judgments)]
    return run, lock.fn(run, study(rubrics=rubrics, judge=judge), folder, *refs)


def bundles(folder: Path, name: str, **judge: str) -> dict[str, Bundle]:
    run, refs = written(folder, name, **judge)
    return {
        row["rubric_id"]: Bundle.unlock(row["bundle_id"], row["content"]) for row in run.read(refs.bundles).to_pylist()
    }


def test_the_four_variants_are_four_bundles_with_the_same_decisions(tmp_path: Path) -> None:
    names = ("standard", "criteria_reversed", "levels_reversed", "paraphrased")
    found = {name: bundles(tmp_path, name) for name in names}
    for rubric_id in ("r", "d"):
        assert len({found[name][rubric_id].bundle_id for name in names}) == 4
        decisions = [
            {c.id: (c.trait, c.weight, c.top, c.evidence) for c in found[name][rubric_id].criteria} for name in names
        ]
        assert all(one == decisions[0] for one in decisions)
    assert found["levels_reversed"]["r"].criteria == found["standard"]["r"].criteria
    assert found["levels_reversed"]["r"].protocol.levels_shown == "descending"


def test_an_echo_is_evidence_where_the_criteria_are_a_model_answers_sentences(tmp_path: Path) -> None:
    found = bundles(tmp_path, "standard")
    assert (found["d"].protocol.echo, found["r"].protocol.echo) == ("allowed", "refused")
