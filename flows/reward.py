"""The command `reward`: rewards of responses, judged or with recorded verdicts, put together with and without the
rubrics' dependencies."""

from __future__ import annotations

from rubricflow.flows.checks import check_extras
from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    Address,
    DollarLimit,
    EngineName,
    Limit,
    StudyFile,
    TokenLimit,
    WarehouseFolder,
)
from rubricflow.flows.graph import graphs_of
from rubricflow.flows.judging import bundles_for, judged_by
from rubricflow.flows.plan import Plan, check_places, plan, with_placement
from rubricflow.flows.stage import finished, read_and_lock, references, staged
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.monitor.runs import flow, introduce
from rubricflow.tasks.grading.judge.task import JudgedTables
from rubricflow.tasks.rewards.report.task import EVALUATION, report_rewards
from rubricflow.tasks.rewards.reward.task import reward as pay


@flow(name="reward")
def reward(
    study: StudyFile,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
    engine: EngineName = None,
    address: Address = None,
) -> str:
    """Reward the responses of a study file by every aggregation; returns the run's id. The same study resumes itself.

    InputError where the study has no section `reward`. token_budget, budget_usd: of the graph's annotator and the judge
    together, see `grade`, as engine and address.
    """
    check_extras("reward", study, engine)
    job = with_placement(plan(study, warehouse, limit), engine, address)
    check_places(job)
    if job.study.reward is None:
        hint = "the paper's factors: retention: {weak_prerequisite: 0.6, strong_prerequisite: 0.2, activation: 0.0}"
        raise InputError("there is no section 'reward', which names the retention factors", file=study, hint=hint)
    introduce(job.study.name, flow="reward", backend=job.study.judge.backend)
    with kept_budget(job.run.warehouse, job.run.run_id, token_budget, budget_usd):
        tables = stages(job)
    return finished(job, tables, report_rewards)


def stages(job: Plan) -> list[TableRef]:
    """What every stage wrote, checked before the next one reads it. No model is asked where the study names a rater of
    the data."""
    study = job.study
    base = job.base
    data, locked = read_and_lock(job)
    judged: JudgedTables | None = None
    others = []
    evaluated: TableRef | None = None
    with asking_together() as piece:
        with piece():
            graphed = graphs_of(job, data, locked)
        if study.evaluation.judge:
            with piece():
                own = locked._replace(bundles=bundles_for(job, study.evaluation.judge, data, locked))
                apart = judged_by(job, study.evaluation.judge, data, own, data.responses, EVALUATION, label=EVALUATION)
                evaluated = apart[0].gradings
                others += [own.bundles, apart]
        if study.reward and study.reward.rater is None:
            judged, by_jurors = judged_by(job, study.judge, data, locked, data.responses)
            others.append(by_jurors)
    paid = staged(
        job.run,
        pay,
        study=study,
        base=base,
        items=data.items,
        responses=data.responses,
        gradings=data.gradings,
        bundles=locked.bundles,
        graphs=graphed.graphs,
        judgments=judged.judgments if judged else data.judgments,
        marks=data.judgments,
        evaluated=evaluated,
    )
    return [*references((data, locked, graphed, judged, others, paid))]
