"""A small finished run with something in every table."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders.buckets import new_bucket, s3_server, variables
from builders.bundles import bundle, criterion
from builders.rows import attempt, grading, item, locked, response, rubric

from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.store import marks
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Records = dict[str, list[dict[str, Any]]]
BUNDLE = bundle(criterion("P1"), ends=(0, 2), signals=("length",))


def _response(key: str, split: str) -> dict[str, Any]:
    return response(key, author_id=f"a-{key}", text=f"Heat {key}.", split=split, groups={"first": "yes"})


def _grading(key: str, rater: str, kind: str, score: float | None) -> dict[str, Any]:
    marked = {"rater_kind": kind, "trait_scores": {"t": 1.0}, "signals": {"recorded": 1.0}}
    return grading(key, rater, score, **marked)


def _prediction(key: str, split: str, score: float | None) -> dict[str, Any]:
    row = {"response_id": key, "item_id": "i", "rater_id": "m", "calibration_id": "c", "split": split, "raw": 1.0}
    return row | {"latent": 1.1, "aligned": 1.0, "score": score, "clipped": False, "route": "release"}


def _rewarded() -> Records:
    """A graph in which P1 licenses P2, and r2 rewarded by it."""
    graph = {"rubric_id": "r", "graph_id": "g"}
    edge = {"parent": "P1", "child": "P2", "relation": "weak_prerequisite"}
    paid = {"response_id": "r2", "item_id": "i", "rubric_id": "r", "rater_id": "m", "sample": 0, "aggregation": "flat"}
    counts = ("candidates", "proposed", "kept", "invalid", "failed", "roles_missing", "depth")
    by = {"inference": "none", "eta": 1.0, "retention": {}, "unscored": 0, "decided_by": "decision"}
    vote = {"subject_kind": "graph_edge", "subject": "r:P1→P2", "value": "none", "rater_id": "h"}
    return {
        "votes": [vote | {"voted_at": "2026-01-01T00:00:00+00:00"}],
        "graphs": [
            graph
            | {"source_digest": "s", "content": "{}", "annotator": "authored", "profile": "general", "criteria": 2}
            | dict.fromkeys(counts, 1)
            | {"calls": [], "made_from": {}}
        ],
        "graph_nodes": [
            graph
            | {"criterion_id": name, "position": at, "text": name, "weight": 1.0, "role": "core", "source": "authored"}
            for at, name in enumerate(("P1", "P2"))
        ],
        "graph_edges": [graph | edge | {"proposal": 0, "source": "authored", "kept": True}],
        "rewards": [paid | by | {"graph_id": "g", "reward": 0.5, "marginals": {"P1": 0.0, "P2": 1.0}}],
        "edge_cases": [paid | edge | {"state": "violated", "effective": 1.0, "leaked": 0.5}],
        "retentions": [{"rubric_id": "r"} | edge | {"retention": 0.5, "by_relation": 0.6, "n": 9, "target": "mean"}],
        "held_out_quality": [{"step": 1, "item_id": "q", "quality": 0.5}],
        "trained_criteria": [{"item_id": "q", "criterion_id": "P1", "text": "P1", "weight": 1.0}],
        "diagnostics": [
            {
                "metric": "leakage",
                "aggregation": "flat",
                "per": "edge",
                "slice": "all",
                "value": 0.5,
                "n": 1,
                "unscored": 0,
            }
        ],
    }


def _taught() -> Records:
    """r2 in the queue and labelled, and a grader that learned from it."""
    fit = {"method": "rec_cbm", "seed": 0}
    said = {"who": "m", "kind": "annotator", "level": 0}
    set_ = {"kind": "oracle", "order": "confidence", "asked": 1, "metric": "task_accuracy"}
    return {
        "next_labels": [
            {"response_id": "r3", "item_id": "q1", "rank": 1, "sampled": "drawn", "gain": 0.1, "why": "Drawn by chance"}
        ],
        "queue": [
            {"subject_kind": "label", "response_id": "r2", "rank": 1, "priority": 0.5, "criteria": ["P1"]}
            | {"reasons": ["annotators_disagree"], "why": "Annotators 1 level apart on P1"}
        ],
        "labels": [
            {"response_id": "r2", "criterion_id": "P1", "level": 1, "settled_by": "one_vote", "history": [said]}
        ],
        "settled_scores": [
            {"response_id": "r2", "score": 2.0, "settled_by": "one_vote", "levels": {}}
            | {"history": [{"who": "h", "kind": "vote", "score": 2.0}]}
        ],
        "notes": [{"response_id": "r2", "rater_id": "h", "note": "Well argued."}],
        "agreements": [
            {"phase": "before", "raters": "a and b", "criterion_id": "P1", "metric": "kappa", "value": 0.5, "n": 1}
        ],
        "constructions": [
            {
                "phase": "before",
                "rubric_id": "r",
                "rule": "coverage",
                "subject": "all",
                "outcome": "unknown",
                "detail": "no grades",
            }
        ],
        "models": [
            fit
            | {"setting": "", "backbone": "minilm", "encoder": "frozen", "parameters": 1}
            | {"epochs_1": 1, "epochs_2": 1, "seconds": 1.0}
        ],
        "trials": [fit | {"setting": "", "split": "test", "metric": "task_accuracy", "criterion_id": "", "n": 1}],
        "interventions": [fit | set_ | {"n": 1}],
        "concept_links": [fit | {"a": "P1", "b": "P2", "partial_correlation": 0.5, "n": 1}],
        "traces": [
            {"response_id": "r2", "criterion_id": "P1", "contribution": 0.5, "attention": []}
            | {"score": 1.0, "probability": 0.6, "logit": 0.5}
        ],
    }


def _edited() -> Records:
    """A policy that graded r2, with what it was trained on."""
    arm = {"arm": "edit_sft", "seed": 0}
    rollout = {"arm": "base", "seed": 0, "response_id": "r2", "sample": 0}
    number = arm | {"metric": "qwk", "value": 0.5}
    rule = {"rater_id": "m", "edit": "x2.0", "family": "points", "totals": "summed"}
    marks = {"gold": 1, "gold_edited": 2, "predicted": 1.0, "predicted_edited": 2.0, "top": 2, "top_edited": 4}
    return {
        "rollouts": [
            rollout
            | {"item_id": "i", "part": "train", "text": "P1 looks met\nFinal mark: 2", "steps": 1, "mark": 2}
            | {"gold": 1, "top": 2, "seconds": 0.1}
        ],
        "steps": [
            rollout | {"step": 0, "belief": [0.2, 0.5, 0.3], "expected": 1.1, "error": 0.5},
            rollout | {"step": 1, "belief": [0.1, 0.2, 0.7], "expected": 1.6, "error": 0.8, "fate": "chosen"},
        ],
        "separations": [
            {"seed": 0, "signal": "answer", "unit": "step", "effect": 0.7, "p": 0.01, "grounding": 9, "synthesis": 3}
        ],
        "revisions": [
            rollout
            | {"arm": "edit_sft", "rank": 0, "step": 1, "steps": 1, "checklist": "P1 | covered | Heat"}
            | {"sub_steps": ["P1: heat; met"], "begun": "P1: heat; met\n", "marks": [1, None], "kept": True}
            | {"repaired": "P1: heat; met\nFinal mark: 1"}
        ],
        "demonstrations": [
            arm | {"response_id": "r2", "sample": 0, "origin": "repaired", "completion": "Final mark: 1", "ends": True}
        ],
        "policies": [
            arm | {"start": "base", "parameters": 1, "updates": 1, "demonstrations": 1, "seconds": 0.1},
        ],
        "learning": [arm | {"part": "train", "metric": "loss", "step": 1, "value": 0.5}],
        "arm_metrics": [number | {"part": "seen", "n": 1}],
        "arm_differences": [number | {"part": "seen", "against": "base", "n": 1}],
        "rule_tests": [rule | marks | {"response_id": "r2", "item_id": "i", "bundle_id": "b"}],
        "rule_faithfulness": [rule | {"n": 1, "unscored": 0, "in_rubric_n": 1}],
    }


def filled() -> Records:
    """Rows of every table: r1 calibrates, r2 and r3 test, r3 is unscored."""
    quote = {"unit_id": "s1", "quote": "Heat", "start": 0, "end": 4, "status": "verified"}
    judged = {"response_id": "r2", "criterion_id": "P1", "rater_id": "m", "rater_kind": "encoder", "sample": 0}
    looked = {"stage": "s", "table_name": "items", "rule": "unique", "column": "item_id"}
    measured = {"metric": "qwk", "rater_a": "target", "rater_b": "m", "stage": "raw", "slice": "all", "value_of": "all"}
    return {
        "items": [item(rubric_id="r")],
        "responses": [_response("r1", "calibration"), _response("r2", "test"), _response("r3", "test")],
        "units": [{"response_id": "r2", "unit_id": "s1", "kind": "sentence", "start": 0, "end": 8}],
        "input_warnings": [{"kind": "markup", "responses": 1, "examples": ["r2"]}],
        "rubrics": [rubric("r", lint=["P1: vague"])],
        "bundles": [locked(BUNDLE, "r")],
        "judgments": [
            judged
            | {"decision": 1, "stated": 1, "evidence": [quote], "verified": True, "action": "none"}
            | {"level_probabilities": [0.2, 0.8]},
            judged | {"rater_id": "h", "rater_kind": "human", "decision": 1, "evidence": [], "action": "none"},
        ],
        "gradings": [_grading(key, "h", "human", score) for key, score in (("r1", 1.0), ("r2", 2.0), ("r3", 0.0))]
        + [_grading(key, "m", "encoder", 1.0) for key in ("r1", "r2", "r3")]
        + [
            _grading("r1", "g", "human", 2.0),
            _grading("r2", "f", "replayed", 1.0),
            _grading("r3", "f", "replayed", 2.0),
        ],
        "attempts": [attempt(key, violations=["v"], latency_s=0.5) for key in ("r1", "r2", "r3")],
        "shard_inputs": [{"response_id": "r1", "item_id": "i", "text": "An answer."}],
        "calibrations": [
            {"calibration_id": "c", "scope": "i", "method": "rulers", "features": ["length"], "left_out": []}
            | {"reason": "asked for", "n": 1, "target": "mean", "content": "{}"}
        ],
        "predictions": [
            _prediction("r1", "calibration", 1.0),
            _prediction("r2", "test", 1.0),
            _prediction("r3", "test", None) | {"unscored_reason": "no_reply"},
        ],
        "metrics": [measured | {"value": 0.5, "n": 2, "unscored": 1, "resampled": "author", "undefined_draws": 0}],
        "candidates": [{"scope": "i", "method": "rulers", "n": 1, "folds": 0, "distinct": 1, "chosen": True}],
        "release_rules": [
            {"scope": "all", "tolerance": 1.0, "target": 0.1, "confidence": 0.9, "n": 1, "released": 0, "wrong": 0}
            | {"worth": 0.0, "levels": [1.0]}
        ],
        "verdicts": [
            {"gate": "human_qwk", "slice": "all", "value_of": "all", "metric": "qwk", "n": 2, "outcome": "unknown"}
            | {"source": "s", "if_missed": "look"}
        ],
        "rater_effects": [
            {"rater_id": "anna", "trait": "", "slice": "all", "value_of": "all", "ratings": 2, "shared": 2}
            | {"leniency": -0.5, "low": -0.7, "high": -0.3, "flags": ["strict"]}
        ],
        "checks": [looked | {"severity": "critical", "outcome": "failed", "rows": 1, "unexpected": 1, "first": ["i"]}],
        "quarantine": [looked | {"row_key": "i", "reason": "must be unique", "content": "{}"}],
        **_rewarded(),
        **_taught(),
        **_edited(),
    }


def store(run: Run, records: Records) -> Run:
    """Write the tables, people's gradings and machines' by different stages, as the flow does."""
    for name, rows in records.items():
        if name == "gradings":
            run.commit("ingest", name, {BY_NAME[name]: [row for row in rows if row["rater_kind"] == "human"]})
            run.commit("judge", name, {BY_NAME[name]: [row for row in rows if row["rater_kind"] != "human"]})
        else:
            run.commit("some", name, {BY_NAME[name]: rows})
    return run


@pytest.fixture
def filled_run(tmp_path: Path) -> Callable[..., Run]:
    """A function that stores a filled run, changed by a function of its rows."""
    house = Warehouse.open(tmp_path / "warehouse")
    count = iter(range(100))

    def make(change: Callable[[Records], object] = lambda rows: None) -> Run:
        records = copy.deepcopy(filled())
        change(records)
        return store(house.run(f"run{next(count)}"), records)

    return make


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A filled run that nobody changes."""
    return store(Warehouse.open(tmp_path_factory.mktemp("finished")).run("one"), filled())


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, s3_server() as endpoint:
        for name, value in variables(endpoint).items():
            patch.setenv(name, value)
        yield endpoint


@pytest.fixture
def url(server: str, machine: Callable[[str], None]) -> str:
    return new_bucket(server)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """From now on this is the machine of that name: it has a mirror of its own and has seen nothing."""

    def change(name: str) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        marks._seen.clear()
        marks._indexed.clear()

    change("first")
    return change
