"""Judging as the settings of a judge say it: by one alone, or by every juror of a jury, and then by all together."""

from __future__ import annotations

from collections.abc import Mapping

from rubricflow.flows.checks import grader_of
from rubricflow.flows.plan import Plan
from rubricflow.flows.stage import staged
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.grading.ingest.task import Ingested
from rubricflow.tasks.grading.judge.task import JudgedTables, Stated, judge, look_again
from rubricflow.tasks.grading.jury.task import Juror, combine
from rubricflow.tasks.grading.lock.task import Locked, lock_for_juror


def judged_by(
    job: Plan,
    plan: Judge,
    data: Ingested,
    locked: Locked,
    responses: TableRef,
    stage: str = "judge",
    rules_of: str | None = None,
    label: str = "",
) -> tuple[JudgedTables, list[TableRef]]:
    """What a judge, alone or as a jury, makes of responses, as one rater's tables under the name `stage`; and all else
    that was written for it. Finished stages are passed over; what all jurors can be asked is asked together.

    responses: those judged; the bundles of a jury are those of the run, its jurors are asked under their own; rules_of:
    see `combine`; label: what the ids of its raters end with, those of jurors with their names, so that two of one
    model are two. BackendError where a juror cannot be asked at all, after the others were: what they said is kept.
    """
    if not plan.jury:
        own = {"": _alone(job, plan, data, locked.bundles, responses, stage, label)}
        return _looked_at(job, data, responses, own)[""], []
    stated: dict[str, Stated] = {}
    down: dict[str, BackendError] = {}
    with asking_together() as piece:
        for name, juror in plan.jury.items():
            bundles = bundles_for(job, juror, data, locked)
            with piece():
                try:
                    stated[name] = _alone(job, juror, data, bundles, responses, f"{stage}-{name}", f"{label}{name}")
                except BackendError as error:
                    down[name] = error
    if down:
        why = "; ".join(f"juror {name}: {error}" for name, error in down.items())
        kept = f"What {', '.join(stated)} said is kept" if stated else "No juror could be asked"
        raise BackendError(f"{why}. {kept}: the same command asks the rest; a study without that juror needs none")
    looked_at = _looked_at(job, data, responses, stated)
    jurors = {name: Juror(stated[name].bundles, *tables[:3]) for name, tables in looked_at.items()}
    together = staged(
        job.run,
        combine,
        plan=plan,
        responses=responses,
        bundles=locked.bundles,
        items=data.items,
        people=data.gradings,
        jurors=jurors,
        target=job.study.evaluation.target,
        stage=stage,
        rules_of=rules_of,
    )
    return JudgedTables(*together[:3]), [
        *filter(None, together[3:]),
        *(tables.supports for tables in looked_at.values() if tables.supports),
        *(table for juror in jurors.values() for table in juror),
    ]


def bundles_for(job: Plan, judge: Judge, data: Ingested, locked: Locked) -> TableRef:
    """The run's rubrics as one of several judges is asked, checked; those who are asked alike share them."""
    kind = f"{judge.as_protocol().model_dump_json()} {judge.lead.echo} {judge.lead.evidence}"
    return staged(
        job.run,
        lock_for_juror,
        study=job.study,
        judge=judge,
        items=data.items,
        rubrics=locked.rubrics,
        stage=f"lock-{text_digest(kind)[:8]}",
    )


def _alone(
    job: Plan, plan: Judge, data: Ingested, bundles: TableRef, responses: TableRef, stage: str, label: str
) -> Stated:
    """What a judge states; of one whose credits were looked at again, what came of that."""
    before = f"{stage}-stated"
    if not plan.support or (job.run.shards(stage) and not job.run.shards(before)):
        before = stage
    tables = staged(
        job.run,
        judge,
        plan=plan,
        base=job.base,
        items=data.items,
        responses=responses,
        bundles=bundles,
        people=(data.gradings, data.judgments),
        grader=grader_of(plan, job.base),
        target=job.study.evaluation.target,
        stage=before,
        placement=job.study.run,
        label=label,
    )
    return Stated(plan, bundles, tables, stage)


def _looked_at(
    job: Plan, data: Ingested, responses: TableRef, stated: Mapping[str, Stated]
) -> Mapping[str, JudgedTables]:
    """The tables of jurors after the second look that their settings ask for."""
    if not any(own.plan.support for own in stated.values()):
        return {name: own.tables for name, own in stated.items()}
    refs = staged(
        job.run,
        look_again,
        base=job.base,
        items=data.items,
        responses=responses,
        people=data.judgments,
        stated=stated,
    )
    return {
        name: JudgedTables(**{ref.table: ref for ref in refs if ref.stage == own.stage}) for name, own in stated.items()
    }
