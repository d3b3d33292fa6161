"""The mark scheme ρ as the policy reads it, printed from a locked bundle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tasks.contracts.bundle import Bundle, Criterion
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
    """The scheme as text: a line for each point with its marks, or for each level with its band; where points are
    counted, a line for each point and one that says how many of them earn what.

    A point's marks are its share of the scale's maximum, as the protocol's `weighted_points` gives them. InputError
    where only some points are counted, or where a count is made of counts.
    """
    if any(composite.count for composite in bundle.composites):
        return _counted(bundle)
    if family(bundle) == "levels":
        told = zip(bands(bundle), bundle.criteria[0].levels, strict=True)
        return "\n".join(f"Level {at}: {text} ({_range(*band)})" for at, (band, text) in enumerate(told))
    earned = sum(criterion.weight for criterion in bundle.criteria if criterion.weight > 0)
    unit = bundle.scale.max / earned if earned else 1.0
    return "\n".join(f"{c.id}: {' '.join(c.text.split())} ({_marks(c.weight * unit)})" for c in bundle.criteria)


def refuse_counted(bundle: Bundle) -> None:
    """InputError where points are counted: they have no marks of their own."""
    if counting := [composite.id for composite in bundle.composites if composite.count]:
        rule = f"criterion '{counting[0]}' counts its sub-points, which then have no marks of their own to edit"
        raise InputError(rule, field="count", hint="edit: {faithfulness: false} leaves the edits of schemes out")


def _counted(bundle: Bundle) -> str:
    """The points that one criterion counts, and how many of them earn what."""
    whole, *others = bundle.composites
    if others or not _is_plain(whole, bundle.criteria):
        rule = f"criterion '{whole.id}' counts sub-points in a way that cannot be printed for the policy"
        raise InputError(rule, field="count", hint="one criterion that counts all points, met or not, or weights")
    points = [f"{point.id}: {' '.join(point.text.split())} (counts)" for point in bundle.criteria]
    return "\n".join([*points, f"What they earn: {_earned(whole, bundle.scale.max)}"])


def _is_plain(whole: Criterion, points: Sequence[Criterion]) -> bool:
    """Whether a criterion does nothing but count all the points, each met or not, and gives marks for them."""
    counts_alone = whole.count is not None and not whole.count.needs and whole.weight > 0
    return counts_alone and all(point.parent == whole.id and point.top == 1 for point in points)


def _earned(whole: Criterion, most: float) -> str:
    """How many points earn how many marks.

    >>> _earned(Criterion(id="K", trait="t", text="Steps.", count={"points": [0, 1, 1, 2]}), 4)
    'none of them 0 marks; 1 or 2 of them 2 marks; 3 or more of them 4 marks'
    """
    assert whole.count is not None
    top = len(whole.count.points) - 1
    bands = [[met for met, _ in band] for _, band in groupby(enumerate(whole.count.points), key=lambda step: step[1])]
    marks = [_marks(whole.count.points[band[0]] / whole.weight * most) for band in bands]
    return "; ".join(
        f"{_how_many(band[0], band[-1], top)} of them {mark}" for band, mark in zip(bands, marks, strict=True)
    )


def _how_many(first: int, last: int, top: int) -> str:
    """A band of numbers in words; the last one goes on."""
    if last == top:
        return f"{first} or more"
    if first == last:
        return str(first) if first else "none"
    return f"{first} or {last}" if last == first + 1 else f"{first} to {last}"


def _range(low: int, high: int) -> str:
    return _marks(low) if low == high else f"{low}-{high} marks"


def _marks(value: float) -> str:
    return f"{value:g} mark{'' if value == 1 else 's'}"
