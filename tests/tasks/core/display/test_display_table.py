"""Cells and numbers as text, tables as rows, Markdown and in a terminal: what names hold is text."""

from __future__ import annotations

import pytest

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.evaluation import Numbers
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Table, markdown, records, show

EVIL = '<img src=x onerror="1"> a|b [bold] \x1b[31m'
TABLE = Table(
    "t_1", "Table 1", ("arm", "MAE"), (("A", Cell(0.5, 0.4, 0.7, 0.1, ends="interval")), (EVIL, Cell(None))), (EVIL,)
)


@pytest.mark.parametrize(
    ("shown", "want"),
    [
        (say.share(0.0), "0%"),
        (say.share(0.0004), "<0.1%"),
        (say.share(0.019), "1.9%"),
        (say.share(0.583), "58%"),
        (say.share(0.9996), "99.9%"),
        (say.share(1.0), "100%"),
        (say.rate(0.025), "2.5%"),
        (say.number(-0.004), "0.00"),
        (say.number(-0.134), "−0.13"),
        (say.signed(0.134), "+0.13"),
        (say.signed(0.001), "0.00"),
        (say.plural(1198, "score"), "1,198 scores"),
        (say.duration(12.34), "12.3 s"),
        (say.duration(7200), "2.0 h"),
        (say.level(2.5), "2.5"),
        (say.level(-0.0), "0"),
    ],
)
def test_numbers_read_as_people_write_them(shown: str, want: str) -> None:
    assert shown == want


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (Cell(0.5), "0.500"),
        (Cell(-0.25, digits=2), "−0.25"),
        (Cell(-0.0001), "0.000"),
        (Cell(1234.0, digits=0), "1,234"),
        (Cell(0.5, 0.4, 0.7, ends="interval"), "0.500 [0.400, 0.700]"),
        (Cell(0.5, se=0.1, ends="se"), "0.500 ± 0.100"),
        (Cell(None, ends="se"), "–"),
    ],
)
def test_a_cell_as_text(cell: Cell, text: str) -> None:
    assert str(cell) == text


def test_names_are_cells_in_markdown() -> None:
    lines = markdown("e", [], [TABLE], []).splitlines()
    (row,) = (line for line in lines if "onerror" in line and line.startswith("|"))
    assert "<img" not in row
    assert row.replace("\\|", "").count("|") == 3


def test_the_terminal_gets_no_control_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    show([TABLE])
    said = capsys.readouterr().out
    assert "\x1b[31m" not in said
    assert "[bold]" in said
    assert "0.500 [0.400, 0.700]" in said


def test_every_cell_is_a_row_of_numbers() -> None:
    rows = conform(Numbers, records(TABLE)).to_pylist()
    assert [(row["row"], row["column"], row["value"]) for row in rows] == [
        (0, "arm", None),
        (0, "MAE", 0.5),
        (1, "arm", None),
        (1, "MAE", None),
    ]
    assert (rows[1]["low"], rows[1]["high"], rows[1]["se"], rows[1]["label"]) == (0.4, 0.7, 0.1, "A")
