"""The door of graph, end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builders import studies
from builders.bundles import bundle, criterion
from builders.rows import item, locked
from graph_scene import annotating

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.request import Request
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.rewards.graph import task as door
from rubricflow.tasks.rewards.graph.task import Graphed, graph

AUTHORED = """
graphs:
- rubric_id: a
  nodes: [{criterion_id: c1, role: additional}]
  edges: [{parent: c0, child: c1, relation: strong_prerequisite}]
"""
VOTES = (
    "subject_kind,rubric_id,parent,child,value,rater_id,voted_at\ngraph_edge,b,c1,c0,activation,ann,2026-01-02T10:00Z\n"
)


def study(**graphs: Any) -> Study:
    return studies.study(graph=graphs)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run with two rubrics of two criteria each."""
    run = Warehouse.open(tmp_path / "warehouse").run("one")
    bundles = {name: bundle(*(criterion(f"c{at}", text=f"{name} {at}") for at in (0, 1))) for name in ("a", "b")}
    run.commit("ingest", "all", {Items: [item(f"i{name}", rubric_id=name) for name in bundles]})
    run.commit("lock", "all", {Bundles: [locked(judged, name) for name, judged in bundles.items()]})
    return run


def graphed(run: Run, plan: Study, base: Path) -> Graphed:
    return graph.fn(run, plan, base, run.ref(Items, "ingest"), run.ref(Bundles, "lock"))


def scripted(monkeypatch: pytest.MonkeyPatch, fault_after: int = 10**9) -> Scripted:
    """Puts a model in place of vLLM's that finds every second criterion resting on the first."""

    def answer(request: Request) -> Any:
        if backend.calls > fault_after:
            return KeyboardInterrupt()
        return annotating({}, {("c0", "c1"): "weak_prerequisite"})(request)

    backend = Scripted(answer, batch_size=1)
    monkeypatch.setattr(door, "open_backend", lambda *given: backend)
    return backend


MODEL = {"backend": "vllm", "engine": {"model": "m"}}


def test_a_model_makes_the_graph_of_every_rubric(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch)
    refs = graphed(run, study(**MODEL), tmp_path)
    rows = run.read(refs.graphs).to_pylist()
    assert [(row["rubric_id"], row["kept"], row["annotator"]) for row in rows] == [
        ("a", 1, "scripted"),
        ("b", 1, "scripted"),
    ]
    for row in rows:
        assert Graph.model_validate_json(row["content"]).graph_id == row["graph_id"]
    assert [(row["rubric_id"], row["parent"], row["child"]) for row in run.read(refs.edges).to_pylist()] == [
        ("a", "c0", "c1"),
        ("b", "c0", "c1"),
    ]
    assert (refs.nodes.rows, refs.votes.rows) == (4, 0)


def test_authored_graphs_and_votes_stand_beside_what_the_model_says(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = scripted(monkeypatch)
    (tmp_path / "graphs.yaml").write_text(AUTHORED)
    (tmp_path / "votes.csv").write_text(VOTES)
    refs = graphed(run, study(file="graphs.yaml", votes="votes.csv", **MODEL), tmp_path)
    kept = [row for row in run.read(refs.edges).to_pylist() if row["kept"]]
    assert [(row["rubric_id"], row["parent"], row["child"], row["relation"], row["source"]) for row in kept] == [
        ("a", "c0", "c1", "strong_prerequisite", "authored"),
        ("b", "c1", "c0", "activation", "vote"),
    ]
    assert {request.subject for request in backend.asked} == {"b"}
    assert [row["subject"] for row in run.read(refs.votes).to_pylist()] == ["b:c1→c0"]


def test_authored_graphs_of_all_rubrics_need_nobody(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "open_backend", None)
    (tmp_path / "graphs.yaml").write_text(AUTHORED + "- {rubric_id: b}\n")
    refs = graphed(run, study(file="graphs.yaml", **MODEL), tmp_path)
    assert [row["annotator"] for row in run.read(refs.graphs).to_pylist()] == ["authored", "authored"]


def test_what_is_made_stays_and_replays(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backend = scripted(monkeypatch)
    first = graphed(run, study(**MODEL), tmp_path)
    assert graphed(run, study(**MODEL), tmp_path) == first
    again = Warehouse.open(tmp_path / "warehouse").run("two")
    again.commit("ingest", "all", {Items: run.read(run.ref(Items, "ingest"))})
    again.commit("lock", "all", {Bundles: run.read(run.ref(Bundles, "lock"))})
    replayed = graphed(again, study(backend="replay", model="scripted"), tmp_path)
    assert backend.calls == 4
    assert replayed.graphs.digest == first.graphs.digest
    assert replayed.edges.digest == first.edges.digest


def test_without_a_graph_by_anybody_that_is_said_each_time(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "votes.csv").write_text(VOTES)
    for number in range(2):
        assert {row["annotator"] for row in run.read(graphed(run, study(), tmp_path).graphs).to_pylist()} == {"stated"}
        assert "2 of 2 rubrics" in capsys.readouterr().out, number
    again = Warehouse.open(tmp_path / "warehouse").run("voted")
    again.commit("ingest", "all", {Items: run.read(run.ref(Items, "ingest"))})
    again.commit("lock", "all", {Bundles: run.read(run.ref(Bundles, "lock"))})
    graphed(again, study(votes="votes.csv"), tmp_path)
    assert "1 of 2 rubrics" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("votes", VOTES.replace(",b,", ",q,"), r"votes\.file.*row 1, field 'rubric_id': there is no rubric 'q'"),
        ("file", AUTHORED.replace("c0", "c9"), "rubric 'a': edge c9 → c1: there is no criterion 'c9'"),
    ],
)
def test_bad_input_is_named(name: str, text: str, rule: str, run: Run, tmp_path: Path) -> None:
    file = f"{name}.file.csv" if name == "votes" else "graphs.yaml"
    (tmp_path / file).write_text(text)
    with pytest.raises(InputError, match=rule):
        graphed(run, study(**{name: file}), tmp_path)
