"""The door of calibrate where mappings take what the texts tell: stored, told apart, killed and applied later."""

import pytest
from texts_scene import JUDGED, plan, run_of

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.grading.calibrate.calibration import read_calibration
from rubricflow.tasks.grading.calibrate.features import Readers, TextSource, text_blocks
from rubricflow.tasks.grading.calibrate.predictions import Predictor, predict
from rubricflow.tasks.grading.calibrate.rows import Item
from rubricflow.tasks.grading.calibrate.task import calibrate


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
