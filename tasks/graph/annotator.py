"""Who annotates, and how it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tasks.contracts.engine import Sampling
from tasks.contracts.graph import Graphs
from tasks.llm.backend import Backend
from tasks.llm.replies import ReplyStore


@dataclass(frozen=True)
class Annotator:
    """A backend with its reply store and the study's plan."""

    backend: Backend
    replies: ReplyStore
    plan: Graphs

    @property
    def structured(self) -> bool:
        """Whether the model is held to the contract's JSON Schema."""
        return self.plan.engine is None or self.plan.engine.structured

    def sampling(self, tokens: int) -> Sampling:
        """How replies are drawn, with room for at least so many tokens."""
        given = self.plan.sampling
        return given.model_copy(update={"max_tokens": max(given.max_tokens, tokens)})

    @property
    def settings(self) -> dict[str, Any]:
        """What of it can change a graph."""
        return {
            "annotator": self.backend.model,
            "profile": self.plan.profile,
            "pairs_per_call": self.plan.pairs_per_call,
            "sampling": self.plan.sampling.model_dump(),
            "structured": self.structured,
        }
