"""The stage entry point of the reward report, and of the pictures of rubric graphs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, EdgeCases, Retentions, Rewards
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges, GraphNodes, RubricGraphs
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Table
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.publish import publish, write_page
from rubricflow.tasks.core.stats.bootstrap import cautions
from rubricflow.tasks.core.store.files import file_name
from rubricflow.tasks.core.store.recorded import read_manifest
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.rewards.report.reward.figures import EVERY_REWARD, PAID, RewardView, needs_texts, summary_rows
from rubricflow.tasks.rewards.report.reward.figures import HEADER as REWARDS
from rubricflow.tasks.rewards.report.reward.graphs import statistics
from rubricflow.tasks.rewards.report.reward.picture import graph_page, rows_of
from rubricflow.tasks.rewards.report.reward.view import page as reward_page

_SHOWN = (
    *("response_id", "rubric_id", "rater_id", "sample", "aggregation"),
    *("reward", "marginals", "inference", "eta", "decided_by"),
)
"""What the report shows of a reward."""


@task(task_run_name="pictures")
def draw_graphs(run: Run, manifest: Path) -> str:
    """Draw the graph of every rubric into `<run>/graphs/`; print their statistics and where everything is."""
    nodes, edges = run.read(run.ref(GraphNodes, "graph")), run.read(run.ref(GraphEdges, "graph"))
    graphs = run.read(run.ref(RubricGraphs, "graph")).to_pylist()
    for rubric in [row["rubric_id"] for row in graphs]:
        page = graph_page(rubric, rows_of(nodes, rubric), rows_of(edges, rubric))
        write_page(run, f"graphs/{file_name(rubric)}.html", page)
    table = statistics(graphs)
    sentence = f"{say.plural(len(graphs), 'graph')} built and drawn"
    return publish(run, "graph", sentence, table, {"manifest": manifest, "pictures": run.folder / "graphs"}, None)


@task(task_run_name="report")
def report_rewards(run: Run, manifest: Path) -> str:
    """Write the reward report; print the summary and where everything is, and leave the same as artifacts in the
    Prefect UI."""
    page = write_rewards(run)
    diagnostics = run.read(run.ref(Diagnostics, "reward"))
    notes = tuple(cautions(diagnostics["clusters"].to_pylist()))
    title = "Rewards, and what they pay without licence"
    table = Table("diagnostics", title, REWARDS, tuple(summary_rows(diagnostics)), notes)
    flat = pc.field("aggregation") == "flat"
    responses = len(run.read(run.ref(Rewards, "reward"), ["response_id"], flat)["response_id"].unique())
    sentence = f"{say.plural(responses, 'response')} rewarded by every aggregation"
    return publish(run, "reward", sentence, table, {"manifest": manifest, "tables": run.folder}, page)


def write_rewards(run: Run) -> Path:
    """Write `<run>/reward.html` from the tables of a run that was rewarded; StoreError if it was not."""
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    assert study.reward is not None  # nothing was rewarded without
    rewards = run.ref(Rewards, "reward")
    cases = run.read(run.ref(EdgeCases, "reward"), where=PAID)
    shown = needs_texts(cases)
    is_shown = pc.field("response_id").isin(pa.array(shown, pa.string()))
    texts = run.read(run.ref(Responses, "ingest"), ["response_id", "text"], is_shown).to_pylist()
    items = run.read(run.ref(Items, "ingest"), ["item_id", "question"]).to_pylist()
    # The factors that GEAR's rows say they were made with: all of a run have the same.
    gear = pc.field("aggregation") == "gear"
    first = next((batch for batch in run.batches(rewards, ["retention"], where=gear) if len(batch)), None)
    retention = {} if first is None else dict(first["retention"][0].as_py())
    content = RewardView(
        study=study.name,
        run_id=run.run_id,
        settings=study.reward,
        rewards=run.read(rewards, list(_SHOWN), pc.field("aggregation").isin(["flat", "gear"])),
        every_reward=run.read(rewards, list(EVERY_REWARD)),
        retention=retention,
        edge_cases=cases,
        diagnostics=run.read(run.ref(Diagnostics, "reward")),
        graphs=run.read(run.ref(RubricGraphs, "graph")),
        graph_nodes=run.read(run.ref(GraphNodes, "graph")),
        graph_edges=run.read(run.ref(GraphEdges, "graph")),
        retentions=run.read(run.ref(Retentions, "reward")),
        questions={row["item_id"]: row["question"] for row in items},
        texts={row["response_id"]: row["text"] for row in texts},
    )
    return write_page(run, "reward.html", reward_page(content))
