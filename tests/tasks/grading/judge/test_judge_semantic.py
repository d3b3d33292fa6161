"""Evidence by meaning: what is found, what is refused, and that the verifier stays idempotent with it."""

import re

import numpy as np
import pytest
from builders.bundles import bundle, criterion
from builders.canonical import canonical
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.doubted_quotes import wording
from rubricflow.tasks.grading.judge.evidence import Matcher, Subject
from rubricflow.tasks.grading.judge.verify import verify

TEXT = "The cells lose their water. My uncle has a red boat. He paid 40 dollars for it."
SYNONYMS = {"cell": "cells", "give": "lose", "away": "lose", "moisture": "water", "vessel": "boat", "crimson": "red"}
POINT = "the stuff inside of the cells is drained away slowly"


class Words:
    """An encoder whose meaning is the set of words, with a few synonyms; it counts its calls."""

    def __init__(self):
        self.calls = []

    def __call__(self, texts):
        self.calls.append(list(texts))
        vectors = np.zeros((len(texts), 512), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            for word in re.findall(r"\w+", text.lower()):
                row[sum(map(ord, SYNONYMS.get(word, word))) % 512] = 1
            row /= np.linalg.norm(row) or 1
        return vectors


def bundle_of(evidence="local_quote", source="response", on_failure="demote"):
    asked = {"text": POINT, "levels": ("0", "1", "2"), "evidence": evidence, "evidence_from": source}
    points = (criterion(f"C{n}", **asked) for n in (1, 2))
    return bundle(*points, evidence_match="semantic", failed_quote=on_failure)


def subject(text=TEXT, encode=None, bundle=None, threshold=0.7):
    found, rule = units(text), wording(bundle or bundle_of(), "Why?", None)
    match = Matcher(text, found, encode or Words(), threshold)
    return Subject(text, found, None, rule, rule, match)


def decided(entries, of=None, bundle=None):
    bundle = bundle or bundle_of()
    artifact = {"decisions": {"C1": {"evidence": entries, "level": 2}, "C2": {"evidence": [], "level": 0}}}
    return verify(artifact, bundle, bundle.criteria, of or subject(bundle=bundle))


@pytest.mark.parametrize(
    ("quote", "unit", "status"),
    [
        ("The cells lose their water", "s1", "verified"),
        ("the cell give away their moisture", "s1", "semantic"),
        ("the cell give away their moisture", None, "semantic"),
        ("the cell give away their moisture", "p1", "semantic"),
        ("the cell give away their moisture", "s2", "fabricated"),
        ("the cell give away their moisture", "s9", "fabricated"),
        ("The cells lose their water", "s2", "misattributed"),
        ("the cells do not lose their moisture", "s1", "fabricated"),
        ("the cells don't lose their moisture", "s1", "fabricated"),
        ("he paid 50 dollars for it", "s3", "fabricated"),
        ("he paid 40 dollars for the vessel", "s3", "semantic"),
        ("nothing of this kind was said anywhere", "s1", "fabricated"),
    ],
)
def test_a_paraphrase_holds_where_its_span_is_in_the_unit_cited(quote, unit, status):
    (row,) = decided([{"unit": unit, "quote": quote}]).decisions[0].evidence
    assert row["status"] == status
    if status == "semantic":
        assert TEXT[row["start"] : row["end"]] in (TEXT[:27], TEXT[53:])


def test_the_canonical_artifact_holds_the_words_of_the_response():
    bundle = bundle_of()
    verdict = decided([{"unit": "s1", "quote": "the cell give away their moisture"}])
    artifact = canonical(verdict, bundle.criteria, TEXT)
    assert artifact["decisions"]["C1"]["evidence"] == [{"unit": "sentence 1", "quote": "The cells lose their water."}]


def test_the_wording_of_the_rubric_is_never_matched():
    text = "The stuff inside of each cell is drained away slowly. So it goes."
    (row,) = decided([{"unit": "s1", "quote": POINT}], subject(text)).decisions[0].evidence
    assert row["status"] == "fabricated"


def test_a_span_that_repeats_the_rubric_is_never_found():
    text = f"{POINT}. So it goes."
    quote = "the stuff inside of the cell is drained away quite slowly"
    (row,) = decided([{"unit": "s1", "quote": quote}], subject(text)).decisions[0].evidence
    assert row["status"] == "fabricated"


WORDS = [
    "cells",
    "lose",
    "water",
    "boat",
    "red",
    "not",
    "4",
    "no",
    "İstanbul",
    "straße",
    "cafe\u0301",
    "…",
    "a.b",
    "水分",
]
SAID = st.lists(st.sampled_from([*WORDS, *SYNONYMS]), min_size=1, max_size=6).map(" ".join)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from(["s1", "s2", None]), SAID), max_size=4), st.data())
def test_removing_a_quote_never_helps(quotes, data):
    of, entries = subject(threshold=0.3), [{"unit": unit, "quote": quote} for unit, quote in quotes]
    kept = data.draw(st.lists(st.sampled_from(entries), unique_by=id) if entries else st.just([]))
    assert decided(kept, of).decisions[0].level <= decided(entries, of).decisions[0].level
