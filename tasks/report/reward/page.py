"""The reward report as one static HTML page: no script, nothing fetched, what a rubric or a response says is text."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks.report.reward.parts import RewardView
from tasks.report.reward.picture import style
from tasks.report.reward.view import content


def page(view: RewardView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return _environment().get_template("reward.html.j2").render(page=content(view), graph_style=style())


@cache
def _environment() -> Environment:
    """With the style sheet of the run report."""
    here = Path(__file__).parent
    loader = FileSystemLoader([here, here.parents[1] / "display"])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
