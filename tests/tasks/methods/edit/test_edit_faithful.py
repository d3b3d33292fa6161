"""Rule faithfulness: schemes after each edit, gold marks by hand, and the measures against a plain loop."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from builders.bundles import bundle as locked
from builders.bundles import criterion
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Bundle, Count, Criterion
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.tables.edit import RuleEdit
from rubricflow.tasks.grading.judge.score import score
from rubricflow.tasks.methods.edit.rollout import Sample, printed
from rubricflow.tasks.methods.edit.rule_edits import (
    EDITS,
    edits,
    faithfulness,
    moved,
    restated,
    rule_tests,
    totals,
)


def points(values: Sequence[float], top: int | None = None, formula: str = "weighted_points", **more: Any) -> Bundle:
    """A scheme of so many points; its marks are the values where `top` is their sum."""
    criteria = (criterion(f"P{n}", text=f"Names cause {n}.", weight=value) for n, value in enumerate(values, 1))
    words = "Two marks for the cause, and one mark for everything else."
    ends = 0, round(sum(values)) if top is None else top
    made = locked(*criteria, ends=ends, text=words, name="pointwise", final_score=formula, signals=("length",))
    return Bundle.model_validate(made.model_dump() | more)


def levels(ends: Sequence[int], formula: str = "judged") -> Bundle:
    """A scheme of levels whose bands end at these marks."""
    words = [f"quality {n}" for n in range(len(ends))]
    anchors = [{"score": end, "text": word} for end, word in zip(ends, words, strict=True)]
    return Bundle.model_validate(
        {
            "text": "Level 2 gets 3-4 marks.",
            "scale": {"min": 0, "max": ends[-1]},
            "traits": [{"id": "q", "name": "Quality", "min": 0, "max": ends[-1], "anchors": anchors}],
            "criteria": [{"id": "level", "trait": "q", "text": "How good it is.", "levels": words, "weight": ends[-1]}],
            "protocol": {"name": "dhs", "final_score": formula, "signals": ["length"]},
        }
    )


@pytest.mark.parametrize(
    ("ends", "edit", "marks"),
    [
        ((0, 2, 4, 6), "A1", (0, 3, 4, 5, 6, 7, 8)),
        ((0, 2, 4, 6), "A2", (0, 2, 4, 6, 8, 10, 12)),
        ((0, 2, 4, 6), "B1", (0, 2, 3, 5, 6, 7, 8)),
        ((0, 1, 2), "B1", (0, 2, 4)),
        ((1, 2, 4), "A1", (0, 3, 4, 5, 6)),  # nothing creditable is 0 marks, also in a lowest level that is worth one
        ((1, 2, 4), "B1", (0, 2, 4, 5, 6)),
    ],
)
def test_marks_of_levels_by_hand(ends: Sequence[int], edit: RuleEdit, marks: tuple[int, ...]) -> None:
    assert moved(levels(ends), edit) == marks


@pytest.mark.parametrize(
    ("edit", "marks"),
    [("x0.5", (0, 1, 1, 2, 2, 3)), ("x1.5", (0, 2, 3, 5, 6, 8)), ("x2.0", (0, 2, 4, 6, 8, 10))],
)
def test_marks_of_points_by_hand(edit: RuleEdit, marks: tuple[int, ...]) -> None:
    assert moved(points([1, 2, 2]), edit) == marks


SCHEMES = st.one_of(
    st.lists(st.integers(1, 4), min_size=2, max_size=5).map(points),
    st.lists(st.integers(0, 30), min_size=3, max_size=6, unique=True).map(sorted).map(levels),
)


@given(SCHEMES)
def test_marks_rise_stay_on_the_new_scale_and_nothing_is_nothing(bundle: Bundle) -> None:
    for edited in edits(bundle):
        assert edited.marks[0] == 0
        assert list(edited.marks) == sorted(edited.marks)
        assert edited.marks[-1] == edited.bundle.scale.max
        assert len(edited.marks) == bundle.scale.max + 1
        assert Bundle.unlock(edited.bundle_id, edited.bundle.canonical()) == edited.bundle


def test_every_edit_is_another_bundle() -> None:
    for bundle in (points([1, 2, 2]), levels((0, 2, 4))):
        ids = {bundle.bundle_id, restated(bundle).bundle_id} | {edited.bundle_id for edited in edits(bundle)}
        assert len(ids) == 5


def worth(scheme: str) -> dict[str, str]:
    """Point or level → the marks that a printed scheme gives it."""
    return dict(re.findall(r"^(P\d+|Level \d+)\b.*?\(([\d.-]+) marks?\)", scheme, re.MULTILINE))


def test_points_say_their_exact_values() -> None:
    told = {edited.edit: worth(edited.bundle.text) for edited in edits(points([1, 3]))}
    assert told == {
        "x0.5": {"P1": "0.5", "P2": "1.5"},
        "x1.5": {"P1": "1.5", "P2": "4.5"},
        "x2.0": {"P1": "2", "P2": "6"},
    }


def test_a_total_of_half_a_mark_more_is_rounded_and_the_points_are_not() -> None:
    (half, *_) = edits(points([1, 1, 1]))
    assert (half.bundle.scale.max, half.marks) == (2, (0, 1, 1, 2))
    assert set(worth(half.bundle.text).values()) == {"0.5"}
    assert [criterion.weight for criterion in half.bundle.criteria] == [0.5] * 3


def test_weights_that_are_no_marks_become_marks() -> None:
    bundle = points([2, 2], top=10)
    assert [criterion.weight for criterion in restated(bundle).criteria] == [5, 5]
    assert restated(bundle).text == printed(bundle)
    assert [criterion.weight for criterion in edits(bundle)[2].bundle.criteria] == [10, 10]


def test_levels_say_their_bands_also_where_they_lie_apart() -> None:
    told = {edited.edit: worth(edited.bundle.text) for edited in edits(levels((0, 2, 3)))}
    assert told == {
        "A1": {"Level 0": "0", "Level 1": "3-4", "Level 2": "5"},
        "A2": {"Level 0": "0", "Level 1": "2-4", "Level 2": "6"},
        "B1": {"Level 0": "0", "Level 1": "2-3", "Level 2": "5"},
    }


def test_anchors_and_ranges_move_with_the_marks() -> None:
    for edited in edits(levels((0, 2, 6))):
        (trait,) = edited.bundle.traits
        assert [anchor.score for anchor in trait.anchors] == [0, edited.marks[2], edited.marks[6]]
        assert trait.bounds == edited.bundle.scale.bounds == (0, edited.marks[6], 1)


@given(SCHEMES)
def test_but_for_the_marks_a_scheme_is_printed_as_ever(bundle: Bundle) -> None:
    bare = re.compile(r"\([\d.-]+ marks?\)")
    for made in (restated(bundle), *(edited.bundle for edited in edits(bundle))):
        assert bare.sub("()", made.text) == bare.sub("()", printed(bundle))
        assert "for everything else" not in made.text
        assert [(c.id, c.text, c.levels) for c in made.criteria] == [(c.id, c.text, c.levels) for c in bundle.criteria]


@pytest.mark.parametrize(
    "words", ["(2 marks) Names heat.", "One mark for heat.", "2-mark point", "Mark: 3", "得2分", "half a mark"]
)
def test_a_scheme_whose_words_state_marks_is_refused(words: str) -> None:
    for bundle in (points([1, 1]), levels((0, 1, 2))):
        criterion = bundle.criteria[0].model_copy(update={"text": words})
        changed = bundle.model_copy(update={"criteria": (criterion, *bundle.criteria[1:])})
        with pytest.raises(InputError, match="would contradict an edit") as error:
            edits(changed)
        assert error.value.field == f"criteria.{criterion.id}"


@pytest.mark.parametrize(
    "words", ["Names 2 landmarks.", "Marks the 3 points.", "等待2分钟", "A quotation mark is set."]
)
def test_words_that_state_no_marks_are_let_be(words: str) -> None:
    bundle = points([1, 1])
    criterion = bundle.criteria[0].model_copy(update={"text": words})
    assert len(edits(bundle.model_copy(update={"criteria": (criterion, bundle.criteria[1])}))) == 3


def test_schemes_that_have_no_whole_marks_are_refused() -> None:
    with pytest.raises(InputError, match="whole numbers from 0"):
        edits(points([1, 1], scale={"min": 1, "max": 5}))
    with pytest.raises(InputError, match="do not part the marks 0 to 4"):
        edits(levels((0, 2, 4)).model_copy(update={"traits": levels((0, 2, 3)).traits}))


def test_a_gold_mark_off_the_scale_is_refused() -> None:
    for gold in (-1, 3):
        with pytest.raises(InputError, match="off the scale 0 to 2"):
            edits(points([1, 1]))[0].row("r", "x", "i", gold, (0, 0), "stated")


def test_who_makes_the_total() -> None:
    judged = {"traits": [{"id": "t", "name": "T", "min": 0, "max": 2, "source": "judged"}]}
    assert totals(levels((0, 1, 2))) == "stated"
    assert totals(points([1, 1])) == "summed"
    assert totals(points([1, 1], formula="trait_mean", **judged)) == "stated"
    assert totals(points([1, 1], **judged)) == "summed"
    assert restated(levels((0, 1, 2))).protocol.show_weights
    assert not restated(points([1, 1])).protocol.show_weights


@pytest.mark.parametrize("formula", ["weighted_points", "trait_mean", "trait_sum"])
def test_a_total_that_code_sums_follows_edits_of_points(formula: str) -> None:
    bundle = points([1, 2, 2, 4], formula=formula)
    for edited, met in itertools.product(edits(bundle), itertools.product((0, 1), repeat=4)):
        decided = dict(zip(("P1", "P2", "P3", "P4"), met, strict=True))
        before, after = (score(one, decided).score for one in (restated(bundle), edited.bundle))
        assert before is not None
        assert after == edited.marks[int(before)]


def test_traits_keep_adding_up_to_the_scale() -> None:
    traits = [{"id": name, "name": name, "min": 0, "max": 5, "source": "judged"} for name in ("t", "u")]
    bundle = points([5, 5], formula="trait_sum", traits=traits)
    (half, *_) = edits(bundle)
    assert [trait.bounds for trait in half.bundle.traits] == [(0, 2.5, 0.5)] * 2
    assert score(half.bundle, {"P1": 1, "P2": 1}, {"t": 2.5, "u": 1.5}).score == 4


def reader(samples: Sequence[Sample]) -> list[int | None]:
    """Marks by the scheme alone: the answer names the points it makes, or its level and its place in the band."""
    return [_read(sample) for sample in samples]


def _read(sample: Sample) -> int:
    found = worth(sample.scheme)
    if level := re.fullmatch(r"(Level \d) (low|high)", sample.answer):
        low, _, high = found[level[1]].partition("-")
        return int(high or low) if level[2] == "high" else int(low)
    return math.floor(sum(float(found[name]) for name in sample.answer.split()) + 0.5)


def samples_of(item: str, bundle: Bundle, answers: Sequence[str]) -> list[Sample]:
    top, scheme = round(bundle.scale.max), printed(bundle)
    plain = [Sample(f"{item}-{n}", item, "Why?", scheme, answer, top) for n, answer in enumerate(answers)]
    return [replace(sample, gold=_read(sample)) for sample in plain]


BUNDLES = {"p": points([1, 2, 2]), "l": levels((0, 2, 4))}
SAMPLES = [
    *samples_of("p", BUNDLES["p"], ["", "P1", "P2", "P1 P3", "P2 P3", "P1 P2 P3"]),
    *samples_of("l", BUNDLES["l"], ["Level 0 low", "Level 1 low", "Level 1 high", "Level 2 low", "Level 2 high"]),
]


def test_a_grader_that_reads_the_scheme_is_faithful() -> None:
    rows = rule_tests(SAMPLES, BUNDLES, reader, "reader")
    assert [row["predicted"] for row in rows] == [row["gold"] for row in rows]
    assert [row["predicted_edited"] for row in rows] == [row["gold_edited"] for row in rows]
    found = faithfulness(rows, draws=50)
    assert {row["edit"] for row in found} == {*EDITS["levels"], *EDITS["points"]}
    for row in found:
        assert (row["rsr"], row["in_rubric"]) == (1, 1)
        assert (row["rsr_low"], row["rsr_high"], row["in_rubric_note"]) == (1, 1, None)
        assert row["floor_rate"] == pytest.approx(1 / row["n"])


def test_the_grader_is_asked_once_for_everything_under_the_right_scheme() -> None:
    calls: list[list[Sample]] = []

    def watched(samples: Sequence[Sample]) -> list[int | None]:
        calls.append(list(samples))
        return [0] * len(samples)

    unmarked = Sample("x", "p", "Why?", "", "P1", 5)
    rows = rule_tests([*SAMPLES, unmarked], BUNDLES, watched, "w")
    (asked,) = calls
    assert len(asked) == 4 * len(SAMPLES)
    assert {row["response_id"] for row in rows} == {sample.response_id for sample in SAMPLES}
    schemes = {edited.bundle.text: edited for bundle in BUNDLES.values() for edited in edits(bundle)}
    for sample in asked[len(SAMPLES) :]:
        edited = schemes[sample.scheme]
        (before,) = (one for one in SAMPLES if one.response_id == sample.response_id)
        assert (sample.top, sample.gold) == (edited.marks[-1], edited.marks[before.gold or 0])
    assert rule_tests([unmarked], BUNDLES, watched, "w") == []


def test_a_grader_that_reads_nothing() -> None:
    for row in faithfulness(rule_tests(SAMPLES, BUNDLES, lambda all_: [2] * len(all_), "constant"), draws=20):
        assert (row["rsr"], row["in_rubric"], row["floor_rate"]) == (0, 0, 0)
    for row in faithfulness(rule_tests(SAMPLES, BUNDLES, lambda all_: [0] * len(all_), "zero"), draws=20):
        assert (row["rsr"], row["floor_rate"], row["in_rubric"], row["in_rubric_n"]) == (0, 1, None, 0)
        assert row["in_rubric_note"] == "undefined: no mark under the edited scheme is above 0"


def test_missing_marks_are_left_out_and_counted() -> None:
    def silent(samples: Sequence[Sample]) -> list[int | None]:
        return [None if sample.answer == "P1" else mark for sample, mark in zip(samples, reader(samples), strict=True)]

    for row in faithfulness(rule_tests(SAMPLES, BUNDLES, silent, "s"), draws=20):
        assert (row["n"], row["unscored"]) == ((5, 1) if row["family"] == "points" else (5, 0))
        assert row["rsr"] == 1
    nobody = faithfulness(rule_tests(SAMPLES, BUNDLES, lambda all_: [None] * len(all_), "n"), draws=20)
    for row in nobody:
        assert (row["n"], row["rsr"], row["floor_rate"], row["gold_change"]) == (0, None, None, None)
        assert row["rsr_note"] == "undefined: no response has both marks"


MARKS = st.one_of(st.none(), st.integers(0, 6), st.floats(0, 6))
TESTS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12), MARKS, MARKS), max_size=12)


def row_of(number: int, marks: tuple[int, int, float | None, float | None], edit: str = "x2.0") -> dict[str, Any]:
    names = ("gold", "gold_edited", "predicted", "predicted_edited")
    who = {"rater_id": "r", "edit": edit, "family": "points", "totals": "stated"}
    return {**who, "response_id": f"x{number}", **dict(zip(names, marks, strict=True))}


@given(TESTS)
def test_measures_are_those_of_a_plain_loop(marks: list[tuple[int, int, float | None, float | None]]) -> None:
    rows = [row_of(n, of) for n, of in enumerate(marks)]
    scored = [of for of in marks if of[2] is not None and of[3] is not None]
    inside = [of for of in scored if math.floor(of[3] + 0.5) != 0]

    def ratio(some: list[Any]) -> float | None:
        gold = sum(abs(b - a) for a, b, *_ in some)
        return sum(abs(d - c) for *_, c, d in some) / gold if gold else None

    found = faithfulness(rows, draws=5)
    assert len(found) == bool(marks)
    for row in found:
        assert (row["n"], row["unscored"], row["in_rubric_n"]) == (
            len(scored),
            len(marks) - len(scored),
            len(inside),
        )
        assert row["rsr"] == pytest.approx(ratio(scored))
        assert row["in_rubric"] == pytest.approx(ratio(inside))
        assert row["floor_rate"] == (pytest.approx(1 - len(inside) / len(scored)) if scored else None)
        assert (row["rsr_note"] is None) == (row["rsr"] is not None)


def test_intervals_resample_responses() -> None:
    marks = [(n % 5, n % 5 * 2, n % 5, n % 5 + n % 3) for n in range(40)]
    once = [row_of(n, of) for n, of in enumerate(marks)]
    (single,), (double,) = faithfulness(once), faithfulness([*once, *once])
    assert single["rsr_low"] < single["rsr"] < single["rsr_high"]
    assert single["floor_low"] < single["floor_rate"] < single["floor_high"]
    bounds = ("rsr_low", "rsr_high", "in_rubric_low", "in_rubric_high", "floor_low", "floor_high")
    assert [double[name] for name in bounds] == pytest.approx([single[name] for name in bounds])
    (none,) = faithfulness(once, draws=0)
    assert (none["rsr"], none["rsr_low"]) == (single["rsr"], None)


def test_points_that_are_counted_have_no_marks_of_their_own() -> None:
    whole = Criterion(id="K", trait="t", text="Names two.", weight=2, count=Count(points=(0, 1, 2)))
    bundle = points([1, 1, 1])
    counted = tuple(one.model_copy(update={"parent": "K"}) for one in bundle.criteria)
    with pytest.raises(InputError, match="criterion 'K' counts its sub-points"):
        edits(bundle.model_copy(update={"criteria": counted, "composites": (whole,)}))
