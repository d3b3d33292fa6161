"""Tables of cells and panels of bars, as experiments show them; their numbers as rows, in a terminal, as Markdown."""

from __future__ import annotations

import math
import re
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeAlias

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as PrintedTable

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.bootstrap import MARK, cautions, is_few
from rubricflow.tasks.core.stats.verdict import Estimate

Row: TypeAlias = Mapping[Any, Any]
"""A row of a table, by column."""
Rows: TypeAlias = Sequence[Row]
SIMULATED = " (simulated rater)"
Ends = Literal["none", "interval", "se"]


class Cell(NamedTuple):
    """A number as it is shown: with `digits` decimals, and its interval or standard error behind it."""

    value: float | None
    low: float | None = None
    high: float | None = None
    se: float | None = None
    digits: int = 3
    ends: Ends = "none"
    clusters: int | None = None
    """How many the interval resamples: it is marked where these are few."""

    def __str__(self) -> str:
        if self.value is None:
            return "–"
        text = say.number(self.value, self.digits)
        if self.ends == "se" and self.se is not None:
            return f"{text} ± {say.number(self.se, self.digits)}{self.mark}"
        if self.ends == "interval" and self.low is not None and self.high is not None:
            return f"{text} [{say.number(self.low, self.digits)}, {say.number(self.high, self.digits)}]{self.mark}"
        return text

    @property
    def reach(self) -> tuple[float | None, float | None]:
        """One standard error below and above; None where it is not known."""
        if self.value is None or self.se is None:
            return None, None
        return self.value - self.se, self.value + self.se

    @property
    def interval(self) -> str:
        """95% interval 0.72 to 0.81; empty where there is none."""
        if self.low is None or self.high is None:
            return ""
        return f"95% interval {say.number(self.low, self.digits)} to {say.number(self.high, self.digits)}{self.mark}"

    @property
    def mark(self) -> str:
        """What points to the caution about few clusters; empty where there is none."""
        return MARK if is_few(self.clusters) and self.ends != "none" and self.low is not None else ""


Cells: TypeAlias = tuple[Cell | str, ...]


class Bar(NamedTuple):
    """One bar of a panel, with the ends of its interval."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    shown: str = ""
    """The figure in words, where it is not the value alone."""


class Panel(NamedTuple):
    """Bars on one axis from 0, and what people reach."""

    title: str
    bars: Sequence[Bar]
    people: float | None = None


class LevelShares(NamedTuple):
    """Share of responses at each level of the scale: people's, and those of each arm."""

    title: str
    levels: tuple[str, ...]
    people: tuple[float, ...]
    arms: dict[str, tuple[float, ...]]


class Table(NamedTuple):
    """A table of an experiment: id, title, headings, rows as wide as the headings, what to know about it, figures."""

    id: str
    title: str
    header: Sequence[str]
    rows: Sequence[Cells]
    notes: Sequence[str] = ()
    figures: Sequence[Panel | LevelShares] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know about the table: its notes, and a caution where intervals are marked."""
        cells = chain.from_iterable(self.rows)
        marked = (cell.clusters for cell in cells if isinstance(cell, Cell) and cell.mark)
        return (*self.notes, *cautions(marked))


def number(estimate: Estimate | float | int | None, digits: int = 3, ends: Ends = "none") -> Cell:
    """A cell of an estimate or a plain number."""
    if isinstance(estimate, Estimate):
        return Cell(*estimate[:4], digits=digits, ends=ends, clusters=estimate.clusters)
    is_finite = estimate is not None and math.isfinite(estimate)
    return Cell(float(estimate) if is_finite and estimate is not None else None, digits=digits)


def count(value: int) -> Cell:
    """A cell of a count."""
    return Cell(float(value), digits=0)


def bar(label: str, estimate: Estimate) -> Iterator[Bar]:
    """The bar of an estimate; none where it is undefined."""
    if estimate.value is not None:
        yield Bar(label, estimate.value, estimate.low, estimate.high)


def labelled(table: Table) -> Table:
    """The table of an experiment with a simulated rater: it and its figures say so in their titles."""
    figures = tuple(figure._replace(title=figure.title + SIMULATED) for figure in table.figures)
    return table._replace(title=table.title + SIMULATED, figures=figures)


def as_records(table: Table) -> list[dict[str, str]]:
    """The rows of a table as Prefect's artifacts take them."""
    return [dict(zip(table.header, map(str, row), strict=True)) for row in table.rows]


def records(table: Table) -> Iterator[Record]:
    """The cells of a table as rows of `numbers`; those that are its rows' names are their labels."""
    for index, row in enumerate(table.rows):
        names = [cell for cell in row if isinstance(cell, str)]
        for column, cell in zip(table.header, row, strict=True):
            place = {"table_id": table.id, "title": table.title, "row": index, "label": " / ".join(names)}
            figures = {name: getattr(cell, name, None) for name in ("value", "low", "high", "se")}
            yield place | {"column": column, "text": cell if isinstance(cell, str) else None, **figures}


def show_sentences(sentences: Sequence[str]) -> None:
    """Print sentences: in a terminal broken between words alone, but for commands, which are indented and stand
    on lines of their own."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for sentence in sentences:
        for line in say.visible(sentence).split("\n"):
            if width and not line.startswith(" "):
                line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
            print(line)


def show(tables: Sequence[Table]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    for table in tables:
        printed = PrintedTable(
            title=_line(table.title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
        )
        for index, name in enumerate(table.header):
            is_number = bool(table.rows) and isinstance(table.rows[0][index], Cell)
            printed.add_column(_line(name), justify="right" if is_number else "left")
        for row in table.rows:
            printed.add_row(*(_line(str(cell)) for cell in row))
        console.print(printed)
        for note in table.remarks:
            console.print(_line(note), style="dim", highlight=False)
        console.print()


def markdown(title: str, opening: Sequence[str], tables: Sequence[Table], ending: Sequence[str]) -> str:
    """A document of tables: its title, the sentences that it opens with, and a list at its end. What would be markup is
    text, but for the ending's."""
    lines = [f"# {title}", "", *(f"{_text(sentence)}\n" for sentence in opening)]
    for table in tables:
        lines += [f"## {table.title}", "", _row(table.header), "|" + "---|" * len(table.header)]
        lines += [_row(tuple(map(str, row))) for row in table.rows]
        lines += ["", *(f"- {note}" for note in table.remarks), ""]
    return "\n".join([*lines, *ending, ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_text(cell) for cell in cells) + " |"


def _text(text: str) -> str:
    """A text on one line that Markdown shows as it stands: a name in it is no markup."""
    line = say.visible(text).replace("\n", " ")
    return re.sub(r"([\\`*_\[\]>|#])", r"\\\1", line).replace("<", "&lt;")


def _line(text: str) -> str:
    """A text as a terminal may show it."""
    return escape(say.visible(text))
