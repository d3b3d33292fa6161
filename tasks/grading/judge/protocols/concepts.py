"""Concepts: one call labels every concept of an inventory, as the annotators of a bottleneck's labels do (REC-CBM,
appendix C.2). The contract is that of rulers; the reference answer and worked examples are shown with the rubric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Attempt, Checked
from rubricflow.tasks.core.llm.extract import said, stands_in
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.llm.schema import JsonDict, compact
from rubricflow.tasks.core.text.quotes import find
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge import schema as contract
from rubricflow.tasks.grading.judge.mend import verdict_in
from rubricflow.tasks.grading.judge.protocol import Part
from rubricflow.tasks.grading.judge.protocols.rulers import RulersProtocol

_LINE = ["concept", "label", "evidence"]


class ConceptsProtocol(RulersProtocol):
    """Rulers with the bundle's examples in the prompt, and replies in lines read too."""

    def system(self, bundle: Bundle, part: Part, question: str, context: str | None, reference: str | None) -> str:
        """What all responses of an item share: the rubric, and each example as its annotator would have seen it, with
        the answer in the contract's words."""
        shown, names = "", contract.names_of(bundle)
        for number, example in enumerate(bundle.examples, 1):
            found, decisions = units(example.response), {}
            for criterion in part.criteria:
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
        shape = self.schema(bundle, part)
        text = prompt.system(
            bundle, part.criteria, question, context, schema=shape, reference=reference, examples=shown
        )
        return text.rstrip("\n")

    def check(self, request: Request, reply: Reply) -> Checked[Any]:
        return super().check(request, _as_json(request, reply))

    def repair(self, request: Request, history: Sequence[Attempt[Any]]) -> Request | None:
        return super().repair(request, [replace(one, reply=_as_json(one.request, one.reply)) for one in history])


PROTOCOL = ConceptsProtocol()


def read_lines(text: str) -> JsonDict | None:
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
