"""Itemised rejudging: what stands of an earlier run, what is asked anew, and whose decisions may stand at all."""

import json

import pytest
from builders import bundles
from builders.bundles import THREE, trait
from builders.cases import to_judge

from rubricflow.tasks.core.contracts.bundle import Repair
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.manifest import write_manifest
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge import shard_judge
from rubricflow.tasks.grading.judge.keep import (
    Earlier,
    differing,
    kept_decisions,
    signals,
    unchanged,
    with_kept,
)
from rubricflow.tasks.grading.judge.rows import Decision, EarlierDecision, Rater
from rubricflow.tasks.grading.judge.schema import PLAIN
from rubricflow.tasks.grading.judge.task import judge

TEXTS = {"r1": "Plants need light. Water helps them grow.", "r2": "Water helps. Plants need light too.", "r3": "light"}
QUOTES = {"A": "need light", "B": "Water helps", "C": "need light", "D": "Water"}


def criterion(name, **more):
    return bundles.criterion(name, **{"levels": THREE} | more)


def bundle_of(*criteria, text="PROSE", **protocol):
    of = {"traits": (trait("t", 0, 6), trait("u", 0, 6)), "final_score": "weighted_points", "signals": ("criteria",)}
    return bundles.bundle(*criteria or map(criterion, "ABC"), ends=(0, 6), text=text, **of | protocol)


def changed(bundle, name, **change):
    """The bundle with one criterion changed."""
    made = tuple(c.model_copy(update=change) if c.id == name else c for c in bundle.criteria)
    return bundle.model_copy(update={"criteria": made})


def judgment(name, **more):
    quote = {"unit_id": "s1", "quote": "need light", "start": 7, "end": 17, "status": "verified"}
    row = {"response_id": "r1", "criterion_id": name, "decision": 2, "stated": 2, "level_probabilities": [0, 0.2, 0.8],
           "evidence": [quote], "verified": True, "action": "none"}  # fmt: skip
    return row | more


# what is the same


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"text": "names something else"}, "BC"),
        ({"levels": ("no", "partly", "yes")}, "BC"),
        ({"evidence": "span_level"}, "BC"),
        ({"evidence_from": "response_and_context"}, "BC"),
        ({"kind": "concept"}, "BC"),
        ({"trait": "u"}, "BC"),
        ({"weight": -1.0}, "BC"),
        ({"id": "Z"}, "BC"),
        ({"weight": 3.0}, "ABC"),
        ({"earns": (0.0, 0.9, 1.0)}, "ABC"),
        ({"parent": "B"}, "ABC"),
        ({}, "ABC"),
    ],
)
@pytest.mark.parametrize("name", ["rulers", "pointwise"])
def test_a_changed_criterion_is_asked_again_and_no_other(case_of, name, change, same):
    old = bundle_of(name=name)
    case = case_of(changed(old, "A", **change))
    assert unchanged(Earlier(old, case.question, None), case.bundle, case.question, case.context) == set(same)


@pytest.mark.parametrize(
    ("name", "old", "new", "same"),
    [
        ("rulers", {"text": "PROSE"}, {"text": "OTHER"}, ""),
        ("pointwise", {"text": "PROSE"}, {"text": "OTHER"}, "ABC"),  # its prompt does not show the prose
        ("rulers", {}, {"unscored": "zero", "min_tokens": 3, "signals": ("score",)}, "ABC"),
        ("rulers", {}, {"final_score": "trait_mean"}, "ABC"),
        ("rulers", {}, {"failed_quote": "count"}, ""),
        ("rulers", {}, {"repair": Repair()}, ""),
        ("pointwise", {}, {"criteria_per_call": 2}, ""),  # it was judged beside others then
        ("rulers", {}, {"echo": "allowed"}, ""),
        ("rulers", {}, {"show_weights": True}, ""),
    ],
)
def test_what_the_judge_sees_and_how_it_is_verified_must_be_the_same(case_of, name, old, new, same):
    def made(more):
        bundle = bundle_of(name=name, text=more.get("text", "PROSE"))
        rules = {rule: value for rule, value in more.items() if rule != "text"}
        return bundle.model_copy(update={"protocol": bundle.protocol.model_copy(update=rules)})

    case = case_of(made(new))
    assert unchanged(Earlier(made(old), case.question, None), case.bundle, case.question, case.context) == set(same)


# what stands


@pytest.mark.parametrize(
    ("row", "stands"),
    [
        ({}, True),
        ({"decision": 0, "action": "demoted", "verified": False, "evidence": []}, True),
        ({"decision": None}, False),
        ({"stated": None, "decision": 0}, False),  # settled without the judge
        ({"criterion_id": "Z"}, False),
        ({"evidence": [{"unit_id": "s1", "quote": "need water", "start": 0, "end": 1, "status": "verified"}]}, False),
    ],
)
def test_only_a_decision_of_the_judge_whose_quotes_still_hold_stands(case_of, row, stands):
    found = kept_decisions([judgment("A", **row)], case_of(bundle_of()), frozenset("ABC"))
    assert set(found) == (set("A") if stands else set())


def test_another_text_or_an_unknown_item_keeps_nothing(case_of):
    case, other = case_of(bundle_of()), case_of(bundle_of(), "Plants need light!")
    known = {"i1": Earlier(case.bundle, case.question, None)}
    rows = [judgment("A")]
    assert with_kept([case], known, {"r1": case.text}, rows)[0].earlier.keys() == {"A"}
    assert with_kept([other], known, {"r1": case.text}, rows)[0].earlier == {}
    assert with_kept([case], known, {}, rows)[0].earlier == {}
    assert with_kept([case], {}, {"r1": case.text}, rows)[0].earlier == {}


def test_counts_of_what_stands_are_read_from_its_rows(case_of):
    row = [{"status": "fabricated"}, {"status": "verified"}]
    kinds = bundle_of(criterion("A"), criterion("B", evidence="weakly_groundable"), criterion("C"))
    case = case_of(kinds, earlier={
        "A": EarlierDecision(Decision("A", 0, 2, None, tuple(row), False, "demoted"), None),
        "B": EarlierDecision(Decision("B", 1, 1, None, (), False), None),
        "C": EarlierDecision(Decision("C", 0, 0), None),
    })  # fmt: skip
    assert signals(case) == {
        "kept": 3, "quotes": 2, "fabricated": 1, "verified": 1, "invalid_evidence": 1, "unsupported": 1, "demoted": 1,
        "weak": 1,
    }  # fmt: skip


# whose decisions

ENGINE = ("model", "structured", "logprobs", "options")


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({}, []),
        ({"keep": "run-1", "unscored": "zero", "min_tokens": 5}, []),
        ({"engine": {"model": "m", "timeout_s": 9, "urls": ["http://other/v1"], "key": "OTHER"}}, []),
        ({"engine": {"model": "n"}}, ["engine.model"]),
        ({"engine": {"model": "m", "options": {"dtype": "half"}}}, ["engine.options"]),
        ({"repair_engine": {"model": "n"}}, [f"repair_engine.{key}" for key in ENGINE]),
        ({"sampling": {"seed": 7}}, ["sampling"]),
        ({"protocol": "pointwise"}, ["protocol"]),
    ],
)  # fmt: skip
def test_another_rater_is_told_by_what_differs(change, names):
    base = {"backend": "openai", "engine": {"model": "m"}}
    earlier = Judge.model_validate(base).model_dump(mode="json")
    assert differing(earlier, Judge.model_validate(base | change)) == names


# the door


PLAN = Judge(protocol="rulers", backend="replay", model="scripted")


def prepared(house, name, bundle, question="Why?", texts=TEXTS, plan=PLAN):
    run = house.run(name)
    refs = to_judge(run, bundle, {"i1": texts}, question=question)
    write_manifest(run, {"study": {"judge": plan.model_dump(mode="json")}}, {}, [], run.folder)
    return run, *refs


def script(request):
    """Decides what it is asked for: level 2 with a quote, where the response has one."""
    question = request.data
    made = {}
    for criterion in question.criteria:
        quote = QUOTES[criterion.id]
        found = [u.unit_id for u in question.units if quote in question.text[u.start : u.end] and u.kind == "sentence"]
        made[criterion.id] = {"evidence": [{"unit": PLAIN.name(found[0]), "quote": quote}], "level": 2} if found else {
            "evidence": [], "level": 0}  # fmt: skip
    likely = {name: [0.1, 0.2, 0.7] for name in made}
    return Reply(text=json.dumps({"decisions": made}), level_probabilities=likely)


@pytest.fixture
def warehouse(tmp_path, monkeypatch):
    """A warehouse, and a function that judges a prepared run by the script; it gives tables and requests."""
    house = Warehouse.open(tmp_path / "house")
    monkeypatch.setattr(shard_judge, "rater", lambda *_: Rater("scripted:test", "llm", Scripted(script)))

    def run(prepared, plan=PLAN):
        backend = Scripted(script)
        monkeypatch.setattr(shard_judge, "rater", lambda *_: Rater("scripted:test", "llm", backend))
        made = judge.fn(prepared[0], plan, tmp_path, *prepared[1:])
        judgments, gradings, attempts = (
            prepared[0].read(ref).to_pylist(maps_as_pydicts="strict") for ref in made[:3]
        )  # fmt: skip
        return judgments, gradings, attempts, backend.asked

    return house, run


KEEP = PLAN.model_copy(update={"keep": "first"})


def without(rows, *names):
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


@pytest.mark.parametrize(("protocol", "size"), [("rulers", 1), ("pointwise", 1), ("pointwise", 2)])
def test_one_changed_criterion_costs_one_criterion_and_the_others_are_the_same_to_the_byte(warehouse, protocol, size):
    house, run = warehouse
    plan = PLAN.model_copy(update={"protocol": protocol, "criteria_per_call": size})
    old = bundle_of(*(criterion(name) for name in "ABC"), name=protocol, criteria_per_call=size)
    first = run(prepared(house, "first", old, plan=plan), plan)
    new = changed(old, "B", text="names water")
    again = run(prepared(house, "second", new), plan.model_copy(update={"keep": "first"}))
    assert [r.subject for r in again[3]] == sorted(TEXTS)
    assert {tuple(c.id for c in request.data.criteria) for request in again[3]} == {("B",)}
    assert "names A" not in again[3][0].messages[0].content
    for before, after in zip(first[0], again[0], strict=True):
        if before["criterion_id"] != "B":
            assert without([before], "bundle_id") == without([after], "bundle_id")
    whole = run(prepared(house, "third", new), plan)
    assert again[0] == whole[0]
    for kept, asked in zip(again[1], whole[1], strict=True):
        assert kept["signals"].pop("kept") == 2
        assert kept == asked


def test_another_weight_asks_for_nothing_and_scores_anew(warehouse):
    house, run = warehouse
    old = bundle_of()
    first = run(prepared(house, "first", old))
    again = run(prepared(house, "second", changed(old, "A", weight=4.0)), KEEP)
    assert (again[2], again[3]) == ([], [])
    assert without(first[0], "bundle_id") == without(again[0], "bundle_id")
    assert [row["score"] for row in first[1]] == [6, 6, 0]
    assert {row["signals"]["kept"] for row in again[1]} == {3}


def test_another_question_asks_for_everything(warehouse):
    house, run = warehouse
    run(prepared(house, "first", bundle_of()))
    asked = run(prepared(house, "second", bundle_of(), question="Why else?"), KEEP)[3]
    assert len(asked) == 3


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"keep": "nowhere"}, "no finished run 'nowhere'.*there are first"),
        ({"keep": "first", "protocol": "mts"}, "'mts' decides no single criteria.*checkeval, pointwise, rulers"),
        ({"keep": "first", "model": "other"}, "judged by another rater.*differs in model"),
    ],
)
def test_what_cannot_be_kept_of_is_refused_before_anything_is_asked(warehouse, plan, message):
    house, run = warehouse
    run(prepared(house, "first", bundle_of()))
    with pytest.raises(InputError, match=message):
        run(prepared(house, "second", bundle_of()), PLAN.model_copy(update=plan))
