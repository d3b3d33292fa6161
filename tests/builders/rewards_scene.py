"""Made-up rewards: tables that conform to their contracts, for the tests of the report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.reward import Retention, Reward
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, EdgeCases, Rewards
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges, GraphNodes, RubricGraphs
from rubricflow.tasks.rewards.report.rewards import RewardView

RETENTION = {"weak_prerequisite": 0.6, "strong_prerequisite": 0.2, "activation": 0.0}


NODES = [
    {"criterion_id": "P1", "weight": 2.0, "role": "core", "text": "Says that water leaves."},
    {"criterion_id": "P2", "weight": 1.0, "role": "additional", "text": "Says why it leaves."},
    {"criterion_id": "P3", "weight": -1.0, "role": "penalty", "text": "Confuses in and out."},
]


LOCAL = {
    "r1": {"P1": 0.0, "P2": 1.0, "P3": 0.0},
    "r2": {"P1": 1.0, "P2": 1.0, "P3": 0.0},
    "r3": {"P1": 0.0, "P2": 0.0, "P3": 1.0},
    "r4": {"P1": 1.0, "P3": 0.0},
}
"""Own scores of four responses; P2 of the last is unscored. P1 licenses P2 weakly and P3 by activation."""


GEAR = {
    "r1": {"P1": 0.0, "P2": 0.6, "P3": 0.0},
    "r2": {"P1": 1.0, "P2": 1.0, "P3": 0.0},
    "r3": {"P1": 0.0, "P2": 0.0, "P3": 0.0},
    "r4": {"P1": 1.0, "P3": 0.0},
}


FLAT_REWARD = {"r1": 1 / 3, "r2": 1.0, "r3": -1 / 3, "r4": None}


GEAR_REWARD = {"r1": 0.2, "r2": 1.0, "r3": 0.0, "r4": None}


def reward_rows(rubric: str) -> list[dict[str, Any]]:
    who = {"item_id": f"i-{rubric}", "rubric_id": rubric, "graph_id": "g", "rater_id": "judge", "sample": 0, "eta": 1.0}
    return [
        who
        | {"response_id": f"{rubric}-{name}", "aggregation": aggregation, "reward": reward[name]}
        | {"marginals": marginals[name], "retention": RETENTION if aggregation == "gear" else {}}
        | {"inference": "topological" if aggregation == "gear" else "none", "decided_by": "decision"}
        | {"unscored": 3 - len(marginals[name])}
        for aggregation, reward, marginals in (("flat", FLAT_REWARD, LOCAL), ("gear", GEAR_REWARD, GEAR))
        for name in LOCAL
    ]


def case_rows(rubric: str) -> list[dict[str, Any]]:
    """r1 has P2 and r3 has P3 without P1, r2 has P2 with it."""
    who = {"item_id": f"i-{rubric}", "rubric_id": rubric, "rater_id": "judge", "sample": 0, "parent": "P1"}
    weak, activation = {"child": "P2", "relation": "weak_prerequisite"}, {"child": "P3", "relation": "activation"}
    rows = []
    for aggregation, left in (("flat", (1.0, 1.0)), ("gear", (0.6, 0.0))):
        given = who | {"aggregation": aggregation}
        for name, child, share in (("r1", weak, left[0]), ("r3", activation, left[1])):
            paid = {"response_id": f"{rubric}-{name}", "state": "violated", "effective": share, "leaked": share / 3}
            rows.append(given | child | paid)
        rows.append(
            given | weak | {"response_id": f"{rubric}-r2", "state": "satisfied", "effective": 1, "preserved": 1}
        )
    return rows


def figure(
    metric: str, aggregation: str, value: float | None, by: str = "edge", slice_: str = "all", **more: Any
) -> Any:
    row = {"metric": metric, "aggregation": aggregation, "per": by, "slice": slice_, "value": value}
    return row | {"n": 4, "unscored": 2} | more


def diagnostic_rows() -> list[dict[str, Any]]:
    rows = []
    for aggregation, leak, mean in (("flat", 1 / 3, 1 / 3), ("gear", 0.1, 0.4)):
        rows.append(figure("reward_mean", aggregation, mean, "response", n=6, low=mean - 0.1, high=mean + 0.1))
        rows.append(figure("reward_sd", aggregation, 0.5, "response", n=6))
        for by in ("edge", "child"):
            rows.append(figure("leakage", aggregation, leak, by, low=leak - 0.05, high=leak + 0.05))
            rows.append(figure("preservation", aggregation, 1.0, by, n=2))
        rows.append(figure("leakage", aggregation, 0.2, slice_="weak_prerequisite", n=2))
        rows.append(figure("leakage", aggregation, 0.0, slice_="activation", n=2))
    rows.append(figure("leakage_reduction", "gear", 0.7, low=0.6, high=0.8))
    return [*rows, figure("reward_mae", "gear", 0.00125, "response", note="against exact inference")]


def graph_row(rubric: str, kept: int, **more: Any) -> dict[str, Any]:
    row = {"rubric_id": rubric, "graph_id": "g", "source_digest": "s", "content": "{}", "annotator": "authored"}
    row |= {"profile": "general", "criteria": 3, "candidates": 2, "proposed": kept, "kept": kept, "invalid": 0}
    return row | {"failed": 0, "roles_missing": 0, "depth": min(kept, 1), "calls": [], "made_from": {}} | more


def edge_rows(rubric: str) -> list[dict[str, Any]]:
    edges = [("P2", "weak_prerequisite", None), ("P3", "activation", None), ("P9", None, "unknown_criterion")]
    return [
        {"rubric_id": rubric, "graph_id": "g", "proposal": at, "parent": "P1", "child": child, "relation": relation}
        | {"source": "authored", "kept": dropped is None, "dropped": dropped}
        for at, (child, relation, dropped) in enumerate(edges)
    ]


def made(text: str = "", rubrics: tuple[str, ...] = ("a", "b"), **more: Any) -> RewardView:
    """A run of two alike rubrics; `text` in place of every text, to be looked for."""
    nodes = [
        node
        | {"rubric_id": name, "graph_id": "g", "position": at, "source": "authored"}
        | ({"text": text} if text else {})
        for name in rubrics
        for at, node in enumerate(NODES)
    ]
    view = RewardView(
        study=text or "osmosis",
        run_id="run1",
        settings=Reward(retention=Retention(**RETENTION)),
        rewards=conform(Rewards, [row for name in rubrics for row in reward_rows(name)]),
        edge_cases=conform(EdgeCases, [row for name in rubrics for row in case_rows(name)]),
        diagnostics=conform(Diagnostics, diagnostic_rows()),
        graphs=conform(RubricGraphs, [graph_row(name, 2) for name in rubrics]),
        graph_nodes=conform(GraphNodes, nodes),
        graph_edges=conform(GraphEdges, [row for name in rubrics for row in edge_rows(name)]),
        questions={f"i-{name}": text or "Why does water leave?" for name in rubrics},
        texts={f"{name}-{response}": text or "It leaves." for name in rubrics for response in LOCAL},
    )
    return replace(view, **more)
