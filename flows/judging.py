"""Judging as the settings of a judge say it: by one alone, or by every juror of a jury, and then by all together."""

from __future__ import annotations

from rubricflow.flows.checks import grader_of
from rubricflow.flows.plan import Plan
from rubricflow.flows.stage import staged
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.grading.ingest.task import Ingested
from rubricflow.tasks.grading.judge.task import JudgedTables, judge
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
        return _alone(job, plan, data, locked.bundles, responses, stage, label), []
    jurors: dict[str, Juror] = {}
    down: dict[str, BackendError] = {}
    with asking_together() as piece:
        for name, juror in plan.jury.items():
            bundles = bundles_for(job, juror, data, locked)
            with piece():
                try:
                    own = _alone(job, juror, data, bundles, responses, f"{stage}-{name}", f"{label}{name}")
                    jurors[name] = Juror(bundles, own.judgments, own.gradings, own.attempts)
                except BackendError as error:
                    down[name] = error
    if down:
        said = "; ".join(f"juror {name}: {error}" for name, error in down.items())
        kept = f"What {', '.join(jurors)} said is kept" if jurors else "No juror could be asked"
        raise BackendError(f"{said}. {kept}: the same command asks the rest; a study without that juror needs none")
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
) -> JudgedTables:
    return staged(
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
        stage=stage,
        placement=job.study.run,
        label=label,
    )
