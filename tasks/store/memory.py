"""Freed memory, given back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

import pyarrow as pa


def give_back() -> None:
    """What freed tables held: a long run then needs no more memory than its largest part."""
    pa.default_memory_pool().release_unused()


def give_all_back() -> None:
    """What freed tables, arrays and objects held. It takes a moment: once a stage, not once a shard."""
    give_back()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """What makes the C library give back what was freed; None where it has no such call, as on a Mac."""
    try:
        malloc_trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return malloc_trim
