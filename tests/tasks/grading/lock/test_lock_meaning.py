"""What a prompt leaves unsaid is remarked: no protocol asks for a number that nothing explains without a word of it."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from builders import studies
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.lock.bundles import lock, unexplained
from rubricflow.tasks.grading.lock.rubric import guided

ASKING = sorted(name for name, known in PROTOCOLS.items() if not known.is_trained)
PROSE = ("", " \n", "Judge the whole.", "Score 0: sentinel low.\nScore 3: sentinel high.")
LEVELS = (("absent", "present"), ("0", "1"), ("1.", "2.", "3."), ("sentinel nothing", "sentinel all"))


def rubric(**changes: Any) -> Rubric:
    criteria = [{"id": "P1", "trait": "t", "text": "Names the cause.", "kind": "checklist"}]
    traits = [{"id": "t", "name": "T", "min": 0, "max": 3}]
    row = {"rubric_id": "r", "scale": {"min": 0, "max": 3}, "traits": traits, "criteria": criteria}
    return Rubric.model_validate(row | changes)


def prompts(one: Rubric, protocol: str, question: str = "Why?", context: str | None = None) -> tuple[list[str], Any]:
    """The system messages of all first calls, and the bundle."""
    bundle = lock(one, studies.study(judge={"protocol": protocol}).judge.as_protocol())
    text = "Because it is so."
    case = Case("r", "i", text, tuple(units(text)), question, context, bundle, bundle.bundle_id, None)
    asked = first_requests(case, Rater("m", "llm", Scripted([])))
    return [request.messages[0].content for request in asked], bundle


@st.composite
def rubrics(draw: st.DrawFn) -> Rubric:
    anchors = draw(st.sampled_from([(), ({"score": 1, "text": "sentinel anchor"},)]))
    traits = [{"id": "t", "name": "T", "min": 0, "max": 3, "anchors": anchors}]
    criteria: list[dict[str, Any]] = [
        {"id": f"P{n}", "trait": "t", "kind": "checklist"}
        | {"text": draw(st.sampled_from(["Clarity", "Names the cause."])), "levels": draw(st.sampled_from(LEVELS))}
        | {"weight": draw(st.sampled_from([1.0, 2.0]))}
        for n in range(draw(st.integers(1, 3)))
    ]
    if draw(st.booleans()):
        whole = {"id": "K", "trait": "t", "text": "Counts.", "kind": "checklist", "count": {"points": (0, 1)}}
        criteria = [whole, *(one | {"parent": "K", "weight": 1.0} for one in criteria)]
    return rubric(text=draw(st.sampled_from(PROSE)), traits=traits, criteria=criteria)


@pytest.mark.parametrize("protocol", ASKING)
@settings(max_examples=25)
@given(one=rubrics())
def test_a_number_that_nothing_explains_is_remarked(protocol: str, one: Rubric) -> None:
    shown, bundle = prompts(one, protocol)
    fields = [remark.text.partition(":")[0] for remark in unexplained(bundle)]
    final = shown[-1] if protocol != "autoscore" else prompts(one, "dhs")[0][0]  # its second call shows the same parts
    if PROTOCOLS[protocol].final_score == "judged":
        explained = any(words in final for words in ("sentinel low", "sentinel anchor", "points for"))
        assert ("text" in fields) == (not explained)
    if protocol in ("mts", "unlocked"):
        assert ("traits t" in fields) == ("sentinel low" not in final and "sentinel anchor" not in final)
    for criterion in bundle.criteria if PROTOCOLS[protocol].quotes == "criteria" else ():
        named = criterion.text == "Clarity" and criterion.kind == "checklist"  # a point may be one word
        numbered = protocol != "gradeagentops" and criterion.levels[0] in ("0", "1.")
        assert fields.count(criterion.id) == named + numbered


@pytest.mark.parametrize("protocol", ASKING)
@settings(max_examples=8)
@given(one=rubrics(), context=st.sampled_from([None, "", " \n ", "A table."]))
def test_no_heading_stands_over_nothing(protocol: str, one: Rubric, context: str | None) -> None:
    for prompt in prompts(one, protocol, context=context)[0]:
        lines = prompt.splitlines()
        for line, following in pairwise(lines):
            if re.fullmatch(r"[A-Z][^.\"{}]*:", line):
                assert following.strip(), (line, prompt)
                assert not re.fullmatch(r"[A-Z][^.\"{}]*:", following), (line, prompt)


@pytest.mark.parametrize(
    ("protocol", "blind"),
    [("dhs", True), ("autoscore", True), ("unlocked", True), ("mts", False)]
    + [(name, None) for name in ("rulers", "pointwise", "checkeval", "gradeagentops", "concepts")],
)
def test_a_bare_rubric_leaves_a_stated_score_blind(protocol: str, blind: bool | None) -> None:
    remarks = unexplained(prompts(rubric(), protocol)[1])
    assert [remark.blind for remark in remarks] == ([] if blind is None else [blind])
    assert all("rubric_text" in remark.text for remark in remarks)


def test_a_guide_of_the_data_is_what_was_missing() -> None:
    one = guided(rubric(), {"rubric_text": "0 points: nothing\n3 points: everything\n"})
    shown, bundle = prompts(one, "dhs")
    assert "Rubric, as its author wrote it:\n0 points: nothing\n3 points: everything\n\nThe score is" in shown[0]
    assert unexplained(bundle) == []


@pytest.mark.parametrize(
    ("own", "guide", "text"),
    [("", "G", "G"), ("Own. ", " G\n", "Own.\n\nG"), ("Own. ", None, "Own. "), ("Own.", "  ", "Own."), ("", None, "")],
)
def test_a_guide_follows_on_its_author_s_prose_once(own: str, guide: str | None, text: str) -> None:
    item = {"rubric_text": guide}
    once = guided(rubric(text=own), item)
    assert once.text == text
    assert guided(once, item) == once


@pytest.mark.parametrize(
    ("prose", "names"),
    [
        ("3 points: all; 0 points: none", True),
        ("Score 1,5 and Score 2.5", False),
        ("Level 3 of 7 levels", False),
        ("Note 2, dann 1.", True),
        ("In 2019 and 1,000 others", False),
        ("P1 and P2 count", False),
        ("three points for all, none for nothing", False),
    ],
)
def test_prose_explains_a_score_only_where_it_names_scores(prose: str, names: bool) -> None:
    assert (unexplained(prompts(rubric(text=prose), "dhs")[1]) == []) == names
