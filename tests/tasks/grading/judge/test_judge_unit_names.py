"""Units are called so that nobody takes them for criteria, and are read however a judge cites them."""

import re
import unicodedata

import jsonschema
import pytest
from builders.bundles import bundle, criterion, trait
from hypothesis import example, given
from hypothesis import strategies as st

from rubricflow.tasks.core.llm.backend import Scripted
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import subject_of
from rubricflow.tasks.grading.judge.grade import first_requests
from rubricflow.tasks.grading.judge.prompt import response
from rubricflow.tasks.grading.judge.protocol import Question
from rubricflow.tasks.grading.judge.rows import Case, Rater
from rubricflow.tasks.grading.judge.schema import MOST_LISTED, PLAIN, checklist, citing, names_beside, names_of
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


@given(st.text(max_size=40), st.lists(IDS, max_size=4))
def test_what_was_read_is_read_the_same_again(cited, ids):
    names = names_beside(ids)
    unit_id = names.unit_id(cited)
    assert names.unit_id(names.name(unit_id)) == unit_id


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


def test_a_number_alone_is_a_paragraph_where_paragraphs_are_asked_for():
    of = bundle(criterion("A", evidence="span_level"))
    assert cited_as(of, 2) == "p2"
    assert cited_as(of, "sentence 2") == "s2"
    assert cited_as(bundle(criterion("A")), 2) == "s2"


def cited_as(of, unit):
    given = {"decisions": {of.criteria[0].id: {"evidence": [{"unit": unit, "quote": "The café sells"}], "level": 1}}}
    question = Question(of, of.criteria, TEXT, tuple(units(TEXT)), "i", "Why?", None)
    decision, *_ = verify(given, of, of.criteria, subject_of(question)).decisions
    return decision.evidence[0]["unit_id"]


def test_a_criterion_s_id_is_kept_for_what_it_is():
    assert cited_as(bundle(criterion("P1")), "p1") == "criterion p1"


def test_ids_of_traits_and_of_criteria_made_of_others_count():
    of = bundle(criterion("A"), traits=(trait("t"), trait("sentence 1")), composites=(criterion("p7"),))
    names = names_of(of)
    assert (names.sentence, names.paragraph) == ("response sentence", "paragraph")
    assert names.unit_id("p7") == "criterion p7"


@pytest.mark.parametrize("ids", [("P1", "P2"), ("sentence 1", "paragraph 9")])
def test_prompt_schema_and_verifier_call_a_unit_the_same(ids):
    of = bundle(criterion(ids[0]), criterion(ids[1], evidence="span_level"))
    case = Case("r", "i", TEXT, tuple(units(TEXT)), "Why?", None, of, of.bundle_id)
    (request,) = first_requests(case, Rater("r", "llm", Scripted([])))
    shown = re.findall(r"^\[(.*?)\]", request.messages[-1].content, re.M)
    assert request.schema["$defs"]["sentence"]["enum"] == [name for name in shown if "sentence" in name]
    assert set(request.schema["$defs"]["unit"]["enum"]) == set(shown)
    assert {cited_as(of, name) for name in shown} == {"s1", "s2", "s3", "p1", "p2"}


def test_a_quote_of_a_sentence_cites_sentences_and_others_cite_paragraphs_too():
    criteria = (criterion("A"), criterion("B", evidence="span_level"), criterion("C", evidence="none"))
    schema = citing(checklist(criteria), units(TEXT), PLAIN)

    def admits(name, unit):
        decisions = {"A": {"evidence": [], "level": 0}, "B": {"evidence": [], "level": 0}, "C": {"level": 0}}
        decisions[name] = {"evidence": [{"unit": unit, "quote": "words"}], "level": 1}
        return jsonschema.Draft202012Validator(schema).is_valid({"decisions": decisions})

    assert [admits("A", unit) for unit in ("sentence 3", "sentence 4", "paragraph 1", "s1", "A")] == [
        True,
        *[False] * 4,
    ]
    assert [admits("B", unit) for unit in ("sentence 3", "paragraph 2", "paragraph 3")] == [True, True, False]


def test_responses_with_as_many_units_share_a_schema():
    contract = checklist((criterion("A"),))
    first, again = units("One here. Two here."), units("Three there. Four there.")
    assert citing(contract, first, PLAIN) is citing(contract, again, PLAIN)
    assert citing(contract, first, PLAIN) is not citing(contract, units("One here."), PLAIN)
    assert citing(contract, [], PLAIN) is contract


def test_a_text_of_a_hundred_thousand_lines_makes_no_grammar_of_them():
    found = units("word here.\n" * (MOST_LISTED + 1))
    schema = citing(checklist((criterion("A", evidence="span_level"),)), found, PLAIN)
    decision = {"evidence": [{"unit": "sentence 501", "quote": "words"}], "level": 1}
    assert len(str(schema)) < 2_000
    assert jsonschema.Draft202012Validator(schema).is_valid({"decisions": {"A": decision}})


def test_the_name_of_a_unit_in_a_response_stays_its_author_s():
    shown = response("I say [sentence 2] this.", units("I say [sentence 2] this."), PLAIN)
    assert "[sentence 1] I say [sentence 2] this." in shown
