"""Rewards of HealthBench responses from the verdicts of recorded model graders: one part of rewards.py.

Nothing is fitted and no model asked: HealthBench is for evaluation only. The verdicts are yes or no, without
probabilities. Two things are made up and say so: arbitrary graphs as dense as the paper's, and softened verdicts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.settings.reward import Graphs, Retention, Reward
from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.core.llm.backends.scripted import Offline
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.rewards.graph.annotator import Annotator
from rubricflow.tasks.rewards.graph.build import build, graph_row
from rubricflow.tasks.rewards.graph.heuristic import MODEL, answer
from rubricflow.tasks.rewards.graph.subject import GraphSubject
from rubricflow.tasks.rewards.report.reward.graphs import statistics
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate
from rubricflow.tasks.rewards.reward.compare import random_graph, untyped
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, batch, compile_graph
from rubricflow.tasks.rewards.reward.figures import Record, agreement, reward_figures
from rubricflow.tasks.rewards.reward.leakage import RELATIONS, diagnose, edge_cases
from rubricflow.tasks.rewards.reward.local import Locals, local_scores

PAPER = Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0)
SETTINGS = Reward(retention=PAPER, local="decision")
RULES: tuple[Aggregation, ...] = get_args(Aggregation)
STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
TABLE_2 = {
    "flat": {"paper leakage": 0.0922, "paper preservation": 1.0},
    "hard_verdict": {"paper leakage": 0.0003, "paper preservation": 0.1877},
    "gear": {"paper leakage": 0.0032, "paper preservation": 0.2706, "paper reduction": 0.965},
}
"""GEAR, Table 2, by edge, with a judge's probabilities; its hard gating looks at the parents' own verdicts."""
TABLE_6 = {"marginal_mae": 0.0068, "reward_mae": 0.0042, "reward_correlation": 0.9968}
TABLE_16 = {0.0: 0.0922, 0.5: 0.0158, 1.0: 0.0032, 2.0: 0.0011}
DENSITY = 0.95
"""Edges a criterion in the paper's graphs: 10.92 / 11.48."""
SMALL = 14
"""Criteria up to which exact inference is compared."""
Rows = list[dict[str, object]]


@dataclass(frozen=True)
class Recorded:
    """Prompts with their rubrics, and graded responses."""

    prompts: pd.DataFrame
    """prompt_key, conversation_json, rubric_json."""
    completions: pd.DataFrame
    """completion_id, prompt_key, run, responder, recorded_score."""
    bundles: Mapping[str, Bundle]
    """Prompt → its rubric; criteria named by their place."""
    judgments: pa.Table
    """A verdict each, as `local_scores` reads it."""


def load(data: Path) -> Recorded:
    """The recorded set; only prompts that were answered."""
    folder = data / "healthbench"
    completions = pd.read_parquet(folder / "completions.parquet")
    prompts = pd.read_parquet(folder / "prompts_rubrics.parquet")
    prompts = prompts[prompts["prompt_key"].isin(completions["prompt_key"])]
    rubrics = {row.prompt_key: json.loads(row.rubric_json) for row in prompts.itertuples()}
    verdicts = pd.read_parquet(folder / "judge_verdicts.parquet")
    # Verdicts are numbered as the grader was asked, which is not always as the rubric is written; two rubrics hold the
    # same criterion twice.
    verdicts["time"] = verdicts.groupby(["completion_id", "criterion", "points"]).cumcount()
    written = pd.DataFrame(
        [
            (key, f"c{at}", one["criterion"], one["points"])
            for key, rubric in rubrics.items()
            for at, one in enumerate(rubric)
        ],
        columns=["prompt_key", "criterion_id", "criterion", "points"],
    )
    written["time"] = written.groupby(["prompt_key", "criterion", "points"]).cumcount()
    verdicts = verdicts.merge(
        written, on=["prompt_key", "criterion", "points", "time"], how="left", validate="many_to_one"
    )
    met = verdicts["criteria_met"].map({"True": 1, "False": 0})
    judgments = pa.table(
        {
            "response_id": pa.array(verdicts["completion_id"], pa.string()),
            "criterion_id": pa.array(verdicts["criterion_id"], pa.string()),
            "rater_id": pa.repeat("grader", len(verdicts)),
            "sample": pa.repeat(0, len(verdicts)),
            "decision": pa.array(met, pa.int64()),
            "action": pa.repeat("none", len(verdicts)),
            "level_probabilities": pa.nulls(len(verdicts), pa.list_(pa.float64())),
        }
    )
    return Recorded(prompts, completions, {key: _bundle(one) for key, one in rubrics.items()}, judgments)


def _bundle(rubric: Sequence[Mapping[str, Any]]) -> Bundle:
    criteria = tuple(
        Criterion(id=f"c{at}", trait="whole", text=one["criterion"], weight=one["points"], kind="checklist")
        for at, one in enumerate(rubric)
    )
    return Bundle(
        text="",
        scale=Scale(min=0, max=1),
        traits=(Trait(id="whole", name="whole", min=0, max=1),),
        criteria=criteria,
        protocol=Protocol(name="pointwise", final_score="weighted_points", signals=()),
    )


def scored(recorded: Recorded, compiled: Mapping[str, CompiledGraph]) -> Locals:
    """The responses' local scores under these graphs."""
    item_of = dict(zip(recorded.completions["completion_id"], recorded.completions["prompt_key"], strict=True))
    rubric_of = {key: key for key in recorded.bundles}
    return local_scores(recorded.judgments, item_of, rubric_of, recorded.bundles, compiled, "decision")


def annotated(recorded: Recorded) -> tuple[dict[str, Graph], Rows]:
    """The graph of every prompt's rubric by the rules of thumb, from conversation and rubric alone, and what they look
    like."""
    subjects = {
        row.prompt_key: GraphSubject(
            rubric_id=row.prompt_key,
            question="\n\n".join(f"{turn['role']}: {turn['content']}" for turn in json.loads(row.conversation_json)),
            context=None,
            criteria=recorded.bundles[row.prompt_key].whole,
        )
        for row in recorded.prompts.itertuples()
    }
    with ReplyStore(":memory:") as replies:
        built = build(subjects, {}, [], Annotator(Offline(MODEL, answer), replies, Graphs(profile="health")))
    rows = [graph_row(one) for one in built]
    found: Rows = [
        dict(zip(("statistic", "mean", "paper"), (name, here.value, published.value), strict=True))
        for name, here, published in statistics(rows).rows
    ]
    kinds = pd.Series([edge.relation for one in built for edge in one.graph.edges]).value_counts() / len(built)
    found += [{"statistic": f"{relation} edges", "mean": value} for relation, value in kinds.items()]
    return {one.draft.subject.rubric_id: one.graph for one in built}, found


def report(data: Path) -> Iterator[tuple[str, Rows]]:
    """Titled tables of all figures."""
    recorded = load(data)
    graphs, looks = annotated(recorded)
    yield f"Graphs by {MODEL}, which asks no language model, beside the paper's by Qwen3-8B (Table 14)", looks
    compiled = {key: compile_graph(key, recorded.bundles[key], graphs[key], PAPER) for key in recorded.bundles}
    of = scored(recorded, compiled)
    found = {rule: aggregate(of.batch, rule) for rule in RULES}
    arbitrary = dense(recorded)
    yield "Flat reward against the recorded score", against_recorded(recorded, of, found["flat"])
    yield "Rewards, leakage and preservation, beside Table 2", aggregations(of)
    yield f"The same on arbitrary graphs of {DENSITY} edges a criterion, which mean nothing", aggregations(arbitrary)
    yield "What the verdicts imply", implied(of)
    yield "Leakage and preservation of GEAR by relation", by_relation(of, found["gear"])
    yield "Ablations, measured on the annotated graph", ablations(of)
    yield "Suppression strength, beside Table 16", strengths(recorded, graphs)
    yield f"Topological against exact, rubrics of up to {SMALL} criteria, beside Table 6", exactness(of)
    yield "The same on the arbitrary graphs", exactness(arbitrary)
    yield "What GEAR changes for a trainer: rewards of the responses to one prompt", for_a_trainer(of, found)
    yield "Mean reward by who responds", by_responder(recorded, of, found)


def against_recorded(recorded: Recorded, of: Locals, flat: Aggregated) -> Rows:
    """Largest difference by run; where scores were recorded in points, also of the points."""
    points = flat.reward * np.array([of.batch.compiled[one].mass for one in of.batch.rubric_index])
    ours = pd.DataFrame({"completion_id": of.response_id.to_pylist(), "flat": flat.reward, "points": points})
    rows = recorded.completions.merge(ours, on="completion_id")
    rows["kind"] = np.where(rows["run"].str.contains("seed"), "12 seeded runs", rows["run"])
    return [
        {
            "runs": kind,
            "n": len(part),
            "largest difference": f"{(part['flat'] - part['recorded_score']).abs().max():.1e}",
            "of points": f"{(part['points'] - part['recorded_score']).abs().max():.1e}",
        }
        for kind, part in rows.groupby("kind")
    ]


def aggregations(of: Locals) -> Rows:
    """A row for each aggregation."""
    rows: Rows = []
    for rule in RULES:
        one = aggregate(of.batch, rule)
        row: dict[str, object] = {"aggregation": rule}
        for record in reward_figures(of, rule, one, SETTINGS) + diagnose(of, rule, one, SETTINGS):
            if record["slice"] == "all":
                name = f"{record['metric']}, {record['per']}".removesuffix(", response")
                row[name] = told(record)
        rows.append(row | TABLE_2.get(rule, {}))
    return [{name: row.get(name) for name in rows[-1]} for row in rows]


def implied(of: Locals) -> Rows:
    """What follows from verdicts that are yes or no: where all else holds, one unsupported parent leaves a child λ of
    its credit, so that a reduction beyond 1 − λ comes from children with several."""
    cases = edge_cases(of.batch, of.batch.local, SETTINGS.threshold)
    parents = np.unique(cases.child[cases.violated], return_counts=True)[1]
    weights = np.concatenate([of.batch.compiled[one].weights for one in of.batch.rubric_index])
    return [
        {"of": "local scores that are 0 or 1", "value": np.isin(of.batch.local, (0.0, 1.0)).mean()},
        {"of": "criteria met, positive weight", "value": of.batch.local[weights > 0].mean()},
        {"of": "criteria met, negative weight", "value": of.batch.local[weights < 0].mean()},
        {"of": "unsupported parents of an unlicensed child", "value": parents.mean()},
        {"of": "unlicensed children with one of them", "value": (parents == 1).mean()},
    ]


def dense(recorded: Recorded) -> Locals:
    """The responses under arbitrary graphs of the paper's density, with each relation as often: what density does."""
    rng = np.random.default_rng(SETTINGS.seed)
    compiled = {}
    for key, bundle in recorded.bundles.items():
        names = [criterion.id for criterion in bundle.whole]
        pairs = list(combinations(rng.permutation(names).tolist(), 2))
        size = min(len(pairs), round(DENSITY * len(names)))
        drawn = [pairs[at] for at in rng.choice(len(pairs), size, replace=False)]
        edges = tuple(Edge(parent=a, child=b, relation=RELATIONS[rng.integers(3)]) for a, b in drawn)
        nodes = tuple(Node(criterion_id=name, role="core") for name in names)
        compiled[key] = compile_graph(key, bundle, Graph(nodes=nodes, edges=edges), PAPER)
    return scored(recorded, compiled)


def by_relation(of: Locals, gear: Aggregated) -> Rows:
    """A row for each slice, by edge and by child."""
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for record in diagnose(of, "gear", gear, SETTINGS):
        row = rows.setdefault((record["slice"], record["per"]), {"slice": record["slice"], "by": record["per"]})
        row[record["metric"]], row[f"n {record['metric']}"] = told(record), record["n"]
    return list(rows.values())


def ablations(of: Locals) -> Rows:
    """Leakage and preservation on the annotated dependencies, of rewards by other graphs."""
    compiled = of.batch.compiled
    others = {
        "gear": compiled,
        "random_graph": tuple(random_graph(one, SETTINGS.seed) for one in compiled),
        "untyped": tuple(untyped(compiled)),
    }
    rows: Rows = []
    for name, graphs in others.items():
        found = aggregate(replace(of.batch, compiled=graphs), "gear")
        records = [one for one in diagnose(of, name, found, SETTINGS) if (one["per"], one["slice"]) == ("edge", "all")]
        rows.append({"graph": name} | {record["metric"]: told(record) for record in records})
    return rows


def strengths(recorded: Recorded, graphs: Mapping[str, Any]) -> Rows:
    """Leakage and preservation at each suppression strength."""
    rows: Rows = []
    for eta in STRENGTHS:
        compiled = {
            key: compile_graph(key, bundle, graphs[key], PAPER, eta) for key, bundle in recorded.bundles.items()
        }
        of = scored(recorded, compiled)
        found = aggregate(of.batch, "gear")
        records = [
            one for one in diagnose(of, "gear", found, SETTINGS) if (one["per"], one["slice"]) == ("edge", "all")
        ]
        row = {"η": eta, "mean reward": float(found.reward.mean())} | {one["metric"]: told(one) for one in records}
        rows.append(row | {"paper leakage": TABLE_16.get(eta)})
    return rows


def exactness(of: Locals) -> Rows:
    """Table 6 with the recorded verdicts, and with verdicts softened to 0.9 and 0.1."""
    small = np.array([len(one.criteria) <= SMALL for one in of.batch.compiled])[of.batch.rubric_index]
    cells = np.repeat(small, np.diff(of.batch.start))
    rows: Rows = []
    for name, local in (
        ("as recorded", of.batch.local),
        ("0.9 and 0.1 in place of 1 and 0", 0.1 + 0.8 * of.batch.local),
    ):
        part = replace(
            of,
            batch=batch(of.batch.compiled, of.batch.rubric_index[small], local[cells]),
            item_id=of.item_id.filter(pa.array(small)),
        )
        near, exact = (aggregate(part.batch, "gear", inference=how) for how in ("topological", "exact"))
        records = agreement(part, near, exact, SETTINGS)
        rows.append({"verdicts": name, "pairs": int(small.sum())} | {one["metric"]: told(one) for one in records})
    return [*rows, {"verdicts": "paper, with probabilities", "pairs": 5000} | TABLE_6]


def for_a_trainer(of: Locals, found: Mapping[str, Aggregated]) -> Rows:
    """How the order of a prompt's responses changes, over prompts with several that flat rewards differently."""
    frame = pd.DataFrame({"prompt": of.item} | {rule: one.reward.round(12) for rule, one in found.items()})
    groups = [part for _, part in frame.groupby("prompt") if len(part) > 1 and part["flat"].nunique() > 1]
    rows: Rows = []
    for rule in RULES[1:]:
        varied = [part for part in groups if part[rule].nunique() > 1]
        best = [part.loc[part["flat"] == part["flat"].max(), rule].max() < part[rule].max() for part in groups]
        pairs = np.sum([_pairs(part["flat"].to_numpy(), part[rule].to_numpy()) for part in groups], axis=0)
        rows.append(
            {
                "against flat": rule,
                "prompts": len(groups),
                "responses": sum(map(len, groups)),
                "mean Spearman": np.mean([part["flat"].corr(part[rule], "spearman") for part in varied]),
                "prompts that it no longer tells apart": len(groups) - len(varied),
                "another best response": np.mean(best),
                "pairs turned round": pairs[0] / pairs[2],
                "pairs now equal": pairs[1] / pairs[2],
            }
        )
    return rows


def _pairs(flat: np.ndarray, other: np.ndarray) -> tuple[int, int, int]:
    """Of the pairs that flat tells apart: how many are turned round, how many become equal, and how many there are."""
    above, below = np.triu_indices(len(flat), 1)
    first, second = (np.sign(x[above] - x[below]) for x in (flat, other))
    apart = first != 0
    return int((first * second == -1).sum()), int((apart & (second == 0)).sum()), int(apart.sum())


def by_responder(recorded: Recorded, of: Locals, found: Mapping[str, Aggregated]) -> Rows:
    """Mean rewards of each responder."""
    frame = pd.DataFrame(
        {"completion_id": of.response_id.to_pylist()} | {rule: one.reward for rule, one in found.items()}
    )
    rows = recorded.completions.merge(frame, on="completion_id")
    means = rows.groupby("responder")[list(found)].mean().assign(n=rows.groupby("responder").size())
    return means.sort_values("flat").reset_index().to_dict("records")


def told(record: Record) -> str:
    """A figure with its interval."""
    if record["value"] is None:
        return f"– ({record['note']})"
    digits = ".4f" if record["value"] == 0 or abs(record["value"]) >= 1e-3 else ".1e"
    return f"{record['value']:{digits}} [{record['low']:{digits}}, {record['high']:{digits}}]"
