"""Whether subgroups are treated alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.sections import FoldedList, NamedEstimate, listed

SHOWN, DECIDED, BAND = 30, 100, 0.10
"""Responses that a group needs to be shown, and to be decided on; |DSM| that is flagged."""


EXPLAINED = (
    ("osa", "of squared differences (OSA)"),
    ("osd", "of differences (OSD)"),
    ("csd", "of differences, human score held fixed (CSD)"),
)
"""How much of the differences a variable explains: the metric, and of what."""


@dataclass(frozen=True)
class Group:
    """One subgroup: DSM; `state` is shown, undecided (too few to decide) or hidden (too few to show). `conditional` is
    its difference from the `reference` group at equal human scores, `noise` what people's noise alone would make of
    it."""

    name: str
    estimate: Estimate
    state: Literal["shown", "undecided", "hidden"]
    flagged: bool
    conditional: Estimate
    noise: Estimate
    reference: bool = False


@dataclass(frozen=True)
class Variable:
    """One group variable: its groups, and how much of the differences it explains (adjusted R²)."""

    name: str
    groups: FoldedList[Group]
    figures: tuple[NamedEstimate, ...]


@dataclass(frozen=True)
class Groups:
    """Whether subgroups are treated alike."""

    title: str
    variables: tuple[Variable, ...]
    missing: str = ""


def groups(figures: Figures, scores: pd.DataFrame) -> Groups:
    """DSM of every group, the furthest from 0 first, and what each variable explains of the differences."""
    names = [column.removeprefix("group:") for column in scores.columns if column.startswith("group:")]
    if not names:
        return Groups("Whether groups are treated alike is untested", (), "the study names no group of the authors")
    both = scores[scores["target"].notna() & scores["calibrated"].notna()]
    variables = tuple(_variable(name, figures, both[f"group:{name}"].value_counts()) for name in names)
    every = list(chain.from_iterable(variable.groups.rows for variable in variables))
    if all(group.estimate.value is None for group in every):
        why = f"no two groups have {SHOWN} responses with a human and a machine score"
        return Groups("Whether groups are treated alike is not known", (), why)
    return Groups(_title(every), variables)


def _title(every: Sequence[Group]) -> str:
    flagged = [group for group in every if group.flagged]
    undecided = sum(group.state == "undecided" for group in every)
    if flagged:
        worst = max(flagged, key=lambda group: abs(group.estimate.value or 0.0))
        value = worst.estimate.value or 0.0
        start = "One group differs" if len(flagged) == 1 else f"{len(flagged)} groups differ"
        word = "low" if value < 0 else "high"
        most = "is" if len(flagged) == 1 else "most,"
        return f"{start}: {worst.name} {most} scored {say.number(abs(value))} SD too {word}"
    if undecided:
        return f"No group is clearly outside ±{BAND:.2f} SD; {undecided} of {len(every)} cannot be decided"
    return f"No group is outside ±{BAND:.2f} SD"


def _variable(name: str, figures: Figures, sizes: pd.Series[int]) -> Variable:
    values = figures.values("dsm", name)
    rows = [_group(name, value, figures) for value in values]
    rows += [_hidden(value, int(n)) for value, n in sizes.items() if value not in values]
    order = ("shown", "undecided", "hidden")
    rows.sort(key=lambda group: (order.index(group.state), -abs(group.estimate.value or 0.0), group.name))
    explained = [NamedEstimate(words, figures.machine(metric, "calibrated", name)) for metric, words in EXPLAINED]
    return Variable(say.name(name), listed(rows), tuple(explained))


def _group(variable: str, name: str, figures: Figures) -> Group:
    estimate, conditional, noise = (
        figures.machine(metric, "calibrated", variable, name) for metric in ("dsm", "csd_difference", "csd_of_noise")
    )
    low, high = estimate.low, estimate.high
    clear = low is not None and high is not None and (low > BAND or high < -BAND or (low >= -BAND and high <= BAND))
    outside = estimate.value is not None and abs(estimate.value) > BAND
    decided = clear and estimate.n >= DECIDED
    state: Literal["shown", "undecided"] = "shown" if decided else "undecided"
    others = figures.values("csd_difference", variable)
    return Group(
        name=say.name(name),
        estimate=estimate,
        state=state,
        flagged=decided and outside,
        conditional=conditional,
        noise=noise,
        reference=bool(others) and name not in others,
    )


def _hidden(name: object, n: int) -> Group:
    few = Estimate(None, n=n, note=f"fewer than {SHOWN} responses")
    return Group(say.name(str(name)), few, "hidden", False, Estimate(None), Estimate(None))
