"""Rewards and dependency cases as their tables, column by column; and all figures of a study's rewards: every
aggregation, what of the graph makes the difference (its edges rewired at random, or its relations made one; GEAR,
appendix H), and who else scored."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from scipy.stats import rankdata

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Row, TableRef, schema
from rubricflow.tasks.core.contracts.settings.reward import Inference, Learn, Reward
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.reward import Aggregation, EdgeCases, Rewards
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.warehouse import Run, Tables, give_back
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.rewards.reward.aggregate import Aggregated, aggregate
from rubricflow.tasks.rewards.reward.compiled import Batch, CompiledGraph, shared_factor, topological, untyped
from rubricflow.tasks.rewards.reward.exact import reward_variances
from rubricflow.tasks.rewards.reward.factors import HumanScores, human_scores
from rubricflow.tasks.rewards.reward.figures import (
    Resampling,
    RewardFigure,
    agreement,
    correlation,
    correlation_terms,
    record,
    reward_figures,
)
from rubricflow.tasks.rewards.reward.leakage import RELATIONS, EdgeCaseArrays, diagnose, edge_cases
from rubricflow.tasks.rewards.reward.local import Locals, local_scores

_JUDGED = ["response_id", "criterion_id", "rater_id", "sample", "decision", "level_probabilities", "action"]


PART = 100_000
"""Responses whose rows are written together."""


def reward_rows(
    judged: Locals, aggregated: Aggregated, variance: Floats, aggregation: Aggregation, settings: Reward
) -> pa.Table:
    """The table `rewards` of a batch under one aggregation; NaN is null. variance: (n,) of the rewards.

    `inference` and `retention` are the study's for gear, 'none' and empty for the aggregations that use neither; `eta`
    is the study's for all.
    """
    batch = judged.batch
    n = len(judged.batch.rubric_index)
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


def case_rows(judged: Locals, edge_cases: EdgeCaseArrays, aggregation: Aggregation) -> pa.Table:
    """The table `edge_cases` of the cases of a batch under one aggregation."""
    batch = judged.batch
    rubric_index = judged.batch.rubric_index[edge_cases.response]
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


# Tables of a run as rewarding reads them, and those that it makes.


def write_rewards(
    run: Run, judged: Locals, compile_at: CompileAt, study: Study, settings: Reward, scores: pa.Table
) -> list[Record]:
    """Commit the rewards of every aggregation and its dependency cases, PART responses to a shard; the rows of
    `diagnostics` about them and who else scored.

    scores: as `against` takes them.
    """
    diagnostics = []
    reward_of: dict[Aggregation, Floats] = {}
    part_of = np.arange(len(judged.sample)) // PART
    for nth, name in enumerate(AGGREGATIONS):

        def rewarded(responses: Locals, name: Aggregation = name) -> Aggregated:
            return aggregate(
                responses.batch,
                name,
                threshold=settings.threshold,
                inference=settings.inference,
                unscored=study.judge.unscored,
            )

        variance = reward_variances(judged.batch, name)  # of all: the last digit of a sum depends on the rows around it
        for number in range(part_of.max(initial=0) + 1):
            part = judged.only(part_of == number)
            worth = rewarded(part)
            leaks = edge_cases(part.batch, worth.marginal, settings.threshold)
            tables: Tables = {
                Rewards: reward_rows(part, worth, variance[part_of == number], name, settings),
                EdgeCases: case_rows(part, leaks, name),
            }
            run.commit("reward", f"{nth}-{name}-{number:05d}", tables)
        worth = rewarded(judged)
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


AGGREGATIONS: tuple[Aggregation, ...] = get_args(Aggregation)
STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
"""Values of η that the paper sweeps (Table 16)."""
SMALL = 14
"""Criteria of the graphs on which exact and topological marginals are compared."""
Unscored = Literal["null", "bounds", "zero"]
CompileAt = Callable[[float], Mapping[str, CompiledGraph]]
"""Suppression strength η → each rubric ready to be computed with."""


def figures(judged: Locals, name: str, aggregated: Aggregated, settings: Reward) -> list[Record]:
    """The rows of `diagnostics` about one aggregation, or an ablation of one: rewards, leakage and preservation."""
    return [*reward_figures(judged, name, aggregated, settings), *diagnose(judged, name, aggregated, settings)]


def ablations(judged: Locals, compile_at: CompileAt, settings: Reward, unscored: Unscored = "null") -> list[Record]:
    """The rows of `diagnostics` about what of a graph makes the difference: gear's `figures` with a random and an
    untyped graph and at other strengths, and how near the topological update comes to exact inference.

    unscored: what an unscored criterion does. The random graphs, which may be too wide for exact inference, are
    computed by the topological update whatever the settings say.
    """
    graphs = judged.batch.compiled

    def ablated(name: str, compiled: Sequence[CompiledGraph], inference: Inference) -> list[Record]:
        """GEAR's figures with the same local scores under other graphs."""
        rewired = replace(judged.batch, compiled=tuple(compiled))
        return figures(judged, name, aggregate(rewired, "gear", inference=inference, unscored=unscored), settings)

    records = ablated("random_graph", [random_graph(graph, settings.seed) for graph in graphs], "topological")
    factor = shared_factor(graphs)
    note = "there is no edge" if factor is None else f"one factor for all edges: {factor:.3f}"
    records += [_noted(row, note) for row in ablated("untyped", untyped(graphs), settings.inference)]
    for eta in STRENGTHS:
        compiled = compile_at(eta)
        stronger = [compiled[graph.rubric_id] for graph in graphs]
        records += ablated(f"gear, eta {eta:g}", stronger, settings.inference)
    return records + _inference(judged, settings, unscored)


def against(
    judged: Locals, rewards: Mapping[Aggregation, Floats], gradings: pa.Table, settings: Reward
) -> list[Record]:
    """How the rewards of every aggregation, (n,), stand to the scores that others gave the same responses.

    gradings: response_id, rater_id, rater_kind and score of one rater or several. For each rater and aggregation
    `spearman: <rater>`, over all responses that have both; and of flat rewards the `largest difference: <rater>` from
    scores that a machine recorded, which are sums of the same points.
    """
    records = []
    gradings = gradings.filter(pc.is_valid(gradings["score"]))
    for rater in sorted(pc.unique(gradings["rater_id"]).to_pylist()):
        theirs = gradings.filter(pc.equal(gradings["rater_id"], rater))
        places = pc.index_in(judged.response_id, value_set=theirs["response_id"].combine_chunks())
        score = np.asarray(theirs["score"].take(places), dtype=np.float64)  # no score is NaN
        for name, reward in rewards.items():
            both = np.flatnonzero(~np.isnan(score) & ~np.isnan(reward))
            if not len(both):
                continue
            missing = len(score) - len(both)
            # Pearson's correlation of the ranks, with ranks taken once for all draws.
            middle = (len(both) + 1) / 2
            a = rankdata(reward[both]) - middle
            b = rankdata(score[both]) - middle
            correlated = Resampling.plan(judged, settings).figure(correlation, both, correlation_terms(a, b))
            records.append(record(f"spearman: {rater}", name, correlated, len(both), missing))
            if name == "flat" and theirs["rater_kind"][0].as_py() == "replayed":
                gap = float(np.abs(reward - score)[both].max())
                largest = RewardFigure(gap, None, None, None)
                records.append(record(f"largest difference: {rater}", name, largest, len(both), missing))
    return records


def _noted(row: Record, note: str) -> Record:
    return row | {"note": "; ".join(text for text in (row["note"], note) if text)}


def _inference(judged: Locals, settings: Reward, unscored: Unscored) -> list[Record]:
    """Topological against exact marginals on the small graphs."""
    small = np.array([len(graph.criteria) <= SMALL for graph in judged.batch.compiled])[judged.batch.rubric_index]
    if not small.any():
        return []
    on_small_graphs = judged if small.all() else judged.only(small)
    near = aggregate(on_small_graphs.batch, "gear", inference="topological", unscored=unscored)
    exact = aggregate(on_small_graphs.batch, "gear", inference="exact", unscored=unscored)
    note = f"graphs of at most {SMALL} criteria"
    return [_noted(row, note) for row in agreement(on_small_graphs, near, exact, settings)]


def random_graph(compiled: CompiledGraph, seed: int) -> CompiledGraph:
    """The same rubric with as many edges between random criteria, acyclic, none twice.

    Relations are kept with their retention factors, as often as they occur, and dealt out anew. Criteria are put into a
    random order and pairs drawn without replacement that go forward in it. Roles are not respected: dependencies become
    arbitrary. The draw depends on the seed and the rubric_id alone.
    """
    rng = np.random.default_rng([seed, *digest_bytes(compiled.rubric_id)])
    k = len(compiled.criteria)
    e = len(compiled.parent)
    shuffled = rng.permutation(k)
    earlier, later = np.triu_indices(k, 1)
    drawn = rng.choice(len(earlier), e, replace=False)
    pairs = zip(shuffled[earlier[drawn]].tolist(), shuffled[later[drawn]].tolist(), strict=True)
    dealt = dict(zip(pairs, rng.permutation(e).tolist(), strict=True))
    order, edges = topological(k, dealt)
    sources = [dealt[pair] for pair in edges]
    return replace(
        compiled,
        graph_id=f"random {seed} of {compiled.graph_id}",
        order=order,
        parent=np.array([parent for parent, _ in edges], dtype=np.int32),
        child=np.array([child for _, child in edges], dtype=np.int32),
        relation=tuple(compiled.relation[source] for source in sources),
        retention=compiled.retention[sources],
    )
