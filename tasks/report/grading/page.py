"""The view as one static HTML page: no script, nothing fetched, what a student wrote is text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.report.grading import charts, say
from tasks.report.grading.groups import BAND
from tasks.report.grading.parts import Estimate, Quoted, View
from tasks.report.marked import marked
from tasks.text.highlight import Piece


def page(view: View) -> str:
    """The report: a whole HTML document that needs no other file."""
    return _environment().get_template("page.html.j2").render(view=view, style=_style())


@cache
def _environment() -> Environment:
    loader = FileSystemLoader(Path(__file__).parent)
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"count": say.count, "share": say.share, "figure": say.figure, "plural": say.plural}
    made.globals |= {
        "charts": charts,
        "dot": charts.Dot,
        "answer": answer,
        "interval": say.interval,
        "not_known": say.NOT_KNOWN,
        "unknowns": unknowns,
        "number": say.number,
        "band": BAND,
    }
    return made


@cache
def _style() -> Markup:
    """The style sheet, our own file, without the indentation that only its reader needs."""
    lines = (Path(__file__).parent / "page.css").read_text(encoding="utf-8").splitlines()
    return Markup("\n".join(line.strip() for line in lines))


def answer(pieces: Iterable[Piece[Quoted]]) -> Markup:
    """A student's answer: escaped text with marks, each labelled by its criteria where it ends."""
    return marked(pieces, _by, lambda quoted: quoted.criterion)


def _by(quoted: Iterable[Quoted]) -> str:
    by = {one.by for one in quoted}
    return " ".join(kind for kind, rater in (("qm", "machine"), ("qh", "people")) if rater in by)


def unknowns(estimates: Iterable[Estimate]) -> list[str]:
    """Why numbers are missing: each reason once, in order."""
    return list(dict.fromkeys(found.note for found in estimates if found.value is None and found.note))
