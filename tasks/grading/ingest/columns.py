"""The columns of a chunk of a source, as the study's mapping names them, and what their cells hold: texts, numbers that
words may stand for, lists, listed criteria.

`Chunk` reads columns; the functions below it read one cell each, and raise an InputError with its place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError, refuse
from rubricflow.tasks.core.contracts.settings.data import Column, Source
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.store.cells import (
    UnreadableCell,
    as_number,
    as_text,
    missing,
    need,
    no_number,
    quoted,
    text_or_none,
    texts,
)
from rubricflow.tasks.core.store.sheets import WORKBOOK
from rubricflow.tasks.core.store.source import Report
from rubricflow.tasks.core.text.tokens import Mark, decimal_of, mark_of, number_of

T = TypeVar("T")
_KEYS = ("id", "text", "weight", "levels", "parent")
"""Of a listed criterion."""
_WRITTEN = 'write ["one", "two"]'
_UNWORDED = "where words stand for numbers, say in the study's 'words' for which"
_LIST_OF_TEXTS = re.compile(r"""\s*\[\s*["'{]""")
"""How a list of texts or objects begins; a text may begin with [1] or [sic]."""


class CellPlace(NamedTuple):
    """Where a cell is, or an element of the list in a cell."""

    file: object
    row: int
    """From 1."""
    field: str

    def error(self, rule: str, hint: str | None = None) -> InputError:
        return InputError(rule, file=self.file, row=self.row, field=self.field, hint=hint)

    def at(self, key: object) -> CellPlace:
        """The place of an element, by its number or key."""
        return self._replace(field=f"{self.field}.{key}")


@dataclass(frozen=True)
class Chunk:
    """Some rows of a source, and what becomes of errors about them."""

    source: Source
    frame: pd.DataFrame
    report: Report = refuse

    @cached_property
    def rows(self) -> list[int]:
        """The rows' numbers in their file, from 1."""
        return [number + 1 for number in self.frame.index.tolist()]

    def place(self, row: int, column: Column) -> CellPlace:
        return CellPlace(self.source.file, row, name_of(column))

    def refuse(self, row: int, column: Column, rule: str, hint: str | None = None) -> None:
        """Report what is wrong with the cell of a row."""
        self.report(self.place(row, column).error(rule, hint))

    def cells(self, column: Column) -> list[Any]:
        """The cells of a column, or its constant; None in every row once it is reported that there is no such."""
        if isinstance(column, dict):
            return [column["const"]] * len(self.frame)
        try:
            need(self.frame, column, self.source.file)
        except InputError as error:
            self.report(error)
            return [None] * len(self.frame)
        return self.frame[column].tolist()

    def texts(self, column: Column) -> list[str | None]:
        return texts(self.cells(column), self.source.file, self.rows, name_of(column), self.report)

    def mapped_texts(
        self, mapped: Mapping[str, Column], filled: Sequence[str], but: Container[str] = ()
    ) -> dict[str, list[str | None]]:
        """The columns that a section of the mapping names, all but some, as texts by their canonical names. filled:
        those in which no cell may be empty."""
        columns = {name: self.texts(column) for name, column in mapped.items() if name not in but}
        for name in filled:
            column = mapped[name]
            if isinstance(column, dict) or column in self.frame.columns:
                self.refuse_all(column, columns[name], lambda cell: not (cell or "").strip(), "is empty")
        return columns

    def refuse_all(
        self,
        column: Column,
        cells: Sequence[str | None],
        is_wrong: Callable[[str | None], bool],
        rule: str,
        hint: str | None = None,
    ) -> None:
        """Report each cell that is wrong; {} in the rule stands for the beginning of the cell."""
        for row, cell in zip(self.rows, cells, strict=True):
            if is_wrong(cell):
                self.refuse(row, column, rule.format(quoted(cell)), hint)

    def read(self, column: Column, read: Callable[[Any, CellPlace], T], otherwise: T) -> list[T]:
        """What `read` makes of each cell of a column; `otherwise` once its InputError is reported."""
        values = []
        for row, cell in zip(self.rows, self.cells(column), strict=True):
            try:
                values.append(read(cell, self.place(row, column)))
            except InputError as error:
                self.report(error)
                values.append(otherwise)
        return values


def name_of(column: Column) -> str:
    """A column as the user calls it."""
    return column if isinstance(column, str) else "const"


def as_ids(cells: Sequence[str | None]) -> list[str]:
    """Ids without the blanks around them, which nobody sees; '' for a missing one."""
    return [(cell or "").strip() for cell in cells]


def without_blanks(cells: Sequence[str | None]) -> list[str | None]:
    """Texts without the blanks around them, which a spreadsheet does not show, and None for those that are blank."""
    return [cell.strip() or None if cell else None for cell in cells]


def cell_list(cell: Any, place: CellPlace) -> list[Any] | None:
    """The list of a cell, a JSON list in a text included; None where it is missing or blank.

    InputError for what is no list, and for JSON that is broken, with the place of the first fault.
    """
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        try:
            cell = json.loads(cell, parse_constant=no_number)
        except (ValueError, RecursionError) as error:
            at = f" at character {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else ""
            raise place.error(f"is no JSON list: {getattr(error, 'msg', error)}{at}", _WRITTEN) from error
    if isinstance(cell, list):
        return cell
    if text_or_none(cell) is not None:
        raise place.error("is not a list", _WRITTEN)
    return None


def cell_texts(cell: Any, place: CellPlace) -> list[str] | None:
    """The texts of a cell that holds a list of them, or of objects each with its 'text'; None as for `cell_list`.

    InputError names an element by its place, from 0: null, true or false, a list, or an object that has no text, or a
    weight, which a list of texts cannot keep.
    """
    elements = cell_list(cell, place)
    found = []
    for number, element in enumerate(elements or ()):
        at = place.at(number)
        if isinstance(element, dict):
            if not missing(element.get("weight")):
                raise at.error("has a weight, which a list of texts cannot keep", "give the weights in key_weights")
            element = element.get("text")
        if isinstance(element, dict | list | bytes | bool):
            raise at.error("is neither a text nor an object with a 'text'")
        if missing(element):
            raise at.error("is empty")
        found.append(as_text(element))
    return elements and found


def cell_answers(cell: Any, place: CellPlace) -> list[str]:
    """The model answers of a cell: its text, or those of a list; none where it is missing or blank."""
    if isinstance(cell, list) or (isinstance(cell, str) and _LIST_OF_TEXTS.match(cell)):
        return [text for text in cell_texts(cell, place) or [] if text.strip()]
    if isinstance(cell, UnreadableCell):
        raise place.error(cell.rule, cell.hint)
    if isinstance(cell, dict | bytes):
        raise place.error("is neither a text nor a list of texts")
    text = text_or_none(cell)
    return [] if text is None else [text]


def cell_weights(cell: Any, place: CellPlace) -> list[float] | None:
    """The numbers of a cell that holds a list of them; None as for `cell_list`, and for an empty list."""
    weights = []
    for element in cell_list(cell, place) or []:
        weight = as_number(element, *place)
        if weight is None:
            raise place.error("holds an empty weight")
        weights.append(weight)
    return weights or None


def listed(cell: Any, place: CellPlace) -> list[JsonDict] | None:
    """The cell `criteria` of an item as rows of `Listed`; None where it is missing, blank or an empty list.

    InputError names the criterion by its place in the list, from 0, its key and the rule: no list of objects, an
    unknown key, an empty id, text, weight or level, a text that is none, a weight that is no finite number, levels that
    are no list, an id given twice, a parent that is not listed.
    """
    criteria = [_criterion(element, place.at(number)) for number, element in enumerate(cell_list(cell, place) or [])]
    ids = [criterion["id"] for criterion in criteria]
    for number, criterion in enumerate(criteria):
        if criterion["id"] in ids[:number]:
            raise place.at(number).at("id").error(f"{quoted(criterion['id'])} is given twice")
        if criterion["parent"] not in (None, *ids):
            raise place.at(number).at("parent").error(f"{quoted(criterion['parent'])} is not listed")
    return criteria or None


def _criterion(element: Any, place: CellPlace) -> JsonDict:
    if not isinstance(element, dict):
        raise place.error("is not an object")
    if unknown := sorted(set(map(str, element)) - set(_KEYS)):
        raise place.error(f"{quoted(unknown[0])} is no key of a criterion; there are {', '.join(_KEYS)}")
    levels = [_text(level, place.at("levels")) for level in cell_list(element.get("levels"), place.at("levels")) or []]
    if None in levels:
        raise place.at("levels").error("holds an empty level")
    name, text, parent = (_text(element.get(key), place.at(key)) for key in ("id", "text", "parent"))
    weight = as_number(element.get("weight"), *place.at("weight"))
    for key, value in (("id", name), ("text", text), ("weight", weight)):
        if value is None:
            raise place.at(key).error("is empty")
    return {"id": name, "text": text, "weight": weight, "levels": levels, "parent": parent}


def _text(cell: Any, place: CellPlace) -> str | None:
    return text_or_none(texts([cell], place.file, [place.row], place.field)[0])


def numbers_of(words: Mapping[str, float | None]) -> Callable[[Any, CellPlace], float | None]:
    """How a column is read in which words stand for numbers, whatever their case and the blanks around them: cell → its
    number, None where it is blank or no score, InputError where it is neither.

    A number stands for itself, unless numbers are among the words: then those that are not have no meaning. A decimal
    comma is read as a point.
    """
    number_of_word = {word.strip().casefold(): number for word, number in words.items()}
    renumbered = any(number_of(word) is not None for word in number_of_word)

    def number(cell: Any, place: CellPlace) -> float | None:
        text = (text_or_none(cell) or "").strip()
        if text.casefold() in number_of_word:
            return number_of_word[text.casefold()]
        if number_of_word and text and (renumbered or decimal_of(text) is None):
            raise place.error(
                f"{quoted(cell)} is none of the words {', '.join(words)}{'' if renumbered else ' and no number'}"
            )
        return as_number(cell, *place, _UNWORDED)

    return number


def marks_of(words: Mapping[str, float | None]) -> Callable[[Any, CellPlace], Mark]:
    """As `numbers_of`, for marks, which may say out of how many points they are: '3.00 / 3', '85 %'."""
    number = numbers_of(words)
    known = {word.strip().casefold() for word in words}

    def mark(cell: Any, place: CellPlace) -> Mark:
        text = (text_or_none(cell) or "").strip()
        is_plain = text.casefold() in known or decimal_of(text) is not None
        said = None if is_plain or not isinstance(cell, str) else mark_of(text)
        return said or Mark(number(cell, place), None)

    return mark


Decimals = dict[tuple[str, str], dict[str, tuple[int, str]]]
"""(File, column) → sign of its decimals → the first row with it, and the cell."""


def look_at_decimals(chunk: Chunk, seen: Decimals) -> None:
    """InputError for a column of scores that writes its decimals in two ways; words are not looked at. In a workbook a
    number has a point here, whatever a spreadsheet shows, and a text may have a comma.

    seen: of the chunks before; this one is added.
    """
    file, frame = chunk.source.file, chunk.frame
    for rater in () if file.lower().endswith(WORKBOOK) else chunk.source.scores:
        for column in filter(None, (rater.score, *rater.traits.values())):
            signs = seen.setdefault((file, column), {})
            if column not in frame.columns or rater.words or len(signs) == 2:
                continue
            for row, cell in zip(chunk.rows, frame[column].tolist(), strict=True):
                for sign in ",.":
                    if isinstance(cell, str) and sign in cell and number_of(cell.replace(sign, ".", 1)) is not None:
                        signs.setdefault(sign, (row, cell.strip()))
                if len(signs) == 2:
                    (first_row, first), (second_row, second) = sorted(signs.values())
                    rule = f"{quoted(second)} stands next to {quoted(first)} in row {first_row}"
                    hint = "write all decimals of a column with a point, or all with a comma"
                    chunk.refuse(second_row, column, rule, hint)
                    break
