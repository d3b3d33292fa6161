"""Cells and numbers as text, tables as rows, Markdown and in a terminal: what names hold is text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.evaluation import Numbers
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import marked
from rubricflow.tasks.core.display.say import visible
from rubricflow.tasks.core.display.table import Cell, Table, markdown, records, show
from rubricflow.tasks.core.text.highlight import Highlight, excerpt, pieces

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


# A highlighted text as HTML: the text and no element of it; what cannot be seen is made visible.


class Text(HTMLParser):
    """The text of a fragment without the labels in it."""

    def __init__(self, fragment: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.labels, self.text = 0, ""
        self.feed(fragment)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.labels += tag == "b"

    def handle_endtag(self, tag: str) -> None:
        self.labels -= tag == "b"

    def handle_data(self, data: str) -> None:
        self.text += "" if self.labels else data


@given(
    st.text(st.one_of(st.characters(), st.sampled_from(" \n\r<>&\"'\u202e")), max_size=200),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200), st.text(max_size=3)), max_size=6),
)
def test_the_html_holds_the_text_and_no_element_of_it(text: str, drawn: list[tuple[int, int, str]]) -> None:
    highlights = [Highlight(a, b, label) for a, b, label in drawn if a <= b <= len(text)]
    shown = Text(str(marked(pieces(text, highlights), "".join, str)))
    assert shown.text == visible(text.replace("\r\n", "\n"))
    assert shown.tags <= {"mark", "b"}


def test_a_mark_has_its_kind_and_each_label_once_and_a_gap_says_how_much_is_left_out() -> None:
    text = "begin <b>" + " " * 100
    html = marked(excerpt(text, [Highlight(0, 5, "G1"), Highlight(0, 5, "G2"), Highlight(2, 5, "G1")]), "-".join, str)
    assert html == (
        '<mark class="G1-G2">be</mark><mark class="G1-G2">gin<b>G1</b><b>G2</b></mark> &lt;b&gt;  '
        '<span class="gap">[96 characters not shown]</span>  '
    )


@pytest.mark.parametrize("letter", ["\x00", "\x1b", "\x9f", "\u202e", "\u2066", "\ud800", "\U000e0041", "\ufeff"])
def test_what_cannot_be_seen_is_made_visible(letter: str) -> None:
    assert visible(f"a{letter}b") == f"a⟨U+{ord(letter):04X}⟩b"


@pytest.mark.parametrize("text", ["\n\t", "Ärger 你好", "👩\u200d🔬", "שלום"])
def test_what_can_be_seen_stays(text: str) -> None:
    assert visible(text) == text
