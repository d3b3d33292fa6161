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
    own: float
    """The criterion's own score, in [0, 1]; 0 where it is not known."""
    left: float
    """What is left of it."""
    x: float
    """Upper left corner, in px."""
    y: float


def box(row: Row, shown: EarnedCredit | None, x: float = 0.0, y: float = 0.0) -> Box:
    """A row of `graph_nodes`."""
    name = row["criterion_id"]
    own, left = (of.get(name) for of in (shown.local, shown.marginal)) if shown else (None, None)
    words = say.visible(name), row["role"], signed(row["weight"]), say.visible(row["text"])
    return Box(*words, _earned(own, left) if shown else "", own or 0.0, left or 0.0, x, y)


def signed(weight: float) -> str:
    """+5, −2.5, 0."""
    return ("+" if weight > 0 else "") + say.level(weight)


def _earned(own: float | None, left: float | None) -> str:
    if own is None:
        return "unscored"
    if left is None:
        return f"{say.number(own)} → ?"
    return say.number(own) if abs(own - left) < 0.005 else f"{say.number(own)} → {say.number(left)}"
