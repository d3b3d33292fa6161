"""An experiment's tables as people read them: in a terminal, as Markdown, and as one static HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.display import bars as charts
from tasks.display import say
from tasks.display.table import Table


def page(name: str, tables: Sequence[Table], runs: Mapping[str, str], simulated: bool) -> str:
    """The tables and figures as a whole HTML document that needs no other file."""
    template = _environment().get_template("page.html.j2")
    return template.render(name=name, tables=tables, runs=runs, simulated=simulated, style=_style())


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters["visible"] = say.visible
    made.globals |= {"panel": charts.bar_chart, "shares": charts.share_chart, "key": charts.key}
    return made


@cache
def _style() -> Markup:
    """The style sheet of the run report, our own file."""
    style = Path(__file__).parents[2] / "display" / "page.css"
    return Markup("\n".join(line.strip() for line in style.read_text(encoding="utf-8").splitlines()))
