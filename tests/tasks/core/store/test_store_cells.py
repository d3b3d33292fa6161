"""Cells of source files are read the same way by everybody."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import as_number, as_text, missing, quoted, select, text_or_none, texts


@pytest.mark.parametrize(
    ("cell", "text"), [(3.0, "3"), (3.5, "3.5"), ("a", "a"), (True, "True"), ("\ud800x", "\ufffdx")]
)
def test_a_cell_as_text(cell: object, text: str) -> None:
    assert as_text(cell) == text


@pytest.mark.parametrize("cell", [None, math.nan, "", "  \n"])
def test_nothing_is_none(cell: object) -> None:
    assert text_or_none(cell) is None
    assert as_number(cell, "f", 1, "x") is None


def test_an_empty_string_is_there() -> None:
    assert missing(None)
    assert not missing("")


@pytest.mark.parametrize("cell", ["one", "inf", "nan", [1], "1_0", True, 10**400, "1,000,000"])
def test_what_is_no_finite_number_is_refused(cell: object) -> None:
    with pytest.raises(InputError, match=r"f, row 2, field 'x': .* is not a finite number"):
        as_number(cell, "f", 2, "x")


def test_a_message_shows_the_beginning_of_a_cell_without_control_characters() -> None:
    assert quoted("\x1b[2J\u202eé" + "x" * 99) == "'\\x1b[2J\\u202eé" + "x" * 34 + "'"


def test_texts_are_texts() -> None:
    assert texts(["a", 3.0, None, math.nan, " "], "f", range(1, 6), "x") == ["a", "3", None, None, " "]
    with pytest.raises(InputError, match="f, row 2, field 'x': is a list, not text"):
        texts(["a", ["b"]], "f", [1, 2], "x")


@pytest.mark.parametrize("wanted", [True, "true", "TRUE"])
def test_truth_is_selected_as_files_write_it(wanted: object) -> None:
    frame = pd.DataFrame({"met": ["True", "False", True, None]}, dtype=object)
    assert list(select(frame, {"met": wanted}, "f").index) == [0, 2]


@pytest.mark.parametrize("wanted", [1, 1.0, "1"])
def test_numbers_are_selected_as_files_write_them(wanted: object) -> None:
    frame = pd.DataFrame({"seed": [1, "1", 1.0, 2]}, dtype=object)
    assert list(select(frame, {"seed": wanted}, "f").index) == [0, 1, 2]


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(InputError, match="f, field 'y': no such column; there are x"):
        select(pd.DataFrame({"x": [1]}), {"y": 1}, "f")
