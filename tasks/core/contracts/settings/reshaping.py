"""What a study may say of a file whose rows are not one answer each: the columns that are made before they map."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, model_validator

from rubricflow.tasks.core.contracts.schema import Frozen

PLACEHOLDER = re.compile(r"\{(\w+)\}")
"""A part of a column's name that differs from question to question."""
QUESTION = "n"
"""The placeholder, and the new column, of what tells the questions apart."""
ROW = "{row}"
"""In place of a column: the number of the row in its file."""

Pattern = str | tuple[str, ...] | dict[Literal["right_of"], str]
"""Columns of one kind: their name with {n} in place of the question's number or id; a list of them, where each is named
by its question (`n` is then that name); or `{right_of: NAME}`, the column that stands to the right of that one."""


class Reshaping(Frozen):
    """What is done to the rows of a file before its columns map. Each step may use what the steps above it made."""

    blank: tuple[str, ...] = ()
    """Cells that mean an empty one, such as the "-" that Moodle writes where nothing was handed in."""
    wide: dict[str, Pattern] = {}
    """For a file with a row for each student and several columns for each question: new column → the columns that it
    takes the place of, as in {answer: "Response {n}", question: "Question {n}"}. Each row becomes one row for each
    question. Every placeholder becomes a column, too: `n` holds the question's number or id. A question whose several
    columns are all empty was not put to that student and is left out."""
    ids: dict[str, tuple[str, ...]] = {}
    """Ids that the file lacks: new column → the columns that it is made of, joined by colons; what is long or holds a
    colon is represented by its digest. "{row}" is the row's number, for a file without any id. A row that lacks a part
    of its id and has no answer (a line of averages, say) is no submission and is left out."""
    numbered: dict[str, tuple[str, ...]] = Field(default={}, exclude_if=lambda made: not made)
    """Questions that have no id: new column → the columns that say which question it is; none where there is only one.
    They become Q1, Q2 and so on in the order of the columns of `wide` or else of the rows, so that rows added below
    rename none. What is a number already keeps it: 7 is Q7. Sources of a study share the numbers of a column."""
    repeats: dict[str, tuple[str, ...]] = Field(default={}, exclude_if=lambda made: not made)
    """What tells namesakes and second attempts apart: new column → columns. It is empty in the first row of the file
    with their words, 2 in the second row, and so on."""
    names: dict[str, tuple[str, ...]] = {}
    """New column → the columns whose words it joins by a blank, such as first and last name."""
    labels: dict[str, tuple[str, ...]] = Field(default={}, exclude_if=lambda made: not made)
    """As `ids`, for people to read: joined by hyphens, every part as it stands, the row's number with three digits at
    least. An empty part that `repeats` made is left out."""
    html: bool = False
    """Whether questions, answers and model answers may be HTML: such cells become plain text, which is what is graded
    and quoted; others stay as they are."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Reshaping:
        for name, pattern in self.wide.items():
            if isinstance(pattern, dict):
                _needs_another(name, pattern["right_of"], self.wide)
            elif isinstance(pattern, str) and QUESTION not in PLACEHOLDER.findall(pattern):
                raise ValueError(f"wide: '{pattern}' has no {{{QUESTION}}} in place of the question's number")
        for name, columns in (self.ids | self.repeats | self.labels | self.names).items():
            if not columns:
                raise ValueError(f"'{name}' is made of no column")
        return self


def _needs_another(name: str, neighbour: str, wide: dict[str, Pattern]) -> None:
    """ValueError where a column is to stand beside one that `wide` does not name by its own name."""
    if not isinstance(wide.get(neighbour), str | tuple):
        raise ValueError(f"wide: '{name}' stands right of '{neighbour}', which has no name of its own there")
