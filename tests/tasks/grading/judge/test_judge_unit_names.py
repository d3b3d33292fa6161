"""Units are called so that nobody takes them for criteria, and are read however a judge cites them."""

import re
import unicodedata

import jsonschema
import pytest
from builders.bundles import bundle, criterion
from hypothesis import example, given
from hypothesis import strategies as st

from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.judge.schema import MOST_LISTED, PLAIN, checklist, citing, names_beside
from rubricflow.tasks.grading.judge.verify import verify

TEXT = "Plants need light. Water helps them.\n\nThe café sells bread."
IDS = st.one_of(
    st.text(min_size=1, max_size=12),
    st.from_regex(r"(response )*[sSpP](entence|ENTENCE|aragraph)?[ _.-]?0?[0-9]{1,3}", fullmatch=True),
    st.sampled_from(
        ["P1", "s1", "p4", "3", "sentence 2", "Paragraph-1", "ｓｅｎｔｅｎｃｅ２", "response sentence 1", "s٣"]
    ),
)
UNIT_IDS = st.builds("{}{}".format, st.sampled_from("sp"), st.integers(1, 999))


def folded(text):
    """Another folding than the code's: no case, no marks, no spaces."""
    return re.sub(r"[\W_]", "", unicodedata.normalize("NFKC", text).casefold())


@given(st.lists(IDS, max_size=8), st.sets(UNIT_IDS, max_size=8))
@example(["sentence 2", "response sentence 2", "p1"], {"s1", "s2", "p1"})
def test_no_name_is_like_an_id_or_another_name_and_each_is_read_back(ids, unit_ids):
    names = names_beside(ids)
    called = {one: names.name(one) for one in unit_ids}
    assert len({folded(name) for name in called.values()}) == len(unit_ids)
    assert not {folded(name) for name in called.values()} & {folded(one) for one in ids}
    for one, name in called.items():
        for cited in (name, f"[{name}]", name.upper(), f" {name}. ", f'"{name}"'):
            assert names.unit_id(cited) == one


@given(st.lists(IDS, min_size=1, max_size=6), st.sampled_from(["{}", "[{}]", " {}."]))
def test_an_id_names_no_unit(ids, form):
    names = names_beside(ids)
    for one in ids:
        if folded(one):
            assert not re.fullmatch(r"[sp]\d+", names.unit_id(form.format(one)))


@pytest.mark.parametrize(
    ("cited", "unit_id"),
    [
        ("sentence 3", "s3"),
        ("s3", "s3"),
        ("[s3]", "s3"),
        ("3", "s3"),
        ("Sentence: 03", "s3"),
        ("paragraph 2", "p2"),
        ("P2", "p2"),
        ("s0", "s0"),
        ("3-4", "3-4"),
        ("sentences 1 and 2", "sentences 1 and 2"),
        ("line 3", "line 3"),
        ("", ""),
    ],
)
def test_the_old_forms_are_read_and_nothing_is_guessed(cited, unit_id):
    assert PLAIN.unit_id(cited) == unit_id


def cited_as(of, unit):
    given = {"decisions": {of.criteria[0].id: {"evidence": [{"unit": unit, "quote": "The café sells"}], "level": 1}}}
    question = Question(of, of.criteria, TEXT, tuple(units(TEXT)), "i", "Why?", None)
    decision, *_ = verify(given, of, of.criteria, subject_of(question)).decisions
    return decision.evidence[0]["unit_id"]


@pytest.mark.parametrize("ids", [("P1", "P2"), ("sentence 1", "paragraph 9")])
def test_prompt_schema_and_verifier_call_a_unit_the_same(ids):
    of = bundle(criterion(ids[0]), criterion(ids[1], evidence="span_level"))
    case = Case("r", "i", TEXT, tuple(units(TEXT)), "Why?", None, of, of.bundle_id)
    (request,) = first_requests(case, Rater("r", "llm", Scripted([])))
    shown = re.findall(r"^\[(.*?)\]", request.messages[-1].content, re.M)
    assert request.schema["$defs"]["sentence"]["enum"] == [name for name in shown if "sentence" in name]
    assert set(request.schema["$defs"]["unit"]["enum"]) == set(shown)
    assert {cited_as(of, name) for name in shown} == {"s1", "s2", "s3", "p1", "p2"}


def test_a_text_of_a_hundred_thousand_lines_makes_no_grammar_of_them():
    found = units("word here.\n" * (MOST_LISTED + 1))
    schema = citing(checklist((criterion("A", evidence="span_level"),)), found, PLAIN)
    decision = {"evidence": [{"unit": "sentence 501", "quote": "words"}], "level": 1}
    assert len(str(schema)) < 2_000
    assert jsonschema.Draft202012Validator(schema).is_valid({"decisions": {"A": decision}})
