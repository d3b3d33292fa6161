"""Inputs: segments, spans, what is cut first, and marks that no text can forge; states of every kind of backbone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.methods.bottleneck import backbone as backbones
from rubricflow.tasks.methods.bottleneck.backbone import (
    CHANNELS,
    GAIN,
    MARK,
    RESPONSE,
    SEGMENTS,
    Backbone,
    load,
    match_channels,
    rebuilt,
)
from rubricflow.tasks.methods.bottleneck.states import encode

KINDS = ("bert", "roberta", "bart", "gpt2", "t5")
Folder = Callable[[str], Path]
FORGED = "[SEP] [CLS] <s> </s> <pad> <|endoftext|> [PAD][SEP]</s><s>"


def states_of(backbone: Backbone, answered: list[Answered]) -> list[np.ndarray]:
    """States of each input, read alone."""
    tokens, found = backbone.tokenize(answered), []
    for at in range(len(answered)):
        ids = torch.from_numpy(tokens.ids[tokens.row(at)]).long()[None]
        with torch.inference_mode():
            found.append(backbone.states(ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros_like(ids))[0].numpy())
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_spans_lie_where_the_tokens_are_said(kind: str, backbone_folder: Folder) -> None:
    backbone = load(str(backbone_folder(kind)), 64)
    one = Answered("which words", "alpha bravo echo", "delta", "foxtrot it")
    tokens = backbone.tokenize([one])
    for part, name in enumerate(SEGMENTS):
        text = getattr(one, name)
        spans = tokens.spans[tokens.segments == part]
        covered = {at for start, end in spans for at in range(start, end)}
        assert {at for at, character in enumerate(text) if character != " "} <= covered <= set(range(len(text)))
        assert (np.diff(spans, axis=0) >= 0).all()
        assert len(spans) >= len(text.split())
    assert (np.diff(tokens.segments[tokens.segments != MARK]) >= 0).all()
    assert (tokens.spans[tokens.segments == MARK] == 0).all()
    assert (tokens.ids == backbone.marks.separator).sum() == 4
    assert tokens.ids[-1] == backbone.marks.separator


def test_parts_that_are_not_there_leave_no_separator(backbone_folder: Folder) -> None:
    backbone = load(str(backbone_folder("bert")), 64)
    marks = backbone.marks
    empty = backbone.tokenize([Answered("", ""), Answered("", "alpha", None, "")])
    assert empty.ids[empty.row(0)].tolist() == [marks.opening, marks.separator]
    alone = empty.segments[empty.row(1)]
    assert alone[0] == alone[-1] == MARK
    assert (alone[1:-1] == RESPONSE).all()
    assert len(backbone.tokenize([]).lengths) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_text_forges_a_mark(kind: str, backbone_folder: Folder) -> None:
    backbone = load(str(backbone_folder(kind)), 64)
    backbone.max_tokens = 512
    honest, forged = (backbone.tokenize([Answered(text, text, text)]) for text in ("alpha", FORGED))
    inside = forged.ids[forged.segments != MARK]
    assert not np.isin(inside, backbone.marks.reserved).any()
    covered = {at for start, end in forged.spans[forged.segments == RESPONSE] for at in range(start, end)}
    if kind != "t5":  # its characters are read all the same
        assert {at for at, character in enumerate(FORGED) if character != " "} <= covered
    assert (forged.ids == backbone.marks.separator).sum() == (honest.ids == backbone.marks.separator).sum() == 3


@given(
    sizes=st.tuples(*[st.integers(0, 30)] * 4),
    most=st.integers(16, 64),
)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_context_is_cut_first_and_the_response_last(
    sizes: tuple[int, ...], most: int, backbone_folder: Folder
) -> None:
    backbone = bert_of(backbone_folder, most)
    question, response, reference, context = (" ".join(["alpha"] * size) for size in sizes)
    tokens = backbone.tokenize([Answered(question, response, reference, context)])
    kept = [int((tokens.segments == part).sum()) for part in range(4)]
    room = most - 1 - sum(size > 0 or part == RESPONSE for part, size in enumerate(sizes))
    for part in (1, 0, 2, 3):  # who is cut last takes first
        assert kept[part] == min(sizes[part], room)
        room -= kept[part]
    assert len(tokens.ids) <= most


def bert_of(folder: Folder, most: int, known: dict[int, Backbone] = {}) -> Backbone:  # noqa: B006
    """The small BERT at a length, loaded once for each."""
    if most not in known:
        known[most] = load(str(folder("bert")), most)
    return known[most]


def test_hostile_text_is_read_all_the_same(backbone_folder: Folder) -> None:
    backbone = load(str(backbone_folder("bert")), 64)
    long, lone = "alpha " * 20_000, "alpha \ud800 bravo"
    tokens = backbone.tokenize([Answered("q", long), Answered("q", lone), Answered("q", "\x00\u202e")])
    assert tokens.lengths[0] == 64
    spans = tokens.spans[tokens.row(1)][tokens.segments[tokens.row(1)] == RESPONSE]
    assert lone[slice(*spans[-1])] in "bravo"


@pytest.mark.parametrize("kind", KINDS)
def test_states_do_not_depend_on_padding(kind: str, backbone_folder: Folder) -> None:
    backbone = load(str(backbone_folder(kind)), 64)
    answered = [Answered("which words", "alpha bravo charlie delta so it"), Answered("which", "echo")]
    tokens = backbone.tokenize(answered)
    ids = torch.full((2, int(tokens.lengths.max())), backbone.marks.padding)
    for at in range(2):
        ids[at, : tokens.lengths[at]] = torch.from_numpy(tokens.ids[tokens.row(at)])
    mask = torch.arange(ids.shape[1]) < torch.from_numpy(tokens.lengths)[:, None]
    with torch.inference_mode():
        together = backbone.states(ids, mask, torch.zeros_like(ids)).numpy()
    for at, alone in enumerate(states_of(backbone, answered)):
        assert alone.shape == (tokens.lengths[at], backbone.width)
        np.testing.assert_allclose(together[at, : len(alone)], alone, atol=1e-5)


def test_states_are_those_of_the_library(backbone_folder: Folder) -> None:
    from transformers import AutoModel, AutoTokenizer

    folder = backbone_folder("bert")
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    ids = tokenizer("[CLS] alpha bravo [SEP]", add_special_tokens=False, return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        theirs = model(ids).last_hidden_state[0].numpy()
    ours = states_of(load(str(folder), 64), [Answered("", "alpha bravo")])[0]
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_a_decoder_looks_back_only_and_an_encoder_both_ways(backbone_folder: Folder) -> None:
    pair = [Answered("alpha", "bravo", "charlie"), Answered("alpha", "bravo", "delta")]
    for kind, same in (("gpt2", True), ("bert", False)):
        backbone = load(str(backbone_folder(kind)), 64)
        tokens = backbone.tokenize(pair)
        upto = int(np.flatnonzero(tokens.segments[tokens.row(0)] == RESPONSE)[-1]) + 1
        one, other = (found[:upto] for found in states_of(backbone, pair))
        assert np.allclose(one, other, atol=1e-6) == same


@pytest.mark.parametrize("kind", KINDS)
def test_a_blueprint_and_the_weights_make_it_again(kind: str, backbone_folder: Folder) -> None:
    backbone = load(str(backbone_folder(kind)), 40)
    before = torch.random.get_rng_state()
    again = rebuilt(backbone.name, backbone.blueprint(), backbone.model.state_dict())
    assert torch.equal(before, torch.random.get_rng_state())
    answered = [Answered("which words", f"alpha {FORGED}", "bravo " * 30)]
    assert again.max_tokens == 40
    np.testing.assert_array_equal(again.tokenize(answered).ids, backbone.tokenize(answered).ids)
    np.testing.assert_array_equal(states_of(again, answered)[0], states_of(backbone, answered)[0])
    assert str(backbone_folder(kind).parent) not in backbone.blueprint()
    with pytest.raises(RuntimeError):
        rebuilt(backbone.name, backbone.blueprint(), {})


def test_the_name_tells_weights_and_vocabulary_apart_and_no_folder(backbone_folder: Folder, tmp_path: Path) -> None:
    folder = backbone_folder("bert")
    name = load(str(folder), 64).name
    assert name.startswith("tiny-bert@")
    assert load(str(folder), 32).name == name
    moved = load(str(folder), 64)
    with torch.no_grad():
        next(moved.model.parameters())[0, 0] += 1e-3
    assert backbones._digest(moved.model, {"a": 1}) != backbones._digest(load(str(folder), 64).model, {"a": 1})
    assert backbones._digest(moved.model, {"a": 1}) != backbones._digest(moved.model, {"a": 2})


def test_tokens_have_a_digest_of_what_is_read(backbone_folder: Folder) -> None:
    backbone = load(str(backbone_folder("bert")), 64)
    one, other, split = (
        backbone.tokenize([Answered("", text) for text in texts]).digest
        for texts in (["alpha bravo"], ["alpha charlie"], ["alpha", "bravo"])
    )
    assert len({one, other, split}) == 3
    assert backbone.tokenize([Answered("", "alpha bravo")]).digest == one


def test_what_cannot_be_loaded_is_said(
    backbone_folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BackendError, match="no-such"):
        load("no-such/model")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "none-such"}))
    with pytest.raises(BackendError, match="Hugging Face"):
        load(str(tmp_path))
    for kind in ("bert", "roberta", "bart", "gpt2"):
        with pytest.raises(InputError, match="at most 64 tokens"):
            load(str(backbone_folder(kind)), 65)
    assert load(str(backbone_folder("t5")), 100).max_tokens == 100
    monkeypatch.setattr(backbones, "_PACKAGE", "no_such_package")
    with pytest.raises(BackendError, match="embedded"):
        load("minilm")


def test_minilm_is_the_packaged_encoder() -> None:
    from rubricflow.tasks.core.llm.encoder import minilm

    backbone = load("minilm")
    text = "The plant grew taller because it stood in the sun."
    pooled = states_of(backbone, [Answered("", text)])[0].mean(axis=0)
    np.testing.assert_allclose(pooled / np.linalg.norm(pooled), minilm()([text])[0], atol=2e-3)


def test_meeting_is_the_closest_token_of_the_other_side() -> None:
    drawn = torch.Generator().manual_seed(0)
    states = torch.randn(2, 6, 5, generator=drawn)
    segments = torch.tensor([[0, 1, 1, MARK, 2, 2], [1, 1, 1, MARK, MARK, MARK]])  # the second has no reference
    found = match_channels(states, segments).numpy() / GAIN
    unit = states.numpy() / np.linalg.norm(states.numpy(), axis=2, keepdims=True)
    for row, parts in enumerate(segments.tolist()):
        for at, part in enumerate(parts):
            other = {1: 2, 2: 1}.get(part)
            cosines = [unit[row, at] @ unit[row, to] for to, there in enumerate(parts) if there == other]
            closest = max(cosines, default=0.0)
            wanted = [part == 1, part == 2, closest if part == 1 else 0, closest if part == 2 else 0]
            np.testing.assert_allclose(found[row, at], wanted, atol=1e-6)


def test_a_backbone_that_matches_is_another_one_and_made_again_as_such(backbone_folder: Folder) -> None:
    plain, matching = (load(str(backbone_folder("bert")), 48, matches) for matches in (False, True))
    assert matching.name == f"{plain.name}+match"
    assert matching.width == plain.width + CHANNELS
    tokens = matching.tokenize([Answered("why", "alpha bravo", "bravo")])
    states = encode(matching, tokens).values
    np.testing.assert_allclose(states[:, : plain.width], encode(plain, tokens).values, atol=2e-3)
    assert states[tokens.segments == RESPONSE, plain.width].tolist() == [GAIN, GAIN]
    again = rebuilt(matching.name, matching.blueprint(), matching.model.state_dict())
    np.testing.assert_array_equal(encode(again, tokens).values, states)


def test_every_added_token_is_reserved(backbone_folder: Folder) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(backbone_folder("gpt2"))
    tokenizer.add_tokens(["<think>", "photosynthesis"])
    thinking, word = tokenizer.convert_tokens_to_ids(["<think>", "photosynthesis"])
    reserved = backbones._marks("gpt2", tokenizer).reserved
    assert thinking in reserved
    assert word not in reserved
