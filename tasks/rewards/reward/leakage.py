"""Does credit get past a dependency that does not hold, and is it left alone where it does? (GEAR, section 4.3)

A dependency of a response is a case where its child is supported: the child's own local score reaches the threshold.
The case is violated where the parent's does not and satisfied where it does. Local scores group the cases; what is
measured is the child's effective share q̃ under an aggregation:

    leakage (Eq. 15)       mean over violated cases of |w_child| q̃_child / mass, see `CompiledGraph.mass`
    preservation (Eq. 16)  mean over satisfied cases of q̃_child / p_child

Negative weights count by their size, since an invalid penalty distorts a reward, too. In a rubric without positive
weights the mass is Σ |w|; the authors' program counts such cases and adds 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.graph import PREREQUISITES, Relation
from rubricflow.tasks.core.contracts.settings.reward import Reward
from rubricflow.tasks.core.contracts.tables.reward import PARENTS
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.rewards.reward.aggregate import Aggregated
from rubricflow.tasks.rewards.reward.compiled import Batch
from rubricflow.tasks.rewards.reward.figures import Resampling, ratio, record
from rubricflow.tasks.rewards.reward.local import Locals

RELATIONS: tuple[Relation, ...] = (*PREREQUISITES, "activation")
SLICES: dict[str, tuple[Relation, ...]] = {
    "all": RELATIONS,
    "prerequisite": PREREQUISITES,
    **{relation: (relation,) for relation in RELATIONS},
}
BOOLEAN = "every local score is 0 or 1: gating leaks nothing by construction"
ONE_PARENT = (
    "one parent, satisfied: gates by its own score keep all of the child, and so does GEAR where it and all that it "
    "depends on are certain"
)
GATED = "gates close at the threshold that makes a case: nothing leaks by construction"


@dataclass(frozen=True)
class EdgeCaseArrays:
    """c cases, in the order of the responses and of their rubrics' edges."""

    response: Ints
    """(c,) place of the response in its batch."""
    edge: Ints
    """(c,) place of the edge in the response's rubric."""
    child: Ints
    """(c,) place of the child among all criteria of the batch."""
    relation: Ints
    """(c,) place in `RELATIONS`."""
    parents: Ints
    """(c,) how many parents the child has."""
    violated: Bools
    """(c,) whether the parent is unsupported; the others are satisfied."""
    local: Floats
    """(c,) the child's local score, from the threshold to 1."""
    effective: Floats
    """(c,) its share after the dependencies, in [0, 1]."""
    weight: Floats
    """(c,) |w_child| / mass."""
    left_out: int
    """Responses of which a dependency is passed over because something that it hangs on is unscored."""

    @property
    def leaked(self) -> Floats:
        """(c,) the utility of the violated (Eq. 15); NaN for the satisfied."""
        return np.where(self.violated, self.weight * self.effective, np.nan)

    @property
    def preserved(self) -> Floats:
        """(c,) what is left of the local score of the satisfied (Eq. 16); NaN for the violated."""
        return np.where(self.violated, np.nan, self.effective / self.local)


def edge_cases(batch: Batch, effective: Floats, threshold: float) -> EdgeCaseArrays:
    """The cases of a batch.

    effective: (Σk,) shares after the dependencies, as in `Aggregated.marginal`; they may be by another graph over the
    same criteria: what this does about the batch's own dependencies is measured then. threshold: above 0.
    A dependency is passed over where its child or anything that the child depends on is unscored, so that every
    aggregation is measured on the same cases, and where `effective` is NaN.
    """
    edge_counts = [len(rubric.parent) for rubric in batch.compiled]
    sizes = np.array(edge_counts, dtype=np.int64)[batch.rubric_index]
    response = np.repeat(np.arange(len(batch.rubric_index)), sizes)
    edge = np.arange(len(response)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    edge_place = np.cumsum([0, *edge_counts])[batch.rubric_index[response]] + edge
    child = batch.start[response] + _chained([rubric.child for rubric in batch.compiled])[edge_place]
    parent = batch.start[response] + _chained([rubric.parent for rubric in batch.compiled])[edge_place]
    is_known = _known(batch)[child] & ~np.isnan(effective[child])
    case = np.flatnonzero(is_known & (batch.local[child] >= threshold))
    weights = [np.abs(rubric.weights[rubric.child]) / rubric.mass for rubric in batch.compiled]
    relations = [np.array([RELATIONS.index(name) for name in rubric.relation]) for rubric in batch.compiled]
    parents = [np.bincount(rubric.child, minlength=len(rubric.criteria))[rubric.child] for rubric in batch.compiled]
    left_out = len(np.unique(response[~is_known]))
    response, edge, child, parent, edge_place = (places[case] for places in (response, edge, child, parent, edge_place))
    return EdgeCaseArrays(
        response=response,
        edge=edge,
        child=child,
        relation=_chained(relations)[edge_place].astype(np.int64),
        parents=_chained(parents)[edge_place].astype(np.int64),
        violated=batch.local[parent] < threshold,
        local=batch.local[child],
        effective=effective[child],
        weight=_chained(weights)[edge_place],
        left_out=left_out,
    )


def diagnose(judged: Locals, aggregation: str, aggregated: Aggregated, settings: Reward) -> list[Record]:
    """The rows of `diagnostics` about leakage under one aggregation, or an ablation of one, with intervals over items.

    judged: the responses under the graph whose dependencies are meant; aggregated: their rewards, by that graph or
    another.
    Metrics `leakage`, `preservation`, and except for flat `leakage_reduction`: 1 − leakage over that of flat
    aggregation (q̃ = p) on the same cases and draws, at most 1. By 'edge' as published. By 'child' a child counts once:
    for leakage if some parent is unsupported, for preservation if all of them are supported. Slices take the edges of
    some relations, and a child is in one by an edge of it; or of the children with so many parents.
    """
    cases = edge_cases(judged.batch, aggregated.marginal, settings.threshold)
    plan = Resampling.plan(judged, settings)
    unlicensed = cases.child[cases.violated]
    preserved = cases.preserved
    # What leakage owes to nothing but the definitions
    note = GATED if aggregation in ("hard_local", "hard_propagated") else None
    if np.isin(judged.batch.local[judged.batch.scored], (0.0, 1.0)).all():
        note = BOOLEAN
    records = []
    kept = dict.fromkeys((*SLICES, *PARENTS)) | {
        "1 parent": ONE_PARENT if aggregation in ("hard_local", "gear") else None
    }
    slices = {
        name: np.isin(cases.relation, [RELATIONS.index(relation) for relation in relations])
        for name, relations in SLICES.items()
    }
    parents = np.minimum(cases.parents, len(PARENTS))
    slices |= {name: parents == number for number, name in enumerate(PARENTS, 1)}
    for by, (name, inside) in product(("edge", "child"), slices.items()):
        violated = np.flatnonzero(inside & cases.violated)
        satisfied = np.flatnonzero(inside & ~cases.violated)
        if by == "child":
            licensed = satisfied[~np.isin(cases.child[satisfied], unlicensed)]
            violated = _once(cases, violated)
            satisfied = _once(cases, licensed)
        leaked, by_flat = (cases.weight[violated] * share[violated] for share in (cases.effective, cases.local))
        for metric, statistic, chosen, terms, remark in (
            ("leakage", ratio, violated, [leaked, np.ones(len(violated))], note),
            ("preservation", ratio, satisfied, [preserved[satisfied], np.ones(len(satisfied))], kept[name]),
            ("leakage_reduction", lambda totals: 1 - ratio(totals), violated, [leaked, by_flat], note),
        ):
            if aggregation == "flat" and metric == "leakage_reduction":
                continue
            figure = plan.figure(statistic, cases.response[chosen], terms).noted(remark)
            records.append(record(metric, aggregation, figure, len(chosen), cases.left_out, per=by, slice=name))
    return records


def _once(cases: EdgeCaseArrays, places: Ints) -> Ints:
    """Of these cases one for each child."""
    return places[np.unique(cases.child[places], return_index=True)[1]]


def _known(batch: Batch) -> Bools:
    """(Σk,) whether a criterion and all that it depends on are scored."""
    is_known = batch.scored.copy()
    holes = np.unique(np.searchsorted(batch.start, np.flatnonzero(~batch.scored), side="right") - 1)
    for rubric in np.unique(batch.rubric_index[holes]):
        graph = batch.compiled[rubric]
        first = batch.start[holes[batch.rubric_index[holes] == rubric]]
        for parent, child in zip(graph.parent, graph.child, strict=True):  # a parent's own parents come before it
            is_known[first + child] &= is_known[first + parent]
    return is_known


def _chained(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Arrays one after the other; no numbers where there are none."""
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


# What each response of a batch is worth flat and by its dependencies, from one judging.


class Appraisal(NamedTuple):
    """One response."""

    flat: float | None
    gear: float | None
    false_credit: float | None
    """Credit that the flat sum pays and the dependencies do not, as a share of the rubric's mass: at least 0, and
    penalties are no part of it. None where there is no reward."""
    shares: dict[str, Mapping[str, float | None]]
    """Criterion → its share in [0, 1], `own` by itself and `licensed` after what it depends on; None where it is
    unscored, or hangs on what is."""
    leaked: dict[str, float]
    """What the flat sum pays for supported children of an unsupported parent (Eq. 15), by relation."""
    supported: int
    """Dependencies with a supported child."""
    violated: int
    """Of these, those with an unsupported parent."""


def appraisals(batch: Batch, flat: Aggregated, gear: Aggregated, threshold: float) -> list[Appraisal]:
    """Every response of a batch, in order. flat, gear: its rewards by these two aggregations."""
    local = np.where(batch.scored, batch.local, np.nan)
    # What the shares that dependencies do not license would earn of the mass, by criteria with positive weights
    rubrics = [np.maximum(0.0, graph.weights) / graph.mass for graph in batch.compiled]
    first = np.cumsum([0, *map(len, rubrics)])[batch.rubric_index]
    places = np.arange(len(local)) + np.repeat(first - batch.start[:-1], np.diff(batch.start))
    unlicensed = np.maximum(0.0, np.nan_to_num(local) - np.nan_to_num(gear.marginal))
    earned = np.concatenate([[0.0], np.cumsum(np.concatenate(rubrics)[places] * unlicensed)])
    false_credit = earned[batch.start[1:]] - earned[batch.start[:-1]]

    cases = edge_cases(batch, flat.marginal, threshold)
    leaked: defaultdict[int, dict[str, float]] = defaultdict(dict)
    violated = np.flatnonzero(cases.violated)
    columns = cases.response[violated], cases.relation[violated], cases.leaked[violated]
    for response, relation, share in zip(*(column.tolist() for column in columns), strict=True):
        name = RELATIONS[relation]
        leaked[response][name] = leaked[response].get(name, 0.0) + share
    n = len(batch.rubric_index)
    counts = [np.bincount(responses, minlength=n).tolist() for responses in (cases.response, columns[0])]
    rewards = or_none(flat.reward), or_none(gear.reward)
    credit = or_none(np.where(np.isnan(flat.reward + gear.reward), np.nan, false_credit))
    own = or_none(local)
    licensed = or_none(gear.marginal)
    worth = []
    for response, rubric in enumerate(batch.rubric_index.tolist()):
        names = batch.compiled[rubric].criteria
        cells = range(int(batch.start[response]), int(batch.start[response + 1]))
        shares: dict[str, Mapping[str, float | None]] = {
            name: {"own": own[cell], "licensed": licensed[cell]} for name, cell in zip(names, cells, strict=True)
        }
        figures = rewards[0][response], rewards[1][response], credit[response]
        worth.append(Appraisal(*figures, shares, leaked[response], counts[0][response], counts[1][response]))
    return worth


def or_none(values: Floats) -> list[float | None]:
    """NaN as None."""
    return [None if value != value else value for value in values.tolist()]
