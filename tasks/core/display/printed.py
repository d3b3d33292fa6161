"""Tables as people read them in a terminal and as Markdown."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as PrintedTable

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Table


def show_sentences(sentences: Sequence[str]) -> None:
    """Print sentences: in a terminal broken between words alone, but for commands, which are indented and stand
    on lines of their own."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for sentence in sentences:
        for line in say.visible(sentence).split("\n"):
            if width and not line.startswith(" "):
                line = textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
            print(line)


def show(tables: Sequence[Table]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    for table in tables:
        printed = PrintedTable(
            title=_line(table.title), title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False
        )
        for index, name in enumerate(table.header):
            is_number = bool(table.rows) and isinstance(table.rows[0][index], Cell)
            printed.add_column(_line(name), justify="right" if is_number else "left")
        for row in table.rows:
            printed.add_row(*(_line(str(cell)) for cell in row))
        console.print(printed)
        for note in table.remarks:
            console.print(_line(note), style="dim", highlight=False)
        console.print()


def markdown(title: str, opening: Sequence[str], tables: Sequence[Table], ending: Sequence[str]) -> str:
    """A document of tables: its title, the sentences that it opens with, and a list at its end. What would be markup is
    text, but for the ending's."""
    lines = [f"# {title}", "", *(f"{_text(sentence)}\n" for sentence in opening)]
    for table in tables:
        lines += [f"## {table.title}", "", _row(table.header), "|" + "---|" * len(table.header)]
        lines += [_row(tuple(map(str, row))) for row in table.rows]
        lines += ["", *(f"- {note}" for note in table.remarks), ""]
    return "\n".join([*lines, *ending, ""])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_text(cell) for cell in cells) + " |"


def _text(text: str) -> str:
    """A text on one line that Markdown shows as it stands: a name in it is no markup."""
    line = say.visible(text).replace("\n", " ")
    return re.sub(r"([\\`*_\[\]>|#])", r"\\\1", line).replace("<", "&lt;")


def _line(text: str) -> str:
    """A text as a terminal may show it."""
    return escape(say.visible(text))
