"""Settings tried one at a time: what each makes of the first method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rubricflow.tasks.core.contracts.settings.bottleneck import Training
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Cells, Table
from rubricflow.tasks.methods.report.bottleneck.figures import CONCEPTS, MACRO_F1, QWK, Graders, grader_name

COLUMNS = (CONCEPTS, MACRO_F1, QWK)


class Sweep(NamedTuple):
    """One setting's values, rising, with the figures of `COLUMNS`."""

    method: str
    field: str
    values: tuple[float, ...]
    cells: tuple[tuple[Cell, ...], ...]
    study_value: float | None
    """The value of the study: among them if it is a number, None for none."""
    study_cells: tuple[Cell, ...]


def sweeps(graders: Graders, training: Training) -> list[Sweep]:
    """The settings of the rows that name one, as 'field=value', each with the study's own value among the others."""
    settings_by_field: dict[tuple[str, str], dict[float, str]] = {}
    for row in graders.rows:
        field, equals, value = row["setting"].partition("=")
        if equals:
            settings_by_field.setdefault((row["method"], field), {})[float(value)] = row["setting"]
    sweeps_of_fields = []
    for (method, field), settings in settings_by_field.items():
        study_value = getattr(training, field, None)
        by_value: Mapping[float, str] = settings if study_value is None else {float(study_value): ""} | settings
        values = tuple(sorted(by_value))
        cells = tuple(_cells(graders, method, by_value[value]) for value in values)
        sweeps_of_fields.append(Sweep(method, field, values, cells, study_value, _cells(graders, method, "")))
    return sweeps_of_fields


def _cells(graders: Graders, method: str, setting: str) -> tuple[Cell, ...]:
    return tuple(graders.cell(method, column, setting) for column in COLUMNS)


def table(sweep: Sweep) -> Table:
    """The figures by value."""
    rows: list[Cells] = []
    for value, cells in zip(sweep.values, sweep.cells, strict=True):
        remark = " (the study's)" if value == sweep.study_value else ""
        rows.append((say.level(value) + remark, *cells))
    if sweep.study_value is None:
        rows.append(("none (the study's)", *sweep.study_cells))
    title = f"{grader_name(sweep.method)} by {_words(sweep)}"
    return Table(f"sweep-{sweep.field}", title, (_words(sweep), *(column.words for column in COLUMNS)), tuple(rows))


def takeaway(sweep: Sweep) -> str:
    """How far the task's macro-F1 moves between the best and the worst value."""
    scores = [(cells[1].value, value) for value, cells in zip(sweep.values, sweep.cells, strict=True)]
    defined = [(score, value) for score, value in scores if score is not None]
    if not defined:
        return f"{_words(sweep)}: not known"
    (worst, worst_value), (best, best_value) = min(defined), max(defined)
    return (
        f"{_words(sweep)}: macro-F1 between {say.number(worst)} at {say.level(worst_value)} and {say.number(best)} at "
        f"{say.level(best_value)}"
    )


def _words(sweep: Sweep) -> str:
    return say.name(say.worded(sweep.field))
