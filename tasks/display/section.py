"""What a report shows: sections of tables, drawings and cases, under key figures."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from tasks.display.table import Table


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
class Part:
    """One end of a dependency in a case."""

    name: str
    text: str
    earned: str


@dataclass(frozen=True)
class Case:
    """False credit that one response was paid."""

    title: str
    response: str
    question: str
    text: str
    parent: Part
    child: Part
    paid: str


@dataclass(frozen=True)
class Section:
    """One question, and what the run says about it."""

    id: str
    question: str
    title: str
    lead: str = ""
    drawings: tuple[Drawing, ...] = ()
    """Side by side where there is room."""
    tables: tuple[Table, ...] = ()
    """One below the other."""
    small: tuple[Table, ...] = ()
    """Side by side."""
    pictures: tuple[Drawing, ...] = ()
    """One below the other."""
    cases: tuple[Case, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """The whole page."""

    study: str
    run_id: str
    title: str
    lead: str
    keys: tuple[Key, ...]
    sections: tuple[Section, ...]
