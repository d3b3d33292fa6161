"""Token states: kept ones against fresh ones, batches, folders, and the copy of a backbone that learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.methods.bottleneck import states as made
from rubricflow.tasks.methods.bottleneck.backbone import Backbone, BatchTokens, load, rebuilt
from rubricflow.tasks.methods.bottleneck.states import (
    Adapted,
    Cached,
    TunedBackbone,
    adapted,
    batches,
    by_length,
    encode,
    load_adapter,
)

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
    for found in (disk, encode(*read, tmp_path / "deep" / "one")):
        assert isinstance(found.values, np.memmap)
        np.testing.assert_array_equal(found.values, memory.values)
        np.testing.assert_array_equal(found.starts, memory.starts)
    assert capsys.readouterr().out.endswith("5 of 5 responses encoded\n")
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
    assert len(encode(read[0], other, folder=tmp_path / "states").starts) == 6  # who was first stays


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


# The layer that is read, and adapters on it: what a library's own hidden states are, and what alone learns.


ANSWERED = [Answered("which words", "alpha bravo charlie"), Answered("which", "echo")]
SMALL = {"num_hidden_layers": 4, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
LORA = Adapter(rank=2, alpha=4)


def model_of(kind: str, vocabulary: int) -> Any:
    """A random model of four layers, its norms drawn too, or one could stand for another."""
    rotary = {**SMALL, "num_key_value_heads": 1, "vocab_size": vocabulary, "max_position_embeddings": 64}
    made = {
        "qwen2": lambda: hf.Qwen2Model(hf.Qwen2Config(**rotary)),
        "qwen3": lambda: hf.Qwen3Model(hf.Qwen3Config(**rotary, head_dim=16)),
        "llama": lambda: hf.LlamaModel(hf.LlamaConfig(**rotary)),
        "gpt2": lambda: hf.GPT2Model(
            hf.GPT2Config(vocab_size=vocabulary, n_embd=16, n_layer=4, n_head=2, n_positions=64)
        ),
        "bert": lambda: hf.BertModel(hf.BertConfig(**SMALL, vocab_size=vocabulary, max_position_embeddings=64)),
    }[kind]
    torch.manual_seed(3)
    model = made()
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn_like(one) * 0.2)
    return model.eval()


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory, backbone_folder: Any) -> Any:
    """Kind → a folder with four layers."""
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp(kind)
            like = backbone_folder("bert" if kind == "bert" else "gpt2")
            tokenizer = hf.AutoTokenizer.from_pretrained(like)
            tokenizer.save_pretrained(made[kind])
            model_of(kind, len(tokenizer)).save_pretrained(made[kind])
        return made[kind]

    return folder


def states_of(backbone: Backbone) -> torch.Tensor:
    tokens = backbone.tokenize(ANSWERED)
    with torch.inference_mode():
        return TunedBackbone(backbone, tokens)([0, 1])[0]


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama", "gpt2"])
@pytest.mark.parametrize("layer", [1, 3, 4])
def test_states_are_what_the_layer_above_reads(folder_of: Any, kind: str, layer: int) -> None:
    whole = model_of(kind, len(hf.AutoTokenizer.from_pretrained(folder_of(kind))))
    found = load(str(folder_of(kind)), 64, layer=layer)
    ids = torch.from_numpy(found.tokenize(ANSWERED[:1]).ids).long()[None]
    with torch.inference_mode():
        hidden = whole(input_ids=ids, output_hidden_states=True).hidden_states[layer]
        blocks = whole.h if kind == "gpt2" else whole.layers
        norm = "ln_1" if kind == "gpt2" else "input_layernorm"
        above = getattr(blocks[layer], norm) if layer < 4 else (whole.ln_f if kind == "gpt2" else whole.norm)
        wanted = above(hidden) if layer < 4 else hidden  # the last is normed already
        wanted *= 3.5 / above.weight.norm()
        states = found.states(ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))
    torch.testing.assert_close(states, wanted, atol=1e-4, rtol=1e-4)
    if kind != "gpt2":  # whose norm also shifts
        assert states.norm(dim=2).mean() == pytest.approx(3.5, rel=0.2)
    assert len(list(found.model.parameters())) < len(list(whole.parameters())) or layer == 4


def test_an_encoder_gives_the_layers_own_states(folder_of: Any) -> None:
    whole = hf.AutoModel.from_pretrained(folder_of("bert")).eval()
    found = load(str(folder_of("bert")), 64, layer=2)
    ids = torch.from_numpy(found.tokenize(ANSWERED[:1]).ids).long()[None]
    with torch.inference_mode():
        wanted = whole(input_ids=ids, output_hidden_states=True).hidden_states[2]
        states = found.states(ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))
    torch.testing.assert_close(states, wanted, atol=1e-5, rtol=1e-5)


def test_layers_have_names_of_their_own_and_come_back_from_a_file(folder_of: Any) -> None:
    found = {layer: load(str(folder_of("qwen2")), 64, layer=layer) for layer in (None, 2, 3)}
    assert len({one.name for one in found.values()}) == 3
    two = found[2]
    again = rebuilt(two.name, two.blueprint(), two.model.state_dict())
    torch.testing.assert_close(states_of(again), states_of(two))


def test_a_layer_that_is_not_there_is_refused(folder_of: Any) -> None:
    with pytest.raises(InputError, match="has 4 layers, and so no layer 5") as refused:
        load(str(folder_of("qwen2")), 64, layer=5)
    assert refused.value.field == "layer"


@pytest.mark.parametrize("kind", ["qwen2", "gpt2", "bert"])
def test_an_adapter_alone_learns_and_begins_as_nothing(folder_of: Any, kind: str) -> None:
    backbone = load(str(folder_of(kind)), 64, layer=2)
    before = {name: one.clone() for name, one in backbone.model.state_dict().items()}
    encoder = Adapted(backbone, backbone.tokenize(ANSWERED), LORA)
    torch.testing.assert_close(encoder([0, 1])[0], states_of(backbone))
    learning = encoder.parameters()
    own = {one.data_ptr() for one in backbone.model.parameters()}
    its = {one.data_ptr() for one in encoder._backbone.model.parameters() if not one.requires_grad}
    assert own == its  # half a billion weights are not held twice
    assert 0 < sum(one.numel() for one in learning) < 0.7 * sum(one.numel() for one in backbone.model.parameters())
    start = encoder.state_dict()
    optimizer = torch.optim.SGD(learning, lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        encoder([0, 1])[0].square().sum().backward()
        optimizer.step()
    moved, kept = encoder([0, 1])[0], encoder.state_dict()
    assert not torch.allclose(moved, states_of(backbone))
    assert all(torch.equal(one, before[name]) for name, one in backbone.model.state_dict().items())
    encoder.load_state_dict(None)
    assert all(torch.equal(one, start[name]) for name, one in encoder.state_dict().items())
    again = adapted(backbone, LORA)
    load_adapter(again, kept)
    torch.testing.assert_close(states_of(again), moved)
    with pytest.raises(ValueError, match="adapter"):
        load_adapter(again, dict(list(kept.items())[1:]))


def test_rounded_states_are_near_and_have_a_name_of_their_own(folder_of: Any) -> None:
    plain, rounding = (load(str(folder_of("qwen2")), 64, layer=2, rounds=rounds) for rounds in (False, True))
    assert plain.name != rounding.name
    exact, near = states_of(plain).numpy(), states_of(rounding).numpy()
    assert near.dtype == np.float32
    assert not np.array_equal(exact, near)
    np.testing.assert_allclose(exact, near, atol=0.1)
