"""The laboratory's policy: a small decoder trained from scratch on imperfect marking traces, checklists and revisions.

It stands in for a language model that has seen much marking, most of it hasty. It knows the laboratory's few words and
the compact prompts, and nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.bundle import Bundle, Protocol
from rubricflow.tasks.methods.edit.policy import MASK, Prompts
from rubricflow.tasks.methods.edit.rollout import Sample, printed
from rubricflow.tasks.methods.edit.world import (
    CAREFUL,
    IMPERFECT,
    Habits,
    StudentAnswer,
    Trace,
    WorldQuestion,
    answer,
    checklist,
    judged,
    question,
    reasoned,
    summed,
    trace,
)

END, PAD, UNKNOWN = "<end>", "<pad>", "<unknown>"
PROMPTS = Prompts("compact")
STEADY = IMPERFECT._replace(early=0.0)
"""The habits of a marker who never stops early."""
_PIECE = r"\n| ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]| "
"""A word, a digit or a sign, each with the space before it."""
_EVERY = 100
"""Steps between lines, and between checkpoints."""
_UNUSUAL = 0.25
"""Share of the corpus' questions that pay otherwise than the study's do."""


class Size(NamedTuple):
    """Of the decoder and its training."""

    width: int = 128
    layers: int = 3
    heads: int = 4
    steps: int = 4000
    tokens: int = 4096
    """Per step."""
    learning_rate: float = 2e-3


class Exchange(NamedTuple):
    """A prompt with the reply that the decoder learns."""

    prompt: str
    reply: str


def sample_of(item: WorldQuestion, response: StudentAnswer, response_id: str = "") -> Sample:
    """The question with an answer, as the pipeline makes it of the study's tables."""
    rubric = item.rubric()
    protocol = Protocol(name="pointwise", final_score="weighted_points", signals=("score",))
    bundle = Bundle(text="", scale=rubric.scale, traits=rubric.traits, criteria=rubric.criteria, protocol=protocol)
    return Sample(
        response_id=response_id,
        item_id=item.item_id,
        question=item.text,
        scheme=printed(bundle),
        answer=response.text,
        top=item.top,
        gold=item.gold(response.stated, response.reason),
    )


def corpus(seed: int) -> Iterator[Exchange]:
    """What the decoder is trained on, without end: mostly gradings, and the tasks that Edit and InT set it."""
    rng = Random(seed)
    while True:
        item = question(rng, "", _UNUSUAL)
        response = answer(rng, item)
        sample = sample_of(item, response)
        (task,) = rng.choices(("grade", "checklist", "revise", "rewrite", "intervene"), (58, 10, 16, 6, 10))
        if task == "grade":
            yield Exchange(PROMPTS.grade(sample), trace(rng, item, response, IMPERFECT).text)
            continue
        noted = checklist(item, response)
        if task == "checklist":
            yield Exchange(PROMPTS.checklist(sample), noted)
            continue
        attempt = trace(rng, item, response, STEADY)
        if task == "intervene":
            # The first wrong step by number, or an early one, and one step in its place
            right = [verdict == "right" for verdict in response.stated]
            wrong = [step for step, met in enumerate(right) if (attempt.decided[step] > 0) != met]
            step = wrong[0] if wrong and rng.random() < 0.7 else rng.randrange(min(2, len(attempt.steps)))
            reply = _again(rng, item, response, attempt, step, IMPERFECT._replace(hasty=0.3))
            yield Exchange(PROMPTS.intervene(sample, attempt.steps), f"Step {step + 1}: {reply}")
            continue
        step = rng.randrange(len(attempt.steps))
        helped = rng.random() < 0.7
        shown = noted if helped else None
        if task == "revise":
            # A careful step in place of any; without the checklist it is as imperfect as the marker
            habits = CAREFUL if helped else IMPERFECT._replace(hasty=0.4)
            reply = _again(rng, item, response, attempt, step, habits)
            yield Exchange(PROMPTS.revise(sample, attempt.steps, step, "", shown), reply)
        else:
            # The rest of a trace from any step on
            again = trace(rng, item, response, CAREFUL if helped else STEADY._replace(hasty=0.4))
            rest = "\n".join(again.text.split("\n")[step:])
            yield Exchange(PROMPTS.revise(sample, attempt.steps, step, "", shown, local=False), rest)


def _again(rng: Random, item: WorldQuestion, response: StudentAnswer, attempt: Trace, step: int, habits: Habits) -> str:
    """Another text for a step of an attempt."""
    if step < len(item.facts):
        return judged(rng, item, response, step, habits)[0]
    if attempt.grounding[step]:
        return reasoned(rng, response, habits)[0]
    return summed(rng, item, attempt.decided[:step], habits)[0]


def tokenizer() -> Any:
    """Words, digits and signs, each with the space before it, so that every text of the laboratory comes back
    exactly."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    cut = pre_tokenizers.Split(Regex(_PIECE), "isolated")
    texts = corpus(0)
    pieces: set[str] = {str(digit) for digit in range(10)} | {f" {digit}" for digit in range(10)}
    for text in (MASK, *chain.from_iterable(islice(texts, 6000))):
        pieces.update(piece for piece, _ in cut.pre_tokenize_str(text))
    vocabulary = {piece: number for number, piece in enumerate([PAD, END, UNKNOWN, *sorted(pieces)])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    words.pre_tokenizer = cut
    words.decoder = decoders.Fuse()
    fast: Any = PreTrainedTokenizerFast
    return fast(
        tokenizer_object=words, eos_token=END, pad_token=PAD, unk_token=UNKNOWN, clean_up_tokenization_spaces=False
    )


def decoder(words: Any, size: Size, seed: int) -> Any:
    """A Qwen3 of this size with random weights, but for two heads that look back, see `_look_back`."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(words),
            hidden_size=size.width,
            intermediate_size=3 * size.width,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            head_dim=size.width // size.heads,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
    )
    for head in (0, 1):
        _look_back(model, head, head + 1)
    return model


@torch.no_grad()
def _look_back(model: Any, head: int, tokens: int) -> None:
    """Has a head of the first layer begin by reading what stands so many tokens before.

    To look something up takes such a head and a second one behind it. By chance the two find each other after hours on
    two cores; with the first one given, within minutes. Query and key are the same for every token (one dimension of
    the embedding is constant), and the rotation by position makes their product largest at that distance.
    """
    attention = model.model.layers[0].self_attn
    width = model.config.head_dim
    rows = slice(head * width, (head + 1) * width)
    half = width // 2
    sharp = 4
    turn = torch.tensor([10000.0 ** (-place / half) * tokens for place in range(sharp)])
    embedding = model.model.embed_tokens.weight
    if head == 0:
        embedding.normal_(0, 0.3)
        embedding[:, 0] = 1.0
    for weight in (attention.q_proj.weight, attention.k_proj.weight):
        weight[rows] = 0.0
    attention.k_proj.weight[rows, 0][:sharp] = 1.0
    attention.q_proj.weight[rows, 0][:sharp] = turn.cos()
    attention.q_proj.weight[rows, 0][half : half + sharp] = -turn.sin()
    attention.v_proj.weight[rows].normal_(0, model.config.hidden_size**-0.5)
    attention.o_proj.weight[:, rows].normal_(0, 0.7 * width**-0.5)
    for places in (slice(sharp), slice(half, half + sharp)):
        attention.q_norm.weight[places] = 4.0


def train(folder: Path, size: Size, seed: int, say: Callable[[str], None] = print) -> None:
    """Train the decoder and write it with its tokenizer into a folder, as any checkpoint of Hugging Face.

    After a kill it goes on from the last of its own checkpoints, to the same weights."""
    from transformers.utils import logging

    words = tokenizer()
    model = decoder(words, size, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    rise = max(1, size.steps // 20)

    def rate_share(step: int) -> float:
        decay = 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * step / size.steps))
        return min(1.0, (step + 1) / rise) * decay

    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_share)
    checkpoint = folder / "training.pt"
    state: Record = {"of": (tuple(size), seed), "done": 0}
    if checkpoint.exists() and (saved := torch.load(checkpoint))["of"] == state["of"]:
        state = saved
        for part, name in ((model, "model"), (optimizer, "optimizer"), (rate, "rate")):
            part.load_state_dict(state[name])
    begun = time.monotonic()
    batches = _batches(words, corpus(seed + 1), size.tokens, Random(seed))
    for step, (ids, mask, labels) in islice(enumerate(batches), state["done"], size.steps):
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        done = step + 1
        if done % _EVERY == 0 or done == size.steps:
            spent = time.monotonic() - begun
            say(f"laboratory: {done:,} of {size.steps:,} steps, loss {loss.item():.2f}, {spent:.0f} s")
            parts = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "rate": rate.state_dict()}
            folder.mkdir(parents=True, exist_ok=True)
            torch.save({**state, "done": done, **parts}, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model.eval().save_pretrained(folder)
    words.save_pretrained(folder)
    checkpoint.unlink()


def _batches(words: Any, texts: Iterator[Exchange], tokens: int, rng: Random) -> Iterator[tuple[torch.Tensor, ...]]:
    """Batches of texts of like length, without end: (B, L) ids, mask and labels, -100 where nothing is learned.

    Prompts are learned as well: to tell how an answer goes on takes the same looking up as to mark it."""
    while True:
        pairs = []
        for exchange in islice(texts, tokens // 12):
            reply = [*words(exchange.reply)["input_ids"], words.eos_token_id]
            pairs.append((words(exchange.prompt)["input_ids"], reply))
        pairs.sort(key=lambda pair: len(pair[0]) + len(pair[1]))
        batches: list[list[tuple[list[int], list[int]]]] = [[]]
        for pair in pairs:
            if len(batches[-1]) * (len(pair[0]) + len(pair[1])) > tokens:
                batches.append([])
            batches[-1].append(pair)
        rng.shuffle(batches)
        for batch in batches:
            ids = [torch.tensor(prompt + reply) for prompt, reply in batch]
            masks = [torch.ones_like(text) for text in ids]
            yield tuple(
                pad_sequence(texts, batch_first=True, padding_value=value)
                for texts, value in ((ids, words.pad_token_id), (masks, 0), (ids, -100))
            )
