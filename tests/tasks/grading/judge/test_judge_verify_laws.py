"""What holds for the verifier whatever the reply and the response say."""

import json
import random
import sys
from collections import Counter

import pytest
from builders.bundles import bundle, criterion, trait
from builders.canonical import canonical
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.text.fold import fold
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import HOLDS, Subject
from rubricflow.tasks.grading.judge.schema import PLAIN
from rubricflow.tasks.grading.judge.score import score
from rubricflow.tasks.grading.judge.verify import verify

MIN_CHARACTERS = 5

TYPES = ("local_quote", "span_level", "global_diagnostic", "weakly_groundable", "none")
DEMANDING = TYPES[:3]
WORDS = [
    "light",
    "Water",
    "the",
    "café",
    "cafe\u0301",
    "İstanbul",
    "straße",
    "no",
    "4",
    "…",
    "a.b",
    "растёт",
    "\u202eabc",
]
GAPS = [" ", "  ", ". ", "? ", "\n", "\n\n", "\u00a0", "\t"]
CORRECTIONS = (
    "canonicalised",
    "demoted",
    "dropped",
    "unsupported",
    "malformed_evidence",
    "duplicate",
    "invalid_evidence",
)


def bundle_of(evidence, on_failure, weights, formula, unscored="zero", source="response"):
    """One criterion of each given evidence type, in two traits."""
    asked = {"levels": ("0", "1", "2"), "evidence_from": source}
    traits = "ab" if len(evidence) > 1 else "a"
    criteria = tuple(
        criterion(f"C{n}", traits[n % len(traits)], evidence=kind, weight=weight, **asked)
        for n, (kind, weight) in enumerate(zip(evidence, weights, strict=True))
    )
    protocol = {"final_score": formula, "failed_quote": on_failure, "unscored": unscored}
    return bundle(*criteria, ends=(0, 4 * len(traits)), traits=tuple(trait(name, 0, 4) for name in traits), **protocol)


@st.composite
def texts(draw):
    """Responses of a few sentences and paragraphs with awkward characters."""
    pieces = draw(st.lists(st.tuples(st.sampled_from(WORDS), st.sampled_from(GAPS)), min_size=1, max_size=14))
    return "".join(word + gap for word, gap in pieces)


@st.composite
def replies(draw, text, count, junk=True):
    """Decisions with quotes cut from the text, joined, varied or invented."""
    found = [name for unit in units(text) for name in (unit.unit_id, PLAIN.name(unit.unit_id))]
    cut = st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(lambda ab: text[min(ab) : max(ab)])
    quote = st.one_of(
        cut,
        cut.map(str.upper),
        cut.map(lambda c: f"“{c}”"),
        st.tuples(cut, cut).map(" ... ".join),
        st.sampled_from(["never written words", "no", " "]),
    )
    entry = st.fixed_dictionaries({"unit": st.sampled_from([*found, "s77", "sentence 77", "C0"]), "quote": quote})
    entries = st.lists(entry, max_size=4)
    anything = st.recursive(
        st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=4,
    )
    level = st.integers(0, 2)
    if junk:
        level = st.one_of(level, level.map(str), level.map(float), anything)
        entries = st.one_of(entries, entry, quote, st.lists(st.one_of(entry, quote, anything), max_size=3), anything)
    decision = st.fixed_dictionaries(
        {"level": level, "evidence": entries, "diagnostic": st.sampled_from(["", "flows"])}
    )
    shape = st.one_of(decision, decision, decision, anything) if junk else decision
    names = draw(st.permutations([f"C{n}" for n in range(count)]))
    kept = draw(st.integers(0, count)) if junk else count
    return {"decisions": {name: draw(shape) for name in names[:kept]}}


@st.composite
def cases(draw, on_failure=("demote", "drop", "count"), junk=True, kinds=TYPES, weights=(-1.0, 0.5, 1.0, 3.0)):
    """(bundle, artifact, subject)."""
    evidence = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=4))
    signed = draw(st.lists(st.sampled_from(weights), min_size=len(evidence), max_size=len(evidence)))
    formula = draw(st.sampled_from(["weighted_points", "trait_mean", "trait_sum"]))
    source = draw(st.sampled_from(["response", "response_and_context"]))
    bundle = bundle_of(evidence, draw(st.sampled_from(on_failure)), signed, formula, source=source)
    text = draw(texts())
    subject = Subject(text, units(text), draw(st.sampled_from([None, "light and water in a passage"])))
    return bundle, draw(replies(text, len(evidence), junk)), subject


def levels_of(verdict):
    return {d.criterion_id: d.level for d in verdict.decisions}


@settings(max_examples=20)
@given(cases())
def test_verifying_the_canonical_artifact_changes_and_finds_nothing(case):
    bundle, artifact, subject = case
    first = verify(artifact, bundle, bundle.criteria, subject)
    left = canonical(first, bundle.criteria, subject.text, subject.names)
    again = verify(left, bundle, bundle.criteria, subject)
    assert levels_of(again) == levels_of(first)
    assert canonical(again, bundle.criteria, subject.text, subject.names) == left
    kept = {"counted", "unsupported"} if bundle.protocol.failed_quote == "count" else set()
    assert not [name for name in CORRECTIONS if again.signals[name] and name not in kept]
    counted = {
        f"{'no_diagnostic' if {row['status'] for row in d.evidence} & HOLDS else 'evidence_failed'}:{d.criterion_id}"
        for d in first.decisions
        if d.action == "counted"
    }
    undecided = {f"missing_decision:{d.criterion_id}" for d in first.decisions if d.level is None}
    assert set(again.violations) == counted | undecided


def sentences(subject):
    return {unit.unit_id for unit in subject.units if unit.kind == "sentence"}


def is_in(quote, region):
    """Whether each fragment that says anything stands in the region: an independent, more lenient reading."""
    folded = fold(region).text
    whole = fold(quote.strip(" \"'“”‘’«»`\n\t\u00a0")).text
    pieces = [piece.strip(" .[]()\"'“”‘’«»`") for piece in whole.replace("...", "…").split("…")]
    return whole in folded or all(piece in folded for piece in pieces if len(piece) >= MIN_CHARACTERS)


@settings(max_examples=40)
@given(cases(on_failure=("demote", "drop"), kinds=DEMANDING))
def test_no_level_above_0_on_an_ungrounded_quote(case):
    bundle, artifact, subject = case
    places = subject.by_id
    for asked, decision in zip(
        bundle.criteria, verify(artifact, bundle, bundle.criteria, subject).decisions, strict=True
    ):
        for row in decision.evidence:
            if row["status"] != "verified":
                continue
            unit = places.get(row["unit_id"])
            region = subject.text[unit.start : unit.end] if unit else subject.text if row["unit_id"] is None else ""
            if unit and asked.evidence == "span_level":
                region = next(
                    subject.text[p.start : p.end]
                    for p in places.values()
                    if p.kind == "paragraph" and p.start <= unit.start < p.end
                )
            assert is_in(row["quote"], region)
        if decision.level:
            assert any(row["status"] in ("verified", "context") for row in decision.evidence)


@settings(max_examples=20)
@given(cases(junk=False), st.data())
def test_removing_evidence_from_a_positive_criterion_never_raises_the_score(case, data):
    bundle, artifact, subject = case
    positive = [c.id for c in bundle.criteria if c.weight > 0]
    before = score(bundle, levels_of(verify(artifact, bundle, bundle.criteria, subject))).score
    for name in positive:
        evidence = artifact["decisions"][name]["evidence"]
        kept = data.draw(st.lists(st.sampled_from(evidence), unique_by=id) if evidence else st.just([]))
        changed = {"decisions": artifact["decisions"] | {name: artifact["decisions"][name] | {"evidence": kept}}}
        assert score(bundle, levels_of(verify(changed, bundle, bundle.criteria, subject))).score <= before


@settings(max_examples=40)
@given(
    st.text(st.characters(codec=None), max_size=60),
    st.text(st.characters(codec=None), max_size=30),
    st.text(st.characters(codec=None), max_size=8),
)
@example("\ud800 \u202e\x00 words", "\ud800 \u202e\x00 words", "s1")
@example("\ufeff\u200b", "\u200b", "p1")
def test_hostile_characters_never_raise(text, quote, unit):
    bundle = bundle_of(["local_quote"], "demote", [1.0], "weighted_points")
    subject = Subject(text, units(text), text)
    given_quotes = [{"unit": unit, "quote": quote}, {"unit": "s1", "quote": text}, quote]
    verdict = verify(
        {"decisions": {"C0": {"evidence": given_quotes, "level": 1}, quote: {}}}, bundle, bundle.criteria, subject
    )
    assert len(verdict.decisions) == 1


@settings(max_examples=20)
@given(st.text(max_size=80))
def test_any_reply_text_ends_in_a_verdict_or_in_none(text):
    bundle = bundle_of(["local_quote", "none"], "demote", [1.0, 1.0], "weighted_points")
    subject = Subject("words of a response", units("words of a response"))
    for reply in (
        text,
        '{"decisions": ' + text,
        '{"decisions": {"C0": {"level": 1, "evidence": [' + json.dumps(text) + "]}}}",
    ):
        artifact, _ = extract(reply, frozenset({"decisions"}))
        if artifact is not None:
            assert len(verify(artifact, bundle, bundle.criteria, subject).decisions) == 2


def _megabyte(kind, size):
    match kind:
        case "one word":
            return "a" * size
        case "short":
            return "no " * (size // 3)
        case "lines":
            return "ab cd\n" * (size // 6)
        case "dots":
            return ". " * (size // 2)
        case "accents":
            return "naïve café très bon " * (size // 20)


def _calls(kind, size):
    """How many functions are called to verify 20 quotes, good and bad, against a response of so many characters."""
    text, rng = _megabyte(kind, size), random.Random(0)
    bundle = bundle_of(["span_level", "local_quote"], "demote", [1.0, 1.0], "weighted_points")
    found = units(text)
    entries = [
        {"unit": rng.choice(found).unit_id, "quote": quote}
        for i in range(4)
        for quote in (f"never said {i}", "no", f"{i}", "cd … ab cd", text[i * 7 : i * 7 + 40])
    ]
    given_decision = {"evidence": entries[::2], "level": 1}, {"evidence": entries[1::2], "level": 1}
    reply, subject, calls = (
        {"decisions": dict(zip(("C0", "C1"), given_decision, strict=True))},
        Subject(text, found),
        Counter(),
    )
    sys.setprofile(lambda frame, event, of: calls.update([event]))
    try:
        verify(reply, bundle, bundle.criteria, subject)
    finally:
        sys.setprofile(None)
    return calls.total()


@pytest.mark.parametrize(
    ("kind", "size"),
    [("one word", 10_000), ("short", 10_000), ("accents", 10_000), ("lines", 3_000), ("dots", 3_000)],
)
def test_quotes_from_a_long_response_take_linearly_many_steps(kind, size):
    fold.cache_clear()
    assert _calls(kind, size) < 30 * _calls(kind, size // 10) + 10_000
