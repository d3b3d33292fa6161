"""What criteria say of each other, counts and exclusions, and whether it can work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, groupby

from tasks.contracts.bundle import Count, Criterion, Rubric
from tasks.contracts.errors import ContractError
from tasks.contracts.exclusion import alternatives, excluding, together


def broken_counts(rubric: Rubric) -> str | None:
    """What is wrong with the counts of a rubric; None where all can be scored."""
    counting = {criterion.id for criterion in rubric.criteria if criterion.count}
    parts: dict[str | None, list[Criterion]] = {}
    for criterion in rubric.criteria:
        parts.setdefault(criterion.parent, []).append(criterion)
    for criterion in rubric.criteria:
        if problem := _broken_count(criterion, parts.get(criterion.id, ()), criterion.parent in counting):
            return f"criterion '{criterion.id}' {problem}"
    return None


def _broken_count(criterion: Criterion, sub_points: Sequence[Criterion], counted: bool) -> str | None:
    """counted: whether its parent counts it."""
    if counted and sub_points and not _all_or_nothing(criterion.count):
        return "is counted, but can be met in part: it has sub-points and no count of all or nothing"
    if criterion.count is None:
        return None
    if not sub_points:
        return "has a count but no sub-points to count"
    if not math.isclose(abs(criterion.weight), criterion.count.points[-1]):
        return f"weighs {criterion.weight:g}, but its count ends at {criterion.count.points[-1]:g} points"
    for point in sub_points:
        if problem := _uncountable(point, criterion, criterion.count):
            return problem
    most = together(sub_points, counted=True)
    if len(criterion.count.points) - 1 > most:
        return f"has points for {len(criterion.count.points) - 1} sub-points, of which {most:g} can be met"
    return _broken_needs(criterion.count, sub_points)


def _all_or_nothing(count: Count | None) -> bool:
    return count is not None and set(count.points) <= {0, count.points[-1]}


def _uncountable(point: Criterion, criterion: Criterion, count: Count) -> str | None:
    """Why a sub-point cannot be counted as one."""
    unit = math.copysign(1.0, criterion.weight)
    if point.weight != unit:
        return f"counts its sub-points, each as one: the weight of '{point.id}' is {unit:g}, not {point.weight:g}"
    if point.count is None and (count.least or 0) > point.top:
        return f"counts from level {count.least}, which its sub-point '{point.id}' does not have"
    return None


def _broken_needs(count: Count, sub_points: Sequence[Criterion]) -> str | None:
    ids = {point.id for point in sub_points}
    bound = {point.id for point in chain.from_iterable(excluding(sub_points))}
    for name in count.needs:
        if name not in ids or count.needs.count(name) > 1:
            return f"needs '{name}', which is {'named twice' if name in ids else 'none of its sub-points'}"
        if name in bound:
            return f"needs '{name}', which excludes another of its sub-points"
    return None


def broken_exclusion(rubric: Rubric) -> str | None:
    """What is wrong with the exclusions of a rubric, whose parents are no circle; None where they can be scored."""
    parents = {criterion.id: criterion.parent for criterion in rubric.criteria}
    for first, second in excluding(rubric.criteria):
        if second.id in _above(first.id, parents) or first.id in _above(second.id, parents):
            return f"criteria '{first.id}' and '{second.id}' exclude each other, but one is a part of the other"
        side_by_side = (first.trait, first.parent) == (second.trait, second.parent)
        if first.weight * second.weight > 0 and not side_by_side:
            both = "earn" if first.weight > 0 else "cost"
            return (
                f"criteria '{first.id}' and '{second.id}' exclude each other and both {both}: then they stand in one "
                "trait and under one parent, or under none"
            )
    return _too_many(rubric)


def _above(name: str, parents: Mapping[str, str | None]) -> set[str]:
    """A criterion's parents."""
    above: set[str] = set()
    parent = parents[name]
    while parent is not None:
        above.add(parent)
        parent = parents[parent]
    return above


def _too_many(rubric: Rubric) -> str | None:
    ordered = sorted(rubric.criteria, key=lambda criterion: criterion.parent or "")
    try:
        for _, side_by_side in groupby(ordered, key=lambda criterion: criterion.parent or ""):
            alternatives(tuple(side_by_side))
    except ContractError as error:
        return str(error)
    return None
