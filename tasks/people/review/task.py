"""The stage entry points of review: annotators' judgments and people's acts in; queue, votes and final labels out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.people import Labels, Queue, Votes
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.board import digests_of, rubrics
from rubricflow.tasks.people.review.ledger import ActSnapshot, acts_of
from rubricflow.tasks.people.review.queue import cell_labels, cells_of, label_queue
from rubricflow.tasks.people.review.settle import settle, valid_acts, vote_rows


class SettledTables(NamedTuple):
    """What adjudicate writes."""

    labels: TableRef
    votes: TableRef


@task(task_run_name=named("queue"))
def queue(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    bundles: TableRef,
    annotated: Mapping[str, TableRef],
) -> TableRef:
    """Queue the responses whose labels are in doubt, the most telling first. annotated: annotator → its judgments."""

    def make() -> dict[Any, Any]:
        assert study.annotation is not None  # or the flow would have refused the study
        locked, rubric_of = rubrics(run, items, responses, bundles)
        cells, labels = _labelled(run, locked, rubric_of, annotated)
        target = target_scores(run.read(people), study.evaluation.target)
        shares = {}
        for row in target.filter(pc.is_valid(target["score"])).select(["response_id", "score"]).to_pylist():
            scale = locked[rubric_of[row["response_id"]]].scale
            shares[row["response_id"]] = (row["score"] - scale.min) / (scale.max - scale.min)
        return {Queue: label_queue(cells, [*labels.values()], shares, study.annotation.doubt)}

    run.once("queue", make)
    return run.ref(Queue, "queue")


@task(task_run_name=named("adjudicate"))
def adjudicate(
    run: Run,
    study: Study,
    until: ActSnapshot,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    annotated: Mapping[str, TableRef],
) -> SettledTables:
    """Settle the label of every concept by annotators, votes and adjudications up to a moment.

    Prints how many votes do not count any more, because what they were about has changed.
    """

    def make() -> dict[Any, Any]:
        locked, rubric_of = rubrics(run, items, responses, bundles)
        cells, annotators = _labelled(run, locked, rubric_of, annotated)
        answers = run.read(responses, ["response_id", "text"]).to_pylist()
        acts = acts_of(run.warehouse.root, study.name)
        counted = [act for act in acts if act.number <= until.until and act.subject_kind == "label"]
        valid = valid_acts(counted, digests_of(answers, locked, rubric_of))
        if valid.stale:
            print(f"adjudicate: {len(valid.stale)} votes do not count: what they were about has changed")
        return {Labels: settle(cells, annotators, valid), Votes: vote_rows(valid)}

    run.once("adjudicate", make)
    return SettledTables(run.ref(Labels, "adjudicate"), run.ref(Votes, "adjudicate"))


def _labelled(
    run: Run, locked: Mapping[str, Bundle], rubric_of: Mapping[str, str], annotated: Mapping[str, TableRef]
) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Every response by every criterion of its rubric, and what each annotator gives, under the name that the study
    has for it; as in `queue`."""
    cells = cells_of(rubric_of, {name: bundle.criteria for name, bundle in locked.items()})
    return cells, {name: cell_labels(cells, run.read(judgments), name) for name, judgments in annotated.items()}
