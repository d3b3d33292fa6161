"""The mark scheme ρ as the policy reads it, printed from a locked bundle."""

from __future__ import annotations

from tasks.contracts.bundle import Bundle
from tasks.contracts.errors import InputError
from tasks.contracts.tables.rules import Family


def family(bundle: Bundle) -> Family:
    """levels where the bundle decides one criterion whose levels its trait's anchors give bands of marks; else
    points."""
    if len(bundle.criteria) != 1:
        return "points"
    (criterion,) = bundle.criteria
    (trait,) = (trait for trait in bundle.traits if trait.id == criterion.trait)
    return "levels" if len(trait.anchors) == len(criterion.levels) > 2 else "points"


def top_mark(bundle: Bundle) -> int:
    """M_q; InputError for a scale that is not 0, 1, … M_q."""
    low, high, step = bundle.scale.bounds
    if low != 0 or step != 1:
        rule = f"marks are whole numbers from 0; this scale is {low:g} to {high:g} in steps of {step:g}"
        raise InputError(rule, field="scale")
    return round(high)


def bands(bundle: Bundle) -> list[tuple[int, int]]:
    """(lowest, highest) mark of every level of a levels scheme, lowest level first."""
    (criterion,) = bundle.criteria
    (trait,) = (trait for trait in bundle.traits if trait.id == criterion.trait)
    ends = [round(anchor.score) for anchor in trait.anchors]
    return [(below + 1 if at else 0, end) for at, (below, end) in enumerate(zip([0, *ends], ends, strict=False))]


def printed(bundle: Bundle) -> str:
    """The scheme as text: a line for each point with its marks, or for each level with its band.

    A point's marks are its share of the scale's maximum, as the protocol's `weighted_points` gives them. InputError
    where points are counted: they have no marks of their own.
    """
    if counting := [composite.id for composite in bundle.composites if composite.count]:
        rule = f"criterion '{counting[0]}' counts its sub-points, which then have no marks of their own to print"
        raise InputError(rule, field="count", hint="give each point a weight instead")
    if family(bundle) == "levels":
        told = zip(bands(bundle), bundle.criteria[0].levels, strict=True)
        return "\n".join(f"Level {at}: {text} ({_range(*band)})" for at, (band, text) in enumerate(told))
    earned = sum(criterion.weight for criterion in bundle.criteria if criterion.weight > 0)
    unit = bundle.scale.max / earned if earned else 1.0
    return "\n".join(f"{c.id}: {' '.join(c.text.split())} ({_marks(c.weight * unit)})" for c in bundle.criteria)


def _range(low: int, high: int) -> str:
    return _marks(low) if low == high else f"{low}-{high} marks"


def _marks(value: float) -> str:
    return f"{value:g} mark{'' if value == 1 else 's'}"
