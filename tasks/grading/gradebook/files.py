"""Sheets as files: CSV and Excel workbooks. No cell of them runs as a formula, and numbers are numbers.

In a CSV file an apostrophe goes before what a spreadsheet would run. A workbook says of each cell what it is, so that
texts stay as they are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import cast

from openpyxl import Workbook
from openpyxl.cell.cell import Cell
from openpyxl.styles import Alignment, Font
from openpyxl.utils import get_column_letter

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.text.formulas import guarded
from rubricflow.tasks.grading.gradebook.sheets import GradeSheet, Value

LONGEST = 32_000
"""Characters of a cell; Excel's holds 32,767."""
NARROWEST, WIDEST = 8, 60
"""Characters of a column."""
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def as_csv(sheet: GradeSheet, for_spreadsheets: bool = True) -> bytes:
    """The sheet as CSV in UTF-8. for_spreadsheets: with a byte order mark, by which Excel knows the encoding."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([guarded(_readable(name)) for name in sheet.header])
    for row in sheet.rows:
        writer.writerow([guarded(_readable(cell)) if isinstance(cell, str) else cell for cell in row])
    content = text.getvalue().encode()
    return _BYTE_ORDER_MARK + content if for_spreadsheets else content


def as_workbook(sheets: Sequence[GradeSheet]) -> bytes:
    """The sheets as an Excel workbook, each with a header that stays in view and columns as wide as their texts."""
    workbook = Workbook()
    workbook.remove(workbook.worksheets[0])
    for sheet in sheets:
        page = workbook.create_sheet(sheet.title)
        for row, cells in enumerate((sheet.header, *sheet.rows), 1):
            for column, value in enumerate(cells, 1):
                _write(cast(Cell, page.cell(row, column)), value)
        for column in range(1, len(sheet.header) + 1):
            page.cell(1, column).font = Font(bold=True)
            page.column_dimensions[get_column_letter(column)].width = _width(sheet, column - 1)
        page.freeze_panes = "A2"
    file = io.BytesIO()
    workbook.save(file)
    return file.getvalue()


def _write(cell: Cell, value: Value) -> None:
    """A text is marked as one, or Excel would run what begins with an equals sign."""
    if not isinstance(value, str):
        cell.value = value
        return
    if not value:
        return
    cell.value = _readable(value)
    cell.data_type = "s"
    cell.quotePrefix = True
    cell.alignment = Alignment(wrap_text=True, vertical="top")


def _readable(text: str) -> str:
    """A text as a cell can hold it: line breaks of one kind, nothing that cannot be seen, not too long."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    shown = say.visible(lines).replace("\ufffe", "⟨U+FFFE⟩").replace("\uffff", "⟨U+FFFF⟩")
    return shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}\n[… cut here]"


def _width(sheet: GradeSheet, column: int) -> int:
    cells = (sheet.header[column], *(row[column] for row in sheet.rows))
    widths = [max(map(len, str(cell).split("\n"))) for cell in cells if cell is not None]
    return min(WIDEST, max(NARROWEST, 2 + max(widths, default=0)))
