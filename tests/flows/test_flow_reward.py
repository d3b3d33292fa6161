"""Graphs and rewards from a study file to their tables, with recorded verdicts (no model, no network)."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from builders.command import command, done, last_run, refused
from builders.files import read_csv, write_csv

from rubricflow.flows.trainers import RubricReward
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.engine import Placement
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, EdgeCases, Rewards
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges, GraphNodes, RubricGraphs
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"
STUDY = """
name: tiny_reward
data:
  sources:
    - file: items.jsonl
      items: {item_id: id, question: question, criteria: criteria}
    - file: answers.csv
      responses: {response_id: id, item_id: item, author_id: author, text: text}
      scores: [{rater: other_system, kind: replayed, score: recorded}, {rater: anna, score: anna}]
    - file: verdicts.csv
      marks: {response_id: response, rater_id: {const: recorded}, criterion_id: criterion, level: met,
              rater_kind: {const: replayed}}
rubrics:
  derive: {origin: criteria, scale: {min: 0, max: 4}, kind: criterion, evidence: none, levels: [not met, met]}
split: {per: set, calibration: 40}
graph: {file: graphs.yaml}
reward:
  retention: {weak_prerequisite: 0.6, strong_prerequisite: 0.2, activation: 0.0}
  rater: recorded
  draws: 100
"""
GRAPHS = """
graphs:
  - rubric_id: a
    nodes: [{criterion_id: extra, role: additional}]
    edges:
      - {parent: fact, child: reason, relation: strong_prerequisite}
      - {parent: reason, child: extra, relation: weak_prerequisite}
"""
CRITERIA = [
    {"id": "fact", "text": "States the fact.", "weight": 5},
    {"id": "reason", "text": "Gives the reason for the fact.", "weight": 3},
    {"id": "extra", "text": "Adds an example to the reason.", "weight": 2},
    {"id": "wrong", "text": "Claims the opposite.", "weight": -4},
]
VERDICTS = {"x1": "1111", "x2": "0110", "x3": "1010", "x4": "0001"}
"""Response → whether fact, reason, extra and wrong are met; the others repeat these."""
FLAT = {"x1": 0.6, "x2": 0.5, "x3": 0.7, "x4": -0.4}
GEAR = {"x1": 0.6, "x2": (3 * 0.2 + 2 * (0.2 + 0.8 * 0.6)) / 10, "x3": (5 + 2 * 0.6) / 10, "x4": -0.4}
HARD_LOCAL = {"x1": 0.6, "x2": 0.2, "x3": 0.5, "x4": -0.4}
HARD_PROPAGATED = {"x1": 0.6, "x2": 0.0, "x3": 0.5, "x4": -0.4}


def make_study(folder: Path) -> Path:
    """A hundred answers to one question; every fourth has the verdicts of x1, x2, x3 or x4."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(STUDY)
    (folder / "graphs.yaml").write_text(GRAPHS)
    (folder / "items.jsonl").write_text(json.dumps({"id": "a", "question": "Why?", "criteria": CRITERIA}) + "\n")
    answers, verdicts = [], []
    for n in range(1, 101):
        like = f"x{(n - 1) % 4 + 1}"
        human = {"x1": 4, "x2": 1, "x3": 3, "x4": 0}[like]
        answers.append([f"x{n}", "a", f"author {n}", f"answer {n}", FLAT[like], human])
        names = [criterion["id"] for criterion in CRITERIA]
        verdicts += [[f"x{n}", name, met] for name, met in zip(names, VERDICTS[like], strict=True)]
    write_csv(folder / "answers.csv", ["id", "item", "author", "text", "recorded", "anna"], answers)
    write_csv(folder / "verdicts.csv", ["response", "criterion", "met"], verdicts)
    return folder / "study.yaml"


@pytest.fixture(scope="module")
def rewarded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run, str]:
    folder = tmp_path_factory.mktemp("reward")
    study = make_study(folder)
    house = str(folder / "house")
    result = done("reward", study, "--warehouse", house)
    return study, last_run(folder / "house"), result.output


def of_aggregation(run: Run, name: str) -> dict[str, float]:
    rows = run.read(run.ref(Rewards, "reward")).to_pylist()
    return {row["response_id"]: row["reward"] for row in rows if row["aggregation"] == name}


@pytest.mark.parametrize(
    ("aggregation", "expected"),
    [
        ("flat", FLAT),
        ("gear", GEAR),
        ("hard_verdict", HARD_LOCAL),  # the verdicts are yes and no
        ("hard_local", HARD_LOCAL),
        ("hard_propagated", HARD_PROPAGATED),
    ],
)
def test_rewards_are_those_worked_out_by_hand(
    rewarded: tuple[Path, Run, str], aggregation: str, expected: dict[str, float]
) -> None:
    found = of_aggregation(rewarded[1], aggregation)
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-12)


def test_retention_factors_are_recorded_with_every_reward(rewarded: tuple[Path, Run, str]) -> None:
    run = rewarded[1]
    rows = run.read(run.ref(Rewards, "reward")).to_pylist(maps_as_pydicts="strict")
    gear = {(*row["retention"].items(), row["eta"]) for row in rows if row["aggregation"] == "gear"}
    assert gear == {(("weak_prerequisite", 0.6), ("strong_prerequisite", 0.2), ("activation", 0.0), 1.0)}


def test_every_violated_dependency_is_a_case_with_what_it_leaks(rewarded: tuple[Path, Run, str]) -> None:
    run = rewarded[1]
    rows = run.read(run.ref(EdgeCases, "reward")).to_pylist()
    leaked = {
        (row["response_id"], row["parent"]): row["leaked"]
        for row in rows
        if row["aggregation"] == "gear" and row["state"] == "violated" and row["response_id"] in VERDICTS
    }
    expected = {("x2", "fact"): 3 * 0.2 / 10, ("x3", "reason"): 2 * 0.6 / 10}
    assert leaked == pytest.approx(expected, abs=1e-12)


def test_flat_rewards_are_the_scores_that_another_system_recorded(rewarded: tuple[Path, Run, str]) -> None:
    run = rewarded[1]
    rows = run.read(run.ref(Diagnostics, "reward")).to_pylist()
    (found,) = [row for row in rows if row["metric"] == "largest difference: other_system"]
    assert found["value"] == pytest.approx(0.0, abs=1e-12)
    assert found["n"] == 100


def test_the_graph_is_that_of_the_file(rewarded: tuple[Path, Run, str]) -> None:
    run = rewarded[1]
    (graph,) = run.read(run.ref(RubricGraphs, "graph")).to_pylist()
    nodes = run.read(run.ref(GraphNodes, "graph")).to_pylist()
    edges = run.read(run.ref(GraphEdges, "graph")).to_pylist()
    assert graph["annotator"] == "authored"
    assert [node["role"] for node in nodes] == ["core", "core", "additional", "penalty"]
    assert [(edge["parent"], edge["child"], edge["kept"]) for edge in edges] == [
        ("fact", "reason", True),
        ("reason", "extra", True),
    ]


def test_the_report_is_written_and_named(rewarded: tuple[Path, Run, str]) -> None:
    _, run, output = rewarded
    assert "reward.html" in output
    assert (run.folder / "reward.html").read_text().lower().startswith("<!doctype html>")


def test_the_report_can_be_written_anew(rewarded: tuple[Path, Run, str]) -> None:
    run = rewarded[1]
    page = run.folder / "reward.html"
    before = page.read_bytes()
    page.unlink()
    result = command("report", run.run_id, "--warehouse", run.warehouse.root)
    assert result.output.split() == [str(page)]
    assert page.read_bytes() == before


def test_the_same_study_resumes_itself(rewarded: tuple[Path, Run, str]) -> None:
    study, run, _ = rewarded
    before = {path: path.stat().st_mtime_ns for path in run.folder.rglob("*.parquet")}
    house = ["--warehouse", str(run.warehouse.root)]
    done("reward", study, *house)
    assert {path: path.stat().st_mtime_ns for path in run.folder.rglob("*.parquet")} == before


def test_a_study_without_retention_factors_is_refused_with_the_papers(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.write_text(STUDY.split("reward:\n")[0])
    assert "weak_prerequisite: 0.6" in refused("reward", study, "--warehouse", tmp_path / "house")


def trained(folder: Path, better: bool, evaluation: str) -> tuple[Run, str]:
    """The run and the report of a training of 24 steps that earns more and more; Anna finds it better, or worse."""
    study, draw = make_study(folder), random.Random(3)
    study.write_text(STUDY.replace("text: text}\n", "text: text}\n      groups: {step: step}\n") + evaluation)
    answers, verdicts = [], []
    for step in range(1, 25):
        for number in range(8):
            name, is_paid = f"s{step}-{number}", draw.random() < step / 24
            anna = 4 * (is_paid == better)
            answers.append([name, "a", f"author {name}", f"answer {name}", 0, anna, step])
            verdicts += [[name, one["id"], int(is_paid and one["id"] != "wrong")] for one in CRITERIA]
    write_csv(folder / "answers.csv", ["id", "item", "author", "text", "recorded", "anna", "step"], answers)
    write_csv(folder / "verdicts.csv", ["response", "criterion", "met"], verdicts)
    house = folder / "house"
    done("reward", study, "--warehouse", house)
    run = last_run(house)
    return run, (run.folder / "reward.html").read_text(encoding="utf-8")


OTHER = "{protocol: rulers, backend: simulated, truth: {rater: anna, noise: 0.05, broken: 0}}"
SECOND = f"evaluation: {{judge: {OTHER}}}\n"


@pytest.mark.parametrize(("evaluation", "better"), [("evaluation: {target: anna}\n", False), (SECOND, True)])
def test_the_alarm_rings_where_rewards_rise_and_who_pays_nothing_finds_it_worse(
    tmp_path: Path, evaluation: str, better: bool
) -> None:
    run, page = trained(tmp_path, better, evaluation)
    assert "Quality by step" in page
    assert ("learns to please its judge" in page) == (not better)
    assert "192 of 192 rollouts have a score" in page
    rows = run.read(run.ref(Diagnostics, "reward")).to_pylist()
    (found,) = [
        row["value"]
        for row in rows
        if row["aggregation"] == "flat"
        and row["metric"].startswith("spearman: ")
        and ("simulated" in row["metric"] if evaluation == SECOND else row["metric"].endswith("anna"))
    ]
    assert (found > 0.5) == better
    assert (found < -0.5) == (not better)


@pytest.mark.parametrize(
    ("written", "rule"),
    [
        (STUDY.split("reward:\n")[0] + SECOND, "evaluation.judge"),
        (STUDY.replace("  rater: recorded\n", "") + SECOND + f"judge: {OTHER}\n", "judge itself"),
    ],
)
def test_a_judge_of_nothing_and_of_itself_is_refused(tmp_path: Path, written: str, rule: str) -> None:
    study = make_study(tmp_path)
    study.write_text(written)
    ended = command("reward", study, "--warehouse", tmp_path / "house")
    assert (ended.exit_code, rule in ended.stderr) == (2, True), ended.output


def test_a_rater_who_judged_nothing_is_named(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.write_text(STUDY.replace("rater: recorded\n", "rater: nobody\n"))
    assert "rater 'nobody' judged no criterion" in refused("reward", study, "--warehouse", tmp_path / "house")


def test_learned_factors_are_a_table_that_a_study_can_name(tmp_path: Path) -> None:
    study = make_study(tmp_path)
    study.write_text(STUDY + "  learn: {target: anna}\n")
    house = ["--warehouse", str(tmp_path / "house")]
    assert command("reward", study, *house).exit_code == 0
    warehouse = Warehouse.open(tmp_path / "house")
    (table,) = (warehouse.run(warehouse.runs()[0]).folder / "retentions").rglob("*.parquet")
    named = tmp_path / "named.yaml"
    named.write_text(STUDY.replace("tiny_reward", "named") + f"  edge_retention: {table.relative_to(tmp_path)}\n")
    assert command("reward", named, *house).exit_code == 0
    (run,) = [warehouse.run(name) for name in warehouse.runs() if name.startswith("named")]
    assert of_aggregation(run, "flat")["x2"] == pytest.approx(FLAT["x2"])
    assert of_aggregation(run, "gear")["x2"] != pytest.approx(GEAR["x2"], abs=1e-6)


def test_a_trainer_gets_what_the_flow_pays(tmp_path: Path) -> None:
    """The same texts by the same judge, as responses of a study and as rollouts of a policy."""
    for name in ("items.csv", "rubrics.yaml", "graphs.yaml", "reward.yaml"):
        (tmp_path / name).write_bytes((DEMO / name).read_bytes())
    rows = [row for row in read_csv(DEMO / "responses.csv") if row["author_id"] in ("a01", "a06", "a12")]
    write_csv(tmp_path / "responses.csv", list(rows[0]), [list(row.values()) for row in rows])
    study, house = tmp_path / "reward.yaml", tmp_path / "house"
    assert command("reward", study, "--warehouse", house).exit_code == 0
    run = last_run(house)
    for aggregation in ("flat", "gear"):
        paid = of_aggregation(run, aggregation)
        with RubricReward.of_study(study, house, aggregation) as reward:
            columns = {"item_id": [row["item_id"] for row in rows]}
            found = reward([row["item_id"] for row in rows], [row["text"] for row in rows], **columns)
        assert found == pytest.approx([paid[row["response_id"]] for row in rows], abs=1e-12)


def test_graphs_and_a_trainers_reward_need_no_response(tmp_path: Path) -> None:
    study, house = make_study(tmp_path), tmp_path / "house"
    items = "    - file: items.jsonl\n      items: {item_id: id, question: question, criteria: criteria}\n"
    head, tail = STUDY.split("  sources:\n")[0], STUDY[STUDY.index("rubrics:") :].replace("  rater: recorded\n", "")
    study.write_text(f"{head}  sources:\n{items}{tail}judge: {{protocol: pointwise}}\n")
    done("graph", study, "--warehouse", house)
    (picture,) = house.glob("*/graphs/a-*.html")
    assert "Gives the reason for the fact." in picture.read_text(encoding="utf-8")
    (name,) = Warehouse.open(house).runs()  # a run with a manifest, which can be asked in SQL
    asked = command("sql", "SELECT count(*) AS n FROM graph_edges", "--warehouse", house)
    assert asked.stdout.split() == ["n", "2"]
    assert name.startswith("tiny_reward-")
    reported = command("report", "--warehouse", house)
    assert (reported.exit_code, "has no report" in reported.stderr) == (2, True)
    with RubricReward.of_study(study, house) as reward:
        assert reward.__name__ == "rubric_gear"
    assert "there are no responses to judge" in refused("reward", study, "--warehouse", house)


@pytest.mark.parametrize("name", ["graph", "reward"])
def test_graphs_are_asked_for_on_the_engine_that_the_command_names(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines: list[Placement] = []

    def on_engine(placement: Placement, *_: object) -> None:
        engines.append(placement)
        raise BackendError("nobody is there")

    monkeypatch.setattr("rubricflow.flows.plan.require_cluster", engines.append)  # before anything is read
    monkeypatch.setattr("rubricflow.tasks.core.monitor.shared_stage.on_engine", on_engine)
    monkeypatch.setattr("rubricflow.tasks.rewards.graph.task.PACK", 1)
    study = make_study(tmp_path)
    study.write_text(STUDY.replace("{file: graphs.yaml}", "{backend: openai, engine: {model: m}}"))
    items = [{"id": name, "question": f"Why {name}?", "criteria": CRITERIA} for name in "ab"]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    words = ["--warehouse", str(tmp_path / "house"), "--engine", "dask", "--address", "tcp://head:8786"]
    ended = command(name, study, *words)
    assert (ended.exit_code, "nobody is there" in ended.stderr) == (2, True), ended.output
    assert engines == [Placement(engine="dask", address="tcp://head:8786")] * 2
