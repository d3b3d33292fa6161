"""The mailbox: requests as files, answers in any order and state, and the same study as through a live server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from builders import loopback
from click.testing import Result
from tiny_study import make_study
from typer.testing import CliRunner

from rubricflow.flows import cli
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.store.warehouse import Warehouse

JUDGE = {
    "protocol": "rulers",
    "repair": {"contract": 1, "semantic": 1},
    "samples": 2,
    "sampling": {"max_tokens": 300, "temperature": 0.5},
    "backend": "openai",
}
ANSWERS = 12


def reply_to(prompt: str, repaired: bool) -> str:
    """A reply that depends on the answer alone; to some the first one breaks the contract."""
    number = int(re.findall(r"answer (\d+)", prompt)[-1])
    if number % 5 == 0 and not repaired:
        return '{"decisions":{"P1":{"level":7,"evidence":[]}}}'
    level = number % 3
    quotes = [{"unit": "sentence 1", "quote": f"answer {number}"}] if level else []
    return json.dumps({"decisions": {"P1": {"level": level, "evidence": quotes}}})


def play(n: int, body: dict) -> bytes:
    prompt = "\n".join(turn["content"] for turn in body["messages"] if turn["role"] != "system")
    return loopback.http(200, loopback.body_of(reply_to(prompt, "level 7" in prompt or len(body["messages"]) > 2)))


def study_in(folder: Path, urls: list[str] | None = None) -> Path:
    study = make_study(folder, ANSWERS)
    kept, _, rest = study.read_text().partition("judge:")
    engine = {"model": "strong", "urls": urls or ["http://127.0.0.1:1/v1"]}
    study.write_text(
        f"{kept}judge: {json.dumps(JUDGE | {'engine': engine})}\ncalibration:{rest.partition('calibration:')[2]}"
    )
    return study


def command(*words: object) -> Result:
    return CliRunner().invoke(cli.app, [str(word) for word in words], catch_exceptions=False)


def cases(file: Path) -> dict[str, str]:
    """Id → what a case shows, of a plain file."""
    return {
        case["id"]: "\n".join(turn["content"] for turn in case["messages"])
        for case in map(json.loads, file.read_text().splitlines()[1:])
    }


def answered(box: Path, name: str, change: Callable[[dict], dict | None] = lambda line: line) -> None:
    """Answers a file of requests, in the reverse order."""
    lines = []
    for key, prompt in reversed(cases(box / f"{name}.jsonl").items()):
        line = change({"id": key, "reply": reply_to(prompt, "level" in prompt.split("=====END")[-1])})
        lines += [json.dumps(line)] if line else []
    (box / "answers" / f"{name}.jsonl").write_text("\n".join(lines))


def digests(house: Path) -> dict[str, str]:
    run = Warehouse.open(house).run(Warehouse.open(house).runs()[-1])
    stages = {Judgments: "judge", Gradings: "judge", Predictions: "calibrate"}
    return {table.__name__: run.ref(table, stage).digest for table, stage in stages.items()}


def test_the_mailbox_grades_as_a_live_server_does(tmp_path: Path) -> None:
    server = loopback.Server(play)
    live = command("grade", study_in(tmp_path / "a", [server.url]), "--warehouse", tmp_path / "live")
    server.close()
    assert live.exit_code == 0, live.output
    study, box, house = study_in(tmp_path / "b"), tmp_path / "box", tmp_path / "house"
    words = ("batch", study, "--warehouse", house)
    assert command(*words, "--to", box).exit_code == 0
    for wave in range(1, 4):
        files = sorted(box.glob(f"wave-{wave}*.jsonl"))
        if not files:
            break
        answered(box, files[0].stem)
        result = command(*words, "--from", box)
        assert result.exit_code == 0, result.output
    print(result.output, wave)
    assert digests(house) == digests(tmp_path / "live")
