"""The report of annotation as a page."""

from __future__ import annotations

from tasks.display.page import rendered
from tasks.report.annotation.parts import AnnotationView
from tasks.report.annotation.view import content


def page(view: AnnotationView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view))
