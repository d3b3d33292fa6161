"""Cells that say a score or level in words or letters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import as_number, quoted, refused, text_or_none
from rubricflow.tasks.core.store.faults import Report
from rubricflow.tasks.core.text.numbers import number_of

Number = Callable[[Any, object, int, str], float | None]
"""(cell, file, row, column) → its number; None where it is blank or no score; InputError where it is neither."""
_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_UNWORDED = "where words stand for numbers, say in the study's 'words' for which"


def numbers_of(words: Mapping[str, float | None]) -> Number:
    """How a column is read in which words stand for numbers, whatever their case and the blanks around them.

    A number stands for itself, unless numbers are among the words: then those that are not have no meaning.
    """
    number_of_word = {word.strip().casefold(): number for word, number in words.items()}
    renumbered = any(number_of(word) is not None for word in number_of_word)

    def number(cell: Any, file: object, row: int, column: str) -> float | None:
        text = text_or_none(cell)
        folded = (text or "").strip().casefold()
        if folded in number_of_word:
            return number_of_word[folded]
        if number_of_word and text is not None and (renumbered or number_of(text) is None):
            raise refused(cell, f"is none of the words {', '.join(words)}", file, row, column)
        return as_number(pointed(cell), file, row, column, _UNWORDED)

    return number if number_of_word else _plain


def _plain(cell: Any, file: object, row: int, column: str) -> float | None:
    return as_number(pointed(cell), file, row, column, _UNWORDED)


def pointed(cell: Any) -> Any:
    """A number with a decimal comma as one with a point; anything else as it stands. Whether a column writes both is
    for its file as a whole to say, see `Decimals`."""
    is_comma = isinstance(cell, str) and _COMMA.fullmatch(cell.strip())
    return cell.strip().replace(",", ".") if is_comma else cell


class Decimals:
    """Whether the columns of a file write their decimals in one way, looked at chunk by chunk."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], dict[str, tuple[int, str]]] = {}
        """(File, column) → sign → where it was first seen."""

    def look(self, file: str, column: str, rows: Iterable[int], cells: Iterable[Any], report: Report) -> None:
        """InputError where one cell has a comma and another one a point."""
        first_places = self._seen.setdefault((file, column), {})
        for row, cell in zip(rows, cells, strict=True):
            if len(first_places) == 2:
                return
            for sign in ",.":
                if isinstance(cell, str) and sign in cell and number_of(cell.replace(sign, ".", 1)) is not None:
                    first_places.setdefault(sign, (row, cell.strip()))
            if len(first_places) == 2:
                (first_row, first), (second_row, second) = sorted(first_places.values())
                rule = f"{quoted(second)} stands beside {quoted(first)} in row {first_row}"
                hint = "write all decimals of a column with a point, or all with a comma"
                report(InputError(rule, file=file, row=second_row, field=column, hint=hint))
