"""The door of calibrate, end to end on a small run."""

import hashlib

import numpy as np
import pytest
from builders.bundles import bundle, criterion, trait
from builders.rows import grading, item, locked, response
from builders.studies import study
from texts_scene import JUDGED, plan, run_of

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.calibrate.calibration import read_calibration
from rubricflow.tasks.grading.calibrate.features import Readers, TextSource, text_blocks
from rubricflow.tasks.grading.calibrate.predictions import Predictor, predict
from rubricflow.tasks.grading.calibrate.rows import Item
from rubricflow.tasks.grading.calibrate.task import calibrate

RULERS = {"minimum": 20, "method": "rulers"}
STUDY = study(calibration=RULERS)


def scored_on(*ends):
    """c1 and c2 of one trait, on a scale of the item's own."""
    signals = ("criteria", "trait_means", "length")
    points = criterion("c1"), criterion("c2")
    judged = {"name": "pointwise", "final_score": "weighted_points", "signals": signals}
    return bundle(*points, ends=ends, traits=(trait("t", 0, 3),), **judged)


BUNDLES = {"q1": scored_on(0, 5), "q2": scored_on(0, 2, 0.5)}
SIZES = {"q1": 60, "q2": 15}


def rows():
    """Responses, human gradings and machine gradings; every fifth response of q1 is for testing."""
    rng = np.random.default_rng(0)
    responses, people, machine = [], [], []
    for item_id, size in SIZES.items():
        top = BUNDLES[item_id].scale.max
        for at in range(size):
            key = f"{item_id}-{at}"
            split = "test" if at % 5 == 0 else "calibration"
            responses.append(response(key, item_id, split=split))
            one, two = rng.random(2)
            signals = {"criterion.c1": one, "criterion.c2": two, "mean.t": (one + two) / 2, "length": 5 + two}
            machine.append(grading(key, "m", float(round(top * (one + two) / 2)), item_id=item_id, signals=signals))
            if at != 5:
                noisy = np.clip((one + two) / 2 + rng.normal(0, 0.1, 2), 0, 1)
                people += [grading(key, f"h{k}", float(round(top * noisy[k])), item_id=item_id) for k in (0, 1)]
    machine[0] |= {"score": None, "signals": {}, "status": "unscored", "unscored_reason": "no_reply"}
    machine[1] |= {"score": 0.0, "signals": {"precheck": 1.0, "length": 0.0}, "status": "precheck"}
    return responses, people, machine


def written(root, responses, people, machine):
    """A run with what ingest, lock and judge would have written, and the references to it."""
    run = Warehouse.open(root).run("small")
    items = [item(name, rubric_id=f"rubric-{name}") for name in BUNDLES]
    bundles = [locked(one, f"rubric-{name}") for name, one in BUNDLES.items()]
    run.commit("ingest", "all", {Items: items, Responses: responses, Gradings: people})
    run.commit("lock", "all", {Bundles: bundles})
    half = len(machine) // 2
    for shard, part in (("00", machine[:half]), ("01", machine[half:])):
        run.commit("judge", shard, {Gradings: part})
    ingested = (run.ref(Items, "ingest"), run.ref(Responses, "ingest"), run.ref(Gradings, "ingest"))
    return run, (*ingested, run.ref(Gradings, "judge"), run.ref(Bundles, "lock"))


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    run, refs = written(tmp_path_factory.mktemp("small"), *rows())
    return run, refs, calibrate.fn(run, STUDY, *refs)


def test_every_graded_response_has_a_prediction_with_its_split(small):
    run, (_, responses, *_), done = small
    predictions = {row["response_id"]: row for row in run.read(done.predictions).to_pylist()}
    splits = {row["response_id"]: row["split"] for row in run.read(responses).to_pylist()}
    assert {key: row["split"] for key, row in predictions.items()} == splits
    assert predictions["q1-5"]["score"] is not None
    assert (predictions["q1-0"]["score"], predictions["q1-0"]["unscored_reason"]) == (None, "no_reply")
    assert (predictions["q1-1"]["score"], predictions["q1-1"]["calibration_id"]) == (0.0, None)
    assert {row["score"] for row in predictions.values() if row["item_id"] == "q2"} <= {0, 0.5, 1, 1.5, 2}


def test_the_mappings_are_stored_and_named_by_their_content(small):
    run, _, done = small
    stored = {row["scope"]: row for row in run.read(done.calibrations).to_pylist()}
    assert set(stored) == {"q1", "pooled"}
    assert all(row["calibration_id"] == hashlib.sha256(row["content"].encode()).hexdigest() for row in stored.values())
    own, pooled = stored["q1"], stored["pooled"]
    assert (own["method"], own["n"], own["target"]) == ("rulers", 47, "mean")
    assert own["features"] == ["criterion.c1", "criterion.c2", "mean.t", "length"]
    assert (pooled["method"], pooled["n"], pooled["left_out"]) == ("rulers", 12, [])
    used = {row["item_id"]: row["calibration_id"] for row in run.read(done.predictions).to_pylist() if row["latent"]}
    assert used == {"q1": own["calibration_id"], "q2": pooled["calibration_id"]}


def test_all_candidates_and_the_promise_of_every_item_are_stored(small):
    run, _, done = small
    candidates = run.read(done.candidates).to_pylist()
    assert sorted({(row["scope"], row["chosen"], row["method"]) for row in candidates if row["chosen"]}) == [
        ("pooled", True, "rulers"),
        ("q1", True, "rulers"),
    ]
    assert len(candidates) == 14
    assert [row["scope"] for row in run.read(done.release_rules).to_pylist()] == ["q1", "q2"]


def test_predictions_in_many_parts_are_the_same_and_a_killed_run_continues(small, tmp_path, monkeypatch):
    _, _, done = small
    run, refs = written(tmp_path / "other", *rows())
    monkeypatch.setattr("rubricflow.tasks.grading.calibrate.task.SHARD_ROWS", 20)
    commit = type(run).commit

    def killed(self, stage, shard, tables):
        if shard == "predictions-00002":
            raise KeyboardInterrupt
        commit(self, stage, shard, tables)

    monkeypatch.setattr(type(run), "commit", killed)
    with pytest.raises(KeyboardInterrupt):
        calibrate.fn(run, STUDY, *refs)
    assert not run.done("calibrate", "all")
    monkeypatch.setattr(type(run), "commit", commit)
    again = calibrate.fn(run, STUDY, *refs)
    assert [ref.digest for ref in again] == [ref.digest for ref in done]
    assert calibrate.fn(run, STUDY, *refs) == again
    assert list(run.shards("calibrate")) == ["all", "fitted", *(f"predictions-{number:05d}" for number in range(4))]


def test_neither_gradings_nor_responses_are_read_whole(tmp_path, monkeypatch):
    run, refs = written(tmp_path / "w", *rows())
    monkeypatch.setattr("rubricflow.tasks.grading.calibrate.task.SHARD_ROWS", 20)
    taught = sum(row["split"] == "calibration" for row in run.read(refs[1]).to_pylist())
    sizes, read = [], type(run).read

    def counted(self, ref, *more):
        table = read(self, ref, *more)
        sizes.append((ref.table, ref.stage, len(table)))
        return table

    monkeypatch.setattr(type(run), "read", counted)
    calibrate.fn(run, STUDY, *refs)
    most = {name: max(size for *table, size in sizes if table == list(name)) for name in {row[:2] for row in sizes}}
    assert most["responses", "ingest"] == most["gradings", "judge"] == taught
    assert sum(size == taught for *_, size in sizes) == 2  # once, to be fitted on


def test_order_and_sharding_of_the_inputs_change_nothing(tmp_path):
    plan = study(calibration=RULERS | {"method": "choose"})
    run, refs = written(tmp_path / "one", *rows())
    done = calibrate.fn(run, plan, *refs)
    run, refs = written(tmp_path / "other", *(part[::-1] for part in rows()))
    again = calibrate.fn(run, plan, *refs)
    assert [ref.digest for ref in again] == [ref.digest for ref in done]


def test_two_raters_are_refused_and_nothing_is_written(tmp_path):
    responses, people, machine = rows()
    run, refs = written(tmp_path / "w", responses, people, [*machine, machine[3] | {"rater_id": "other"}])
    with pytest.raises(ContractError, match="m, other"):
        calibrate.fn(run, STUDY, *refs)
    assert not run.done("calibrate", "all")


def test_no_gradings_leave_empty_predictions(tmp_path):
    responses, people, _ = rows()
    run, refs = written(tmp_path / "w", responses, people, [])
    done = calibrate.fn(run, STUDY, *refs)
    assert done.predictions.rows == 0
    assert run.read(done.calibrations)["method"].to_pylist() == ["identity"]


def test_a_second_call_changes_nothing(small):
    run, refs, done = small
    assert calibrate.fn(run, STUDY, *refs) == done


def test_the_target_may_be_one_rater(tmp_path):
    run, refs = written(tmp_path / "w", *rows())
    done = calibrate.fn(run, study(calibration=RULERS, evaluation={"target": "h1"}), *refs)
    assert set(run.read(done.calibrations)["target"].to_pylist()) == {"h1"}


# The door of calibrate where mappings take what the texts tell: stored, told apart, killed and applied later.


def predictions(run, done):
    return {row["response_id"]: row for row in run.read(done.predictions).to_pylist()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run in packs of 20, what calibrate took of it, and what it wrote."""
    run, refs = run_of(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rubricflow.tasks.grading.calibrate.task.SHARD_ROWS", 20)
        return run, refs, calibrate.fn(run, plan(), *refs)


def test_every_score_tells_its_parts_and_stands_beside_the_text_alone(whole):
    run, _, done = whole
    stored = {row["scope"]: read_calibration(row["content"]) for row in run.read(done.calibrations).to_pylist()}
    assert {name: mapping.texts for name, mapping in stored.items()} == {
        "p": ("characters", "embedding"),
        "pooled": ("characters", "embedding"),
    }
    for row in predictions(run, done).values():
        mapping = stored["p" if row["item_id"] == "p" else "pooled"].mapping
        parts = row["points_judge"] + row["points_text"] + row["points_item"]
        assert mapping.intercept * 3 / (mapping.high - mapping.low) + parts == pytest.approx(row["latent"])
        assert row["text_only"] in (0, 1, 2, 3)
        assert row["item_id"] != "empty" or row["points_item"] == 0


def test_a_method_that_takes_no_text_reads_none(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "rubricflow.tasks.grading.calibrate.predictions.minilm", lambda: pytest.fail("the encoder was loaded")
    )
    run, refs = run_of(tmp_path / "w")
    rows = predictions(run, calibrate.fn(run, plan(method="linear"), *refs))
    assert {row["text_only"] for row in rows.values()} == {None}
    assert {row["points_text"] for row in rows.values()} == {None}


def test_killed_between_packs_it_goes_on_and_predicts_no_pack_twice(whole, tmp_path, monkeypatch):
    monkeypatch.setattr("rubricflow.tasks.grading.calibrate.task.SHARD_ROWS", 20)
    expected = whole[0].read(whole[2].predictions)
    run, refs = run_of(tmp_path / "killed")
    write, written = Predictor.write, []

    def dying(self, pack):
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(pack.name)
        write(self, pack)

    monkeypatch.setattr(Predictor, "write", dying)
    with pytest.raises(KeyboardInterrupt):
        calibrate.fn(run, plan(), *refs)
    monkeypatch.setattr(Predictor, "write", lambda own, pack: (written.append(pack.name), write(own, pack)))
    monkeypatch.setattr(
        "rubricflow.tasks.grading.calibrate.task.fit_items", lambda *_: pytest.fail("it was fitted again")
    )
    assert run.read(calibrate.fn(run, plan(), *refs).predictions).equals(expected)
    assert written == [f"predictions-{number:05d}" for number in range(5)]


def test_applied_later_it_needs_the_texts_and_gives_the_same(whole):
    run, refs, done = whole
    row = next(row for row in run.read(done.calibrations).to_pylist() if row["scope"] == "p")
    own = run.read(refs[3]).filter([name == "p" for name in run.read(refs[3])["item_id"].to_pylist()])
    mapping, item = read_calibration(row["content"]), Item("p", JUDGED, own)
    texts = {row["response_id"]: row["text"] for row in run.read(refs[1]).to_pylist()}
    with pytest.raises(ContractError, match="goes by characters, embedding, length, reference of the texts"):
        predict(mapping, item)

    said = [texts[name] for name in own["response_id"].to_pylist()]
    source = TextSource(said, "", "water passes a membrane", "")
    blocks = text_blocks(source, ("characters", "embedding"), Readers(encode=minilm()))
    known = predictions(run, done)
    for later in predict(mapping, item._replace(blocks=blocks)).to_pylist():
        assert later["score"] == known[later["response_id"]]["score"]
        assert later["latent"] == pytest.approx(known[later["response_id"]]["latent"], abs=1e-5)
