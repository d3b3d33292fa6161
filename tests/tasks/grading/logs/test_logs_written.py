"""Calibrated scores go back in the form in which the tool takes them, every other word of its log untouched."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.grading.logs.record import Log
from rubricflow.tasks.grading.logs.study import COLUMNS, NEW, scored, written

RECORDED = Path(__file__).parent / "recorded"
TIME = "2026-11-27T08:00:00+00:00"


def predictions(log: Log) -> pd.DataFrame:
    ids = log.verdicts["answer_id"].tolist()
    return pd.DataFrame(
        {
            "response_id": ids,
            "score": [0.5 + place for place in range(len(ids))],
            "low": [0.0] * len(ids),
            "high": [4.0] * len(ids),
            "risk": [0.25] * len(ids),
            "route": ["release", *["review"] * (len(ids) - 1)],
            "route_reason": [None, *["too_risky"] * (len(ids) - 1)],
        }
    )


@pytest.mark.parametrize("name", ["inspect.eval", "inspect.json"])
def test_inspect_score_edits_keep_all_else_and_the_history(tmp_path: Path, name: str) -> None:
    log = read_log([RECORDED / name]).of("points")
    edited = json.loads(written(log, scored(log, predictions(log)), tmp_path / "edited.json", TIME))
    before = {sample["id"]: sample for sample in json.loads((RECORDED / "inspect.json").read_text())["samples"]}
    for place, sample in enumerate(edited["samples"]):
        points = sample["scores"]["points"]
        assert points["value"] == 0.5 + place
        first, last = points["history"]
        assert (first["value"], last["value"]) == (before[sample["id"]]["scores"]["points"]["value"], 0.5 + place)
        assert last["provenance"]["metadata"]["relied_on"] is (place == 0)
        assert (
            sample["scores"]["model_graded_qa"]["value"] == before[sample["id"]]["scores"]["model_graded_qa"]["value"]
        )
        assert sample["messages"][-1]["content"] == before[sample["id"]]["messages"][-1]["content"]
    (tmp_path / "edited.json").write_text(json.dumps(edited))
    again = read_log([tmp_path / "edited.json"]).of("points")
    assert again.verdicts["score"].tolist() == [0.5, 1.5, 2.5, 3.5]
    assert again.judge.digest == log.judge.digest


def test_a_table_holds_every_answer_and_runs_nothing(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(json.dumps({"id": name, "score": 1}) for name in ("=1+1", "b")))
    log = read_log([file])
    rows = list(csv.DictReader(written(log, scored(log, predictions(log)), tmp_path / "to.csv", TIME).splitlines()))
    assert [*rows[0]] == [*COLUMNS]
    assert [row["score"] for row in rows] == ["0.5", "1.5"]
    assert [row["relied_on"] for row in rows] == ["True", "False"]
    assert rows[0]["answer_id"] != "=1+1"
    assert rows[0]["answer_id"].endswith("=1+1")


def test_answers_of_an_earlier_calibration_do_not_take_the_place_of_new_ones(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps({"id": "a", "score": 1}))
    log = read_log([file])
    made = predictions(log)
    both = pd.concat([made, made.assign(response_id=NEW + made["response_id"], score=9.0)])
    assert scored(log, both)["score"].tolist() == [9.0]


def test_langfuse_and_phoenix(tmp_path: Path) -> None:
    file = tmp_path / "langfuse.json"
    score = {
        "traceId": "t1",
        "observationId": "o1",
        "name": "kind",
        "source": "EVAL",
        "dataType": "NUMERIC",
        "value": 1,
    }
    file.write_text(json.dumps([score]))
    log = read_log([file])
    (line,) = written(log, scored(log, predictions(log)), tmp_path / "to.jsonl", TIME).splitlines()
    given = json.loads(line)
    assert (given["traceId"], given["observationId"], given["value"]) == ("t1", "o1", 0.5)
    file.write_text(json.dumps([{"span_id": "s1", "name": "kind", "annotator_kind": "LLM", "result": {"score": 1}}]))
    log = read_log([file])
    (note,) = json.loads(written(log, scored(log, predictions(log)), tmp_path / "to.json", TIME))["data"]
    assert (note["span_id"], note["annotator_kind"], note["result"]["score"]) == ("s1", "CODE", 0.5)


def test_a_tool_that_takes_no_scores_is_named(tmp_path: Path) -> None:
    log = read_log([RECORDED / "deepeval.json"])
    with pytest.raises(InputError, match="deepeval"):
        written(log, scored(log, predictions(log)), tmp_path / "to.json", TIME)
