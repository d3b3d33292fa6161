"""The commands `mean` and `drift`, from files to tables that any client of DuckDB reads."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
import yaml
from builders.command import command

from rubricflow.flows.cli import COMMANDS, options_of
from rubricflow.flows.drift import drift
from rubricflow.tasks.core.contracts.tables.evaluation import Drifts, WatchedValues
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

HOUSE = Path(__file__).resolve().parents[2]
DASHBOARDS, ACTION = HOUSE / "sql" / "dashboards", HOUSE / "docs" / "judge-check.yaml"


def write_log(path: Path, seed: int, shift: float = 0.0, answers: int = 120) -> Path:
    """A plain log of a judge's scores of answers that only this log has."""
    rng = np.random.default_rng(seed)
    truth = rng.random(answers)
    scores = np.clip(0.8 * truth + 0.2 * rng.random(answers) + shift, 0, 1.2)
    lines = [
        json.dumps({"id": f"{path.stem}-{n}", "score": round(float(score), 4), "answer": f"Answer {n}."})
        for n, score in enumerate(scores)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))
    people = pd.DataFrame({"id": [f"{path.stem}-{n}" for n in range(40)], "human_score": truth[:40].round(4)})
    people.to_csv(path.with_suffix(".csv").with_name(f"labels-{path.stem}.txt"), index=False)
    return path


def run(*words: object) -> tuple[int, str]:
    done = command(*words)
    return done.exit_code, done.output


def test_the_mean_of_a_log_by_labels_on_some(tmp_path: Path) -> None:
    a, b = write_log(tmp_path / "a.jsonl", 0), write_log(tmp_path / "b.jsonl", 1)
    labels = tmp_path / "labels.csv"
    pd.concat([pd.read_csv(tmp_path / f"labels-{name}.txt") for name in "ab"]).to_csv(labels, index=False)
    code, said = run("mean", a, b, "--labels", labels, "--warehouse", tmp_path / "wh")
    assert code == 0, said
    with duckdb.connect(str(tmp_path / "wh" / "warehouse.duckdb"), read_only=True) as client:
        rows = client.execute((DASHBOARDS / "means.sql").read_text()).fetchall()
    assert len(rows) == 3
    assert run("mean", a, b, "--warehouse", tmp_path / "wh")[0] == 2  # without labels
    pd.read_csv(labels).assign(probability=0.0).to_csv(labels, index=False)
    code, said = run("mean", a, b, "--labels", labels, "--warehouse", tmp_path / "wh")
    assert code == 2
    assert "labels.csv" in said
    assert "probability" in said


def test_the_action_for_pull_requests_calls_commands_that_there_are() -> None:
    job = yaml.safe_load(ACTION.read_text())["jobs"]["judge"]
    called = re.findall(r"rubricflow (\w+) (.*?) \|\|", "\n".join(step.get("run", "") for step in job["steps"]))
    assert [name for name, _ in called] == ["mean", "drift"]
    for name, words in called:
        options = {option.name for option in options_of(*COMMANDS[name].function.split(":"))}
        assert {word.removeprefix("--") for word in words.split() if word.startswith("--")} <= options


def test_exit_codes_tell_drift_from_a_wrong_input(tmp_path: Path) -> None:
    old, same = write_log(tmp_path / "old.jsonl", 0), write_log(tmp_path / "same.jsonl", 1)
    moved = write_log(tmp_path / "moved.jsonl", 2, shift=0.3)
    assert run("drift", old, same)[0] == 0
    assert run("drift", old, moved)[0] == 3
    assert run("drift", old, tmp_path / "none.jsonl")[0] == 2
    assert run("drift", old, same, "--watch", "../elsewhere", "--warehouse", tmp_path / "wh")[0] == 2


def test_a_watch_adds_a_log_a_day_and_says_since_when(tmp_path: Path) -> None:
    old, new, house = write_log(tmp_path / "old.jsonl", 0), tmp_path / "new", tmp_path / "wh"
    write_log(new / "2026-11-01.jsonl", 1)
    (new / "labels-2026-11-01.txt").unlink()
    looks = [run("drift", old, new, "--watch", "judge", "--warehouse", house)[0]]
    write_log(new / "2026-11-02.jsonl", 2, shift=0.3)
    (new / "labels-2026-11-02.txt").unlink()
    looks += [run("drift", old, new, "--watch", "judge", "--warehouse", house)[0] for _ in range(2)]
    assert looks == [0, 3, 3]
    watch = Warehouse.open(house).run("watch-judge")
    assert sorted(watch.shards("watched")) == ["00000", "00001"]  # the repeated look added nothing
    with duckdb.connect(str(house / "warehouse.duckdb"), read_only=True) as client:
        rows = client.execute((DASHBOARDS / "drift.sql").read_text()).fetchall()
        client.execute((DASHBOARDS / "agreement_over_time.sql").read_text())
    assert ("2026-11-02", "score") in {(row[1], row[3]) for row in rows}
    assert watch.table(Drifts, "drift").filter(watch.table(Drifts, "drift")["moved"])["since"].unique().to_pylist() == [
        "2026-11-02"
    ]
    # Other old logs, or a log with other content, would make the evidence another's.
    assert run("drift", write_log(tmp_path / "other.jsonl", 5), new, "--watch", "judge", "--warehouse", house)[0] == 2
    write_log(new / "2026-11-02.jsonl", 3)
    (new / "labels-2026-11-02.txt").unlink()
    assert run("drift", old, new, "--watch", "judge", "--warehouse", house)[0] == 2


def test_looks_at_one_watch_at_a_time_follow_one_another(tmp_path: Path) -> None:
    old, new, house = write_log(tmp_path / "old.jsonl", 0), tmp_path / "new", tmp_path / "wh"
    for day in range(1, 5):
        write_log(new / f"2026-11-0{day}.jsonl", day)
        (new / f"labels-2026-11-0{day}.txt").unlink()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: drift(old, new, watch="judge", warehouse=str(house)), range(2)))
    watch = Warehouse.open(house).run("watch-judge")
    assert sorted(watch.shards("watched")) == [f"{n:05d}" for n in range(4)]
    assert watch.table(WatchedValues, "watched").num_rows == 4 * watch.shard(WatchedValues, "watched", "00000").num_rows


class Killed(BaseException):
    """What ends a process at once."""


def test_a_look_that_was_killed_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = write_log(tmp_path / "old.jsonl", 0), tmp_path / "new"
    for day in range(1, 4):
        write_log(new / f"2026-11-0{day}.jsonl", day)
        (new / f"labels-2026-11-0{day}.txt").unlink()
    words = ["drift", str(old), str(new), "--watch", "judge", "--warehouse"]
    commit = Run.commit

    def dying(run: Run, stage: str, shard: str, tables: Any) -> None:
        if shard == "00001":
            raise Killed
        commit(run, stage, shard, tables)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "commit", dying)
        with pytest.raises(Killed):
            run(*words, tmp_path / "killed")
    assert run(*words, tmp_path / "killed")[0] == run(*words, tmp_path / "whole")[0] == 0
    tables = [
        Warehouse.open(tmp_path / name).run("watch-judge").table(WatchedValues, "watched").to_pandas()
        for name in ("killed", "whole")
    ]
    pd.testing.assert_frame_equal(*tables)
