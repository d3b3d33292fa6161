"""Judging as the settings of a judge say it: by one alone; by every juror of a jury, and then by all together; by a
cascade, each step of which is asked about what the steps before it are unsure of, and calibrated."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import chain

from rubricflow.flows.checks import grader_of
from rubricflow.flows.plan import Plan, prices_of
from rubricflow.flows.stage import references, staged
from rubricflow.tasks.core.contracts.backends import BACKENDS, is_free
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.llm.budget import unpriced
from rubricflow.tasks.core.llm.mailbox import asking_together, open_outbox
from rubricflow.tasks.core.llm.opening import model_of
from rubricflow.tasks.core.monitor.runs import log
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.grading.calibrate.task import calibrate_step
from rubricflow.tasks.grading.cascade.task import (
    DOLLARS,
    CascadeTables,
    StepTables,
    choose_limits,
    going_on,
    labelled,
    one_rater,
    read_limits,
)
from rubricflow.tasks.grading.ingest.task import Ingested
from rubricflow.tasks.grading.judge.task import JudgedTables, StatedTables, judge, look_again
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
    stated = {}
    down = {}
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
    supports = [tables.supports for tables in looked_at.values() if tables.supports]
    return JudgedTables(*together[:3]), [*filter(None, together[3:]), *supports, *chain.from_iterable(jurors.values())]


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
) -> StatedTables:
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
    return StatedTables(plan, bundles, tables, stage)


def _looked_at(
    job: Plan, data: Ingested, responses: TableRef, stated: Mapping[str, StatedTables]
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


def cascaded(job: Plan, data: Ingested, locked: Locked) -> tuple[CascadeTables, list[TableRef]]:
    """What the steps of the study's cascade make of its answers, as one rater's tables, and all that was written for
    them. The first step judges all answers and every step the labelled ones, which is asked together; by these the
    limits are chosen, and then each step judges what reaches it."""
    run, study = job.run, job.study
    plans = study.judge.steps
    if study.judge.cost_limit is not None and open_outbox() is None:  # of a batch the answers say whose prices hold
        check_prices(job)
    made = list[TableRef]()
    steps = []
    marked = staged(
        run,
        labelled,
        responses=data.responses,
        people=data.gradings,
        target=study.evaluation.target,
        stage="cascade-labels",
    )

    def step_of(number: int, responses: TableRef, before: StepTables | None = None) -> StepTables:
        """What a step makes of some answers; before: what it made of the labelled ones."""
        plan = plans[number - 1]
        name = f"{number}-rest" if before else f"{number}"
        bundles = bundles_for(job, plan, data, locked)
        own = locked._replace(bundles=bundles)
        rules_of = f"judge-{number}" if before else None
        judged, others = judged_by(job, plan, data, own, responses, f"judge-{name}", rules_of, f"step{number}")
        scored = staged(
            run,
            calibrate_step,
            study=study,
            items=data.items,
            responses=data.responses,
            people=data.gradings,
            gradings=judged.gradings,
            bundles=bundles,
            stage=f"calibrate-{name}",
            fitted=f"calibrate-{number}",
            placement=study.run,
        )
        made.extend(references((bundles, others, judged, scored)))
        calls = {ref.path: ref for ref in references((judged, others)) if ref.table == Attempts.table}
        tables = StepTables(
            (judged.judgments,), (judged.gradings,), (*calls.values(),), (scored.predictions,), *scored[1:]
        )
        return tables.after(before) if before else tables

    with asking_together() as piece:
        for number in range(1, len(plans) + 1 if marked.rows else 2):
            with piece():
                steps.append(step_of(number, marked if number > 1 else data.responses))
    prices = prices_of(job)
    limits = staged(
        run, choose_limits, study=study, steps=steps, items=data.items, prices=prices, stage="cascade-limits"
    )
    _tell(read_limits(run, limits))
    for number in range(2, len(steps) + 1):
        goes = staged(
            run,
            going_on,
            steps=steps[: number - 1],
            limits=limits,
            responses=data.responses,
            marked=marked,
            stage=f"cascade-{number}",
        )
        made.append(goes)
        if goes.rows:
            steps[number - 1] = step_of(number, goes, steps[number - 1])
    tables = staged(
        run,
        one_rater,
        study=study,
        steps=steps,
        limits=limits,
        items=data.items,
        responses=data.responses,
        bundles=locked.bundles,
        stages=("judge", "calibrate"),
    )
    return tables, [marked, *made, limits]


def check_prices(job: Plan) -> None:
    """InputError where the cost of a cascade is limited, and nobody says what one of its judges costs."""
    prices = prices_of(job)
    for name, step in job.study.judge.jurors.items():
        has_price = BACKENDS[step.backend].needs == "engine" and model_of(step, job.base) in prices
        if not (is_free(step) or has_price):
            said = step.engine.model if step.engine else step.backend
            raise unpriced(f"{name} ({said})", **DOLLARS)


def _tell(limits: dict[str, list[float | None]]) -> None:
    """Says of which scopes nothing can be promised: people look at all of that, and no later step is asked."""
    without = sorted(scope for scope, own in limits.items() if not any(limit is not None for limit in own))
    if without:
        which = "any answer" if without == ["all"] else f"answers to {say.plural(len(without), 'question')}"
        log(
            f"warning: cascade: nothing can be promised of {which} ({', '.join(without[:5])}): they keep the first "
            "step's score and go to people; no further step is asked about them beyond the marked answers",
            logging.WARNING,
        )
