"""Whether subgroups are treated alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import pandas as pd
from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import (
    MOST,
    Content,
    Figure,
    Fold,
    Named,
    Part,
    Section,
    Text,
    figure_table,
    left_out,
)
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.charts import Dot, ForestRow, forest
from rubricflow.tasks.grading.report.figures import Figures

SHOWN, DECIDED, BAND = 30, 100, 0.10
"""Responses that a group needs to be shown, and to be decided on; |DSM| that is flagged."""
EXPLAINED = {
    "osa": "of squared differences (OSA)",
    "osd": "of differences (OSD)",
    "csd": "of differences, human score held fixed (CSD)",
}
"""How much of the differences a variable explains: the metric, and of what."""


class Group(NamedTuple):
    """One subgroup: its DSM, and whether it is decided, too small for that, or too small to be shown."""

    state: Literal[0, 1, 2]
    name: str
    estimate: Estimate
    cells: tuple[Content, ...]
    flagged: bool = False


def groups_section(figures: Figures, scores: pd.DataFrame) -> Section:
    """DSM of every group, the furthest from 0 first, and what each variable explains of the differences."""
    question = "Groups: fair?"
    names = [column.removeprefix("group:") for column in scores.columns if column.startswith("group:")]
    if not names:
        unknown = "the study names no group of the authors"
        return Section("groups", question, "Whether groups are treated alike is untested", unknown=unknown)
    both = scores[scores["target"].notna() & scores["calibrated"].notna()]
    every = {name: _groups(name, figures, both[f"group:{name}"].value_counts()) for name in names}
    shown = [group for groups in every.values() for group in groups[:MOST]]
    if all(group.estimate.value is None for group in shown):
        unknown = f"no two groups have {SHOWN} responses with a human and a machine score"
        return Section("groups", question, "Whether groups are treated alike is not known", unknown=unknown)
    parts: list[Part] = [Text(LEAD)]
    for name, groups in every.items():
        parts += _variable(name, groups, figures)
    return Section("groups", question, _title(shown), parts=parts)


LEAD = (
    "Difference of standardised means (DSM): how much higher a group stands by the machine than by people, in SD, with "
    f"95% interval; the overall shift is taken out. Band: ±{BAND:.2f}. Groups of fewer than {SHOWN} are not shown, "
    f"those of fewer than {DECIDED} not decided. At equal human scores: the machine's difference from the reference "
    "group in points; noise alone: what a fair machine would show there, because people's scores are noisy."
)


def _title(every: list[Group]) -> str:
    flagged = {group.name: group.estimate.value or 0.0 for group in every if group.flagged}
    if flagged:
        worst = max(flagged, key=lambda name: abs(flagged[name]))
        amount = f"{say.number(abs(flagged[worst]))} SD too {'low' if flagged[worst] < 0 else 'high'}"
        if len(flagged) == 1:
            return f"One group differs: {worst} is scored {amount}"
        return f"{len(flagged)} groups differ: {worst} most, scored {amount}"
    if undecided := sum(group.state == 1 for group in every):
        return f"No group is clearly outside ±{BAND:.2f} SD; {undecided} of {len(every)} cannot be decided"
    return f"No group is outside ±{BAND:.2f} SD"


def _groups(variable: str, figures: Figures, sizes: pd.Series[int]) -> list[Group]:
    """The groups of a variable: those decided first, then those that are too small to decide on or to show."""
    values, compared = figures.values("dsm", variable), figures.values("csd_difference", variable)
    groups = []
    for name in values:
        estimate, difference, noise = (
            figures.machine(metric, "calibrated", variable, name)
            for metric in ("dsm", "csd_difference", "csd_of_noise")
        )
        low, high = estimate.low, estimate.high
        is_clear = low is not None and high is not None and (low > BAND or high < -BAND or -BAND <= low <= high <= BAND)
        is_decided = is_clear and estimate.n >= DECIDED
        flagged = is_decided and abs(estimate.value or 0.0) > BAND
        state = Markup("<strong>outside</strong>") if flagged else "inside" if is_decided else "undecided"
        others: tuple[Content, ...] = Figure(difference, "signed"), Figure(noise, "signed")
        if compared and name not in compared:
            others = Named("reference"), None
        cells = Figure(estimate, "signed", "m"), Named(state), *others
        groups.append(Group(0 if is_decided else 1, say.name(name), estimate, cells, flagged))
    for value, n in sizes.items():
        if value not in values:
            few = Estimate(None, n=n, note=f"fewer than {SHOWN} responses")
            hidden = Named(Markup('<span class="nk">not shown</span>')), Named("too few"), None, None
            groups.append(Group(2, say.name(str(value)), few, hidden))
    return sorted(groups, key=lambda group: (group.state, -abs(group.estimate.value or 0.0), group.name))


def _variable(name: str, groups: list[Group], figures: Figures) -> Iterator[Part]:
    rows = [
        ForestRow(group.name, group.estimate.n, (Dot(group.estimate, "m"),), group.cells, group.flagged)
        for group in groups
    ]
    yield Text(say.name(name), "h3")
    yield forest("Group", (Named("DSM", "m key"), "", "at equal human scores", "noise alone"), rows[:MOST], BAND)
    yield from left_out(rows, "groups", "metrics")
    explained = [(words, Figure(figures.machine(metric, "calibrated", name))) for metric, words in EXPLAINED.items()]
    yield Fold("How much the groups explain (adjusted R²)", figure_table(explained))
