"""What the reward report is made from, and what it shows: sections of tables, drawings and cases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from markupsafe import Markup

from tasks.contracts.settings.reward import Reward
from tasks.display.table import Table


@dataclass(frozen=True)
class RewardView:
    """What the report is made from: Arrow tables with the columns of tasks/contracts/tables."""

    study: str
    run_id: str
    settings: Reward
    rewards: pa.Table
    edge_cases: pa.Table
    diagnostics: pa.Table
    graphs: pa.Table
    graph_nodes: pa.Table
    graph_edges: pa.Table
    retentions: pa.Table
    """Empty where nothing was learned."""
    questions: Mapping[str, str]
    """item_id → question, at least of the responses that `needs_texts` names."""
    texts: Mapping[str, str]
    """response_id → text, of the same."""


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
class Content:
    """The whole page."""

    study: str
    run_id: str
    title: str
    lead: str
    keys: tuple[Key, ...]
    sections: tuple[Section, ...]
