"""Rubrics: written by a person in YAML, or made from what an item carries."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Criterion, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.composite import alternatives, excluding, together
from rubricflow.tasks.core.contracts.errors import ContractError, InputError
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.study import Derived, RubricSettings
from rubricflow.tasks.core.contracts.settings.written import composed, parse, position, read_yaml
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.grading.lock.reference import ReferenceChoice, ReferencePoint, reference_points


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
    """Where in a file of rubrics a problem stands: at the criterion or trait that it begins with, the last of that id,
    or at the rubric."""
    criteria = [one.id for one in rubric.criteria]
    traits = [one.id for one in rubric.traits]
    for key, word, ids in (("criteria", "criterion", criteria), ("traits", "trait", traits)):
        at = [i for i, name in enumerate(ids) if re.match(rf"{word} (id )?'{re.escape(name)}' ", problem)]
        if at:
            return ["rubrics", number, key, at[-1]]
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
        is_authored = name in authored_rubrics
        if not is_authored and plan.derive is None:
            rule = f"item '{item['item_id']}' names an unknown rubric '{name}'"
            names = ", ".join(authored_rubrics)
            raise InputError(rule, file=plan.file, field="rubric_id", hint=f"there are {names}")
        unguided = authored_rubrics[name] if is_authored or plan.derive is None else derived(item, plan.derive)
        rubric = guided(unguided, item)
        earlier = rubrics.setdefault(name, rubric)
        shares = f"item '{item['item_id']}' shares rubric '{name}' with another that carries a different"
        if earlier.criteria != rubric.criteria:
            hint = "leave rubric_id out where rubrics are derived"
            raise InputError(f"{shares} answer", field="rubric_id", hint=hint)
        if is_authored and earlier.text != rubric.text:
            hint = "give each guide a rubric of its own"
            raise InputError(f"{shares} scoring guide", field="rubric_text", hint=hint)
        if plan.induce and is_authored and not rubric.text.strip():
            raise InputError(f"rubric '{name}': has no prose that criteria could be made of", file=plan.file)
    return rubrics


def guided(rubric: Rubric, item: Mapping[str, Any]) -> Rubric:
    """The rubric with the scoring guide that an item carries after its author's own prose, once: what
    `rubric revise` writes holds it."""
    guide = (item.get("rubric_text") or "").strip()
    prose = rubric.text.strip()
    if not guide or f"\n\n{prose}".endswith(f"\n\n{guide}"):
        return rubric
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
            rule = f"item '{item['item_id']}' bears {top:g} marks, which is no multiple of the step {plan.step:g}"
            raise InputError(rule, field="rubrics.derive", hint="give derive a scale")
        scale = Scale(min=0, max=top, step=plan.step)
    low, high, step = scale.bounds
    rubric = Rubric(
        rubric_id=item["rubric_id"],
        title=item["question"][:200],
        text="" if listed else item["reference_answer"] or "",
        scale=scale,
        traits=(Trait(id="content", name="Content", min=low, max=high, step=step),),
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
        earns = () if listed["levels"] else plan.earns
        criteria.append(point.model_copy(update={"parent": listed["parent"], "levels": levels, "earns": earns}))
    return tuple(criteria)


def _points(item: Mapping[str, Any], plan: Derived) -> tuple[Criterion, ...]:
    """Gold points and misconceptions of an item; none without a gold point."""
    choices: list[ReferenceChoice] = []
    if plan.origin == "key_elements":
        elements = item["key_elements"]
        weights = item.get("key_weights") or [1.0] * len(item["key_elements"])
        if len(weights) != len(elements):
            raise InputError(f"item '{item['item_id']}' has {len(elements)} key elements, but {len(weights)} weights")
        points = [ReferencePoint(text.strip(), weight) for text, weight in zip(elements, weights, strict=True)]
    elif answers := item.get("reference_answers"):
        points = [ReferencePoint(" — or: ".join(" ".join(answer.split()) for answer in answers))]  # each as good
    else:
        points, choices = reference_points(item["reference_answer"] or "", item["question"])
    points = [point for point in points if point.text]
    if not points:
        return ()
    criteria = []
    for number, choice in enumerate(choices, 1):
        count = {"points": range(choice.most + 1)}
        whole = {"id": f"K{number}", "trait": "content", "text": choice.text, "weight": choice.most, "count": count}
        criteria.append(Criterion.model_validate(whole))
    for number, point in enumerate(points, 1):
        criterion = _point(f"P{number}", point.text, plan, point.weight)
        if point.of is not None:  # one of several is said or not
            levels = (plan.levels[0], plan.levels[-1])
            criterion = criterion.model_copy(update={"parent": f"K{point.of + 1}", "levels": levels, "earns": ()})
        criteria.append(criterion)
    for number, text in enumerate(item.get("misconceptions") or [], 1):
        criteria.append(Criterion(id=f"M{number}", trait="content", text=text, kind="misconception", weight=-1))
    return tuple(criteria)


def _point(name: str, text: str, plan: Derived, weight: float) -> Criterion:
    settings = plan.model_dump(include={"kind", "levels", "earns", "evidence"}) | {"weight": weight}
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
    return next(_problems(rubric, induced), None)


def _problems(rubric: Rubric, induced: bool) -> Iterator[str]:
    """All that makes a rubric unusable, the first first: what comes later takes for granted that it is not there."""
    traits, criteria = rubric.traits, rubric.criteria
    if not induced and not (traits and criteria):
        yield "has no criterion" if traits else "has no trait"
    for name, ids in (("trait", [trait.id for trait in traits]), ("criterion", [one.id for one in criteria])):
        yield from (f"{name} id '{id_}' is given twice" for id_, times in sorted(Counter(ids).items()) if times > 1)
    parts: dict[str | None, list[Criterion]] = {}
    for criterion in criteria:
        parts.setdefault(criterion.parent, []).append(criterion)
    for criterion in criteria:
        yield from (f"criterion '{criterion.id}' {problem}" for problem in _of_criterion(criterion, rubric))
    for criterion in criteria:
        problems = _of_composite(criterion, parts.get(criterion.id, []))
        yield from (f"criterion '{criterion.id}' {problem}" for problem in problems)
    tops = {criterion.id: criterion.top for criterion in criteria if criterion.id not in parts}
    for number, example in enumerate(() if induced else rubric.examples, 1):
        for name, label in example.labels.items():
            if name not in tops:
                yield f"example {number} labels '{name}', which is no criterion that raters decide"
            elif label.level > tops[name]:
                scale = f"off its scale 0 to {tops[name]}"
                yield f"example {number} labels criterion '{name}' with level {label.level}, {scale}"
    for trait in traits:
        if _repeats(anchor.score for anchor in trait.anchors):
            yield f"trait '{trait.id}' has overlapping anchors: two describe the same score"
        if _repeats(_folded(anchor.text) for anchor in trait.anchors):
            yield f"trait '{trait.id}' has overlapping anchors: two read the same"
    counted = {one.trait for one in criteria}
    weighing = {one.trait for one in criteria if one.weight}
    derived_traits = set() if induced else {trait.id for trait in traits if trait.source == "derived"}
    yield from (
        f"trait '{name}' is derived but no criterion counts for it" for name in sorted(derived_traits - counted)
    )
    yield from (f"trait '{name}' has no criterion with another weight than 0" for name in sorted(counted - weighing))
    try:
        TopologicalSorter({point.id: {point.parent} - {None} for point in criteria}).prepare()
    except CycleError as circle:
        yield f"criterion '{min(circle.args[1])}' descends from a circle of parents"
    counting = {criterion.id for criterion in criteria if criterion.count}
    for criterion in criteria:
        problems = _of_count(criterion, parts.get(criterion.id, []), criterion.parent in counting)
        yield from (f"criterion '{criterion.id}' {problem}" for problem in problems)
    yield from _of_exclusions(rubric)


def _of_criterion(criterion: Criterion, rubric: Rubric) -> Iterator[str]:
    others = {criterion.parent, *criterion.excludes} - {None}
    unknown = others - {one.id for one in rubric.criteria}
    if all(criterion.trait != trait.id for trait in rubric.traits):
        yield f"counts for an unknown trait '{criterion.trait}'"
    if criterion.id in others:
        yield "refers to itself"
    if unknown:
        yield f"refers to unknown criteria {sorted(map(str, unknown))}"
    if len(criterion.levels) < 2:
        yield "needs at least two levels"
    if _repeats(map(_folded, criterion.levels)):
        yield "has overlapping levels: two read the same"
    if earns := criterion.earns:
        rises = all(less <= more for less, more in pairwise(earns)) and (earns[0], earns[-1]) == (0, 1)
        if len(earns) != len(criterion.levels) or not rises:
            shares = ", ".join(f"{share:g}" for share in earns)
            yield f"earns {shares}: give a share of its weight for each of its levels, which rise from 0 to 1"
    if criterion.weight == 0 and criterion.parent is not None:
        yield "is a sub-point with weight 0 and can change nothing"
    if not math.isfinite(criterion.weight):
        yield "has a weight that is no finite number"


def _of_composite(criterion: Criterion, sub_points: Sequence[Criterion]) -> Iterator[str]:
    if sub_points and criterion.weight == 0:
        yield "has sub-points, whose points are parts of its weight, but weight 0"
    if sub_points and criterion.earns:
        yield "earns nothing by a level of its own: it is made of its sub-points"
    for point in sub_points:
        if point.trait != criterion.trait:
            yield f"counts for another trait than its sub-point '{point.id}'"
    if sub_points and all(point.weight * criterion.weight < 0 for point in sub_points):
        yield "can never be reached: all its sub-points count against it"


def _folded(text: str) -> str:
    """A text as people compare it."""
    return " ".join(text.casefold().split())


def _repeats(values: Iterable[object]) -> bool:
    return max(Counter(values).values(), default=0) > 1


# What criteria say of each other, counts and exclusions, and whether it can work.


def _of_count(criterion: Criterion, sub_points: Sequence[Criterion], counted: bool) -> Iterator[str]:
    """counted: whether its parent counts it."""
    count = criterion.count
    if counted and sub_points and not (count and set(count.points) <= {0, count.points[-1]}):
        yield "is counted, but can be met in part: it has sub-points and no count of all or nothing"
    if count is None:
        return
    if not sub_points:
        yield "has a count but no sub-points to count"
    if not math.isclose(abs(criterion.weight), count.points[-1]):
        yield f"weighs {criterion.weight:g}, but its count ends at {count.points[-1]:g} points"
    unit = math.copysign(1.0, criterion.weight)
    for point in sub_points:
        if point.weight != unit:
            yield f"counts its sub-points, each as one: the weight of '{point.id}' is {unit:g}, not {point.weight:g}"
        if point.earns:
            yield f"counts whether '{point.id}' is met, which then earns nothing by its level"
        if point.count is None and (count.least or 0) > point.top:
            yield f"counts from level {count.least}, which its sub-point '{point.id}' does not have"
    most = together(sub_points, counted=True)
    ids = {point.id for point in sub_points}
    if len(count.points) - 1 > most:
        yield f"has points for {len(count.points) - 1} sub-points, of which {most:g} can be met"
    bound = {point.id for point in chain.from_iterable(excluding(sub_points))}
    for name in count.needs:
        if name not in ids or count.needs.count(name) > 1:
            yield f"needs '{name}', which is {'named twice' if name in ids else 'none of its sub-points'}"
        if name in bound:
            yield f"needs '{name}', which excludes another of its sub-points"


def _of_exclusions(rubric: Rubric) -> Iterator[str]:
    """What is wrong with the exclusions of a rubric, whose parents are no circle."""
    parents = {criterion.id: criterion.parent for criterion in rubric.criteria}

    def above(name: str | None) -> Iterator[str]:
        while (name := parents[str(name)]) is not None:
            yield name

    for first, second in excluding(rubric.criteria):
        both = f"criteria '{first.id}' and '{second.id}' exclude each other"
        if second.id in above(first.id) or first.id in above(second.id):
            yield f"{both}, but one is a part of the other"
        side_by_side = (first.trait, first.parent) == (second.trait, second.parent)
        if first.weight * second.weight > 0 and not side_by_side:
            verb = "earn" if first.weight > 0 else "cost"
            yield f"{both} and both {verb}: then they stand in one trait and under one parent, or under none"
    ordered = sorted(rubric.criteria, key=lambda criterion: criterion.parent or "")
    try:
        for _, siblings in groupby(ordered, key=lambda criterion: criterion.parent or ""):
            alternatives(tuple(siblings))
    except ContractError as error:
        yield str(error)
