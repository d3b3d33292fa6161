"""Logs are told by what they hold, and every verdict comes out with its answer and its judge."""

import json
from pathlib import Path

import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.grading.logs.labels import read_labels
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.grading.logs.record import LABELS, VERDICTS

RECORDED = Path(__file__).parent / "recorded"


def written(path: Path, content: object) -> Path:
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    else:
        path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["inspect.eval", "inspect.json"])
def test_inspect_logs_of_a_real_run(name: str) -> None:
    log = read_log([RECORDED / name])
    assert list(log.verdicts.columns) == [*VERDICTS]
    assert log.judge.tool == "inspect_ai"
    assert log.judge.version == "0.3.285"
    assert log.judge.told["model"] == "mockllm/grader"
    assert "{question}" in log.judge.told["prompt"]
    assert log.verdicts["answer_id"].tolist() == [f"rain-{n:03}" for n in range(4) for _ in range(2)]
    assert set(log.verdicts["criterion"]) == {"model_graded_qa", "points"}
    letters = {"C": 1.0, "P": 0.5, "I": 0.0}
    graded = log.verdicts[log.verdicts["criterion"] == "model_graded_qa"]
    assert graded["score"].tolist() == [letters[word] for word in graded["verdict"]]
    points = log.verdicts[log.verdicts["criterion"] == "points"]
    assert points["score"].tolist() == [float(word) for word in points["verdict"]]
    assert points["output_tokens"].tolist() == [len(answer.split()) for answer in points["answer"]]
    assert json.loads(points["turns"].iloc[0])[-1]["role"] == "assistant"
    assert log.verdicts["status"].eq("scored").all()


def test_the_two_logs_of_one_judge_have_one_digest_and_another_grader_is_named(tmp_path: Path) -> None:
    first, second = read_log([RECORDED / "inspect.eval"]), read_log([RECORDED / "inspect.json"])
    assert first.judge.digest == second.judge.digest
    changed = (RECORDED / "inspect.json").read_text().replace("mockllm/grader", "other/grader")
    other = read_log([written(tmp_path / "log.json", changed)])
    assert other.judge.digest != first.judge.digest
    assert any(line.startswith("model: 'mockllm/grader' → 'other/grader'") for line in first.judge.changes(other.judge))


def test_plain_tables_whatever_they_are_called(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "criterion": "clear", "verdict": "yes", "explanation": 'says "so"', "judge_model": "m1"},
        {"id": "a", "criterion": "true", "verdict": "no", "judge_model": "m1"},
        {"id": "b", "criterion": "clear", "verdict": "", "judge_model": "m1"},
    ]
    csv = "id,criterion,verdict,explanation,judge_model\n" + "".join(
        ",".join(
            '"' + row.get(name, "").replace('"', '""') + '"'
            for name in ("id", "criterion", "verdict", "explanation", "judge_model")
        )
        + "\n"
        for row in rows
    )
    logs = [
        read_log([written(tmp_path / name, content)])
        for name, content in (("log.jsonl", rows), ("log.json", rows), ("log.csv", csv))
    ]
    for log in logs:
        assert log.verdicts["score"].tolist()[:2] == [1.0, 0.0]
        assert log.verdicts["status"].tolist() == ["scored", "scored", "unscored"]
        assert log.verdicts["explanation"].tolist()[0] == 'says "so"'
        assert log.judge.told == {"model": "m1"}
        assert log.scales["clear"][:2] == (0, 1)


def test_answers_of_several_models_and_repeated_judgments_are_told_apart(tmp_path: Path) -> None:
    rows = [
        {"id": case, "model": model, "answer": f"{case} by {model}", "score": score}
        for case in ("q1", "q2")
        for model in ("x", "y")
        for score in (3, 4)
    ]
    log = read_log([written(tmp_path / "log.jsonl", rows)])
    assert log.verdicts["answer_id"].tolist() == ["q1:x"] * 2 + ["q1:y"] * 2 + ["q2:x"] * 2 + ["q2:y"] * 2
    assert log.verdicts["sample"].tolist() == [0, 1] * 4
    labels = read_labels(written(tmp_path / "labels.csv", "id,model,rater,score\nq1,x,p1,3\nq2:y,,p2,4\n"), log)
    assert list(labels.columns) == [*LABELS]
    assert labels["answer_id"].tolist() == ["q1:x", "q2:y"]
    with pytest.raises(InputError, match=r"row 1, field 'id'.*2 answers"):
        read_labels(written(tmp_path / "labels.csv", "id,score\nq1,3\n"), log)


def test_a_folder_may_hold_labels_and_earlier_calibrations(tmp_path: Path) -> None:
    (tmp_path / "rain.calibration").mkdir()
    for place in (".", "rain.calibration"):
        written(tmp_path / place / "inspect.json", (RECORDED / "inspect.json").read_text())
    written(tmp_path / "labels.csv", "id,score\nrain-000,1\n")
    written(tmp_path / "notes.txt", "nothing")
    log = read_log([tmp_path])
    assert (log.judge.tool, len(log.verdicts), len(log.files)) == ("inspect_ai", 8, 1)
    assert any("labels.csv" in remark and "notes.txt" in remark for remark in log.remarks)


@pytest.mark.parametrize(
    ("name", "content", "row", "field"),
    [
        ("a.json", {"hello": 1}, None, None),
        ("a.jsonl", [{"id": 1, "colour": "red"}], None, None),
        ("a.jsonl", '{"id": 1, "score": 2}\n{"id": 2,', 2, None),
        ("a.jsonl", [{"id": 1, "sample": 0, "score": 2}, {"id": 1, "sample": 0, "score": 3}], 2, None),
        ("a.jsonl", [{"id": 1, "verdict": "mauve"}, {"id": 2, "verdict": "ochre"}], 1, "verdict"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, name: str, content: object, row: int | None, field: str | None
) -> None:
    with pytest.raises(InputError) as caught:
        read_log([written(tmp_path / name, content)])
    assert (caught.value.row, caught.value.field) == (row, field)
    assert Path(str(caught.value.file)).name == name


@pytest.mark.parametrize(
    ("content", "row", "field"),
    [
        ("id,score\nzz,1\n", 1, "id"),
        ("id,score\na,1\nb,mauve\n", 2, "score"),
        ("id,criterion,score\na,depth,1\n", 1, "criterion"),
        ("id,rater,score\na,p,1\na,p,0\n", 2, "score"),
        ("name,score\na,1\n", None, "answer_id"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_their_place(
    tmp_path: Path, content: str, row: int | None, field: str
) -> None:
    log = read_log([written(tmp_path / "log.jsonl", [{"id": "a", "score": 1}, {"id": "b", "score": 0}])])
    with pytest.raises(InputError) as caught:
        read_labels(written(tmp_path / "labels.csv", content), log)
    assert (caught.value.row, caught.value.field) == (row, field)
