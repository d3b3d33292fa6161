"""Errors gathered: the first twenty with their lines, the number of the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from rubricflow.tasks.core.contracts.errors import InputError, InputErrors
from rubricflow.tasks.core.contracts.settings.data import Source
from rubricflow.tasks.core.store.source import SHOWN, Faults, row_lines


def wrong(row: int, rule: str = "is empty") -> InputError:
    return InputError(rule, file="a.csv", row=row, field="id")


def test_nothing_is_nothing() -> None:
    Faults().refuse()


def test_a_single_error_is_itself() -> None:
    faults = Faults()
    faults.add(wrong(1))
    with pytest.raises(InputError, match=r"^a\.csv, row 1, field 'id': is empty$"):
        faults.refuse()


def test_the_first_are_shown_and_the_others_counted() -> None:
    faults = Faults()
    for row in range(1, SHOWN + 4):
        faults.add(wrong(row))
    with pytest.raises(InputErrors) as stop:
        faults.refuse()
    lines = str(stop.value).splitlines()
    assert (lines[0], lines[-1], len(lines)) == ("23 errors in the input; the first 20:", "  … and 3 more", 22)
    assert stop.value.count == 23


def test_of_one_cell_the_first_error_counts() -> None:
    faults = Faults()
    faults.add(wrong(1))
    faults.add(wrong(1, "occurs twice"))
    assert faults.count == 1


def test_errors_get_the_lines_of_their_rows_in_their_order() -> None:
    faults = Faults()
    faults.add(wrong(2))
    faults.add(wrong(1))
    faults.locate("a.csv", None, lambda rows: {row: 10 * row for row in rows})
    assert [str(error) for error in faults.first] == [
        "a.csv, line 10 (row 1), column 'id': is empty",
        "a.csv, line 20 (row 2), column 'id': is empty",
    ]


@pytest.mark.parametrize(
    ("name", "content", "lines"),
    [
        ("a.csv", 'id,text\n1,"a\nb"\n\n3,c\n', {1: 2, 3: 5}),
        ("a.jsonl", '{"id": 1}\n', {1: 1, 3: 3}),
        ("a.parquet", "", {}),
        ("none.csv", None, {}),
    ],
)
def test_rows_have_lines_where_files_do(tmp_path: Path, name: str, content: str | None, lines: dict[int, int]) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    assert row_lines(tmp_path / name, {1, 3}, Source(file=name)) == lines
