"""Criteria that cannot hold together: where more of them are decided than can hold, which of them count.

1. Of a criterion that earns and one that costs, the one at the higher level counts; at the same level the one that
   costs. One with sub-points excludes each of them.
2. Of criteria that both earn, or both cost, those count that can hold together and move the score most. They stand side
   by side: in one trait, under one parent or none.

So no level that rises moves the score against its criterion's weight, and the order of criteria changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import NamedTuple, TypeVar

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.errors import ContractError

Share = TypeVar("Share", float, NDArray[np.float64])
MOST_CHOICES = 1000
"""Ways to choose criteria that can hold together, beyond which a rubric is refused."""


class Alternatives(NamedTuple):
    """Criteria side by side, linked by exclusion, that all earn or all cost."""

    names: tuple[str, ...]
    """(k,) by id."""
    sizes: NDArray[np.float64]
    """(k,) what each moves: the size of its weight or, where its parent counts, 1."""
    choices: NDArray[np.float64]
    """(c, k) 1 for the members of each largest set that can hold together, 0 for the others."""


class Exclusion(NamedTuple):
    """Two criteria that cannot hold together, each as ids of decided criteria: itself, or its sub-points that count the
    way it does."""

    first: tuple[str, ...]
    second: tuple[str, ...]
    opposed: bool
    """Whether the first earns and the second costs."""


def excluding(criteria: Iterable[Criterion]) -> list[tuple[Criterion, Criterion]]:
    """Each pair that cannot hold together once, by id; whichever of them says so. Ids that are not there exclude
    nothing."""
    by_id = {criterion.id: criterion for criterion in criteria}
    pairs = set()
    for name, criterion in by_id.items():
        for other in criterion.excludes:
            if other in by_id and other != name:
                pairs.add((min(name, other), max(name, other)))
    return [(by_id[first], by_id[second]) for first, second in sorted(pairs)]


def exclusions(criteria: Iterable[Criterion], parts: Mapping[str, Sequence[Criterion]]) -> tuple[Exclusion, ...]:
    """The exclusions among criteria. parts: composite → its sub-points."""

    def decided(criterion: Criterion) -> Iterator[str]:
        if criterion.id not in parts:
            yield criterion.id
        for part in parts.get(criterion.id, ()):
            if part.weight * criterion.weight > 0:
                yield from decided(part)

    pairs = []
    for pair in excluding(criteria):
        first, second = sorted(pair, key=lambda criterion: -criterion.weight)
        opposed = first.weight * second.weight < 0
        pairs.append(Exclusion(tuple(decided(first)), tuple(decided(second)), opposed))
    return tuple(pairs)


@lru_cache(maxsize=1024)
def alternatives(criteria: tuple[Criterion, ...], counted: bool = False) -> tuple[Alternatives, ...]:
    """The alternatives among criteria that stand side by side. counted: whether their parent counts them.

    ContractError where there are too many ways to choose among them.
    """
    same_sign = ((a, b) for a, b in excluding(criteria) if a.weight * b.weight > 0)
    links: nx.Graph[str] = nx.Graph((a.id, b.id) for a, b in same_sign)
    size = {criterion.id: 1.0 if counted else abs(criterion.weight) for criterion in criteria}
    groups = []
    for linked in sorted(map(sorted, nx.connected_components(links))):
        free = nx.complement(links.subgraph(linked))
        sets = sorted(map(sorted, islice(nx.find_cliques(free), MOST_CHOICES + 1)))
        if len(sets) > MOST_CHOICES:
            raise ContractError(f"criteria '{linked[0]}' to '{linked[-1]}' exclude each other in too many ways")
        choices = np.zeros((len(sets), len(linked)))
        for row, chosen in zip(choices, sets, strict=True):
            row[:] = [name in chosen for name in linked]
        groups.append(Alternatives(tuple(linked), np.array([size[name] for name in linked]), choices))
    return tuple(groups)


def together(criteria: Sequence[Criterion], counted: bool = False) -> float:
    """The most that criteria side by side, all of which earn or all of which cost, can move at once: the sum of the
    sizes of their weights or, counted, their number, without those that cannot hold beside the others."""
    if not any(criterion.excludes for criterion in criteria):
        return float(sum(1.0 if counted else abs(criterion.weight) for criterion in criteria))
    groups = alternatives(tuple(criteria), counted)
    bound = set(chain.from_iterable(group.names for group in groups))
    free = [1.0 if counted else abs(criterion.weight) for criterion in criteria if criterion.id not in bound]
    return sum(free) + sum(float((group.choices @ group.sizes).max()) for group in groups)
