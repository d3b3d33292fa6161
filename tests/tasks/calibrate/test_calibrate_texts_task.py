"""The door of calibrate where mappings take what the texts tell: stored, told apart, killed and applied later."""

import numpy as np
import pytest
from builders.bundles import bundle, criterion, trait
from builders.models import byte_model
from builders.rows import grading, item, locked, response
from builders.studies import study

from tasks.calibrate.calibration import read_calibration
from tasks.calibrate.predict import apply_later
from tasks.calibrate.task import calibrate
from tasks.calibrate.texts import Readers, TextSource, text_blocks
from tasks.contracts.errors import ContractError
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.judging import Gradings
from tasks.contracts.tables.rubrics import Bundles
from tasks.llm.encoder import minilm
from tasks.store.warehouse import Warehouse

WORDS = ("membrane", "water", "energy", "salt", "gate", "cell")
JUDGED = bundle(
    criterion("c1"),
    ends=(0, 3),
    traits=(trait("t", 0, 3),),
    name="pointwise",
    final_score="weighted_points",
    signals=("criteria", "length"),
)
SIZES = {"p": 60, "q": 20, "empty": 4}
"""Item → responses; of the last no label calibrates."""


def run_of(root):
    """A run whose scores lie partly in the words and partly in the judge's decision, and what calibrate takes of it."""
    rng = np.random.default_rng(0)
    responses, people, machine = [], [], []
    for item_id, size in SIZES.items():
        for at in range(size):
            key, said, level = f"{item_id}-{at:02d}", rng.random(len(WORDS)) < 0.5, rng.random()
            text = " ".join(word for word, used in zip(WORDS, said, strict=True) if used)
            split = "test" if at % 4 == 0 or item_id == "empty" else "calibration"
            responses.append(response(key, item_id, text=text, split=split))
            signals = {"criterion.c1": level, "length": float(len(text))}
            machine.append(grading(key, "m", float(round(3 * level)), item_id=item_id, signals=signals))
            score = float(np.clip(round(said[0] + said[1] + level), 0, 3))
            people.append(grading(key, "h", score, item_id=item_id))
    run = Warehouse.open(root).run("small")
    items = [item(name, rubric_id="r", reference_answer="water passes a membrane") for name in SIZES]
    run.commit("ingest", "all", {Items: items, Responses: responses, Gradings: people})
    run.commit("lock", "all", {Bundles: [locked(JUDGED, "r")]})
    run.commit("judge", "all", {Gradings: machine})
    ingested = (run.ref(Items, "ingest"), run.ref(Responses, "ingest"), run.ref(Gradings, "ingest"))
    return run, (*ingested, run.ref(Gradings, "judge"), run.ref(Bundles, "lock"))


def plan(**calibration):
    return study(calibration={"minimum": 20, "method": "stacked"} | calibration)


def predictions(run, done):
    return {row["response_id"]: row for row in run.read(done.predictions).to_pylist()}


def test_every_score_tells_its_parts_and_stands_beside_the_text_alone(tmp_path):
    run, refs = run_of(tmp_path / "w")
    done = calibrate.fn(run, plan(), *refs)
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
    monkeypatch.setattr("tasks.calibrate.task.minilm", lambda: pytest.fail("the encoder was loaded"))
    run, refs = run_of(tmp_path / "w")
    rows = predictions(run, calibrate.fn(run, plan(method="linear"), *refs))
    assert {row["text_only"] for row in rows.values()} == {None}
    assert {row["points_text"] for row in rows.values()} == {None}


def test_hidden_states_are_one_more_block(tmp_path):
    run, refs = run_of(tmp_path / "w")
    folder = str(byte_model(tmp_path / "model"))
    asked = plan(features=["judge", "hidden"], language_model=folder)
    done = calibrate.fn(run, asked, *refs)
    for row in run.read(done.calibrations).to_pylist():
        blocks = {block.name for block in read_calibration(row["content"]).mapping.blocks}
        assert {"judge", "hidden"} <= blocks <= {"judge", "hidden", "item"}
    assert all(row["points_text"] is not None for row in predictions(run, done).values())


def test_killed_between_parts_it_goes_on_to_the_same_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("tasks.calibrate.task.SHARD_ROWS", 20)
    run, refs = run_of(tmp_path / "whole")
    expected = run.read(calibrate.fn(run, plan(), *refs).predictions)
    run, refs = run_of(tmp_path / "killed")
    commit, made = type(run).commit, []

    def dying(self, stage, shard, tables):
        if stage == "calibrate" and len(made) == 2:
            raise KeyboardInterrupt
        made.append(shard)
        commit(self, stage, shard, tables)

    monkeypatch.setattr(type(run), "commit", dying)
    with pytest.raises(KeyboardInterrupt):
        calibrate.fn(run, plan(), *refs)
    monkeypatch.setattr(type(run), "commit", commit)
    assert run.read(calibrate.fn(run, plan(), *refs).predictions).equals(expected)


def test_applied_later_it_needs_the_texts_and_gives_the_same(tmp_path):
    run, refs = run_of(tmp_path / "w")
    done = calibrate.fn(run, plan(), *refs)
    row = next(row for row in run.read(done.calibrations).to_pylist() if row["scope"] == "p")
    own = run.read(refs[3]).filter([name == "p" for name in run.read(refs[3])["item_id"].to_pylist()])
    texts = {row["response_id"]: row["text"] for row in run.read(refs[1]).to_pylist()}
    with pytest.raises(ContractError, match="goes by characters, embedding, reference of the texts"):
        apply_later(row["content"], own, JUDGED)

    def blocks_of(names):
        source = TextSource([texts[name] for name in names], "", "water passes a membrane", "")
        return text_blocks(source, ("characters", "embedding"), Readers(encode=minilm()))

    known = predictions(run, done)
    for later in apply_later(row["content"], own, JUDGED, blocks_of).to_pylist():
        assert later["score"] == known[later["response_id"]]["score"]
        assert later["latent"] == pytest.approx(known[later["response_id"]]["latent"], abs=1e-5)
