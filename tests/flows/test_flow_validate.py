"""Dry run and validation: what can be known without asking a model."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from builders.command import command, done, refused
from click.testing import Result

from rubricflow.flows import command_line
from rubricflow.flows.plan import plan
from rubricflow.flows.validate import _read_study, prove
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, Rubrics
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply, digest
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.rater import rater

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo" / "baseline.yaml"
OWN = next(line for line in DEMO.read_text().splitlines() if line.startswith("judge:"))
FILES = ("items.csv", "responses.csv", "responses_b.csv", "marks.csv", "marks_b.csv", "rubrics.yaml")
INDUCING = "{backend: openai, engine: {model: m, urls: ['http://127.0.0.1:9/v1']}, final_score: weighted_points}"
INDUCED = ("  file: rubrics.yaml\n", "  file: rubrics.yaml\n  induce: {criteria: 5}\n")


def copied(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_bytes((DEMO.parent / name).read_bytes())


def test_a_dry_run_counts_calls_and_writes_nothing(tmp_path: Path) -> None:
    house = tmp_path / "house"
    arguments = ["grade", str(DEMO), "--dry-run", "--warehouse", str(house)]
    result = command(*arguments)
    rows = {row["item"]: row for row in csv.DictReader(result.output.splitlines())}
    assert (rows["all"]["responses"], rows["all"]["settled without a call"], rows["all"]["calls"]) == (
        "400",
        "5",
        "395",
    )
    assert not house.exists()


def test_what_judging_takes_is_counted_from_the_study() -> None:
    arguments = ["plan", str(DEMO), "--replicas", "8"]
    result = command(*arguments)
    rows = {row["what"]: row for row in csv.DictReader(result.output.splitlines())}
    assert (rows["responses"]["how much"], rows["calls"]["how much"]) == ("400", "395")
    assert "8 replicas" in rows["the model"]["by what"]


def test_the_demo_is_valid() -> None:
    result = done("validate", DEMO)
    assert result.output.count("prompt, contract and verifier hold") == 8


def test_a_rubric_that_cannot_reach_full_marks_is_named(tmp_path: Path) -> None:
    copied(tmp_path, *FILES, "baseline.yaml")
    study = tmp_path / "baseline.yaml"
    study.write_text(study.read_text().replace("final_score: weighted_points", "final_score: trait_sum"))
    assert "its traits sum to" in refused("validate", study)


def test_asking_about_runs_makes_no_warehouse(tmp_path: Path) -> None:
    assert "no finished run" in refused("sql", "SELECT 1", "--warehouse", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_terminal_shows_control_characters_as_text() -> None:
    assert command_line._safe("\x1b[31mred\x07 [bold]x") == "\\x1b[31mred\\x07 \\[bold]x"


def test_rubrics_that_a_model_will_make_are_rehearsed_without_it(tmp_path: Path) -> None:
    study = with_judge(tmp_path, INDUCING)
    study.write_text(study.read_text().replace(*INDUCED))
    result = done("validate", study, "--limit", "2")
    assert "made by rules of thumb here" in result.output
    assert result.output.count("prompt, contract and verifier hold") == 8


def test_a_broken_graph_is_named_without_asking_anybody(tmp_path: Path) -> None:
    copied(tmp_path, "items.csv", "responses.csv", "rubrics.yaml", "reward.yaml", "graphs.yaml")
    study = tmp_path / "reward.yaml"
    result = done("validate", study, "--limit", "1")
    assert "graph of rubric osmosis: 3 edges, no circle" in result.output
    graphs = (tmp_path / "graphs.yaml").read_text(encoding="utf-8")
    circle = "{parent: P2, child: P1, relation: weak_prerequisite}"
    (tmp_path / "graphs.yaml").write_text(graphs.replace("  edges:\n", f"  edges:\n    - {circle}\n", 1), "utf-8")
    result = refused("validate", study, "--limit", "1")
    assert "circle" in result
    assert "graphs.yaml" in result


def test_annotators_are_proven_beside_the_judge() -> None:
    found = list(prove(DEMO.with_name("concepts.yaml"), 1))
    assert {kind for kind, _, _ in found} <= {"ok", "warning"}
    assert {"item osmosis", "annotators, item osmosis"} <= {what for _, what, _ in found}


def validated(study: Path, house: Path) -> Result:
    return command("validate", study, "--limit", "1", "--warehouse", house)


def with_judge(folder: Path, judge: str) -> Path:
    """The demo's study with another judge."""
    copied(folder, *FILES)
    (folder / "study.yaml").write_text(DEMO.read_text().replace(OWN, f"judge: {judge}"))
    return folder / "study.yaml"


def test_fewer_alternatives_than_a_decision_has_values_are_named(tmp_path: Path) -> None:
    for logprobs, named in ((1, True), (20, False), (0, False)):
        engine = f"{{model: m, logprobs: {logprobs}}}"
        study = with_judge(tmp_path, f"{{protocol: dhs, backend: openai, engine: {engine}}}")
        told = validated(study, tmp_path / "house")
        assert told.exit_code == 0, told.output
        assert ("set judge.engine.logprobs" in told.output) == named


def test_a_run_to_keep_of_is_looked_for_in_the_warehouse(tmp_path: Path) -> None:
    study, house = with_judge(tmp_path, "{keep: earlier-1}"), tmp_path / "house"
    result = validated(study, house)
    assert result.exit_code == 2
    assert "wrong    judge.keep: no finished run 'earlier-1'; there are none" in result.output
    assert not house.exists()
    Warehouse.open(house).run("earlier-1").folder.mkdir()
    (house / "earlier-1" / "manifest.json").write_text("{}")
    result = validated(study, house)
    assert result.exit_code == 0, result.output
    assert "ok       judge.keep: run 'earlier-1' is in the warehouse" in result.output


def test_replies_to_replay_are_looked_for_in_the_warehouse(tmp_path: Path) -> None:
    study, house = with_judge(tmp_path, "{backend: replay, model: m}"), tmp_path / "house"
    result = validated(study, house)
    assert result.exit_code == 2
    assert "wrong    recorded replies: 0 of 8 first calls are in the reply store" in result.output
    with ReplyStore(Warehouse.open(house).replies) as store:
        who = rater(load_study(study).judge, tmp_path, store)
        cases = [case for _, _, of in _read_study(study, 1, {"": None})[""].items for case in of]
        calls = [digest(request, "m") for case in cases for request in first_requests(case, who)]
        store.put_many([(call, "m", Reply(text="{}")) for call in calls[:3]])
    result = validated(study, house)
    assert result.exit_code == 0, result.output
    assert "ok       recorded replies: 3 of 8 first calls are in the reply store" in result.output


def test_rubrics_that_the_study_s_run_has_locked_are_proven_in_place_of_guesses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, house = with_judge(tmp_path, INDUCING), tmp_path / "house"
    study.write_text(study.read_text().replace(*INDUCED))
    guessed = [(item["rubric_id"], bundle) for item, bundle, _ in _read_study(study, 1, {"": None})[""].items]
    made = {name: bundle.model_copy(update={"text": "As a model had it."}) for name, bundle in guessed}
    rows = [{"rubric_id": n, "bundle_id": of.bundle_id, "content": of.canonical()} for n, of in made.items()]
    plan(study, house, 1).run.commit("lock", "all", {Rubrics: [], Bundles: rows})
    proven: list[str] = []
    monkeypatch.setattr(
        "rubricflow.flows.validate.prove_bundle", lambda bundle, *_: proven.append(bundle.bundle_id) or []
    )
    result = validated(study, house)
    assert result.exit_code == 0, result.output
    assert "made by rules of thumb" not in result.output
    assert {*proven} == {of.bundle_id for of in made.values()}
    assert "made by rules of thumb" in validated(study, tmp_path / "another").output
