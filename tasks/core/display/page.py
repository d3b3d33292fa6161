"""A report as one static HTML page: sections of text, tables and drawings, under key figures. No script, nothing
fetched; what people, rubrics and responses say is text.

Most sections are tables and drawings in a fixed order; a section that needs another order names its `parts` itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Table
from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.core.text.highlight import Label, TextPiece
from rubricflow.tasks.core.text.languages import language_of

FIRST, MOST = 12, 60
"""Rows of a long list that are shown at once, and that are in the page at all; the run's tables hold the others."""
PICTURES = {"forest": "plot", "verdict stack": "outcome"}
"""Style of a grid → the class of its cells that are drawn; elsewhere they are bars."""


class Named(NamedTuple):
    """A text with a remark in grey behind it; in a header the remark is a CSS class, in a row it is no first cell's."""

    text: str
    remark: str = ""


class Figure(NamedTuple):
    """An estimate as its value and interval. by: m for the machine's, h for people's."""

    estimate: Estimate
    unit: Unit = "number"
    by: str = ""
    remark: str = ""


Content: TypeAlias = str | int | Cell | Named | Figure | None
"""What a cell holds: numbers stand right, markup is drawn, None is an empty cell."""


@dataclass(frozen=True)
class Grid:
    """A table of any contents, at least one row. style: its CSS classes; marks: a CSS class for every row."""

    header: tuple[str | Named, ...]
    rows: Sequence[tuple[Content, ...]]
    style: str = "tight"
    caption: str = ""
    marks: Sequence[str] = ()

    @property
    def classes(self) -> list[str]:
        """A CSS class for every column."""
        classes = []
        for cells in zip(*self.rows, strict=True):
            is_drawn = any(isinstance(cell, Markup) for cell in cells)
            is_number = any(not isinstance(cell, str | None) for cell in cells)
            classes.append(PICTURES.get(self.style, "w") if is_drawn else "n" if is_number else "")
        return ["", *classes[1:]]


class Text(NamedTuple):
    """A paragraph of a CSS class, or a heading: style h3."""

    text: str
    style: str = "sub"


class Fold(NamedTuple):
    """Parts that are folded away under a few words."""

    summary: str
    parts: Sequence[Part]


class Columns(NamedTuple):
    """Parts side by side, where the screen is wide enough."""

    columns: Sequence[Sequence[Part]]


class Facts(NamedTuple):
    """Names and what there is to say of each."""

    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Key:
    """A figure at the head of the page."""

    name: str
    value: str
    below: Sequence[str] = ()


Part: TypeAlias = Markup | Text | Grid | Fold | Columns | Facts
"""What stands in a section; markup stands as it is."""


@dataclass(frozen=True)
class Drawing:
    """A figure under its takeaway."""

    title: str
    svg: Markup
    note: str = ""


@dataclass(frozen=True)
class Section:
    """One question, and what the run says about it. The question's words before a colon stand in the contents."""

    id: str
    question: str
    title: str
    lead: str = ""
    missing: str = ""
    """Why there is no answer."""
    unknown: str = ""
    """Why the answer is not known."""
    drawings: Sequence[Drawing] = ()
    """Side by side where the screen is wide enough."""
    tables: Sequence[Table] = ()
    """One below the other."""
    small: Sequence[Table] = ()
    """Side by side: next to the drawings, or below the tables where nothing is drawn."""
    pictures: Sequence[Drawing] = ()
    """One below the other."""
    parts: Sequence[Part] = ()
    """One below the other, in an order of their own."""
    body: str = ""
    """What only this report has."""
    facts: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    folded: str = ""
    """What tables, pictures, facts and notes are called, where they are folded away; '' where they stand open."""


@dataclass(frozen=True)
class Page:
    """A whole report. kind: what it is called."""

    kind: str
    study: str
    title: str
    sections: Sequence[Section]
    date: str = ""
    lead: str = ""
    missing: str = ""
    """What the reader must know before believing anything."""
    keys: Sequence[Key] = ()
    parts: Sequence[Part] = ()
    """What only this report has at its head."""


def long_list(grid: Grid, noun: str, table: str, more: str) -> list[Part]:
    """A table whose rows after the FIRST are folded away under `more`, and how many are in a table of the run alone;
    nothing without rows. noun: what the rows are called, in the plural."""
    if not grid.rows:
        return []
    parts: list[Part] = [replace(grid, rows=grid.rows[:FIRST], marks=grid.marks[:FIRST])]
    if folded := grid.rows[FIRST:MOST]:
        summary = f"{say.count(len(folded))} {more}"
        parts.append(Fold(summary, [replace(grid, rows=folded, marks=grid.marks[FIRST:MOST])]))
    return [*parts, *left_out(grid.rows, noun, table)]


def left_out(rows: Sequence[object], noun: str, table: str) -> list[Part]:
    """How many rows of a list are in a table of the run alone; nothing where the page has them all."""
    if len(rows) <= MOST:
        return []
    number = say.plural(len(rows) - MOST, f"more {noun.removesuffix('s')}")
    return [Text(Markup("{} in the table <code>{}</code>.").format(number, table), "note")]


def figure_table(rows: Sequence[tuple[str | Named, Figure]]) -> list[Part]:
    """Names and figures, and why some are not known; nothing without rows."""
    return [Grid((), rows), *unknown_notes(figure.estimate for _, figure in rows)] if rows else []


def unknown_notes(estimates: Iterable[Estimate]) -> list[Part]:
    """Why numbers are missing: each reason once, in order, four at most."""
    whys = dict.fromkeys(estimate.note for estimate in estimates if estimate.value is None and estimate.note)
    return [Text(f"{say.NOT_KNOWN}: {why}", "note") for why in [*whys][:4]]


def setting_facts(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """How something was set, for `Section.facts`: every setting with its value, the settings of a group in one line."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            value = [f"{say.worded(key)} {content}" for key, content in value.items()]
        words = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        yield say.worded(name), say.visible(words)


HERE = Path(__file__).parent


def rendered(page: Page, style: Path | str = "") -> str:
    """The whole document, which needs no other file. style: CSS for what only this report draws, or its file."""
    own = style if isinstance(style, str) else style.read_text(encoding="utf-8")
    lines = [*(HERE / "page.css").read_text(encoding="utf-8").splitlines(), *own.splitlines()]
    sheet = Markup("\n".join(line.strip() for line in lines))
    return _environment(HERE).get_template("page.html.j2").render(page=page, style=sheet)


def body(template: Path, macro: str, value: object) -> Markup:
    """What one macro of a report's own template makes of a value; it knows `say`."""
    module = _environment(template.parent).get_template(template.name).module
    return Markup(getattr(module, macro)(value))


def filled(template: Path, **names: object) -> Markup:
    """What a report's own template makes of these names; it knows `say`, too."""
    return Markup(_environment(template.parent).get_template(template.name).render(names))


def marked(
    pieces: Iterable[TextPiece[Label]], kind: Callable[[tuple[Label, ...]], str], end_label: Callable[[Label], object]
) -> Markup:
    """A highlighted text as HTML, escaped, what is highlighted in a <mark>: nothing of it is lost or changed but what
    cannot be seen. kind: its CSS classes; end_label: what stands where a highlight ends."""
    shown = []
    for piece in pieces:
        text = Markup("{}").format(say.visible(piece.text))
        if piece.hidden:
            text = Markup('<span class="gap">[{} not shown]</span>').format(say.plural(piece.hidden, "character"))
        elif piece.is_heading:
            text = Markup('<b class="turn">{}</b>').format(text)
        elif piece.labels:
            labels = Markup("").join(
                Markup("<b>{}</b>").format(label) for label in dict.fromkeys(map(end_label, piece.ends))
            )
            text = Markup('<mark class="{}">{}{}</mark>').format(kind(piece.labels), text, labels)
        shown.append(text)
    return Markup("").join(shown)


def lang(text: str) -> Markup:
    """The attribute that says the language of a text or markup to whoever reads it out; none where it is not known."""
    code = language_of(Markup(text).striptags().casefold())
    return Markup(' lang="{}"').format(code) if code else Markup("")


@cache
def _environment(folder: Path) -> Environment:
    loader = FileSystemLoader(folder)
    jinja = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    jinja.filters |= {"count": say.count, "share": say.share, "figure": say.figure, "plural": say.plural, "lang": lang}
    jinja.globals |= {"say": say}
    return jinja
