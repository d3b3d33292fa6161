"""What levels are worth: found again in simulated marks, against a plain search, and silent where there is nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from builders.bundles import THREE, bundle, criterion, trait

from rubricflow.tasks.core.contracts.bundle import Bundle, Count, Rubric
from rubricflow.tasks.grading.lock.rubric import authored, broken
from rubricflow.tasks.grading.rubrics.item_analysis import ScoredAnswers
from rubricflow.tasks.grading.rubrics.level_worth import LevelWorth, level_worths, with_worths, worth_findings
from rubricflow.tasks.grading.rubrics.revision import as_yaml

FOUR = ("none", "some", "most", "all")
DRAWS = 300


def marked(of: Bundle, n: int, seed: int, worth: dict[str, tuple[float, ...]], noise: float = 0.08) -> ScoredAnswers:
    """Answers at any levels, which people score by these shares of equal weights, with noise and rounded."""
    rng = np.random.default_rng(seed)
    levels = {one.id: rng.integers(0, one.top + 1, n) for one in of.criteria}
    share = np.mean([np.array(worth[name])[at] for name, at in levels.items()], axis=0) + rng.normal(0, noise, n)
    low, high, step = of.scale.bounds
    score = low + step * np.round(np.clip(share, 0, 1) * (high - low) / step)
    rows: dict[str, Any] = {"response_id": [f"{seed}-{i}" for i in range(n)], "text": "", "score": score}
    rows |= {"cluster": [f"s{seed}-{i}" for i in range(n)], "credited": [()] * n}
    return ScoredAnswers(of, pd.DataFrame(rows), pd.DataFrame(levels, dtype=float))


def of_three(count: int = 3, ends: tuple[float, ...] = (0, 5, 0.25), levels: tuple[str, ...] = THREE) -> Bundle:
    criteria = (criterion(name, levels=levels) for name in "ABCDE"[:count])
    return bundle(*criteria, ends=ends, final_score="weighted_points")


def found(*answers: ScoredAnswers) -> list[LevelWorth]:
    return list(level_worths({f"r{at}": one for at, one in enumerate(answers)}, DRAWS, 0))


@pytest.mark.parametrize("truth", [0.2, 0.75, 1.0])
def test_what_people_pay_is_found_again_over_rubrics_of_any_scale(truth: float) -> None:
    worth = dict.fromkeys("ABCDE", (0, truth, 1))
    answers = [marked(of_three(n, ends), 60, n, worth) for n, ends in ((2, (0, 5, 0.25)), (3, (1, 6, 0.5)))]
    (one,) = found(*answers)
    assert one.earns[1] == pytest.approx(truth, abs=0.05)
    assert one.is_better
    assert one.ends[1][0] <= one.earns[1] <= one.ends[1][1]
    assert (one.answers, one.now) == (120, (0, 0.5, 1))
    between = [((rows.levels == 1).any(axis=1)).sum() for rows in answers]
    assert one.between == sum(between)
    told = list(worth_findings([one]))
    assert [(each.rubric_id, each.criteria) for each in told] == [("r0", ("A", "B")), ("r1", ("A", "B", "C"))]


def test_with_many_answers_it_is_the_closest_sum_by_a_plain_search() -> None:
    answers = marked(of_three(4), 2000, 3, dict.fromkeys("ABCD", (0, 0.63, 1)), noise=0.15)
    at, share = answers.levels.to_numpy().astype(int), answers.people / 5
    squares = {e: np.sum((np.array([0, e, 1])[at].mean(axis=1) - share) ** 2) for e in np.arange(21) / 20}
    (one,) = found(answers)
    assert one.earns == (0, min(squares, key=squares.__getitem__), 1)


def test_few_answers_move_a_level_less_than_many() -> None:
    moved = []
    for n in (20, 400):
        tried = [found(marked(of_three(), n, seed, dict.fromkeys("ABC", (0, 0.9, 1)), 0.3)) for seed in range(6)]
        moved.append(np.mean([one.earns[1] - 0.5 for (one,) in tried]))
    assert 0.05 < moved[0] < moved[1] <= 0.45


def test_where_people_pay_as_it_is_hardly_anything_is_said() -> None:
    for worth, of in (((0, 0.5, 1), of_three()), ((0, 1 / 3, 2 / 3, 1), of_three(levels=FOUR))):
        tried = [found(marked(of, 60, seed, dict.fromkeys("ABC", worth), 0.2)) for seed in range(12)]
        assert sum(one.is_better for (one,) in tried) <= 1


def test_an_authors_own_shares_are_where_it_begins_and_what_is_compared() -> None:
    own = tuple(one.model_copy(update={"earns": (0.0, 0.75, 1.0)}) for one in of_three().criteria)
    of = of_three().model_copy(update={"criteria": own})
    (one,) = found(marked(of, 200, 1, dict.fromkeys("ABC", (0, 0.75, 1))))
    assert one.now == one.earns == (0, 0.75, 1)
    assert not one.is_better


def test_of_four_levels_each_is_found_and_they_never_fall() -> None:
    (one,) = found(marked(of_three(levels=FOUR), 300, 2, dict.fromkeys("ABC", (0, 0.7, 0.85, 1))))
    assert one.earns == pytest.approx((0, 0.7, 0.85, 1), abs=0.05)
    (one,) = found(marked(of_three(levels=FOUR), 300, 2, dict.fromkeys("ABC", (0, 0.8, 0.2, 1)), 0.3))
    assert list(one.earns) == sorted(one.earns)


def test_counted_points_two_levels_and_few_answers_say_nothing() -> None:
    parts = (criterion(name, levels=THREE, parent="K") for name in "AB")
    counted = bundle(*parts, composites=(criterion("K", weight=2, count=Count(points=(0, 1, 2))),), ends=(0, 2))
    worth = dict.fromkeys("ABC", (0, 0.9, 1))
    assert found(marked(counted, 100, 0, worth)) == []
    assert found(marked(of_three(levels=("no", "yes")), 100, 0, dict.fromkeys("ABC", (0, 1)))) == []
    assert found(marked(of_three(), 19, 0, worth)) == []
    ends_only = marked(of_three(), 100, 0, worth)
    assert found(ends_only._replace(levels=ends_only.levels.where(ends_only.levels != 1, 0))) == []


def test_undecided_answers_are_left_out() -> None:
    answers = marked(of_three(), 150, 4, dict.fromkeys("ABC", (0, 0.8, 1)))
    gaps = answers.levels.copy()
    gaps.iloc[:50, 0] = np.nan
    (one,), (rest,) = (
        found(answers._replace(levels=gaps)),
        found(answers._replace(rows=answers.rows[50:], levels=answers.levels[50:])),
    )
    assert one == rest


def test_a_proposal_can_be_locked_and_names_what_it_changes(tmp_path: Path) -> None:
    (one,) = found(marked(of_three(2), 120, 0, dict.fromkeys("AB", (0, 0.8, 1))))
    criteria = (*of_three(2).criteria, criterion("X", levels=("no", "a bit", "yes")))
    rubric = Rubric(rubric_id="r0", scale=of_three().scale, traits=(trait("t", 0, 5, 0.25),), criteria=criteria)
    made, changes = with_worths(rubric, [one])
    assert broken(made) is None
    assert [(each.before, each.after, each.what, each.by) for each in changes] == [
        (("A", "B"), ("A", "B"), "points", "rule")
    ]
    path = tmp_path / "proposal.yaml"
    path.write_text(as_yaml([made], changes))
    read = authored(path)["r0"]
    assert read.criteria == made.criteria
    assert [each.shares for each in read.criteria] == [one.earns, one.earns, (0, 0.5, 1)]
    other = rubric.model_copy(update={"rubric_id": "another"})
    assert with_worths(other, [one]) == (other, [])
