"""Rewards and dependency cases as their tables, column by column, a part of the responses at a time.

How far a reward would vary if the judge's own doubts were settled one way or the other.

A judge that gives probabilities says of each criterion an expected share p and how far the share may lie from it, its
variance v; of a plain yes or no v is p (1 − p). With the shares s drawn accordingly, independently, the reward R(s) has
the mean R(p), since exact inference is linear in each share, and a variance, which stands here. It knows nothing of
errors that the judge does not doubt, and the graph and its retention factors are taken for right.

E[R(s)²] is the joint expectation of two rubrics that share s and nothing else, so one sweep over both at once is
enough: for each state of the criteria held in both it keeps the probability and the moments of what was summed out.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from numba import njit

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Row, TableRef, schema
from rubricflow.tasks.core.contracts.settings.reward import Aggregation, Learn, Reward
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.reward import EdgeCases, Rewards
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.warehouse import Run, give_back
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate
from rubricflow.tasks.rewards.reward.compare import AGGREGATIONS, CompileAt, ablations, against, figures
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph
from rubricflow.tasks.rewards.reward.elimination import Elimination
from rubricflow.tasks.rewards.reward.exact import leave, suppress
from rubricflow.tasks.rewards.reward.factors import HumanScores, human_scores
from rubricflow.tasks.rewards.reward.figures import Record
from rubricflow.tasks.rewards.reward.leakage import RELATIONS, Cases, edge_cases
from rubricflow.tasks.rewards.reward.local import Locals, local_scores

_JUDGED = ["response_id", "criterion_id", "rater_id", "sample", "decision", "level_probabilities", "action"]


PART = 1_000_000
"""Responses, criteria and dependencies whose rows are in a part, together; more only where one response has more."""


def parts(batch: Batch) -> list[slice]:
    """The responses of a batch in parts, one after the other; a single empty one where there are none."""
    sizes = [1 + len(rubric.criteria) + len(rubric.parent) for rubric in batch.compiled]
    filled = np.cumsum(np.array(sizes, dtype=np.int64)[batch.rubric_index]) // PART
    cuts = (np.flatnonzero(np.diff(filled)) + 1).tolist()
    return [slice(*ends) for ends in itertools.pairwise([0, *cuts, len(filled)])]


def rewards(judged: Locals, aggregated: Aggregated, aggregation: Aggregation, settings: Reward) -> Iterator[pa.Table]:
    """The table `rewards` of a batch under one aggregation, in `parts`; NaN is null.

    `inference` and `retention` are the study's for gear, 'none' and empty for the aggregations that use neither; `eta`
    is the study's for all.
    """
    # Of all at once: the last digit of a sum by BLAS depends on the rows beside it.
    variance = reward_variances(judged.batch, aggregation)
    for part in parts(judged.batch):
        of_part = aggregated.part(part, judged.batch.start)
        yield _rewards(judged.part(part), of_part, variance[part], aggregation, settings)


def _rewards(
    judged: Locals, aggregated: Aggregated, variance: Floats, aggregation: Aggregation, settings: Reward
) -> pa.Table:
    batch, n = judged.batch, len(judged.batch.rubric_index)
    unscored_before = np.concatenate([[0], np.cumsum(~batch.scored)])
    graph_ids = pa.array([rubric.graph_id for rubric in batch.compiled], pa.string())
    typed = aggregation == "gear"
    inference = settings.inference if typed else "none"
    retention = settings.retention.model_dump() if typed else {}
    # (n,) times the same map
    single = pa.array([list(retention.items())], pa.map_(pa.string(), pa.float64()))
    same_map = single.take(pa.array(np.zeros(n, dtype=np.int64)))
    # (n,) maps from criteria to their shares, without those that have none.
    sizes = np.diff(batch.start)
    first = np.cumsum([0, *(len(rubric.criteria) for rubric in batch.compiled)])[batch.rubric_index] - batch.start[:-1]
    valid = np.flatnonzero(~np.isnan(aggregated.marginal))
    names = _names(batch).take(pa.array((np.repeat(first, sizes) + np.arange(len(aggregated.marginal)))[valid]))
    ends = np.searchsorted(valid, batch.start)
    marginals = pa.MapArray.from_arrays(pa.array(ends, pa.int32()), names, pa.array(aggregated.marginal[valid]))
    return _table(
        Rewards,
        {
            **_identifiers(judged, np.arange(n)),
            "graph_id": graph_ids.take(pa.array(batch.rubric_index)),
            "aggregation": pa.repeat(aggregation, n),
            "reward": _or_null(aggregated.reward),
            "low": _or_null(aggregated.low),
            "high": _or_null(aggregated.high),
            "reward_variance": _or_null(variance),
            "marginals": marginals,
            "inference": pa.repeat(inference, n),
            "eta": pa.repeat(settings.eta, n),
            "retention": same_map,
            "unscored": pa.array(np.diff(unscored_before[batch.start])),
            "decided_by": judged.decided_by,
        },
    )


def cases(judged: Locals, edge_cases: Cases, aggregation: Aggregation) -> Iterator[pa.Table]:
    """The table `edge_cases` of the cases of a batch under one aggregation, in the same parts."""
    for part in parts(judged.batch):
        here = slice(*np.searchsorted(edge_cases.response, [part.start, part.stop]))
        yield _cases(judged, edge_cases.part(here), aggregation)


def _cases(judged: Locals, edge_cases: Cases, aggregation: Aggregation) -> pa.Table:
    batch, rubric_index = judged.batch, judged.batch.rubric_index[edge_cases.response]
    first_name = np.cumsum([0, *(len(rubric.criteria) for rubric in batch.compiled)])[rubric_index]
    first_edge = np.cumsum([0, *(len(rubric.parent) for rubric in batch.compiled)])[rubric_index]
    parents = np.concatenate([np.empty(0, dtype=np.int64), *(rubric.parent for rubric in batch.compiled)])
    names = _names(batch)
    parent = first_name + parents[first_edge + edge_cases.edge]
    child = first_name + edge_cases.child - batch.start[edge_cases.response]
    states = pa.array(["satisfied", "violated"])
    return _table(
        EdgeCases,
        {
            **_identifiers(judged, edge_cases.response),
            "aggregation": pa.repeat(aggregation, len(edge_cases.response)),
            "parent": names.take(pa.array(parent)),
            "child": names.take(pa.array(child)),
            "relation": pa.array(RELATIONS, pa.string()).take(pa.array(edge_cases.relation)),
            "state": states.take(pa.array(edge_cases.violated.astype(np.int64))),
            "effective": pa.array(edge_cases.effective),
            "leaked": _or_null(edge_cases.leaked),
            "preserved": _or_null(edge_cases.preserved),
        },
    )


def _table(row: type[Row], columns: dict[str, pa.Array]) -> pa.Table:
    want = schema(row)
    return pa.Table.from_arrays([columns[name] for name in want.names], schema=want)


def _identifiers(judged: Locals, response: Ints) -> dict[str, pa.Array]:
    """Whose judgments of what, for these responses of the batch."""
    places = pa.array(response)
    rubrics = pa.array([rubric.rubric_id for rubric in judged.batch.compiled], pa.string())
    return {
        "response_id": judged.response_id.take(places),
        "item_id": judged.item_id.take(places),
        "rubric_id": rubrics.take(pa.array(judged.batch.rubric_index[response])),
        "rater_id": judged.rater_id.take(places),
        "sample": judged.sample.take(places),
    }


def _names(batch: Batch) -> pa.Array:
    """The criteria of all rubrics, one after the other."""
    names = itertools.chain.from_iterable(rubric.criteria for rubric in batch.compiled)
    return pa.array(list(names), pa.string())


def _or_null(values: Floats) -> pa.Array:
    """NaN as null."""
    return pa.array(values, from_pandas=True)


WIDEST = 7
"""Criteria held together up to which variances are computed: 4^7 states are some two milliseconds a response."""


def reward_variances(batch: Batch, aggregation: Aggregation) -> Floats:
    """(n,) variances of the rewards of a batch, at least 0, by exact inference whatever the reward was put together by.

    NaN where a criterion is unscored or its judge gave no probabilities; for gates, which jump where a verdict does;
    and for gear where more than WIDEST criteria would have to be held together.
    """
    variances = np.full(len(batch.rubric_index), np.nan)
    if aggregation not in ("flat", "gear"):
        return variances
    for rubric in np.unique(batch.rubric_index):
        compiled = batch.compiled[rubric]
        rows = np.flatnonzero(batch.rubric_index == rubric)
        cells = batch.start[rows][:, None] + np.arange(len(compiled.criteria))
        is_computable = batch.scored[cells].all(axis=1) & ~np.isnan(batch.variance[cells]).any(axis=1)
        rows, cells = rows[is_computable], cells[is_computable]
        local, doubt = batch.local[cells], batch.variance[cells]
        variances[rows] = _flat(compiled, doubt) if aggregation == "flat" else _licensed(compiled, local, doubt)
    return variances


def _flat(compiled: CompiledGraph, doubt: Floats) -> Floats:
    """Variances (n,) of the plain sum. doubt: (n, k) variances of the local scores."""
    return np.asarray(doubt @ (compiled.weights / compiled.mass) ** 2)


def _licensed(compiled: CompiledGraph, local: Floats, doubt: Floats) -> Floats:
    """Variances (n,) under the dependencies. local, doubt: (n, k)."""
    plan = compiled.elimination
    if plan.width > WIDEST:
        return np.full(len(local), np.nan)
    weights = compiled.weights / compiled.mass
    linked = np.zeros(len(weights), dtype=bool)
    linked[plan.ends] = True
    variances = np.zeros(len(local))
    unsure = np.flatnonzero(doubt[:, linked].any(axis=1))
    both = np.minimum(doubt + local**2, local)
    _sweep(plan, compiled.retention[plan.edge], weights, local, both, unsure, variances)
    return variances + _flat(compiled, np.where(linked, 0.0, doubt))


@njit(cache=True, nogil=True)
def _sweep(
    plan: Elimination, retention: Floats, weights: Floats, local: Floats, both: Floats, rows: Ints, variances: Floats
) -> None:
    """Fill the variances of these rows, over the criteria with edges. both: (n, k) the probability that a criterion
    holds in both rubrics. A criterion in slot s is held by the bits 2s and 2s + 1."""
    size = 1 << (2 * plan.width)
    chance, first, second, product = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros(size)
    moments = (chance, first, second, product)
    for row in rows:
        for states in moments:
            states[:] = 0.0
        chance[0] = 1.0
        for step in range(len(retention)):
            above, below = plan.slots[step]
            for end in range(2):
                if plan.enters[step, end]:
                    place = plan.ends[step, end]
                    for states in moments:
                        _enter_both(states, plan.slots[step, end], local[row, place], both[row, place])
            for states in moments:
                suppress(states, 2 * above, 2 * below, retention[step])
                suppress(states, 2 * above + 1, 2 * below + 1, retention[step])
            for end in range(2):
                if plan.leaves[step, end]:
                    slot = plan.slots[step, end]
                    _earn(chance, first, second, product, slot, weights[plan.ends[step, end]])
                    for states in moments:
                        leave(states, 2 * slot)
                        leave(states, 2 * slot + 1)
        variances[row] = max(0.0, product[0] - first[0] * second[0])


@njit(cache=True, nogil=True)
def _enter_both(states: Floats, slot: int, p: float, both: float) -> None:
    """Take up a criterion that holds with probability p in each rubric and with `both` in the two."""
    first, second = 1 << (2 * slot), 1 << (2 * slot + 1)
    for state in range(len(states)):
        if not state & (first | second):
            mass = states[state]
            states[state] = mass * max(0.0, 1.0 - 2.0 * p + both)
            states[state | first] = mass * (p - both)
            states[state | second] = mass * (p - both)
            states[state | first | second] = mass * both


@njit(cache=True, nogil=True)
def _earn(chance: Floats, first: Floats, second: Floats, product: Floats, slot: int, weight: float) -> None:
    """Add a criterion's weight to the sums of the rubrics in which it holds."""
    first_bit, second_bit = 1 << (2 * slot), 1 << (2 * slot + 1)
    for state in range(len(chance)):
        mine = weight if state & first_bit else 0.0
        theirs = weight if state & second_bit else 0.0
        product[state] += mine * second[state] + theirs * first[state] + mine * theirs * chance[state]
        first[state] += mine * chance[state]
        second[state] += theirs * chance[state]


# Tables of a run as rewarding reads them, and those that it makes.


def write_rewards(
    run: Run, judged: Locals, compile_at: CompileAt, study: Study, settings: Reward, scores: pa.Table
) -> list[Record]:
    """Commit the rewards of every aggregation and its dependency cases, a part of the responses to a shard; the rows of
    `diagnostics` about them and who else scored.

    scores: as `against` takes them.
    """
    diagnostics: list[Record] = []
    reward_of: dict[Aggregation, Floats] = {}
    for nth, name in enumerate(AGGREGATIONS):
        worth = aggregate(
            judged.batch,
            name,
            threshold=settings.threshold,
            inference=settings.inference,
            unscored=study.judge.unscored,
        )
        leaks = edge_cases(judged.batch, worth.marginal, settings.threshold)
        tables = zip(rewards(judged, worth, name, settings), cases(judged, leaks, name), strict=True)
        for number, (paid, dependencies) in enumerate(tables):
            run.commit("reward", f"{nth}-{name}-{number:05d}", {Rewards: paid, EdgeCases: dependencies})
        diagnostics += figures(judged, name, worth, settings)
        reward_of[name] = worth.reward
    diagnostics += ablations(judged, compile_at, settings, study.judge.unscored)
    return diagnostics + against(judged, reward_of, scores, settings)


def judged_responses(
    run: Run,
    items: TableRef,
    responses: TableRef,
    judgments: TableRef,
    locked: Mapping[str, Bundle],
    compiled: Mapping[str, CompiledGraph],
    settings: Reward,
) -> Locals:
    """The local scores of the responses that are rewarded."""
    rubric_of = _pairs(run.read(items, ["item_id", "rubric_id"]))
    item_of = _pairs(run.read(responses, ["response_id", "item_id"]))
    rows = _judged_rows(run, judgments, settings)
    return local_scores(rows, item_of, rubric_of, locked, compiled, settings.local)


def _judged_rows(run: Run, judgments: TableRef, settings: Reward) -> pa.Table:
    """The judgments that are rewarded."""
    if settings.rater is None:
        return _coded(run.read(judgments, _JUDGED))
    theirs = run.read(judgments, _JUDGED, ds.field("rater_id") == settings.rater)
    if not theirs.num_rows:
        there = ", ".join(sorted(pc.unique(run.read(judgments, ["rater_id"])["rater_id"]).to_pylist())) or "none"
        rule = f"rater '{settings.rater}' judged no criterion of any response"
        raise InputError(rule, field="reward.rater", hint=f"there are {there}")
    return _coded(theirs)


def _coded(rows: pa.Table) -> pa.Table:
    """The rows with every id once and numbers in its place: half the memory."""
    for name in ("response_id", "criterion_id", "rater_id"):
        rows = rows.set_column(rows.column_names.index(name), name, rows[name].dictionary_encode())
        give_back()
    return rows


def _pairs(table: pa.Table) -> dict[str, str]:
    """A table of two columns as a mapping, of the second each string once."""
    first, second = (column.to_pylist() for column in table.columns)
    return dict(zip(first, map(sys.intern, second), strict=True))


def scores_to_learn(
    run: Run, judged: Locals, responses: TableRef, scores: pa.Table, locked: Mapping[str, Bundle], plan: Learn
) -> HumanScores:
    """The human scores to learn from."""
    scales = {bundle.scale.bounds for bundle in locked.values()}
    if len(scales) > 1:
        raise InputError(f"the rubrics have {len(scales)} scales; factors are learned on one", field="reward.learn")
    authors = run.read(responses, ["response_id", "author_id", "split"])
    return human_scores(judged, target_scores(scores, plan.target), authors, scales.pop())
