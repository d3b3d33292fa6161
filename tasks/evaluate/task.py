"""The door of evaluate: people's and the machine's scores in, metrics and verdicts out; and what a person looks at."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from prefect import task
from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from tasks.contracts.bundle import Bundle, unlocked
from tasks.contracts.errors import StoreError
from tasks.contracts.reference import TableRef
from tasks.contracts.schema import Row, schema
from tasks.contracts.settings.study import Evaluation, Study
from tasks.contracts.tables.bottleneck import ConceptLinks, Interventions, Models, Traces, Trials
from tasks.contracts.tables.calibration import Calibrations, Predictions
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.edit import (
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    Separations,
    Steps,
)
from tasks.contracts.tables.evaluation import Metrics, Verdicts
from tasks.contracts.tables.graph import GraphEdges, GraphNodes, RubricGraphs
from tasks.contracts.tables.judging import Gradings
from tasks.contracts.tables.people import Agreements, Constructions, Labels, Queue, Votes
from tasks.contracts.tables.reward import Diagnostics, EdgeCases, Retentions, Rewards
from tasks.contracts.tables.rubrics import Bundles
from tasks.contracts.tables.rules import RuleFaithfulness
from tasks.evaluate.annotation.figures import HEADER as AGREEMENT
from tasks.evaluate.annotation.figures import Agreement
from tasks.evaluate.annotation.figures import summary_rows as agreement_rows
from tasks.evaluate.annotation.page import page as annotation_page
from tasks.evaluate.annotation.parts import AnnotationView
from tasks.evaluate.bottleneck.figures import HEADER as GRADERS
from tasks.evaluate.bottleneck.figures import summary_rows as grader_rows
from tasks.evaluate.bottleneck.page import page as grader_page
from tasks.evaluate.bottleneck.parts import BottleneckView
from tasks.evaluate.bottleneck.view import needs_texts as traced_responses
from tasks.evaluate.bottleneck.view import trace_pictures
from tasks.evaluate.decisions import CRITERION, decided, decision_figures, people_marks
from tasks.evaluate.edit.cases import needs_texts as shown_rollouts
from tasks.evaluate.edit.figures import HEADER as ARMS
from tasks.evaluate.edit.figures import summary_rows as arm_rows
from tasks.evaluate.edit.page import page as policy_page
from tasks.evaluate.edit.parts import EditView
from tasks.evaluate.experiment.show import show as show_tables
from tasks.evaluate.experiment.table import Table
from tasks.evaluate.figures import figures
from tasks.evaluate.page.counts import counts
from tasks.evaluate.page.page import page
from tasks.evaluate.page.view import Tables, needs_texts, view
from tasks.evaluate.reward import cases as dependencies
from tasks.evaluate.reward.figures import HEADER as REWARDS
from tasks.evaluate.reward.figures import summary_rows
from tasks.evaluate.reward.graphs import statistics
from tasks.evaluate.reward.page import page as reward_page
from tasks.evaluate.reward.parts import RewardView
from tasks.evaluate.reward.picture import pictures
from tasks.evaluate.scores import ScoreTables, narrow, resampled, score_frame
from tasks.evaluate.slices import Record
from tasks.evaluate.summary import HEADER, choices, gate_rows, markdown, show, summary
from tasks.stats.bootstrap import cautions
from tasks.store.catalogue import catalogue
from tasks.store.digest import digest_of
from tasks.store.naming import named
from tasks.store.ordered import packed
from tasks.store.recorded import read_manifest
from tasks.store.warehouse import Rows, Run, give_back, write_atomically

BATCH = 20_000
"""Responses read at a time, more only of an item that has more."""
PREDICTED = [
    "response_id",
    "score",
    "low",
    "high",
    "risk",
    "route",
    "route_reason",
    "unscored_reason",
    "level_probabilities",
]


class Evaluated(NamedTuple):
    """What evaluate writes."""

    metrics: TableRef
    verdicts: TableRef


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
) -> Evaluated:
    """Compare every rater with the human scores on the test split, and the judge's probabilities of single decisions
    with people's marks; without any there is nothing to compare."""

    def make() -> dict[type[Row], Rows]:
        scores = score_frame(read_scores(run, items, responses, people, gradings, predictions), study.evaluation.target)
        give_back()
        locked = unlocked(run.read(bundles).to_pylist())
        scales = {row["item_id"]: locked[row["rubric_id"]].scale.bounds for row in run.read(items).to_pylist()}
        machine = next((batch["rater_id"][0].as_py() for batch in run.batches(gradings, ["rater_id"], 1)), "machine")
        metrics, verdicts = figures(scores, scales, machine, study.evaluation, study.release)
        metrics += _decisions(run, scores.frame, marks, judgments, locked, items, machine, study.evaluation)
        return {Metrics: metrics, Verdicts: verdicts}

    run.once("evaluate", make)
    return Evaluated(run.ref(Metrics, "evaluate"), run.ref(Verdicts, "evaluate"))


def _decisions(
    run: Run,
    scores: pd.DataFrame,
    marks: TableRef,
    judgments: TableRef,
    locked: Mapping[str, Bundle],
    items: TableRef,
    machine: str,
    plan: Evaluation,
) -> list[Record]:
    """Rows of `metrics` about the judge's probabilities of single decisions; none where people marked no criteria."""
    given = people_marks(run.read(marks, [*CRITERION, "rater_id", "rater_kind", "decision"]), plan.target)
    batches = run.batches(judgments, [*CRITERION, "level_probabilities"]) if len(given) else ()
    rows = decided(batches, given, scores[["response_id", "item_id", "cluster"]])
    kinds = {
        (item["item_id"], criterion.id): criterion.kind
        for item in run.read(items, ["item_id", "rubric_id"]).to_pylist()
        for criterion in locked[item["rubric_id"]].criteria
    }
    return list(decision_figures(rows, kinds, machine, resampled(scores), plan.draws, plan.seed))


def read_scores(
    run: Run, items: TableRef, responses: TableRef, people: TableRef, gradings: TableRef, predictions: TableRef
) -> Iterator[ScoreTables]:
    """What the score frame is made from, some items at a time: no texts, and of a grading only score and signals."""
    sizes = Counter(run.read(responses, ["item_id"])["item_id"].to_pylist())
    kinds = run.read(items, ["item_id", "type"])
    for names in packed(sizes, BATCH) or [[]]:
        some = pc.field("item_id").isin(pa.array(names, pa.string()))
        graded = run.read(gradings, ["response_id", "score", "signals"], some)
        yield ScoreTables(
            kinds,
            run.read(responses, ["response_id", "item_id", "author_id", "split", "groups"], some),
            run.read(people, ["response_id", "rater_id", "rater_kind", "score"], some),
            narrow(graded.to_batches()),
            run.read(predictions, PREDICTED, some),
        )
        del graded
        give_back()


@task(task_run_name="report")
def report(run: Run, study: Study, manifest: Path) -> None:
    """Write the HTML report; print the summary tables and where everything is, and leave the same as artifacts in the
    Prefect UI."""
    metrics, verdicts = (run.read(run.ref(row, "evaluate")).to_pandas() for row in (Metrics, Verdicts))
    rows, flags = summary(metrics), gate_rows(verdicts)
    facts = choices(run.read(run.ref(Calibrations, "calibrate")).to_pandas())
    cluster = next((by for by in metrics["resampled"] if by in ("author", "response")), None)
    intervals = f"95%, {study.evaluation.draws} draws, resampled by {cluster}" if cluster else "none"
    facts["intervals"] = "; ".join([intervals, *cautions(metrics["clusters"])])
    facts["target"] = study.evaluation.target
    facts |= {"run": run.run_id, "grade_digest": read_manifest(run)["grade_digest"]}
    page = write_page(run)
    facts |= {"manifest": str(manifest), "tables": str(run.folder), "report": str(page)}
    create_link_artifact(page.resolve().as_uri(), link_text="report", key="grade-report", description=run.run_id)
    create_table_artifact([dict(zip(HEADER, row, strict=True)) for row in rows], key="grade-metrics")
    create_markdown_artifact(markdown(f"Run {run.run_id}", rows, flags, facts), key="grade-summary")
    show(rows, flags, facts)


@task(task_run_name="pictures")
def draw_graphs(run: Run, manifest: Path) -> None:
    """Draw the graph of every rubric into `<run>/graphs/`; print their statistics and where everything is."""
    nodes, edges = run.read(run.ref(GraphNodes, "graph")), run.read(run.ref(GraphEdges, "graph"))
    graphs = run.read(run.ref(RubricGraphs, "graph")).to_pylist()
    drawn = pictures(nodes, edges)
    for row in graphs:
        path = run.folder / "graphs" / f"{_file_name(row['rubric_id'])}.svg"
        write_atomically(path, drawn[row["rubric_id"]].encode())
    table = statistics(graphs)
    create_table_artifact(as_records(table), key="graph-statistics")
    show_tables([table])
    for name, value in {"run": run.run_id, "manifest": manifest, "pictures": run.folder / "graphs"}.items():
        print(f"{name}: {value}")


@task(task_run_name="report")
def report_rewards(run: Run, manifest: Path) -> None:
    """Write the reward report; print the summary and where everything is, and leave the same as artifacts in the
    Prefect UI."""
    page = write_rewards(run)
    diagnostics = run.read(run.ref(Diagnostics, "reward"))
    notes = tuple(cautions(diagnostics["clusters"].to_pylist()))
    title = "Rewards, and what they pay without licence"
    table = Table("rewards", title, REWARDS, tuple(summary_rows(diagnostics)), notes)
    create_link_artifact(page.resolve().as_uri(), link_text="report", key="reward-report", description=run.run_id)
    create_table_artifact(as_records(table), key="reward-diagnostics")
    show_tables([table])
    for name, value in {"run": run.run_id, "manifest": manifest, "tables": run.folder, "report": page}.items():
        print(f"{name}: {value}")


@task(task_run_name="report")
def report_graders(run: Run, manifest: Path) -> None:
    """Write the report of graders and the pictures of its traces; print the summary and where everything is, and leave
    the same as artifacts in the Prefect UI."""
    page = write_graders(run)
    rows = grader_rows(run.read(run.ref(Trials, "bottleneck")))
    table = Table("graders", "Graders on the test split: mean ± standard deviation over seeds", GRADERS, tuple(rows))
    create_link_artifact(page.resolve().as_uri(), link_text="report", key="grader-report", description=run.run_id)
    create_table_artifact(as_records(table), key="grader-trials")
    show_tables([table])
    for name, value in {"run": run.run_id, "manifest": manifest, "tables": run.folder, "report": page}.items():
        print(f"{name}: {value}")


@task(task_run_name="report")
def report_policies(run: Run, manifest: Path) -> None:
    """Write the report of trained arms; print the summary and where everything is, and leave the same as artifacts in
    the Prefect UI."""
    page = write_policies(run)
    metrics = run.read(run.ref(ArmMetrics, "edit"))
    title = "Arms on the test split: mean over seeds [95% interval] ± standard deviation over seeds"
    notes = tuple(cautions(metrics.filter(pc.is_valid(metrics["low"]))["n"].to_pylist()))
    table = Table("arms", title, ARMS, tuple(arm_rows(metrics)), notes)
    where = {"run": run.run_id, "manifest": manifest, "tables": run.folder, "report": page}
    create_link_artifact(page.resolve().as_uri(), link_text="report", key="edit-report", description=run.run_id)
    create_table_artifact(as_records(table), key="edit-arms")
    create_markdown_artifact("\n".join(f"- {name}: `{value}`" for name, value in where.items()), key="edit-summary")
    show_tables([table])
    for name, value in where.items():
        print(f"{name}: {value}")


@task(task_run_name="report")
def report_annotation(run: Run, manifest: Path) -> None:
    """Write the report of annotation; print the agreement and where everything is, and leave the same as artifacts in
    the Prefect UI."""
    page = write_annotation(run)
    view = _annotation(run)
    rows = agreement_rows(view.agreements, view.names)
    notes = tuple(Agreement(view.agreements, view.names).cautions())
    title = "Agreement on concepts, before and after people were asked"
    table = Table("agreement", title, AGREEMENT, tuple(rows), notes)
    create_link_artifact(page.resolve().as_uri(), link_text="report", key="annotation-report", description=run.run_id)
    create_table_artifact(as_records(table), key="annotation-agreement")
    show_tables([table])
    shown = {"queue": f"{len(view.queue):,} responses", "run": run.run_id, "manifest": manifest, "report": page}
    for name, value in shown.items():
        print(f"{name}: {value}")


def write_annotation(run: Run) -> Path:
    """Write `<run>/annotation.html` from the tables of an annotated run; StoreError where it is none."""
    path = run.folder / "annotation.html"
    write_atomically(path, annotation_page(_annotation(run)).encode())
    return path


def _annotation(run: Run) -> AnnotationView:
    """What annotators and people said; empty tables for what has not come yet."""
    study = Study.model_validate(read_manifest(run)["identity"]["study"])

    def found(row: type[Row], *stages: str) -> pa.Table:
        done = [stage for stage in stages if run.done(stage, "all")]
        return pa.concat_tables([schema(row).empty_table(), *(run.read(run.ref(row, stage)) for stage in done)])

    settled = "compare-settled" if run.done("compare-settled", "all") else "compare"
    names: dict[str, str] = {}
    for bundle in unlocked(run.read(run.ref(Bundles, "lock")).to_pylist()).values():
        names |= bundle.names
    return AnnotationView(
        study=study.name,
        run_id=run.run_id,
        names=names,
        agreements=found(Agreements, "compare", "compare-settled"),
        labels=found(Labels, "adjudicate"),
        queue=found(Queue, "queue"),
        votes=found(Votes, "adjudicate"),
        constructions=found(Constructions, settled),
    )


def write_policies(run: Run) -> Path:
    """Write `<run>/edit.html` from the tables of trained arms; StoreError where none was trained."""
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    assert study.edit is not None  # nothing was trained without

    def found(row: type[Row], columns: list[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        return run.read(run.ref(row, "edit"), columns, where)

    revisions = found(Revisions)
    ids = pa.array([response for _, response, _ in shown_rollouts(revisions)], pa.string())
    sampled = (pc.field("arm") == "base") & (pc.field("part") == "train") & pc.field("response_id").isin(ids)
    texts = found(Rollouts, ["seed", "response_id", "sample", "text"], sampled).to_pylist()
    view = EditView(
        study=study.name,
        run_id=run.run_id,
        settings=study.edit,
        metrics=found(ArmMetrics),
        differences=found(ArmDifferences),
        learning=found(Learning),
        policies=found(Policies),
        rollouts=found(Rollouts, [name for name in Rollouts.model_fields if name != "text"]),
        steps=found(Steps, [name for name in Steps.model_fields if name != "belief"]),
        separations=found(Separations),
        revisions=revisions,
        demonstrations=found(Demonstrations, ["arm", "seed", "origin"]),
        faithfulness=found(RuleFaithfulness),
        texts={(row["seed"], row["response_id"], row["sample"]): row["text"] for row in texts},
    )
    path = run.folder / "edit.html"
    write_atomically(path, policy_page(view).encode())
    return path


def write_graders(run: Run) -> Path:
    """Write `<run>/bottleneck.html` and a picture of each response traced in it; StoreError where nobody trained."""
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    assert study.bottleneck is not None  # nothing was trained without
    tables = {
        row: run.read(run.ref(row, "bottleneck")) for row in (Trials, Models, Interventions, ConceptLinks, Traces)
    }
    bundle = next(iter(unlocked(run.read(run.ref(Bundles, "lock")).to_pylist()).values()))
    traces = tables[Traces]
    traced = traced_responses(traces, tables[Models])
    texts = run.read(
        run.ref(Responses, "ingest"),
        ["response_id", "text"],
        pc.field("response_id").isin(pa.array(traced, pa.string())),
    )
    view = BottleneckView(
        study=study.name,
        run_id=run.run_id,
        settings=study.bottleneck,
        names=bundle.names,
        trials=tables[Trials],
        models=tables[Models],
        interventions=tables[Interventions],
        links=tables[ConceptLinks],
        traces=traces,
        texts=dict(zip(*(column.to_pylist() for column in texts.columns), strict=True)),
    )
    path = run.folder / "bottleneck.html"
    write_atomically(path, grader_page(view).encode())
    for response, picture in trace_pictures(view).items():
        write_atomically(run.folder / "pictures" / f"{_file_name(response)}.svg", picture.encode())
    return path


def _file_name(name: str) -> str:
    """An id as a file may be called; with a digest, because two ids may then read the same."""
    readable = re.sub(r"[^\w.-]", "_", name)[:60]
    return f"{readable}-{digest_of(name)[:8]}"


def write_pages(run: Run) -> list[Path]:
    """Write anew every report of a finished run; StoreError if it did not finish, or has none."""
    read_manifest(run)
    writers = {
        ("evaluate", "all"): write_page,
        ("reward", "all"): write_rewards,
        ("compare", "all"): write_annotation,
        ("bottleneck", "people"): write_graders,
        ("edit", "worth"): write_policies,
    }
    done = [write for shard, write in writers.items() if run.done(*shard)]
    if not done:
        raise StoreError(f"run {run.run_id} has no report: nothing was graded, rewarded, annotated or trained in it")
    return [write(run) for write in done]


def as_records(table: Table) -> list[dict[str, str]]:
    """The rows of a table as Prefect's artifacts take them."""
    return [dict(zip(table.header, map(str, row), strict=True)) for row in table.rows]


def write_rewards(run: Run) -> Path:
    """Write `<run>/reward.html` from the tables of a run that was rewarded; StoreError if it was not."""
    study = Study.model_validate(read_manifest(run)["identity"]["study"])
    assert study.reward is not None  # nothing was rewarded without
    cases = run.read(run.ref(EdgeCases, "reward"))
    shown = dependencies.needs_texts(cases)
    texts = run.read(
        run.ref(Responses, "ingest"),
        ["response_id", "text"],
        pc.field("response_id").isin(pa.array(shown, pa.string())),
    )
    questions = run.read(run.ref(Items, "ingest"), ["item_id", "question"])
    content = RewardView(
        study=study.name,
        run_id=run.run_id,
        settings=study.reward,
        rewards=run.read(run.ref(Rewards, "reward")),
        edge_cases=cases,
        diagnostics=run.read(run.ref(Diagnostics, "reward")),
        graphs=run.read(run.ref(RubricGraphs, "graph")),
        graph_nodes=run.read(run.ref(GraphNodes, "graph")),
        graph_edges=run.read(run.ref(GraphEdges, "graph")),
        retentions=run.read(run.ref(Retentions, "reward")),
        questions=dict(zip(*(column.to_pylist() for column in questions.columns), strict=True)),
        texts=dict(zip(*(column.to_pylist() for column in texts.columns), strict=True)),
    )
    path = run.folder / "reward.html"
    write_atomically(path, reward_page(content).encode())
    return path


def write_page(run: Run) -> Path:
    """Write `<run>/report.html` from the tables of a finished run; StoreError if it did not finish."""
    manifest = read_manifest(run)
    study = Study.model_validate(manifest["identity"]["study"])
    stages = ((Items, "ingest"), (Responses, "ingest"), (Gradings, "ingest"), (Gradings, "judge"))
    refs = (*(run.ref(row, stage) for row, stage in stages), run.ref(Predictions, "calibrate"))
    scores = score_frame(read_scores(run, *refs), study.evaluation.target).frame
    with catalogue(run) as tables:

        def whole(name: str) -> pa.Table:
            return tables.sql(f"SELECT * FROM {name}").to_arrow_table()

        items, bundles = whole("items"), unlocked(whole("bundles").to_pylist())
        scales = {row["item_id"]: bundles[row["rubric_id"]].scale.bounds for row in items.to_pylist()}
        shown = needs_texts(scores, scales)

        def of_shown(columns: str, name: str) -> pa.Table:
            query = f"SELECT {columns} FROM {name} WHERE list_contains($shown::VARCHAR[], response_id)"
            return tables.sql(query, params={"shown": shown}).to_arrow_table()

        texts = of_shown("response_id, text", "responses")
        content = Tables(
            scores=scores,
            items=items,
            bundles=bundles,
            metrics=whole("metrics"),
            verdicts=whole("verdicts"),
            release_rules=whole("release_rules"),
            candidates=whole("candidates"),
            calibrations=whole("calibrations"),
            checks=whole("checks"),
            judgments=of_shown("*", "judgments"),
            texts=dict(zip(texts["response_id"].to_pylist(), texts["text"].to_pylist(), strict=True)),
            counts=counts(tables, study.evaluation.target),
        )
    path = run.folder / "report.html"
    write_atomically(path, page(view(content, study.model_dump(mode="json"), manifest)).encode())
    return path
