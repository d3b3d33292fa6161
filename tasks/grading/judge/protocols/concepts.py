"""Concepts: one call labels every concept of an inventory, as the annotators of a bottleneck's labels do (REC-CBM,
appendix C.2). The contract is that of rulers; the reference answer and worked examples are shown beside the rubric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Example
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.extract import said, stands_in
from rubricflow.tasks.core.llm.request import IdentityKey, Message, Reply, Request
from rubricflow.tasks.core.llm.schema import compact
from rubricflow.tasks.core.text.quotes import find
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.mend import verdict_in
from rubricflow.tasks.grading.judge.protocol import Answer, Part, Shown, build
from rubricflow.tasks.grading.judge.protocols import rulers
from rubricflow.tasks.grading.judge.protocols.rulers import artifact, outcome, parts, schema
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.judge.unit_names import UnitNames, names_of

__all__ = ["artifact", "check", "outcome", "parts", "repair", "request", "schema"]

_LINE = ["concept", "label", "evidence"]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the labels of a part's concepts."""
    system = _opening(
        IdentityKey(case.bundle), IdentityKey(part.criteria), case.question, case.context, case.reference_answer
    )
    return build(case, part, rater, system, schema(case.bundle, part), contract.CHECKLIST_KEYS, shown=shown)


def check(request: Request, reply: Reply) -> Checked[Any]:
    """The `Verdict` on a reply and on what was settled before it."""
    return rulers.check(request, _as_json(request, reply))


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """The concepts that failed, once more."""
    read = tuple(replace(attempt, reply=_as_json(attempt.request, attempt.reply)) for attempt in history)
    return rulers.repair(request, read)


def read_lines(text: str) -> dict[str, Any] | None:
    """The decisions in the published line format, `concept=<id>; label=<level>; evidence=<words>`; other lines are
    passed over. None where no line has it, or a concept has two."""
    decisions: dict[str, Any] = {}
    for line in text.splitlines():
        pairs = [part.partition("=") for part in line.strip(" \t-*").split(";", 2)]
        if [name.strip().casefold() for name, _, _ in pairs] != _LINE:
            continue
        concept, level, words = (value.strip() for _, _, value in pairs)
        if concept in decisions:
            return None
        decisions[concept] = {"evidence": [{"quote": words}] if words else [], "level": level}
    return decisions or None


def _as_json(request: Request, reply: Reply) -> Reply:
    """The reply, with the artifact in place of its text where this holds lines, none of them the response's, and no
    JSON at all."""
    decisions, response = read_lines(said(reply.text)), request.data.text
    if decisions is None or verdict_in(request, reply).how != "no_object":
        return reply
    if any(stands_in(_line(name, decision), response) for name, decision in decisions.items()):
        return reply
    return replace(reply, text=compact({"decisions": decisions}))


def _line(concept: str, decision: Mapping[str, Any]) -> str:
    words = " ".join(quote["quote"] for quote in decision["evidence"])
    return " ".join([_LINE[0], concept, _LINE[1], decision["level"], _LINE[2], words])


@lru_cache(maxsize=1024)
def _opening(
    bundle: IdentityKey[Bundle],
    criteria: IdentityKey[tuple[Criterion, ...]],
    question: str,
    context: str | None,
    reference: str | None,
) -> Message:
    """What all responses of an item share."""
    examples = enumerate(bundle.value.examples, 1)
    shown = "".join(_example(number, example, criteria.value, names_of(bundle)) for number, example in examples)
    schema = contract.checklist(criteria.value)
    text = prompt.system(
        bundle.value, criteria.value, question, context, schema=schema, reference=reference, examples=shown
    )
    return Message("system", text.rstrip("\n"))


def _example(number: int, example: Example, criteria: tuple[Criterion, ...], names: UnitNames) -> str:
    """An example as its annotator would have seen it, and the answer in the contract's words."""
    decisions = {c.id: _decision(c, example, names) for c in criteria if c.id in example.labels}
    reference = f"\nReference answer:\n{example.reference}\n" if example.reference else ""
    values = {
        "number": str(number),
        "question": example.question,
        "reference": reference,
        "response": prompt.response(example.response, units(example.response), names),
        "answer": compact({"decisions": decisions}),
    }
    return prompt.fill("example", values)


def _decision(criterion: Criterion, example: Example, names: UnitNames) -> dict[str, Any]:
    label, text = example.labels[criterion.id], example.response
    span = find(label.evidence, text)
    sentences = [unit for unit in units(text) if unit.kind == "sentence"]
    quoted = (unit.unit_id for unit in sentences if span and unit.start <= span.start < unit.end)
    evidence = [{"unit": names.name(next(quoted, "s1")), "quote": label.evidence}] if label.evidence else []
    members = {"evidence": evidence, "diagnostic": criterion.levels[label.level], "level": label.level}
    return {name: members[name] for name in contract.fields(criterion)}
