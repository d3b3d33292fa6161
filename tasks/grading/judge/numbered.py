"""A bundle's points and misconceptions by number, as memory and GradeAgentOps' contract speak of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Trait
from rubricflow.tasks.core.llm.request import IdentityKey


class Numbered(NamedTuple):
    """A bundle as the contract sees it: gold points and misconceptions by number, and the judged traits."""

    points: Mapping[int, Criterion]
    misconceptions: Mapping[int, Criterion]
    traits: tuple[Trait, ...]


def numbered(bundle: Bundle) -> Numbered:
    """The numbered points and misconceptions of a bundle."""
    return _numbered(IdentityKey(bundle))


def numbered_names(bundle: Bundle) -> dict[str, str]:
    """Criterion → what the contract calls it: `point 1`, `misconception 2`."""
    points, misconceptions, _ = numbered(bundle)
    names = {criterion.id: f"point {number}" for number, criterion in points.items()}
    return names | {criterion.id: f"misconception {number}" for number, criterion in misconceptions.items()}


@lru_cache(maxsize=1024)
def _numbered(bundle: IdentityKey[Bundle]) -> Numbered:
    criteria = bundle.value.criteria
    points = [c for c in criteria if c.kind != "misconception"]
    banned = [c for c in criteria if c.kind == "misconception"]
    traits = tuple(trait for trait in bundle.value.traits if trait.source == "judged")
    return Numbered(dict(enumerate(points, 1)), dict(enumerate(banned, 1)), traits)
