"""All the tables that an experiment asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tasks.contracts.settings.experiment import Experiment
from tasks.display.table import Table, labelled
from tasks.evaluate.experiment import decisions, gradeagentops, orders, rulers
from tasks.evaluate.experiment.arm import BootstrapPlan, ExperimentArm


def tables(arms: Mapping[str, ExperimentArm], experiment: Experiment, reference: str) -> list[Table]:
    """The tables in the order of the papers; they say so where any rater is simulated.

    arms: those of the file and those that tables add; reference: the human score compared with, as a rater id.
    """
    made = list(_made(arms, experiment, reference))
    return [labelled(table) for table in made] if any(arm.simulated for arm in arms.values()) else made


def _made(arms: Mapping[str, ExperimentArm], experiment: Experiment, reference: str) -> Iterator[Table]:
    wanted, plan = experiment.tables, BootstrapPlan(experiment.draws, experiment.seed)
    if wanted.gradeagentops:
        yield from gradeagentops.tables(arms, wanted.gradeagentops, reference, plan)
    if wanted.orders:
        yield from orders.tables(arms, wanted.orders, plan)
    if wanted.rulers:
        yield from rulers.tables(arms, wanted.rulers, plan)
    if wanted.calibration_size:
        yield rulers.calibration_size(arms, wanted.calibration_size, plan)
    if wanted.perturbation:
        yield rulers.perturbation(arms, wanted.perturbation, plan)
    if wanted.ablation:
        yield rulers.ablation(arms, wanted.ablation, plan)
    if wanted.stability:
        yield rulers.stability(arms, wanted.stability, plan)
    if wanted.decisions:
        yield decisions.table([arms[name] for name in wanted.decisions.arms])
