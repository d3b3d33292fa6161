"""Judging and calibrating by a cascade: each step is asked about what the steps before it are unsure of."""

from __future__ import annotations

import logging

from rubricflow.flows.judging import bundles_for, judged_by
from rubricflow.flows.plan import Plan, prices_of
from rubricflow.flows.stage import references, staged
from rubricflow.tasks.core.contracts.backends import BACKENDS, is_free
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.llm.budget import unpriced
from rubricflow.tasks.core.llm.mailbox import asking_together, open_outbox
from rubricflow.tasks.core.llm.opening import model_of
from rubricflow.tasks.core.monitor.runs import log
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
from rubricflow.tasks.grading.lock.task import Locked


def cascaded(job: Plan, data: Ingested, locked: Locked) -> tuple[CascadeTables, list[TableRef]]:
    """What the steps of the study's cascade make of its answers, as one rater's tables, and all that was written for
    them. The first step judges all answers and every step the labelled ones, which is asked together; by these the
    limits are chosen, and then each step judges what reaches it."""
    run, study = job.run, job.study
    plans = study.judge.steps
    if study.judge.cost_limit is not None and open_outbox() is None:  # of a batch the answers say whose prices hold
        check_prices(job)
    made, steps = list[TableRef](), list[StepTables]()
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
        plan, name = plans[number - 1], f"{number}-rest" if before else f"{number}"
        bundles = bundles_for(job, plan, data, locked)
        own, rules_of = locked._replace(bundles=bundles), f"judge-{number}" if before else None
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
    for name, judge in job.study.judge.jurors.items():
        has_price = BACKENDS[judge.backend].needs == "engine" and model_of(judge, job.base) in prices
        if not (is_free(judge) or has_price):
            said = judge.engine.model if judge.engine else judge.backend
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
