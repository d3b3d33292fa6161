"""What a judge's prompt says of what its scores mean, and what is missing where it says nothing.

A protocol's prompt shows parts of a rubric (tasks/grading/judge/prompts): what is asked for has to stand on one of
these.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Scale
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.grading.lock.shape import GENERAL, SUBSCORES

_NUMBER = re.compile(r"(?<![\w.,])-?\d+(?:[.,]\d+)?(?![\w])")
_WORD = re.compile(r"[^\W\d_]{2,}|[\u3400-\u9fff]")
_EXPLAINED = frozenset(GENERAL).union(*SUBSCORES.values())
"""Subscores of which the prompt says what they look at."""
_WRITE = "describe the scores in the rubric's text (Score 3: ...), or map the raters' guide to items.rubric_text"


class Remark(NamedTuple):
    """What a prompt lacks."""

    text: str
    """`field: what is missing; what to write`."""
    blind: bool
    """Whether nothing at all says what the numbers mean, so that replies can only be guesses."""


def unexplained(bundle: Bundle) -> list[Remark]:
    """What the prompts of a bundle's protocol ask for without saying what it means, in the order of what is asked: the
    score on the scale, the judged traits, the criteria."""
    registered = PROTOCOLS[bundle.protocol.name]
    if registered.is_trained:
        return []
    remarks: list[Remark] = []
    if registered.final_score == "judged":
        remarks += _score(bundle)
    if "traits" in registered.decides:
        remarks += _traits(bundle)
    leveled = registered.quotes == "criteria" and registered.shape == "as_written"
    for criterion in bundle.criteria:
        remarks += _criterion(criterion, leveled)
    return remarks


def untyped(bundle: Bundle, item_types: Collection[str]) -> list[Remark]:
    """That the subscores are the general ones, where the items' type has none of its own."""
    judged = tuple(trait.id for trait in bundle.traits if trait.source == "judged")
    if PROTOCOLS[bundle.protocol.name].shape != "points" or judged != GENERAL:
        return []
    types = " or ".join(f"'{name}'" for name in SUBSCORES)
    problem = f"item type: no subscores are known for it, so the general ones are asked for ({', '.join(GENERAL)})"
    return [Remark(f"{problem}; name traits with source: judged, or map items.type to {types}", False)]


def _score(bundle: Bundle) -> Iterator[Remark]:
    """The score that the judge states: by prose that names scores, by anchors, or by points that are counted."""
    low, high, _ = bundle.scale.bounds
    question = f"{bundle.protocol.name} asks for one score from {low:g} to {high:g}"
    if _names(bundle.text, bundle.scale) or any(trait.anchors for trait in bundle.traits) or _counts(bundle):
        return
    if not bundle.text.strip():
        yield Remark(f"text: {question}, and its prompt says of no score what it means; {_WRITE}", True)
    else:
        yield Remark(f"text: {question}, and the prose names fewer than two scores; {_WRITE}", False)


def _counts(bundle: Bundle) -> bool:
    """Whether all that is not a sub-point is counted, which the prompt says beside the scale."""
    return all(criterion.count for criterion in bundle.whole)


def _traits(bundle: Bundle) -> Iterator[Remark]:
    """The traits that the judge scores: by their anchors, by the prose, or as published subscores."""
    registered, prose = PROTOCOLS[bundle.protocol.name], bundle.text.strip()
    explained = _EXPLAINED if registered.shape == "points" else frozenset()
    judged = [trait for trait in bundle.traits if trait.source == "judged" and trait.id not in explained]
    bare = [trait for trait in judged if not trait.anchors and not _names(prose, trait)]
    if not bare:
        return
    listed = registered.quotes is None and all(any(bundle.of_trait(trait.id)) for trait in bare)  # what makes each up
    missing = "the prose names fewer than two of these" if prose else "its prompt says of none what it means"
    names = ", ".join(trait.id for trait in bare)
    problem = f"traits {names}: {bundle.protocol.name} asks for a score of each, and {missing}"
    yield Remark(f"{problem}; give them anchors, or {_WRITE}", not prose and not listed)


def _criterion(criterion: Criterion, leveled: bool) -> Iterator[Remark]:
    """A criterion: by its text, and by the words of its levels where these are shown. A point of a model answer may be
    one word: what is asked is whether it is said."""
    if criterion.kind not in ("gold_point", "misconception") and len(tokens(criterion.text)) < 2:
        yield Remark(f"{criterion.id}: its text is a name, no statement; say what a response does that meets it", False)
    if leveled and not any(_WORD.search(level) for level in criterion.levels):
        numbered = ", ".join(criterion.levels)
        yield Remark(f"{criterion.id}: its levels ({numbered}) are numbers alone; say what each looks like", False)


def _names(prose: str, scale: Scale) -> bool:
    """Whether a text names two scores of a scale, or more."""
    numbers = {float(number.replace(",", ".")) for number in _NUMBER.findall(prose)}
    steps = {number: (number - scale.min) / scale.step for number in numbers if scale.min <= number <= scale.max}
    return sum(abs(step - round(step)) < 1e-6 for step in steps.values()) >= 2
