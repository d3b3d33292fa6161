"""A value that holds within a block, for all that the block calls."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def scoped(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Within the block the variable has this value, and then again what it had before."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
