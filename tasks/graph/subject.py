"""What a graph is made of: a rubric's criteria and the query it belongs to. Never a response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tasks.contracts.bundle import Bundle, Criterion
from tasks.store.digest import digest_of


@dataclass(frozen=True, eq=False)
class GraphSubject:
    """A rubric with its query. Two are the same only where they are one object."""

    rubric_id: str
    """The rubric."""
    question: str
    """What the responses answer; of a rubric with several items the question of the first one by id."""
    context: str | None
    """Material that belongs to the question."""
    criteria: tuple[Criterion, ...]
    """Those that are no sub-points, in the rubric's order: the graph's nodes."""

    @cached_property
    def by_id(self) -> dict[str, Criterion]:
        """The criteria by id, in order."""
        return {criterion.id: criterion for criterion in self.criteria}

    @property
    def ids(self) -> tuple[str, ...]:
        """Their ids, in order."""
        return tuple(self.by_id)

    @property
    def content(self) -> list[list[Any]]:
        """Id, text and weight of each criterion."""
        return [[criterion.id, criterion.text, criterion.weight] for criterion in self.criteria]

    def digest(self, made_with: Mapping[str, Any]) -> str:
        """SHA-256 of this and of what it is made into a graph with."""
        return digest_of([self.question, self.context, self.content, made_with])


def subjects(items: Iterable[Mapping[str, Any]], bundles: Mapping[str, Bundle]) -> dict[str, GraphSubject]:
    """Rubric → what its graph is made of.

    items: rows with item_id, rubric_id, question, context; a rubric that no item names has an empty query.
    """
    first: dict[str, Mapping[str, Any]] = {}
    for item in sorted(items, key=lambda item: str(item["item_id"])):
        first.setdefault(item["rubric_id"], item)
    nothing = {"question": "", "context": None}
    return {
        name: GraphSubject(name, (item := first.get(name, nothing))["question"], item["context"], bundle.whole)
        for name, bundle in bundles.items()
    }
