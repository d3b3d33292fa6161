"""The contract of GradeAgentOps: read, merged, verified and canonicalised, whatever the reply says."""

import copy
from collections import Counter
from dataclasses import replace

import jsonschema
import pytest
from builders.bundles import bundle, criterion, trait
from builders.canonical import canonical_claims
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.text.quotes import Span
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.evidence import Subject
from rubricflow.tasks.grading.judge.protocols.gradeagentops import contract
from rubricflow.tasks.grading.judge.protocols.gradeagentops.contract import everything, merge, read
from rubricflow.tasks.grading.judge.protocols.gradeagentops.settlement import (
    broken,
    mean_of,
    settle,
    ungrounded,
)
from rubricflow.tasks.grading.judge.schema import numbered

TEXT = "Plants need light to grow. Water helps them drink. Soil is never needed at all."
SUBJECT = Subject(TEXT, units(TEXT))
QUOTES = {1: "need light to grow", 2: "Water helps them drink", 3: "never needed at all"}
KEPT = {"quotes", "verified", "contract_fail", "top_marks_without_points"} | {
    "quote_case",
    "quote_marks",
    "quote_spacing",
}
NAMES = ("accuracy", "clarity", "completeness", "terminology")


def bundle_of(weights=(1, 1, 1), banned=1, traits=NAMES, **protocol):
    covered = {"trait": "coverage", "levels": ("missed", "covered")}
    points = (criterion(f"P{n}", weight=weight, **covered) for n, weight in enumerate(weights, 1))
    detected = {"trait": "coverage", "levels": ("absent", "detected"), "kind": "misconception", "weight": -1}
    wrong = (criterion(f"M{n}", **detected) for n in range(1, banned + 1))
    judged = (trait(name, source="judged") for name in traits)
    return bundle(*points, *wrong, traits=(*judged, trait("coverage")), name="gradeagentops", **protocol)


BUNDLE = bundle_of()
CONTRACT = jsonschema.Draft202012Validator(contract.schema(BUNDLE, everything(BUNDLE)))


def artifact_of(covered=(1, 2), missed=(3,), banned=(), subscores=(7, 7, 7, 7), final=7, **more):
    """A sound artifact: two of three points, which is a completeness of 7."""
    return {
        "evidence": [{"point": n, "quote": QUOTES[n]} for n in covered],
        "covered": list(covered),
        "missed": list(missed),
        "misconceptions": [{"misconception": n, "quote": QUOTES[3]} for n in banned],
        "rationale": "Two of three.",
        "subscores": dict(zip(NAMES, subscores, strict=True)),
        "final_score": final,
    } | more


def by_number(artifact):
    """The same claims, every point under its number."""
    first = {entry["point"]: entry["quote"] for entry in reversed(artifact["evidence"])}
    sides = dict.fromkeys(artifact["covered"], "covered") | dict.fromkeys(artifact["missed"], "missed")
    points = {
        str(n): {"quote": first.get(n, "") if side == "covered" else "", "status": side}
        for n, side in sorted(sides.items())
    }
    return {"points": points} | without(artifact, "evidence", "covered", "missed")


def without(artifact, *names):
    return {name: value for name, value in artifact.items() if name not in names}


def verdict_of(artifact, bundle=BUNDLE):
    return settle(read(artifact, everything(bundle), bundle), bundle, SUBJECT)


def levels(verdict):
    return [decision.level for decision in verdict.decisions]


def test_a_sound_artifact_passes_unchanged():
    verdict = verdict_of(artifact_of())
    assert (levels(verdict), verdict.violations) == ([1, 1, 0, 0], ())
    assert verdict.signals == Counter(quotes=2, verified=2)
    assert canonical_claims(verdict, BUNDLE, TEXT) == artifact_of()
    CONTRACT.validate(by_number(artifact_of()))
    assert verdict_of(by_number(artifact_of())) == verdict


EVERY, QUOTED = ("P1", "P2", "P3"), ("P1", "P2")


@pytest.mark.parametrize(
    ("change", "kind", "points"),
    [
        ({"covered": [], "missed": []}, "missing", EVERY),
        ({"covered": None, "missed": None}, "missing", EVERY),
        ({"missed": []}, "missing", ("P3",)),
        ({"covered": [1]}, "missing", ("P2",)),
        ({"covered": None}, "missing", QUOTED),
        ({"missed": [2, 3]}, "contradictory", ("P2",)),
        ({"covered": [1, 2, 3], "missed": [1, 2, 3]}, "contradictory", EVERY),
        ({"covered": "1, 2"}, "malformed", EVERY),
        ({"covered": [1, "two"]}, "malformed", EVERY),
        ({"covered": [True, 2]}, "malformed", EVERY),
        ({"covered": [1.5]}, "malformed", EVERY),
        ({"missed": "3"}, "malformed", EVERY),
        ({"covered": [0, 1]}, "unknown", EVERY),
        ({"covered": [10**400]}, "unknown", EVERY),
        ({"missed": [0, 2]}, "unknown", EVERY),
        ({"evidence": None}, "missing", QUOTED),
        ({"evidence": {"1": "x"}}, "malformed", QUOTED),
        ({"evidence": [{"point": 0, "quote": "x"}]}, "unknown", QUOTED),
        ({"points": ["1"]}, "malformed", EVERY),
        ({"points": {}}, "missing", EVERY),
        ({"points": {"1": {"quote": "", "status": "missed"}}}, "missing", ("P2", "P3")),
        ({"points": {"0": {"quote": "", "status": "missed"}}}, "unknown", EVERY),
        ({"points": {"one": {"quote": "", "status": "missed"}}}, "malformed", EVERY),
        ({"points": {n: {"quote": "", "status": "missed"} for n in ("1", "01")}}, "unknown", EVERY),
        ({"points": {n: {"quote": "", "status": "met"} for n in "123"}}, "malformed", EVERY),
        ({"points": dict.fromkeys("123", "missed")}, "malformed", EVERY),
    ],
)
def test_a_point_that_is_not_on_exactly_one_side_is_named(change, kind, points):
    verdict = verdict_of(artifact_of() | change)
    assert verdict.violations == tuple(f"{kind}_point:{name}" for name in points)
    undecided = {d.criterion_id: d.reason for d in verdict.decisions if d.level is None}
    assert undecided == dict.fromkeys(points, "criterion_missing" if kind == "missing" else "invalid_reply")
    assert (verdict.is_covered, verdict.signals["contract_fail"]) == (False, 1)


def test_a_point_of_which_no_quote_is_demanded_needs_no_evidence_list():
    bundle = bundle_of()
    free = tuple(c.model_copy(update={"evidence": "none"}) for c in bundle.criteria)
    bundle = bundle.model_copy(update={"criteria": free})
    assert verdict_of(without(artifact_of(), "evidence"), bundle).violations == ()
    claim = contract.schema(bundle, everything(bundle))["properties"]["points"]["properties"]["1"]
    assert list(claim["properties"]) == ["status"]


@pytest.mark.parametrize(("given", "kind"), [([7, 7, 7, 7], "malformed"), ("7", "malformed"), (None, "missing")])
def test_subscores_of_another_form_are_all_asked_for(given, kind):
    assert verdict_of(artifact_of() | {"subscores": given}).violations == tuple(
        f"{kind}:subscores.{name}" for name in NAMES
    )


def test_a_wrong_final_score_is_overwritten():
    verdict = verdict_of(artifact_of(subscores=(7, 8, 7, 8), final=3))
    assert verdict.signals["final_overwritten"] == 1
    assert canonical_claims(verdict, BUNDLE, TEXT)["final_score"] == 8  # 7.5 goes up


@pytest.mark.parametrize("entry", ["Water helps them drink", {"quote": "Water helps them drink"}, {"point": "two"}])
def test_evidence_for_no_readable_point_is_malformed_and_demotes_nothing(entry):
    verdict = verdict_of(artifact_of(evidence=[{"point": 1, "quote": QUOTES[1]}, entry]))
    assert verdict.violations == ("malformed_point:P1", "malformed_point:P2")
    assert [d.level for d in verdict.decisions[:2]] == [None, None]


@pytest.mark.parametrize(
    ("weights", "covered", "stated", "kept"),
    [
        ((1, 1, 1), (1, 2), 7, 7),
        ((1, 1, 1), (1, 2), 9, 9),  # 2 off stays
        ((1, 1, 1), (1, 2), 10, 7),  # 3 off does not; 20/3 rounds to 7
        ((1, 1, 1), (1, 2), 4, 7),
        ((1, 1, 2), (1, 2), 8, 5),  # weighted: 2 of 4
        ((3, 1), (1,), 5, 8),  # 7.5 goes up
    ],
)
def test_completeness_follows_the_covered_points_where_they_differ_by_more_than_two(weights, covered, stated, kept):
    bundle = bundle_of(weights)
    missed = [n for n in range(1, len(weights) + 1) if n not in covered]
    verdict = verdict_of(artifact_of(covered, missed, subscores=(5, 5, stated, 5)), bundle)
    assert verdict.traits["completeness"] == kept
    assert verdict.signals["forced_completeness_from_gold"] == (kept != stated)


def test_the_tolerance_is_a_share_of_the_range():
    bundle = bundle_of((1, 1))
    traits = tuple(t.model_copy(update={"max": 100}) if t.id == "completeness" else t for t in bundle.traits)
    wide = bundle.model_copy(update={"traits": traits})
    for stated, kept in ((70, 70), (71, 50)):
        verdict = verdict_of(artifact_of([1], [2], subscores=(5, 5, stated, 5)), wide)
        assert verdict.traits["completeness"] == kept


class Meaning:
    """Finds the first sentence for a quote that says so in other words."""

    def find(self, quote, low, high):
        return Span(0, 26) if quote.startswith("sunshine") else None


def test_a_quote_that_holds_by_its_meaning_is_replaced_by_the_words_of_the_response():
    quotes = ["sunshine is wanted", "sunshine feeds growth", "moonlight is wanted"]
    evidence = [*({"point": 1, "quote": quote} for quote in quotes), {"point": 2, "quote": QUOTES[2]}]
    subject = replace(SUBJECT, match=Meaning())
    claims = read(artifact_of(evidence=evidence), everything(BUNDLE), BUNDLE)
    verdict = settle(claims, BUNDLE, subject)
    assert [row["status"] for row in verdict.decisions[0].evidence] == ["fabricated", "semantic", "duplicate"]
    made = canonical_claims(verdict, BUNDLE, TEXT)
    assert made["evidence"][0] == {"point": 1, "quote": "Plants need light to grow."}
    assert canonical_claims(verdict_of(made), BUNDLE, TEXT) == made
    assert settle(claims, BUNDLE, SUBJECT).violations == ("evidence_failed:P1",)


# Repair: what is asked for, and what an answer may touch.


def mended(artifact, reply, asked_of):
    """Canonical artifact and violations before and after a repair."""
    before = verdict_of(artifact)
    asked = asked_of(before)
    after = settle(merge(before.claims, read(reply, asked, BUNDLE), asked), BUNDLE, SUBJECT)
    return before, after


def of_evidence(verdict):
    return ungrounded(BUNDLE, verdict)


def of_contract(verdict):
    return broken(BUNDLE, verdict.claims)


def test_doubtful_numbers_are_replaced_with_their_evidence():
    before = artifact_of(covered=[1], missed=[0, 2], evidence=[{"point": 1, "quote": QUOTES[2]}])
    reply = {"covered": [2], "missed": [1, 3]}
    _, after = mended(before, reply, of_contract)
    assert after.violations == ("missing_point:P2",)  # the old quote was for another point


@settings(max_examples=40)
@given(st.data())
def test_a_repair_changes_nothing_that_was_valid(data):
    """Whatever a repair says, decisions and subscores that were not at fault stay as they were."""
    broken_one = copy.deepcopy(artifact_of(banned=data.draw(st.sampled_from([(), (1,)]))))
    fault = data.draw(st.sampled_from(["evidence", "subscore", "rationale", "misconceptions", "nowhere", "twice"]))
    if fault == "evidence":
        broken_one["evidence"][0]["quote"] = "not in the text"
    elif fault == "subscore":
        broken_one["subscores"]["clarity"] = 99
    elif fault == "rationale":
        del broken_one["rationale"]
    elif fault == "nowhere":
        broken_one["missed"] = []
    elif fault == "twice":
        broken_one["missed"] = [2, 3]
    else:
        broken_one["misconceptions"] = "?"
    reply = data.draw(artifacts() | numbered_artifacts())
    before, after = mended(broken_one, reply, of_evidence if fault == "evidence" else of_contract)
    at_fault = {"evidence": {"P1"}, "misconceptions": {"M1"}, "nowhere": {"P3"}, "twice": {"P2"}}
    open_ones = at_fault.get(fault, set())
    for old, new in zip(before.decisions, after.decisions, strict=True):
        assert old == new or old.criterion_id in open_ones
    assert {**after.claims.subscores, **before.claims.subscores} == after.claims.subscores
    assert after.claims.subscores.keys() - before.claims.subscores.keys() <= {"clarity"}
    assert fault == "rationale" or after.claims.rationale == before.claims.rationale


# Laws.

junk = st.one_of(st.none(), st.booleans(), st.integers(-2, 12), st.floats(allow_nan=False), st.text(max_size=4))
indices = st.one_of(st.lists(st.one_of(st.integers(1, 3), st.integers(0, 4), junk), max_size=5), junk)
said = st.sampled_from([*QUOTES.values(), "PLANTS  need light", "not there at all", "", "light", "them. Water"])


@st.composite
def artifacts(draw, sound=False):
    """Artifacts with faults here and there; `sound` ones have only wrong quotes and numbers."""
    number = st.integers(1, 3) if sound else st.one_of(st.integers(1, 3), junk)
    claims = st.lists(st.fixed_dictionaries({"point": number, "quote": said}), max_size=6)
    wrong = st.lists(st.fixed_dictionaries({"misconception": st.just(1), "quote": said}), max_size=2)
    sides = draw(st.tuples(*[st.booleans()] * 3))
    covered, missed = ([n for n in (1, 2, 3) if sides[n - 1] == side] for side in (True, False))
    value = st.integers(0, 10) if sound else st.one_of(st.integers(0, 10), junk)
    whole = {
        "evidence": draw(claims if sound else st.one_of(claims, st.lists(junk, max_size=2), junk)),
        "covered": covered if sound else draw(indices | st.just(covered)),
        "missed": missed if sound else draw(indices | st.just(missed)),
        "misconceptions": draw(wrong if sound else st.one_of(wrong, junk)),
        "rationale": draw(st.text(max_size=9) if sound else st.one_of(st.text(max_size=9), junk)),
        "subscores": {name: draw(value) for name in NAMES},
        "final_score": draw(value),
        "more": draw(junk),
    }
    dropped = () if sound else draw(st.lists(st.sampled_from(sorted(whole)), max_size=2))
    return without(whole, *dropped)


@st.composite
def numbered_artifacts(draw):
    """Artifacts with every point under its number, with faults here and there."""
    number = st.sampled_from(["1", "2", "3"]) | st.sampled_from(["0", "4", "x", " 1"])
    status = st.sampled_from(["covered", "missed"]) | junk
    claim = st.fixed_dictionaries({"quote": said | junk, "status": status}) | junk
    points = st.dictionaries(number, claim, max_size=4) | junk
    return {"points": draw(points)} | without(draw(artifacts()), "covered", "missed", "evidence")


@settings(max_examples=40)
@given(artifacts() | numbered_artifacts())
def test_every_point_is_decided_or_named(artifact):
    verdict = verdict_of(artifact)
    named = [v.partition(":")[2] for v in verdict.violations if v.partition(":")[0].endswith("_point")]
    undecided = [d.criterion_id for d in verdict.decisions if d.level is None and d.criterion_id.startswith("P")]
    assert named == undecided
    assert {c.id for n, c in numbered(BUNDLE).points.items() if n in broken(BUNDLE, verdict.claims).points} == {*named}


@settings(max_examples=40)
@given(artifacts() | numbered_artifacts())
def test_settling_the_canonical_artifact_changes_nothing(artifact):
    once = canonical_claims(verdict_of(artifact), BUNDLE, TEXT)
    again = verdict_of(once)
    assert canonical_claims(again, BUNDLE, TEXT) == once
    assert {v for v in again.violations if not v.startswith(("missing:", "missing_point:"))} == set()
    assert not {name for name in again.signals if name not in KEPT}


@settings(max_examples=40)
@given(artifacts(sound=True), st.integers(0, 5), st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_removing_evidence_from_a_point_never_raises_the_score(artifact, at, weights):
    bundle = bundle_of(tuple(weights))
    poorer = artifact | {"evidence": artifact["evidence"][:at] + artifact["evidence"][at + 1 :]}
    before, after = (verdict_of(one, bundle) for one in (artifact, poorer))
    assert mean_of(bundle, after.traits) <= mean_of(bundle, before.traits)
    assert all(new.level <= old.level for old, new in zip(before.decisions, after.decisions, strict=True))


@settings(max_examples=40)
@given(artifacts())
def test_nothing_is_credited_without_words_of_the_response(artifact):
    folded = " ".join(TEXT.lower().split())
    for decision in verdict_of(artifact).decisions:
        if decision.level:
            assert any(" ".join(row["quote"].lower().split()) in folded for row in decision.evidence)


def test_points_and_misconceptions_are_numbered_apart_in_the_bundles_order():
    points, banned, traits = numbered(BUNDLE)
    assert {n: c.id for n, c in points.items()} == {1: "P1", 2: "P2", 3: "P3"}
    assert {n: c.id for n, c in banned.items()} == {1: "M1"}
    assert [t.id for t in traits] == list(NAMES)
