"""A reply that gives the prompt's example or form back has judged nothing: it is a violation and no verdict."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from builders.bundles import bundle, bundle_by, criterion
from builders.cases import case
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle, Repair, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.grading.judge.grade import check, first_requests
from rubricflow.tasks.grading.judge.rows import Rater
from rubricflow.tasks.grading.judge.schema import EXAMPLE, WORDS, example_prefix
from rubricflow.tasks.grading.lock.bundles import shaped

TEXT = "Plants need light. Water helps them."
DECIDING = ("rulers", "pointwise", "concepts")
COPIED = (*EXAMPLE, EXAMPLE[0].upper(), EXAMPLE[0][:-1], "chlorophyll inside", WORDS, f"<{WORDS}>", f" {EXAMPLE[1]}\n")
IDS = st.sampled_from(["LEAF", "LEAF1", "leaf4", "_LEAF1", "__leaf", "P1", "M1", "c"]) | st.text(min_size=1, max_size=6)


def bundle_of(protocol: str, *ids: str) -> Bundle:
    """Criteria of these ids under a protocol."""
    several = {"criteria_per_call": 4} if protocol == "pointwise" else {}
    plan = Judge.model_validate({"protocol": protocol, "repair": Repair(), **several}).as_protocol()
    criteria = [criterion(name, levels=("no", "half", "yes")) for name in ids]
    return bundle(*criteria).model_copy(update={"protocol": plan})


def request_of(of: Bundle, text: str = TEXT) -> Request:
    """The first request about a response."""
    return first_requests(case(of, text=text), Rater("r", "llm", Scripted([])))[0]


def deciding(ids: tuple[str, ...], quote: str) -> str:
    """All criteria at a level with a quote."""
    evidence = [{"unit": "sentence 1", "quote": quote}]
    return json.dumps({"decisions": {name: {"level": 1, "evidence": evidence} for name in ids}})


def value_of(request: Request, text: str) -> Any:
    """What a reply is worth."""
    return check(request, Reply(text=text)).value


@pytest.mark.parametrize("protocol", ["rulers", "concepts"])
@settings(max_examples=20)
@given(ids=st.lists(IDS, min_size=1, max_size=4, unique_by=str.casefold))
def test_the_worked_example_decides_nothing_whatever_the_criteria_are_called(protocol: str, ids: list[str]) -> None:
    of = bundle_of(protocol, *ids)
    request = request_of(of)
    example = request.messages[0].content.rstrip().splitlines()[-1]
    assert set(json.loads(example)["decisions"]).isdisjoint(ids)
    assert not any(name.casefold().startswith(example_prefix(of).casefold()) for name in ids)
    assert value_of(request, example) is None


@pytest.mark.parametrize("quote", COPIED)
@pytest.mark.parametrize("protocol", DECIDING)
def test_the_example_s_words_under_the_rubric_s_ids_are_no_verdict(protocol: str, quote: str) -> None:
    request = request_of(bundle_of(protocol, "A", "B"))
    checked = check(request, Reply(text=deciding(("A", "B"), quote)))
    assert (checked.value, checked.violations) == (None, ("unreadable:repeats_example",))


@pytest.mark.parametrize("protocol", DECIDING)
def test_a_student_may_say_what_the_example_says(protocol: str) -> None:
    request = request_of(bundle_of(protocol, "A"), f"{TEXT} {EXAMPLE[0]}")
    verdict = value_of(request, deciding(("A",), EXAMPLE[0]).replace("sentence 1", "sentence 3"))
    assert verdict.decisions[0].verified is True


@pytest.mark.parametrize("quote", COPIED)
def test_points_that_are_covered_by_the_form_s_words_are_no_verdict(quote: str) -> None:
    plan = Judge.model_validate({"protocol": "gradeagentops"}).as_protocol()
    traits = (Trait(id="t", name="T", min=0, max=10),)
    rubric = Rubric(rubric_id="r", scale=Scale(min=0, max=10), traits=traits, criteria=(criterion("A"),))
    request = request_of(bundle_by(shaped(rubric, plan, ["technical"]), plan))
    form = request.messages[0].content.rstrip().splitlines()[-1]
    filled = re.sub(r"{[^{}]*} or ({[^}]*})", r"\1", form).replace("<number>", "5").replace(f"<{WORDS}>", quote.strip())
    checked = check(request, Reply(text=filled))
    assert (checked.value, checked.violations) == (None, ("unreadable:repeats_example",))
