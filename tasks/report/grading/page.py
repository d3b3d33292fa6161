"""The view as one static HTML page: no script, nothing fetched, what a student wrote is text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tasks.display import say
from tasks.report.grading import charts
from tasks.report.grading.groups import BAND
from tasks.report.grading.parts import Piece, View
from tasks.stats.estimate import Estimate


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
    lines = (Path(__file__).parents[2] / "display" / "page.css").read_text(encoding="utf-8").splitlines()
    return Markup("\n".join(line.strip() for line in lines))


def answer(pieces: Iterable[Piece]) -> Markup:
    """A student's answer: escaped text with marks, each labelled by its criteria where it ends."""
    made = []
    for piece in pieces:
        text = Markup("{}").format(piece.text)
        if piece.hidden:
            text = Markup('<span class="gap">[{} not shown]</span>').format(say.plural(piece.hidden, "character"))
        labels = Markup("").join(Markup("<b>{}</b>").format(label) for label in piece.ends)
        if piece.machine or piece.people:
            kind = " ".join(name for name, by in (("qm", piece.machine), ("qh", piece.people)) if by)
            text = Markup('<mark class="{}">{}{}</mark>').format(kind, text, labels)
        made.append(text)
    return Markup("").join(made)


def unknowns(estimates: Iterable[Estimate]) -> list[str]:
    """Why numbers are missing: each reason once, in order."""
    return list(dict.fromkeys(found.note for found in estimates if found.value is None and found.note))
