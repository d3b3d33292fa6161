"""Mends by code: each leaves a rubric that can be locked and has one finding fewer; and changes in words."""

from __future__ import annotations

from pathlib import Path

from builders.bundles import criterion, scale, trait
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Count, Criterion, Example, Labelled, Rubric
from rubricflow.tasks.grading.lock.lint import unreachable
from rubricflow.tasks.grading.lock.rubric import authored, broken
from rubricflow.tasks.grading.rubrics.findings import decided, findings
from rubricflow.tasks.grading.rubrics.revision import Reasons, RubricChange, as_yaml, changes, in_words, mended

HINTED = ("not said", "hinted at", "said")
GUIDE = """Conclusions:
- Plastic B stretched most.
- Other reasonable conclusions
Improvements of the design:
- Measure the samples first.
- Other acceptable responses"""


def rubric(*criteria: Criterion, text: str = "", top: float = 3) -> Rubric:
    return Rubric(rubric_id="r", text=text, scale=scale(0, top), traits=(trait("t", 0, top),), criteria=criteria)


def polymers(**changes: object) -> Rubric:
    return rubric(
        criterion("C", text="Draws a conclusion.", count=Count(points=(0, 1))),
        criterion("D", text="Improves the design.", weight=2, count=Count(points=(0, 1, 2))),
        criterion("P1", text="Plastic B stretched most.", parent="C", levels=HINTED),
        criterion("P2", text="Plastic A stretched least.", parent="C", levels=HINTED),
        criterion("P3", text="Measure the samples first.", parent="D", levels=HINTED),
        criterion("P4", text="Do more trials.", parent="D", levels=HINTED),
        text=GUIDE,
    ).model_copy(update=changes)


def rules(of: Rubric) -> list[str]:
    return [finding.rule for finding in findings(of, unreachable(of))]


def test_undefined_levels_and_missing_catch_alls_are_mended_without_a_model() -> None:
    old = polymers()
    new, made = mended(old, broken)
    assert (rules(old), rules(new)) == (["middle_level", "catch_all"], [])
    assert broken(new) is None
    assert {one.id: one.parent for one in new.criteria if one.id.endswith("_other")} == {"C_other": "C", "D_other": "D"}
    assert all(len(one.levels) == 2 for one in decided(new))
    assert [(one.what, one.after, one.by) for one in made] == [
        ("levels", ("P1", "P2", "P3", "P4"), "rule"),
        ("added", ("C_other",), "rule"),
        ("added", ("D_other",), "rule"),
    ]
    assert mended(new, broken) == (new, [])


def test_a_mend_that_cannot_be_locked_is_left_out() -> None:
    assert mended(polymers(), lambda new: "refused") == (polymers(), [])
    only_levels = mended(polymers(), lambda new: "too many" if len(new.criteria) > 6 else None)[1]
    assert [one.what for one in only_levels] == ["levels"]


def test_levels_stay_where_they_say_something() -> None:
    met_by_hints = Count(points=(0, 1, 2), least=1)
    parent = criterion("K", weight=2, count=met_by_hints)
    parts = [criterion(name, text=f"Names the {name}.", parent="K", levels=HINTED) for name in ("lid", "jar")]
    assert mended(rubric(parent, *parts, top=2), broken)[1] == []
    quality = criterion(
        "Q", text="Reasons carry the claim.", kind="checklist", levels=("absent", "in part", "throughout")
    )
    assert mended(rubric(quality), broken)[1] == []
    two = criterion("T", text="Black absorbs the most energy and had the highest temperature.", levels=HINTED)
    assert mended(rubric(two), broken)[1] == []
    labelled = Example(question="Why?", response="B.", labels={"P1": Labelled(level=2)})
    assert [one.what for one in mended(polymers(examples=(labelled,)), broken)[1]] == ["added", "added"]


def test_alternatives_that_were_added_exclude_each_other() -> None:
    lids = [criterion(colour, text=f"The lid should be {colour}.") for colour in ("white", "black", "gray")]
    new, (change,) = mended(rubric(*lids, top=1), broken)
    assert rules(new) == []
    assert new.criteria[0].excludes == ("black", "gray")
    assert change.what == "exclusion"
    assert broken(new) is None


def test_every_change_is_named_with_its_reason() -> None:
    old = rubric(
        *(criterion(name, text=f"Says {name} of it.") for name in ("one", "two", "three", "four", "five")),
        criterion("gone", text="Is polite."),
    ).model_copy(update={"notes": ("Old.", "Kept.")})
    new = rubric(
        criterion("one", text="Says one of it."),
        criterion("two", text="Says two about it."),
        criterion("three", text="Says three of it.", levels=("no", "nearly", "yes")),
        criterion("four_a", text="Says half."),
        criterion("four_b", text="Says the other half."),
        criterion("five", text="Says five of it.", weight=2),
        criterion("all", text="Says all.", parent="K"),
        criterion("K", text="Says enough.", count=Count(points=(0, 1))),
    ).model_copy(update={"notes": ("Kept.", "A list counts.")})
    sources = {"one": ("one",), "two": ("two",), "three": ("three",), "four_a": ("four",), "four_b": ("four",)}
    sources |= {"five": ("five",), "all": ()}
    reasons = {"gone": "The guide does not ask for it.", "two": "Plainer."}
    noted = {"Kept.": "As before.", "A list counts.": "Two lists did."}
    told = list(changes(old, new, Reasons(sources, reasons, noted)))
    assert [(one.what, one.before, one.after) for one in told] == [
        ("kept", ("one",), ("one",)),
        ("reworded", ("two",), ("two",)),
        ("levels", ("three",), ("three",)),
        ("split", ("four",), ("four_a",)),
        ("split", ("four",), ("four_b",)),
        ("points", ("five",), ("five",)),
        ("added", (), ("all",)),
        ("added", (), ("K",)),
        ("removed", ("gone",), ()),
        ("note", (), ("A list counts.",)),
        ("note removed", ("Old.",), ()),
    ]
    assert in_words(told[1]) == "two: reworded (judge): Plainer."
    assert in_words(told[8]) == "gone → nothing: removed (judge): The guide does not ask for it."
    assert in_words(told[9]) == "nothing → A list counts.: scoring note (judge): Two lists did."


CRITERIA = st.builds(
    criterion,
    st.sampled_from(["A", "B", "C", "K"]),
    text=st.sampled_from(["Says one.", "Says two."]),
    levels=st.sampled_from([("no", "yes"), HINTED]),
    weight=st.sampled_from([1.0, 2.0]),
    parent=st.sampled_from([None, "K"]),
    excludes=st.sampled_from([(), ("A",)]),
    evidence=st.sampled_from(["local_quote", "none"]),
    count=st.sampled_from([None, Count(points=(0, 1)), Count(points=(0, 2))]),
)
LISTS = st.lists(CRITERIA, min_size=1, max_size=4, unique_by=lambda one: one.id)


@given(LISTS, LISTS, st.data())
def test_no_difference_between_two_rubrics_is_left_untold(was: list[Criterion], now: list[Criterion], data) -> None:
    old, new = rubric(*was), rubric(*now)
    names = [one.id for one in was if not one.count]
    some = st.lists(st.sampled_from(names), max_size=2, unique=True) if names else st.just([])
    sources = {one.id: tuple(data.draw(some)) for one in now if not one.count}
    whys = {one.id: f"because of {one.id}" for one in (*was, *now)}
    told = list(changes(old, new, Reasons(sources, whys, {})))
    before, after = ({one.id: one for one in ones} for ones in (was, now))
    said_before = {name for change in told for name in change.before}
    said_after = {name for change in told for name in change.after if change.what != "kept"}
    assert before.keys() - after.keys() <= said_before
    assert {name for name, one in after.items() if one != before.get(name)} <= said_after
    gone = {name for name in before.keys() - after.keys() if before[name].count is None}
    assert all(any(whys[name] == change.why for change in told) for name in gone)


def test_a_proposal_is_a_file_of_rubrics_that_says_what_was_changed(tmp_path: Path) -> None:
    new, made = mended(polymers(), broken)
    path = tmp_path / "proposal.yaml"
    forged = RubricChange("r", (), ("X",), "added", "a reason\nrubrics: []", "judge")
    path.write_text(as_yaml([new], [*made, forged]))
    assert authored(path) == {"r": new}
    assert "# r: nothing → C_other: added (rule): The guide allows 'Other reasonable conclusions'." in path.read_text()


LEVELS = st.sampled_from([("no", "yes"), HINTED, ("no", "one of two", "both"), ("no", "in part", "half", "yes")])


TEXTS = st.sampled_from(["Says it.", "The lid should be white.", "The lid should be red."])


@given(
    st.lists(st.tuples(LEVELS, st.booleans(), TEXTS), min_size=1, max_size=6),
    st.sampled_from(["", GUIDE]),
)
def test_mending_never_breaks_a_rubric_and_ends(parts: list[tuple[tuple[str, ...], bool, str]], text: str) -> None:
    criteria = [
        criterion(f"P{n}", text=words, levels=levels, parent="K" if inside else None)
        for n, (levels, inside, words) in enumerate(parts)
    ]
    if any(one.parent for one in criteria):
        criteria.append(criterion("K", text="Counts.", count=Count(points=(0, 1))))
    old = rubric(*criteria, text=text, top=6)
    new, _ = mended(old, broken)
    assert broken(new) is None
    assert mended(new, broken)[1] == []
    assert {one.id for one in old.criteria} <= {one.id for one in new.criteria}
    assert len(rules(new)) <= len(rules(old)) or "points" in rules(new)
