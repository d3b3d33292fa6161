"""The verifier: every evidence type, what fails, and malformed artifacts of every kind."""

import pytest
from builders.bundles import bundle, criterion

from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import Subject, quotes_in
from rubricflow.tasks.grading.judge.verify import verify

TEXT = "Plants need light. Water helps them grow.\nThe café sells très bon pain. He left."
CONTEXT = "The passage says that roots drink."
DEMANDING = ("local_quote", "span_level", "global_diagnostic")
TYPES = (*DEMANDING, "weakly_groundable", "none")


def bundle_of(evidence, on_failure="demote", source="response", count=1):
    asked = {"levels": ("0", "1", "2"), "evidence": evidence, "evidence_from": source}
    return bundle(*(criterion(f"C{n}", **asked) for n in range(1, count + 1)), failed_quote=on_failure)


def judged(decision, bundle, text=TEXT, context=None):
    artifact = {"decisions": {"C1": decision}}
    return verify(artifact, bundle, bundle.criteria, Subject(text, units(text), context))


def status_of(quote, unit, evidence="local_quote", text=TEXT, **more):
    entry = {"quote": quote} if unit == "uncited" else {"unit": unit, "quote": quote}
    context = more.pop("context", None)
    verdict = judged(
        {"evidence": [entry], "diagnostic": "d", "level": 2}, bundle_of(evidence, **more), text, context=context
    )
    return verdict.decisions[0].evidence[0]["status"]


@pytest.mark.parametrize("evidence", TYPES)
@pytest.mark.parametrize(
    ("quote", "unit", "status"),
    [
        ("need light", "s1", "verified"),
        ("need light", "p1", "verified"),
        ("need light", "uncited", "verified"),
        ("need light", None, "verified"),
        ("sells", "s1", "misattributed"),
        ("need light", "p2", "misattributed"),
        ("need light", "s9", "misattributed"),
        ("need light", "", "misattributed"),
        ("need light", 1, "verified"),
        ("need light", "1", "verified"),
        ("need light", "[Sentence 1]", "verified"),
        ("need light", "paragraph 1", "verified"),
        ("need light", "sentence 9", "misattributed"),
        ("need light", "sentences 1 and 2", "misattributed"),
        ("need light", ["s1"], "misattributed"),
        ("drink the sea", "s1", "fabricated"),
        ("drink the sea", None, "fabricated"),
        ("He", "s4", "too_short"),
        ("need", "s1", "too_short"),
        ("...", "s1", "too_short"),
        ("NEED   Light.", "s1", "verified"),
        ("“need light”", "s1", "verified"),
        ("The cafe\u0301 sells", "s3", "verified"),
        ("the CAFÉ … bon pain", "s3", "verified"),
        ("bon pain ... the café", "s3", "fabricated"),
        ("Plants ... water they want", "s1", "fabricated"),
    ],
)
def test_what_is_found_does_not_depend_on_the_type(evidence, quote, unit, status):
    assert status_of(quote, unit, evidence) == status


@pytest.mark.parametrize(("evidence", "status"), [("span_level", "verified"), ("local_quote", "misattributed")])
def test_only_a_span_level_quote_may_stand_anywhere_in_the_paragraph_of_its_sentence(evidence, status):
    assert status_of("Water helps them", "s1", evidence) == status
    assert status_of("The café sells", "s1", evidence) == "misattributed"


def test_part_of_a_short_response_is_too_short():
    assert status_of("is", "s1", text="It is 4") == "too_short"


@pytest.mark.parametrize("evidence", TYPES)
def test_the_context_is_evidence_only_where_the_criterion_allows_it(evidence):
    allowed = {"source": "response_and_context", "context": CONTEXT}
    assert status_of("roots drink", "s1", evidence, **allowed) == "context"
    assert status_of("roots drink", "s1", evidence, context=CONTEXT) == "fabricated"
    assert status_of("roots drink", "s1", evidence, source="response_and_context") == "fabricated"


@pytest.mark.parametrize("evidence", DEMANDING)
@pytest.mark.parametrize(
    ("on_failure", "level", "action"), [("demote", 0, "demoted"), ("drop", 0, "dropped"), ("count", 2, "counted")]
)
@pytest.mark.parametrize(
    ("quotes", "violation"),
    [
        ([], "evidence_failed"),
        (["drink the sea"], "evidence_failed"),
        (["He"], "too_short"),
        (["sells très"], "misattributed"),
        (["drink the sea", "He", "sells très"], "misattributed"),
    ],
)
def test_a_failed_quote_does_what_the_protocol_says(evidence, on_failure, level, action, quotes, violation):
    given = {"evidence": [{"unit": "s1", "quote": quote} for quote in quotes], "diagnostic": "d", "level": 2}
    verdict = judged(given, bundle_of(evidence, on_failure))
    decision = verdict.decisions[0]
    assert (decision.level, decision.stated, decision.action, decision.verified) == (level, 2, action, False)
    assert verdict.violations == (f"{violation}:C1",)
    assert (verdict.signals["unsupported"], verdict.signals[action]) == (1, 1)


def test_a_quote_that_holds_without_its_diagnostic_is_not_called_a_failed_quote():
    entry = {"evidence": [{"unit": "s1", "quote": "need light"}], "level": 2, "diagnostic": " "}
    assert judged(entry, bundle_of("global_diagnostic")).violations == ("no_diagnostic:C1",)


@pytest.mark.parametrize(("given", "canonical"), [(1, 0), (1.0, 1), ("1", 1), (" 1 ", 1), ("1.0", 1)])
def test_whole_numbers_in_other_clothes_are_levels(given, canonical):
    verdict = judged({"level": given}, bundle_of("none"))
    assert (verdict.decisions[0].level, verdict.signals["canonicalised"], verdict.violations) == (1, canonical, ())


@pytest.mark.parametrize(
    ("level", "problem"),
    [
        (level, "malformed_decision")
        for level in (None, True, False, 1.5, "1.5", "", "one", "nan", [1], {"level": 1}, float("inf"))
    ]
    + [(level, "level_off_scale") for level in (3, -1, "7", 1e300, 10**400, "1" * 400 + "e-200")],
)
def test_an_unusable_level_is_undecided_and_never_0(level, problem):
    verdict = judged({"evidence": [{"unit": "s1", "quote": "need light"}], "level": level}, bundle_of("local_quote"))
    assert verdict.decisions[0][:4] == ("C1", None, None, "invalid_reply")
    assert verdict.violations == (f"{problem}:C1",)


def test_missing_and_unknown_criteria_are_named():
    bundle = bundle_of("none", count=2)
    artifact = {"decisions": {"X" * 100: {"level": 1}, "C2": {"level": 1}, "c1": {"level": 1}}}
    verdict = verify(artifact, bundle, bundle.criteria, Subject(TEXT, units(TEXT)))
    assert [(d.level, d.reason) for d in verdict.decisions] == [(None, "criterion_missing"), (1, None)]
    assert verdict.violations == ("unknown_criterion:" + "X" * 40, "unknown_criterion:c1", "missing_decision:C1")


@pytest.mark.parametrize(
    ("evidence", "level", "canonicalised", "malformed"),
    [
        ({"unit": "s1", "quote": "need light"}, 1, 2, 0),
        ({"unit": "sentence 1", "quote": "need light"}, 1, 1, 0),
        ("need light", 1, 1, 0),
        (["need light"], 1, 0, 0),
        ([None, 5, [], {"unit": "s1"}, {"quote": ["need light"]}, {"quote": " "}], 0, 0, 6),
        (42, 0, 1, 1),
        ({"unit": "s1", "text": "need light"}, 0, 1, 1),
        (None, 0, 0, 0),
    ],
)
def test_evidence_of_another_shape_is_read_or_counted(evidence, level, canonicalised, malformed):
    verdict = judged({"evidence": evidence, "level": 1}, bundle_of("local_quote"))
    assert verdict.decisions[0].level == level
    assert (verdict.signals["canonicalised"], verdict.signals["malformed_evidence"]) == (canonicalised, malformed)


def test_what_is_kept_is_bounded():
    given = {"evidence": [{"unit": "u" * 99, "quote": "q " * 5_000}], "diagnostic": "d " * 5_000, "level": 1}
    decision = judged(given, bundle_of("global_diagnostic")).decisions[0]
    assert (len(decision.evidence[0]["unit_id"]), len(decision.evidence[0]["quote"])) == (40, 2_000)


# Words in quotation marks are found whatever marks are used, and apostrophes are none.


@pytest.mark.parametrize(
    ("explanation", "expected"),
    [
        ('It says "warm air rises" and “it cools”.', ["warm air rises", "it cools"]),
        ("It's not what the pupils' teacher didn't say.", []),
        ("He writes 'the kettle's lid', not 'x'.", ["the kettle's lid"]),
        ("«eau froide» und „zu kalt“, »so nicht«", ["eau froide", "zu kalt", "so nicht"]),
        ('"same" and "same" again', ["same"]),
        ('an open " mark', []),
        ("", []),
    ],
)
def test_quotes(explanation: str, expected: list[str]) -> None:
    assert quotes_in(explanation) == expected


def test_signals_count_quotes_by_what_was_found():
    said = ["need light", "Need  light", "sells très", "drink the sea", "He"]
    given = {"evidence": [{"unit": "sentence 1", "quote": quote} for quote in said], "level": 1}
    assert judged(given, bundle_of("local_quote")).signals == {
        "quotes": 5,
        "verified": 1,
        "duplicate": 1,
        "misattributed": 1,
        "fabricated": 1,
        "too_short": 1,
        "invalid_evidence": 3,
    }
