"""What the rewards rest on: judges, factors and graphs, and what this makes of the figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.graph import RELATIONS
from tasks.display import say
from tasks.report.reward.boxes import Row
from tasks.report.reward.inputs import RewardView
from tasks.stats.bootstrap import cautions

HEURISTIC = "heuristic-"
"""How the name of an annotator begins that is no model."""


def facts(view: RewardView) -> Iterator[tuple[str, str]]:
    """By whom, from what and how the rewards were made: name and value."""
    gear = view.rewards.filter(pc.field("aggregation") == "gear")
    yield "run", view.run_id
    counted = pc.value_counts(view.rewards.filter(pc.field("aggregation") == "flat")["rater_id"]).to_pylist()
    judged = (f"{say.name(rater['values'])} ({say.count(rater['counts'])})" for rater in counted)
    yield "judged by", ", ".join(judged) or "nobody"
    yield "local scores", ", ".join(f"by {word}" for word in sorted(gear["decided_by"].unique().to_pylist()))
    if len(gear):
        yield from _recorded(gear, view.retention)
    yield "threshold", say.level(view.settings.threshold)
    intervals = f"95%, {say.count(view.settings.draws)} draws over items, seed {view.settings.seed}"
    yield "intervals", "; ".join((intervals, *cautions(view.diagnostics["clusters"].to_pylist())))


def _recorded(gear: pa.Table, factors: Mapping[str, float]) -> Iterator[tuple[str, str]]:
    """What the rows of GEAR say that they were made with."""
    eta = gear["eta"].unique().to_pylist()
    yield "inference", ", ".join(sorted(gear["inference"].unique().to_pylist()))
    yield "suppression strength η", ", ".join(map(say.level, sorted(eta)))
    retention = (f"{words} {say.level(factors[name])}" for name, words in RELATIONS.items() if name in factors)
    yield "retention factors before η", ", ".join(retention)


def caveats(view: RewardView, rows: list[Row]) -> Iterator[str]:
    """What to bear in mind. rows: of `graphs`."""
    if _is_boolean(view.rewards):
        yield (
            "Every verdict is yes or no: hard gating then leaks nothing by construction, and GEAR what its retention "
            "factors leave. Verdicts with probabilities would say more about either."
        )
    if heuristic := sum(row["annotator"].startswith(HEURISTIC) for row in rows):
        yield (
            f"{say.count(heuristic)} of {say.plural(len(rows), 'graph')} were made by a heuristic over the criteria's "
            "wording, not by a person or a language model: dependencies may be missing or wrong, and so may what is "
            "called false credit."
        )
    if failed := sum(row["failed"] for row in rows):
        yield f"The annotator gave nothing usable for {say.plural(failed, 'pair')} of criteria: they are independent."
    if view.settings.edge_retention:
        yield "Some dependencies have a factor of their own in place of that of their kind."
    if len(view.retentions):
        yield "What was learned about factors here is in table retentions; the rewards above were made without it."
    yield "Leakage and preservation are about the graph's dependencies: they do not say that a reward is right."


def _is_boolean(rewards: pa.Table) -> bool:
    """Whether every criterion's own score is 0 or 1."""
    scores = rewards.filter(pc.field("aggregation") == "flat")["marginals"].combine_chunks().items
    return len(scores) > 0 and bool(pc.all(pc.is_in(scores, pa.array([0.0, 1.0]))).as_py())
