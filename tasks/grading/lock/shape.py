"""What a protocol makes of a rubric before it is locked, so that judging needs no rule beyond the bundle's."""

from __future__ import annotations

from collections.abc import Collection

from rubricflow.tasks.core.contracts.bundle import Criterion, Protocol, Rubric, Trait
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.grading.lock.rubric import parted

SUBSCORES = {
    "technical": ("accuracy", "clarity", "completeness", "terminology"),
    "argumentative": ("clarity", "coherence", "originality", "dialecticality"),
}
"""Item type → the traits that GradeAgentOps' judge scores (section 2.1)."""
GENERAL = ("accuracy", "clarity", "completeness")
"""What it scores of items of any other type: what both kinds of answers can be asked for, and nothing of one alone."""
COVERAGE = "coverage"


def shaped(rubric: Rubric, protocol: Protocol, item_types: Collection[str]) -> Rubric:
    """The rubric as the protocol judges it.

    points: criteria are covered or missed, sub-points each for itself, and the judge scores the rubric's judged traits,
    or those of its items' type on the rubric's scale, see `subscores`. judged_traits: the
    judge scores every trait. yes_no: every criterion is a question with yes or no. as_written: the rubric as it is.
    """
    match PROTOCOLS[protocol.name].shape:
        case "points":
            return _points(rubric, item_types)
        case "judged_traits":
            traits = tuple(trait.model_copy(update={"source": "judged"}) for trait in rubric.traits)
            return rubric.model_copy(update={"traits": traits})
        case "yes_no":
            return rubric.model_copy(update={"criteria": tuple(map(_question, rubric.criteria))})
        case "as_written":
            return rubric


def without_evidence(rubric: Rubric) -> Rubric:
    """The rubric with no demand for evidence."""
    criteria = tuple(criterion.model_copy(update={"evidence": "none"}) for criterion in rubric.criteria)
    return rubric.model_copy(update={"criteria": criteria})


def subscores(item_types: Collection[str]) -> tuple[str, ...]:
    """The published subscores where all items are of one published type, the general ones otherwise."""
    (name,) = item_types if len(item_types) == 1 else ("",)
    return SUBSCORES.get(name, GENERAL)


def _points(rubric: Rubric, item_types: Collection[str]) -> Rubric:
    judged = tuple(trait for trait in rubric.traits if trait.source == "judged")
    low, high, step = rubric.scale.bounds
    if not judged:
        names = subscores(item_types)
        judged = tuple(Trait(id=id_, name=id_.title(), min=low, max=high, step=step, source="judged") for id_ in names)
    coverage = Trait(id=COVERAGE, name="Coverage of the gold points", min=low, max=high, step=step)
    points = tuple(_point(criterion) for criterion in parted(rubric)[0])
    return rubric.model_copy(update={"traits": (*judged, coverage), "criteria": points})


def _question(criterion: Criterion) -> Criterion:
    """A criterion that is answered with yes or no, and met by a yes."""
    count = criterion.count and criterion.count.model_copy(update={"least": None})
    return criterion.model_copy(update={"levels": ("no", "yes"), "evidence": "none", "count": count})


def _point(criterion: Criterion) -> Criterion:
    """A criterion that is covered or missed, with a quote."""
    kind = "gold_point" if criterion.weight >= 0 else "misconception"
    levels = ("missed", "covered") if criterion.weight >= 0 else ("absent", "detected")
    point = {"trait": COVERAGE, "kind": kind, "levels": levels, "evidence": "local_quote", "parent": None}
    return criterion.model_copy(update=point)
