"""The report of trained arms as one static HTML page: no script, nothing fetched, what students wrote is text."""

from __future__ import annotations

from tasks.report.bottleneck.page import rendered
from tasks.report.edit.parts import EditView
from tasks.report.edit.view import content


def page(view: EditView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered("Edit report", content(view))
