"""The items that rollouts can answer, each with its rubric and graph as arrays; and where a study's graphs come from.

A graph is known by what it is made from, the questions, the rubrics, the annotator and the votes, and not by who judges
or how a reward is put together: it is taken from whichever run of a warehouse built it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.errors import InputError, StoreError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, protocols_where
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items
from rubricflow.tasks.core.contracts.tables.rubrics import STATED, Bundles, RubricGraphs, said_of_stated
from rubricflow.tasks.core.llm.backends.replay import Replay
from rubricflow.tasks.core.llm.opening import model_of
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.ingest.sources import streams
from rubricflow.tasks.grading.ingest.survey import survey
from rubricflow.tasks.grading.lock.bundles import asks, finished
from rubricflow.tasks.grading.lock.rubric import authored as authored_rubrics
from rubricflow.tasks.grading.lock.rubric import rubrics_of
from rubricflow.tasks.rewards.graph.annotator import settings_of, worked_examples
from rubricflow.tasks.rewards.graph.build import NOBODY, sources_of
from rubricflow.tasks.rewards.graph.project import read_votes
from rubricflow.tasks.rewards.graph.subject import authored, subjects
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, compile_graph
from rubricflow.tasks.rewards.reward.exact import check_widths
from rubricflow.tasks.rewards.reward.factors import Factors


class StudyGraphs(NamedTuple):
    """What the rollouts of a study are rewarded by."""

    items: list[Record]
    bundles: dict[str, Bundle]
    graphs: dict[str, Graph]


def graphs_by(
    items: Iterable[Fields], bundles: dict[str, Bundle], graphs: dict[str, Graph], by: Mapping[str, str]
) -> StudyGraphs:
    return StudyGraphs([{**row, "graph_by": by.get(row["rubric_id"])} for row in items], bundles, graphs)


def stated_alone(items: Iterable[PreparedItem]) -> str | None:
    """A sentence about the rubrics whose dependencies nobody looked for, see `without_graph`; None where there are
    none."""
    rubrics = {item.row["rubric_id"]: item for item in items}
    edges = [len(item.compiled.parent) for item in rubrics.values() if item.row.get("graph_by") == STATED]
    return said_of_stated(len(edges), len(rubrics), sum(edges))


class PreparedItem(NamedTuple):
    """An item that rollouts can answer."""

    row: Fields
    """Its row of the table `items`, with `graph_by`: who made its rubric's graph, where that is known."""
    bundle: Bundle
    """Its rubric, as rollouts are judged under it."""
    bundle_id: str
    compiled: CompiledGraph


def prepared_items(
    items: Iterable[Fields],
    bundles: Mapping[str, Bundle],
    graphs: Mapping[str, Graph],
    settings: Reward,
    criteria_per_call: int | None,
    factors: Factors | None = None,
) -> dict[str, PreparedItem]:
    """Item → what its rollouts are judged and rewarded by; see `RolloutReward` for the parameters and the errors."""
    prepared: dict[str, PreparedItem] = {}
    of_rubric: dict[str, tuple[Bundle, str, CompiledGraph]] = {}
    for number, row in enumerate(items, 1):
        for field in ("item_id", "rubric_id", "question"):
            if not isinstance(row.get(field), str):
                raise InputError(f"an item needs '{field}', as a text", row=number, field=f"items.{field}")
        item_id = row["item_id"]
        name = row["rubric_id"]
        if item_id in prepared:
            raise InputError(f"item '{item_id}' is given twice", row=number, field="items.item_id")
        if name not in bundles or name not in graphs:
            raise InputError(f"rubric '{name}' of an item has no {'graph' if name in bundles else 'bundle'}")
        if name not in of_rubric:
            learned = (factors or {}).get(name)
            compiled = compile_graph(name, bundles[name], graphs[name], settings.retention, settings.eta, learned)
            judged = _as_judged(name, bundles[name], criteria_per_call)
            of_rubric[name] = judged, judged.bundle_id, compiled
        prepared[item_id] = PreparedItem(row, *of_rubric[name])
    if not prepared:
        raise InputError("there is no item that a rollout could answer")
    rules = sorted({bundle.protocol.unscored for bundle, *_ in of_rubric.values()})
    if len(rules) != 1:
        raise InputError(f"the bundles differ in what an unscored criterion does: {', '.join(rules)}")
    if settings.inference == "exact":
        check_widths(compiled for *_, compiled in of_rubric.values())
    return prepared


def _as_judged(name: str, bundle: Bundle, criteria_per_call: int | None) -> Bundle:
    """The bundle as rollouts are judged under it; InputError where its protocol decides no single criteria."""
    protocol = PROTOCOLS[bundle.protocol.name]
    if protocol.is_trained:
        return bundle
    if not protocol.keeps_decisions:
        rule = f"rubric '{name}': protocol '{bundle.protocol.name}' decides no single criteria"
        raise InputError(rule, field="judge.protocol", hint=f"use {protocols_where(lambda of: of.keeps_decisions)}")
    changed: Record = {"show_weights": False}
    if criteria_per_call is not None:
        changed |= {"name": "pointwise", "criteria_per_call": criteria_per_call, "in_parts": False}
    return bundle.model_copy(update={"protocol": bundle.protocol.model_copy(update=changed)})


def graphs_of_run(run: Run) -> StudyGraphs:
    """Items, bundles and graphs of a run; StoreError where it has none."""
    items = run.table(Items, "ingest").to_pylist()
    bundles = unlocked(run.table(Bundles, "lock").to_pylist())
    rows = run.table(RubricGraphs, "graph", ["rubric_id", "content", "annotator"]).to_pylist()
    graphs = {row["rubric_id"]: Graph.model_validate_json(row["content"]) for row in rows}
    return graphs_by(items, bundles, graphs, {row["rubric_id"]: row["annotator"] for row in rows})


def graphs_of_study(study: Study, path: Path, warehouse: Warehouse) -> StudyGraphs:
    """Items and bundles as the study has them now, with the graphs that some run built of the same.

    No model is asked: what one made of rubrics is read from the reply store. InputError for bad input;
    StoreError where a graph is not there: it names what differs from those that are, and the command that builds it.
    """
    hint = f"build it: rubricflow graph {path} --warehouse {warehouse.place}"
    stored: list[tuple[str, Fields, dict[str, str]]] = []  # run, row, and what the graph was made from
    for run_id in reversed(warehouse.runs()):
        run = warehouse.run(run_id)
        if run.done("graph", "all"):
            code = {"code": str(read_manifest(run)["identity"].get("code"))}
            rows = run.table(RubricGraphs, "graph").to_pylist(maps_as_pydicts="strict")
            stored += [(run_id, row, row["made_from"] | code) for row in rows]
    if not stored:
        raise StoreError(f"no run in {warehouse.place} has a graph; {hint}")
    base, (items, bundles) = path.parent, rubrics_of_study(study, path, warehouse)
    plan = study.graph
    rubric_subjects = subjects(items, bundles)
    written = authored(base / plan.file, rubric_subjects) if plan.file else {}
    votes = read_votes(base / plan.votes, rubric_subjects) if plan.votes else []
    examples = worked_examples(plan.examples, written, rubric_subjects)
    settings = settings_of(plan, model_of(plan, base), examples) if is_generative(plan) else NOBODY
    graphs = {}
    made = sources_of(rubric_subjects, written, votes, settings)
    for name, sources in made.items():
        wanted = (sources.parts | {"code": code_digest()}).items()
        candidates = []
        for run_id, row, parts in stored:
            if row["rubric_id"] == name:
                candidates.append((sorted({part for part, _ in wanted ^ parts.items()}), run_id, row))
        if not candidates:
            raise StoreError(f"no run in {warehouse.place} has a graph of rubric '{name}'; {hint}")
        differing, run_id, row = min(candidates, key=lambda candidate: len(candidate[0]))
        if differing:
            rule = f"no run in {warehouse.place} has the graph of rubric '{name}' as this study makes it: the nearest"
            raise StoreError(f"{rule}, of run {run_id}, differs in {', '.join(differing)}; {hint}")
        graphs[name] = Graph.model_validate_json(row["content"])
    return graphs_by(items, bundles, graphs, {name: sources.annotator for name, sources in made.items()})


def rubrics_of_study(study: Study, path: Path, warehouse: Warehouse) -> tuple[list[Record], dict[str, Bundle]]:
    """Items and bundles as the study has them now; no model is asked, see `graphs_of_study`. InputError for bad
    input."""
    base = path.parent
    surveyed = survey(streams(study.data, base), study.split, study.evaluation.target)
    items = [dict(row) for row in surveyed.items.values()]
    authored_by_name = (
        authored_rubrics(base / study.rubrics.file, study.rubrics.induce is not None) if study.rubrics.file else {}
    )
    rubrics = rubrics_of(items, authored_by_name, study.rubrics)
    replies = warehouse.replies if asks(study.rubrics) else ":memory:"
    locked = finished(
        study, rubrics, authored_by_name, items, replies, lambda store: Replay(store, model_of(study.judge.lead, base))
    )
    return items, {name: locked_rubric.bundle for name, locked_rubric in locked.items()}
