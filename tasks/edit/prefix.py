"""What texts begin with alike is read once: the answers to a question share instructions, question and mark scheme."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any

import torch

_LEAST = 32
"""Tokens that are worth a pass of their own."""


def groups(texts: Sequence[Sequence[int]]) -> Iterator[tuple[list[int], int]]:
    """Places of texts that are read together, and how many tokens all texts of the group begin with; 0 where too few.

    Sorted texts that share most with each other are neighbours: a group goes on as long as its texts share at least
    half of the shortest one's tokens.

    >>> list(groups([[1] * 40 + [2, 3], [9], [1] * 40 + [4]]))
    [([0, 2], 40), ([1], 0)]
    """
    order = sorted(range(len(texts)), key=lambda number: (list(texts[number]), number))
    group: list[int] = []
    common = least = 0
    for number in order:
        length = len(texts[number])
        alike = _alike(texts[group[-1]], texts[number]) if group else 0
        if group and 2 * min(common, alike) >= min(least, length):
            common, least = min(common, alike), min(least, length)
            group.append(number)
            continue
        if group:
            yield group, _worth(group, common)
        group, common, least = [number], length, length
    if group:
        yield group, _worth(group, common)


def remembered(model: Any, ids: Sequence[int]) -> Any:
    """What a model keeps of tokens that it has read: the keys and values of one text."""
    tokens = torch.tensor([list(ids)], device=model.device)
    return model(input_ids=tokens, use_cache=True).past_key_values


def copies(memory: Any, rows: int) -> Any:
    """The same for so many texts; what they go on with changes nothing in `memory`."""
    copied = deepcopy(memory)
    copied.batch_repeat_interleave(rows)
    return copied


def looks_back_wholly(model: Any) -> bool:
    """Whether every token of a model sees all before it, so that they can be read earlier and elsewhere."""
    windowed = getattr(model.config, "sliding_window", None) is not None
    return not windowed and not set(getattr(model.config, "layer_types", None) or ()) - {"full_attention"}


def _alike(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    for place, (a, b) in enumerate(zip(first, second, strict=False)):
        if a != b:
            return place
    return min(len(first), len(second))


def _worth(group: list[int], common: int) -> int:
    return common if len(group) > 1 and common >= _LEAST else 0
