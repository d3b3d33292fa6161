"""The laboratory: gold marks found again from the texts alone, careful and hasty traces, and texts that tokens keep."""

from __future__ import annotations

import re
from itertools import islice
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.methods.edit import decoder as laboratory_decoder
from rubricflow.tasks.methods.edit.decoder import Size, corpus, decoder, sample_of, tokenizer, train
from rubricflow.tasks.methods.edit.policy import Policy
from rubricflow.tasks.methods.edit.rollout import Sample, cut, read_mark
from rubricflow.tasks.methods.edit.world import (
    CAREFUL,
    IMPERFECT,
    REASON,
    VERBS,
    WorldQuestion,
    answer,
    checklist,
    question,
    round_half_up,
    trace,
)

SEEDS = st.integers(0, 10_000)
WORD = {word: verb for verb, other in VERBS.items() for word in (verb, other)}


def marked(sample: Sample, of: WorldQuestion) -> int:
    """The gold mark once more, from nothing but the printed scheme, the question and the answer."""
    sentences = [sentence.split() for sentence in sample.answer.removesuffix(" .").split(" . ")]
    said = {(words[0], WORD.get(words[1], words[1]), *words[2:]) for words in sentences}
    if of.by_levels:
        facts = [tuple(fact.split()) for fact in re.findall(r"F\d: (\w+ \w+ \w+)", sample.question)]
        level = sum(fact in said for fact in facts)
        band = re.findall(r"\((?:(\d+)-)?(\d+) marks?\)", sample.scheme)[level]
        return int(band[1]) - (tuple(REASON.split()) not in said) if level else 0
    points = re.findall(r"P\d: (\w+ \w+ \w+) \(([\d.]+) marks?\)", sample.scheme)
    return round_half_up(sum(float(value) for fact, value in points if tuple(fact.split()) in said))


@given(SEEDS)
def test_the_gold_mark_follows_from_scheme_and_answer(seed: int) -> None:
    luck = Random(seed)
    of = question(luck, "q", unusual=0.5)
    said = answer(luck, of)
    sample = sample_of(of, said)
    assert sample.gold == marked(sample, of)
    assert 0 <= sample.gold <= sample.top


@given(SEEDS)
def test_a_careful_trace_ends_with_the_gold_mark(seed: int) -> None:
    luck = Random(seed)
    of = question(luck, "q", unusual=0.5)
    said = answer(luck, of)
    made = trace(luck, of, said, CAREFUL)
    assert read_mark(made.text, of.top).mark == of.gold(said.stated, said.reason)
    assert [made.text[step.start : step.end] for step in cut(made.text)] == list(made.steps)

    made = trace(luck, of, said, IMPERFECT)
    assert read_mark(made.text, of.top).mark == made.mark
    assert len(made.steps) == len(made.grounding) == len(made.decided)


def test_hasty_marking_is_often_wrong() -> None:
    luck = Random(3)
    drawn = [(of := question(luck, "q"), answer(luck, of)) for _ in range(800)]
    right = [trace(luck, of, said, IMPERFECT).mark == of.gold(said.stated, said.reason) for of, said in drawn]
    assert 0.3 < sum(right) / len(right) < 0.6


@given(SEEDS)
def test_a_checklist_quotes_the_answer(seed: int) -> None:
    luck = Random(seed)
    of = question(luck, "q")
    said = answer(luck, of)
    rows = [line.split(" | ") for line in checklist(of, said).split("\n")]
    assert [verdict == "covered" for _, verdict, _ in rows] == [stated == "right" for stated in said.stated]
    assert all(quote == "none" or quote in said.text for _, _, quote in rows)


@pytest.fixture(scope="module")
def words():  # type: ignore[no-untyped-def]
    return tokenizer()


@given(seed=st.integers(1, 10_000))
@settings(max_examples=15)
def test_tokens_keep_every_text(words, seed: int) -> None:  # type: ignore[no-untyped-def]
    for asked in islice(corpus(seed), 5):
        for text in asked:
            ids = words(text)["input_ids"]
            assert words.unk_token_id not in ids
            assert words.decode(ids) == text


def test_a_killed_training_goes_on_to_the_same_weights(  # type: ignore[no-untyped-def]
    words, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(laboratory_decoder, "_EVERY", 2)
    monkeypatch.setattr(laboratory_decoder, "tokenizer", lambda: words)
    size = Size(width=16, layers=1, heads=2, steps=5, tokens=256)
    train(tmp_path / "whole", size, 3, lambda line: None)

    class Killed(Exception):
        pass

    def kill(line: str) -> None:
        if line.startswith("laboratory: 4 of"):
            raise Killed

    with pytest.raises(Killed):
        train(tmp_path / "killed", size, 3, kill)
    lines: list[str] = []
    train(tmp_path / "killed", size, 3, lines.append)
    assert [line.split(",")[0] for line in lines] == ["laboratory: 4 of 5 steps", "laboratory: 5 of 5 steps"]
    whole, killed = (Policy.load(tmp_path / name).model.state_dict() for name in ("whole", "killed"))
    assert all(torch.equal(whole[name], killed[name]) for name in whole)
    assert sorted(path.name for path in (tmp_path / "whole").iterdir()) == sorted(
        path.name for path in (tmp_path / "killed").iterdir()
    )


def test_the_first_heads_look_back(words) -> None:  # type: ignore[no-untyped-def]
    model = decoder(words, Size(), 0)
    model.set_attn_implementation("eager")
    looks = model(input_ids=torch.randint(3, 190, (1, 40)), output_attentions=True).attentions[0][0]
    assert looks[0].diagonal(-1)[1:].mean() > 0.9
    assert looks[1].diagonal(-2)[1:].mean() > 0.9


def test_the_same_seed_is_the_same_corpus() -> None:
    assert list(islice(corpus(5), 20)) == list(islice(corpus(5), 20)) != list(islice(corpus(6), 20))
