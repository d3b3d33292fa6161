"""Rubrics: written by a person in YAML, or made from what an item carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tasks.contracts.bundle import Criterion, Rubric, Scale, Trait
from tasks.contracts.errors import InputError
from tasks.contracts.study import Derived, parse, read_yaml
from tasks.contracts.table import Frozen
from tasks.text.units import units


class RubricFile(Frozen):
    """A YAML file of authored rubrics."""

    rubrics: tuple[Rubric, ...]


def authored(path: Path) -> dict[str, Rubric]:
    """Authored rubrics by id; InputError names the file, the field and the rule."""
    found: dict[str, Rubric] = {}
    for rubric in parse(RubricFile, read_yaml(path), path).rubrics:
        if rubric.rubric_id in found:
            raise InputError(f"rubric '{rubric.rubric_id}' is given twice", file=path, field="rubric_id")
        problem = broken(rubric)
        if problem:
            raise InputError(f"rubric '{rubric.rubric_id}': {problem}", file=path)
        found[rubric.rubric_id] = rubric
    return found


def derived(item: dict[str, Any], plan: Derived) -> Rubric:
    """A rubric whose gold points are the sentences of the item's reference answer, or its key elements, all of weight 1.

    InputError for an item that carries none.
    """
    if plan.origin == "reference_answer":
        answer = item["reference_answer"] or ""
        points = [answer[u.start : u.end] for u in units(answer) if u.kind == "sentence"]
    else:
        points = [element.strip() for element in item["key_elements"] if element.strip()]
    if not points:
        raise InputError(f"item '{item['item_id']}' has no {plan.origin.replace('_', ' ')} to make a rubric of")
    low, high, step = plan.scale.bounds
    return Rubric(
        rubric_id=item["rubric_id"],
        title=item["question"][:200],
        text=item["reference_answer"] or "",
        scale=plan.scale,
        traits=(Trait(id="content", name="Content", min=low, max=high, step=step),),
        criteria=tuple(
            Criterion(id=f"P{n}", trait="content", text=point, kind=plan.kind, levels=plan.levels, evidence=plan.evidence)
            for n, point in enumerate(points, 1)
        ),
    )


def broken(rubric: Rubric) -> str | None:
    """What makes a rubric unusable, in words; None for a sound one."""
    traits = [trait.id for trait in rubric.traits]
    ids = [criterion.id for criterion in rubric.criteria]
    if not traits or not ids:
        return "has no trait" if not traits else "has no criterion"
    for name, values in (("trait", traits), ("criterion", ids)):
        repeated = sorted({value for value in values if values.count(value) > 1})
        if repeated:
            return f"{name} id '{repeated[0]}' is given twice"
    for criterion in rubric.criteria:
        unknown = {criterion.parent, *criterion.excludes} - {None, *ids}
        if criterion.trait not in traits:
            return f"criterion '{criterion.id}' counts for an unknown trait '{criterion.trait}'"
        if unknown or criterion.id in {criterion.parent, *criterion.excludes}:
            return f"criterion '{criterion.id}' refers to {sorted(map(str, unknown)) or 'itself'}"
        if len(criterion.levels) < 2:
            return f"criterion '{criterion.id}' needs at least two levels"
        folded = [" ".join(level.casefold().split()) for level in criterion.levels]
        if len(set(folded)) < len(folded):
            return f"criterion '{criterion.id}' has overlapping levels: two read the same"
        if criterion.weight == 0:
            return f"criterion '{criterion.id}' has weight 0 and can change nothing"
    parents = {criterion.id: criterion.parent for criterion in rubric.criteria}
    for start in ids:
        seen, at = {start}, parents[start]
        while at is not None:
            if at in seen:
                return f"criterion '{start}' is its own ancestor"
            seen.add(at)
            at = parents[at]
    derived_traits = {trait.id for trait in rubric.traits if trait.source == "derived"}
    for trait in sorted(derived_traits - {criterion.trait for criterion in rubric.criteria}):
        return f"trait '{trait}' is derived but no criterion counts for it"
    return None


def refuse_off_scale(gradings: Iterable[Mapping[str, Any]], scales: Mapping[str, Scale]) -> None:
    """InputError for the first human score that lies outside the scale of its item's rubric."""
    for row in gradings:
        scale = scales[row["item_id"]]
        if row["score"] is not None and not scale.min <= row["score"] <= scale.max:
            raise InputError(
                f"rater '{row['rater_id']}' gave response '{row['response_id']}' {row['score']:g}, off the scale "
                f"{scale.min:g} to {scale.max:g} of item '{row['item_id']}'",
                field="score",
            )
