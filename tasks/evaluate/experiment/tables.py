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
    plain = list(_tables(arms, experiment, reference))
    if any(arm.simulated for arm in arms.values()):
        return [labelled(table) for table in plain]
    return plain


def _tables(arms: Mapping[str, ExperimentArm], experiment: Experiment, reference: str) -> Iterator[Table]:
    setting = experiment.tables
    plan = BootstrapPlan(experiment.draws, experiment.seed)
    if setting.gradeagentops:
        yield from gradeagentops.tables(arms, setting.gradeagentops, reference, plan)
    if setting.orders:
        yield from orders.tables(arms, setting.orders, plan)
    if setting.rulers:
        yield from rulers.tables(arms, setting.rulers, plan)
    if setting.calibration_size:
        yield rulers.calibration_size(arms, setting.calibration_size, plan)
    if setting.perturbation:
        yield rulers.perturbation(arms, setting.perturbation, plan)
    if setting.ablation:
        yield rulers.ablation(arms, setting.ablation, plan)
    if setting.stability:
        yield rulers.stability(arms, setting.stability, plan)
    if setting.decisions:
        yield decisions.table([arms[name] for name in setting.decisions.arms])
