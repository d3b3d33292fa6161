"""Items made ready for rollouts: each with its question, its rubric as rollouts are judged under it, and the graph as
arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from rubricflow.flows.checks import check_number, checked_items
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, protocols_where
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, compile_graph
from rubricflow.tasks.rewards.reward.exact import check_widths
from rubricflow.tasks.rewards.reward.factors import Factors


class StudyGraphs(NamedTuple):
    """What the rollouts of a study are rewarded by."""

    items: list[dict[str, Any]]
    bundles: dict[str, Bundle]
    graphs: dict[str, Graph]


class PreparedItem(NamedTuple):
    """An item that rollouts can answer."""

    row: Mapping[str, Any]
    """Its row of the table `items`."""
    bundle: Bundle
    """Its rubric, as rollouts are judged under it."""
    bundle_id: str
    compiled: CompiledGraph


def prepared_items(
    items: Iterable[Mapping[str, Any]],
    bundles: Mapping[str, Bundle],
    graphs: Mapping[str, Graph],
    settings: Reward,
    criteria_per_call: int | None,
    factors: Factors | None = None,
) -> dict[str, PreparedItem]:
    """Item → what its rollouts are judged and rewarded by; see `RolloutReward` for the parameters and the errors."""
    rows = checked_items(items)
    used = sorted({row["rubric_id"] for row in rows.values()})
    for name in used:
        if name not in bundles or name not in graphs:
            raise InputError(f"rubric '{name}' of an item has no {'graph' if name in bundles else 'bundle'}")
    judged = {name: as_judged(name, bundles[name], criteria_per_call) for name in used}
    learned = factors or {}
    compiled = {
        name: compile_graph(name, bundles[name], graphs[name], settings.retention, settings.eta, learned.get(name))
        for name in used
    }
    if settings.inference == "exact":
        check_widths(compiled.values())
    ids = {name: bundle.bundle_id for name, bundle in judged.items()}
    return {
        item_id: PreparedItem(row, judged[row["rubric_id"]], ids[row["rubric_id"]], compiled[row["rubric_id"]])
        for item_id, row in rows.items()
    }


def unscored_rule(items: Iterable[PreparedItem]) -> Literal["null", "bounds", "zero"]:
    """What an unscored criterion does under all of these items' rubrics; InputError where they differ."""
    rules = sorted({item.bundle.protocol.unscored for item in items})
    if len(rules) != 1:
        raise InputError(f"the bundles differ in what an unscored criterion does: {', '.join(rules)}")
    return rules[0]


def as_judged(name: str, bundle: Bundle, criteria_per_call: int | None) -> Bundle:
    """The bundle as rollouts are judged under it; InputError where its protocol decides no single criteria."""
    protocol = PROTOCOLS[bundle.protocol.name]
    if protocol.is_trained:
        return bundle
    if not protocol.keeps_decisions:
        rule = f"rubric '{name}': protocol '{bundle.protocol.name}' decides no single criteria"
        raise InputError(rule, field="judge.protocol", hint=f"use {protocols_where(lambda of: of.keeps_decisions)}")
    changed: dict[str, Any] = {"show_weights": False}
    if criteria_per_call is not None:
        check_number(criteria_per_call, "criteria_per_call", 0, whole_number=True)
        changed |= {"name": "pointwise", "criteria_per_call": criteria_per_call}
    return bundle.model_copy(update={"protocol": bundle.protocol.model_copy(update=changed)})
