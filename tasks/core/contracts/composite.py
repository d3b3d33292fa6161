"""How points are added, for the judge's scores and for rewards alike: what a level is worth, what a criterion with
sub-points is worth by theirs, and what criteria are worth together. Where the bundle says that criteria cannot hold
together, not both count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import chain, islice, pairwise, product
from operator import add, mul
from typing import Any, NamedTuple, TypeVar, cast

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from rubricflow.tasks.core.contracts.bundle import Bundle, Count, Criterion
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
    sizes of their weights or, counted, their number, without those that cannot hold with the others."""
    if not any(criterion.excludes for criterion in criteria):
        return float(sum(1.0 if counted else abs(criterion.weight) for criterion in criteria))
    groups = alternatives(tuple(criteria), counted)
    bound = set(chain.from_iterable(group.names for group in groups))
    free = [1.0 if counted else abs(criterion.weight) for criterion in criteria if criterion.id not in bound]
    return sum(free) + sum(float((group.choices @ group.sizes).max()) for group in groups)


class Composite(NamedTuple):
    """A criterion that is made of others."""

    criterion: Criterion
    sub_points: tuple[Criterion, ...]
    """Those directly below it."""
    alternatives: tuple[Alternatives, ...]
    """Those among these that cannot hold together."""


class Composition(NamedTuple):
    """What makes the shares of whole criteria of those of decided ones."""

    composites: tuple[Composite, ...]
    """Each after the composites among its sub-points."""
    exclusions: tuple[Exclusion, ...]
    """All criteria that cannot hold together."""
    alternatives: tuple[Alternatives, ...]
    """Those among the whole criteria that cannot hold together."""


def composition(bundle: Bundle) -> Composition:
    """The composition of a bundle; ContractError for a composite without weight, of which no share can be made."""
    by_id = {composite.id: composite for composite in bundle.composites}

    def depth(criterion: Criterion) -> int:
        return 1 + depth(by_id[criterion.parent]) if criterion.parent is not None else 0

    if weightless := [name for name, composite in by_id.items() if not composite.weight]:
        raise ContractError(f"criterion '{weightless[0]}' is made of its sub-points and has weight 0")
    deepest_first = sorted(bundle.composites, key=depth, reverse=True)
    parts = {composite.id: bundle.sub_points(composite.id) for composite in deepest_first}
    composites = []
    for criterion in deepest_first:
        sub_points = parts[criterion.id]
        choices = alternatives(sub_points, criterion.count is not None)
        composites.append(Composite(criterion, sub_points, choices))
    return Composition(
        composites=tuple(composites),
        exclusions=exclusions((*bundle.criteria, *bundle.composites), parts),
        alternatives=alternatives(bundle.whole),
    )


def level_shares(bundle: Bundle) -> dict[str, tuple[float, ...]]:
    """Decided criterion → the share of its weight that each of its levels counts for: what it earns or, where its
    parent counts, 1 from the level at which the criterion is met and 0 below."""
    count_of = {composite.id: composite.count for composite in bundle.composites}
    shares = {}
    for criterion in bundle.criteria:
        shares[criterion.id] = criterion.shares
        if count := count_of.get(criterion.parent or ""):
            least = count.least or criterion.top
            shares[criterion.id] = tuple(float(level >= least) for level in range(criterion.top + 1))
    return shares


def share_of_points(criteria: Sequence[Criterion], shares: Mapping[str, Share]) -> Share:
    """Weighted share of what criteria side by side reach, in [0, 1]: Σ w·share over the sum of the positive weights,
    clipped.

    With equal positive weights and three levels, equally spaced, this is Rulers' trait mean (Eq. 3). Where no weight is
    positive the share is what is left of 1: 1 + Σ w·share over the sum of |w|, and 1 where that is 0. Of weights that
    cannot all be reached because criteria exclude each other, the sum is the largest that can. shares: of these
    criteria, numbers or arrays over responses.
    """
    earned: Any = sum(criterion.weight * shares[criterion.id] for criterion in criteria)
    positive = together([criterion for criterion in criteria if criterion.weight > 0])
    reached: Share = clipped(earned / positive if positive else 1 + earned / (together(criteria) or 1.0))
    return reached


def clipped(share: Share) -> Share:
    """What of a share lies in [0, 1]; NaN stays in an array."""
    return np.clip(share, 0.0, 1.0) if isinstance(share, np.ndarray) else min(1.0, max(0.0, share))


def composed(composition: Composition, shares: Mapping[str, Share]) -> dict[str, Share]:
    """The shares that count, with those of the composites, as far as all of their sub-points have one.

    A composite's share is Σ w·share of its sub-points over its own weight, clipped to [0, 1], or what its count makes
    of them. shares: of decided criteria, see `level_shares`, numbers or arrays over responses, in which NaN is none. A
    criterion that falls because another holds has the share 0, and one that another may yet deny has none.
    """
    reached = dict(shares)
    for exclusion in composition.exclusions:
        if exclusion.opposed:
            _part(reached, shares, exclusion)
    for composite, sub_points, choices in composition.composites:
        if all(point.id in reached for point in sub_points):
            _choose(reached, choices)
            met = {point.id: reached[point.id] for point in sub_points}
            if composite.count:
                earned = _counted_points(composite.count, met)
            else:
                earned = reduce(add, (point.weight * met[point.id] for point in sub_points)) / composite.weight
            reached[composite.id] = clipped(earned)
    _choose(reached, composition.alternatives)
    return reached


def _counted_points(count: Count, met: Mapping[str, Share]) -> Share:
    """The points of a count as a share of the most. met: sub-point → whether it is met, or how probably: then it is the
    expected share, as if sub-points were independent."""
    needed = [met[name] for name in count.needs]
    last = len(count.points) - 1
    enough = max(0, last - len(needed))
    spread: list[Any] = [1.0]  # the probability of each number of the others that are met, the last: or of more
    for share in (share for name, share in met.items() if name not in count.needs):
        spread = [more * (1 - share) + fewer * share for fewer, more in pairwise([0.0, *spread, 0.0])]
        spread[enough:] = [reduce(add, spread[enough:])] if len(spread) > enough else []
    points = [count.points[min(others + len(needed), last)] for others in range(len(spread))]
    earned = reduce(add, (chance * point for chance, point in zip(spread, points, strict=True)))
    return cast(Share, reduce(mul, needed, earned) / count.points[last])


def _part(reached: dict[str, Share], shares: Mapping[str, Share], exclusion: Exclusion) -> None:
    """What earns falls where what costs reaches its share, which else falls; neither has a share where the other has
    none."""
    for credit, cost in product(exclusion.first, exclusion.second):
        if credit not in shares or cost not in shares:
            reached.pop(credit, None)
            reached.pop(cost, None)
            continue
        earns = shares[credit]
        costs = shares[cost]
        unknown = 0 * earns * costs  # NaN where one of them is
        for name, stands in ((credit, 1 - (costs >= earns)), (cost, 1 - (earns > costs))):
            if name in reached:
                reached[name] = reached[name] * stands + unknown


def _choose(reached: dict[str, Share], groups: Sequence[Alternatives]) -> None:
    """Of alternatives those fall that are not in the choice that moves the score most, the first by id of several."""
    for group in groups:
        present = [place for place, name in enumerate(group.names) if name in reached]
        names = [group.names[place] for place in present]
        shares = np.array([np.nan_to_num(reached[name]) for name in names])
        moved = np.tensordot(group.choices[:, present] * group.sizes[present], shares, axes=1)
        best = group.choices[moved.argmax(axis=0)][..., present]
        for place, name in enumerate(names):
            counts = best[..., place]
            reached[name] = reached[name] * (counts if counts.ndim else counts.item())
