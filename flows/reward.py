"""Rewards of responses: judged, or with recorded verdicts; put together with and without the rubrics' dependencies."""

from __future__ import annotations

from rubricflow.flows.graph import budget_of
from rubricflow.flows.graph import stages as built
from rubricflow.flows.logs import without_tracebacks
from rubricflow.flows.placed import placed
from rubricflow.flows.plan import Plan, plan, record
from rubricflow.flows.stage import staged
from rubricflow.flows.trained import grader_of
from rubricflow.tasks.core.check.task import data_docs
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.monitor.runs import completed, flow, introduce
from rubricflow.tasks.grading.judge.task import judge
from rubricflow.tasks.rewards.report.reward.task import report_rewards
from rubricflow.tasks.rewards.reward.task import reward as pay

without_tracebacks()


@flow(name="reward")
def reward(
    study: str,
    warehouse: str = "data/warehouse",
    limit: int | None = None,
    token_budget: int | None = None,
    engine: str | None = None,
    address: str | None = None,
) -> str:
    """Reward the responses of a study file by every aggregation; returns the run's id. The same study resumes itself.

    InputError where the study has no section `reward`. token_budget: of the graph's annotator and the judge together.
    engine, address: see `grade`.
    """
    job = placed(plan(study, warehouse, limit), engine, address)
    if job.study.reward is None:
        hint = "the paper's factors: retention: {weak_prerequisite: 0.6, strong_prerequisite: 0.2, activation: 0.0}"
        raise InputError("there is no section 'reward', which names the retention factors", file=study, hint=hint)
    introduce(job.study.name, flow="reward", backend=job.study.judge.backend)
    tables = stages(job, token_budget)
    data_docs(job.run)
    return completed(job.run.run_id, report_rewards(job.run, record(job, tables)))


def stages(job: Plan, token_budget: int | None = None) -> list[TableRef]:
    """What every stage wrote, checked before the next one reads it. Nobody is asked where the study names a rater of
    the data."""
    run, settings, base = job.run, job.study, job.base
    budget = budget_of(token_budget)
    data, locked, graphed = built(job, budget)
    judged: tuple[TableRef, ...] = ()
    if settings.reward and settings.reward.rater is None:
        people = data.gradings, data.judgments
        to_judge = settings.judge, base, data.items, data.responses, locked.bundles
        tokens_left = None if budget is None else budget.tokens - budget.spent
        grader, target = grader_of(settings.judge, base), settings.evaluation.target
        judged = staged(run, judge, *to_judge, tokens_left, people, grader, target, placement=settings.run)
    decided = judged[0] if judged else data.judgments
    inputs = data.items, data.responses, data.gradings, locked.bundles, graphed.graphs
    paid = staged(run, pay, settings, base, *inputs, decided)
    return [*data, *locked, *graphed, *judged, *paid]


if __name__ == "__main__":
    reward("data/demo/reward.yaml")
