"""A criterion as a box: id, role, weight, its text and, for one response, what it earned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tasks.contracts.graph import Role
from tasks.display import say

Row = Mapping[str, Any]


class EarnedCredit(NamedTuple):
    """What one response earned, by criterion; a criterion that is absent is not known."""

    local: Mapping[str, float]
    """Its own score, in [0, 1]."""
    marginal: Mapping[str, float]
    """What is left of it after the dependencies."""
    threshold: float
    """From this score on a criterion counts as supported."""


class Box(NamedTuple):
    """What a box says."""

    name: str
    role: Role
    weight: str
    text: str
    earned: str
    """In words; empty where no response is shown."""
    local: float
    """The criterion's own score, in [0, 1]; 0 where it is not known."""
    marginal: float
    """What is left of it."""
    x: float
    """Upper left corner, in px."""
    y: float


def box(row: Row, earned: EarnedCredit | None, x: float = 0.0, y: float = 0.0) -> Box:
    """A row of `graph_nodes`."""
    name = row["criterion_id"]
    local = earned.local.get(name) if earned else None
    marginal = earned.marginal.get(name) if earned else None
    return Box(
        name=say.visible(name),
        role=row["role"],
        weight=signed(row["weight"]),
        text=say.visible(row["text"]),
        earned=_earned(local, marginal) if earned else "",
        local=local or 0.0,
        marginal=marginal or 0.0,
        x=x,
        y=y,
    )


def signed(weight: float) -> str:
    """+5, −2.5, 0."""
    return ("+" if weight > 0 else "") + say.level(weight)


def _earned(local: float | None, marginal: float | None) -> str:
    if local is None:
        return "unscored"
    if marginal is None:
        return f"{say.number(local)} → ?"
    return say.number(local) if abs(local - marginal) < 0.005 else f"{say.number(local)} → {say.number(marginal)}"
