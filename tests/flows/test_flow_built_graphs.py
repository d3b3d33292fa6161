"""Graphs are found again by what they are made from: each setting of a study changed in turn."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from rubricflow.flows.plan import plan, record
from rubricflow.flows.stage import references
from rubricflow.flows.trainers import RubricReward
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.settings.reward import Graphs, Reward
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.task import lock
from rubricflow.tasks.rewards.graph.task import graph

HOUSE = Path(__file__).resolve().parents[2]
CRITERIA = [
    {"id": "fact", "trait": "t", "text": "Says that heat is motion.", "weight": 2},
    {"id": "example", "trait": "t", "text": "Gives an example of motion.", "weight": 1},
]
RUBRIC = {
    "title": "T",
    "text": "x",
    "scale": {"min": 0, "max": 1},
    "traits": [{"id": "t", "name": "T", "min": 0, "max": 1}],
}
AUTHORED = """graphs:
- rubric_id: q1
  nodes: [{criterion_id: example, role: additional}]
  edges: [{parent: fact, child: example, relation: strong_prerequisite}]
"""
VOTES = """subject_kind,rubric_id,parent,child,value,rater_id,voted_at
graph_edge,q2,fact,example,activation,ann,2026-01-02T10:00Z
"""
STUDY: dict[str, Any] = {
    "name": "s",
    "data": {"sources": [{"file": "items.csv", "items": {"item_id": "id", "question": "question"}}]},
    "rubrics": {"file": "rubrics.yaml"},
    "judge": {"protocol": "pointwise", "backend": "embedded"},
    "graph": {"file": "graphs.yaml"},
    "reward": {"retention": {"weak_prerequisite": 0.6, "strong_prerequisite": 0.2, "activation": 0.0}},
}


def write(folder: Path, study: dict[str, Any], **files: str) -> Path:
    """The study's files. files: name without ending → content in place of the usual one."""
    rubrics = [RUBRIC | {"rubric_id": name, "criteria": CRITERIA} for name in ("q1", "q2")]
    usual = {
        "items.csv": "id,question\nq1,What is heat?\nq2,What is cold?\n",
        "answers.csv": "nr,item,answer,mark\na,q1,It is motion.,1\nb,q1,Fire.,0\n",
        "rubrics.yaml": json.dumps({"rubrics": rubrics}),
        "graphs.yaml": AUTHORED,
        "votes.csv": VOTES,
        "factors.csv": "rubric_id,parent,child,retention\nq1,fact,example,0.5\n",
        "study.yaml": yaml.safe_dump(study),
    }
    for name, content in usual.items():
        (folder / name).write_text(files.get(name.partition(".")[0], content))
    return folder / "study.yaml"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the study and a warehouse that holds its graphs."""
    folder = tmp_path_factory.mktemp("drawn")
    job = plan(write(folder, STUDY), folder / "house")
    run, study, base = job.run, job.study, job.base
    data = ingest.fn(run, study, base)
    locked = lock.fn(run, study, base, data.items, data.responses, data.gradings, data.judgments)
    graphed = graph.fn(run, study, base, data.items, locked.bundles)
    record(job, [*references((data, locked, graphed))])
    return folder


@pytest.fixture
def folder(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built / "house", tmp_path / "house")
    return tmp_path


def changed(path: str, value: Any) -> dict[str, Any]:
    """The study with another value under a dotted key."""
    study = json.loads(json.dumps(STUDY))
    *above, last = path.split(".")
    at = study
    for name in above:
        at = at.setdefault(name, {})
    at[last] = value
    return study


ENGINE = {"model": "m"}
ANSWERED = {
    "file": "answers.csv",
    "responses": {"response_id": "nr", "item_id": "item", "text": "answer"},
    "scores": [{"rater": "anna", "score": "mark"}],
}
SAME: list[tuple[str, Any]] = [
    ("name", "another"),
    ("data.sources", [*STUDY["data"]["sources"], ANSWERED]),
    ("split.seed", 9),
    ("marks", "calibrate"),
    ("run", {"engine": "dask", "workers": 3}),
    ("judge.backend", "replay"),
    ("judge", {"protocol": "rulers", "backend": "openai", "engine": ENGINE}),
    ("judge", {"protocol": "checkeval", "backend": "openai", "engine": ENGINE | {"concurrency": 3}}),
    ("judge.evidence", "off"),
    ("judge.unscored", "bounds"),
    ("judge.failed_quote", "count"),
    ("judge.criteria_per_call", 4),
    ("judge.repair", {"contract": 1}),
    ("judge.min_tokens", 2),
    ("judge.echo", "allowed"),
    ("judge.sampling", {"seed": 1}),
    ("graph.engine", ENGINE),
    ("graph.model", "m"),
    ("graph.replies", "replies.parquet"),
    ("graph.sampling", {"seed": 1}),
    ("graph.profile", "law"),  # nobody is asked
    ("graph.orders", 3),
    ("graph.examples", 1),
    ("reward.retention.activation", 0.1),
    ("reward.eta", 2.0),
    ("reward.inference", "exact"),
    ("reward.local", "decision"),
    ("reward.threshold", 0.7),
    ("reward.rater", "anna"),
    ("reward.edge_retention", "factors.csv"),
    ("reward.learn", {"folds": 3}),
    ("reward.draws", 5),
    ("reward.seed", 1),
    ("calibration.method", "linear"),
    ("release.risk", 0.2),
    ("evaluation.draws", 5),
    ("money", {"minutes": 2.0}),
]
OTHER: list[tuple[str, Any, str]] = [
    ("graph.votes", "votes.csv", "votes"),
    ("graph", {"file": "graphs.yaml", "backend": "openai", "engine": ENGINE}, "annotator"),
    ("graph", {"file": "graphs.yaml", "backend": "replay", "model": "m"}, "annotator"),
    ("graph.file", None, "annotator"),
    ("rubrics.variant", "criteria_reversed", "criteria"),
]
UNTRIED = {"annotation", "bottleneck", "edit", "log"}
"""Sections of other methods, large and without a way into a graph."""


@pytest.mark.parametrize(("key", "value"), SAME, ids=lambda of: str(of)[:40])
def test_a_setting_that_makes_no_graph_loses_none(folder: Path, key: str, value: Any) -> None:
    study = changed(key, value)
    if key == "judge.backend":
        study["judge"]["model"] = "m"
    reward = RubricReward.of_study(write(folder, study), folder / "house")
    assert {item.compiled.rubric_id: len(item.compiled.parent) for item in reward.items.values()}["q1"] == 1
    asked = study["judge"]
    assert {item.bundle.protocol.unscored for item in reward.items.values()} == {asked.get("unscored", "null")}
    wanted = {"none"} if asked.get("evidence") == "off" or asked["protocol"] == "checkeval" else {"local_quote"}
    assert {c.evidence for item in reward.items.values() for c in item.bundle.criteria} == wanted


@pytest.mark.parametrize(("key", "value", "part"), OTHER, ids=lambda of: str(of)[:40])
def test_a_setting_that_makes_the_graph_asks_for_a_new_one(folder: Path, key: str, value: Any, part: str) -> None:
    study = write(folder, changed(key, value))
    with pytest.raises(StoreError) as caught:
        RubricReward.of_study(study, folder / "house")
    said = str(caught.value)
    assert part in said.partition("differs in ")[2].partition(";")[0].split(", ")
    assert said.endswith(f"build it: rubricflow graph {study} --warehouse {folder / 'house'}")


REWORDED = [CRITERIA[0], CRITERIA[1] | {"text": "Names an example of motion."}]
WEIGHED = [CRITERIA[0], CRITERIA[1] | {"weight": 3}]


def rubrics_with(criteria: list[dict[str, Any]]) -> str:
    return json.dumps({"rubrics": [RUBRIC | {"rubric_id": name, "criteria": criteria} for name in ("q1", "q2")]})


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("items", "id,question\nq1,What is heat?\nq2,What is ice?\n", "question"),
        ("rubrics", rubrics_with(REWORDED), "criteria"),
        ("rubrics", rubrics_with(WEIGHED), "criteria"),
        ("rubrics", rubrics_with([*CRITERIA, CRITERIA[0] | {"id": "more"}]), "criteria"),
        ("graphs", AUTHORED.replace("strong", "weak"), "graph"),
        ("rubrics", rubrics_with([one | {"evidence": "span_level"} for one in CRITERIA]), None),
        ("rubrics", rubrics_with([one | {"levels": ["no", "half", "yes"]} for one in CRITERIA]), None),
        ("items", "id,question\nq2,What is cold?\nq1,What is heat?\n", None),
    ],
)
def test_what_the_files_say_counts_as_far_as_it_makes_the_graph(
    folder: Path, file: str, content: str, part: str | None
) -> None:
    study = write(folder, STUDY, **{file: content})
    if part is None:
        RubricReward.of_study(study, folder / "house")
        return
    with pytest.raises(StoreError, match=rf"differs in .*{part}"):
        RubricReward.of_study(study, folder / "house")


def test_graphs_of_other_code_are_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rubricflow.flows.prepared_items.code_digest", lambda: "newer")
    with pytest.raises(StoreError, match="differs in code; build it"):
        RubricReward.of_study(write(folder, changed("reward.eta", 2.0)), folder / "house")


def test_every_setting_is_tried() -> None:
    tried = {key for key, *_ in (*SAME, *OTHER)}
    whole = {key.partition(".")[0] for key in tried}
    assert set(Study.model_fields) - UNTRIED <= whole
    for section, model in (("graph", Graphs), ("reward", Reward)):
        names = {key.split(".")[1] for key in tried if key.startswith(f"{section}.")}
        assert set(model.model_fields) - {"backend"} <= names
