"""The report of graders as one static HTML page: no script, nothing fetched, what people or responses say is text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks.display.section import Page
from tasks.report.bottleneck.parts import BottleneckView
from tasks.report.bottleneck.trace_picture import style
from tasks.report.bottleneck.view import content


def page(view: BottleneckView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered("Grader report", content(view))


def rendered(kind: str, made: Page) -> str:
    """The sections of a report as a whole HTML document. kind: what the report is called."""
    return _environment().get_template("bottleneck.html.j2").render(kind=kind, page=made, trace_style=style())


@cache
def _environment() -> Environment:
    """With the style sheet of the run report."""
    here = Path(__file__).parent
    loader = FileSystemLoader([here, here.parents[1] / "display"])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
