"""The run report as a page: its own bodies in the frame of all reports."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

from markupsafe import Markup

from rubricflow.tasks.core.display.marked import marked
from rubricflow.tasks.core.display.page import body, rendered
from rubricflow.tasks.core.display.section import Page, Section
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.core.text.highlight import Piece
from rubricflow.tasks.grading.report import charts
from rubricflow.tasks.grading.report.groups import BAND
from rubricflow.tasks.grading.report.sections import Facts, Quoted
from rubricflow.tasks.grading.report.view import View

TEMPLATE = Path(__file__).with_name("sections.html.j2")
QUESTIONS = {
    "verdict": "Verdict: may the scores be used, and for what?",
    "data": "Data: what was scored, lost, held out?",
    "answers": "Answers: which score has each?",
    "people": "People: how well do they agree?",
    "agreement": "Agreement: as good as a second person?",
    "distribution": "Distribution: are the same marks awarded?",
    "true_score": "True score: what is missing?",
    "errors": "Errors: where, and why?",
    "groups": "Groups: fair?",
    "raters": "Raters: who is severe, who needs retraining?",
    "calibration": "Calibration: did adjustment help?",
    "routing": "Routing: what goes to people?",
    "evidence": "Evidence: is credit grounded?",
    "decisions": "Decisions: are the judge's probabilities right?",
    "stability": "Stability: the same answer again?",
    "cost": "Cost: calls, tokens, time",
    "checks": "Checkpoints: were the tables sound?",
    "limits": "Limits: how was it done?",
}
"""Field of `View` and macro of the template → what the section answers, in order."""


def page(view: View) -> str:
    """The report: a whole HTML document that needs no other file."""
    names = {"charts": charts, "dot": charts.Dot, "answer": answer, "unknowns": unknowns, "band": BAND}
    filled = partial(body, TEMPLATE, names=names | {"promise": view.outcome.released_why})
    values = {name: getattr(view, name) for name in QUESTIONS}
    sections = [_section(name, value, filled(name, value)) for name, value in values.items() if value is not None]
    content = Page(
        kind="Run report",
        study=view.head.study,
        date=view.head.date,
        title=view.head.title,
        sections=tuple(sections),
        body=filled("head", view),
    )
    return rendered(content)


def _section(name: str, value: Any, drawn: Markup) -> Section:
    return Section(name.replace("_", "-"), QUESTIONS[name], value.title, missing=_missing(value), body=drawn)


def _missing(value: Any) -> str:
    """Why a section's answer is not known; '' where it is."""
    why = getattr(value, "missing", "")
    if not why:
        return ""
    return f"Untested: {why}" if isinstance(value, Facts) else f"Not known: {why}"


def answer(pieces: Iterable[Piece[Quoted]]) -> Markup:
    """A student's answer: escaped text with marks, each labelled by its criteria where it ends."""
    return marked(pieces, _by, lambda quoted: quoted.criterion)


def _by(quoted: Iterable[Quoted]) -> str:
    by = {mark.by for mark in quoted}
    return " ".join(kind for kind, rater in (("qm", "machine"), ("qh", "people")) if rater in by)


def unknowns(estimates: Iterable[Estimate]) -> list[str]:
    """Why numbers are missing: each reason once, in order."""
    return list(dict.fromkeys(estimate.note for estimate in estimates if estimate.value is None and estimate.note))
