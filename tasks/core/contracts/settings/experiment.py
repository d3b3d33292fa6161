"""The experiment file: one study, configurations of it, and the tables to make of them.

Paths are relative to the experiment file. An unknown key is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import Frozen, Positive
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml

Overrides = dict[str, Any]
"""Keys of a study and what they are instead: mappings are merged key by key, anything else takes the place of what was
there."""
Variant = Literal["standard", "criteria_reversed", "levels_reversed", "paraphrased"]
NAMING_ARMS = ("baseline", "full", "pairs", "memory", "arms", "methods", "others", "arm")
"""Fields of tables that name arms."""
LONGEST = 64
"""Characters of a study's name."""


class ArmPair(NamedTuple):
    """Two arms: what `better` gains over `base`."""

    better: str
    base: str


class GradeAgentOps(Frozen):
    """Tables 4 to 11 of GradeAgentOps: raw scores of all responses, none calibrated."""

    second: str | None = None
    """The rater next to the reference (E1), for the agreement of people."""
    baseline: str
    """The arm that the full one is set against (B0)."""
    full: str
    """The full configuration."""
    pairs: tuple[ArmPair, ...]
    """Comparisons of Table 6: [better, base]."""
    memory: tuple[ArmPair, ...] = ()
    """Comparisons of Table 9: [with memory, without]."""
    cases: Positive = 2
    """Responses shown for each pattern of Table 11."""


class Orders(Frozen):
    """The order effect of consistency memory: arms run again with their responses in shuffled orders."""

    arms: tuple[str, ...] = Field(min_length=1)
    """Arms with consistency memory."""
    seeds: tuple[int, ...] = Field(min_length=2)
    """Seeds of the orders."""


class Rulers(Frozen):
    """Table 2, Table 8 and Figure 2 of Rulers: calibrated scores of the held-out responses, methods by backbones."""

    methods: tuple[str, ...] = Field(min_length=1)
    """Arms, each a method; the last one is what the experiment is about, the others are baselines."""
    backbones: dict[str, Overrides] = {}
    """Judges that every method is run with: label → overrides. Without any, the arms are taken as they are."""


class CalibrationSize(Frozen):
    """Tables 3 and 11 of Rulers: phase III fitted to the first N labelled responses of the calibration split; the
    held-out responses stay the same."""

    arms: tuple[str, ...] = Field(min_length=1)
    """Arms whose scores are calibrated anew; nothing is asked again."""
    sizes: tuple[Positive, ...] = (50, 100, 150, 200)
    """Numbers of labelled responses."""


class Perturbation(Frozen):
    """Figure 3 of Rulers: the same rubric presented in other ways."""

    arms: tuple[str, ...] = Field(min_length=1)
    """Arms that are run with each presentation."""
    variants: tuple[Variant, ...] = ("criteria_reversed", "levels_reversed", "paraphrased")
    """Presentations, with the standard one."""


class Ablation(Frozen):
    """Table 4 of Rulers: one arm and others that lack or change one part."""

    full: str
    """The arm that lacks nothing."""
    others: dict[str, str] = Field(min_length=1)
    """What is changed → the arm that has it so."""


class Stability(Frozen):
    """Table 9 of Rulers: one arm with bundles induced anew."""

    arm: str
    """An arm with `rubrics.induce`."""
    seeds: tuple[int, ...] = Field(default=(1, 2, 3, 4, 5), min_length=2)
    """Seeds of the inductions."""


class Decisions(Frozen):
    """How good the probabilities of single decisions are, from the runs' own metrics (none of the papers' tables)."""

    arms: tuple[str, ...] = Field(min_length=1)
    """Arms whose judge gives probabilities, over data with people's marks."""


class ExperimentTables(Frozen):
    """The tables to make; those not named are left out."""

    gradeagentops: GradeAgentOps | None = None
    orders: Orders | None = None
    rulers: Rulers | None = None
    calibration_size: CalibrationSize | None = None
    perturbation: Perturbation | None = None
    ablation: Ablation | None = None
    stability: Stability | None = None
    decisions: Decisions | None = None

    def names(self) -> Iterator[tuple[str, str]]:
        """(key of the file, arm that it names), of every place where an arm is named."""
        for key, table in self:
            for field in NAMING_ARMS:
                named = getattr(table, field, ())
                if isinstance(named, str):
                    yield f"{key}.{field}", named
                    continue
                for entry in named.values() if isinstance(named, dict) else named:
                    for name in entry if isinstance(entry, ArmPair) else [entry]:
                        yield f"{key}.{field}", name


class Experiment(Frozen):
    """An experiment file."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")
    """Short name; the runs' ids begin with it."""
    study: str
    """The study file that all arms share."""
    overrides: Overrides = {}
    """What is different from it in all arms."""
    arms: dict[str, Overrides] = Field(min_length=1)
    """Arm → what is different in it."""
    reference: str | None = None
    """The human score that all arms are compared with, in place of the study's `evaluation.target`."""
    tables: ExperimentTables
    """The tables to make."""
    draws: Positive = 10_000
    """Bootstrap draws of the tables."""
    seed: int = 0
    """Seed of the bootstrap."""


class Planned(NamedTuple):
    """An experiment with the studies of its arms, those that its tables add included; base: the folder that the
    studies' paths are relative to."""

    experiment: Experiment
    studies: dict[str, Study]
    base: Path


def load_experiment(path: Path) -> Planned:
    """Read an experiment file and make its studies; InputError names the arm and the key that is wrong."""
    experiment = parse(Experiment, read_yaml(path), path)
    for key, name in experiment.tables.names():
        if name not in experiment.arms:
            names = ", ".join(experiment.arms)
            raise InputError(f"there is no arm '{name}'; there are {names}", file=path, field=f"tables.{key}")
    shared = path.parent / experiment.study
    content = read_yaml(shared)
    if not isinstance(content, dict):
        raise InputError("is no study", file=shared)
    base = merged(content, experiment.overrides)
    if experiment.reference is not None:
        base = merged(base, {"evaluation": {"target": experiment.reference}})
    studies = {}
    for arm, overrides in _arms(experiment):
        study_content = merged(base, overrides) | {"name": run_name(experiment.name, arm)}
        try:
            studies[arm] = parse(Study, study_content, path)
        except InputError as error:
            raise InputError(error.rule, file=path, field=f"arms.{arm}: {error.field}", hint=error.hint) from error
    _can_be_varied(experiment.tables, studies, path)
    arm_of: dict[str, str] = {}
    for arm, study in studies.items():
        if (other := arm_of.setdefault(study.name, arm)) != arm:
            raise InputError(f"arms '{other}' and '{arm}' would both be called '{study.name}'", file=path, field="arms")
    return Planned(experiment, studies, shared.parent)


def _can_be_varied(tables: ExperimentTables, studies: Mapping[str, Study], path: Path) -> None:
    """InputError where a table varies what an arm does not have: the two arms would differ in more."""
    for arm in tables.orders.arms if tables.orders else ():
        if studies[arm].judge.consistency_memory is None:
            rule = f"arm '{arm}' has no consistency memory, so no order can matter"
            raise InputError(rule, file=path, field="tables.orders.arms")
    if tables.stability and studies[tables.stability.arm].rubrics.induce is None:
        rule = f"arm '{tables.stability.arm}' induces no rubric"
        raise InputError(rule, file=path, field="tables.stability.arm")


def merged(content: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The content with the overrides in it: mappings key by key, anything else in place of what was there."""
    result = dict(content)
    for key, value in overrides.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def run_name(experiment: str, arm: str) -> str:
    """The name of an arm's study, as runs may be called."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", f"{experiment}-{arm}")[:LONGEST]


def ordered(arm: str, seed: int) -> str:
    """The arm with its responses in another order."""
    return f"{arm}, order {seed}"


def backed(arm: str, backbone: str) -> str:
    """The arm with another judge."""
    return f"{arm} on {backbone}"


def presented(arm: str, variant: str) -> str:
    """The arm with its rubrics presented in another way."""
    return arm if variant == "standard" else f"{arm}, {variant}"


def induced(arm: str, seed: int) -> str:
    """The arm with bundles of another induction."""
    return f"{arm}, induction {seed}"


def _arms(experiment: Experiment) -> Iterator[tuple[str, Overrides]]:
    """Every arm with its overrides: those of the file, then those that tables add."""
    arms, tables = experiment.arms, experiment.tables
    yield from arms.items()
    if tables.orders:
        for arm in tables.orders.arms:
            for seed in tables.orders.seeds:
                memory = {"judge": {"consistency_memory": {"order_seed": seed}}}
                yield ordered(arm, seed), merged(arms[arm], memory)
    if tables.rulers:
        for label, overrides in tables.rulers.backbones.items():
            for arm in tables.rulers.methods:
                yield backed(arm, label), merged(arms[arm], overrides)
    if tables.perturbation:
        for arm in tables.perturbation.arms:
            for variant in tables.perturbation.variants:
                if variant != "standard":
                    yield presented(arm, variant), merged(arms[arm], {"rubrics": {"variant": variant}})
    if tables.stability:
        arm = tables.stability.arm
        for seed in tables.stability.seeds:
            yield induced(arm, seed), merged(arms[arm], {"rubrics": {"induce": {"seed": seed}}})
