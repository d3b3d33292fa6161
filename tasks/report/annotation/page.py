"""The report of annotation as one static HTML page: no script, nothing fetched, what people say is text."""

from __future__ import annotations

from tasks.report.annotation.parts import AnnotationView
from tasks.report.annotation.view import content
from tasks.report.bottleneck.page import rendered


def page(view: AnnotationView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered("Annotation report", content(view))
