"""Rubrics: written by a person in YAML, or made from what an item carries."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from graphlib import CycleError, TopologicalSorter
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Criterion, Example, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.composite import alternatives, excluding, together
from rubricflow.tasks.core.contracts.errors import ContractError, InputError
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.study import Derived, RubricSettings
from rubricflow.tasks.core.contracts.settings.written import composed, parse, position, read_yaml
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.text.units import units


class RubricFile(Frozen):
    """A YAML file of authored rubrics."""

    rubrics: tuple[Rubric, ...]


def authored(path: Path, induced: bool = False) -> dict[str, Rubric]:
    """Authored rubrics by id; InputError names the file, the field and the rule.

    induced: their criteria will be made of their prose; traits and criteria may be missing.
    """
    rubrics = {}
    for number, rubric in enumerate(parse(RubricFile, read_yaml(path), path).rubrics):
        is_twice = rubric.rubric_id in rubrics
        problem = "is given twice" if is_twice else broken(rubric, induced)
        if problem:
            line, column = position(composed(path), _place(number, rubric, problem))
            rule = f"rubric '{rubric.rubric_id}'{' ' if is_twice else ': '}{problem}"
            raise InputError(rule, file=path, line=line, column=column, field="rubric_id" if is_twice else None)
        rubrics[rubric.rubric_id] = rubric
    return rubrics


def _place(number: int, rubric: Rubric, problem: str) -> list[int | str]:
    """Where in a file of rubrics a problem stands: at the criterion or trait that it begins with, or at the rubric."""
    named = {"criteria": "criterion", "traits": "trait"}
    for key, word in named.items():
        for at, part in reversed(list(enumerate(getattr(rubric, key)))):
            if problem.startswith((f"{word} '{part.id}' ", f"{word} id '{part.id}' ")):
                return ["rubrics", number, key, at]
    return ["rubrics", number, "rubric_id"]


def rubrics_of(
    items: Iterable[Mapping[str, Any]], authored_rubrics: Mapping[str, Rubric], plan: RubricSettings
) -> dict[str, Rubric]:
    """The rubric of every item by id: an authored one, or one derived from the item.

    Its prose is its author's, and then the scoring guide that the item carries. InputError for an item that names no
    known rubric, for two items that share one but would make different ones of it, and for a rubric without the prose
    that its criteria are to be made of.
    """
    rubrics: dict[str, Rubric] = {}
    for item in items:
        name = item["rubric_id"]
        if name not in authored_rubrics and plan.derive is None:
            rule = f"item '{item['item_id']}' names an unknown rubric '{name}'"
            names = ", ".join(authored_rubrics)
            raise InputError(rule, file=plan.file, field="rubric_id", hint=f"there are {names}")
        if plan.derive is None or name in authored_rubrics:
            unguided = authored_rubrics[name]
        else:
            unguided = derived(item, plan.derive)
        rubric = guided(unguided, item)
        earlier = rubrics.setdefault(name, rubric)
        if earlier.criteria != rubric.criteria:
            rule = f"item '{item['item_id']}' shares rubric '{name}' with another that carries a different answer"
            raise InputError(rule, field="rubric_id", hint="leave rubric_id out where rubrics are derived")
        if name in authored_rubrics and earlier.text != rubric.text:
            rule = (
                f"item '{item['item_id']}' shares rubric '{name}' with another that carries a different scoring guide"
            )
            raise InputError(rule, field="rubric_text", hint="give each guide a rubric of its own")
        if plan.induce and name in authored_rubrics and not rubric.text.strip():
            raise InputError(f"rubric '{name}': has no prose that criteria could be made of", file=plan.file)
    return rubrics


def guided(rubric: Rubric, item: Mapping[str, Any]) -> Rubric:
    """The rubric with the scoring guide that an item carries after its author's own prose."""
    guide = (item.get("rubric_text") or "").strip()
    if not guide:
        return rubric
    prose = rubric.text.strip()
    return rubric.model_copy(update={"text": f"{prose}\n\n{guide}" if prose else guide})


def derived(item: Mapping[str, Any], plan: Derived) -> Rubric:
    """A rubric of the criteria that the item lists, or of gold points: the sentences of its reference answer, or its
    key elements with their weights.

    Besides gold points, misconceptions that the item lists cost marks, each as much as a point of weight 1 earns.
    InputError for an item that carries none of what the plan names, or a plan that makes an unusable rubric of it.
    """
    listed = plan.origin == "criteria"
    criteria = _listed(item, plan) if listed else _points(item, plan)
    if not criteria:
        raise InputError(f"item '{item['item_id']}' has no {plan.origin.replace('_', ' ')} to make a rubric of")
    scale = plan.scale
    if scale is None:  # from 0 to what the criteria can earn, in steps of which that is a multiple
        weights = [criterion.weight for criterion in criteria if criterion.parent is None and criterion.weight > 0]
        top = round(math.fsum(weights), 9)
        steps = top / plan.step
        if steps < 1 or abs(steps - round(steps)) > SLACK:
            allowed = "whole number from 1" if plan.step == 1 else f"multiple of the step {plan.step:g}"
            rule = f"item '{item['item_id']}' bears {top:g} marks, which is no {allowed}"
            raise InputError(rule, field="rubrics.derive", hint="give derive a scale")
        scale = Scale(min=0, max=top, step=plan.step)
    low, high, step = scale.bounds
    trait = Trait(id="content", name="Content", min=low, max=high, step=step)
    rubric = Rubric(
        rubric_id=item["rubric_id"],
        title=item["question"][:200],
        text="" if listed else item["reference_answer"] or "",
        scale=scale,
        traits=(trait,),
        criteria=criteria,
    )
    problem = broken(rubric)
    if problem:
        raise InputError(f"derived rubric '{rubric.rubric_id}': {problem}", field="rubrics.derive")
    return rubric


def _listed(item: Mapping[str, Any], plan: Derived) -> tuple[Criterion, ...]:
    """The criteria that an item lists, sub-points with their parents."""
    criteria = []
    for listed in item.get("criteria") or []:
        point = _point(listed["id"], listed["text"], plan, listed["weight"])
        levels = tuple(listed["levels"]) or plan.levels
        criteria.append(point.model_copy(update={"parent": listed["parent"], "levels": levels}))
    return tuple(criteria)


def _points(item: Mapping[str, Any], plan: Derived) -> tuple[Criterion, ...]:
    """Gold points and misconceptions of an item; none without a gold point."""
    if plan.origin == "reference_answer" and (answers := item.get("reference_answers")):
        points = [" — or: ".join(" ".join(answer.split()) for answer in answers)]  # of answers each as good, one point
    elif plan.origin == "reference_answer":
        answer = item["reference_answer"] or ""
        points = [answer[unit.start : unit.end] for unit in units(answer) if unit.kind == "sentence"]
    else:
        points = [element.strip() for element in item["key_elements"]]
    weights = (plan.origin == "key_elements" and item.get("key_weights")) or [1.0] * len(points)
    if not any(points):
        return ()
    if len(weights) != len(points):
        raise InputError(f"item '{item['item_id']}' has {len(points)} key elements, but {len(weights)} weights")
    weighted = [(point, weight) for point, weight in zip(points, weights, strict=True) if point]
    mistakes = item.get("misconceptions") or []
    criteria = [_point(f"P{number}", point, plan, weight) for number, (point, weight) in enumerate(weighted, 1)]
    for number, text in enumerate(mistakes, 1):
        criteria.append(Criterion(id=f"M{number}", trait="content", text=text, kind="misconception", weight=-1))
    return tuple(criteria)


def _point(name: str, text: str, plan: Derived, weight: float) -> Criterion:
    settings = {"kind": plan.kind, "levels": plan.levels, "evidence": plan.evidence, "weight": weight}
    return Criterion.model_validate({"id": name, "trait": "content", "text": text} | settings)


def parted(rubric: Rubric) -> tuple[tuple[Criterion, ...], tuple[Criterion, ...]]:
    """The criteria that raters decide, and those that are made of their sub-points, each in the rubric's order."""
    parents = {criterion.parent for criterion in rubric.criteria}
    decided = tuple(criterion for criterion in rubric.criteria if criterion.id not in parents)
    return decided, tuple(criterion for criterion in rubric.criteria if criterion.id in parents)


def broken(rubric: Rubric, induced: bool = False) -> str | None:
    """What makes a rubric unusable, in words; None for a sound one.

    induced: its criteria will be made of its prose.
    """
    traits = [trait.id for trait in rubric.traits]
    ids = [criterion.id for criterion in rubric.criteria]
    if not induced and not (traits and ids):
        return "has no trait" if not traits else "has no criterion"
    for name, values in (("trait", traits), ("criterion", ids)):
        repeated = sorted({value for value in values if values.count(value) > 1})
        if repeated:
            return f"{name} id '{repeated[0]}' is given twice"
    distinct_ids = set(ids)
    for criterion in rubric.criteria:
        problem = _broken_criterion(criterion, traits, distinct_ids)
        if problem:
            return f"criterion '{criterion.id}' {problem}"
    for composite in parted(rubric)[1]:
        problem = _broken_composite(composite, [c for c in rubric.criteria if c.parent == composite.id])
        if problem:
            return f"criterion '{composite.id}' {problem}"
    for number, example in enumerate(() if induced else rubric.examples, 1):
        problem = _broken_example(example, parted(rubric)[0])
        if problem:
            return f"example {number} {problem}"
    for anchored in rubric.traits:
        if _repeats(anchor.score for anchor in anchored.anchors):
            return f"trait '{anchored.id}' has overlapping anchors: two describe the same score"
        if _repeats(_folded(anchor.text) for anchor in anchored.anchors):
            return f"trait '{anchored.id}' has overlapping anchors: two read the same"
    derived_traits = set() if induced else {trait.id for trait in rubric.traits if trait.source == "derived"}
    for trait in sorted(derived_traits - {criterion.trait for criterion in rubric.criteria}):
        return f"trait '{trait}' is derived but no criterion counts for it"
    counted_traits = {criterion.trait for criterion in rubric.criteria if criterion.weight}
    for trait in sorted({criterion.trait for criterion in rubric.criteria} - counted_traits):
        return f"trait '{trait}' has no criterion with another weight than 0"
    try:
        TopologicalSorter({point.id: {point.parent} - {None} for point in rubric.criteria}).prepare()
    except CycleError as circle:
        return f"criterion '{min(circle.args[1])}' descends from a circle of parents"
    return broken_counts(rubric) or broken_exclusion(rubric)


def _broken_criterion(criterion: Criterion, traits: Collection[str], ids: AbstractSet[str]) -> str | None:
    others = {criterion.parent, *criterion.excludes} - {None}
    if criterion.trait not in traits:
        return f"counts for an unknown trait '{criterion.trait}'"
    if criterion.id in others:
        return "refers to itself"
    if others - ids:
        return f"refers to unknown criteria {sorted(map(str, others - ids))}"
    if len(criterion.levels) < 2:
        return "needs at least two levels"
    if _repeats(map(_folded, criterion.levels)):
        return "has overlapping levels: two read the same"
    if criterion.weight == 0 and criterion.parent is not None:
        return "is a sub-point with weight 0 and can change nothing"
    if not math.isfinite(criterion.weight):
        return "has a weight that is no finite number"
    return None


def _broken_composite(criterion: Criterion, sub_points: Sequence[Criterion]) -> str | None:
    if criterion.weight == 0:
        return "has sub-points, whose points are parts of its weight, but weight 0"
    if strangers := [point.id for point in sub_points if point.trait != criterion.trait]:
        return f"counts for another trait than its sub-point '{strangers[0]}'"
    if all(point.weight * criterion.weight < 0 for point in sub_points):
        return "can never be reached: all its sub-points count against it"
    return None


def _broken_example(example: Example, decided: Sequence[Criterion]) -> str | None:
    tops = {criterion.id: criterion.top for criterion in decided}
    for name, label in example.labels.items():
        if name not in tops:
            return f"labels '{name}', which is no criterion that raters decide"
        if label.level > tops[name]:
            return f"labels criterion '{name}' with level {label.level}, off its scale 0 to {tops[name]}"
    return None


def _folded(text: str) -> str:
    """A text as people compare it."""
    return " ".join(text.casefold().split())


def _repeats(values: Iterable[object]) -> bool:
    """Whether a value occurs twice."""
    occurrences = list(values)
    return len(set(occurrences)) < len(occurrences)


# What criteria say of each other, counts and exclusions, and whether it can work.


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
    count = criterion.count
    if counted and sub_points and not (count and set(count.points) <= {0, count.points[-1]}):
        return "is counted, but can be met in part: it has sub-points and no count of all or nothing"
    if count is None:
        return None
    if not sub_points:
        return "has a count but no sub-points to count"
    if not math.isclose(abs(criterion.weight), count.points[-1]):
        return f"weighs {criterion.weight:g}, but its count ends at {count.points[-1]:g} points"
    unit = math.copysign(1.0, criterion.weight)
    for point in sub_points:
        if point.weight != unit:
            return f"counts its sub-points, each as one: the weight of '{point.id}' is {unit:g}, not {point.weight:g}"
        if point.count is None and (count.least or 0) > point.top:
            return f"counts from level {count.least}, which its sub-point '{point.id}' does not have"
    most, ids = together(sub_points, counted=True), {point.id for point in sub_points}
    if len(count.points) - 1 > most:
        return f"has points for {len(count.points) - 1} sub-points, of which {most:g} can be met"
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
    ordered = sorted(rubric.criteria, key=lambda criterion: criterion.parent or "")
    try:
        for _, siblings in groupby(ordered, key=lambda criterion: criterion.parent or ""):
            alternatives(tuple(siblings))
    except ContractError as error:
        return str(error)
    return None


def _above(name: str, parents: Mapping[str, str | None]) -> set[str]:
    """A criterion's parents."""
    above = set()
    parent = parents[name]
    while parent is not None:
        above.add(parent)
        parent = parents[parent]
    return above
