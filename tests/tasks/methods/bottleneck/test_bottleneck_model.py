"""The concept encoder against a plain loop, and the posterior mean against other forms of the same Gaussian."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from rubricflow.tasks.core.contracts.schema import conform, schema
from rubricflow.tasks.core.contracts.tables.bottleneck import Traces
from rubricflow.tasks.methods.bottleneck.data import BIAS, Concepts
from rubricflow.tasks.methods.bottleneck.model import (
    MOST,
    Attention,
    ConceptEncoder,
    Head,
    LatentHead,
    contribution_error,
    looked_at,
    orthogonal,
    traces,
)

TOPS = (2, 1, 4)


def inputs(n: int = 5, width: int = 8, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """States (B, T, d) and mask (B, T), of lengths 1 to 7."""
    rng = np.random.default_rng(seed)
    lengths = torch.from_numpy(rng.integers(1, 8, n))
    return torch.from_numpy(rng.normal(size=(n, 7, width))).float(), torch.arange(7) < lengths[:, None]


def head(concepts: int = 4, seed: int = 0) -> LatentHead:
    """A head whose numbers are all drawn."""
    made, drawn = LatentHead(concepts, 3).double(), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for one in made.parameters():
            one.copy_(torch.randn(one.shape, generator=drawn, dtype=torch.float64))
    return made


@pytest.mark.parametrize("rubric_aware", [True, False])
@pytest.mark.parametrize("projection", [None, 4])
def test_all_concepts_in_one_product_are_a_loop_over_them(rubric_aware: bool, projection: int | None) -> None:
    model = ConceptEncoder(8, TOPS, 0.7, rubric_aware, projection, seed=1)
    states, mask = inputs()
    with torch.no_grad():
        logits, attention = model(states, mask).numpy(), model.attend(states, mask).numpy()
    brought = np.eye(8) if model.projection is None else model.projection.detach().numpy().T
    for row in range(len(states)):
        tokens = states[row][mask[row]].numpy() @ brought
        for concept, top in enumerate(TOPS):
            weights = np.full(len(tokens), 1 / len(tokens))
            if model.queries is not None:
                weights = softmax(tokens @ model.queries[concept].detach().numpy() / 0.7)
            read = weights @ tokens
            plain = model.classifiers[concept].detach().numpy() @ read
            np.testing.assert_allclose(attention[row, concept, : len(tokens)], weights, rtol=1e-4)
            np.testing.assert_allclose(logits[row, concept, : top + 1], plain[: top + 1], rtol=1e-3, atol=1e-5)
            assert (logits[row, concept, top + 1 :] == -np.inf).all()
    assert not attention[np.broadcast_to(~mask.numpy()[:, None], attention.shape)].any()


@pytest.mark.parametrize(("rows", "width"), [(3, 8), (8, 8), (19, 8)])
def test_queries_begin_orthonormal(rows: int, width: int) -> None:
    found = orthogonal(rows, width, torch.Generator().manual_seed(0)).double()
    for at in range(0, rows, width):
        block = found[at : at + width]
        torch.testing.assert_close(block @ block.T, torch.eye(len(block)).double(), atol=1e-6, rtol=0)
    again, other = (orthogonal(rows, width, torch.Generator().manual_seed(seed)) for seed in (0, 1))
    assert torch.equal(again.double(), found)
    assert not torch.allclose(other.double(), found)


def test_a_seed_decides_the_first_numbers_and_moves_nothing_else() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (ConceptEncoder(8, TOPS, projection=4, seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not any(torch.equal(one[name], other[name]) for name in ("queries", "classifiers", "projection"))


@given(st.integers(0, 1_000), st.integers(1, 6))
@settings(max_examples=15)
def test_the_posterior_mean_is_the_conditional_mean(seed: int, concepts: int) -> None:
    """Appendix B.1: (Ω + D⁻¹)⁻¹D⁻¹s̃ = Ω⁻¹(Ω⁻¹ + D)⁻¹s̃."""
    made = head(concepts, seed)
    shares = torch.rand(3, concepts, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    covariance = np.linalg.inv(made.precision.detach().numpy())  # type: ignore[union-attr]
    noise = np.diag(made.noise.detach().numpy())  # type: ignore[union-attr]
    conditional = covariance @ np.linalg.inv(covariance + noise) @ shares.numpy().T
    logits, posterior = made(shares)
    scale = np.abs(conditional).max() + 1  # an Ω near singular makes the other form inexact
    np.testing.assert_allclose(posterior.detach().numpy(), conditional.T, atol=1e-4 * scale)
    plain = made.as_head()
    np.testing.assert_allclose(posterior.detach().numpy(), plain.posterior(shares.numpy()), atol=1e-10 * scale)
    np.testing.assert_allclose(logits.detach().numpy(), plain.logits(shares.numpy()), atol=1e-9 * scale)


def test_the_precision_is_as_in_eq_21_whatever_lies_above_the_diagonal() -> None:
    made = head(3)
    lower = np.tril(made.factor.detach().numpy())  # type: ignore[union-attr]
    found = made.as_head().precision
    np.testing.assert_allclose(found, lower @ lower.T + 1e-4 * np.eye(3))
    assert np.linalg.eigvalsh(found).min() >= 1e-4 - 1e-12
    assert LatentHead(3, 2).numbers == 6 + 3 + 2 * 3 + 2


def test_without_correction_the_posterior_is_the_share() -> None:
    made = LatentHead(3, 2, corrects=False)
    shares = torch.rand(4, 3)
    assert torch.equal(made(shares)[1], shares)
    assert made.as_head().precision is None
    np.testing.assert_array_equal(made.as_head().correction, np.eye(3))
    assert made.numbers == 2 * 3 + 2


# Traces: contributions that add up, and words that a concept looks at.


CONCEPTS = Concepts(("fact", "flow"), ("Fact", "Flow"), ("true", "easy"), (("no", "in part", "yes"), ("no", "yes")))
HEAD = Head(
    weights=np.array([[-2.0, 0.0], [1.0, 0.5], [3.0, -1.0]]),
    bias=np.array([0.5, 0.0, -1.0]),
    precision=np.array([[1.0, 0.2], [0.2, 2.0]]),
    noise=np.array([0.5, 2.0]),
    temperature=2.0,
)
SCORES = np.array([0.0, 2.5, 5.0])
TEXT = "nodes, linked by pointers"
TOKENS = np.array([[0, 4], [4, 5], [5, 6], [7, 13], [13, 16], [16, 25]])
"""node ##s , linked ␣by ␣pointers: the last two with the space before them."""


def seen(*rows):
    return Attention(TOKENS, np.array(rows))


def rows_of(n=7, seed=0, head=HEAD, scores=SCORES):
    rng = np.random.default_rng(seed)
    levels = rng.dirichlet(np.ones(3), (n, 2))
    levels[:, 1, 2] = 0
    levels[:, 1] /= levels[:, 1].sum(axis=1, keepdims=True)
    attention = [Attention(TOKENS, rng.dirichlet(np.ones(9), 2)[:, :6]) for _ in range(n)]
    names = [f"r{i}" for i in range(n)]
    return levels, traces(names, [TEXT] * n, CONCEPTS, head, scores, levels, attention)


def test_rows_keep_the_contract():
    _, rows = rows_of()
    table = conform(Traces, pa.Table.from_pylist(rows, schema(Traces)))
    assert table.num_rows == 7 * 3
    assert {row["criterion_id"] for row in rows} == {"fact", "flow", BIAS}


def test_a_trace_worked_by_hand():
    levels = np.array([[[0.1, 0.2, 0.7], [0.25, 0.75, 0.0]]])
    head = Head(weights=HEAD.weights, bias=HEAD.bias)
    fact, flow, bias = traces(["r"], [TEXT], CONCEPTS, head, SCORES, levels, [seen([0.1] * 6, [0.0] * 6)])
    # Shares 0.8 and 0.75: logits -1.1, 1.175 and 0.65.
    assert (fact["expected"], fact["share"], fact["corrected"]) == pytest.approx((1.6, 0.8, 0.8))
    assert [row["contribution"] for row in (fact, flow, bias)] == pytest.approx([0.8, 0.375, 0.0])
    assert (fact["logit"], fact["score"], fact["runner_up"]) == (pytest.approx(1.175), 2.5, 5.0)
    likely = np.exp([-1.1, 1.175, 0.65])
    assert fact["probability"] == pytest.approx(likely[1] / likely.sum())
    assert flow["level_probabilities"] == [0.25, 0.75]
    assert bias["level_probabilities"] is None
    assert flow["attention"] == bias["attention"] == []


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.integers(1, 12), st.integers(1, 7), st.booleans())
def test_contributions_add_up_to_the_logit(seed, k, grades, corrects):
    rng = np.random.default_rng(seed)
    root = np.tril(rng.normal(size=(k, k)))
    head = Head(
        weights=rng.normal(size=(grades, k)) * 50,
        bias=rng.normal(size=grades) * 50,
        precision=root @ root.T + 1e-4 * np.eye(k) if corrects else None,
        noise=np.exp(rng.normal(size=k) * 3) if corrects else None,
        temperature=float(np.exp(rng.normal())),
    )
    names = tuple(f"c{i}" for i in range(k))
    concepts = Concepts(names, names, names, ((("no", "yes"),) * k))
    levels = rng.dirichlet([1, 1], (5, k))
    nothing = [Attention(np.zeros((0, 2), np.int64), np.zeros((k, 0)))] * 5
    rows = traces(list("abcde"), [""] * 5, concepts, head, np.arange(grades) * 1.0, levels, nothing)
    assert contribution_error(rows) < 1e-5
    best = head.logits(levels[:, :, 1]).argmax(axis=1)
    assert [row["score"] for row in rows[:: k + 1]] == best.tolist()
    assert all(row["runner_up"] is None for row in rows) == (grades == 1)


def test_an_error_in_a_contribution_is_found():
    _, rows = rows_of()
    rows[4]["contribution"] += 0.25
    assert contribution_error(rows) == pytest.approx(0.25)
    assert contribution_error([]) == 0


def test_temperature_changes_the_probability_alone():
    calibrated = rows_of()[1]
    plain = rows_of(head=Head(HEAD.weights, HEAD.bias, HEAD.precision, HEAD.noise))[1]
    differing = {name for a, b in zip(calibrated, plain, strict=True) for name in a if a[name] != b[name]}
    assert differing == {"probability"}


def test_tokens_are_merged_into_words():
    (fact, flow) = looked_at(TEXT, seen([0.1, 0.2, 0.05, 0.0, 0.4, 0.1], [0, 0, 0, 0, 0, 0.5]))
    assert [(TEXT[row["start"] : row["end"]], round(row["weight"], 9)) for row in fact] == [
        ("by", 0.4),
        ("nodes", 0.3),
        ("pointers", 0.1),
        (",", 0.05),
    ]
    assert [TEXT[row["start"] : row["end"]] for row in flow] == ["pointers"]


def test_tokens_that_share_a_character_are_one_word():
    found = looked_at("a 𝄞 b", Attention(np.array([[0, 1], [2, 3], [2, 3], [3, 5]]), np.array([[0.1, 0.2, 0.3, 0.05]])))
    assert [(row["start"], row["end"], pytest.approx(row["weight"])) for row in found[0]] == [
        (2, 3, 0.5),
        (0, 1, 0.1),
        (4, 5, 0.05),
    ]


def test_only_the_heaviest_words_are_kept():
    text = " ".join("abcdefghijklmnopqrst")
    spans = np.array([[i, i + 1] for i in range(0, len(text), 2)])
    weights = np.random.default_rng(0).dirichlet(np.ones(len(spans)))
    (found,) = looked_at(text, Attention(spans, weights[None]))
    assert [row["weight"] for row in found] == sorted(weights, reverse=True)[:MOST]


@settings(max_examples=15)
@given(st.text(max_size=60), st.integers(0, 2**31))
def test_words_lie_in_the_text_and_weigh_no_more_than_their_tokens(text, seed):
    rng = np.random.default_rng(seed)
    cuts = np.unique(rng.integers(0, len(text) + 1, 12))
    spans = np.stack([cuts[:-1], cuts[1:]], axis=1)
    weights = rng.dirichlet(np.ones(len(spans) + 1), 3)[:, :-1]
    for found, of in zip(looked_at(text, Attention(spans, weights)), weights, strict=True):
        assert all(0 <= row["start"] < row["end"] <= len(text) for row in found)
        assert not any(text[row["start"]].isspace() for row in found)
        assert sum(row["weight"] for row in found) <= of.sum() + 1e-12
