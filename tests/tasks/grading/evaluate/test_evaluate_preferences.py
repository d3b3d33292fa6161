"""A judge beside people's preferences: every figure held against a plain count over the pairs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from rubricflow.tasks.grading.evaluate.preferences import NO_COMPARISONS, preference_figures, surest
from rubricflow.tasks.grading.evaluate.slices import Record, Setting

ON = Setting({}, "judge", draws=200, seed=1)
NAN = float("nan")


def preferring(*rows: tuple[str, str, str, str], rater: str = "p") -> pd.DataFrame:
    """(item, a, b, winner)."""
    named = [{"item_id": i, "response_a": a, "response_b": b, "winner": w, "rater_id": rater} for i, a, b, w in rows]
    return pd.DataFrame(named)


def scored(scores: dict[str, float], sample: int = 0, strength: bool = False, **lengths: float) -> pd.DataFrame:
    rows = []
    for name, value in scores.items():
        length = lengths.get(name, 1.0)
        rows.append({"response_id": name, "sample": sample, "score": value, "strength": NAN, "length": length})
        if strength:
            rows[-1] |= {"strength": value, "score": 0.5}
    return pd.DataFrame(rows)


def figures(
    preferences: pd.DataFrame, gradings: pd.DataFrame, comparisons: pd.DataFrame = NO_COMPARISONS, on: Setting = ON
) -> dict[tuple[str, str], Record]:
    """(metric, value of the slice) → its row."""
    types = dict.fromkeys(preferences["item_id"], "t")
    rows = list(preference_figures(preferences, gradings, comparisons, types, on))
    assert len({(row["metric"], row["slice"], row["value_of"]) for row in rows}) == len(rows)
    return {(row["metric"], row["value_of"]): row for row in rows}


FOUR = preferring(("1", "x1", "y1", "a"), ("2", "x2", "y2", "b"), ("3", "x3", "y3", "a"), ("4", "x4", "y4", "tie"))


def test_right_wrong_and_undecided_and_the_longer_answer() -> None:
    gradings = scored({"x1": 3, "y1": 1, "x2": 3, "y2": 1, "x3": 2, "y3": 2, "x4": 1, "y4": 2}, x1=5, y2=5)
    found = figures(FOUR, gradings)
    assert found["pair_accuracy", "all"]["value"] == 0.5  # right, wrong, undecided; people's tie is left out
    assert found["pair_accuracy", "all"]["n"] == 3
    assert found["pair_length", "all"]["value"] == pytest.approx(2.5 / 3)
    assert found["pair_chance", "all"]["value"] == 0.5


def test_an_unscored_pair_is_left_out_and_counted() -> None:
    found = figures(FOUR, scored({"x1": 3, "y1": 1, "x2": NAN, "y2": 1, "x3": 2, "y3": 1}))
    assert found["pair_accuracy", "all"]["value"] == 1.0
    assert (found["pair_accuracy", "all"]["n"], found["pair_accuracy", "all"]["unscored"]) == (2, 1)


def test_strengths_stand_above_scores_and_ids_may_come_in_any_order() -> None:
    turned = preferring(("1", "y1", "x1", "b"))
    assert figures(turned, scored({"x1": 1.5, "y1": -1.5}, strength=True))["pair_accuracy", "all"]["value"] == 1.0


def test_the_majority_counts_and_people_are_compared_with_each_other() -> None:
    votes = pd.concat(
        [preferring(("1", "x", "y", winner), rater=str(n)) for n, winner in enumerate(["a", "a", "b"])]
        + [preferring(("2", "v", "w", winner), rater=str(n)) for n, winner in enumerate(["a", "b"])]
    )
    found = figures(votes, scored({"x": 2, "y": 1, "v": 2, "w": 1}))
    assert (found["pair_accuracy", "all"]["n"], found["pair_accuracy", "all"]["value"]) == (1, 1.0)
    assert found["pair_people", "all"]["value"] == pytest.approx(1 / 4)  # of three pairs of people one, of one none


def test_an_empty_answer_is_held_by_its_score_against_one_that_lost_to_others() -> None:
    gradings = pd.concat([scored({"x": -2.0}, strength=True), scored({"y": 0.0})])
    assert figures(preferring(("1", "x", "y", "a")), gradings)["pair_accuracy", "all"]["value"] == 1.0


def test_people_who_saw_a_pair_the_other_way_round_are_compared_too() -> None:
    votes = pd.concat([preferring(("1", "x", "y", "a")), preferring(("1", "y", "x", "b"), rater="q")])
    found = figures(votes, scored({"x": 2, "y": 1}))["pair_people", "all"]
    assert (found["value"], found["n"]) == (1.0, 1)


def compared(*rows: tuple[str, str, str, str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["item_id", "response_a", "response_b", "shown_first", "winner", "sample"])


def test_single_verdicts_both_orders_and_the_effect_of_order() -> None:
    comparisons = compared(
        *[("1", "x1", "y1", "a", "a", 0), ("1", "x1", "y1", "b", "a", 0)],  # right in both orders
        *[("2", "x2", "y2", "a", "a", 0), ("2", "x2", "y2", "b", "b", 0)],  # the first wins
        *[("3", "x3", "y3", "a", "b", 0), ("3", "x3", "y3", "b", "b", 0)],  # wrong in both
        *[("4", "x4", "y4", "a", "b", 0), ("4", "x4", "y4", "b", "b", 0)],  # a tie of people's
    )
    gradings = scored({"x1": 1, "y1": -1, "x2": 0, "y2": 0, "x3": -1, "y3": 1, "x4": -1, "y4": 1}, strength=True)
    found = figures(FOUR, gradings, comparisons)
    assert found["pair_verdict", "all"]["value"] == 0.5
    assert found["pair_agreed_share", "all"]["value"] == pytest.approx(2 / 3)
    assert found["pair_agreed", "all"]["value"] == 0.5
    assert found["pair_agreed", "all"]["n"] == 2
    assert found["pair_first", "all"]["value"] == pytest.approx(4 / 6)
    assert found["pair_accuracy", "all"]["value"] == 0.5


def test_several_samples_are_weighed_inside_folds_and_each_has_its_own_figure() -> None:
    draw = np.random.default_rng(0)
    rows, good, noise = [], {}, {}
    for n in range(60):
        winner = draw.choice(["a", "b"])
        rows.append((str(n), f"x{n}", f"y{n}", winner))
        sign = 1.0 if winner == "a" else -1.0
        good |= {f"x{n}": sign if draw.random() < 0.9 else -sign, f"y{n}": 0.0}
        noise |= {f"x{n}": draw.choice([-1.0, 1.0]), f"y{n}": 0.0}
    gradings = pd.concat([scored(good, 0), scored(noise, 1), scored(noise, 2)])
    found = figures(preferring(*rows), gradings)
    assert found["pair_chosen", "all"]["value"] == found["pair_accuracy", "0"]["value"] >= 0.75
    assert found["pair_chosen", "all"]["value"] > found["pair_accuracy", "all"]["value"]
    assert "folds" in found["pair_chosen", "all"]["note"]
    assert found["pair_accuracy", "80%"]["n"] >= 48


def test_the_interval_is_over_items() -> None:
    """Pairs of one item that are all alike are no more than one pair."""
    rows, scores = [], {}
    for n in range(30):
        for k in range(4):
            rows.append((str(n), f"x{n}-{k}", f"y{n}-{k}", "a"))
            scores |= {f"x{n}-{k}": float(n % 2), f"y{n}-{k}": 0.5}
    found = figures(preferring(*rows), scored(scores), on=ON._replace(draws=2000))["pair_accuracy", "all"]
    width = found["high"] - found["low"]
    assert width == pytest.approx(2 * 1.96 * 0.5 / np.sqrt(30), rel=0.15)
    assert (found["clusters"], found["resampled"]) == (30, "item")


@pytest.mark.parametrize(
    ("scores", "first"),
    [((4, 3, 2, 1), 1.0), ((1, 2, 3, 4), 0.0), ((3, 3, 2, 1), 0.5), ((2, 2, 2, 2), 0.25), ((3, 4, 3, 1), 0.0)],
)
def test_the_best_of_four(scores: tuple[int, ...], first: float) -> None:
    chosen, *others = names = ["c", "r1", "r2", "r3"]
    rows = [("1", *sorted((chosen, other)), "a" if chosen < other else "b") for other in others]
    found = figures(preferring(*rows), scored(dict(zip(names, map(float, scores), strict=True))))
    assert found["pair_best", "all"]["value"] == first


def test_rows_as_sure_as_the_last_share_what_is_left() -> None:
    weights = surest(np.array([3.0, 1.0, 1.0, 2.0]), 0.75)
    assert weights.tolist() == [1, 0.5, 0.5, 1]
    assert surest(np.array([1.0, 1.0]), 0.5).tolist() == [0.5, 0.5]


def test_without_preferences_or_verdicts_nothing_is_made_up() -> None:
    assert figures(preferring(("1", "x", "y", "tie")), scored({"x": 1, "y": 2})) == {}
    found = figures(preferring(("1", "x", "y", "a")), scored({"x": NAN, "y": NAN}))
    assert found["pair_accuracy", "all"]["value"] is None
    assert found["pair_accuracy", "all"]["unscored"] == 1
