"""GradeAgentOps' contract as a model sees it: the JSON Schema, the form by example, and the prompt's parts."""

from __future__ import annotations

from itertools import chain
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale, Trait
from rubricflow.tasks.core.llm.request import Message, cached_by_identity
from rubricflow.tasks.core.llm.schema import form, record, several
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge.memory import numbered
from rubricflow.tasks.grading.judge.protocols.gradeagentops.claims import STATUSES, Demand, everything
from rubricflow.tasks.grading.judge.schema import PROSE, QUOTE

DIMENSIONS = {
    "accuracy": "what is said is right, and nothing important in it is wrong",
    "clarity": "it can be followed at the first reading",
    "completeness": "how much of what was expected is there; it goes with the covered points",
    "terminology": "the words of the field are used, and used in their sense",
    "coherence": "the steps of the argument follow from one another",
    "originality": "there are thoughts or examples of the student's own",
    "dialecticality": "other views are weighed, not only one's own stated",
}
"""What the published subscores look at, in our words."""
_ORDER = ("points", "misconceptions", "rationale", "subscores", "final_score")
"""Evidence first and numbers last, so that a model scores after it has looked."""
_NOTHING = {"type": "string", "enum": [""]}


@cached_by_identity
def system(bundle: Bundle, question: str, context: str | None, reference: str | None) -> Message:
    rubric, demand = bundle, everything(bundle)
    low, high, step = rubric.scale.bounds
    prose = rubric.text.removeprefix(reference or "").strip()  # a derived rubric's prose begins with that answer
    dimensions = [_dimension(trait) for trait in demand.traits]
    values = {
        "question": question,
        "context": prompt.under("Material that belongs to the question:", context),
        "reference": prompt.under("A model answer:", reference),
        "rubric": prose,
        "points": _listed(rubric),
        "dimensions": "\n".join(dimensions),
        "scale": f"{low:g} to {high:g} in steps of {step:g}",
        "form": form(schema(rubric, demand)),
    }
    return Message("system", prompt.fill("gradeagentops", values, prompt.speaking(values)))


def schema(bundle: Bundle, demand: Demand) -> dict[str, Any]:
    """The contract of what is asked for: every point under its number, so that none can be left out or named twice,
    and a covered one with words. Every list and string is bounded, so that a model held to it ends."""
    points = numbered(bundle).points
    claims = {str(number): _claim(points[number]) for number in demand.points}
    number = {"type": "integer", "enum": [*demand.misconceptions]}
    misconception = record({"misconception": number, "quote": QUOTE})
    subscores = {trait.id: _score(trait) for trait in demand.traits}
    members = {
        "points": record(claims),
        "misconceptions": several(misconception, 0, len(demand.misconceptions)),
        "rationale": PROSE,
        "subscores": record(subscores),
        "final_score": _score(bundle.scale),
    }
    return record({name: members[name] for name in in_order(demand)})


def fields(bundle: Bundle, demand: Demand) -> tuple[str, ...]:
    """The fields asked for, a subscore at a time, and points as the criteria that they are."""
    points = numbered(bundle).points
    of_field = {
        "points": [points[number].id for number in demand.points],
        "subscores": [f"subscores.{trait.id}" for trait in demand.traits],
    }
    return tuple(chain.from_iterable(of_field.get(field, [field]) for field in in_order(demand)))


def in_order(demand: Demand) -> list[str]:
    """The names of the fields asked for, evidence before numbers."""
    return [name for name in _ORDER if name in demand.fields]


def plain(number: float) -> float | int:
    return int(number) if number.is_integer() else number


def _claim(point: Criterion) -> dict[str, Any]:
    """Schema of what is said of a point: whether it is covered, then by which words."""
    missed, covered = ({"status": {"type": "string", "enum": [status]}} for status in STATUSES)
    if point.evidence == "none":
        return record({"status": {"type": "string", "enum": [*STATUSES]}})
    return {"anyOf": [record({**missed, "quote": _NOTHING}), record({**covered, "quote": QUOTE})]}


def _score(scale: Scale) -> dict[str, Any]:
    scores = [plain(round(scale.min + scale.step * i, 12)) for i in range(scale.levels)]
    return {"type": "integer" if all(isinstance(score, int) for score in scores) else "number", "enum": scores}


def _listed(bundle: Bundle) -> str:
    """Points and misconceptions under the numbers by which the contract names them."""
    gold, banned, _ = numbered(bundle)
    lines = []
    if gold:
        lines += ["Expected points:", *(_line(n, c, bundle) for n, c in gold.items()), ""]
    if banned:
        lines += ["Misconceptions that cost marks:", *(_line(n, c, bundle) for n, c in banned.items()), ""]
    return "\n".join(lines)


def _line(number: int, criterion: Criterion, bundle: Bundle) -> str:
    weight = f" (weight {criterion.weight:g})" if bundle.protocol.show_weights else ""
    return f"{number}. {criterion.text}{weight}"


def _dimension(trait: Trait) -> str:
    low, high, step = trait.bounds
    looks = DIMENSIONS.get(trait.id, trait.name)
    anchors = "".join(f"; {anchor.score:g} = {anchor.text}" for anchor in trait.anchors)
    return f"- {trait.id}, {low:g} to {high:g} in steps of {step:g}: {looks}{anchors}"
