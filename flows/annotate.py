"""Concept labels: two annotators propose them and the doubtful ones are queued; people vote; the rest is settled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rubricflow.flows.logs import without_tracebacks
from rubricflow.flows.placed import placed
from rubricflow.flows.plan import Plan, planned, record
from rubricflow.flows.stage import staged
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.monitor.credentials import credential
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce
from rubricflow.tasks.grading.ingest.task import Ingested, ingest
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.grading.lock.task import Locked, lock
from rubricflow.tasks.people.annotate.task import ComparedTables, compare, compare_settled
from rubricflow.tasks.people.report.task import report_annotation
from rubricflow.tasks.people.review.ledger import ActSnapshot, act_snapshot
from rubricflow.tasks.people.review.task import SettledTables, adjudicate, queue

without_tracebacks()


class ProposedAnnotations(NamedTuple):
    """What annotators made of a data set, and what people are asked about it."""

    data: Ingested
    locked: Locked
    annotated: dict[str, TableRef]
    """Annotator → its judgments."""
    compared: ComparedTables
    queue: TableRef
    others: tuple[TableRef, ...]
    """Gradings and attempts of the annotators."""

    @property
    def tables(self) -> list[TableRef]:
        """All that was written."""
        return [*self.data, *self.locked, *self.annotated.values(), *self.others, *self.compared, self.queue]


@flow(name="annotate")
def annotate(
    study: str,
    warehouse: str = "data/warehouse",
    limit: int | None = None,
    token_budget: int | None = None,
    engine: str | None = None,
    address: str | None = None,
) -> str:
    """Label the concepts of a study's responses by two annotators and queue what is doubtful; returns the run's id.

    InputError where the study has no section `annotation`. token_budget, engine, address: see `grade`.
    """
    job = placed(annotating(study, warehouse, limit), engine, address)
    introduce(job.study.name, flow="annotate")
    proposed = proposals(job, token_budget)
    data_docs(job.run)
    return completed(job.run.run_id, report_annotation(job.run, record(job, proposed.tables)))


@flow(name="adjudicate")
def settle(
    study: str,
    warehouse: str = "data/warehouse",
    limit: int | None = None,
    token_budget: int | None = None,
    engine: str | None = None,
    address: str | None = None,
) -> str:
    """Settle the labels of a study by what people have said until now; returns the run's id."""
    job, votes = settling(study, warehouse, limit)
    job = placed(job, engine, address)
    introduce(job.study.name, flow="adjudicate")
    proposed, settled, compared = labels(job, votes, token_budget)
    data_docs(job.run)
    return completed(job.run.run_id, report_annotation(job.run, record(job, [*proposed.tables, *settled, *compared])))


def annotating(study_file: str | Path, warehouse: str | Path, limit: int | None = None) -> Plan:
    """The run in which a study is annotated: it depends on data, rubrics and annotators alone, so that reviewers find
    it whatever will be trained. InputError where the study has no section `annotation`."""
    path = Path(study_file)
    study = _of_concepts(load_study(path), path).model_copy(update={"bottleneck": None})
    return planned(study, path.parent, warehouse, limit)


def settling(study_file: str | Path, warehouse: str | Path, limit: int | None = None) -> tuple[Plan, ActSnapshot]:
    """The run that rests on what people have said of a study until now, and that."""
    path = Path(study_file)
    study = _of_concepts(load_study(path), path)
    votes = act_snapshot(Path(warehouse), study.name)
    return planned(study, path.parent, warehouse, limit, {"votes": votes.digest}), votes


def proposals(job: Plan, token_budget: int | None = None) -> ProposedAnnotations:
    """Data, bundle, two annotators' judgments, their agreement, and the queue; finished stages are passed over."""
    run, settings, base = job.run, job.study, job.base
    assert settings.annotation is not None  # or the study would have been refused
    data = staged(run, ingest, settings, base, job.limit)
    people = data.gradings, data.judgments
    locked = staged(run, lock, settings, base, data.items, data.responses, *people, credential)
    to_label = base, data.items, data.responses, locked.bundles, token_budget, people
    labelled = {
        name: staged(
            run, judge, settings.annotation.judge(name), *to_label, stage=f"annotate-{name}", placement=settings.run
        )
        for name in settings.annotation.annotators
    }
    annotated = {name: labels_of_annotator.judgments for name, labels_of_annotator in labelled.items()}
    data_refs = settings, data.items, data.responses, data.gradings
    compared = staged(run, compare, *data_refs, locked.rubrics, annotated)
    queued = staged(run, queue, *data_refs, locked.bundles, annotated)
    others = tuple(
        ref
        for labels_of_annotator in labelled.values()
        for ref in (labels_of_annotator.gradings, labels_of_annotator.attempts)
    )
    return ProposedAnnotations(data, locked, annotated, compared, queued, others)


def labels(
    job: Plan, votes: ActSnapshot, token_budget: int | None = None
) -> tuple[ProposedAnnotations, SettledTables, ComparedTables]:
    """The proposals, the labels that people settled, and the agreement after that."""
    proposed = proposals(job, token_budget)
    run, data, locked, annotated = job.run, proposed.data, proposed.locked, proposed.annotated
    answers = data.items, data.responses
    settled = staged(run, adjudicate, job.study, votes, *answers, locked.bundles, annotated)
    compared = staged(
        run, compare_settled, job.study, *answers, data.gradings, locked.rubrics, annotated, settled.labels
    )
    return proposed, settled, compared


def _of_concepts(study: Study, path: Path) -> Study:
    """The study as annotators are asked: under the protocol that labels concepts."""
    if study.annotation is None:
        hint = "annotation: {annotators: {first: {backend: …}, second: {backend: …}}}"
        raise InputError("there is no section 'annotation', which names two annotators", file=path, hint=hint)
    return study.model_copy(update={"judge": study.annotation.asked, "reward": None})


if __name__ == "__main__":
    annotate("data/demo/concepts.yaml")
