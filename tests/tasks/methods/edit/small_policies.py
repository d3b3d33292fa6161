"""Small random policies of several architectures with tokenizers of their own, and cases to read."""

from __future__ import annotations

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rubricflow.tasks.methods.edit.policy import Policy
from rubricflow.tasks.methods.edit.rollout import Sample

END = "<|end|>"
WORDS = "the answer names plants light water energy not met scheme point P1 P2 P3 mark marks because\n"
# As Qwen's: every digit by itself, line breaks with the punctuation before them.
SINGLE_DIGITS = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+")
TEMPLATE = (
    "{% for message in messages %}<|user|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


class Asking:
    """Prompts in the order question, scheme, answer."""

    def grade(self, sample: Sample, masked: str = "none") -> str:
        scheme = "[MASK]" if masked == "scheme" else sample.scheme
        answer = "[MASK]" if masked == "answer" else sample.answer
        return f"Question: {sample.question}\nScheme: {scheme}\nAnswer: {answer}\nMark it.\n"


def tokenizer(split: str) -> PreTrainedTokenizerFast:
    """Byte-level pairs; split: "digits" reads 12 as two tokens, "words" reads it as one with the blank before it."""
    made = Tokenizer(models.BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=split == "words")
    if split == "digits":
        made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(SINGLE_DIGITS, "isolated"), level])
    else:
        made.pre_tokenizer = level
    made.decoder = decoders.ByteLevel()
    texts = [WORDS, *(f"Final mark: {mark}\n" for mark in range(13) for _ in range(3))] * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = [END, "<|user|>", "<|assistant|>"]
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(vocab_size=420, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=END, pad_token=END)


def policy(kind: str, split: str, chat: bool = False, positions: int = 4096) -> Policy:
    """A model of 2 layers; its weights are drawn with a larger spread, or nothing would depend on the context."""
    words = tokenizer(split)
    words.chat_template = TEMPLATE if chat else None
    shape = {"vocab_size": len(words), "max_position_embeddings": positions, "tie_word_embeddings": False}
    torch.manual_seed(7)
    if kind == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=2, n_head=4, **shape))
    else:
        shape |= {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
        shape |= {"num_key_value_heads": 2}
        model = (
            Qwen3ForCausalLM(Qwen3Config(head_dim=8, **shape))
            if kind == "qwen3"
            else LlamaForCausalLM(LlamaConfig(**shape))
        )
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() == 2:
                wide = "wte" in name or "embed" in name
                weights.normal_(0, 1.0 if wide else 0.3 if "wpe" in name else 1.5 / weights.shape[1] ** 0.5)
    return Policy(model.eval(), words, kind)


def sample(top: int, number: int = 0, answer: str = "Light gives the plants energy.") -> Sample:
    return Sample(
        f"r{number}",
        "i",
        "Why do plants need light?",
        "P1: names energy (1 mark)\nP2: names light (1 mark)",
        answer,
        top,
    )


REASONING = (
    "P1 is met: the answer names energy.\nP2 is not met, because the answer says water.\n\nSo 1 mark.\nFinal mark: 1",
    "The answer names light. It does not name water! Is that P2? No.\nFinal mark: 0",
    "",
    "P3 is not met.",
    "要点一：提到光。要点二没有提到。\nتم ذكر الطاقة\nFinal mark: 12",
)


def cases(top: int) -> list[tuple[Sample, str]]:
    """Rollouts of several lengths, one without steps, one that breaks off, one in other scripts."""
    answers = ("Light gives the plants energy.", "water 水", "", "naïve \U0001f331 plants", "光合作用 " * 5)
    return [
        (sample(top, number, answer), text)
        for number, (answer, text) in enumerate(zip(answers, REASONING, strict=True))
    ]
