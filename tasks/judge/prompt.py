"""Prompts: templates in prompts/*.txt, filled in one pass. Student text is data inside a fence that it cannot close."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tasks.contracts.bundle import Bundle, Criterion
from tasks.text.units import Unit

FOLDER = Path(__file__).with_name("prompts")
_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}")
_DEMANDS = {
    "local_quote": "quote from one sentence",
    "span_level": "quote from one paragraph",
    "global_diagnostic": "a diagnostic statement about the whole response and a quote that supports it",
    "weakly_groundable": "a quote where there is one",
    "none": "no evidence needed",
}


@cache
def template(name: str) -> str:
    """The text of prompts/<name>.txt."""
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def placeholders(name: str) -> set[str]:
    """The names that a template leaves open."""
    return set(_PLACEHOLDER.findall(template(name)))


def fill(name: str, values: Mapping[str, str]) -> str:
    """A template with every `{{placeholder}}` replaced, in one pass, so that no value is ever read as a template.

    KeyError for a placeholder without a value.
    """
    return _PLACEHOLDER.sub(lambda match: values[match[1]], template(name))


def system(bundle: Bundle, criteria: Sequence[Criterion], question: str, context: str | None) -> str:
    """The part that is the same, byte for byte, for every response of an item."""
    low, high, step = bundle.scale.bounds
    return fill(
        bundle.protocol.name,
        {
            "question": question,
            "context": f"\nMaterial that belongs to the question:\n{context}\n" if context else "",
            "rubric": bundle.text,
            "criteria": "\n".join(_criterion(c, bundle.protocol.show_weights) for c in criteria),
            "scale": f"{low:g} to {high:g} in steps of {step:g}",
        },
    )


def response(text: str, units: Sequence[Unit]) -> str:
    """The response, its sentences labelled with their units, between fences with a nonce made from its own content.

    The same response makes the same prompt; a response that held its own fence would have another nonce.
    """
    nonce = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    # A paragraph stands before the sentence that begins where it does: 'paragraph' < 'sentence'.
    ordered = sorted(units, key=lambda unit: (unit.start, unit.kind))
    lines = (f"[{u.unit_id}]" + (f" {text[u.start : u.end]}" if u.kind == "sentence" else "") for u in ordered)
    return fill("response", {"nonce": nonce, "text": "\n".join(lines)})


def _criterion(criterion: Criterion, show_weight: bool) -> str:
    weight = f" (weight {criterion.weight:g})" if show_weight else ""
    levels = "; ".join(f"{level} = {anchor}" for level, anchor in enumerate(criterion.levels))
    return (
        f"- {criterion.id} [{criterion.kind}]{weight}: {criterion.text}\n"
        f"  levels: {levels}\n"
        f"  evidence: {_DEMANDS[criterion.evidence]}"
    )
