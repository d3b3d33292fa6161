"""Cells that say a score or level in words or letters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tasks.store.cells import as_number, refused, text_or_none
from tasks.text.numbers import number_of

Number = Callable[[Any, object, int, str], float | None]
"""(cell, file, row, column) → its number; None where it is blank or no score; InputError where it is neither."""
_UNWORDED = "where words stand for numbers, say in the study's 'words' for which"


def numbers_of(words: Mapping[str, float | None]) -> Number:
    """How a column is read in which words stand for numbers, whatever their case and the blanks around them.

    A number stands for itself, unless numbers are among the words: then those that are not have no meaning.
    """
    known = {word.strip().casefold(): number for word, number in words.items()}
    renumbered = any(number_of(word) is not None for word in known)

    def number(cell: Any, file: object, row: int, column: str) -> float | None:
        text = text_or_none(cell)
        folded = (text or "").strip().casefold()
        if folded in known:
            return known[folded]
        if known and text is not None and (renumbered or number_of(text) is None):
            raise refused(cell, f"is none of the words {', '.join(words)}", file, row, column)
        return as_number(cell, file, row, column, _UNWORDED)

    return number if known else _plain


def _plain(cell: Any, file: object, row: int, column: str) -> float | None:
    return as_number(cell, file, row, column, _UNWORDED)
