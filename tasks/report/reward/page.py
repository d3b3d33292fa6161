"""The reward report as one static HTML page: no script, nothing fetched, what a rubric or a response says is text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tasks.report.reward.boxes import Row
from tasks.report.reward.parts import Content, RewardView
from tasks.report.reward.picture import style
from tasks.report.reward.view import content, graph_content


def page(view: RewardView) -> str:
    """The report: a whole HTML document that needs no other file."""
    return _rendered("Reward report", content(view))


def graph_page(rubric_id: str, nodes: Sequence[Row], edges: Sequence[Row]) -> str:
    """One rubric's graph as a document of its own. nodes, edges: its rows of `graph_nodes` and `graph_edges`."""
    return _rendered("Rubric graph", graph_content(rubric_id, nodes, edges))


def _rendered(kind: str, made: Content) -> str:
    return _environment().get_template("reward.html.j2").render(kind=kind, page=made, graph_style=style())


@cache
def _environment() -> Environment:
    """With the style sheet of the run report."""
    here = Path(__file__).parent
    loader = FileSystemLoader([here, here.parent / "grading"])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
