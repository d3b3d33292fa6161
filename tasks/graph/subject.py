"""What a graph is made of: a rubric's criteria and the query it belongs to. Never a response.

The pairs of criteria that may depend on each other at all (GEAR, appendix A.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tasks.contracts.bundle import Bundle, Criterion
from tasks.contracts.graph import CANDIDATES, Relation, Role
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


Pair = tuple[str, str]
"""(parent, child), by id."""


def by_sign(criterion: Criterion) -> Role:
    """The role of a criterion of which nobody says more: penalty for a negative weight, core otherwise."""
    return "penalty" if criterion.weight < 0 else "core"


def roles_by_sign(criterion: Criterion) -> tuple[Role, ...]:
    """The roles that a criterion can have by the sign of its weight: what costs points is a penalty and nothing that a
    response should meet; both kinds may state a condition (GEAR, appendix A.2)."""
    return ("penalty", "applicability") if criterion.weight < 0 else ("core", "additional", "applicability")


def allowed(roles: Mapping[str, Role], pair: Pair) -> tuple[Relation, ...]:
    """The relations that the roles of a pair allow; none for a criterion with itself."""
    parent, child = pair
    return () if parent == child else CANDIDATES.get((roles[parent], roles[child]), ())


def candidates(roles: Mapping[str, Role]) -> list[Pair]:
    """The ordered pairs that the roles allow, row by row: by parent, then by child.

    roles: criterion → role, in the rubric's order.
    """
    pairs = list[Pair]()
    for parent, role in roles.items():
        licensed = {child_role for parent_role, child_role in CANDIDATES if parent_role == role}
        pairs += [(parent, child) for child, other in roles.items() if other in licensed and parent != child]
    return pairs
