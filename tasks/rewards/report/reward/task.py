"""The stage entry point of the reward report, and of the pictures of rubric graphs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.reward import Diagnostics, EdgeCases, Rewards
from rubricflow.tasks.core.contracts.tables.rubrics import GraphEdges, GraphNodes, RubricGraphs
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.publish import publish, write_page
from rubricflow.tasks.core.store.files import file_name
from rubricflow.tasks.core.store.recorded import read_manifest
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.rewards.report.reward.picture import graph_page, rows_of
from rubricflow.tasks.rewards.report.reward.view import PAID, RewardView, page, statistics, summary, worst

_SHOWN = ["response_id", "rubric_id", "rater_id", "sample", "aggregation", "reward", "marginals", "decided_by"]
"""What the report shows of a reward."""


@task(task_run_name="pictures")
def draw_graphs(run: Run, manifest: Path) -> str:
    """Draw the graph of every rubric into `<run>/graphs/`; print their statistics and where everything is."""
    nodes = run.read(run.ref(GraphNodes, "graph"))
    edges = run.read(run.ref(GraphEdges, "graph"))
    graphs = run.read(run.ref(RubricGraphs, "graph")).to_pylist()
    for rubric in [row["rubric_id"] for row in graphs]:
        drawn = graph_page(rubric, rows_of(nodes, rubric), rows_of(edges, rubric))
        write_page(run, f"graphs/{file_name(rubric)}.html", drawn)
    sentence = f"{say.plural(len(graphs), 'graph')} built and drawn"
    where = {"manifest": manifest, "pictures": run.folder / "graphs"}
    return publish(run, "graph", sentence, statistics(graphs), where, None)


@task(task_run_name="report")
def report_rewards(run: Run, manifest: Path) -> str:
    """Write the reward report; print the summary and where everything is, and leave the same as artifacts in the
    Prefect UI."""
    written = write_rewards(run)
    flat = pc.field("aggregation") == "flat"
    responses = len(run.read(run.ref(Rewards, "reward"), ["response_id"], flat)["response_id"].unique())
    sentence = f"{say.plural(responses, 'response')} rewarded by every aggregation"
    table = summary(run.read(run.ref(Diagnostics, "reward")))
    return publish(run, "reward", sentence, table, {"manifest": manifest, "tables": run.folder}, written)


def write_rewards(run: Run) -> Path:
    """Write `<run>/reward.html` from the tables of a run that was rewarded; StoreError if it was not."""
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    assert study.reward is not None  # nothing was rewarded without
    cases = run.read(run.ref(EdgeCases, "reward"), where=PAID)
    is_shown = pc.field("response_id").isin(pa.array([row["response_id"] for row in worst(cases)], pa.string()))
    texts = run.read(run.ref(Responses, "ingest"), ["response_id", "text"], is_shown).to_pylist()
    items = run.read(run.ref(Items, "ingest"), ["item_id", "question"]).to_pylist()
    view = RewardView(
        study=study.name,
        run_id=run.run_id,
        settings=study.reward,
        rewards=run.read(run.ref(Rewards, "reward"), _SHOWN, pc.field("aggregation").isin(["flat", "gear"])),
        edge_cases=cases,
        diagnostics=run.read(run.ref(Diagnostics, "reward")),
        graphs=run.read(run.ref(RubricGraphs, "graph")),
        graph_nodes=run.read(run.ref(GraphNodes, "graph")),
        graph_edges=run.read(run.ref(GraphEdges, "graph")),
        questions={row["item_id"]: row["question"] for row in items},
        texts={row["response_id"]: row["text"] for row in texts},
    )
    return write_page(run, "reward.html", page(view))
