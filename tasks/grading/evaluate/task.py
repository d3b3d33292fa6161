"""The stage of evaluate: people's and the machine's scores in, metrics and verdicts out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, RaterEffects, Verdicts
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.agreement import Stat
from rubricflow.tasks.core.stats.arrays import Ints
from rubricflow.tasks.core.stats.bootstrap import Interval, cluster_sums, draw_totals, interval
from rubricflow.tasks.core.stats.probability import (
    Top,
    bins_of,
    brier,
    ece,
    ece_by_chance,
    log_loss,
    ranked,
    reliability,
    top,
)
from rubricflow.tasks.core.stats.scores import people_marks, resampled, score_frame
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.ordered import read_scores
from rubricflow.tasks.core.store.warehouse import Rows, Run, give_back
from rubricflow.tasks.grading.evaluate.baselines import OTHER, scores_of_other_run
from rubricflow.tasks.grading.evaluate.figures import figures
from rubricflow.tasks.grading.evaluate.preferences import NO_COMPARISONS, machine_scores, preference_figures
from rubricflow.tasks.grading.evaluate.raters import SCORE, rater_effects, read_marks
from rubricflow.tasks.grading.evaluate.slices import EXACT, Record, ScoreSlice, Setting, record, share


class Evaluated(NamedTuple):
    metrics: TableRef
    verdicts: TableRef
    rater_effects: TableRef


@task(task_run_name=named("evaluate"))
def evaluate(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    gradings: TableRef,
    predictions: TableRef,
    bundles: TableRef,
    marks: TableRef,
    judgments: TableRef,
    others: Mapping[str, tuple[Run, TableRef]] | None = None,
    preferences: TableRef | None = None,
    comparisons: TableRef | None = None,
) -> Evaluated:
    """Compare every rater with the human scores on the test split, and the judge's probabilities of single decisions
    with people's marks; without any there is nothing to compare.

    preferences: of people, between two answers; comparisons: of a judge that compares pairs. others: other runs to
    compare the machine's scores with, by name, each with its predictions. InputError where these have a score off an
    item's scale.
    """

    plan = study.evaluation

    def make() -> dict[type[Row], Rows]:
        locked = unlocked(run.read(bundles).to_pylist())
        rubric_of = {row["item_id"]: row["rubric_id"] for row in run.read(items, ["item_id", "rubric_id"]).to_pylist()}
        bundle_of = {item: locked[rubric] for item, rubric in rubric_of.items()}
        # First of all: it needs as much memory as all that comes after it. Marks of the calibration split count, too.
        steps = {(rubric, SCORE): bundle.scale.step for rubric, bundle in locked.items()}
        for rubric, bundle in locked.items():
            steps |= {(rubric, trait.id): trait.step for trait in bundle.traits}
        all_marks = read_marks(run, items, responses, people)
        effects = rater_effects(all_marks, steps, plan.random_assignment, plan.draws, plan.seed)
        del all_marks
        give_back()
        scores = score_frame(read_scores(run, items, responses, people, gradings, predictions), plan.target)
        give_back()
        scales = {item: bundle.scale.bounds for item, bundle in bundle_of.items()}
        for name, (other, theirs) in (others or {}).items():
            table = other.read(theirs, ["response_id", "score"])
            score_of = dict(zip(table["response_id"].to_pylist(), table["score"].to_pylist(), strict=True))
            scores.frame[OTHER + name] = scores_of_other_run(scores.frame, score_of, scales, name)
        machine = next((batch["rater_id"][0].as_py() for batch in run.batches(gradings, ["rater_id"], 1)), "machine")
        metrics, verdicts = figures(scores, scales, machine, plan, study.release)
        # The judge's probabilities of single decisions; no rows where people marked no criteria.
        human_marks = people_marks(run.read(marks, [*CRITERION, "rater_id", "rater_kind", "decision"]), plan.target)
        batches = run.batches(judgments, [*CRITERION, "level_probabilities"]) if len(human_marks) else ()
        rows = decided(batches, human_marks, scores.frame[["response_id", "item_id", "cluster"]])
        kinds = dict[tuple[str, str], str]()
        for item, bundle in bundle_of.items():
            kinds |= {(item, criterion.id): criterion.kind for criterion in bundle.criteria}
        on = Setting(scales, machine, draws=plan.draws, seed=plan.seed)
        metrics += decision_figures(rows, kinds, resampled(scores.frame), on)
        if preferences:
            metrics += preference_figures(
                run.read(preferences).to_pandas(),
                machine_scores(run.batches(gradings, ["response_id", "sample", "score", "signals"])),
                run.read(comparisons).to_pandas() if comparisons else NO_COMPARISONS,
                {row["item_id"]: row["type"] for row in run.read(items, ["item_id", "type"]).to_pylist()},
                on,
            )
        return {Metrics: metrics, Verdicts: verdicts, RaterEffects: effects}

    run.once("evaluate", make)
    return Evaluated(*(run.ref(row, "evaluate") for row in (Metrics, Verdicts, RaterEffects)))


# How good the judge's probabilities of single decisions are, where people marked the same criteria. The probabilities
# are of the level that the judge would state, before any quote is looked for.

PEOPLE = "people"
OWN_SCALE = (0.0, 1.0, 1.0)
"""Every decision is on its criterion's own levels: nothing is put on another scale."""
CRITERION = ["response_id", "criterion_id"]
FEWEST_DECISIONS = 30
"""Decisions that a slice needs."""
MEANS = {
    "decision_accuracy": "correct",
    "decision_confidence": "confidence",
    "decision_brier": "brier",
    "decision_rps": "ranked",
    "decision_log_loss": "log_loss",
}
"""Metric and the column that it is the mean of."""
_NOTHING = pa.schema(
    [*((name, pa.string()) for name in CRITERION), ("level_probabilities", pa.list_(pa.float64()))]
).empty_table()


def decided(judgments: Iterable[pa.RecordBatch], marks: pa.Table, responses: pd.DataFrame) -> pd.DataFrame:
    """One row per decision with probabilities and mark of it: response_id, criterion_id, item_id, cluster, `levels` of
    the criterion, `confidence` of the likeliest one and whether it is `correct`; `brier`, `ranked` and `log_loss`.

    judgments: response_id, criterion_id, level_probabilities of the machine; marks: as `people_marks` gives them;
    responses: the held-out ones, response_id, item_id, cluster. Criteria that people marked on more levels than the
    judge decides on are left out. A probability that is none is an error of the judge's and raises ValueError.
    """
    held_out = pc.unique(pa.array(responses["response_id"], pa.string()))
    marked = marks.filter(pc.is_in(marks["response_id"], value_set=held_out)).select([*CRITERION, "decision"])
    marked_responses = pc.unique(marked["response_id"])
    tables = [_NOTHING]
    for batch in judgments:
        about_marked = pc.is_in(batch["response_id"], value_set=marked_responses)
        told = batch.filter(pc.and_(about_marked, pc.is_valid(batch["level_probabilities"])))
        tables.append(pa.Table.from_batches([told]))
    machine = pa.concat_tables(tables, promote_options="default")
    decisions = machine.select(CRITERION).to_pandas().assign(at=np.arange(len(machine)))
    decisions = decisions.merge(marked.to_pandas(), on=CRITERION).merge(responses, on="response_id")
    # A criterion that people marked on more levels than the judge decides on has no mark to compare with.
    level_counts = pc.list_value_length(machine["level_probabilities"]).to_numpy()
    beyond = decisions["decision"] >= level_counts[decisions["at"]]
    by_criterion = beyond.groupby([decisions["item_id"], decisions["criterion_id"]])
    decisions = decisions[~by_criterion.transform("any").astype(bool)]
    if decisions.empty:
        return pd.DataFrame()
    chances = machine["level_probabilities"].take(pa.array(decisions["at"])).combine_chunks()
    sizes = pc.list_value_length(chances).to_numpy()
    flat = chances.flatten().to_numpy()
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    parts = []
    for levels in np.unique(sizes):
        rows = np.flatnonzero(sizes == levels)
        p = flat[starts[rows][:, None] + np.arange(levels)]
        y = decisions["decision"].to_numpy()[rows]
        confidence, correct = top(p, y)
        figures = {"confidence": confidence, "correct": correct, "brier": brier(p, y), "ranked": ranked(p, y)}
        parts.append(decisions.iloc[rows].assign(levels=levels, **figures, log_loss=log_loss(p, y)))
    rated: pd.DataFrame = pd.concat(parts).sort_index().drop(columns=["at", "decision"])
    return rated


def decision_figures(
    rows: pd.DataFrame, kinds: Mapping[tuple[str, str], str], resampled: str, on: Setting
) -> Iterator[Record]:
    """Rows of `metrics` about decisions; none without decisions.

    rows: as `decided` gives them; kinds: (item, criterion) → kind of the criterion; resampled: what the clusters are.
    Over all, by item and by kind: how often the likeliest level is people's (`decision_accuracy`), how sure the judge
    is of it (`decision_confidence`), `decision_ece` and what chance alone makes of it, and `decision_brier`,
    `decision_rps` and `decision_log_loss`. Slice 'confidence' holds the reliability table, least confident first.
    """
    if rows.empty:
        return
    names = (PEOPLE, on.machine)
    kind = [kinds[pair] for pair in zip(rows["item_id"], rows["criterion_id"], strict=True)]
    cut: list[tuple[str, str, pd.DataFrame]] = [("all", "all", rows)]
    for name, by in (("item", rows["item_id"]), ("kind", pd.Series(kind, rows.index))):
        cut += [(name, str(value), part) for value, part in rows.groupby(by) if len(part) >= FEWEST_DECISIONS]
    for name, value, scored in cut:
        part = ScoreSlice(name, value, scored, OWN_SCALE, resampled)
        codes = scored["cluster"].to_numpy()
        ones = np.ones(len(scored))
        likeliest = _top(scored)
        figures = {metric: share(scored[column].to_numpy(float), ones, codes, on) for metric, column in MEANS.items()}
        ends = ece_interval(likeliest, codes, on.draws, on.seed) if on.draws else None
        figures |= {"decision_ece": (ece(likeliest), ends)}
        figures |= {"decision_ece_by_chance": (ece_by_chance(likeliest, seed=on.seed), None)}
        for metric, (stat, ends) in figures.items():
            yield record(part, metric, stat, len(scored), stage="raw", raters=names, interval=ends)
    for number, found in enumerate(reliability(_top(rows)), 1):
        part = ScoreSlice("confidence", f"{number:02d}", rows, OWN_SCALE, EXACT)
        exact = Interval(found.low, found.high, 0)
        yield record(part, "decision_confidence", Stat(found.confidence), found.n, stage="raw", raters=names)
        accuracy = Stat(found.accuracy)
        yield record(part, "decision_accuracy", accuracy, found.n, stage="raw", raters=names, interval=exact)


def ece_interval(likeliest: Top, codes: Ints, draws: int, seed: int) -> Interval:
    """Basic bootstrap interval of the ECE over clusters (Davison and Hinkley 1997), cut at 0: resampled rows are
    noisier than the sample, so that percentiles would lie too high. The bins are the sample's."""
    bin_of = bins_of(likeliest.confidence)
    terms = np.zeros((len(bin_of), int(bin_of.max()) + 2))
    terms[np.arange(len(bin_of)), bin_of] = likeliest.confidence - likeliest.correct
    terms[:, -1] = 1.0
    sums = cluster_sums(terms, codes)
    (totals,) = draw_totals([sums], draws, seed)
    ends = interval(np.abs(totals[:, :-1]).sum(axis=1) / totals[:, -1], len(sums))
    if ends.low is None or ends.high is None:
        return ends
    value = ece(likeliest).value or 0.0
    return ends._replace(low=max(0.0, 2 * value - ends.high), high=max(0.0, 2 * value - ends.low))


def _top(rows: pd.DataFrame) -> Top:
    return Top(rows["confidence"].to_numpy(float), rows["correct"].to_numpy(bool))
