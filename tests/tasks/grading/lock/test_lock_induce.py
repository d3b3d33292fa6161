"""Induction: what a model makes of prose becomes a rubric, once, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from builders.rows import item as row_of_item
from builders.studies import study
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle, Protocol, Rubric
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.study import Induce, RubricSettings
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.llm.backend import Offline, Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.lock import offline
from rubricflow.tasks.grading.lock.bundles import Maker, as_judged
from rubricflow.tasks.grading.lock.bundles import lock as lock_rubric
from rubricflow.tasks.grading.lock.induce import MadeRubric, check, induction, schema
from rubricflow.tasks.grading.lock.rubric import broken
from rubricflow.tasks.grading.lock.task import lock

PROSE = (
    "A good letter takes a position, and it gives reasons for it; examples carry each reason. "
    "It is organised from opening to end. The tone fits the reader, and the style is fluent."
)
PLAN = Induce(criteria=6, seed=1)
TRAITS = [{"id": "ideas", "name": "Ideas", "min": 1, "max": 6}, {"id": "form", "name": "Form", "min": 1, "max": 6}]


def rubric(**changes: Any) -> Rubric:
    return Rubric.model_validate({"rubric_id": "letter", "text": PROSE, "scale": {"min": 1, "max": 6}} | changes)


def item(text: str = "The writer takes a position.", **changes: Any) -> dict[str, Any]:
    return {
        "text": text,
        "evidence": "local_quote",
        "levels": {"absent": "no", "partial": "half", "clear": "yes"},
    } | changes


def artifact(*items: dict[str, Any], **changes: Any) -> dict[str, Any]:
    anchors = {"lowest": "No position.", "middle": "A position.", "highest": "A position that is argued for."}
    return {"traits": [{"name": "Ideas", "anchors": anchors, "items": list(items or [item()])} | changes]}


def checked(given: Any, source: Rubric | None = None) -> Any:
    text = given if isinstance(given, str) else json.dumps(given)
    return check(induction(source or rubric(), PLAN, Sampling()), Reply(text=text))


def induced(source: Rubric, answers: Any, plan: RubricSettings | None = None, **about: Any) -> MadeRubric:
    plan = plan or RubricSettings(file="r.yaml", induce=PLAN)
    items = [{"rubric_id": source.rubric_id, "question": "Why?", "context": None} | about]
    with ReplyStore(":memory:") as replies:
        backend = answers if not isinstance(answers, list) else Scripted([json.dumps(one) for one in answers])
        maker = Maker(backend, replies, Sampling(), True)
        known = {source.rubric_id: source}
        return as_judged(known, known, items, plan, maker)[source.rubric_id]


def by_rule() -> Offline:
    return Offline(offline.MODEL, offline.answer)


def test_an_artifact_becomes_a_rubric_with_ids_ranges_and_anchors() -> None:
    made = checked(artifact(item(), item("It ends well.", evidence="span_level"))).value
    assert [(c.id, c.trait, c.kind, c.evidence, c.levels) for c in made.criteria] == [
        ("I01", "T1", "checklist", "local_quote", ("no", "half", "yes")),
        ("I02", "T1", "checklist", "span_level", ("no", "half", "yes")),
    ]
    (trait,) = made.traits
    assert (trait.id, trait.name, trait.bounds, trait.source) == ("T1", "Ideas", (1, 6, 1), "derived")
    assert [(a.score, a.text) for a in trait.anchors] == [
        (1, "No position."),
        (4, "A position."),
        (6, "A position that is argued for."),
    ]
    assert (made.text, made.scale) == (PROSE, rubric().scale)


@pytest.mark.parametrize(
    ("given", "violation"),
    [
        ("Here you are.", "unreadable:no_object"),
        ({"traits": []}, "malformed: traits: []"),
        ({"traits": {}}, "malformed: traits: {} is not of type 'array'"),
        (artifact(name=" "), "malformed: traits.0.name: ' ' is no text"),
        (artifact(items=[]), "malformed: traits.0.items: []"),
        (artifact(item(evidence="none")), "malformed: traits.0.items.0.evidence: 'none' is not one of"),
        (artifact(item(levels={"absent": "no", "clear": "yes"})), "'partial' is a required property"),
        (artifact(item(levels={"absent": "no", "partial": "No", "clear": "yes"})), "two read the same"),
        (artifact(anchors={"lowest": "a", "middle": "a", "highest": "b"}), "overlapping anchors"),
        (artifact(item("One."), item("one.")), "two items read 'one.'"),
        (artifact(*[item(f"It says {n}.") for n in range(13)]), "malformed: traits.0.items: "),
        ({"traits": [*artifact()["traits"], *artifact(item("Other."))["traits"]]}, "two traits read 'ideas'"),
    ],
)
def test_what_breaks_the_contract_is_named(given: Any, violation: str) -> None:
    found = checked(given)
    assert found.value is None
    assert violation in found.violations[0]


def test_a_trait_that_the_artifact_leaves_out_is_named() -> None:
    found = checked({"traits": {"ideas": {"items": [item()]}}}, rubric(traits=TRAITS))
    assert found.violations == ("malformed: traits: 'form' is a required property",)


@pytest.mark.parametrize("traits", [[], TRAITS])
@pytest.mark.parametrize("scale", [{"min": 0, "max": 1}, {"min": 1, "max": 6}, {"min": 3, "max": 15, "step": 0.5}])
def test_what_the_schema_admits_is_bounded_and_what_rules_of_thumb_make_fits(scale: Any, traits: Any) -> None:
    own = [trait | scale for trait in traits]
    source = rubric(scale=scale, traits=own)
    contract = schema(source, 6)
    asked = induction(source, PLAN, Sampling())
    (reply,) = offline.answer([asked.data])
    jsonschema.Draft202012Validator.check_schema(contract)
    jsonschema.validate(json.loads(reply.text or ""), contract)
    assert check(asked, reply).violations == ()
    assert json.dumps(contract).count('"string"') == json.dumps(contract).count('"maxLength"') + json.dumps(
        contract
    ).count('"enum"')


def test_the_prompt_shows_the_question_only_where_the_rubric_has_one_item() -> None:
    alone = induction(rubric(), PLAN, Sampling(), question="Should phones be banned?", context="A passage.")
    shared = induction(rubric(), PLAN, Sampling())
    assert "Should phones be banned?" in alone.messages[0].content
    assert "A passage." in alone.messages[0].content
    assert "question" not in shared.messages[0].content.lower()
    assert PROSE in shared.messages[0].content
    assert "{{" not in alone.messages[0].content


def test_seed_and_temperature_are_the_plans_and_the_reply_may_be_long_enough() -> None:
    drawn = induction(rubric(), Induce(criteria=20, seed=5), Sampling(seed=1, top_p=0.9, max_tokens=64)).sampling
    assert (drawn.seed, drawn.temperature, drawn.top_p) == (5, 0.7, 0.9)
    assert drawn.max_tokens >= 20 * 100


def test_a_broken_artifact_is_mended_within_two_calls_that_say_what_is_wrong() -> None:
    asked = Scripted(["no JSON", json.dumps(artifact(name="")), json.dumps(artifact())])
    made = induced(rubric(), asked)
    assert [call["role"] for call in made.calls] == ["induce", "contract_repair", "contract_repair"]
    assert [call["violations"] for call in made.calls] == [
        ["unreadable:no_object"],
        ["malformed: traits.0.name: '' is no text"],
        [],
    ]
    assert made.calls[0]["reply"] == "no JSON"
    assert [message.role for message in asked.asked[1].messages] == ["user", "assistant", "user"]
    assert asked.asked[1].messages[1].content == "no JSON"
    assert "- unreadable:no_object" in asked.asked[1].messages[2].content
    assert [c.text for c in made.rubric.criteria] == ["The writer takes a position."]


def test_what_was_induced_once_is_not_asked_again() -> None:
    plan, known = RubricSettings(file="r.yaml", induce=PLAN), {"letter": rubric()}
    asked = Scripted([json.dumps(artifact())])
    with ReplyStore(":memory:") as replies:
        maker = Maker(asked, replies, Sampling(), True)
        first, second = (as_judged(known, known, [{"rubric_id": "letter"}], plan, maker)["letter"] for _ in range(2))
    assert asked.calls == 1
    assert first == second


PROTOCOL = Protocol(name="rulers", final_score="trait_mean", signals=("trait_scores",))


def test_five_seeds_make_five_bundles_and_each_the_same_again() -> None:
    def bundle(seed: int) -> str:
        plan = RubricSettings(file="r.yaml", induce=Induce(criteria=6, seed=seed))
        return lock_rubric(induced(rubric(), by_rule(), plan).rubric, PROTOCOL).bundle_id

    first = [bundle(seed) for seed in (1, 2, 3, 4, 5)]
    assert first == [bundle(seed) for seed in (1, 2, 3, 4, 5)]
    assert len(set(first)) == 5


def test_rules_of_thumb_take_the_highest_of_the_score_bands() -> None:
    text = "Judge the essay as a whole.\nScore 3: It argues; it gives proof of it.\n"
    text += "Score 2: It argues a little.\nScore 1: It does not argue."
    found = offline.statements(rubric(text=text, scale={"min": 1, "max": 3}))
    assert found == [["Judge the essay as a whole"], ["It argues; it gives proof of it"]]
    made = induced(rubric(text=text, scale={"min": 1, "max": 3}), by_rule()).rubric
    assert [anchor.text for anchor in made.traits[0].anchors] == [
        "It does not argue.",
        "It argues a little.",
        "It argues; it gives proof of it.",
    ]


WORD = st.text("abc de.;,:\n3-", min_size=1, max_size=30).filter(lambda text: any(c.isalpha() for c in text))


@settings(max_examples=20)
@given(
    words=st.lists(WORD, min_size=1, max_size=12),
    criteria=st.integers(1, 8),
    seed=st.integers(0, 50),
    traits=st.sampled_from([[], TRAITS]),
)
def test_whatever_the_prose_rules_of_thumb_keep_their_contract(
    words: list[str], criteria: int, seed: int, traits: list[Any]
) -> None:
    source = rubric(text=" ".join(words), traits=traits)
    asked = induction(source, Induce(criteria=criteria, seed=seed), Sampling())
    (reply,) = offline.answer([asked.data])
    found = check(asked, reply)
    assert found.violations == ()
    assert broken(found.value or source) is None


def written(folder: Path, rubrics: list[dict[str, Any]], **plan: Any) -> tuple[Run, Any]:
    (folder / "rubrics.yaml").write_text(yaml.safe_dump({"rubrics": rubrics}))
    run = Warehouse.open(folder / "warehouse").run("one")
    run.commit("ingest", "all", {Items: [row_of_item(rubric_id="letter")], Responses: [], Gradings: [], Judgments: []})
    judge = plan.pop("judge", {})
    asked = study(rubrics={"file": "rubrics.yaml", **plan}, judge=judge)
    refs = [run.ref(table, "ingest") for table in (Items, Responses, Gradings, Judgments)]
    return run, lock.fn(run, asked, folder, *refs)


PLAIN = {"rubric_id": "letter", "title": "Letter", "text": PROSE, "scale": {"min": 1, "max": 6}}


def test_the_door_locks_what_was_induced_and_keeps_the_calls(tmp_path: Path) -> None:
    run, refs = written(tmp_path, [PLAIN], induce={"criteria": 6, "seed": 2})
    (row,), (locked,) = run.read(refs.rubrics).to_pylist(), run.read(refs.bundles).to_pylist()
    bundle = Bundle.unlock(locked["bundle_id"], locked["content"])
    assert row["origin"] == "induced"
    assert [(call["role"], call["model"], call["violations"]) for call in row["calls"]] == [
        ("induce", offline.MODEL, [])
    ]
    items = json.loads(row["calls"][0]["reply"])["traits"][0]["items"]
    assert [c.text for c in bundle.criteria] == [item["text"] for item in items]
    assert (bundle.protocol.echo, bundle.protocol.levels_shown) == ("refused", "ascending")


def test_a_rubric_without_prose_cannot_be_induced(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="rubric 'letter': has no prose that criteria could be made of"):
        written(tmp_path, [PLAIN | {"text": " "}], induce={"seed": 2})


def test_a_replay_induces_with_what_the_model_said_before(tmp_path: Path) -> None:
    house = Warehouse.open(tmp_path / "warehouse")
    with ReplyStore(house.replies) as replies:
        maker = Maker(Scripted([json.dumps(artifact())], model="m"), replies, Sampling(), True)
        plan, known = RubricSettings(file="r", induce=PLAN), {"letter": Rubric.model_validate(PLAIN)}
        as_judged(known, known, [{"rubric_id": "letter", "question": "Why?"}], plan, maker)
    run, refs = written(tmp_path, [PLAIN], induce=PLAN.model_dump(), judge={"backend": "replay", "model": "m"})
    (row,) = run.read(refs.rubrics).to_pylist()
    assert [call["model"] for call in row["calls"]] == ["m"]
