"""How an experiment's tables are shown: numbers with their ends, names as text, simulated raters said to be so."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tasks.contracts.schema import conform
from tasks.contracts.tables.experiment import Numbers
from tasks.display.bars import bar_chart, share_chart
from tasks.display.printed import markdown, show
from tasks.display.table import Bar, Cell, Panel, Shares, Table, labelled, records
from tasks.report.experiment.page import page

EVIL = '<img src=x onerror="1"> a|b [bold] \x1b[31m'
PANEL = Panel("Errors", (Bar("A", 0.5, 0.4, 0.7), Bar(EVIL, -0.25)))
SHARES = Shares("Scores", ("0", "1"), (0.25, 0.75), {"A": (0.5, 0.5)})
TABLE = Table(
    "t_1",
    "Table 1",
    ("arm", "MAE"),
    (("A", Cell(0.5, 0.4, 0.7, 0.1, ends="interval")), (EVIL, Cell(None))),
    (EVIL,),
    (PANEL, SHARES),
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


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


def test_every_title_says_that_the_rater_is_simulated() -> None:
    found = labelled(TABLE)
    assert all("simulated" in title for title in (found.title, *(figure.title for figure in found.figures)))
    assert "simulated" in markdown("e", [found], {})
    assert page("e", [found], {}, True).count("simulated") >= 4


def test_names_are_text_on_the_page() -> None:
    tags = Tags()
    tags.feed(page("e", [TABLE], {EVIL: "run"}, False))
    assert {"img", "script"}.isdisjoint(tags.seen)
    assert tags.seen.count("svg") == 3


def test_names_are_cells_in_markdown() -> None:
    lines = markdown("e", [TABLE], {}).splitlines()
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


def test_charts_say_what_they_show() -> None:
    assert "0.500" in bar_chart(PANEL)
    assert "25%" in share_chart(SHARES)
    assert "<img" not in bar_chart(PANEL)


def test_bars_stand_in_their_order_and_people_as_a_line() -> None:
    panel = Panel("QWK", (Bar("a", 0.5, 0.4, 0.6, "0.50 ± 0.10"), Bar("b", 0.25)), 0.8)
    drawn = bar_chart(panel)
    widths = [float(width) for width in re.findall(r'class="bf"[^>]* width="([\d.]+)%"', drawn)]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.01)
    assert 'aria-label="QWK: a 0.50 ± 0.10; b 0.250; people 0.80"' in drawn
    assert drawn.count('class="hl"') == 1
    assert 'class="hl"' not in bar_chart(panel._replace(people=None))


def test_ticks_are_written_with_the_digits_of_their_step() -> None:
    drawn = bar_chart(Panel("Errors", (Bar("A", 0.9),)))
    assert all(f">{tick}<" in drawn for tick in ("0.00", "0.25", "0.50", "0.75", "1.00"))
    assert ">20<" in bar_chart(Panel("Tokens", (Bar("A", 77.0),)))
