"""GradeAgentOps with scripted models: one call, bounded repair of what failed, signals, provenance and questions."""

import json
import math
from types import SimpleNamespace

import jsonschema
import pytest
from builders.bundles import bundle_by
from builders.cases import case, to_judge

from rubricflow.tasks.core.contracts.bundle import (
    ConsistencyMemory,
    Criterion,
    Protocol,
    Repair,
    Rubric,
    RubricMemory,
    Scale,
    Trait,
)
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.llm.backend import Offline, Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.store.catalogue import ask as question_of
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge import shard_judge
from rubricflow.tasks.grading.judge import task as door
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.protocol import CHARACTERS_PER_TOKEN, Opinion, protocol_of
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.bundles import SUBSCORES, shaped

TEXT = "Plants need light to grow. Water helps them drink. Soil is never needed at all."
QUOTES = {1: "need light to grow", 2: "Water helps them drink", 3: "never needed at all"}
BUDGETS = Repair(contract=2, semantic=2)


def bundle_of(item_type="technical", **protocol):
    rubric = Rubric(
        rubric_id="r",
        scale=Scale(min=0, max=10),
        traits=(Trait(id="content", name="Content", min=0, max=10),),
        criteria=(
            *(
                Criterion(id=f"P{n}", trait="content", text=f"says thing {n}", levels=("no", "so", "yes"))
                for n in (1, 2, 3)
            ),
            Criterion(id="M1", trait="content", text="says a wrong thing", weight=-1),
        ),
    )
    how_to = Protocol(
        name="gradeagentops",
        signals=("score", "trait_scores"),
        min_tokens=3,
        **{"repair": BUDGETS, "final_score": "trait_mean"} | protocol,
    )
    return bundle_by(shaped(rubric, how_to, [item_type]), how_to)


def case_of(bundle, response_id="r1", text=TEXT, item_id="i1"):
    return case(bundle, text, response_id, item_id, reference_answer="LIGHT.")


def sound(covered=(1, 2), names=SUBSCORES["technical"], score=7, **change):
    whole = {
        "evidence": [{"point": n, "quote": QUOTES[n]} for n in covered],
        "covered": list(covered),
        "missed": [n for n in (1, 2, 3) if n not in covered],
        "misconceptions": [],
        "rationale": "Two of three.",
        "subscores": dict.fromkeys(names, score),
        "final_score": score,
    }
    return {name: value for name, value in (whole | change).items() if value is not None}


def by_number(artifact):
    """The same claims, every point under its number."""
    quotes = {entry["point"]: entry["quote"] for entry in artifact["evidence"]}
    points = {
        str(n): {"quote": quotes[n], "status": "covered"} if n in artifact["covered"] else MISSED for n in (1, 2, 3)
    }
    rest = {name: value for name, value in artifact.items() if name not in ("evidence", "covered", "missed")}
    return {"points": points} | rest


MISSED = {"quote": "", "status": "missed"}
BAD = [{"point": 1, "quote": "words that nobody wrote"}, {"point": 2, "quote": QUOTES[2]}]


def graded(bundle, first, repairs=(), cases=()):
    """Rows of one graded batch, the grader and the mender."""
    lines = [first] if isinstance(first, dict | str | Reply) else first
    grader = Scripted(
        lines if callable(lines) else [one if not isinstance(one, dict) else json.dumps(one) for one in lines], "grader"
    )
    mender = Scripted([json.dumps(one) if isinstance(one, dict) else one for one in repairs], "mender")
    with ReplyStore(":memory:") as store:
        made = grade_batch(cases or [case_of(bundle)], Rater("s:t", "llm", grader, mender), store)
    tables = SimpleNamespace(grader=grader, mender=mender)
    for row, table in made.tables().items():
        setattr(tables, row.table, conform(row, table).to_pylist(maps_as_pydicts="strict"))
    return tables


def score_of(found):
    row = found.gradings[0]
    return row["score"], row["status"], row["unscored_reason"]


def levels(found):
    return [row["decision"] for row in found.judgments]


# One call.


@pytest.mark.parametrize("item_type", SUBSCORES)
def test_a_sound_reply_is_graded_in_one_call(item_type):
    found = graded(bundle_of(item_type), sound(names=SUBSCORES[item_type]))
    assert score_of(found) == (7, "scored", None)
    assert found.gradings[0]["trait_scores"] == dict.fromkeys(SUBSCORES[item_type], 7.0) | {"coverage": 7.0}
    assert (levels(found), found.grader.calls, found.mender.calls) == ([1, 1, 0, 0], 1, 0)
    assert [row["evidence"][0]["status"] for row in found.judgments[:2]] == ["verified", "verified"]


@pytest.mark.parametrize("where", ["top", "subscores"])
def test_exactly_the_required_fields_where_unknown_ones_are_refused(where):
    strange = sound(grade="A") if where == "top" else sound(subscores=sound()["subscores"] | {"style": 9})
    lenient = graded(bundle_of(), strange)
    assert (score_of(lenient), lenient.mender.calls) == ((7, "scored", None), 0)
    strict = graded(bundle_of(unknown_fields="refused"), strange, [sound()])
    assert (score_of(strict), strict.mender.calls) == ((7, "scored", None), 1)
    first, second = strict.attempts
    assert first["violations"] == [f"unknown_field:{'grade' if where == 'top' else 'subscores.style'}"]
    assert (second["role"], second["violations"]) == ("contract_repair", [])
    spent = graded(bundle_of(unknown_fields="refused"), strange, [strange | {"rationale": "B."}, strange])
    assert (score_of(spent), spent.mender.calls) == ((None, "unscored", "invalid_reply"), 2)


def test_a_short_answer_gets_the_lowest_of_everything_without_a_call():
    found = graded(bundle_of(), "never asked", cases=[case_of(bundle_of(), text="no idea")])
    row = found.gradings[0]
    assert (row["score"], row["status"], found.grader.calls) == (0, "precheck", 0)
    assert row["trait_scores"] == dict.fromkeys(SUBSCORES["technical"], 0.0)
    assert (row["signals"]["short_answer_gate"], levels(found)) == (1, [0, 0, 0, 0])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I cannot grade this.", "unreadable_reply"),
        ('{"score": 5}', "unreadable_reply"),
        (Reply(error="down"), "no_reply"),
        (sound(subscores={"accuracy": 11}), "invalid_reply"),
        (sound() | {"covered": [9]}, "invalid_reply"),
        (sound(evidence=None), "invalid_reply"),
    ],
)
def test_without_a_budget_a_broken_reply_is_unscored_with_its_reason(reply, reason):
    found = graded(bundle_of(repair=None), reply)
    assert score_of(found) == (None, "unscored", reason)
    assert found.gradings[0]["signals"].get("contract_fail", 0) == (reason != "no_reply")
    assert (found.grader.calls, found.mender.calls) == (1, 0)


# Repair.


def roles(found):
    return [(row["role"], row["model"], row["mends"]) for row in found.attempts]


def test_failed_evidence_is_mended_by_the_other_model_and_nothing_else_is_asked():
    mending = {"points": {"1": {"quote": QUOTES[1], "status": "covered"}}}
    found = graded(bundle_of(), sound(evidence=BAD), [mending])
    assert roles(found) == [("grade", "grader", []), ("semantic_repair", "mender", ["P1"])]
    assert (levels(found), score_of(found)[0]) == ([1, 1, 0, 0], 7)
    assert "covered_gold_evidence_invalid" not in found.gradings[0]["signals"]
    (request,) = found.mender.asked
    assert list(request.schema["properties"]) == ["points"]
    assert list(request.schema["properties"]["points"]["properties"]) == ["1"]
    assert "Decide exactly these again: point 1." in request.messages[1].content
    assert "words that nobody wrote" in request.messages[1].content


def test_exhausted_evidence_is_accepted_with_the_signal():
    never = {"covered": [1], "missed": [], "evidence": [{"point": 1, "quote": "still not there"}]}
    found = graded(bundle_of(), sound(evidence=BAD), [never, never | {"more": 1}, never])
    assert [role for role, *_ in roles(found)] == ["grade", "semantic_repair", "semantic_repair"]
    signals = found.gradings[0]["signals"]
    assert (levels(found), score_of(found)[1]) == ([0, 1, 0, 0], "scored")
    assert (signals["semantic_exhausted_but_accepted"], signals["covered_gold_evidence_invalid"]) == (1, 1)


def test_a_withdrawn_claim_leaves_no_signal():
    found = graded(bundle_of(), sound(evidence=BAD), [{"covered": [], "missed": [1], "evidence": []}])
    signals = found.gradings[0]["signals"]
    assert levels(found) == [0, 1, 0, 0]
    assert not {"semantic_exhausted_but_accepted", "covered_gold_evidence_invalid"} & signals.keys()
    assert [row["action"] for row in found.judgments] == ["none"] * 4


def test_an_unreadable_repair_spends_its_own_budget_and_loses_nothing():
    good = {"points": {"1": {"quote": QUOTES[1], "status": "covered"}}}
    found = graded(bundle_of(), sound(evidence=BAD), ["sorry, no", good])
    assert [role for role, *_ in roles(found)] == ["grade", "semantic_repair", "semantic_repair"]
    assert found.attempts[1]["violations"] == ["unreadable:no_object", "evidence_failed:P1"]
    assert (levels(found), score_of(found)[0]) == ([1, 1, 0, 0], 7)


def test_of_a_reply_that_was_cut_off_what_is_whole_stands():
    cut = json.dumps(sound())
    cut = cut[: cut.index('"rationale"') + 20]
    rest = {"rationale": "ok", "subscores": dict.fromkeys(SUBSCORES["technical"], 7)}
    found = graded(bundle_of(), cut, [rest | {"covered": [3], "evidence": [{"point": 3, "quote": QUOTES[3]}]}])
    assert roles(found)[1][2] == ["rationale", *(f"subscores.{name}" for name in SUBSCORES["technical"])]
    assert (levels(found), score_of(found)) == ([1, 1, 0, 0], (7, "scored", None))


EMPTY = {"covered": [], "missed": [], "evidence": []}


@pytest.mark.parametrize("score", [0, 7, 10])
def test_an_empty_artifact_breaks_the_contract_and_is_asked_for_again(score):
    points = by_number(sound())["points"]
    found = graded(bundle_of(), sound(score=score) | EMPTY, [{"points": points, "subscores": {"accuracy": 1}}])
    assert roles(found) == [("grade", "grader", []), ("contract_repair", "mender", ["P1", "P2", "P3"])]
    assert (levels(found), found.gradings[0]["trait_scores"]["accuracy"]) == ([1, 1, 0, 0], score)
    assert "point 3 is said to be neither covered nor missed" in found.mender.asked[0].messages[1].content
    alone = graded(bundle_of(repair=None), sound(score=score) | EMPTY)
    assert score_of(alone) == (None, "unscored", "invalid_reply")


def test_what_the_mender_cannot_answer_is_left_for_a_rerun():
    found = graded(bundle_of(), sound(evidence=BAD), [Reply(error="down")])
    assert [row["violations"] for row in found.attempts] == [["evidence_failed:P1"], ["no_reply"]]
    assert "semantic_exhausted_but_accepted" not in found.gradings[0]["signals"]
    assert (levels(found), score_of(found)[0]) == ([0, 1, 0, 0], 6)  # completeness falls to 3: 24 / 4


def test_a_failed_misconception_is_mended_too():
    wrong = sound(misconceptions=[{"misconception": 1, "quote": "nobody said so"}])
    found = graded(bundle_of(), wrong, [{"misconceptions": [{"misconception": 1, "quote": QUOTES[3]}]}])
    assert (levels(found), roles(found)[1][2]) == ([1, 1, 0, 1], ["M1"])
    dropped = graded(bundle_of(), wrong, [{"misconceptions": []}])
    assert levels(dropped) == [1, 1, 0, 0]
    assert "banned_evidence_invalid_dropped" not in dropped.gradings[0]["signals"]


def test_where_failed_quotes_are_counted_nothing_semantic_is_mended():
    found = graded(bundle_of(failed_quote="count"), sound(evidence=BAD))
    assert (levels(found), found.mender.calls) == ([1, 1, 0, 0], 0)


def test_a_repair_that_would_outgrow_the_context_leaves_memory_out():
    def asked(context):
        bundle = bundle_of(rubric_memory=RubricMemory(), context_tokens=context)
        case = case_of(bundle, text="says thing " + TEXT)
        found = graded(bundle, sound(evidence=BAD), [{"missed": [1], "covered": []}], [case])
        return found.grader.asked[0], found.mender.asked[0]

    def needed(request):
        characters = sum(len(message.content) for message in request.messages)
        return math.ceil(characters / CHARACTERS_PER_TOKEN) + request.sampling.max_tokens

    first, second = asked(None)
    assert asked(needed(second)) == (first, second)
    same, lean = asked(needed(second) - 1)
    assert same == first
    assert (lean.memory, lean.data.shown) == ((), ())
    assert "Parts of the rubric" in second.messages[1].content
    assert lean.messages[1].content == second.messages[1].content[second.characters["memory"] + 1 :]
    assert lean.messages[1].content.startswith("=====RESPONSE")
    assert lean.characters == {name: size for name, size in second.characters.items() if name != "memory"}
    short = asked(needed(lean) - 20)[1]
    assert needed(short) <= needed(lean) - 20
    assert json.dumps(sound(evidence=BAD)).startswith(short.messages[1].content.split("\n| ")[1].split("\n")[0])
    least = asked(256)[1]  # nothing fits: the contract, the response and what failed stay
    assert "| (nothing)" in least.messages[1].content
    assert (least.messages[0], least.schema) == (lean.messages[0], lean.schema)
    assert "point 1" in least.messages[1].content


# An answerer that reads no prose.


def opinion_of(question, quote):
    return Opinion(
        levels={c.id: int(c.id in ("P1", "P2")) for c in question.bundle.criteria},
        evidence={c.id: [{"unit": "s1", "quote": quote(c.id)}] for c in question.bundle.criteria},
        traits={t.id: 7.4 for t in question.bundle.traits},
        because="b" * 1_800,
    )


def answering(quote):
    """A backend that holds an opinion and puts it into the contract's words, checked against the schema."""
    asked = []

    def answer(questions):
        protocol = protocol_of("gradeagentops")
        made = [protocol.artifact(q, opinion_of(q, lambda name, q=q: quote(name, q))) for q in questions]
        asked.extend(zip(questions, made, strict=True))
        return [Reply(text=json.dumps(one)) for one in made]

    return Offline("opinion", answer), asked


def test_an_opinion_answers_the_contract_and_its_repairs():
    def quote(name, question):
        return "invented words here" if name == "P1" and question.role == "grade" else QUOTES[int(name[1])]

    backend, asked = answering(quote)
    bundle = bundle_of()
    with ReplyStore(":memory:") as store:
        made = grade_batch([case_of(bundle)], Rater("o:t", "encoder", backend), store)
    assert [decision.level for decision in made.judged[0].decisions] == [1, 1, 0, 0]
    assert (made.gradings[0].scored.score, asked[0][1]["rationale"]) == (7, "b" * 1_200)
    for attempt, (_, given) in zip(made.called[0].answer.attempts, asked, strict=True):
        jsonschema.validate(given, attempt.request.schema)
    assert asked[1][1] == {"points": {"1": {"quote": QUOTES[1], "status": "covered"}}}


def test_probabilities_of_an_answerer_that_reads_no_prose_are_under_the_criteria():
    known = {"P1": [0.2, 0.8], "P3": [0.6, 0.4], "M1": [0.9, 0.1], "P2": [1.0]}
    found = graded(bundle_of(), Reply(text=json.dumps(by_number(sound())), level_probabilities=known))
    assert [row["level_probabilities"] for row in found.judgments] == [[0.2, 0.8], None, [0.6, 0.4], [0.9, 0.1]]
    assert found.gradings[0]["confidence"] == pytest.approx((0.8 + 0.6 + 0.9) / 3)


# Provenance, in a run.


def kept_run(folder, texts, **protocol):
    """A run of responses by item through the door, with an invented quote in every second reply."""
    bundle = bundle_of(consistency_memory=ConsistencyMemory(min_tokens=1, similarity=0.01, exemplars=1), **protocol)
    run = Warehouse.open(folder).run("run")
    by_item = {}
    for key, text in texts.items():
        by_item.setdefault(key.split("-")[0], {})[key] = text
    return run, to_judge(run, bundle, by_item, type="technical")


def rows_of(run, name, **parameters):
    answer = question_of(run, name, parameters)
    return [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]


def test_questions_find_what_was_mended_and_what_anchored_a_grading(tmp_path, monkeypatch):
    texts = {f"i1-{n}": f"{TEXT} {n}" for n in range(4)} | {"i2-0": TEXT, "i2-1": "no"}
    run, refs = kept_run(tmp_path / "house", texts)

    def grader(request):
        return json.dumps(sound(evidence=BAD) if request.subject in ("i1-1", "i1-3") else sound())

    def mender(request):
        quote = "again invented" if request.subject == "i1-1" else QUOTES[1]
        return json.dumps({"points": {"1": {"quote": quote, "status": "covered"}}})

    monkeypatch.setattr(
        shard_judge, "rater", lambda *_: Rater("s:t", "llm", Scripted(grader, "big"), Scripted(mender, "small"))
    )
    plan = Judge(protocol="gradeagentops", backend="replay", model="x", consistency_memory=ConsistencyMemory())
    judged = judge.fn(run, plan, tmp_path, *refs)
    assert run.read(judged.gradings).num_rows == 6
    assert list(run.shards("judge")) == ["00000"]

    repairs = {(row["role"], row["mended"]): row for row in rows_of(run, "repairs")}
    assert repairs["grade", "everything"]["calls"] == 5
    assert repairs["grade", "everything"]["held"] == 3
    mended = repairs["semantic_repair", "P1"]
    assert (mended["model"], mended["calls"], mended["responses"], mended["held"]) == ("small", 3, 2, 1)

    anchors = [
        (row["response_id"], row["anchors"], row["score"]) for row in rows_of(run, "exemplars", response_id="i1-2")
    ]
    assert anchors == [("i1-1", "directly", 6), ("i1-2", "itself", 7), ("i1-0", "through others", 7)]
    assert [row["anchors"] for row in rows_of(run, "exemplars", response_id="i2-0")] == ["itself"]
    assert rows_of(run, "exemplars", response_id="'; DROP") == []

    signals = {row["signal"]: row for row in rows_of(run, "signals")}
    assert (signals["short_answer_gate"]["gradings"], signals["short_answer_gate"]["share"]) == (
        1,
        pytest.approx(1 / 6),
    )
    assert signals["semantic_exhausted_but_accepted"]["gradings"] == 1
    assert signals["quotes"]["occurrences"] == 10
    assert not {"length", "tie", "criterion.P1"} & signals.keys()


def test_the_door_grades_an_item_as_one_sequence_however_small_shards_are(tmp_path, monkeypatch):
    texts = {f"i{i}-{n}": f"{TEXT} {n}" for i in (1, 2) for n in range(5)}
    run, refs = kept_run(tmp_path / "house", texts)
    monkeypatch.setattr(shard_judge, "rater", lambda *_: Rater("s:t", "llm", Scripted(lambda r: json.dumps(sound()))))
    monkeypatch.setattr(door, "WHOLE_ITEMS", 2)
    plan = Judge(protocol="gradeagentops", backend="replay", model="x", consistency_memory=ConsistencyMemory())
    judged = judge.fn(run, plan, tmp_path, *refs)
    assert sorted(run.shards("judge")) == ["00000", "00001"]
    shown = {row["response_id"]: row["memory"] for row in run.read(judged.attempts).to_pylist()}
    assert [shown[f"i2-{n}"] for n in range(5)] == [[], *([f"exemplar:i2-{n}"] for n in range(4))]
    for row in (Judgments, Gradings, Attempts):
        assert run.ref(row, "judge").rows


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [({}, []), ({"b": 1, "a": 1, "c": 1}, [2, 1]), ({"a": 5, "b": 1, "c": 1}, [5, 2]), ({"a": 1, "b": 5}, [1, 5])],
)
def test_items_that_remember_are_never_cut(counts, sizes, monkeypatch):
    monkeypatch.setattr(door, "WHOLE_ITEMS", 2)
    assert list(door.shard_sizes(counts, whole_items=True).values()) == sizes
