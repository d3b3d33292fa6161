"""A jury of three servers, of which one is slow, one lies and one is down at first: what is said, kept and paid."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from builders.command import command, done, last_run
from builders.files import write_csv
from builders.loopback import Server, body_of, http
from tiny_study import RUBRICS
from typer.testing import Result

from rubricflow.tasks.core.contracts.tables.evaluation import Checks
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments, Jurors, JuryRules
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

ANSWERS = 24
NAMES = ("slow", "liar", "down")
INVENTED = "the particles of heat are moving very fast"
STUDY = """
name: three
marks: calibrate
data:
  sources:
    - file: answers.csv
      items: {item_id: item, question: item}
      responses: {response_id: id, item_id: item, text: text}
      scores: [{rater: one, score: one}]
rubrics: {file: rubrics.yaml}
split: {per: set, calibration: 12}
judge:
  combine: median
  jury:
"""
JUROR = "    {name}: {{backend: openai, protocol: rulers, engine: {{model: {name}-1, urls: ['{url}'], {few}}}}}\n"
FEW = "retries: 0, patience_s: 0, timeout_s: 20"


def said(level: int, quote: str) -> bytes:
    evidence = [{"unit": "S1", "quote": quote}] if level else []
    return http(200, body_of(json.dumps({"decisions": {"P1": {"level": level, "evidence": evidence}}})))


def honest(n: int, body: Mapping[str, Any]) -> bytes:
    """The level is how often the answer says 'moves', and its words are quoted."""
    text = re.search(r"heat \d+( moves)*", body["messages"][-1]["content"])
    assert text
    return said(min(2, text[0].count("moves")), text[0])


def lying(n: int, body: Mapping[str, Any]) -> bytes:
    return said(2, INVENTED)


def broken(n: int, body: Mapping[str, Any]) -> bytes:
    return http(500, {"error": {"message": "out of order"}})


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder, self.graded = folder, list[tuple[Result, dict[str, int]]]()
        self.servers = {"slow": Server(honest, pause=0.05), "liar": Server(lying), "down": Server(broken)}
        rows = [[f"x{n}", "a", f"heat {n}" + " moves" * (n % 3), n % 3 * 2 if n % 7 else 2] for n in range(ANSWERS)]
        write_csv(folder / "answers.csv", ["id", "item", "text", "one"], rows)
        (folder / "rubrics.yaml").write_text(RUBRICS % "a")
        jurors = [JUROR.format(name=name, url=server.url, few=FEW) for name, server in self.servers.items()]
        (folder / "study.yaml").write_text(STUDY + "".join(jurors))

    def grade(self) -> Result:
        return command("grade", self.folder / "study.yaml", "--warehouse", self.folder / "house")

    @property
    def run(self) -> Run:
        return last_run(self.folder / "house")

    @property
    def calls(self) -> dict[str, int]:
        return {name: len(server.calls) for name, server in self.servers.items()}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Graded while a juror is down, and again when it is back."""
    made = Scene(tmp_path_factory.mktemp("jury"))
    made.graded.append((made.grade(), made.calls))
    made.servers["down"].play = honest
    made.graded.append((made.grade(), made.calls))
    yield made
    for server in made.servers.values():
        server.close()


def test_a_juror_that_is_down_stops_the_run_after_the_others_were_asked(scene: Scene) -> None:
    result, calls = scene.graded[0]
    assert result.exit_code == 2
    assert "juror down" in result.output
    assert "juror slow" not in result.output
    assert calls == {"slow": ANSWERS, "liar": ANSWERS, "down": ANSWERS}


def test_when_it_is_back_only_it_is_asked_and_paid(scene: Scene) -> None:
    result, calls = scene.graded[1]
    assert result.exit_code == 0, result.output
    assert calls == {"slow": ANSWERS, "liar": ANSWERS, "down": 2 * ANSWERS}
    paid = Counter(
        row["model"]
        for name in NAMES
        for row in scene.run.table(Attempts, f"judge-{name}", ["model", "error"]).to_pylist()
        if row["error"] is None
    )
    assert sorted(paid.values()) == [ANSWERS] * 3
    assert scene.run.table(Attempts, "judge").num_rows == 0


def test_what_the_liar_credits_without_words_of_the_answer_counts_for_nothing(scene: Scene) -> None:
    decided = scene.run.table(Judgments, "judge").to_pylist()
    assert {row["response_id"]: row["decision"] for row in decided} == {f"x{n}": n % 3 for n in range(ANSWERS)}
    quotes = {quote["quote"] for row in decided for quote in row["evidence"]}
    assert INVENTED not in quotes
    liars = scene.run.table(Judgments, "judge-liar").to_pylist()
    assert {row["action"] for row in liars} == {"demoted"}


def test_one_more_rater_is_what_the_stages_behind_see(scene: Scene) -> None:
    gradings = scene.run.table(Gradings, "judge").to_pylist(maps_as_pydicts="strict")
    assert {row["rater_kind"] for row in gradings} == {"jury"}
    assert {row["score"] for row in gradings} == {0.0, 2.0, 4.0}
    assert all(row["signals"]["disagreement"] >= 0 for row in gradings)
    (rule,) = [row for row in scene.run.table(JuryRules, "judge").to_pylist() if row["chosen"]]
    assert rule["rule"] == "median"
    told = {row["juror"]: row for row in scene.run.table(Jurors, "judge").to_pylist()}
    assert told["slow"]["alike"] == "down"
    assert told["liar"]["agreement"] is None  # it says the same of every answer
    assert told["slow"]["tokens"] == 14 * ANSWERS


def test_the_rules_are_held_against_the_contract_and_verify_sees_a_change_of_them(scene: Scene) -> None:
    run = scene.run
    kept = [run.table(Checks, stage, ["table_name"]).to_pylist() for stage in run.stages(Checks)]
    checked = {row["table_name"] for rows in kept for row in rows}
    assert {"jury_rules", "jurors"} <= checked
    listed = read_manifest(run)["tables"]
    (file,) = run.folder.rglob("jury_rules/**/*.parquet")
    assert any(table["table"] == "jury_rules" for table in listed)
    whole = file.read_bytes()
    file.write_bytes(whole[:20] + bytes([whole[20] ^ 1]) + whole[21:])
    words = ["verify", run.run_id, "--warehouse", str(scene.folder / "house")]
    result = command(*words)
    file.write_bytes(whole)
    assert result.exit_code
    assert "jury_rules" in result.output
    assert command(*words).exit_code == 0


def test_every_juror_is_seen_by_validate_and_the_dry_run(scene: Scene) -> None:
    study = str(scene.folder / "study.yaml")
    printed = command("validate", study).output
    assert all(f"juror {name}" in printed for name in NAMES)
    printed = command("grade", study, "--dry-run").output
    assert all(f"a, {name}" in printed for name in NAMES)


def test_a_question_of_sql_lists_the_calls_behind_a_jurys_score(scene: Scene) -> None:
    words = ["sql", "lineage", "response_id=x4", "--run", scene.run.run_id, "--warehouse", str(scene.folder / "house")]
    printed = command(*words).output
    assert printed.count(",grade,") == len(NAMES)


def test_without_a_label_the_liar_has_no_part_and_nobody_is_asked_again(scene: Scene) -> None:
    study = (scene.folder / "study.yaml").read_text()
    for line in ("marks: calibrate", "      scores: [{rater: one, score: one}]", "split: {per: set, calibration: 12}"):
        assert f"{line}\n" in study
        study = study.replace(f"{line}\n", "")
    (scene.folder / "unmarked.yaml").write_text(study.replace("combine: median", "combine: choose"))
    before = scene.calls
    house = Warehouse.open(scene.folder / "other")
    Warehouse.open(scene.folder / "house").replies.replace(house.replies)
    done("grade", scene.folder / "unmarked.yaml", "--warehouse", scene.folder / "other")
    assert scene.calls == before
    run = house.run(house.runs()[-1])
    told = {row["juror"]: row for row in run.table(Jurors, "judge").to_pylist()}
    assert told["liar"]["weight"] == 0
    assert told["slow"]["weight"] == pytest.approx(0.5)
    gradings = run.table(Gradings, "judge").to_pylist(maps_as_pydicts="strict")
    assert {row["response_id"]: row["score"] for row in gradings} == {f"x{n}": n % 3 * 2.0 for n in range(ANSWERS)}
