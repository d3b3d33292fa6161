"""Pools: what they hold, how much of it is natural, and why one is empty."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts import Fields
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.methods.edit.phases import (
    Demonstration,
    Origin,
    pool,
    pooled,
    repaired,
    revision_row,
    summary,
)
from rubricflow.tasks.methods.edit.revise import FailedRollout, Refusal, Revision
from rubricflow.tasks.methods.edit.rollout import Sample


def sample(response_id: str = "r1") -> Sample:
    return Sample(response_id, "q1", "Explain it.", "P1: roots (1 mark)", "roots", 4, 2)


def revision(rank: int, kept: str | None, response_id: str = "r1", number: int = 0) -> Fields:
    attempt = FailedRollout(sample(response_id), number, "P1 is met.\nFinal mark: 1")
    made = Revision(attempt, rank, 0, begun=f"begun {rank}\n", marks=(2,), repaired=kept)
    return revision_row("edit_sft", 0, made)


def refused(reason: Refusal) -> Fields:
    return revision_row("edit_sft", 0, Revision(FailedRollout(sample(), 0, "a"), 0, 0, refused=reason))


def some(origin: Origin, *keys: tuple[str, int], text: str = "") -> list[Demonstration]:
    return [Demonstration(name, number, origin, text or f"{name} {number}", True) for name, number in keys]


def many(origin: Origin, count: int, first: int = 0) -> list[Demonstration]:
    return some(origin, *((f"r{first + at:03}", 0) for at in range(count)))


def test_an_attempt_gives_its_best_ranked_kept_revision() -> None:
    rows = [revision(2, "late"), revision(0, None), revision(1, "early"), revision(0, "other", number=1)]
    assert repaired(rows) == [
        Demonstration("r1", 0, "repaired", "early", True),
        Demonstration("r1", 1, "repaired", "other", True),
    ]


def test_interventions_stop_before_what_followed_and_do_not_end() -> None:
    rows = [revision(0, "whole"), revision(0, None, "r2")]
    found = pooled("int_sft", rows, [], 0.5, 0)
    assert found == ([Demonstration("r1", 0, "intervention", "begun 0\n", False)], None)


def test_naturally_correct_rollouts_go_up_to_their_mark() -> None:
    rollouts = [
        FailedRollout(sample(), 0, "Met.\nFinal mark: 2\nBye"),
        FailedRollout(sample(), 1, "Met.\nFinal mark: 3"),
        FailedRollout(sample(), 2, "Met."),
    ]
    found = pooled("edit_sft", [], rollouts, 0.5, 0)
    assert found[0] == [Demonstration("r1", 0, "natural", "Met.\nFinal mark: 2", True)]


@settings(max_examples=15)
@given(st.integers(1, 30), st.integers(0, 60), st.integers(0, 20), st.integers(0, 5))
def test_the_natural_share_is_kept_and_used_up(mended: int, others: int, twentieths: int, seed: int) -> None:
    share = twentieths / 20
    found = pool(many("repaired", mended), many("natural", others, 500), share, seed, lost="")[0]
    count = sum(one.origin == "natural" for one in found)
    assert len(found) - count == mended
    # in twentieths, so that nothing is rounded
    assert 20 * count <= twentieths * (count + mended)
    assert count == others or 20 * (count + 1) > twentieths * (count + 1 + mended)
    assert list(found) == sorted(found)


def test_the_choice_of_natural_ones_is_seeded_and_blind_to_their_order() -> None:
    mended, others = many("repaired", 5), many("natural", 100, 500)
    first = pool(mended, others, 0.5, 1, lost="")
    assert first == pool(mended[::-1], others[::-1], 0.5, 1, lost="")
    assert first != pool(mended, others, 0.5, 2, lost="")
    assert first[1] is None


def test_the_same_text_of_a_response_is_in_once() -> None:
    mended = some("repaired", ("r1", 0), ("r1", 1), ("r2", 0), text="same")
    others = some("natural", ("r1", 2), ("r3", 0), ("r3", 1), text="same")
    found = pool(mended, others, 1.0, 0, lost="")[0]
    assert [(one.response_id, one.sample) for one in found] == [("r1", 0), ("r2", 0), ("r3", 0)]


def test_a_pool_of_natural_ones_alone_says_so() -> None:
    found = pool([], many("natural", 7), 0.5, 0, lost="no rollout was wrong")
    assert len(found[0]) == 7
    assert "no rollout was wrong" in (found[1] or "")


@pytest.mark.parametrize("others", [0, 3])
def test_an_empty_pool_is_an_error_that_says_why(others: int) -> None:
    share = 0.0 if others else 0.5
    with pytest.raises(InputError, match=f"4 wrong rollouts had no step.*; {others} rollouts were right"):
        pool([], many("natural", others), share, 0, lost="4 wrong rollouts had no step")


def test_where_the_wrong_rollouts_went() -> None:
    assert summary([], 0) == "no rollout was wrong"
    assert summary([], 3) == "none of 3 wrong rollouts had a step to mend"
    rows = [refused("empty"), refused("too_long"), refused("empty"), revision(0, None), revision(0, "kept")]
    assert summary(rows, 9) == (
        "9 wrong rollouts, 5 revisions, 3 refused (empty 2, too_long 1), 1 reached the gold mark"
    )
