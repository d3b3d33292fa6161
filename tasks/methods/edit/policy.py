"""The policy: a causal language model of Hugging Face by name or folder, with the adapters trained on it so far.

Attention of one new token over what is kept, for models whose query heads share keys and values.

The library copies keys and values for every query head where there is a mask: seven times the whole memory at every
token of a Qwen2.5 0.5B. Query heads that share them are instead read as if they were several tokens of one head.

What texts begin with alike is read once: the answers to a question share instructions, question and mark scheme.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.llm.backends.structure import Structure, Turn
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.core.text.templates import Templates
from rubricflow.tasks.methods.edit.rollout import SCAFFOLD, Sample, line_ids, without_mark

# What the policy is asked: templates in prompts/<set>/*.txt, filled in one pass, student text fenced.

FOLDER = Path(__file__).with_name("prompts")
MASK = "[MASK]"
"""What an input is replaced by in the grounding audit (Eq. 3)."""
Masked = Literal["none", "scheme", "answer"]
PromptSet = Literal["full", "compact"]


@dataclass(frozen=True)
class Prompts:
    """One set of prompts."""

    name: PromptSet = "full"

    @cached_property
    def _templates(self) -> Templates:
        return Templates(FOLDER / self.name)

    def grade(self, sample: Sample, masked: Masked = "none") -> str:
        """The grading prompt q, ρ, a; with the scheme or the answer replaced by `MASK` for the audit.

        The fence's nonce is that of the unmasked answer, so that nothing but the masked input differs.
        """
        values = self._values(sample)
        if masked != "none":
            values[masked] = MASK
        return self._templates.fill("grade", values)

    def checklist(self, sample: Sample, verbatim: bool = False) -> str:
        """Asks for every marking point, by its id or verbatim, with a verdict and a quote; the gold mark is given
        (section 2.2).

        The lines are named one by one: a small model that is shown a form alone copies it, or numbers as it likes.
        """
        lines = ", ".join(line_ids(sample.scheme)) or "every point"
        asked = self._values(sample) | {"gold": str(sample.gold), "points": lines}
        return self._templates.fill("checklist_verbatim" if verbatim else "checklist", asked)

    def revise(
        self,
        sample: Sample,
        attempt: Sequence[str],
        chosen: int,
        diagnosis: str,
        checklist: str | None,
        local: bool = True,
    ) -> str:
        """Asks for 1-3 sub-steps in place of step `chosen` (0-based) of an attempt (appendix F); without `local` for
        the whole rest from that step on, the ablation without the locality constraint.

        diagnosis: what the internal signals say of the step. checklist: None for the ablation without it.
        """
        steps = [f">> {step} <<" if number == chosen else step for number, step in enumerate(attempt)]
        marked = "\n".join(steps)
        shown = "none" if checklist is None else checklist
        values = {"attempt": marked, "diagnosis": diagnosis, "checklist": shown}
        return self._templates.fill("revise" if local else "rewrite", self._values(sample, marked) | values)

    def intervene(self, sample: Sample, attempt: Sequence[str]) -> str:
        """Asks for the number of the first wrong step and one step in its place, the gold mark given (InT)."""
        numbered = "\n".join(f"{number}: {step}" for number, step in enumerate(attempt, 1))
        return self._templates.fill(
            "intervene", self._values(sample, numbered) | {"attempt": numbered, "gold": str(sample.gold)}
        )

    def _values(self, sample: Sample, attempt: str = "") -> dict[str, str]:
        """attempt: the policy saw the fence of the answer alone when it wrote it, and may have been told to repeat
        it."""
        nonce = text_digest(sample.answer + attempt)[:12]
        return {
            "question": sample.question,
            "scheme": sample.scheme,
            "answer": sample.answer,
            "top": str(sample.top),
            "nonce": nonce,
        }


_LEAST = 32
"""Tokens that are worth a pass of their own."""


def groups(texts: Sequence[Sequence[int]]) -> list[tuple[list[int], int]]:
    """Places of texts that are read together, and how many tokens all texts of the group begin with; 0 where too few.

    Sorted texts that share most with each other are neighbours: a group goes on as long as its texts share at least
    half of the shortest one's tokens, and three quarters of what they shared before: the answers to one question stay
    together, and those to the next, which share the instructions alone with them, are read apart.

    >>> groups([[1] * 40 + [2, 3], [9], [1] * 40 + [4]])
    [([0, 2], 40), ([1], 0)]
    >>> groups([[1] * 40 + [number // 2] * 40 + [number] for number in range(4)])
    [([0, 1], 80), ([2, 3], 80)]
    """
    order = sorted(range(len(texts)), key=lambda number: (list(texts[number]), number))
    found: list[tuple[list[int], int, int]] = []  # places, tokens in common, tokens of the shortest
    for number in order:
        length = len(texts[number])
        if found:
            group, common, least = found[-1]
            before, common = common, min(common, shared([texts[group[-1]], texts[number]]))
            least = min(least, length)
            if 2 * common >= least and (len(group) == 1 or 4 * common >= 3 * before):
                found[-1] = [*group, number], common, least
                continue
        found.append(([number], length, length))
    return [(group, common if len(group) > 1 and common >= _LEAST else 0) for group, common, _ in found]


def shared(texts: Sequence[Sequence[int]]) -> int:
    """How many tokens all texts begin with.

    >>> shared([[1, 2, 3], [1, 2], [1, 2, 4]])
    2
    """
    length = min(map(len, texts))
    for place in range(length):
        if len({text[place] for text in texts}) > 1:
            return place
    return length


def remembered(model: Any, ids: Sequence[int]) -> Any:
    """What a model keeps of tokens that it has read: the keys and values of one text."""
    tokens = torch.tensor([list(ids)], device=model.device)
    return model(input_ids=tokens, use_cache=True).past_key_values


def copies(memory: Any, rows: int) -> Any:
    """The same for so many texts; what they go on with changes nothing in `memory`."""
    copied = deepcopy(memory)
    copied.batch_repeat_interleave(rows)
    return copied


def looks_back_wholly(model: Any) -> bool:
    """Whether every token of a model sees all before it, so that they can be read earlier and elsewhere."""
    windowed = getattr(model.config, "sliding_window", None) is not None
    return not windowed and not set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}


_BATCH_TOKENS = {"cpu": 16_384, "cuda": 65_536}
"""Tokens (prompt and reply) generated side by side; what does not fit is generated after. On a processor a 0.5B that
read 60 answers at once took 20 GB, and 3 with 15 at once."""
_LAST = 16
"""Tokens in which a line with a mark lies."""
_MARKED = re.compile(rf"{SCAFFOLD.strip()}[ \t*]*\d[^\n]*\n", re.IGNORECASE)


@dataclass(frozen=True)
class Policy:
    """A grader. Everything that asks it goes through its tokens, so that plain and packed ways read the same."""

    model: Any
    tokenizer: Any
    name: str
    rounds: bool = False
    """Whether a processor reckons in bfloat16."""

    @classmethod
    def load(cls, name: str | Path, adapters: Sequence[Path] = (), rounds: bool = False) -> Policy:
        """Weights by name or folder, with LoRA adapters merged in order; on the GPU where there is one.

        Float32; bfloat16 on a GPU without adapters, whose small changes it would round away, and on a processor that
        is to round: it would round every weight at every use, adapters or not, and so holds them once, at half the
        size. BackendError where the weights or an adapter cannot be loaded.
        """
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]

        device = "cuda" if torch.cuda.is_available() else "cpu"
        is_rounded = rounds and device == "cpu"
        kind = torch.bfloat16 if not adapters and (is_rounded or device == "cuda") else torch.float32
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
        if is_rounded:
            model = model.to(torch.bfloat16)  # type: ignore[arg-type]
        full_name = "/".join([str(name), *(folder.name for folder in adapters)])
        return cls(model.to(device).eval(), tokenizer, full_name, is_rounded)  # type: ignore[arg-type]

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Where the model is asked and not trained: without gradients, in the policy's arithmetic."""
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.rounds):
            yield

    def prompt_ids(self, prompt: str) -> list[int]:
        """A prompt as one user turn in the model's own chat format, up to where the reply begins; the plain text for a
        model without a chat format. A student cannot close the turn: control tokens in the text stay text."""
        return self._structure.plain_turns([{"role": "user", "content": prompt}], self._prompt)[1]

    def ids(self, text: str) -> list[int]:
        """A piece of text as tokens, nothing added; what reads like a control token stays text."""
        return self._structure.ids(text)

    def _prompt(self, turns: list[Turn]) -> list[int]:
        if self.tokenizer.chat_template is None:
            return list(self.tokenizer(turns[0]["content"])["input_ids"])
        options = {"tokenize": False, "add_generation_prompt": True, "enable_thinking": False}
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
        machine give the same replies; with other prompts next to it a sampled reply is another one.
        """
        torch.manual_seed(seed)
        replies = self.continued(self.input_ids(prompts, begun), temperature, max_tokens)
        return [self.text(ids, max_tokens) for ids in replies]

    def continued(
        self, texts: Sequence[list[int]], temperature: float, max_tokens: int, model: Any = None
    ) -> list[list[int]]:
        """The tokens that follow each text, up to the end-of-sequence token or the end of a line that states a mark: a
        weak model would go on with the next answer, and be marked by what it says there.

        What texts begin with alike is read once. model: this policy's with an adapter that is being trained.
        """
        replies: list[list[int]] = [[]] * len(texts)
        model = model or self.model
        capacity = _BATCH_TOKENS.get(model.device.type, _BATCH_TOKENS["cpu"])
        with self.reading(), shared_heads():
            for group, common in groups(texts) if looks_back_wholly(model) else [(range(len(texts)), 0)]:
                order = sorted(group, key=lambda number: (len(texts[number]), number))
                # A text that is all beginning still has to be asked what follows its last token.
                common = min(common, len(texts[order[0]]) - 1)
                memory = remembered(model, texts[order[0]][:common]) if common else None
                while order:
                    size = max(1, capacity // (len(texts[order[-1]]) + max_tokens))
                    batch, order = order[:size], order[size:]
                    batch_ids = [texts[number] for number in batch]
                    batch_replies = self._replies(model, batch_ids, common, memory, temperature, max_tokens)
                    for number, reply in zip(batch, batch_replies, strict=True):
                        replies[number] = reply
        return replies

    def input_ids(self, prompts: Sequence[str], begun: Sequence[str] | None = None) -> list[list[int]]:
        """The tokens that replies go on from: of each prompt, and of what its reply begins with."""
        starts = begun or [""] * len(prompts)
        return [self.prompt_ids(prompt) + self.ids(start) for prompt, start in zip(prompts, starts, strict=True)]

    def _replies(
        self, model: Any, texts: Sequence[list[int]], common: int, memory: Any, temperature: float, max_tokens: int
    ) -> list[list[int]]:
        """The padding of a shorter text stands behind what all texts begin with."""
        width = max(map(len, texts))
        tokens = np.full((len(texts), width), self.tokenizer.pad_token_id, np.int64)
        real = np.zeros_like(tokens)
        for row, ids in enumerate(texts):
            for begin, part in ((0, ids[:common]), (width - len(ids) + common, ids[common:])):
                tokens[row, begin : begin + len(part)] = part
                real[row, begin : begin + len(part)] = 1
        drawing: Record = {"do_sample": False}
        if temperature > 0:
            drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        past = None if memory is None else copies(memory, len(texts))
        generated = model.generate(
            input_ids=torch.from_numpy(tokens).to(model.device),
            attention_mask=torch.from_numpy(real).to(model.device),
            past_key_values=past,
            max_new_tokens=max_tokens,
            pad_token_id=self.tokenizer.pad_token_id,
            eos_token_id=self.tokenizer.eos_token_id,
            stopping_criteria=[self._marked],
            repetition_penalty=1.0,  # a checkpoint's own settings may say otherwise
            **drawing,
        )
        # Without what is behind the end-of-sequence token, and without padding
        end = self.tokenizer.eos_token_id
        pad = self.tokenizer.pad_token_id
        replies = []
        for ids in generated[:, width:].tolist():
            if end in ids:
                ids = ids[: ids.index(end) + 1]
            while ids and ids[-1] == pad != end:
                ids.pop()
            replies.append(ids)
        return replies

    def _marked(self, ids: torch.Tensor, _: Any) -> torch.Tensor:
        """Which replies end with a line that states a mark, and its line break."""
        tails = self.tokenizer.batch_decode(ids[:, -_LAST:])
        return torch.tensor([bool(_MARKED.search(tail)) for tail in tails], device=ids.device)


@contextmanager
def shared_heads() -> Iterator[None]:
    """Reads so within; texts of several tokens are left to the library."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    library = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def attend(module: Any, query: Any, key: Any, value: Any, mask: Any, **options: Any) -> tuple[torch.Tensor, None]:
        rows, heads, tokens, width = query.shape
        if tokens > 1 or heads == key.shape[1] or options.get("dropout"):
            output: tuple[torch.Tensor, None] = library(module, query, key, value, mask, **options)
            return output
        grouped = query.reshape(rows, key.shape[1], -1, width)
        key_mask = None if mask is None else mask[..., : key.shape[2]]
        read = torch.nn.functional.scaled_dot_product_attention(
            grouped, key, value, attn_mask=key_mask, scale=options.get("scaling")
        )
        return read.reshape(rows, 1, heads, width), None

    ALL_ATTENTION_FUNCTIONS["sdpa"] = attend
    try:
        yield
    finally:
        del ALL_ATTENTION_FUNCTIONS["sdpa"]  # type: ignore[no-untyped-call]
