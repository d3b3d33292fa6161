"""The stage entry points of the reward report, of the pictures of rubric graphs, and of the training report."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.schema import Row
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.contracts.tables.reward import (
    Diagnostics,
    EdgeCases,
    HeldOutQuality,
    Rewards,
    TrainedCriteria,
)
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, GraphEdges, GraphNodes, RubricGraphs
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.publish import publish, write_page
from rubricflow.tasks.core.stats.scores import GIVEN, target_scores
from rubricflow.tasks.core.store.files import file_name
from rubricflow.tasks.core.store.manifest import study_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.rewards.report.picture import edges_page, graph_page, rows_of
from rubricflow.tasks.rewards.report.rewards import PAID, RewardView, statistics, summary, worst
from rubricflow.tasks.rewards.report.rewards import page as reward_page
from rubricflow.tasks.rewards.report.training import (
    EvaluatedRollouts,
    TrainingView,
    criterion_shares,
    judged_twice,
    paired,
)
from rubricflow.tasks.rewards.report.training import page as training_page

_SHOWN = ["response_id", "rubric_id", "rater_id", "sample", "aggregation", "reward", "marginals", "decided_by"]
"""What the report shows of a reward."""
_BOTH = pc.field("aggregation").isin(["flat", "gear"])
EVALUATION = "evaluation"
"""The stage in which the evaluation's own judge scores what is rewarded."""


@task(task_run_name="pictures")
def draw_graphs(run: Run, manifest: Path) -> str:
    """Draw the graph of every rubric into `<run>/graphs/`, and list all edges with their reasons in `<run>/edges.html`;
    print statistics and where everything is."""
    nodes = run.table(GraphNodes, "graph")
    edges = run.table(GraphEdges, "graph")
    graphs = run.table(RubricGraphs, "graph").to_pylist()
    for rubric in [row["rubric_id"] for row in graphs]:
        drawn = graph_page(rubric, rows_of(nodes, rubric), rows_of(edges, rubric))
        write_page(run, f"graphs/{file_name(rubric)}.html", drawn)
    listed = write_page(run, "edges.html", edges_page(run.run_id, nodes.to_pylist(), edges.to_pylist()))
    sentence = f"{say.plural(len(graphs), 'graph')} built and drawn"
    where = {"manifest": manifest, "pictures": run.folder / "graphs", "edges": listed}
    return publish(run, "graph", sentence, statistics(graphs), where, None)


@task(task_run_name="report")
def report_rewards(run: Run, manifest: Path) -> str:
    """Write the reward report; print the summary and where everything is, and leave the same as artifacts in the
    Prefect UI."""
    written = write_rewards(run)
    flat = pc.field("aggregation") == "flat"
    responses = len(run.table(Rewards, "reward", ["response_id"], flat)["response_id"].unique())
    sentence = f"{say.plural(responses, 'response')} rewarded by every aggregation"
    table = summary(run.table(Diagnostics, "reward"))
    return publish(run, "reward", sentence, table, {"manifest": manifest, "tables": run.folder}, written)


def write_rewards(run: Run) -> Path:
    """Write `<run>/reward.html` from the tables of a run that was rewarded; StoreError if it was not."""
    study = study_of(run)
    assert study.reward is not None  # nothing was rewarded without
    cases = run.table(EdgeCases, "reward", where=PAID)
    is_shown = pc.field("response_id").isin(pa.array([row["response_id"] for row in worst(cases)], pa.string()))
    texts = run.table(Responses, "ingest", ["response_id", "text"], is_shown).to_pylist()
    items = run.table(Items, "ingest", ["item_id", "question"]).to_pylist()
    view = RewardView(
        study=study.name,
        run_id=run.run_id,
        settings=study.reward,
        rewards=run.table(Rewards, "reward", _SHOWN, _BOTH),
        edge_cases=cases,
        diagnostics=run.table(Diagnostics, "reward"),
        graphs=run.table(RubricGraphs, "graph"),
        graph_nodes=run.table(GraphNodes, "graph"),
        graph_edges=run.table(GraphEdges, "graph"),
        questions={row["item_id"]: row["question"] for row in items},
        texts={row["response_id"]: row["text"] for row in texts},
        evaluated=_evaluated(run, study),
    )
    return write_page(run, "reward.html", reward_page(view))


def _evaluated(run: Run, study: Study) -> EvaluatedRollouts | None:
    """The rollouts that have a step, with their rewards and scores; None where nobody gave any of them a score."""
    target = study.evaluation.target
    given = run.table(Gradings, EVALUATION if study.evaluation.judge else "ingest", GIVEN)
    if study.evaluation.judge:  # one judge, or a jury's, who is one rater
        target = given["rater_id"][0].as_py()
    scores = target_scores(given, target).to_pandas().set_index("response_id")["score"]
    responses = _with_steps(run.table(Responses, "ingest", ["response_id", "item_id", "groups"]))
    if responses["step"].isna().all() and not study.evaluation.judge:
        return None
    rewards = run.table(Rewards, "reward", ["response_id", "aggregation", "reward"], _BOTH).to_pandas()
    rows = paired(rewards.groupby(["response_id", "aggregation"])["reward"].mean().reset_index(), responses)
    bundles = unlocked(run.table(Bundles, "lock").to_pylist())
    items = run.table(Items, "ingest", ["item_id", "rubric_id"]).to_pylist()
    bounds = {row["item_id"]: bundles[row["rubric_id"]].scale.bounds for row in items}
    low, high = (rows["item_id"].map({item: ends[end] for item, ends in bounds.items()}) for end in (0, 1))
    rows = rows.assign(quality=(rows["response_id"].map(scores) - low) / (high - low))
    is_told = bool(rows["quality"].notna().any()) or study.evaluation.judge is not None
    return EvaluatedRollouts(target, rows) if is_told else None


def _with_steps(rows: pa.Table) -> pd.DataFrame:
    """Responses with their `step` in place of their groups, NaN where they have none that is a number."""
    steps = [groups.get("step") for groups in rows["groups"].to_pylist(maps_as_pydicts="strict")]
    responses: pd.DataFrame = rows.drop_columns("groups").to_pandas()
    return responses.assign(step=pd.to_numeric(pd.Series(steps, dtype=object), errors="coerce"))


def write_training(run: Run) -> Path:
    """Write `<run>/training.html` from what was recorded until now; StoreError where nothing was."""
    rewards = run.table(Rewards, "curves", ["response_id", "aggregation", "reward", "marginals"])
    rows = run.table(Responses, "trainer", ["response_id", "item_id", "text", "groups"])
    paid = run.table(Rewards, "trainer", ["response_id", "reward"]).to_pandas()
    judged = _rows(run, Judgments, "trainer", ["response_id", "criterion_id", "decision", "verified"]).to_pandas()
    rollouts = paired(rewards.drop_columns("marginals").to_pandas(), _with_steps(rows))
    quoted = judged.dropna(subset=["verified"])
    unverified = (1 - quoted["verified"].astype(float)).groupby(quoted["response_id"]).mean()
    again = _rows(run, Judgments, "repeats", ["response_id", "criterion_id", "decision"]).to_pandas()
    criteria = _rows(run, TrainedCriteria, "criteria", ["item_id", "criterion_id", "text"]).to_pylist()
    view = TrainingView(
        run_id=run.run_id,
        rollouts=rollouts.assign(
            paid=rollouts["response_id"].map(paid.set_index("response_id")["reward"]),
            unverified=rollouts["response_id"].map(unverified),
        ),
        cases=run.table(EdgeCases, "curves", ["response_id", "relation", "leaked"]).to_pandas(),
        shares=criterion_shares(rewards),
        twice=judged_twice(judged.drop(columns="verified"), again),
        quality=_rows(run, HeldOutQuality, "held_out", ["step", "item_id", "quality"]).to_pandas(),
        texts={(row["item_id"], row["criterion_id"]): row["text"] for row in criteria},
    )
    return write_page(run, "training.html", training_page(view))


def _rows(run: Run, table: type[Row], stage: str, columns: list[str]) -> pa.Table:
    """What a stage wrote of a table; without rows where it never ran."""
    if run.shards(stage):
        return run.table(table, stage, columns)
    return pa.table({name: pa.array([], pa.string()) for name in columns})
