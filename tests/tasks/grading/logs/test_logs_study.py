"""A log and labels as a study: scales by what people used, one response a criterion, promises that ask something; and
calibrated scores back in the form in which the tool takes them, every other word of its log untouched."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
import yaml

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.settings.written import parse
from rubricflow.tasks.core.text.traces import turns
from rubricflow.tasks.grading.lock.rubric import authored
from rubricflow.tasks.grading.logs.labels import read_labels
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.grading.logs.record import Log, LogScale
from rubricflow.tasks.grading.logs.study import (
    COLUMNS,
    NEW,
    NO_ANSWER,
    LogStudy,
    appended,
    people_scale,
    scored,
    study_of,
    written,
)


@pytest.mark.parametrize(
    ("judge", "people", "expected"),
    [
        ((0, 1), [0, 1, 1], (0, 1, 1)),
        ((0, 1), [0, 0.5], (0, 1, 0.5)),
        ((0, 1), [1, 3, 5], (1, 5, 1)),
        ((1, 10), [2, 7], (1, 10, 1)),
        ((0, 4), [0, 1] * 5, (0, 1, 1)),
        ((0, 4), [0, 1], (0, 4, 1)),
        ((1, 1), [1], (0, 1, 1)),
        ((0, 1), [], (0, 1, 1)),
        ((0, 1), [1 / 3], (0, 1, 0.01)),
    ],
)
def test_scores_are_calibrated_to_the_scale_that_people_used(
    judge: tuple[float, float], people: list[float], expected: tuple[float, float, float]
) -> None:
    found = people_scale(LogScale(*judge, told=False), [float(score) for score in people])
    assert found == expected
    Scale(min=found[0], max=found[1], step=found[2])


def made_of(tmp_path: Path, rows: list[dict[str, object]], labels: str) -> LogStudy:
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "labels.csv").write_text(labels)
    log = read_log([tmp_path / "log.jsonl"])
    return study_of(log, read_labels(tmp_path / "labels.csv", log), "made")


def test_criteria_are_items_and_the_files_are_a_study(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": case, "criterion": criterion, "score": score, "answer": f"text {case}", "explanation": "since"}
        for case in ("a", "b", "c")
        for criterion, score in (("clear", 1), ("deep", 7.5))
    ]
    made = made_of(tmp_path, rows, "id,clear,deep\na,1,5\nb,0,\n")
    assert made.answers["response_id"].tolist() == [f"{case}|{name}" for case in "abc" for name in ("clear", "deep")]
    assert made.answers["author"].tolist() == [case for case in "abc" for _ in range(2)]
    assert len(made.labels) == 3
    (tmp_path / "rubrics.yaml").write_text(yaml.safe_dump(made.rubrics))
    assert [*authored(tmp_path / "rubrics.yaml")] == ["clear", "deep"]
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(made.study))
    study = parse(Study, made.study, tmp_path / "study.yaml")
    assert study.log is not None
    assert study.release.tolerance == 0


def test_scores_keep_their_place_on_the_scale_to_a_millionth(tmp_path: Path) -> None:
    scores = [0.123456, 2.5, 4.0]
    made = made_of(tmp_path, [{"id": f"a{at}", "score": score} for at, score in enumerate(scores)], "id,score\na0,0\n")
    scale = made.rubrics["rubrics"][0]["scale"]
    back = [scale["min"] + int(reply) / 1_000_000 * (4.0 - 0.123456) for reply in made.verdicts["reply"]]
    assert back == pytest.approx([score - 0.123456 + scale["min"] for score in scores], abs=1e-5)
    assert made.answers["text"].tolist() == [NO_ANSWER] * 3
    assert "explanation" not in made.study["judge"]["foreign"]


def test_a_promise_that_one_score_for_all_would_keep_is_made_exact(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"id": f"a{at}", "score": at % 11} for at in range(40)]
    alike = "".join(f"a{at},{5 + at % 2}\n" for at in range(40))
    spread = "".join(f"a{at},{at % 11}\n" for at in range(40))
    tolerances = [
        made_of(tmp_path, rows, f"id,score\n{labels}").study["release"]["tolerance"] for labels in (alike, spread)
    ]
    assert tolerances == [0, 1]


def test_repeated_judgments_are_samples(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"id": "a", "score": score} for score in (1, 2)] + [{"id": "b", "score": 3}]
    made = made_of(tmp_path, rows, "id,score\na,1\n")
    assert (made.study["judge"]["samples"], len(made.answers)) == (2, 2)
    assert isinstance(made.verdicts, pd.DataFrame)
    assert made.verdicts["sample"].tolist() == [0, 1, 0]


TALK = [{"role": "user", "content": "Why?"}, {"role": "assistant", "tool_calls": [{"name": "look", "args": {}}]}]


@pytest.mark.parametrize("first", [True, False])
def test_conversations_and_plain_answers_of_two_logs_become_one_kind(tmp_path: Path, first: bool) -> None:
    plain = [{"id": f"a{n}", "score": n, "answer": f"text {n}"} for n in range(2)]
    told = [{"id": f"b{n}", "score": n, "answer": f"text {n}", "messages": TALK} for n in range(2)]
    made = [made_of(tmp_path, rows, f"id,score\n{rows[0]['id']},1\n") for rows in (plain, told)]
    assert [one.answers["traces"].all() for one in made] == [False, True]
    earlier, new = made if first else made[::-1]
    tables = {name: getattr(earlier, name) for name in ("answers", "verdicts", "labels", "marks")}
    whole = appended(new, tables)
    assert whole.study["data"]["sources"][0]["traces"] is True
    texts = dict(zip(whole.answers["response_id"], whole.answers["text"], strict=True))
    assert [turn.text for turn in turns(texts["a0"])] == ["text 0"]
    assert [turn.kind for turn in turns(texts["b0"])] == ["user", "call", "assistant"]


def test_a_question_with_its_answer_stays_a_text_and_an_unknown_form_too(tmp_path: Path) -> None:
    asked = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    for messages in (asked, [*TALK, {"role": "cat", "content": "miaow"}]):
        rows: list[dict[str, object]] = [{"id": "a", "score": 1, "answer": "So.", "messages": messages}]
        made = made_of(tmp_path, [*rows, {"id": "b", "score": 0, "answer": "No."}], "id,score\na,1\n")
        assert made.answers["text"].tolist() == ["So.", "No."]
        assert "traces" not in made.study["data"]["sources"][0]


def test_an_earlier_calibration_brings_the_criteria_of_the_new_log_alone(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"id": case, "criterion": criterion, "score": 1} for case in ("a", "b") for criterion in ("clear", "deep")
    ]
    before = made_of(tmp_path, rows, "id,clear,deep\na,1,0\n")
    later: list[dict[str, object]] = [{"id": case, "criterion": "deep", "score": 0} for case in ("a|deep", "c")]
    new = made_of(tmp_path, later, "id,score\nc,1\n")
    both = appended(new, {name: getattr(before, name) for name in ("answers", "verdicts", "labels", "marks")})
    assert both.answers["response_id"].tolist() == ["a|deep", f"{NEW}a|deep", "c"]
    assert both.verdicts["response_id"].tolist() == ["a|deep", f"{NEW}a|deep", "c"]
    assert both.labels["response_id"].tolist() == both.marks["response_id"].tolist() == ["a|deep"]


def test_conversations_alone_are_texts_in_which_quotes_are_looked_for(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"id": f"a{n}", "score": n, "messages": TALK, "explanation": "so"} for n in (0, 1)]
    made = made_of(tmp_path, rows, "id,score\na1,1\n")
    assert made.study["judge"]["foreign"]["explanation"] == "explanation"


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
