"""Token states: kept ones against fresh ones, batches, folders, and the copy of a backbone that learns."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.methods.bottleneck import states as made
from rubricflow.tasks.methods.bottleneck.backbone import Backbone, BatchTokens, load
from rubricflow.tasks.methods.bottleneck.states import Cached, States, TunedBackbone, batches, by_length, encode

Lengths = st.lists(st.integers(1, 60), min_size=1, max_size=80)


@pytest.fixture
def read(backbone_folder: Callable[[str], Path]) -> tuple[Backbone, BatchTokens]:
    backbone = load(str(backbone_folder("bert")), 64)
    texts = ["alpha", "bravo charlie so it", "delta " * 30, "echo of the foxtrot", ""]
    return backbone, backbone.tokenize([Answered("which words", text) for text in texts])


def test_kept_states_are_the_fresh_ones(read: tuple[Backbone, BatchTokens]) -> None:
    backbone, tokens = read
    kept, fresh = Cached(encode(backbone, tokens)), TunedBackbone(backbone, tokens)
    rows = [3, 0, 2, 3]
    with torch.inference_mode():
        (states, mask), (others, other_mask) = kept(rows), fresh(np.array(rows))
    assert states.dtype == others.dtype == torch.float32
    assert torch.equal(mask, other_mask)
    assert mask.sum(1).tolist() == tokens.lengths[rows].tolist()
    assert not states[~mask].any()
    assert not others[~mask].any()
    torch.testing.assert_close(states, others, atol=2e-3, rtol=2e-3)
    assert (kept.width, kept.lengths.tolist()) == (fresh.width, fresh.lengths.tolist())


def test_states_do_not_depend_on_the_batch(read: tuple[Backbone, BatchTokens], monkeypatch: pytest.MonkeyPatch) -> None:
    together = encode(*read).values
    monkeypatch.setattr(made, "_BATCH_TOKENS", {"cpu": 1})
    np.testing.assert_allclose(together, encode(*read).values, atol=2e-3)


def test_states_on_disk_are_those_in_memory(
    read: tuple[Backbone, BatchTokens], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory, disk = encode(*read), encode(*read, tmp_path / "deep" / "one")
    for found in (disk, made.load(tmp_path / "deep" / "one")):
        assert found is not None
        assert isinstance(found.values, np.memmap)
        np.testing.assert_array_equal(found.values, memory.values)
        np.testing.assert_array_equal(found.starts, memory.starts)
    assert capsys.readouterr().out.endswith("5 of 5 responses encoded\n")
    assert made.load(tmp_path / "three") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep"]


def test_a_folder_appears_whole_or_not_at_all(
    read: tuple[Backbone, BatchTokens], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(message: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(made, "_BATCH_TOKENS", {"cpu": 1})
    with monkeypatch.context() as patch:
        patch.setattr("builtins.print", stopped)
        with pytest.raises(KeyboardInterrupt):
            encode(*read, tmp_path / "states")
    assert list(tmp_path.iterdir()) == []
    encode(*read, folder=tmp_path / "states")
    other = read[0].tokenize([Answered("which words", "alpha")])
    encode(read[0], other, folder=tmp_path / "states")  # who was first stays
    assert len(made.load(tmp_path / "states").starts) == 6  # type: ignore[union-attr]


def test_states_beyond_half_precision_stay_finite(read: tuple[Backbone, BatchTokens]) -> None:
    backbone, tokens = read
    with torch.no_grad():
        backbone.model.encoder.layer[0].output.LayerNorm.weight *= 1e6
    assert np.isfinite(encode(backbone, tokens).values).all()


@given(Lengths, st.integers(2, 9), st.integers(0, 3))
def test_batches_hold_every_place_once(lengths: list[int], size: int, seed: int) -> None:
    def drawn(seed: int) -> list[list[int]]:
        return [b.tolist() for b in batches(np.array(lengths), size, torch.Generator().manual_seed(seed))]

    found = drawn(seed)
    assert sorted(place for batch in found for place in batch) == list(range(len(lengths)))
    assert len(found) == -(-len(lengths) // size)
    assert all(len(batch) <= size for batch in found)
    assert found == drawn(seed)


def test_batches_are_drawn_anew_and_pad_little() -> None:
    lengths = np.random.default_rng(0).integers(1, 200, 2_000)
    drawn = torch.Generator().manual_seed(0)
    first, second = batches(lengths, 8, drawn), batches(lengths, 8, drawn)
    assert [b.tolist() for b in first] != [b.tolist() for b in second]
    padded = sum(len(batch) * lengths[batch].max() for batch in first) / lengths.sum()
    random = sum(8 * part.max() for part in lengths.reshape(-1, 8)) / lengths.sum()
    assert padded < 1.1 < 1.6 < random
    means = [lengths[batch].mean() for batch in first]
    assert abs(np.corrcoef(means[1:], means[:-1])[0, 1]) < 0.2  # short and long ones mix over an epoch


@given(Lengths, st.integers(1, 200))
def test_batches_by_length_keep_to_the_tokens(lengths: list[int], most: int) -> None:
    found = list(by_length(np.array(lengths), most))
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    sizes = [(len(batch), int(np.array(lengths)[batch].max())) for batch in found]
    assert all(n == 1 or n * longest <= most for n, longest in sizes)
    assert [longest for _, longest in sizes] == sorted((longest for _, longest in sizes), reverse=True)


def test_a_tuned_encoder_leaves_the_backbone_alone_and_finds_back(read: tuple[Backbone, BatchTokens]) -> None:
    backbone, tokens = read
    before = {name: one.clone() for name, one in backbone.model.state_dict().items()}
    encoder = TunedBackbone(backbone, tokens)
    states = encoder([0, 1])[0]
    states.sum().backward()
    assert any(one.grad is not None and one.grad.abs().sum() > 0 for one in encoder.parameters())
    with torch.no_grad():
        for one in encoder.parameters():
            one += 0.1
    assert all(torch.equal(one, before[name]) for name, one in backbone.model.state_dict().items())
    moved, kept = encoder([0, 1])[0], encoder.state_dict()
    encoder.load_state_dict(None)
    torch.testing.assert_close(encoder([0, 1])[0], states)
    encoder.load_state_dict(kept)
    torch.testing.assert_close(encoder([0, 1])[0], moved)
    assert not torch.allclose(moved, states)


def test_dropout_is_on_in_training_only(read: tuple[Backbone, BatchTokens]) -> None:
    encoder = TunedBackbone(*read)
    assert torch.equal(encoder([1])[0], encoder([1])[0])
    encoder.train()
    assert not torch.equal(encoder([1])[0], encoder([1])[0])
    encoder.train(False)
    assert torch.equal(encoder([1])[0], encoder([1])[0])


def test_bfloat16_is_near_and_comes_back_as_float32(read: tuple[Backbone, BatchTokens]) -> None:
    backbone, tokens = read
    rounding = copy(backbone)
    rounding.rounds = True
    plain, brief = TunedBackbone(backbone, tokens)([2])[0], TunedBackbone(rounding, tokens)([2])[0]
    assert brief.dtype == torch.float32
    assert not torch.equal(plain, brief)
    torch.testing.assert_close(plain, brief, atol=0.1, rtol=0.1)


def test_kept_states_take_no_weights() -> None:
    encoder = Cached(States(np.zeros((3, 2), np.float16), np.array([0, 1, 3])))
    encoder.load_state_dict(None)
    assert encoder.parameters() == []
    assert encoder.state_dict() is None
    with pytest.raises(ValueError, match="weights"):
        encoder.load_state_dict({})
