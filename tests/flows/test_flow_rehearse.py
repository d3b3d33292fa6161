"""Dry run and validation: what can be known without asking a model."""

from __future__ import annotations

import csv
from pathlib import Path

from typer.testing import CliRunner

from flows import cli, terminal

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo" / "study.yaml"


def test_a_dry_run_counts_calls_and_writes_nothing(tmp_path: Path) -> None:
    house = tmp_path / "house"
    arguments = ["grade", str(DEMO), "--dry-run", "--warehouse", str(house)]
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    rows = {row["item"]: row for row in csv.DictReader(result.output.splitlines())}
    assert (rows["all"]["responses"], rows["all"]["settled without a call"], rows["all"]["calls"]) == (
        "160",
        "4",
        "156",
    )
    assert not house.exists()


def test_the_demo_is_valid() -> None:
    result = CliRunner().invoke(cli.app, ["validate", str(DEMO)], catch_exceptions=False)
    assert result.exit_code == 0
    assert result.output.count("prompt, contract and verifier hold") == 8


def test_a_rubric_that_cannot_reach_full_marks_is_named(tmp_path: Path) -> None:
    for name in ("items.csv", "responses.csv", "marks.csv", "study.yaml"):
        (tmp_path / name).write_bytes((DEMO.parent / name).read_bytes())
    rubrics = (DEMO.parent / "rubrics.yaml").read_text()
    study = tmp_path / "study.yaml"
    study.write_text(study.read_text().replace("final_score: weighted_points", "final_score: trait_sum"))
    (tmp_path / "rubrics.yaml").write_text(rubrics)
    result = CliRunner().invoke(cli.app, ["validate", str(study)])
    assert result.exit_code == 2
    assert "its traits sum to" in result.stderr


def test_an_unknown_key_in_a_study_is_refused(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(DEMO.read_text() + "\ncolour: red\n")
    result = CliRunner().invoke(cli.app, ["validate", str(study)])
    assert result.exit_code == 2
    assert "field 'colour'" in result.stderr


def test_asking_about_runs_makes_no_warehouse(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli.app, ["sql", "SELECT 1", "--warehouse", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "no finished run" in result.stderr
    assert not (tmp_path / "none").exists()


def test_a_terminal_shows_control_characters_as_text() -> None:
    assert terminal._cell("\x1b[31mred\x07 [bold]x") == "\\x1b[31mred\\x07 \\[bold]x"


def test_rubrics_that_a_model_will_make_are_rehearsed_without_it(tmp_path: Path) -> None:
    for name in ("items.csv", "responses.csv", "marks.csv", "rubrics.yaml"):
        (tmp_path / name).write_bytes((DEMO.parent / name).read_bytes())
    study = tmp_path / "study.yaml"
    asked = (
        "judge: {backend: openai, engine: {model: m, urls: ['http://127.0.0.1:9/v1']}, final_score: weighted_points}"
    )
    plain = DEMO.read_text().replace("  file: rubrics.yaml\n", "  file: rubrics.yaml\n  induce: {criteria: 5}\n")
    study.write_text(plain.replace("judge: {protocol: rulers, backend: embedded, final_score: weighted_points}", asked))
    result = CliRunner().invoke(cli.app, ["validate", str(study), "--limit", "2"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "made by rules of thumb here" in result.output
    assert result.output.count("prompt, contract and verifier hold") == 8


def test_a_broken_graph_is_named_without_asking_anybody(tmp_path: Path) -> None:
    for name in ("items.csv", "responses.csv", "rubrics.yaml", "reward.yaml", "graphs.yaml"):
        (tmp_path / name).write_bytes((DEMO.parent / name).read_bytes())
    study = tmp_path / "reward.yaml"
    result = CliRunner().invoke(cli.app, ["validate", str(study), "--limit", "1"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "graph of rubric osmosis: 3 edges, no circle" in result.output
    graphs = (tmp_path / "graphs.yaml").read_text(encoding="utf-8")
    circle = "{parent: P2, child: P1, relation: weak_prerequisite}"
    (tmp_path / "graphs.yaml").write_text(graphs.replace("  edges:\n", f"  edges:\n    - {circle}\n", 1), "utf-8")
    result = CliRunner().invoke(cli.app, ["validate", str(study), "--limit", "1"])
    assert result.exit_code == 2
    assert "circle" in result.stderr
    assert "graphs.yaml" in result.stderr


def test_annotators_are_proven_beside_the_judge() -> None:
    from flows.rehearse import prove

    found = list(prove(DEMO.with_name("concepts.yaml"), 1))
    assert {kind for kind, _, _ in found} == {"ok"}
    assert {"item osmosis", "annotators, item osmosis"} <= {what for _, what, _ in found}
