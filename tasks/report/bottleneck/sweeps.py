"""Settings tried one at a time: what each makes of the first method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tasks.contracts.settings.bottleneck import Training
from tasks.display import say
from tasks.display.table import Cell, Cells, Table
from tasks.report.bottleneck.figures import CONCEPTS, MACRO_F1, QWK, Graders, named

COLUMNS = (CONCEPTS, MACRO_F1, QWK)


class Sweep(NamedTuple):
    """One setting's values, rising, with the figures of `COLUMNS`."""

    method: str
    field: str
    values: tuple[float, ...]
    cells: tuple[tuple[Cell, ...], ...]
    own: float | None
    """The value of the study: among them if it is a number, None for none."""
    own_cells: tuple[Cell, ...]


def sweeps(graders: Graders, training: Training) -> list[Sweep]:
    """The settings of the rows that name one, as 'field=value', each with the study's own value among the others."""
    found: dict[tuple[str, str], dict[float, str]] = {}
    for row in graders.rows:
        field, equals, value = row["setting"].partition("=")
        if equals:
            found.setdefault((row["method"], field), {})[float(value)] = row["setting"]
    made = []
    for (method, field), settings in found.items():
        own = getattr(training, field, None)
        with_own: Mapping[float, str] = settings if own is None else {float(own): ""} | settings
        values = tuple(sorted(with_own))
        cells = tuple(_cells(graders, method, with_own[value]) for value in values)
        made.append(Sweep(method, field, values, cells, own, _cells(graders, method, "")))
    return made


def _cells(graders: Graders, method: str, setting: str) -> tuple[Cell, ...]:
    return tuple(graders.cell(method, column, setting) for column in COLUMNS)


def table(sweep: Sweep) -> Table:
    """The figures by value."""
    rows: list[Cells] = []
    for value, cells in zip(sweep.values, sweep.cells, strict=True):
        own = " (the study's)" if value == sweep.own else ""
        rows.append((say.level(value) + own, *cells))
    if sweep.own is None:
        rows.append(("none (the study's)", *sweep.own_cells))
    title = f"{named(sweep.method)} by {_words(sweep)}"
    return Table(f"sweep-{sweep.field}", title, (_words(sweep), *(column.words for column in COLUMNS)), tuple(rows))


def takeaway(sweep: Sweep) -> str:
    """How far the task's macro-F1 moves between the best and the worst value."""
    known = [(cells[1].value, value) for value, cells in zip(sweep.values, sweep.cells, strict=True)]
    told = [(score, value) for score, value in known if score is not None]
    if not told:
        return f"{_words(sweep)}: not known"
    (worst, at_worst), (best, at_best) = min(told), max(told)
    return (
        f"{_words(sweep)}: macro-F1 between {say.number(worst)} at {say.level(at_worst)} and {say.number(best)} at "
        f"{say.level(at_best)}"
    )


def _words(sweep: Sweep) -> str:
    return say.name(say.worded(sweep.field))
