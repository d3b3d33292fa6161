"""The graphs of a study, in whichever run of a warehouse they were built: a graph is known by what it is made from, the
questions, the rubrics, the annotator and the votes, and not by who judges or how a reward is put together."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rubricflow.flows.batch import StudyGraphs
from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.rubrics import RubricGraphs
from rubricflow.tasks.core.llm.backends.replay import Replay
from rubricflow.tasks.core.llm.opening import model_of
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.recorded import read_manifest
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.sources import streams
from rubricflow.tasks.grading.ingest.survey import survey
from rubricflow.tasks.grading.lock.bundles import asks, finished
from rubricflow.tasks.grading.lock.rubric import authored as authored_rubrics
from rubricflow.tasks.grading.lock.rubric import rubrics_of
from rubricflow.tasks.rewards.graph.annotator import settings_of
from rubricflow.tasks.rewards.graph.build import Sources, sources_of
from rubricflow.tasks.rewards.graph.heuristic import MODEL
from rubricflow.tasks.rewards.graph.project import read_votes
from rubricflow.tasks.rewards.graph.subject import authored, subjects

CODE = "code"
"""What a graph is made by besides all that its row names: a run's code."""


class StoredGraph(NamedTuple):
    """A graph of the warehouse."""

    run_id: str
    row: Mapping[str, Any]
    parts: Mapping[str, str]
    """What it was made from."""


def built_graphs(study: Study, path: Path, warehouse: Warehouse) -> StudyGraphs:
    """Items and bundles as the study has them now, with the graphs that some run built of the same.

    No model is asked: what one made of rubrics is read from the reply store. InputError for bad input;
    StoreError where a graph is not there: it names what differs from those that are, and the command that builds it.
    """
    hint = f"build it: rubricflow graph {path} --warehouse {warehouse.place}"
    stored = []
    for run_id in reversed(warehouse.runs()):
        run = warehouse.run(run_id)
        if run.done("graph", "all"):
            code = {CODE: str(read_manifest(run)["identity"].get("code"))}
            rows = run.table(RubricGraphs, "graph").to_pylist(maps_as_pydicts="strict")
            stored += [StoredGraph(run_id, row, row["made_from"] | code) for row in rows]
    if not stored:
        raise StoreError(f"no run in {warehouse.place} has a graph; {hint}")
    base = path.parent
    surveyed = survey(streams(study.data, base), study.split, study.evaluation.target)
    items = [dict(row) for row in surveyed.items.values()]
    authored_by_name = (
        authored_rubrics(base / study.rubrics.file, study.rubrics.induce is not None) if study.rubrics.file else {}
    )
    rubrics = rubrics_of(items, authored_by_name, study.rubrics)
    replies = warehouse.replies if asks(study.rubrics) else ":memory:"
    locked = finished(
        study, rubrics, authored_by_name, items, replies, lambda store: Replay(store, model_of(study.judge, base))
    )
    bundles = {name: locked_rubric.bundle for name, locked_rubric in locked.items()}
    plan, rubric_subjects = study.graph, subjects(items, bundles)
    written = authored(base / plan.file, rubric_subjects) if plan.file else {}
    votes = read_votes(base / plan.votes, rubric_subjects) if plan.votes else []
    settings = settings_of(plan, model_of(plan, base) if is_generative(plan) else MODEL, is_generative(plan))
    graphs = {
        name: _match(name, made_from, stored, f"no run in {warehouse.place} has", hint)
        for name, made_from in sources_of(rubric_subjects, written, votes, settings).items()
    }
    return StudyGraphs(items, bundles, graphs)


def _match(name: str, sources: Sources, stored: list[StoredGraph], none: str, hint: str) -> Graph:
    """The graph that was made from these; StoreError where there is none."""
    parts = sources.parts | {CODE: code_digest()}
    alike = [candidate for candidate in stored if candidate.row["rubric_id"] == name]
    if not alike:
        raise StoreError(f"{none} a graph of rubric '{name}'; {hint}")
    nearest = min(alike, key=lambda candidate: len(_differing(parts, candidate.parts)))
    odd = _differing(parts, nearest.parts)
    if odd:
        raise StoreError(
            f"{none} the graph of rubric '{name}' as this study makes it: the nearest, of run "
            f"{nearest.run_id}, differs in {', '.join(odd)}; {hint}"
        )
    return Graph.model_validate_json(nearest.row["content"])


def _differing(parts: Mapping[str, str], stored_parts: Mapping[str, str]) -> list[str]:
    return sorted(name for name in parts.keys() | stored_parts.keys() if parts.get(name) != stored_parts.get(name))
