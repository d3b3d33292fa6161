"""Every tool's form, told by content: logs of real runs, and small ones written as the tools' documents say."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rubricflow.tasks.grading.logs.forms import forms
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.grading.logs.record import VERDICTS, Log

RECORDED = Path(__file__).parent / "recorded"


def log_of(tmp_path: Path, content: Any, name: str = "unnamed") -> Log:
    file = tmp_path / name
    file.write_text(json.dumps(content), encoding="utf-8")
    return read_log([file])


def lines_of(tmp_path: Path, rows: list[Any]) -> Log:
    file = tmp_path / "unnamed"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return read_log([file])


def first(log: Log) -> dict[str, Any]:
    return dict(log.verdicts.iloc[0])


def test_every_form_gives_known_columns_only() -> None:
    more = {"draw", "error", "person", "rater"}
    for form in forms():
        assert form.columns.keys() <= VERDICTS.keys() | more
        assert form.judge.keys() <= {"model", "prompt", "rubric", "settings"}


def test_promptfoo_of_a_real_run() -> None:
    log = read_log([RECORDED / "promptfoo.json"])
    raw = json.loads((RECORDED / "promptfoo.json").read_text())["results"]["results"]
    rain = log.of("rain").verdicts
    assert (log.judge.tool, log.judge.version) == ("promptfoo", "0.121.20")
    assert rain["score"].tolist() == [one["namedScores"]["rain"] for one in raw]
    assert rain["answer"].tolist() == [one["response"]["output"] for one in raw]
    assert rain["status"].eq("scored").all(), "a failed assertion is no error"
    assert log.judge.told["rain: rubric"] == raw[0]["gradingResult"]["componentResults"][0]["assertion"]["value"]
    assert "{answer}" in log.judge.told["prompt"]
    assert log.scales["rain"] == (0, 1, True)


def test_deepeval_of_a_real_run() -> None:
    log = read_log([RECORDED / "deepeval.json"])
    raw = json.loads((RECORDED / "deepeval.json").read_text())["testRunData"]["testCases"]
    assert log.verdicts["score"].tolist() == [one["metricsData"][0]["score"] for one in raw]
    assert log.verdicts["case_id"].tolist() == [one["name"] for one in raw]
    assert log.judge.told["model"] == "scripted-judge"
    assert "Score" not in log.judge.told["rubric"]


def test_lm_eval_of_a_real_run_with_the_results_beside_it() -> None:
    log = read_log([RECORDED / "lm_eval"])
    raw = [json.loads(line) for line in (RECORDED / "lm_eval/samples_rain.jsonl").read_text().splitlines()]
    assert log.of("points").verdicts["score"].tolist() == [float(one["points"]) for one in raw]
    assert log.of("points").verdicts["answer"].tolist() == [one["resps"][0][0] for one in raw]
    assert (log.judge.version, first(log)["group"]) == ("0.4.13", "rain")
    assert "process_results" in log.judge.told["rubric"]


def test_openai_evals_events(tmp_path: Path) -> None:
    events = [
        {"spec": {"completion_fns": ["student", "grader"], "eval_name": "rain.v0"}},
        {"sample_id": "r.0", "type": "sampling", "data": {"prompt": "How?", "sampled": ["It cools."]}},
        {"sample_id": "r.0", "type": "sampling", "data": {"prompt": "Grade", "sampled": ["Good. Y"]}},
        {"sample_id": "r.0", "type": "metrics", "data": {"choice": "Y", "score": 1.0}},
        {"final_report": {"score": 1.0}},
    ]
    log = lines_of(tmp_path, events)
    row = first(log)
    assert (log.judge.tool, log.judge.told["model"]) == ("openai evals", "grader")
    assert (row["subject"], row["answer"], row["explanation"], row["score"]) == ("student", "It cools.", "Good. Y", 1.0)


def test_openai_graders_items(tmp_path: Path) -> None:
    item = {
        "object": "eval.run.output_item",
        "datasource_item_id": 3,
        "results": [
            {"name": "clear", "score": 0.5, "passed": False, "sample": {"model": "judge-1", "output": "so so"}}
        ],
        "sample": {
            "model": "subject-1",
            "input": [{"role": "user", "content": "How?"}],
            "output": [{"role": "assistant", "content": "It cools."}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3},
        },
    }
    log = log_of(tmp_path, {"object": "list", "data": [item]})
    row = first(log)
    assert (log.judge.tool, log.judge.told["model"]) == ("openai graders", "judge-1")
    assert (row["question"], row["answer"], row["score"], row["output_tokens"]) == ("How?", "It cools.", 0.5, 3)


def test_langfuse_scores_and_its_annotations(tmp_path: Path) -> None:
    def score(source: str, value: float, **more: Any) -> dict[str, Any]:
        return {"traceId": "t1", "name": "helpful", "source": source, "dataType": "NUMERIC", "value": value, **more}

    scores = [score("EVAL", 0.8, comment="clear"), score("ANNOTATION", 1.0, authorUserId="ann")]
    log = log_of(tmp_path, {"data": scores, "meta": {"page": 1}})
    assert (log.judge.tool, len(log.verdicts), first(log)["explanation"]) == ("langfuse", 1, "clear")
    assert log.labels.iloc[0].to_dict() == {
        "answer_id": "t1",
        "criterion": "helpful",
        "rater": "ann",
        "score": 1.0,
        "split": None,
    }


def test_phoenix_annotations(tmp_path: Path) -> None:
    rows = [
        {"span_id": "s1", "name": "qa", "annotator_kind": kind, "result": {"label": label, "explanation": "why"}}
        for kind, label in (("LLM", "correct"), ("HUMAN", "incorrect"))
    ]
    log = log_of(tmp_path, rows)
    assert (log.judge.tool, first(log)["score"], first(log)["reference"]) == ("phoenix", 1.0, "s1")
    assert log.labels["score"].tolist() == [0.0]


def test_langsmith_feedback_and_experiments(tmp_path: Path) -> None:
    feedback = [{"run_id": "r1", "key": "exact", "score": 1, "feedback_source": {"type": "model"}, "comment": "same"}]
    log = log_of(tmp_path, feedback)
    assert (log.judge.tool, first(log)["criterion"], first(log)["explanation"]) == ("langsmith", "exact", "same")
    rows = [{"inputs.question": "How?", "outputs.answer": "It cools.", "feedback.exact": True, "example_id": "e1"}]
    row = first(lines_of(tmp_path, rows))
    assert (row["case_id"], row["criterion"], row["score"]) == ("e1", "exact", 1.0)
    assert (row["question"], row["answer"]) == ("How?", "It cools.")


def test_mlflow_assessments_and_both_tables(tmp_path: Path) -> None:
    made = {"assessment_name": "safe", "source": {"source_type": "LLM_JUDGE", "source_id": "judge-1"}}
    trace = {"trace_id": "tr-1", "request": "How?", "response": "It cools."}
    log = log_of(tmp_path, [{**trace, "assessments": [{**made, "feedback": {"value": "yes"}, "rationale": "mild"}]}])
    assert (log.judge.told["model"], first(log)["score"], first(log)["explanation"]) == ("judge-1", 1.0, "mild")
    old = {
        "columns": ["inputs", "outputs", "similar/v1/score", "similar/v1/justification"],
        "data": [["How?", "It cools.", 4, "close"]],
    }
    row = first(log_of(tmp_path, old))
    assert (row["criterion"], row["score"], row["explanation"]) == ("similar", 4.0, "close")
    new = [{"request": "How?", "response": "It cools.", "safe/value": "no", "safe/rationale": "harsh"}]
    row = first(log_of(tmp_path, new))
    assert (row["criterion"], row["score"], row["explanation"]) == ("safe", 0.0, "harsh")


def test_verifiers_and_trl_completions(tmp_path: Path) -> None:
    said = [{"role": "assistant", "content": "It cools."}]
    asked = [{"role": "user", "content": "How?"}]
    log = lines_of(tmp_path, [{"example_id": 4, "prompt": asked, "completion": said, "reward": 0.5, "clear": 1.0}])
    assert log.judge.tool == "verifiers"
    assert set(log.verdicts["criterion"]) == {"reward", "clear"}
    assert (first(log)["case_id"], first(log)["answer"]) == ("4", "It cools.")
    table = {"step": [1, 1], "prompt": ["How?"] * 2, "completion": ["It cools.", "No."], "fits": [1.0, 0.0]}
    pq.write_table(pa.table({**table, "advantage": [0.7, -0.7]}), tmp_path / "completions")
    log = read_log([tmp_path / "completions"])
    assert (log.judge.tool, log.verdicts["score"].tolist()) == ("trl", [1.0, 0.0])
    assert log.verdicts["case_id"].nunique() == 1
    assert log.verdicts["answer_id"].nunique() == 2


TRACES: dict[str, tuple[list[Any], list[Any]]] = {
    "langfuse": (
        [{"traceId": "x1", "name": "kind", "source": "EVAL", "dataType": "NUMERIC", "value": 1}],
        [{"id": "x1", "projectId": "p", "timestamp": "t", "input": {"question": "How?"}, "output": "It cools."}],
    ),
    "phoenix": (
        [{"span_id": "x1", "name": "kind", "annotator_kind": "LLM", "result": {"score": 1}}],
        [
            {
                "context.span_id": "x1",
                "span_kind": "LLM",
                "attributes.input.value": "How?",
                "attributes.output.value": "It cools.",
            }
        ],
    ),
    "langsmith": (
        [{"run_id": "x1", "key": "kind", "score": 1, "feedback_source": {"type": "model"}}],
        [{"id": "x1", "run_type": "llm", "inputs": {"input": "How?"}, "outputs": {"output": "It cools."}}],
    ),
}


@pytest.mark.parametrize("tool", TRACES)
def test_traces_beside_scores_bring_the_texts(tmp_path: Path, tool: str) -> None:
    for name, content in zip(("scores", "traces"), TRACES[tool], strict=True):
        (tmp_path / name).write_text(json.dumps(content))
    log = read_log([tmp_path])
    row = first(log)
    assert (log.judge.tool, len(log.verdicts), row["answer"]) == (tool, 1, "It cools.")
    assert "How?" in row["question"]
    assert first(read_log([tmp_path / "scores"]))["answer"] is None


def test_logs_of_two_tools_are_not_one(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="several tools"):
        read_log([RECORDED / "promptfoo.json", RECORDED / "deepeval.json"])
