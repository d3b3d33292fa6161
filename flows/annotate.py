"""Concept labels: two annotators propose them and the doubtful ones are queued; people vote; the rest is settled."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from prefect import flow

from flows.logs import without_tracebacks
from flows.plan import Plan, planned, record
from flows.server import own_server
from tasks.annotate.task import Compared, compare, compare_settled
from tasks.check.task import checked, data_docs
from tasks.contracts.errors import InputError
from tasks.contracts.reference import TableRef
from tasks.contracts.settings.study import Study, load_study
from tasks.ingest.task import Ingested, ingest
from tasks.judge.task import credential, judge
from tasks.lock.task import Locked, lock
from tasks.report.annotation.task import report_annotation
from tasks.review.heard import Spoken, spoken
from tasks.review.task import Settled, adjudicate, queue

without_tracebacks()
own_server()


class Proposed(NamedTuple):
    """What annotators made of a data set, and what people are asked about it."""

    data: Ingested
    locked: Locked
    annotated: dict[str, TableRef]
    """Annotator → its judgments."""
    compared: Compared
    queue: TableRef
    others: tuple[TableRef, ...]
    """Gradings and attempts of the annotators."""

    @property
    def tables(self) -> list[TableRef]:
        """All that was written."""
        return [*self.data, *self.locked, *self.annotated.values(), *self.others, *self.compared, self.queue]


@flow(name="annotate", flow_run_name="{study}")
def annotate(
    study: str, warehouse: str = "data/warehouse", limit: int | None = None, token_budget: int | None = None
) -> str:
    """Label the concepts of a study's responses by two annotators and queue what is doubtful; returns the run's id.

    InputError where the study has no section `annotation`. token_budget: see `grade`.
    """
    job = annotating(study, warehouse, limit)
    proposed = proposals(job, token_budget)
    data_docs(job.run)
    report_annotation(job.run, record(job, proposed.tables))
    return job.run.run_id


@flow(name="adjudicate", flow_run_name="{study}")
def settle(
    study: str, warehouse: str = "data/warehouse", limit: int | None = None, token_budget: int | None = None
) -> str:
    """Settle the labels of a study by what people have said until now; returns the run's id."""
    job, said = settling(study, warehouse, limit)
    proposed, settled, compared = labels(job, said, token_budget)
    data_docs(job.run)
    report_annotation(job.run, record(job, [*proposed.tables, *settled, *compared]))
    return job.run.run_id


def annotating(study_file: str | Path, warehouse: str | Path, limit: int | None = None) -> Plan:
    """The run in which a study is annotated: it depends on data, rubrics and annotators alone, so that reviewers find
    it whatever will be trained. InputError where the study has no section `annotation`."""
    path = Path(study_file)
    study = _of_concepts(load_study(path), path).model_copy(update={"bottleneck": None})
    return planned(study, path.parent, warehouse, limit)


def settling(study_file: str | Path, warehouse: str | Path, limit: int | None = None) -> tuple[Plan, Spoken]:
    """The run that rests on what people have said of a study until now, and that."""
    path = Path(study_file)
    study = _of_concepts(load_study(path), path)
    said = spoken(Path(warehouse), study.name)
    return planned(study, path.parent, warehouse, limit, {"votes": said.digest}), said


def proposals(job: Plan, token_budget: int | None = None) -> Proposed:
    """Data, bundle, two annotators' judgments, their agreement, and the queue; finished stages are passed over."""
    run, settings, base = job.run, job.study, job.base
    assert settings.annotation is not None  # or the study would have been refused
    data = checked(run, ingest(run, settings, base, job.limit))
    people = data.gradings, data.judgments
    locked = checked(run, lock(run, settings, base, data.items, data.responses, *people, credential))
    to_label = base, data.items, data.responses, locked.bundles, token_budget, people
    labelled = {
        name: checked(run, judge(run, settings.annotation.judge(name), *to_label, stage=f"annotate-{name}"))
        for name in settings.annotation.annotators
    }
    annotated = {name: one.judgments for name, one in labelled.items()}
    given = settings, data.items, data.responses, data.gradings
    compared = checked(run, compare(run, *given, locked.rubrics, annotated))
    queued = checked(run, queue(run, *given, locked.bundles, annotated))
    others = tuple(ref for one in labelled.values() for ref in (one.gradings, one.attempts))
    return Proposed(data, locked, annotated, compared, queued, others)


def labels(job: Plan, said: Spoken, token_budget: int | None = None) -> tuple[Proposed, Settled, Compared]:
    """The proposals, the labels that people settled, and the agreement after that."""
    proposed = proposals(job, token_budget)
    run, data, locked, annotated = job.run, proposed.data, proposed.locked, proposed.annotated
    given = data.items, data.responses
    settled = checked(run, adjudicate(run, job.study, said, *given, locked.bundles, annotated))
    compared = checked(
        run, compare_settled(run, job.study, *given, data.gradings, locked.rubrics, annotated, settled.labels)
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
