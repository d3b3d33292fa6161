"""Splits: deterministic by id, no leak, never more than half of the labels."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.settings.data import Split
from rubricflow.tasks.grading.ingest import survey as drawing

Rows = dict[str, dict[str, Any]]


def split(rows: Rows, labelled: Collection[str], plan: Split) -> dict[str, str]:
    """response → side."""
    columns = ([row[name] for row in rows.values()] for name in ("item_id", "author_id", "split"))
    return dict(zip(rows, drawing.split(list(rows), *columns, [key in labelled for key in rows], plan), strict=True))


PLANS = st.builds(
    Split,
    by=st.sampled_from(["response", "author", "item"]),
    per=st.sampled_from(["item", "set"]),
    calibration=st.integers(0, 12),
    seed=st.integers(0, 3),
)


@st.composite
def data(draw: st.DrawFn, given_share: bool = False) -> tuple[Rows, set[str]]:
    """Up to 40 responses of a few items and authors, and which of them have labels."""
    sides = st.sampled_from([None, None, "train", "calibration", "test"]) if given_share else st.none()
    cells = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 8), st.booleans(), sides), max_size=40))
    rows = {
        f"r{i}": {"response_id": f"r{i}", "item_id": f"i{item}", "author_id": f"a{author}", "split": side}
        for i, (item, author, _, side) in enumerate(cells)
    }
    return rows, {f"r{i}" for i, cell in enumerate(cells) if cell[2]}


def on_one_side(rows: Rows, plan: Split) -> tuple[str, dict[str, str]]:
    """What is kept whole, and what the source says of each; the survey refuses one that the source has on two sides."""
    column = {"response": "response_id", "author": "author_id", "item": "item_id"}[plan.by]
    said = {row[column]: row["split"] for row in rows.values() if row["split"] is not None}
    for row in rows.values():
        row["split"] = row["split"] and said[row[column]]
    return column, said


def class_set(n: int = 400, items: int = 4, authors: int = 50) -> Rows:
    return {
        f"r{i}": {"response_id": f"r{i}", "item_id": f"i{i % items}", "author_id": f"a{i % authors}", "split": None}
        for i in range(n)
    }


@settings(max_examples=20)
@given(data(given_share=True), PLANS, st.randoms(use_true_random=False))
def test_a_split_does_not_see_the_order_of_rows(made: tuple[Rows, set[str]], plan: Split, rng: random.Random) -> None:
    rows, labelled = made
    on_one_side(rows, plan)
    keys = list(rows)
    rng.shuffle(keys)
    assert split({key: rows[key] for key in keys}, sorted(labelled, reverse=True), plan) == split(rows, labelled, plan)


@settings(max_examples=25)
@given(data(), PLANS)
def test_no_author_or_item_is_on_both_sides(made: tuple[Rows, set[str]], plan: Split) -> None:
    rows, labelled = made
    sides = split(rows, labelled, plan)
    column = {"response": "response_id", "author": "author_id", "item": "item_id"}[plan.by]
    assert list(sides) == list(rows)
    for whole in {row[column] for row in rows.values()}:
        assert len({sides[key] for key, row in rows.items() if row[column] == whole}) == 1


@settings(max_examples=20)
@given(data(), PLANS)
def test_never_more_than_half_of_the_labelled_nor_than_wanted(made: tuple[Rows, set[str]], plan: Split) -> None:
    rows, labelled = made
    sides = split(rows, labelled, plan)
    chosen = [key for key in labelled if sides[key] == "calibration"]
    per_item = Counter(rows[key]["item_id"] for key in chosen)
    known = Counter(rows[key]["item_id"] for key in labelled)
    assert 2 * len(chosen) <= len(labelled)
    if plan.by == "response" and plan.per == "item":
        assert all(per_item[item] == min(plan.calibration, known[item] // 2) for item in known)
    elif plan.per == "set":
        assert len(chosen) <= plan.calibration


@settings(max_examples=20)
@given(data(given_share=True), PLANS)
def test_the_sources_split_wins(made: tuple[Rows, set[str]], plan: Split) -> None:
    rows, labelled = made
    sides = split(rows, labelled, plan)
    assert {key: sides[key] for key, row in rows.items() if row["split"]} == {
        key: row["split"] for key, row in rows.items() if row["split"]
    }


@settings(max_examples=20)
@given(data(given_share=True), PLANS.filter(lambda plan: plan.by != "response"))
def test_what_is_free_follows_what_the_source_says_of_its_author_or_item(
    made: tuple[Rows, set[str]], plan: Split
) -> None:
    rows, labelled = made
    column, said = on_one_side(rows, plan)
    sides = split(rows, labelled, plan)
    assert all(sides[key] == said[row[column]] for key, row in rows.items() if row[column] in said)


def test_per_item_counts_in_each_item_and_per_set_in_all() -> None:
    rows = class_set()
    item = Counter(
        rows[k]["item_id"] for k, s in split(rows, rows, Split(calibration=30)).items() if s == "calibration"
    )
    whole = Counter(split(rows, rows, Split(calibration=30, per="set")).values())
    assert item == {"i0": 30, "i1": 30, "i2": 30, "i3": 30}
    assert whole == {"calibration": 30, "test": 370}


def test_the_split_is_the_same_on_every_machine() -> None:
    rows = class_set(12, items=1)
    chosen = {key for key, side in split(rows, rows, Split(calibration=3)).items() if side == "calibration"}
    assert chosen == {"r7", "r8", "r9"}


SHARES = st.sampled_from([(0.7, 0.2, 0.1), (0.5, 0.5, 0.0), (0.0, 0.3, 0.7), (1.0, 0.0, 0.0)])


@given(data(given_share=True), SHARES, st.sampled_from(["response", "author", "item"]), st.randoms())
@settings(max_examples=20)
def test_by_shares_no_whole_is_cut_and_the_order_does_not_matter(
    made: tuple[Rows, set[str]], shares: tuple[float, float, float], by: Any, rng: random.Random
) -> None:
    rows, labels = {key: row | {"split": None} for key, row in made[0].items()}, made[1]
    plan = Split(by=by, shares=shares)
    sides = split(rows, labels, plan)
    shuffled = dict(rng.sample(sorted(rows.items()), len(rows)))
    assert split(shuffled, labels, plan) == sides
    column = {"response": "response_id", "author": "author_id", "item": "item_id"}[by]
    of: dict[Any, set[str]] = {}
    for key, side in sides.items():
        of.setdefault(rows[key][column], set()).add(side)
    assert all(len(one) == 1 for whole, one in of.items() if whole is not None)


@settings(max_examples=20)
@given(data(), PLANS, st.sets(st.integers(0, 39)))
def test_labels_that_were_chosen_move_no_other_response(
    made: tuple[Rows, set[str]], plan: Split, chosen: set[int]
) -> None:
    rows, labelled = made
    drawn = {key: row for key, row in rows.items() if int(key[1:]) not in chosen}
    marked = {key: row | {"split": row["split"] if key in drawn else "chosen"} for key, row in rows.items()}
    sides = split(marked, labelled, plan)
    assert {key for key, side in sides.items() if side == "chosen"} == rows.keys() - drawn.keys()
    assert {key: sides[key] for key in drawn} == split(drawn, labelled & drawn.keys(), plan)


@settings(max_examples=20)
@given(data(given_share=True), st.sampled_from(["response", "author"]))
def test_a_split_that_crosses_spends_no_label_on_measuring_alone(made: tuple[Rows, set[str]], by: Any) -> None:
    rows, labelled = made
    plan = Split(by=by, cross=True)
    column, said = on_one_side(rows, plan)
    for key, side in split(rows, labelled, plan).items():
        free = "crossed" if key in labelled else "test"
        assert side == (said.get(rows[key][column]) or free)


@pytest.mark.parametrize("more", [{"calibration": 20}, {"shares": [0.5, 0.5, 0]}, {"by": "item"}])
def test_what_a_split_that_crosses_would_contradict_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="'cross'"):
        Split.model_validate({"cross": True, **more})
    plan = Split.model_validate({"cross": True, "by": "author"})
    assert Split.model_validate(plan.model_dump()) == plan
