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
    starts = [0, *(end + 1 for end in ends)]
    return list(zip(starts, ends, strict=False))


def printed(bundle: Bundle) -> str:
    """The scheme as text: a line for each point with its marks, or for each level with its band; where points are
    counted, a line for each point and one that says how many of them earn what.

    A point's marks are its share of the scale's maximum, as the protocol's `weighted_points` gives them. InputError
    where only some points are counted, or where a count is made of counts.
    """
    if any(composite.count for composite in bundle.composites):
        # The points that one criterion counts, and how many of them earn what.
        counter, *others = bundle.composites
        if others or not _is_plain(counter, bundle.criteria):
            rule = f"criterion '{counter.id}' counts sub-points in a way that cannot be printed for the policy"
            raise InputError(rule, field="count", hint="one criterion that counts all points, met or not, or weights")
        points = [f"{point.id}: {' '.join(point.text.split())} (counts)" for point in bundle.criteria]
        return "\n".join([*points, f"What they earn: {_earned(counter, bundle.scale.max)}"])
    if family(bundle) == "levels":
        levels = zip(bands(bundle), bundle.criteria[0].levels, strict=True)
        return "\n".join(f"Level {number}: {text} ({_range(*band)})" for number, (band, text) in enumerate(levels))
    earned = sum(criterion.weight for criterion in bundle.criteria if criterion.weight > 0)
    unit = bundle.scale.max / earned if earned else 1.0
    lines = []
    for criterion in bundle.criteria:
        text = " ".join(criterion.text.split())
        lines.append(f"{criterion.id}: {text} ({_marks(criterion.weight * unit)})")
    return "\n".join(lines)


def refuse_counted(bundle: Bundle) -> None:
    """InputError where points are counted: they have no marks of their own."""
    if counting := [composite.id for composite in bundle.composites if composite.count]:
        rule = f"criterion '{counting[0]}' counts its sub-points, which then have no marks of their own to edit"
        raise InputError(rule, field="count", hint="edit: {faithfulness: false} leaves the edits of schemes out")


def _is_plain(counter: Criterion, points: Sequence[Criterion]) -> bool:
    """Whether a criterion does nothing but count all the points, each met or not, and gives marks for them."""
    counts_alone = counter.count is not None and not counter.count.needs and counter.weight > 0
    return counts_alone and all(point.parent == counter.id and point.top == 1 for point in points)


def _earned(counter: Criterion, most: float) -> str:
    """How many points earn how many marks.

    >>> _earned(Criterion(id="K", trait="t", text="Steps.", count={"points": [0, 1, 1, 2]}), 4)
    'none of them 0 marks; 1 or 2 of them 2 marks; 3 or more of them 4 marks'
    """
    assert counter.count is not None
    top = len(counter.count.points) - 1
    bands = []
    for points, steps in groupby(enumerate(counter.count.points), key=lambda step: step[1]):
        met = [number for number, _ in steps]
        mark = _marks(points / counter.weight * most)
        bands.append(f"{_how_many(met[0], met[-1], top)} of them {mark}")
    return "; ".join(bands)


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
