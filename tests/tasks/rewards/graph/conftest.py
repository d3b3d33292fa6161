"""Rubrics and scripted annotators for the tests of graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.llm.backend import Script, Scripted
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.rewards.graph.annotator import Annotator
from rubricflow.tasks.rewards.graph.subject import GraphSubject


@pytest.fixture
def rubric() -> Callable[..., GraphSubject]:
    """Makes a rubric of criteria c0, c1, … with these weights, or texts."""

    def make(*given: float | str, name: str = "r", question: str = "Why?", context: str | None = None) -> GraphSubject:
        criteria = (
            Criterion(id=f"c{at}", trait="t", text=one, weight=1)
            if isinstance(one, str)
            else Criterion(id=f"c{at}", trait="t", text=f"Text {at}.", weight=one)
            for at, one in enumerate(given)
        )
        return GraphSubject(name, question, context, tuple(criteria))

    return make


@pytest.fixture
def scripted() -> Iterator[Callable[..., tuple[Annotator, Scripted]]]:
    """Makes an annotator that answers from a script, and its backend, which remembers what it was asked."""
    with ReplyStore(":memory:") as replies:

        def make(script: Script, **plan: Any) -> tuple[Annotator, Scripted]:
            backend = Scripted(script)
            return Annotator(backend, replies, Graphs(**plan)), backend

        yield make
