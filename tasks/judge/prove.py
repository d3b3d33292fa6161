"""Proof that a bundle can be judged at all, without a model: prompts fill, the contract admits, the verifier separates."""

from __future__ import annotations

from typing import Any

import jsonschema

from tasks.contracts.bundle import Bundle, Criterion
from tasks.judge import prompt, schema
from tasks.judge.score import score
from tasks.judge.verify import Subject, verify
from tasks.text.units import Unit, units

_FABRICATED = "words that nobody ever wrote in any answer"


def prove_bundle(bundle: Bundle, question: str, context: str | None, reference: str | None) -> list[str]:
    """What does not hold, in words; empty where everything does.

    The prompt fills. For a checklist: an artifact that reaches every point with quotes from the reference answer (the
    question, where there is none) fits the JSON Schema, verifies, and earns the full score; the same with fabricated
    quotes earns nothing that needs a quote; one that reaches nothing earns the lowest score.
    """
    problems = []
    try:
        prompt.system(bundle, bundle.criteria, question, context)
        prompt.response(question, units(question))
    except KeyError as error:
        problems.append(f"prompt '{bundle.protocol.name}' leaves {error} open")
    if bundle.protocol.name == "dhs":
        return problems
    text = reference or question
    found = units(text)
    subject = Subject.of(text, found, context)
    best = {c.id: _decision(c, c.top if c.weight > 0 else 0, text, found) for c in bundle.criteria}
    try:
        jsonschema.validate({"decisions": best}, schema.checklist(bundle.criteria))
    except jsonschema.ValidationError as error:
        problems.append(f"the contract refuses a sound artifact: {error.message}")
    verdict = verify({"decisions": best}, bundle, bundle.criteria, subject)
    problems += [f"gold artifact: {violation}" for violation in verdict.violations]
    full = score(bundle, {d.criterion_id: d.level for d in verdict.decisions}).score
    if full != bundle.scale.max:
        problems.append(f"all points reached give {full}, not the full score {bundle.scale.max:g}")
    none = score(bundle, {c.id: 0 if c.weight > 0 else c.top for c in bundle.criteria}).score
    if none != bundle.scale.min:
        problems.append(f"no point reached gives {none}, not the lowest score {bundle.scale.min:g}")
    forged = {c.id: _decision(c, c.top, _FABRICATED, [Unit("s1", "sentence", 0, len(_FABRICATED))]) for c in bundle.criteria}
    verdict = verify({"decisions": forged}, bundle, bundle.criteria, subject)
    credited = [
        d.criterion_id
        for d, c in zip(verdict.decisions, bundle.criteria, strict=True)
        if d.verified is not False and c.evidence != "none"
    ]
    problems += [f"a fabricated quote is accepted for '{name}'" for name in credited]
    return problems


def _decision(criterion: Criterion, level: int, text: str, found: list[Unit]) -> dict[str, Any]:
    decision: dict[str, Any] = {}
    if criterion.evidence != "none":
        longest = max(found, key=lambda unit: unit.end - unit.start)
        quote = text[longest.start : longest.end][: schema.MAX_QUOTE]
        decision["evidence"] = [{"unit": longest.unit_id, "quote": quote}] if level else []
    if criterion.evidence == "global_diagnostic":
        decision["diagnostic"] = "stated"
    return decision | {"level": level}
