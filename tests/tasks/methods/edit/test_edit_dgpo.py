"""DGPO's token weights against loops and known distributions."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rubricflow.tasks.methods.edit.rl import entropy, hellinger, reallocate


def distributions(seed: int, *shape: int) -> Tensor:
    drawn = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.log_softmax(3 * drawn, -1)


def test_the_distance_is_half_the_squared_difference_of_the_roots() -> None:
    policy, reference = distributions(0, 3, 5, 11), distributions(1, 3, 5, 11)
    roots = policy.exp().sqrt() - reference.exp().sqrt()
    torch.testing.assert_close(hellinger(policy, reference), (roots**2).sum(-1) / 2)
    torch.testing.assert_close(hellinger(policy, reference), hellinger(reference, policy))
    apart = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).log()
    torch.testing.assert_close(hellinger(apart, apart.flip(0)), torch.ones(2))
    torch.testing.assert_close(hellinger(apart, apart), torch.zeros(2))


def test_the_entropy_is_one_where_all_tokens_are_alike_and_zero_where_one_is_sure() -> None:
    even, sure = torch.full((8,), 1 / 8).log(), torch.tensor([1.0, *[0.0] * 7]).log()
    torch.testing.assert_close(entropy(torch.stack([even, sure])), torch.tensor([1.0, 0.0]))
    found = distributions(2, 4, 9)
    torch.testing.assert_close(entropy(found), torch.distributions.Categorical(logits=found).entropy() / math.log(9))


def test_weights_follow_the_gated_distance_token_by_token() -> None:
    distance = torch.tensor([[0.5, 0.5, 0.1, 0.9], [0.2, 0.4, 0.9, 0.9]], dtype=torch.float64)
    unsure = torch.tensor([[0.8, 0.1, 0.5, 0.0], [0.5, 0.5, 0.9, 0.9]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    found = reallocate(distance, unsure, mask, torch.ones(2, dtype=torch.float64))
    for row, length in enumerate([4, 2]):
        raised = [math.exp(float(distance[row, t] * unsure[row, t]) / 0.5) for t in range(length)]
        wanted = [length * one / sum(raised) for one in raised] + [0.0] * (4 - length)
        assert found[row].tolist() == pytest.approx(wanted, abs=1e-12)
    # Far from the reference but sure of itself: the gate keeps it from gaining.
    assert found[0, 0] > found[0, 1] > found[0, 3]


@pytest.mark.parametrize("advantage", [1.3, -0.7, 0.0])
def test_the_advantage_of_a_rollout_keeps_its_mean_and_its_sign(advantage: float) -> None:
    mask = torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0], [0] * 6])
    drawn = torch.rand(2, 3, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    given = torch.full((3,), advantage, dtype=torch.float64)
    found = reallocate(drawn[0], drawn[1], mask, given)
    means = found[:2].sum(1) / mask[:2].sum(1)
    torch.testing.assert_close(means, given[:2])
    assert (found[mask.bool()] * advantage >= 0).all()
    assert (found[~mask.bool()] == 0).all()
    assert not found.isnan().any()
