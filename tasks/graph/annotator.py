"""Who annotates, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tasks.contracts.graph import Role
from tasks.contracts.settings.engine import Sampling
from tasks.contracts.settings.graph import Graphs
from tasks.graph.subject import GraphSubject
from tasks.llm.backend import Backend
from tasks.llm.reply_store import Replies

_MOST_PAIRS = 2_000


def silent(line: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Annotator:
    """A backend with its reply store and the study's plan."""

    backend: Backend
    replies: Replies
    plan: Graphs
    tell: Callable[[str], None] = silent
    """Says to a person how far it is."""

    @property
    def is_planned(self) -> bool:
        """Whether somebody is told what it takes before it is asked: where it costs something, and somebody listens."""
        return self.backend.reads_prose and self.tell is not silent

    @property
    def structured(self) -> bool:
        """Whether the model is held to the contract's JSON Schema; rules of thumb keep it anyway."""
        return self.backend.reads_prose and (self.plan.engine is None or self.plan.engine.structured)

    @property
    def pairs_per_call(self) -> int:
        """Pairs of a rubric that one request asks about: who reads no prose does not lose the thread."""
        return self.plan.pairs_per_call if self.backend.reads_prose else _MOST_PAIRS

    def sampling(self, tokens: int) -> Sampling:
        """How replies are drawn, with room for at least so many tokens."""
        given = self.plan.sampling
        return given.model_copy(update={"max_tokens": max(given.longest, tokens)})

    def data_digest(self, subject: GraphSubject, roles: Mapping[str, Role] | None = None) -> str:
        """Stands for a request's plain data in its digest, where the backend answers by it: what it says of some
        criteria depends on the whole rubric, which the messages do not show."""
        return "" if self.backend.reads_prose else subject.digest({"roles": roles})

    @property
    def settings(self) -> dict[str, Any]:
        """What of it can change a graph."""
        return settings_of(self.plan, self.backend.model, self.backend.reads_prose)


def settings_of(plan: Graphs, model: str, reads_prose: bool) -> dict[str, Any]:
    """What of a plan can change the graphs that a model makes; one that reads no prose is not asked in batches and
    draws nothing."""
    who = {"annotator": model, "profile": plan.profile}
    if not reads_prose:
        return who
    return who | {
        "pairs_per_call": plan.pairs_per_call,
        "sampling": plan.sampling.model_dump(),
        "structured": plan.engine is None or plan.engine.structured,
    }
