"""The rules that need no model: each on a rubric that breaks it, and on its nearest relative that does not."""

from __future__ import annotations

import pytest
from builders.bundles import criterion, scale, trait
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Count, Criterion, Rubric
from rubricflow.tasks.grading.lock.lint import unreachable
from rubricflow.tasks.grading.lock.rubric import broken
from rubricflow.tasks.grading.rubrics.findings import (
    RULES,
    SEVERAL,
    RubricFinding,
    findings,
    merged,
    missing_catch_alls,
)
from rubricflow.tasks.grading.rubrics.wording import grams, guide_counts, joins_two, likeness


def rubric(*criteria: Criterion, text: str = "", top: float = 3) -> Rubric:
    made = Rubric(rubric_id="r", text=text, scale=scale(0, top), traits=(trait("t", 0, top),), criteria=criteria)
    assert broken(made) is None
    return made


def point(name: str, text: str, **changes: object) -> Criterion:
    return criterion(name, text=text, **changes)


def rules(of: Rubric) -> list[str]:
    return [finding.rule for finding in findings(of, unreachable(of))]


def counted(points: tuple[float, ...], *texts: str, guide: str = "", **count: object) -> Rubric:
    """A rubric of one counting criterion with these sub-points."""
    parent = point("K", "Names what the guide lists.", weight=points[-1], count=Count(points=points, **count))
    parts = [point(f"P{number}", text, parent="K") for number, text in enumerate(texts, 1)]
    return rubric(parent, *parts, text=guide, top=points[-1])


FACTS = ("Water leaves the cells.", "The membrane holds back salt.", "Sugar dissolves.", "Heat speeds it up.")


def test_a_sound_rubric_has_no_finding() -> None:
    guide = "Score 0: none\nScore 1: one reason\nScore 2: two reasons\nScore 3: three reasons"
    assert findings(counted((0, 1, 2, 3), *FACTS, guide=guide)) == []


@pytest.mark.parametrize(
    ("text", "second"),
    [
        ("Black absorbs the most energy and had the highest temperature.", "had the highest temperature"),
        ("The answer says how many weights were used and how heavy each was.", "and how heavy each was"),
        ("The word is unfair to animals; he prefers introduced.", "he prefers introduced"),
        ("People keep them as pets, and then the animals leave the house.", "the animals leave the house"),
        ("The key is iron, but it was painted.", "it was painted"),
        ("Grammar and spelling hold up.", None),
        ("The station and the astronauts are in free fall together.", None),
        ("Pandas and koalas are both specialists.", None),
        ("You need to know the kind or concentration of vinegar.", None),
        ("Potential energy of gravity and of the spring stand in the equation.", None),
        ("The arrays live throughout the program; that is, they are made only once.", None),
        ("Another step is kept the same for all; a longer time, heavier weights or a graph are none.", None),
        ("Names a trait of hers; how she feels at the moment is no trait.", None),
        ("Names what pandas and koalas that live in China eat.", None),
        ("Names the pandas and ways to save them.", None),
        ("What the summary says about people and events is what the post says.", None),
    ],
)
def test_two_statements_are_told_from_two_nouns(text: str, second: str | None) -> None:
    assert joins_two(text) == second
    assert rules(rubric(point("P", text))) == ["two_facts"] * (second is not None)


def test_a_level_that_says_what_one_half_is_worth_settles_two_facts() -> None:
    text = "Black absorbs the most energy and had the highest temperature."
    assert rules(rubric(point("P", text, levels=("neither", "one of the two", "both")))) == []
    assert rules(rubric(point("P", "Says why and/or how."))) == ["two_facts"]
    assert rules(rubric(point("P", f"{text} — or: It was hottest."))) == []
    credit = point("C", FACTS[0])
    assert rules(rubric(credit, point("M", text, kind="misconception", weight=-1))) == []


LIDS = tuple(f"The lid should be {colour}." for colour in ("white", "black", "gray"))


def test_alternatives_may_not_be_added_but_may_be_counted_as_one() -> None:
    added = rubric(*(point(name, text) for name, text in zip("WBG", LIDS, strict=True)), top=3)
    (found,) = findings(added)
    assert (found.rule, found.criteria, found.severity) == ("exclusive", ("W", "B", "G"), "wrong")
    assert rules(counted((0, 1), *LIDS)) == []
    assert rules(counted((0, 1, 2), *LIDS)) == ["exclusive"]
    excluding = [point("W", LIDS[0], excludes=("B", "G")), point("B", LIDS[1], excludes=("G",)), point("G", LIDS[2])]
    assert rules(rubric(*excluding, top=1)) == []


def test_a_statement_and_its_negation_exclude_each_other_and_two_subjects_do_not() -> None:
    said = "Phones should be banned.", "Phones should not be banned."
    assert rules(rubric(*(point(name, text) for name, text in zip("AB", said, strict=True)))) == ["exclusive"]
    apart = "Plastic A stretched the least of all.", "Plastic B stretched the most of all."
    assert rules(rubric(*(point(name, text) for name, text in zip("AB", apart, strict=True)))) == []


def test_nearly_the_same_words_count_twice_only_where_they_are_added() -> None:
    twice = "Water moves out of the potato cells.", "Water moves slowly out of the cells of the potato."
    assert rules(rubric(point("A", twice[0]), point("B", twice[1]))) == ["overlap"]
    assert rules(counted((0, 1), *twice)) == []
    opposed = (
        "Says how pandas and koalas are alike, by the article.",
        "Says how pandas and koalas differ, by the article.",
    )
    assert rules(rubric(point("A", opposed[0]), point("B", opposed[1]))) == []
    pattern = "In the morning shadows point to the west.", "In the evening shadows point to the east."
    assert rules(rubric(point("A", pattern[0]), point("B", pattern[1]))) == []


@pytest.mark.parametrize("level", ["hinted at", "In part", "partially met", "said in part or vaguely", "1"])
def test_a_middle_level_of_any_criterion_is_no_level_of_this_one(level: str) -> None:
    levels = ("not said", level, "said")
    if level == "partially met":
        assert rules(rubric(point("P", FACTS[0], levels=levels))) == []  # words of its own, to be on the safe side
    else:
        assert rules(rubric(point("P", FACTS[0], levels=levels))) == ["middle_level"]
    assert rules(rubric(point("P", FACTS[0], levels=("not said", "water is named, not where it goes", "said")))) == []


def test_the_middle_level_of_a_count_is_idle_unless_it_is_met_from_there() -> None:
    parts = [point(f"P{n}", text, parent="K", levels=("no", "hinted at", "yes")) for n, text in enumerate(FACTS[:2])]
    for least, words in ((None, "takes it for not met"), (1, "gives part of the points")):
        parent = point("K", "Names them.", weight=2, count=Count(points=(0, 1, 2), least=least))
        (found,) = findings(rubric(parent, *parts, top=2))
        assert found.rule == "middle_level"
        assert words in found.text
        assert found.criteria == ("P0", "P1")


def test_points_that_miss_the_top_or_are_too_many_for_the_scale() -> None:
    many = rubric(*(point(f"P{n}", text) for n, text in enumerate(FACTS)), top=1)
    assert rules(many) == ["points"]
    assert rules(rubric(*(point(f"P{n}", text) for n, text in enumerate(FACTS)), top=4)) == []
    few = counted((0, 1), *FACTS[:2])
    short = few.model_copy(update={"criteria": (*few.criteria, point("M", "Salt is sweet.", weight=1))})
    wide = short.model_copy(update={"scale": scale(0, 8), "traits": (trait("t", 0, 8),)})
    (found,) = findings(wide, unreachable(wide))
    assert (found.rule, found.severity) == ("points", "doubtful")
    assert "1, 2, 3, 5, 6, 7" in found.text
    (top,) = findings(wide, [8])
    assert top.severity == "wrong"


GUIDE = "3 points: Four key elements\n2 points: Three key elements\n1 point: One or two key elements\n0 points: Other"


def test_the_numbers_of_a_guide_are_read_from_the_lines_of_its_scores() -> None:
    (guide,) = guide_counts(GUIDE)
    assert guide == ("element", 4, {1: 1.0, 2: 1.0, 3: 2.0, 4: 3.0})
    (ways,) = guide_counts("Score 2: It describes two ways to mend it.\nScore 1: It describes one way to mend it.")
    assert ways == ("way", 2, {1: 1.0, 2: 2.0})
    assert guide_counts("Two ways lead to Rome, and three reasons against it.") == []
    assert guide_counts("Score 1: names one trait\nScore 0: names no trait") == []


@pytest.mark.parametrize(
    ("points", "rule"),
    [((0, 1, 1, 2, 3), []), ((0, 1, 2, 3), ["guide_count"]), ((0, 1, 2, 2, 3), ["guide_count"])],
)
def test_a_count_is_held_against_the_guide(points: tuple[float, ...], rule: list[str]) -> None:
    assert rules(counted(points, *FACTS, guide=GUIDE)) == rule


def test_criteria_that_are_added_are_no_count_of_some_of_many() -> None:
    six = [*FACTS, "Salt is left over.", "The slice bends."]
    found = rules(rubric(*(point(f"P{n}", text) for n, text in enumerate(six)), text=GUIDE))
    assert "guide_count" in found


CATCH = "Key elements:\n- Water leaves.\n- Other acceptable responses\n0 points: Other"


def test_a_catch_all_of_the_guide_is_missed_until_a_criterion_takes_it_up() -> None:
    assert rules(counted((0, 1), *FACTS, guide=CATCH)) == ["catch_all"]
    (missing,) = missing_catch_alls(counted((0, 1), *FACTS, guide=CATCH))
    assert (missing.words, missing.before) == ("Other acceptable responses", "Key elements:")
    for words in ("Names any other acceptable reason.", "Another step that is kept the same for all samples."):
        assert rules(counted((0, 1), *FACTS, words, guide=CATCH)) == []
    assert rules(counted((0, 1), *FACTS, guide="Score 0: Other\nThe other animals are acceptable.")) == []


def test_a_comparison_is_not_proved_by_one_sentence() -> None:
    text = "Pandas are harmless whereas pythons are dangerous."
    assert rules(rubric(point("P", text))) == ["comparison"]
    assert rules(rubric(point("P", text, evidence="span_level"))) == []
    assert rules(rubric(point("P", "They float while falling."))) == []


def test_what_is_said_of_several_rubrics_is_said_once() -> None:
    one = RubricFinding("a", ("P1",), "overlap", "doubtful", "Twice.")
    assert merged([one, one._replace(rubric_id="b")]) == [one._replace(rubric_id="a, b")]
    assert merged([one, one._replace(rubric_id="b", criteria=("P2",))])[0].criteria == SEVERAL
    assert merged([one, one._replace(criteria=("P2",))]) == [one._replace(criteria=("P1", "P2"))]
    assert len(merged([one, one._replace(text="Thrice.")])) == 2


WORDS = st.lists(
    st.sampled_from(["the lid", "and", "it is", "not", "two ways", "while", "other valid reasons", ";", ",", "and/or"]),
    min_size=1,
)


@given(st.lists(WORDS, min_size=1, max_size=5), WORDS)
def test_any_text_is_read_and_findings_name_what_is_there(texts: list[list[str]], guide: list[str]) -> None:
    made = rubric(*(point(f"P{n}", " ".join(words)) for n, words in enumerate(texts)), text=" ".join(guide), top=5)
    for found in findings(made, unreachable(made)):
        assert found.rule in RULES
        assert found.rubric_id == "r"
        assert set(found.criteria) <= {one.id for one in made.criteria}
        assert found.text.endswith(".")


@given(st.text(max_size=80), st.text(max_size=80))
def test_likeness_is_symmetric_and_one_for_the_same_words(first: str, second: str) -> None:
    a, b = grams(first), grams(second)
    assert likeness(a, b) == pytest.approx(likeness(b, a))
    assert -1e-9 <= likeness(a, b) <= 1 + 1e-9
    assert likeness(a, a) == pytest.approx(1.0)
