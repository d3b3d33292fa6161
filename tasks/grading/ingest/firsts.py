"""Where a key was seen first, and what was said twice, for millions that pass by: sixteen bytes of each stay."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt

from rubricflow.tasks.core.stats.arrays import Ints

Keys = npt.NDArray[np.uint64]
_WORD_BITS = 26
"""Bits of a key that say which word it is; the others are the response's place."""


class Firsts:
    """Numbers keys from 0 as they come, and knows the number under which each came first."""

    def __init__(self) -> None:
        self._runs: list[tuple[Keys, Ints]] = []
        """Keys in order, each with its first number; each run longer than the next, so that there are few."""
        self.count = 0

    def add(self, keys: Keys) -> Ints:
        """The number under which each key came first, its own where it is new. keys: (n,), in their order."""
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        numbers = self._earlier(distinct)
        is_new = numbers < 0
        numbers[is_new] = self.count + first[is_new]
        self.count += len(keys)
        self._keep(distinct[is_new], numbers[is_new])
        return numbers[inverse]

    def _earlier(self, keys: Keys) -> Ints:
        """The number of each key, -1 for one that is new."""
        numbers = np.full(len(keys), -1, np.int64)
        for known, first in self._runs:
            places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
            is_known = known[places] == keys
            numbers[is_known] = first[places[is_known]]
        return numbers

    def _keep(self, keys: Keys, numbers: Ints) -> None:
        if not len(keys):
            return
        self._runs.append((keys, numbers))
        while len(self._runs) > 1 and len(self._runs[-2][0]) <= len(self._runs[-1][0]):
            self._runs[-2:] = [_merged(*self._runs[-2:])]


class Repeats:
    """Words that were said of responses: a rater's name, a rater and a criterion."""

    def __init__(self) -> None:
        self._codes: dict[Hashable, int] = {}
        self._firsts = Firsts()

    def add(self, places: Sequence[int | None], words: Sequence[Hashable]) -> list[bool]:
        """Whether each word was said of its response before, here or in what was added earlier; never where there is no
        response. places: (n,) of the responses, None for one that is not known; words: (n,)."""
        known = [row for row, place in enumerate(places) if place is not None]
        codes = [self._codes.setdefault(words[row], len(self._codes)) for row in known]
        keys = np.array([places[row] for row in known], np.uint64) << np.uint64(_WORD_BITS) | np.array(codes, np.uint64)
        numbers = self._firsts.count + np.arange(len(known))
        is_repeated = np.zeros(len(places), bool)
        is_repeated[known] = self._firsts.add(keys) != numbers
        return cast(list[bool], is_repeated.tolist())


def digests(texts: Sequence[str]) -> Keys:
    """Eight bytes for each text: of a million texts two that differ have the same once in forty million times."""
    digest_of = (hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest() for text in texts)
    return np.frombuffer(bytearray().join(digest_of), np.uint64)


def _merged(longer: tuple[Keys, Ints], shorter: tuple[Keys, Ints]) -> tuple[Keys, Ints]:
    keys, numbers = (np.concatenate(columns) for columns in zip(longer, shorter, strict=True))
    order = np.argsort(keys, kind="stable")
    return keys[order], numbers[order]
