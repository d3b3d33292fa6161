"""The end of a run as a person reads it in a terminal: three sentences, and the judge compared with others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rubricflow.tasks.core.display import say
from rubricflow.tasks.grading.report.sections import OutcomeSection
from rubricflow.tasks.grading.report.standing import RaterStanding, over_questions

TABLE = ("who", "agreement", "95% interval", "answers")
_NAMED = 2
"""Reasons that a sentence names."""
Row = Mapping[str, Any]


class Ending(NamedTuple):
    """What came of a run."""

    state: str
    """In a few words: 96 of 160 released, 7 gates missed."""
    sentences: tuple[str, str, str]
    """What may be released, what goes to people, what to do next."""
    title: str
    rows: tuple[tuple[str, str, str, str], ...]
    """Agreement with the human score, under `TABLE`."""


def ending(
    title: str,
    outcome: OutcomeSection,
    rules: Sequence[Row],
    gates: Sequence[Row],
    study: str | None,
    has_review: bool = True,
) -> Ending:
    """What to say of a graded run, but for its table.

    title: what may be released, in a sentence; rules: rows of `release_rules`; gates: rows of `verdicts`; study: what
    to type behind a command about this study, None where its commands would not find this run; has_review: whether
    people can review it where its tables are (votes need a folder).
    """
    missed = sum(gate["outcome"] == "fail" for gate in gates)
    state = f"{say.count(outcome.marked)} marked by people, " if outcome.marked else ""
    state += f"{say.count(outcome.released)} of {say.count(outcome.responses)} released"
    state += f", {say.plural(missed, 'gate')} missed" if missed else ""
    released = " ".join(filter(None, (title, "" if outcome.released else outcome.released_why)))
    return Ending(
        state, (say.plain(released), to_people(outcome), next_step(outcome, rules, study, has_review)), "", ()
    )


def to_people(outcome: OutcomeSection) -> str:
    """How many answers wait for people, and why."""
    if not outcome.review and not outcome.unscored:
        return "No answer waits for a person."
    reasons = [*outcome.review_reasons, *outcome.unscored_reasons]
    named = [f"{say.count(reason.count)}: {reason.name}" for reason in reasons[:_NAMED]]
    remaining = sum(reason.count for reason in reasons[_NAMED:])
    more = [f"{say.count(remaining)} for other reasons"] if remaining else []
    number = outcome.review + outcome.unscored
    return (
        f"{say.plural(number, 'answer')} {'waits' if number == 1 else 'wait'} for a person ({'; '.join(named + more)})."
    )


def next_step(outcome: OutcomeSection, rules: Sequence[Row], study: str | None, has_review: bool) -> str:
    """What to do next, with the command to type: one that does not refuse."""
    if study is None:
        return (
            "Next: write what --model, --url and --beside say into the study file and grade it: review, grades and "
            "feedback read the study as it is written."
        )
    if not rules:
        return f"Next: rubricflow next {study} --to labels.csv proposes the answers that people should score first."
    grades = f"rubricflow grades {study} --to grades.xlsx"
    if (outcome.review or outcome.unscored) and not has_review:
        return f"Next: {grades} lists them; people can review a study whose warehouse is a folder."
    if outcome.review or outcome.unscored:
        return f"Next: rubricflow review {study} opens the page on which people score them; then {grades} lists all."
    return f"Next: {grades} lists them."


def with_table(end: Ending, raters: Sequence[RaterStanding], target: str, doubles: str) -> Ending:
    """The ending with the agreement of the judge, people and baselines with the human score. doubles: a sentence about
    those of the answers that two people scored."""
    by_question = over_questions(raters)
    measure = "QWK, mean over questions" if by_question else "QWK, all as one set"
    title = f"Agreement with '{say.name(target)}' on the same held-out answers ({measure}: 1 is perfect, 0 is chance)"
    rows = []
    for rater in raters:
        shown = rater.mean if by_question else rater.pooled
        figure = "–" if shown.value is None else say.number(shown.value)
        interval = say.interval(shown, "number") or "–"
        rows.append((say.plain(say.visible(rater.name)), figure, interval, say.count(shown.n)))
    title = f"{doubles} {title}".strip()
    return end._replace(title=say.plain(title), rows=tuple(rows))
