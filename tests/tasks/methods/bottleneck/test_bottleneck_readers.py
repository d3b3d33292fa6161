"""The layer that is read, and adapters on it: what a library's own hidden states are, and what alone learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Adapter
from rubricflow.tasks.methods.bottleneck.backbone import Backbone, load, rebuilt
from rubricflow.tasks.methods.bottleneck.states import Adapted, TunedBackbone, adapted, load_adapter

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
