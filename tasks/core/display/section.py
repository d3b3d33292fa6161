"""What a report shows: sections of tables, drawings and bodies of its own, under key figures."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from rubricflow.tasks.core.display.table import Table


@dataclass(frozen=True)
class Key:
    """A figure at the head of the page."""

    name: str
    value: str
    below: tuple[str, ...] = ()


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
    """Why the answer is not known."""
    drawings: tuple[Drawing, ...] = ()
    """Side by side where there is room."""
    tables: tuple[Table, ...] = ()
    """One below the other."""
    small: tuple[Table, ...] = ()
    """Side by side: beside the drawings, or below the tables where nothing is drawn."""
    pictures: tuple[Drawing, ...] = ()
    """One below the other."""
    body: str = ""
    """What only this report has."""
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A whole report. kind: what it is called."""

    kind: str
    study: str
    title: str
    sections: tuple[Section, ...]
    date: str = ""
    lead: str = ""
    missing: str = ""
    """What the reader must know before believing anything."""
    keys: tuple[Key, ...] = ()
    body: str = ""
    """What only this report has at its head."""
