"""Whether credit rests on quotes, and how far the judge's probabilities of single decisions can be believed."""

from __future__ import annotations

from collections import Counter

from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, QUOTES
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import (
    MOST,
    Columns,
    Figure,
    Fold,
    Grid,
    Part,
    Section,
    Text,
    count_table,
    figure_table,
    left_out,
)
from rubricflow.tasks.core.display.table import Rows
from rubricflow.tasks.grading.report import charts
from rubricflow.tasks.grading.report.figures import Figures

CLOSE = 0.02
"""Gap between confidence and accuracy below which nothing is made of it."""


def evidence_section(quotes: Rows, decisions: Rows, conflicts: Rows, responses: int, figures: Figures) -> Section:
    """What became of the quotes, and which criteria go with people's scores."""
    by_status = {row["status"]: row["n"] for row in quotes}
    every = sum(by_status.values())
    title, missing = "Whether credit is grounded is not known", "this judge took no decision on single criteria"
    parts = []
    if every:
        fates = [(words.capitalize(), by_status.get(status, 0)) for status, words in QUOTES.items()]
        parts += count_table("Quote", [(name, n, n / every) for name, n in fates])
        verified, invented = by_status.get("verified", 0), by_status.get("fabricated")
        title = f"{say.share(verified / every)} of {say.plural(every, 'quote')} stand in the text where they were cited"
        if invented:
            title += f"; {say.plural(invented, 'was', 'were')} invented"
    elif decisions:
        missing = "this judge gave no quotes"
    actions = count_table("Of all decisions", action_counts(decisions, conflicts, responses))
    if actions:
        parts += [Text("Decisions", "h3"), *actions]
    parts += _criteria(figures)
    question = "Evidence: is credit grounded?"
    return Section("evidence", question, title, unknown="" if every else missing, parts=parts)


def action_counts(decisions: Rows, conflicts: Rows, responses: int) -> list[tuple[str, int, float]]:
    """What was done with the decisions, and in how many responses they exclude each other: count and share."""
    decided = sum(row["n"] for row in decisions)
    done = Counter[str]()
    for row in decisions:
        done[row["action"]] += row["n"]
    counts = {words.capitalize(): done[action] for action, words in ACTIONS.items() if action != "none"}
    counts["Credit that asks for no quote"] = sum(row["n"] for row in decisions if row["ungrounded"])
    counts["Criteria without a usable verdict"] = sum(row["n"] for row in decisions if row["unscored"])
    rows = [(name, count, count / decided) for name, count in counts.items()] if decided else []
    name = "Responses in which criteria that exclude each other were found; not both count"
    return [*rows, *((name, row["n"], row["n"] / responses) for row in conflicts)]


def _criteria(figures: Figures) -> list[Part]:
    """Each criterion's correlation with people's scores, alone and given length; the strongest first."""
    criteria = []
    for name in figures.values("criterion_r", "criterion"):
        plain, partial = (figures.any(metric, "criterion", name) for metric in ("criterion_r", "criterion_partial_r"))
        criteria.append((say.name(name), Figure(plain, "signed"), Figure(partial, "signed")))
    criteria.sort(key=lambda row: -abs(row[1].estimate.value or 0.0))
    if not criteria:
        return []
    return [
        Text("Which criteria go with people's scores", "h3"),
        Text(
            "Correlation with the human score, plain and given the length of the response. Where it falls to nothing "
            "given length, the criterion may be measuring length."
        ),
        Grid(("Criterion", "plain", "given length"), criteria[:MOST], "tight narrow"),
        *left_out(criteria, "criteria", "metrics"),
    ]


def decisions_section(figures: Figures) -> Section | None:
    """How far the judge's probabilities of its decisions can be believed, the least confident first; None where there
    is nothing to hold them against."""
    names = figures.values("decision_accuracy", "confidence")
    if not names or figures.machine("decision_ece", "raw").value is None:
        return None
    sure, right = (figures.machine(f"decision_{name}", "raw").value or 0.0 for name in ("confidence", "accuracy"))
    title = f"The judge is {say.share(sure)} sure of its decisions and right in {say.share(right)}"
    if abs(sure - right) > CLOSE:
        title += f": {'surer' if sure > right else 'less sure'} than it is right"
    bins = []
    for name in names:
        confidence = figures.machine("decision_confidence", "raw", "confidence", name).value or 0.0
        bins.append((confidence, figures.machine("decision_accuracy", "raw", "confidence", name)))
    numbers = Grid(
        ("sure", "right", "decisions"),
        [(say.share(confidence), Figure(accuracy, "share"), accuracy.n) for confidence, accuracy in bins],
        "tight narrow",
    )
    rows = [figures.named(metric.name, figures.machine(metric.name, "raw")) for metric in figures.listed("decisions")]
    lead = (
        "Held-out decisions that people marked too, before any quote was looked for, in groups of about equal size by "
        "the probability that the judge gives its likeliest level."
    )
    columns = Columns([[charts.reliability(bins), Fold("Numbers", [numbers])], figure_table(rows)])
    question = "Decisions: are the judge's probabilities right?"
    return Section("decisions", question, title, parts=[Text(lead), columns])
