"""The policy: a causal language model of Hugging Face by name or folder, with the adapters trained on it so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tasks.contracts.errors import BackendError
from tasks.edit.rollout import without_mark
from tasks.llm.backends.structure import Structure, Turn

_BATCH_TOKENS = 65_536
"""Tokens (prompt and reply) generated side by side; what does not fit is generated after."""


@dataclass(frozen=True)
class Policy:
    """A grader. Everything that asks it goes through its tokens, so that plain and packed ways read the same."""

    model: Any
    tokenizer: Any
    name: str

    @classmethod
    def load(cls, name: str | Path, adapters: Sequence[Path] = ()) -> Policy:
        """Weights by name or folder, with LoRA adapters merged in order; on the GPU where there is one.

        Float32; bfloat16 on a GPU without adapters, whose small changes it would round away. BackendError where the
        weights or an adapter cannot be loaded.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]

        device = "cuda" if torch.cuda.is_available() else "cpu"
        kind = torch.bfloat16 if device == "cuda" and not adapters else torch.float32
        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForCausalLM.from_pretrained(name, dtype=kind)
            for folder in adapters:
                from peft import PeftModel

                model = PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
        except (OSError, ValueError, ImportError) as error:
            line = " ".join(str(error).split())[:300]
            raise BackendError(f"the policy '{name}' cannot be loaded: {line}") from error
        if tokenizer.eos_token_id is None:
            raise BackendError(f"the policy '{name}' has no end-of-sequence token, so no reply of it would end")
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token_id = tokenizer.eos_token_id
        return cls(
            model.to(device).eval(),  # type: ignore[arg-type]
            tokenizer,
            "/".join([str(name), *(folder.name for folder in adapters)]),
        )

    def prompt_ids(self, prompt: str) -> list[int]:
        """A prompt as one user turn in the model's own chat format, up to where the reply begins; the plain text for a
        model without a chat format. A student cannot close the turn: control tokens in the text stay text."""
        return self._structure.asked([{"role": "user", "content": prompt}], self._prompt)[1]

    def ids(self, text: str) -> list[int]:
        """A piece of text as tokens, nothing added; what reads like a control token stays text."""
        return self._structure.ids(text)

    def _prompt(self, turns: list[Turn]) -> list[int]:
        if self.tokenizer.chat_template is None:
            return list(self.tokenizer(turns[0]["content"])["input_ids"])
        options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
        text = self.tokenizer.apply_chat_template(turns, **options)
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @cached_property
    def _structure(self) -> Structure:
        return Structure(self.tokenizer, self.name)

    def text(self, ids: Sequence[int], longest: int) -> str:
        """What the policy wrote, control tokens left out. A reply that was broken off at `longest` tokens loses a last
        line that states a mark: of "12" it may hold the "1" alone."""
        ended = len(ids) < longest or self.tokenizer.eos_token_id in ids
        text = self._structure.broken.undone(str(self.tokenizer.decode(ids, skip_special_tokens=True)))
        return text if ended else without_mark(text)

    def write(
        self,
        prompts: Sequence[str],
        *,
        begun: Sequence[str] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        seed: int = 0,
    ) -> list[str]:
        """Replies in the order of the prompts, without the beginnings given.

        begun: what each reply begins with; it is continued. temperature: 0 is greedy. The same prompts, seed and
        machine give the same replies; with other prompts beside it a sampled reply is another one.
        """
        asked = self.asked(prompts, begun)
        order = sorted(range(len(asked)), key=lambda at: (len(asked[at]), at))
        replies = [""] * len(asked)
        torch.manual_seed(seed)
        while order:
            size = max(1, _BATCH_TOKENS // (len(asked[order[-1]]) + max_tokens))
            batch, order = order[:size], order[size:]
            made = self._replies([asked[at] for at in batch], temperature, max_tokens)
            for at, reply in zip(batch, made, strict=True):
                replies[at] = reply
        return replies

    def asked(self, prompts: Sequence[str], begun: Sequence[str] | None = None) -> list[list[int]]:
        """The tokens that replies go on from: of each prompt, and of what its reply begins with."""
        starts = begun or [""] * len(prompts)
        return [self.prompt_ids(prompt) + self.ids(start) for prompt, start in zip(prompts, starts, strict=True)]

    def _replies(self, asked: Sequence[list[int]], temperature: float, max_tokens: int) -> list[str]:
        width = max(map(len, asked))
        tokens = np.full((len(asked), width), self.tokenizer.pad_token_id, np.int64)
        real = np.zeros_like(tokens)
        for row, ids in enumerate(asked):
            tokens[row, width - len(ids) :] = ids
            real[row, width - len(ids) :] = 1
        drawn: dict[str, Any] = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        with torch.inference_mode():
            made = self.model.generate(
                input_ids=torch.from_numpy(tokens).to(self.model.device),
                attention_mask=torch.from_numpy(real).to(self.model.device),
                max_new_tokens=max_tokens,
                pad_token_id=self.tokenizer.pad_token_id,
                eos_token_id=self.tokenizer.eos_token_id,
                repetition_penalty=1.0,  # a checkpoint's own settings may say otherwise
                **(drawn if temperature > 0 else {"do_sample": False}),
            )
        return [self.text(ids, max_tokens) for ids in made[:, width:].tolist()]
