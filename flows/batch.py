"""Rollouts as they are judged: the items that they answer, with rubric and graph as arrays; what is judged of a batch,
what became of it, and what it cost."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from rubricflow.flows.checks import check_number, checked_items
from rubricflow.flows.failures import Trouble
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.graph import Graph
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, protocols_where
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.llm.calls import PENDING, InFlight
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge.rows import Called, Graded
from rubricflow.tasks.rewards.reward.compiled import CompiledGraph, compile_graph
from rubricflow.tasks.rewards.reward.exact import check_widths
from rubricflow.tasks.rewards.reward.factors import Factors
from rubricflow.tasks.rewards.reward.local import Locals


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
        check_number(criteria_per_call, "criteria_per_call", whole_number=True)
        changed |= {"name": "pointwise", "criteria_per_call": criteria_per_call, "in_parts": False}
    return bundle.model_copy(update={"protocol": bundle.protocol.model_copy(update=changed)})


@dataclass(frozen=True)
class Cost:
    """What one batch took."""

    rollouts: int
    unscored: int
    """Rollouts without a reward."""
    calls: int
    """Calls to the judge; replies from the store and those shared by identical rollouts are none."""
    prompt_tokens: int
    """Of the calls, as far as the backend counts them."""
    completion_tokens: int
    seconds: float


class PosedRollout(NamedTuple):
    """A rollout with the item that it answers."""

    item: PreparedItem
    text: str
    step: int | None = None
    """The step of the training that it was made in."""
    paid: tuple[Reply, ...] = ()
    """Replies to calls that were made for it before, where it is judged for another time."""


class UnfinishedRollout(NamedTuple):
    """A rollout with calls that its batch did not wait for."""

    awaited: Sequence[Future[Reply]]
    """Their replies."""
    paid: tuple[Reply, ...]
    """The replies to its other calls."""


class JudgedBatch(NamedTuple):
    """What became of a batch, in the order of its rollouts."""

    graded: Graded
    local: Locals
    """What each criterion is worth on its own."""
    rewards: list[float | None]
    variances: list[float | None]
    """Of the rewards, by the judge's own doubts; None where nothing is known of them."""
    missing: list[Trouble | None]
    """Why there is no reward, where there is none."""
    cost: Cost
    repeats: Graded | None = None
    """The second judging of the rollouts that were judged twice."""


def unfinished(several: Sequence[Graded], in_flight: InFlight) -> dict[str, UnfinishedRollout]:
    """Response → what its judgings, of which there may be several, still wait for; those that wait for something."""
    awaited: dict[str, list[Future[Reply]]] = {}
    paid: dict[str, list[Reply]] = {}
    for called in (called for graded in several for called in graded.called):
        name, attempts = called.case.response_id, called.answer.attempts
        paid.setdefault(name, []).extend(made(called))
        if attempts[-1].reply.error == PENDING:
            reply = in_flight.reply_of(attempts[-1].digest)
            awaited.setdefault(name, []).extend([reply] if reply else [])
    return {name: UnfinishedRollout(replies, tuple(paid[name])) for name, replies in awaited.items()}


def made(called: Called) -> list[Reply]:
    """The replies to the calls that were made for a part of a rollout."""
    return [one.reply for one in called.answer.attempts if not one.stored and one.reply.error != PENDING]


def finished(graded: Graded, names: Collection[str]) -> Graded:
    """What became of all but these responses."""
    return replace(
        graded,
        judged=[judged for judged in graded.judged if judged.case.response_id not in names],
        gradings=[grading for grading in graded.gradings if grading.case.response_id not in names],
        called=[called for called in graded.called if called.case.response_id not in names],
    )
