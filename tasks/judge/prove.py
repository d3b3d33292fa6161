"""Proof without a model that a bundle can be judged: prompts fill, the contract admits, the verifier separates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema

from tasks.contracts.bundle import Bundle, Criterion
from tasks.judge import prompt, schema
from tasks.judge.score import score
from tasks.judge.verify import Subject, verify
from tasks.text.units import Unit, units

_GOLD = "an answer that says everything that is asked for"
_FABRICATED = "words that nobody ever wrote in any answer"


def prove_bundle(bundle: Bundle, question: str, context: str | None, reference: str | None) -> list[str]:
    """What does not hold, in words; empty where everything does.

    The prompt fills. A holistic contract admits both ends of the scale. For a checklist: an artifact that reaches every
    point with quotes from the reference answer (the question, where there is none) fits the JSON Schema, verifies, and
    earns the full score; the same with fabricated quotes earns nothing that needs a quote; one that reaches nothing
    earns the lowest score.
    """
    try:
        prompt.system(bundle, bundle.criteria, question, context)
        prompt.response(question, units(question))
        problems = []
    except KeyError as error:
        problems = [f"prompt '{bundle.protocol.name}' leaves {error} open"]
    if bundle.protocol.name == "dhs":
        ends = ({"rationale": "", "score": end} for end in (bundle.scale.min, bundle.scale.max))
        return problems + [problem for end in ends for problem in _refused(end, schema.holistic(bundle))]
    text = next(text for text in (reference, question, _GOLD) if text and units(text))
    return problems + _gold(bundle, text, context) + _ends(bundle) + _forged(bundle, text, context)


def _gold(bundle: Bundle, text: str, context: str | None) -> list[str]:
    """Every point reached with a quote from the text: must be admitted and verify."""
    found = units(text)
    best = {c.id: _decision(c, c.top if c.weight > 0 else 0, text, found) for c in bundle.criteria}
    verdict = verify({"decisions": best}, bundle, bundle.criteria, Subject.of(text, found, context))
    refused = _refused({"decisions": best}, schema.checklist(bundle.criteria))
    return refused + [f"gold artifact: {violation}" for violation in verdict.violations]


def _ends(bundle: Bundle) -> list[str]:
    """All points and no point reached: must be the ends of the scale."""
    full = score(bundle, {c.id: c.top if c.weight > 0 else 0 for c in bundle.criteria}).score
    none = score(bundle, {c.id: 0 if c.weight > 0 else c.top for c in bundle.criteria}).score
    problems = []
    if full != bundle.scale.max:
        problems.append(f"all points reached give {full}, not the full score {bundle.scale.max:g}")
    if none != bundle.scale.min:
        problems.append(f"no point reached gives {none}, not the lowest score {bundle.scale.min:g}")
    return problems


def _forged(bundle: Bundle, text: str, context: str | None) -> list[str]:
    """Everything claimed with a quote that nobody wrote: must not be supported."""
    unit = Unit("s1", "sentence", 0, len(_FABRICATED))
    forged = {c.id: _decision(c, c.top, _FABRICATED, [unit]) for c in bundle.criteria}
    verdict = verify({"decisions": forged}, bundle, bundle.criteria, Subject.of(text, units(text), context))
    pairs = zip(bundle.criteria, verdict.decisions, strict=True)
    credited = [c.id for c, d in pairs if c.evidence != "none" and d.verified is not False]
    return [f"a fabricated quote is accepted for '{name}'" for name in credited]


def _refused(artifact: Mapping[str, Any], contract: Mapping[str, Any]) -> list[str]:
    try:
        jsonschema.validate(artifact, contract)
    except jsonschema.ValidationError as error:
        return [f"the contract refuses a sound artifact: {error.message}"]
    return []


def _decision(criterion: Criterion, level: int, text: str, found: list[Unit]) -> dict[str, Any]:
    longest = max(found, key=lambda unit: unit.end - unit.start)
    quote = text[longest.start : longest.end][: schema.MAX_QUOTE]
    evidence = [{"unit": longest.unit_id, "quote": quote}] if level else []
    whole = {"evidence": evidence, "diagnostic": "stated", "level": level}
    return {name: whole[name] for name in schema.fields(criterion)}
