"""What a prompt asks for is what its contract has room for: no field more, none less, whatever evidence is wanted."""

from __future__ import annotations

import re
from itertools import product
from typing import Any, get_args

import pytest

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, EvidenceType, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.request import Request
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.lock.bundles import lock

PROMPTED = sorted(name for name, of in PROTOCOLS.items() if not of.is_trained)
"""A trained grader reads no prompt."""
TYPES: tuple[EvidenceType, ...] = get_args(EvidenceType)
TEXT = "Heat is motion. It really is."
_NAMED = re.compile(r"C\d+|t|\d+")
"""What the rubric names: criteria, traits, and points by their numbers."""


def requests_of(
    protocol: str, types: tuple[EvidenceType, ...], evidence: str = "typed", several: int = 1
) -> list[Request]:
    """What is asked first about a response, under a rubric whose criteria take these types of evidence."""
    criteria = tuple(
        Criterion(id=f"C{at}", trait="t", text=f"names part {at}", evidence=of) for at, of in enumerate(types)
    )
    traits = (Trait(id="t", name="T", min=0, max=5),)
    rubric = Rubric(
        rubric_id="r", title="R", text="THE RUBRIC", scale=Scale(min=0, max=5), traits=traits, criteria=criteria
    )
    judge = Judge.model_validate({"protocol": protocol, "criteria_per_call": several})
    bundle: Bundle = lock(rubric, judge.as_protocol(), ("technical",), evidence)
    case = Case("r1", "i1", TEXT, tuple(units(TEXT)), "What is heat?", None, bundle, "b", "It is motion.")
    return first_requests(case, Rater("r", "llm", Scripted([])))


def in_form(request: Request) -> set[str]:
    """The fields of the form that ends a prompt, a worked example left out."""
    form = request.messages[0].content.rpartition("Answer with one JSON object")[2].partition("A worked example")[0]
    return {name for name in re.findall(r'"(\w+)":', form) if not _NAMED.fullmatch(name)}


def in_contract(schema: Any) -> set[str]:
    """The fields of a JSON Schema, without the ids of criteria and traits."""
    if isinstance(schema, list):
        return {name for part in schema for name in in_contract(part)}
    if not isinstance(schema, dict):
        return set()
    mine = set(schema.get("properties", {}))
    return {name for name in mine if not _NAMED.fullmatch(name)} | in_contract(list(schema.values()))


@pytest.mark.parametrize("evidence", ["typed", "off"])
@pytest.mark.parametrize("protocol", PROMPTED)
@pytest.mark.parametrize("several", [1, 2])
def test_the_form_is_the_contract(protocol: str, several: int, evidence: str) -> None:
    if several > 1 and protocol != "pointwise":
        return
    for types in product(TYPES, repeat=2):
        for request in requests_of(protocol, types, evidence, several):
            assert in_form(request) == in_contract(dict(request.schema or {}))


@pytest.mark.parametrize("protocol", PROMPTED)
def test_no_json_in_a_prompt_has_a_blank_that_the_grammar_forbids(protocol: str) -> None:
    for types in product(TYPES, repeat=2):
        for request in requests_of(protocol, types):
            shown = "\n".join(message.content for message in request.messages)
            assert re.search(r'"[\w ]+": ?["{\[<]', shown), "no form is shown"
            assert not re.search(r'": |[\]}"0-9>], "', shown)
