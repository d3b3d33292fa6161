"""The report of graders as a page."""

from __future__ import annotations

from tasks.display.page import rendered
from tasks.report.bottleneck.parts import BottleneckView
from tasks.report.bottleneck.trace_picture import style
from tasks.report.bottleneck.view import content


def page(view: BottleneckView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered(content(view), style())
