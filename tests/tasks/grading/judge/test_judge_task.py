"""The door, end to end in a folder: shards, kill and resume, recorded replies, a tampered bundle."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.bundles import THREE, bundle, criterion
from builders.cases import to_judge

from rubricflow.tasks.core.contracts.backends import BACKENDS, RegisteredBackend
from rubricflow.tasks.core.contracts.errors import ContractError, InputError
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import parse
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge import shard_judge
from rubricflow.tasks.grading.judge import task as door
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.stored_cases import cases_of
from rubricflow.tasks.grading.judge.task import judge

PER_ITEM = 3
PLAN = Judge(protocol="rulers", backend="replay", model="scripted")
FOREIGN = {
    "file": "raw.csv",
    "response_id": "id",
    "reply": "reply",
    "recorded": "score",
    "reader": {"pattern": r"(\d+)"},
    "scale": {"min": 0, "max": 5},
}


def bundle_of(name="rulers"):
    return bundle(criterion("P", text="light"), name=name, final_score="judged" if name == "dhs" else "trait_mean")


def prepared(folder, bundle):
    """A run with two items of three responses each, and the references that the door takes."""
    run = Warehouse.open(folder / "house").run("run")
    texts = {
        item: {f"{item}-{n}": f"plants need light, {item} {n}" if n else "" for n in range(PER_ITEM)}
        for item in ("i1", "i2")
    }
    return run, *to_judge(run, bundle, texts)


def right(request):
    quote = [{"unit": "s1", "quote": "plants need light"}]
    return json.dumps({"decisions": {"P": {"evidence": quote, "level": 1}}})


@pytest.fixture
def scripted(monkeypatch):
    """Makes the door's rater a scripted one with small shards; gives the backends that it used."""
    used = []

    def install(script):
        def rater(plan, base, replies, key_of, grader=None):
            used.append(Scripted(script))
            return Rater("scripted:test", "llm", used[-1])

        monkeypatch.setattr(shard_judge, "rater", rater)
        monkeypatch.setattr(door, "SHARD", 2)
        return used

    return install


def rows(run, ref):
    return run.read(ref).to_pylist()


def test_every_response_is_graded_once(tmp_path, scripted):
    used = scripted(right)
    run, *refs = prepared(tmp_path, bundle_of())
    judged = judge.fn(run, PLAN, tmp_path, *refs)
    assert [ref.table for ref in judged if ref] == ["judgments", "gradings", "attempts"]
    assert sorted(row["response_id"] for row in rows(run, judged.gradings)) == [
        f"i{i}-{n}" for i in (1, 2) for n in range(3)
    ]
    assert {row["response_id"]: row["score"] for row in rows(run, judged.gradings)} == {
        f"i{i}-{n}": 10 * (n > 0) for i in (1, 2) for n in range(3)
    }
    assert [backend.calls for backend in used] == [4]


def test_a_backend_from_outside_is_one_registration_and_one_module(tmp_path, monkeypatch):
    toy = SimpleNamespace(open_backend=lambda *_: Scripted(right, model="toy-1"), model_of=lambda *_: "toy-1")
    monkeypatch.setitem(BACKENDS, "toy", RegisteredBackend("llm", reads_prose=True))
    monkeypatch.setitem(sys.modules, "rubricflow.tasks.core.llm.backends.toy", toy)
    run, *refs = prepared(tmp_path, bundle_of())
    judged = judge.fn(run, Judge(protocol="rulers", backend="toy"), tmp_path, *refs)
    graded = rows(run, judged.gradings)
    assert {(row["rater_id"], row["rater_kind"]) for row in graded} == {("toy:toy-1:rulers", "llm")}
    assert [row["score"] for row in graded] == [0, 10, 10] * 2
    assert {row["model"] for row in rows(run, judged.attempts)} == {"toy-1"}


@pytest.mark.parametrize("survived", [0, 1, 2, 3])
def test_a_killed_run_goes_on_where_it_was_and_ends_the_same(tmp_path, scripted, survived):
    scripted(right)
    whole, *refs = prepared(tmp_path / "whole", bundle_of())
    expected = judge.fn(whole, PLAN, tmp_path, *refs)

    run, *refs = prepared(tmp_path / "killed", bundle_of())
    answered = []

    def dying(request):
        if len(answered) == survived:
            raise KeyboardInterrupt
        answered.append(request.subject)
        return right(request)

    scripted(dying)
    with pytest.raises(KeyboardInterrupt):
        judge.fn(run, PLAN, tmp_path, *refs)
    used = scripted(right)
    assert judge.fn(run, PLAN, tmp_path, *refs) == expected
    again = [request.subject for request in used[-1].asked]
    assert sorted(answered + again) == ["i1-1", "i1-2", "i2-1", "i2-2"]


def test_a_kill_between_judging_and_writing_asks_nothing_twice(tmp_path, scripted, monkeypatch):
    used = scripted(right)
    run, *refs = prepared(tmp_path, bundle_of())
    commit = type(run).commit
    monkeypatch.setattr(type(run), "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        judge.fn(run, PLAN, tmp_path, *refs)
    monkeypatch.setattr(type(run), "commit", commit)
    judged = judge.fn(run, PLAN, tmp_path, *refs)
    subjects = [request.subject for backend in used for request in backend.asked]
    assert len(subjects) == len(set(subjects)) == 4
    assert any(row["stored"] for row in rows(run, judged.attempts))


def test_a_foreign_table_is_graded_beside_its_recorded_scores(tmp_path):
    (tmp_path / "raw.csv").write_text("id,reply,score\ni1-1,4 points,4\ni1-2,none,2\ni2-1,9,\n", encoding="utf-8")
    plan = Judge.model_validate({"protocol": "dhs", "backend": "replay", "foreign": FOREIGN})
    run, *refs = prepared(tmp_path, bundle_of("dhs"))
    judged = judge.fn(run, plan, tmp_path, *refs)
    found = {row["response_id"]: row for row in rows(run, judged.gradings)}
    assert {name: (row["score"], row["unscored_reason"]) for name, row in found.items()} == {
        "i1-0": (0, None),
        "i1-1": (8, None),
        "i1-2": (None, "unreadable_reply"),
        "i2-0": (0, None),
        "i2-1": (None, "off_scale"),
        "i2-2": (None, "no_reply"),
    }
    assert {name: dict(row["signals"]).get("recorded") for name, row in found.items()} == {
        "i1-0": None, "i1-1": 8, "i1-2": 4, "i2-0": None, "i2-1": None, "i2-2": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "message"), [('"light"', '"dark"', "changed after locking"), ('"id":"P",', "", "Field required")]
)
def test_a_tampered_bundle_is_refused_before_anything_is_asked(tmp_path, scripted, old, new, message):
    used = scripted(right)
    sound = bundle_of()
    tampered = SimpleNamespace(bundle_id=sound.bundle_id, canonical=lambda: sound.canonical().replace(old, new))
    run, *refs = prepared(tmp_path, tampered)
    with pytest.raises(ContractError, match=message):
        judge.fn(run, PLAN, tmp_path, *refs)
    assert [backend.calls for backend in used] == [0]


def test_cases_are_cut_in_the_order_of_their_ids(tmp_path):
    run, items, responses, bundles = prepared(tmp_path, bundle_of())
    item, locked = run.read(items).to_pylist()[0], run.read(bundles).to_pylist()[0]
    assert [case.response_id for case in cases_of(run, responses, item, locked)] == ["i1-0", "i1-1", "i1-2"]


def test_replies_are_kept_in_the_warehouse(tmp_path, scripted):
    scripted(right)
    run, *refs = prepared(tmp_path, bundle_of())
    judged = judge.fn(run, PLAN, tmp_path, *refs)
    digests = [row["request_digest"] for row in rows(run, judged.attempts)]
    with ReplyStore(run.warehouse.replies, read_only=True) as store:
        assert store.get_many(digests).keys() == set(digests)


def test_items_without_responses_are_nothing_to_judge(tmp_path):
    run = Warehouse.open(tmp_path / "house").run("run")
    run.commit("ingest", "all", {Items: [], Responses: []})
    run.commit("lock", "all", {Bundles: []})
    refs = run.ref(Items, "ingest"), run.ref(Responses, "ingest"), run.ref(Bundles, "lock")
    with pytest.raises(InputError, match="there are no responses to judge"):
        judge.fn(run, PLAN, tmp_path, *refs)


# Repeated samples through the door: everything is asked anew with the next seed, and told apart in every table.


BUNDLE = bundle(criterion("P", levels=THREE))


def by_seed(request):
    """Another level for every other seed."""
    quote = [{"unit": "s1", "quote": "plants need light"}]
    level = 1 + request.sampling.seed % 2
    return json.dumps({"decisions": {"P": {"evidence": quote, "level": level}}})


@pytest.fixture
def judged(tmp_path, monkeypatch):
    """The tables of two responses judged three times, and the backend."""
    backend = Scripted(by_seed)
    rater = Rater("scripted:test", "llm", backend, sampling=Sampling(seed=7, temperature=0.5))
    monkeypatch.setattr(shard_judge, "rater", lambda *given: rater)
    run = Warehouse.open(tmp_path / "house").run("run")
    refs = to_judge(run, BUNDLE, {"i": dict.fromkeys("ab", "plants need light")})
    plan = Judge(backend="replay", model="scripted", samples=3)
    made = judge.fn(run, plan, tmp_path, *refs)
    return {ref.table: run.read(ref).to_pylist() for ref in made[:3]}, backend


def test_each_sample_is_a_row_of_its_own_in_every_table(judged):
    tables, _ = judged
    for rows in tables.values():
        assert sorted((row["response_id"], row["sample"]) for row in rows) == [
            (name, sample) for name in ("a", "b") for sample in range(3)
        ]


def test_each_sample_has_the_next_seed_and_the_answer_to_it(judged):
    tables, _ = judged
    assert {row["sample"]: row["seed"] for row in tables["attempts"]} == {0: 7, 1: 8, 2: 9}
    assert {row["sample"]: row["score"] for row in tables["gradings"]} == {0: 10.0, 1: 5.0, 2: 10.0}


@pytest.mark.parametrize(
    ("more", "said"),
    [({"backend": "openai", "engine": {"model": "m"}}, "temperature"), ({"keep": "an-earlier-run"}, "keep")],
)
def test_samples_that_could_not_differ_are_refused(more, said):
    with pytest.raises(InputError, match=said):
        parse(Judge, {"samples": 2} | more, Path("study.yaml"))
