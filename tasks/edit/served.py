"""A policy served by vLLM in this process: the same beliefs and supports from prompt log-probabilities, and rollouts.

The same token ids go in as on Hugging Face. vLLM computes a prompt anew where it is asked for its log-probabilities,
so this is the plain way, a text for every leaf of the tree, side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tasks.edit.belief import beliefs_by
from tasks.edit.grounding import Support, supports_by
from tasks.edit.policy import Policy
from tasks.edit.prompt import Prompts
from tasks.edit.rollout import Sample
from tasks.edit.tree import Tree, refuse_long
from tasks.llm.backends.vllm import load
from tasks.stats.arrays import Floats


class Served:
    """A grader whose weights vLLM holds."""

    def __init__(self, name: str | Path, options: dict[str, Any] | None = None) -> None:
        """name: of the hub, or a folder; options: vLLM's engine arguments. BackendError where it cannot be loaded."""
        self._engine = load(str(name), Path(name).is_dir(), options or {})
        self._longest: int = self._engine.llm_engine.model_config.max_model_len
        tokenizer = self._engine.get_tokenizer()
        self._text = Policy(None, tokenizer, str(name))
        """For tokens alone."""

    def beliefs(self, prompts: Prompts, cases: Sequence[tuple[Sample, str]]) -> list[Floats]:
        """As `belief.beliefs`."""
        return beliefs_by(self._score, self._text, prompts, cases)

    def supports(self, prompts: Prompts, cases: Sequence[tuple[Sample, str]]) -> list[Support]:
        """As `grounding.supports`."""
        return supports_by(self._score, self._text, prompts, cases)

    def write(
        self,
        prompts: Sequence[str],
        *,
        begun: Sequence[str] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        seed: int = 0,
    ) -> list[str]:
        """As `Policy.write`; a sampled reply depends on its own place in the order, not on the prompts beside it."""
        from vllm import SamplingParams

        asked = self._text.asked(prompts, begun)
        how = [
            SamplingParams(
                temperature=temperature,
                top_p=1.0,
                top_k=0,
                seed=seed * len(asked) + at,
                max_tokens=max_tokens,
                stop_token_ids=[self._text.tokenizer.eos_token_id],
                detokenize=False,
            )
            for at in range(len(asked))
        ]
        made = [out.outputs[0].token_ids for out in self._generate(asked, how)]
        return [self._text.text(list(ids), max_tokens) for ids in made]

    def _score(self, trees: Sequence[Tree]) -> list[Floats]:
        """As `tree.score`, by the log-probabilities of every path to a leaf."""
        from vllm import SamplingParams

        paths = [(at, tree.path(leaf)) for at, tree in enumerate(trees) for leaf in tree.leaves()]
        asked = [[token for node in path for token in trees[at].nodes[node].ids] for at, path in paths]
        for (at, _), ids in zip(paths, asked, strict=True):
            refuse_long(trees[at], len(ids), self._longest - 1)  # the engine always writes a token
        how = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)
        sums = [np.zeros(len(tree.nodes)) for tree in trees]
        for (at, path), ids, out in zip(paths, asked, self._generate(asked, how), strict=True):
            begin = 0
            for number in path:
                node = trees[at].nodes[number]
                end = begin + len(node.ids)
                if node.scored:
                    sums[at][number] = sum(
                        out.prompt_logprobs[place][ids[place]].logprob for place in range(begin, end)
                    )
                begin = end
        return sums

    def _generate(self, asked: Sequence[list[int]], how: Any) -> list[Any]:
        """The engine's outputs for prompts of token ids, in their order."""
        return list(self._engine.generate([{"prompt_token_ids": ids} for ids in asked], how, use_tqdm=False))
