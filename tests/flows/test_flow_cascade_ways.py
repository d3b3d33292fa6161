"""A cascade of a jury and a judge comes to the same end however it is worked: by a live server, killed in each of its
steps and gone on, or by a mailbox; and nobody is asked twice."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import loopback
from builders.command import command, done, last_run
from builders.files import write_csv
from cascade_study import RUBRICS

from rubricflow.tasks.core.contracts.tables.calibration import CascadeLimits, Escalations, Predictions
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.store import warehouse
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Run

ANSWERS, LABELLED = 90, 45
NAMES = ("plain", "rash", "dear")
STUDY = """
name: ways
data:
  sources:
    - file: answers.csv
      items: {item_id: item, question: item}
      responses: {response_id: id, item_id: item, text: text}
      scores: [{rater: one, score: one}]
rubrics: {file: rubrics.yaml}
split: {per: set, calibration: %d}
judge:
  combine: mean
  jury:
    plain: %s
    rash: %s
  escalate: [%s]
calibration: {minimum: 20, features: [judge], method: identity}
release: {tolerance: 1, risk: 0.2, confidence: 0.8, by: set}
evaluation: {target: one, draws: 50}
"""


def level_by(who: str, number: int) -> int:
    """Of answers whose number ends with 0, 1 or 2 those of the jury say too much."""
    level = number % 3
    return level if who == "dear" or number % 10 > 2 else min(2, level + 1) if who == "plain" else 2


def reply_by(who: str, prompt: str) -> str:
    number = int(re.findall(r"answer (\d+)", prompt)[-1])
    level = level_by(who, number)
    quotes = [{"unit": "S1", "quote": f"answer {number}"}] if level else []
    return json.dumps({"decisions": {"P1": {"level": level, "evidence": quotes}}})


def play(n: int, body: dict[str, Any]) -> bytes:
    prompt = "\n".join(turn["content"] for turn in body["messages"] if turn["role"] != "system")
    return loopback.http(200, loopback.body_of(reply_by(body["model"], prompt)))


def study_in(folder: Path, url: str = "http://127.0.0.1:1/v1") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "rubrics.yaml").write_text(RUBRICS)
    rows = [[f"x{n}", "a", f"answer {n} in some words", 2 * (n % 3)] for n in range(ANSWERS)]
    write_csv(folder / "answers.csv", ["id", "item", "text", "one"], rows)
    judges = [
        json.dumps({"backend": "openai", "protocol": "rulers", "engine": {"model": name, "urls": [url]}})
        for name in NAMES
    ]
    (folder / "study.yaml").write_text(STUDY % (LABELLED, *judges))
    return folder / "study.yaml"


def digests(folder: Path) -> dict[str, str]:
    run = last_run(folder / "house")
    stages = {Judgments: "judge", Gradings: "judge", Predictions: "calibrate", Escalations: "calibrate"}
    return {
        row.table: run.ref(row, stage).digest for row, stage in [*stages.items(), (CascadeLimits, "cascade-limits")]
    }


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, loopback.Server]]:
    folder, server = tmp_path_factory.mktemp("ways"), loopback.Server(play)
    done("grade", study_in(folder, server.url), "--warehouse", folder / "house")
    yield folder, server
    server.close()


def asked(calls: list[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((call["model"], json.dumps(call["messages"])) for call in calls)


def test_some_answers_stop_at_the_jury_and_some_reach_the_judge(live: tuple[Path, loopback.Server]) -> None:
    folder, server = live
    steps = dict(ask(last_run(folder / "house"), "SELECT step, count(*) FROM escalations GROUP BY ALL").fetchall())
    assert set(steps) == {1, 2}
    count = Counter(call["model"] for call in server.calls)
    assert count["plain"] == count["rash"] == ANSWERS
    assert LABELLED < count["dear"] < ANSWERS
    assert set(asked(server.calls).values()) == {1}


def test_killed_in_every_step_it_goes_on_and_asks_nobody_twice(
    live: tuple[Path, loopback.Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        """Nothing catches it."""

    commit, waits = Run.commit, ["judge-1-rash", "judge-1", "judge-2", "cascade-limits", "cascade-2", "judge-2-rest"]
    waits += ["calibrate-2-rest", "judge"]

    def dying(run: Run, stage: str, shard: str, tables: Any) -> None:
        if waits and stage == waits[0]:
            waits.pop(0)
            raise Killed(stage)
        commit(run, stage, shard, tables)

    server = loopback.Server(play)
    study = study_in(tmp_path, server.url)
    monkeypatch.setattr(warehouse.Run, "commit", dying)
    while waits:
        with pytest.raises(Killed):
            command("grade", study, "--warehouse", tmp_path / "house")
    result = command("grade", study, "--warehouse", tmp_path / "house")
    server.close()
    assert result.exit_code == 0, result.output
    assert digests(tmp_path) == digests(live[0])
    assert asked(server.calls) == asked(live[1].calls)


def test_the_mailbox_comes_to_the_same_end_wave_by_wave(live: tuple[Path, loopback.Server], tmp_path: Path) -> None:
    box, study = tmp_path / "box", study_in(tmp_path)
    words = ("batch", study, "--warehouse", tmp_path / "house")
    result, waves = command(*words, "--to", box), list[Counter[str]]()
    while "put the answers" in result.output:
        files = json.loads((box / "mailbox.json").read_text())["files"]
        waves.append(Counter())
        for file in files:
            if file["wave"] != files[-1]["wave"]:
                continue
            head, *lines = map(json.loads, (box / f"{file['name']}.jsonl").read_text().splitlines())
            said = []
            for case in reversed(lines):
                prompt = "\n".join(turn["content"] for turn in case["messages"])
                said.append(json.dumps({"id": case["id"], "reply": reply_by(head["model"], prompt)}))
            waves[-1][head["model"]] += len(said)
            (box / "answers" / f"{file['name']}.jsonl").write_text("\n".join(said))
        result = command(*words, "--from", box)
    assert result.exit_code == 0, result.output
    # Plain answers tell no tokens: what a step costs is counted in answers then, and the limits are as they were.
    at = "SELECT step, most_risk, stopped, wrong FROM cascade_limits ORDER BY ALL"
    assert ask(last_run(tmp_path / "house"), at).fetchall() == ask(last_run(live[0] / "house"), at).fetchall()
    assert {**digests(tmp_path), "cascade_limits": ""} == {**digests(live[0]), "cascade_limits": ""}
    # What all steps are asked of marked answers goes with the first one; then what reaches the second.
    assert [set(wave) for wave in waves] == [set(NAMES), {"dear"}]
    assert waves[0]["dear"] == LABELLED
