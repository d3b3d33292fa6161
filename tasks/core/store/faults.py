"""Errors of the input gathered, so that a person mends them in one go and not one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.core.contracts.settings.study import Source
from rubricflow.tasks.core.store.sheets import ENDINGS, open_source

SHOWN = 20
"""Errors that are shown; of the others people see the number."""
Report = Callable[[InputError], None]
"""What becomes of an error: `refuse` raises it, `Faults.add` gathers it."""


class Faults:
    """The first errors, and how many there are. Of the errors about one cell the first counts: the others follow."""

    def __init__(self) -> None:
        self.first: list[InputError] = []
        self.count = 0
        self.lost_rows = False
        """Whether rows are missing, so that what names them may not be to blame."""
        self._cells: set[tuple[object, int | None, str | None, str]] = set()

    def add(self, error: InputError) -> None:
        """Gather an error."""
        cell = (error.file, error.row, error.field, "" if error.row is not None and error.field else error.rule)
        if cell in self._cells:
            return
        self._cells.add(cell)
        self.lost_rows |= error.row is None or error.field is None
        self.count += 1
        if len(self.first) < SHOWN:
            self.first.append(error)

    @contextmanager
    def gathering(self) -> Iterator[None]:
        """What is raised in here is gathered, and ends this block alone."""
        try:
            yield
        except InputErrors as several:
            for error in several.errors:
                self.add(error)
        except InputError as error:
            self.add(error)

    def locate(self, file: str, path: Path | None, lines_of: Callable[[set[int]], dict[int, int]]) -> None:
        """Give the errors about a file's rows the file's own name and the lines on which they begin, in the order of
        the lines. path: by which a reader of the file calls it; lines_of: rows → the line of each."""
        mine = [error for error in self.first if error.file in (file, path) and (error.row or error.line)]
        rows = {error.row for error in mine if error.row and error.line is None}
        lines = lines_of(rows) if rows else {}
        placed = [error.placed(file, error.line or lines.get(error.row or 0)) for error in mine]
        placed.sort(key=lambda error: error.line or error.row or 0)
        self.first = [error for error in self.first if error not in mine] + placed

    def refuse(self) -> None:
        """InputError for a single error, InputErrors for several, nothing where there is none."""
        if self.count == 1:
            raise self.first[0]
        if self.first:
            raise InputErrors(self.first, self.count)


def row_lines(path: Path, rows: set[int], source: Source) -> dict[int, int]:
    """Row of a source's file, from 1 → the line on which it begins; empty for files that have no lines, or none whose
    rows can be read."""
    if path.suffix.lower() == ".jsonl":
        return {row: row for row in rows}
    if path.suffix.lower() not in ENDINGS:
        return {}
    lines: dict[int, int] = {}
    try:
        for row in open_source(path, source).rows(lambda error: None):
            if row.number in rows:
                lines[row.number] = row.line
            if len(lines) == len(rows):
                break
    except InputError:  # it is among the errors already
        pass
    return lines
