"""How responses are cut into shards."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

SHARD = 2_000
"""Responses in a shard: some whole small items, or a part of a large one."""
SIDE_BY_SIDE = 20_000
"""Responses in a shard where an item remembers what was graded of it and so is never cut: as many whole items as that,
for their rounds go side by side; a larger item is a shard of its own."""


def shards(counts: Mapping[str, int], size: int = SHARD) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """(name, parts as (item, first position, number of responses)) of every shard, items in the order of their ids."""
    packed: list[list[tuple[str, int, int]]] = []
    room = 0
    for item_id in sorted(counts):
        for first in range(0, counts[item_id], size):
            count = min(size, counts[item_id] - first)
            if count > room:
                packed.append([])
                room = size
            packed[-1].append((item_id, first, count))
            room -= count
    return [(f"{number:05d}", parts) for number, parts in enumerate(packed)]


def whole_items(counts: Mapping[str, int], size: int = SIDE_BY_SIDE) -> list[tuple[str, list[tuple[str, int, int]]]]:
    """The same with no item cut: as many whole items to a shard as make up `size` responses, one at least."""
    packed: list[list[tuple[str, int, int]]] = []
    room = 0
    for item_id in sorted(counts):
        if not packed or counts[item_id] > room:
            packed.append([])
            room = size
        packed[-1].append((item_id, 0, counts[item_id]))
        room -= counts[item_id]
    return [(f"{number:05d}", parts) for number, parts in enumerate(packed)]


@contextmanager
def libraries_aside() -> Iterator[None]:
    """A shard makes so many objects that Python looks through all there are, those of the libraries too, once a shard:
    a quarter of the time. What is there before the first shard is left out of that."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
