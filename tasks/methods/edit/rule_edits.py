"""Deterministic edits of a mark scheme, each with what becomes of every mark (section 3.4 and appendix E.1).

An edit is known by what becomes of every mark: an array from the old marks 0…M_q to the new ones. A mark of 0 stays 0
under all of them: where nothing is creditable there is nothing to shift, which is why the mean |Δgold| that the paper
gives for A1 is below 2. Levels (the paper leaves bands aside; ours): a mark moves as its level does, so that its place
in the band is kept. Points: marks are multiplied and rounded half up.

In the tests a scheme's prose is the printed scheme alone, with and without the edit: an author's prose may state marks,
which an edit would contradict. Where criteria or levels state marks themselves, the scheme is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale, Trait
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.rules import Family, RuleEdit, Totals
from rubricflow.tasks.methods.edit.rollout import bands, family, printed, refuse_counted, top_mark

EDITS: dict[Family, tuple[RuleEdit, ...]] = {"levels": ("A1", "A2", "B1"), "points": ("x0.5", "x1.5", "x2.0")}
FACTORS: dict[RuleEdit, float] = {"x0.5": 0.5, "x1.5": 1.5, "x2.0": 2.0}
"""What every point's value is multiplied by."""
_COUNTED = r"\d+(?:[.,/]\d+)?|\b(?:half an?|one|two|three|four|five|six|seven|eight|nine|ten)"
_MARKS = re.compile(rf"(?:{_COUNTED})[\s-]*(?:marks?\b|分(?![钟之]))|\bmarks?\s*[:=]\s*\d", re.IGNORECASE)

_BAND = re.compile(r"\b(\d+)(?:-(\d+))? marks?\b")


@dataclass(frozen=True)
class Edited:
    """A mark scheme after an edit."""

    edit: RuleEdit
    family: Family
    marks: tuple[int, ...]
    """New mark of every old mark 0…M_q; it never falls from one to the next."""
    bundle: Bundle
    """The scheme: weights, anchors, ranges, highest mark and prose."""
    bundle_id: str
    """Its id."""

    def row(
        self,
        rater_id: str,
        response_id: str,
        item_id: str,
        gold: int,
        predicted: tuple[float | None, float | None],
        totals: Totals,
    ) -> dict[str, Any]:
        """A row of `rule_tests`. gold: the human mark under the scheme as it was, 0…M_q; predicted: the grader's marks
        without and with the edit. InputError for a human mark off the scale."""
        if not 0 <= gold < len(self.marks):
            rule = f"response '{response_id}': a mark of {gold} is off the scale 0 to {len(self.marks) - 1}"
            raise InputError(rule, field="gold")
        return {
            "rater_id": rater_id,
            "edit": self.edit,
            "family": self.family,
            "response_id": response_id,
            "item_id": item_id,
            "bundle_id": self.bundle_id,
            "gold": gold,
            "gold_edited": self.marks[gold],
            "predicted": predicted[0],
            "predicted_edited": predicted[1],
            "top": len(self.marks) - 1,
            "top_edited": self.marks[-1],
            "totals": totals,
        }


def edits(bundle: Bundle) -> tuple[Edited, ...]:
    """A scheme after each edit of its family.

    InputError where points are counted, for marks that are not 0, 1, … M_q, for bands that do not hold every mark once,
    and where the words of a criterion, a level or an anchor state marks.
    """
    refuse_counted(bundle)
    for field, text in _words(bundle):
        if stated := _MARKS.search(text):
            rule = f"'{stated[0]}' in the words of the scheme would contradict an edit of its marks"
            raise InputError(rule, field=field, hint="marks belong in weights and in the scores of anchors")
    kind = family(bundle)
    return tuple(_edited(bundle, kind, edit) for edit in EDITS[kind])


def moved(bundle: Bundle, edit: RuleEdit) -> tuple[int, ...]:
    """What becomes of every mark 0…M_q of a scheme of the edit's family. InputError as in `edits`.

    A1: +2; A2: × 2; B1: +1 in the lowest level that is worth more than 0, +2 above; points: times the factor, rounded
    half up. 0 stays 0.
    """
    old = range(top_mark(bundle) + 1)
    if edit in FACTORS:
        return tuple(math.floor(mark * FACTORS[edit] + 0.5) for mark in old)
    first = next(end for _, end in _checked_bands(bundle) if end > 0)
    if edit == "A2":
        return tuple(2 * mark for mark in old)
    return tuple(mark and mark + (1 if edit == "B1" and mark <= first else 2) for mark in old)


def restated(bundle: Bundle) -> Bundle:
    """The scheme without an edit as the tests show it: the prose is the printed scheme, weights are marks, and a judge
    who states the total sees them."""
    protocol = bundle.protocol.model_copy(update={"show_weights": totals(bundle) == "stated"})
    earned = sum(criterion.weight for criterion in bundle.criteria if criterion.weight > 0)
    unit = bundle.scale.max / earned if earned else 1.0
    return bundle.model_copy(update={"text": printed(bundle), "protocol": protocol, **_weighted(bundle, unit)})


def totals(bundle: Bundle) -> Totals:
    """stated where a judge under this bundle gives the total itself, or the one trait that makes it; else summed."""
    judged = [trait for trait in bundle.traits if trait.source == "judged"]
    formula = bundle.protocol.final_score
    return "stated" if formula == "judged" or (len(judged) == 1 and formula != "weighted_points") else "summed"


def _edited(bundle: Bundle, kind: Family, edit: RuleEdit) -> Edited:
    marks, plain = moved(bundle, edit), restated(bundle)
    changed = _shifted(plain, marks) if kind == "levels" else _multiplied(plain, FACTORS[edit])
    new = changed.model_copy(update={"scale": Scale(min=0, max=marks[-1])})
    return Edited(edit, kind, marks, new, new.bundle_id)


def _multiplied(bundle: Bundle, factor: float) -> Bundle:
    """A points scheme with everything that is counted in marks multiplied, nothing rounded."""
    exact = bundle.model_copy(
        update={
            "scale": _times(bundle.scale, factor),
            "traits": tuple(_trait_times(trait, factor) for trait in bundle.traits),
            **_weighted(bundle, factor),
        }
    )
    return exact.model_copy(update={"text": printed(exact)})


def _shifted(bundle: Bundle, marks: Sequence[int]) -> Bundle:
    """A levels scheme with every mark replaced. Its bands may lie apart then, which anchors do not tell, so they are
    replaced as printed: no other words of it state marks."""
    (criterion,) = bundle.criteria

    def new_span(band: re.Match[str]) -> str:
        return _span(*(marks[int(mark)] for mark in band.groups() if mark))

    text, count = _BAND.subn(new_span, bundle.text)
    assert count == len(criterion.levels)  # or `edits` would have refused the scheme
    traits = [_trait_moved(trait, marks) if trait.id == criterion.trait else trait for trait in bundle.traits]
    weighted = _weighted(bundle, marks[-1] / bundle.scale.max)
    return bundle.model_copy(update={"traits": tuple(traits), "text": text, **weighted})


def _trait_moved(trait: Trait, marks: Sequence[int]) -> Trait:
    anchors = [anchor.model_copy(update={"score": float(marks[round(anchor.score)])}) for anchor in trait.anchors]
    return trait.model_copy(update={"min": 0.0, "max": float(marks[-1]), "step": 1.0, "anchors": tuple(anchors)})


def _trait_times(trait: Trait, factor: float) -> Trait:
    anchors = tuple(anchor.model_copy(update={"score": anchor.score * factor}) for anchor in trait.anchors)
    return trait.model_copy(update={"anchors": anchors, **_times(trait, factor).model_dump()})


def _times(scale: Scale, factor: float) -> Scale:
    return Scale(min=scale.min * factor, max=scale.max * factor, step=scale.step * factor)


def _weighted(bundle: Bundle, factor: float) -> dict[str, tuple[Criterion, ...]]:
    """Criteria and composites with their weights multiplied."""
    return {"criteria": _heavier(bundle.criteria, factor), "composites": _heavier(bundle.composites, factor)}


def _heavier(criteria: Sequence[Criterion], factor: float) -> tuple[Criterion, ...]:
    return tuple(criterion.model_copy(update={"weight": criterion.weight * factor}) for criterion in criteria)


def _span(low: int, high: int | None = None) -> str:
    """Marks as `printed` writes them."""
    if high is not None:
        return f"{low}-{high} marks"
    return f"{low} mark{'' if low == 1 else 's'}"


def _checked_bands(bundle: Bundle) -> list[tuple[int, int]]:
    """The bands of a levels scheme; InputError unless they hold every mark 0…M_q once."""
    checked, top = bands(bundle), top_mark(bundle)
    marks = chain.from_iterable(range(low, high + 1) for low, high in checked)
    if list(marks) != list(range(top + 1)):
        ends = ", ".join(str(high) for _, high in checked)
        rule = f"the levels end at {ends}: they do not part the marks 0 to {top}"
        raise InputError(rule, field="anchors", hint="the score of an anchor is the highest mark of its level")
    return checked


def _words(bundle: Bundle) -> Iterator[tuple[str, str]]:
    """(where it stands, text) of all that judges are shown beside the prose."""
    for criterion in bundle.criteria:
        for text in (criterion.text, *criterion.levels):
            yield f"criteria.{criterion.id}", text
    for trait in bundle.traits:
        yield f"traits.{trait.id}", trait.name
        for anchor in trait.anchors:
            yield f"traits.{trait.id}", anchor.text
