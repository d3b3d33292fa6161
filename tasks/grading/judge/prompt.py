"""Prompts: templates in prompts/*.txt, filled in one pass. Student text is data inside a fence that it cannot close."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.tables.data import TURN_KINDS
from rubricflow.tasks.core.llm.request import cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonObject
from rubricflow.tasks.core.text.digest import nonce
from rubricflow.tasks.core.text.templates import Templates
from rubricflow.tasks.core.text.tokens import names_scores
from rubricflow.tasks.core.text.traces import headings, of_trace
from rubricflow.tasks.core.text.units import Unit
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.schema import PLAIN, UnitNames, names_of

FOLDER = Path(__file__).with_name("prompts")
_DEMANDS = {
    "local_quote": "quote from one sentence",
    "span_level": "quote from one paragraph",
    "global_diagnostic": "a diagnostic statement about the whole response and a quote that supports it",
    "weakly_groundable": "a quote where there is one",
    "none": "no evidence needed",
}
_PLACES = re.compile("one (sentence|paragraph)")
_SOURCES = {"response": "", "response_and_context": ", of the response or of the material that belongs to the question"}


_TEMPLATES = Templates(FOLDER)
fill, placeholders = _TEMPLATES.fill, _TEMPLATES.placeholders


def system(
    bundle: Bundle,
    criteria: Sequence[Criterion],
    question: str,
    context: str | None,
    traits: Sequence[Trait] = (),
    name: str = "",
    *,
    schema: JsonObject | None = None,
    reference: str | None = None,
    examples: str = "",
) -> str:
    """The part that is the same, byte for byte, for every response of an item.

    traits: those to be scored; name: of the template, the protocol's own where not given; schema: of the answer, whose
    form is shown; reference: the model answer, and examples: worked ones, for templates that show them.
    """
    protocol = bundle.protocol
    prose = bundle.text.strip()
    units = names_of(bundle)
    # Prose speaks of all traits: one alone is shown it where nothing else says what its scores look like.
    is_described = criteria and all(trait.anchors for trait in traits)
    anchored = [trait for trait in bundle.traits if trait.anchors]
    leaf = contract.example_prefix(bundle)
    statements, described = [], []
    for criterion in criteria:
        levels_earn = f", its levels earn {_numbers(criterion.earns)} of it" if criterion.earns else ""
        weight = f" (weight {criterion.weight:g}{levels_earn})" if protocol.show_weights else ""
        statements.append(f"- {criterion.id}{weight}: {criterion.text}")
        levels = _in_order([f"{level} = {anchor}" for level, anchor in enumerate(criterion.levels)], protocol)
        described.append(f"- {criterion.id} [{criterion.kind}]{weight}: {criterion.text}")
        described.append(f"  levels: {'; '.join(levels)}")
        if PROTOCOLS[protocol.name].quotes is not None:
            demand = f"{_DEMANDS[criterion.evidence]}{_SOURCES[criterion.evidence_from]}"
            if units.turn:
                demand = _PLACES.sub("one turn or step", demand)
            if criterion.evidence_kind and criterion.evidence != "none":
                demand += f"; it counts only where it is {TURN_KINDS[criterion.evidence_kind]}"
            described.append(f"  evidence: {demand}")
    counts = list(_counts(bundle))
    values = {
        "question": question,
        "context": under("Material that belongs to the question:", context),
        "rubric": prose,
        "criteria": "\n".join(described),
        "statements": "\n".join(statements),
        "traits": "\n".join(_trait(trait, protocol) for trait in traits),
        "anchors": "\n".join(_trait(trait, protocol) for trait in anchored),
        "guidance": "" if is_described else prose,
        "unwritten": "" if names_scores(prose, *bundle.scale.bounds) else "\n".join([*described, *counts]),
        "scale": ". ".join([range_of(bundle.scale), *counts]),
        "range": range_of(bundle.scale),
        "reference": under("Reference answer:", reference),
        "examples": examples,
        "units": units.forms(),
        "cited": "turn or step" if units.turn else "sentence or paragraph",
        "form": contract.shown(schema, units) if schema else "",
        "leaf": leaf,
        "leaves": " ".join(
            f"[{units.name(f'{units.first}{n}')}] {sentence}" for n, sentence in enumerate(contract.EXAMPLE, 1)
        ),
        "example_points": contract.example(leaf, (2, 0, 0, 0), units),
        "example_concepts": contract.example(leaf, (1, 2), units),
    }
    demanded = "evidence" if any(c.evidence != "none" for c in criteria) else "bare"  # as `schema.fields` has it
    several = PROTOCOLS[protocol.name].criteria_per_call and protocol.criteria_per_call > 1
    own = f"{protocol.name}_several" if several else protocol.name
    scored = set() if traits else {"unscored"}
    rare = {"rare"} if protocol.top_is_rare else set()
    return fill(name or own, values, speaking(values) | {demanded} | scored | rare)


def under(heading: str, text: str | None) -> str:
    """A text under its heading, a blank line before it; nothing where the text says nothing."""
    return f"\n{heading}\n{text}\n" if text and text.strip() else ""


def speaking(values: Mapping[str, str]) -> frozenset[str]:
    """The values that say something: a template's section of such a name stands only then, so that none is empty."""
    return frozenset(name for name, value in values.items() if value.strip())


@partial(cached_by_identity, most=64)  # the calls about one response come one after the other
def response(text: str, units: Sequence[Unit], names: UnitNames = PLAIN) -> str:
    """The response, its sentences labelled with the names of their units, between fences with a nonce made from its own
    content; of a trace its turns and steps, every line of them marked, whatever breaks a line in it.

    The same response makes the same prompt; a response that held its own fence would have another nonce.
    """
    if turns := of_trace(units):
        shown = []
        for turn, (start, end) in zip(turns, headings(text), strict=True):
            shown.append(f"[{names.name(turn.unit_id)}, {text[start:end].partition(', ')[2]}")
            shown += [f"| {line}" for line in text[turn.start : turn.end].splitlines()]
        return fill("trace", {"nonce": nonce(text), "text": "\n".join(shown)})
    # A paragraph stands before the sentence that begins where it does: 'paragraph' < 'sentence'.
    ordered = sorted(units, key=lambda unit: (unit.start, unit.kind))
    lines = []
    for unit in ordered:
        words = f" {text[unit.start : unit.end]}" if unit.kind == "sentence" else ""
        lines.append(f"[{names.name(unit.unit_id)}]{words}")
    return fill("response", {"nonce": nonce(text), "text": "\n".join(lines)})


def answers(texts: Sequence[str]) -> str:
    """Answers that are judged together, numbered from 1, each as data between fences with a code made from all of them;
    every line is marked, whatever breaks a line in it."""
    code, fenced = nonce("\n".join(texts)), []
    for number, text in enumerate(texts, 1):
        marked = "\n".join(f"| {line}" for line in text.splitlines())
        fenced.append(fill("answers", {"number": str(number), "nonce": code, "text": marked}))
    return "".join(fenced).rstrip("\n")


def components(texts: Mapping[str, str | None], template: str = "components") -> str:
    """What earlier calls found, by criterion, as data between fences: it was copied from a student's text.

    Every line is marked, whatever breaks a line in it.
    """
    entries = [f"{name}: {'(nothing)' if text is None else text}" for name, text in texts.items()]
    lines = chain.from_iterable(entry.splitlines() for entry in entries)
    content = "\n".join(f"| {line}" for line in lines)
    return fill(template, {"nonce": nonce(content), "components": content}).rstrip("\n")


def quoted(text: str) -> str:
    """A student's text on one line, as a JSON string: no line break in it, and no quotation mark that could end it."""
    return json.dumps(" ".join(text.split()), ensure_ascii=False)


def range_of(scale: Scale) -> str:
    """The scores of a scale in words."""
    low, high, step = scale.bounds
    return f"{low:g} to {high:g} in steps of {step:g}"


def _counts(bundle: Bundle) -> Iterator[str]:
    """How points are counted, for prompts that ask for a score; nothing where levels earn in equal steps."""
    for criterion in bundle.criteria:
        if criterion.earns:
            levels = _numbers(range(criterion.top + 1))
            yield f"{criterion.id} earns {_numbers(criterion.earns)} of its points at levels {levels}"
    for criterion in bundle.composites:
        if count := criterion.count:
            points = _numbers(math.copysign(point, criterion.weight) or 0 for point in count.points)
            numbers = _numbers(range(len(count.points)))
            met = ", ".join(point.id for point in bundle.sub_points(criterion.id))
            without = f", and 0 without {' and '.join(count.needs)}" if count.needs else ""
            yield f"{criterion.id} is worth {points} points for {numbers} or more of {met}{without}"


def _numbers(numbers: Iterable[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _trait(trait: Trait, protocol: Protocol) -> str:
    anchors = _in_order([f"\n  {anchor.score:g} = {anchor.text}" for anchor in trait.anchors], protocol)
    return f"- {trait.id} ({trait.name}): a number from {range_of(trait)}{''.join(anchors)}"


def _in_order(ascending: list[str], protocol: Protocol) -> list[str]:
    return ascending if protocol.levels_shown == "ascending" else ascending[::-1]
