"""Concepts: one call labels every concept of an inventory, as the annotators of a bottleneck's labels do (REC-CBM,
appendix C.2). The contract is that of rulers; the reference answer and worked examples are shown with the rubric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.extract import said, stands_in
from rubricflow.tasks.core.llm.request import Message, Reply, Request, cached_by_identity
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
from rubricflow.tasks.grading.judge.schema import names_of

__all__ = ["artifact", "check", "outcome", "parts", "repair", "request", "schema"]

_LINE = ["concept", "label", "evidence"]


def request(case: Case, part: Part, before: Sequence[Answer], shown: Shown, rater: Rater) -> Request:
    """The request for the labels of a part's concepts."""
    system = _opening(case.bundle, part.criteria, case.question, case.context, case.reference_answer)
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
    decisions = {}
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
    decisions = read_lines(said(reply.text))
    if decisions is None or verdict_in(request, reply).how != "no_object":
        return reply
    for concept, decision in decisions.items():
        words = " ".join(quote["quote"] for quote in decision["evidence"])
        line = " ".join([_LINE[0], concept, _LINE[1], decision["level"], _LINE[2], words])
        if stands_in(line, request.data.text):
            return reply
    return replace(reply, text=compact({"decisions": decisions}))


@cached_by_identity
def _opening(
    bundle: Bundle, criteria: tuple[Criterion, ...], question: str, context: str | None, reference: str | None
) -> Message:
    """What all responses of an item share: the rubric, and each example as its annotator would have seen it, with the
    answer in the contract's words."""
    shown, names = "", names_of(bundle)
    for number, example in enumerate(bundle.examples, 1):
        found, decisions = units(example.response), {}
        for criterion in criteria:
            if criterion.id not in example.labels:
                continue
            label = example.labels[criterion.id]
            span = find(label.evidence, example.response)
            sentences = [unit for unit in found if unit.kind == "sentence"]
            quoted = (unit.unit_id for unit in sentences if span and unit.start <= span.start < unit.end)
            evidence = [{"unit": names.name(next(quoted, "s1")), "quote": label.evidence}] if label.evidence else []
            members = {"evidence": evidence, "diagnostic": criterion.levels[label.level], "level": label.level}
            decisions[criterion.id] = {name: members[name] for name in contract.fields(criterion)}
        values = {
            "number": str(number),
            "question": example.question,
            "reference": f"\nReference answer:\n{example.reference}\n" if example.reference else "",
            "response": prompt.response(example.response, found, names),
            "answer": compact({"decisions": decisions}),
        }
        shown += prompt.fill("example", values)
    schema = contract.checklist(criteria)
    text = prompt.system(bundle, criteria, question, context, schema=schema, reference=reference, examples=shown)
    return Message("system", text.rstrip("\n"))
