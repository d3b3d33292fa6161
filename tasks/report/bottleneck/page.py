"""The report of graders as one static HTML page: no script, nothing fetched, what people or responses say is text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks.report.bottleneck.parts import BottleneckView
from tasks.report.bottleneck.trace_picture import style
from tasks.report.bottleneck.view import content, trace_contents
from tasks.report.reward.parts import Content


def page(view: BottleneckView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return rendered("Grader report", content(view))


def trace_pages(view: BottleneckView) -> dict[str, str]:
    """Response → its decision trace as a document of its own, of those that the page shows."""
    return {response: rendered("Decision trace", trace) for response, trace in trace_contents(view).items()}


def rendered(kind: str, made: Content) -> str:
    """The sections of a report as a whole HTML document. kind: what the report is called."""
    return _environment().get_template("bottleneck.html.j2").render(kind=kind, page=made, trace_style=style())


@cache
def _environment() -> Environment:
    """With the style sheet of the run report."""
    here = Path(__file__).parent
    loader = FileSystemLoader([here, here.parent / "grading"])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
