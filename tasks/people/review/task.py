"""The door of review: annotators' judgments and people's acts in; the queue, votes and final labels out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.people import Labels, Queue, Votes
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.ledger import Spoken, acts_of
from rubricflow.tasks.people.review.queue import label_queue
from rubricflow.tasks.people.review.settle import settle, vote_rows
from rubricflow.tasks.people.review.subject import standing
from rubricflow.tasks.people.review.tables import all_cells, annotator_labels, current_digests, human_shares, rubrics


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
        cells = all_cells(locked, rubric_of)
        first, second = (annotator_labels(run, cells, name, ref) for name, ref in annotated.items())
        shares = human_shares(run, study, people, locked, rubric_of)
        return {Queue: label_queue(cells, (first, second), shares, study.annotation.doubt)}

    run.once("queue", make)
    return run.ref(Queue, "queue")


@task(task_run_name=named("adjudicate"))
def adjudicate(
    run: Run,
    study: Study,
    until: Spoken,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    annotated: Mapping[str, TableRef],
) -> SettledTables:
    """Settle the label of every concept by annotators, votes and adjudications up to a moment.

    Says how many votes do not count any more, because what they were about has changed.
    """

    def make() -> dict[Any, Any]:
        locked, rubric_of = rubrics(run, items, responses, bundles)
        cells = all_cells(locked, rubric_of)
        current = current_digests(run, responses, locked, rubric_of)
        acts = [act for act in acts_of(run.warehouse.root, study.name) if act.number <= until.until]
        counted = standing((act for act in acts if act.subject_kind == "label"), current)
        if counted.stale:
            print(f"adjudicate: {len(counted.stale)} votes do not count: what they were about has changed")
        annotators = [annotator_labels(run, cells, name, ref) for name, ref in annotated.items()]
        return {Labels: settle(cells, annotators, counted), Votes: vote_rows(counted)}

    run.once("adjudicate", make)
    return SettledTables(run.ref(Labels, "adjudicate"), run.ref(Votes, "adjudicate"))
