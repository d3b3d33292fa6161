"""Raters: how far the judge, people and baselines agree with the human score, and who is severe or needs retraining."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.contracts.tables.evaluation import RATER_FLAGS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import (
    MOST,
    Figure,
    Grid,
    Part,
    Section,
    Text,
    left_out,
    unknown_notes,
)
from rubricflow.tasks.core.display.table import Cell, Row, Rows
from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.charts import Dot, ForestRow, forest
from rubricflow.tasks.grading.report.figures import Figures, first_names

MEASURE, OF_ITEMS = "standing_qwk", "standing_qwk_item_mean"
OTHER = "other:"
NO_LABELS = "no held-out response has a human score"
ONE_PERSON = "one person scored; a second one on the same responses would show how far people agree"


class RankedRater(NamedTuple):
    """One rater's agreement with the human score (QWK), on the answers on which all are compared."""

    name: str
    by: str
    """m for the machine, h for people, '' for what they are compared with."""
    pooled: Estimate
    """Of all answers as one set: what differs between questions counts, too."""
    mean: Estimate
    """The mean over questions."""


def rater_ranking(figures: Figures, calibrations: Rows) -> tuple[RankedRater, ...]:
    """The calibrated score, the judge alone, people, other runs, the text and length; nothing without human scores, and
    people only where two scored each of the answers.

    calibrations: rows of the table, which tell what the calibrated score is made of.
    """
    mapped, text = _score_names(calibrations)
    baselines = {"text_only": text, "length": "length alone"}
    raters = figures.raters(OF_ITEMS)
    others = [name for name in raters if name.startswith(OTHER)]
    rows = [(mapped, "m", "calibrated", name) for name in raters if name not in {*others, *baselines}]
    rows.append(("judge alone (raw)", "m", "raw", ""))
    if not doubles(figures, calibrations):
        rows.append(("people with each other", "h", "human", "people"))
    compared = {name: name.removeprefix(OTHER) for name in others} | baselines
    rows += [(words, "", "calibrated", name) for name, words in compared.items()]
    ranked = []
    for name, by, stage, rater in rows:
        pooled, over_items = (figures.rater(metric, rater, stage) for metric in (MEASURE, OF_ITEMS))
        if over_items.n or pooled.n or rater in others:
            ranked.append(RankedRater(name, by, pooled, over_items))
    return tuple(ranked)


def doubles(figures: Figures, calibrations: Rows) -> str:
    """How people agree with each other, and the calibrated score on the same answers, in a sentence; '' where two
    people scored all of them, which then are in the table, or none."""
    for metric, words in ((OF_ITEMS, "QWK, mean over questions"), (MEASURE, "QWK")):
        people, everywhere = figures.rater(metric, "people", "human"), figures.rater(metric, "")
        machines = [name for name in figures.raters(metric, "human") if name != "people"]
        if people.value is None or not machines or people.n == everywhere.n:
            continue
        machine = figures.rater(metric, machines[0], "human").value
        return (
            f"On {say.plural(people.n, 'answer')} that two people scored ({words}): people with each other "
            f"{say.number(people.value)}, {_score_names(calibrations)[0]} "
            f"{say.NOT_KNOWN if machine is None else say.number(machine)}."
        )
    return ""


def over_questions(rows: Sequence[RankedRater]) -> bool:
    """Whether a table of these shows the mean over questions, in every row, or all answers as one set: there is no such
    mean where no question has human scores that differ."""
    return any(row.mean.value is not None for row in rows)


def _score_names(calibrations: Rows) -> tuple[str, str]:
    """What the calibrated score is called, and the baseline without the judge, by what all mappings take together."""
    mapped, text = set[str](), set[str]()
    for row in calibrations:
        content = json.loads(row["content"])
        mapping = content["mapping"] or {}
        mapped |= _parts(mapping) if "blocks" in mapping else {"judge"}
        mapped |= {"question"} if mapping.get("offsets") else set()
        text |= _parts(content["text_only"] or {})
    first, second = (
        " + ".join(part for part in ("judge", "words", "question") if part in parts) for parts in (mapped, text)
    )
    return first if " + " in first else f"{first or 'judge'}, calibrated", f"{second}, no judge"


def _parts(stack: Row) -> set[str]:
    """What a stacked mapping takes, as people call it: every block but two is words."""
    return {{"judge": "judge", "item": "question"}.get(block["name"], "words") for block in stack.get("blocks", ())}


def ranking_parts(ranked: Sequence[RankedRater], doubles: str) -> list[Part]:
    """The ranking as a table for the head of the page; nothing without human scores."""
    if not ranked:
        return []
    header = ("", "mean over questions", "n", "all as one set: questions' means count, too", "n")
    rows = []
    for name, by, pooled, mean in ranked:
        shown = Markup('<span class="{}">{}</span>').format(f"{by} key" if by else "", name)
        rows.append((shown, Figure(mean, by=by), mean.n, Figure(pooled, by=by), pooled.n))
    caption = "Agreement with people (QWK) on the same held-out answers, with 95% intervals"
    return [Grid(header, rows, "tight narrow", caption), *([Text(doubles)] if doubles else [])]


# Severity, by what raters gave the same responses and by the many-facet model.


class _Reason(NamedTuple):
    """The figure that a flag rests on: columns of its row, and how it reads."""

    column: str
    unit: Unit
    words: str


LENIENCY = _Reason("leniency", "signed", "{} steps")
APART = _Reason("discrimination", "number", "discrimination {}")
REASONS = {
    "strict": (LENIENCY,),
    "lenient": (LENIENCY,),
    "erratic": (_Reason("infit", "number", "infit {}"), APART),
    "central": (APART,),
    "halo": (_Reason("halo", "signed", "traits correlate {} more than with other persons' marks"),),
}


def raters_section(figures: Figures, persons: Sequence[str], effects: Rows) -> Section:
    """Severity and spread of each rater on shared responses, the most severe first; then what the many-facet model
    says of the score, and a sentence for each rater with a flag on it or a trait. effects: rows of `rater_effects`."""
    title, missing, parts = _severities(figures, persons)
    flagged = sorted({row["rater_id"] for row in effects if row["flags"]})
    if flagged:
        title = f"{first_names(flagged)} {'needs' if len(flagged) == 1 else 'need'} retraining"
    question = "Raters: who is severe, who needs retraining?"
    return Section("raters", question, title, unknown=missing, parts=[*parts, *_effects(flagged, effects)])


def _severities(figures: Figures, persons: Sequence[str]) -> tuple[str, str, list[Part]]:
    """Title, why there is no answer, and table of severities on shared responses."""
    rows = []
    for name in figures.values("severity", "rater"):
        severity, spread = (figures.any(metric, "rater", name) for metric in ("severity", "sd_ratio"))
        by: Any = "h" if name in persons else "m"
        cells = Figure(severity, "signed", by), Figure(spread)
        rows.append((severity, ForestRow(say.name(name), severity.n, (Dot(severity, by),), cells)))
    if not rows:
        lone = ONE_PERSON if len(persons) == 1 else figures.any("severity").note
        return "Who is severe is not known", lone if persons else NO_LABELS, []
    rows.sort(key=lambda row: (float("inf") if row[0].value is None else row[0].value, row[1].name))
    shown = rows[:MOST]
    parts: list[Part] = [
        Text(
            "Mean difference from the others on shared responses, points, with 95% interval: left is severe. Spread: "
            "the rater's SD over that of the others; well below 1, scores crowd in the middle."
        ),
        forest("Rater", ("severity", "spread"), [row for _, row in shown], band=0),
        *left_out(rows, "raters", "metrics"),
        *unknown_notes(severity for severity, _ in shown),
    ]
    measured = [row for row in rows if row[0].value is not None]
    if not measured:
        return "Who is severe is not known", rows[0][0].note, parts
    (value, low, high, *_), row = max(measured, key=lambda row: abs(row[0].value or 0.0))
    if value is None or low is None or high is None or low <= 0 <= high:
        return "No rater is clearly more severe than the others", "", parts
    word = "below" if value < 0 else "above"
    title = f"{row.name} scores {say.number(abs(value))} points {word} the others on the same responses"
    return title, "", parts


def _effects(flagged: Sequence[str], effects: Rows) -> list[Part]:
    """What the model says of each rater's scores; nothing where it was not fitted."""
    overall = [row for row in effects if row["slice"] == "all" and row["trait"] == ""]
    overall.sort(key=lambda row: (not row["flags"], row["leniency"] is None, row["leniency"] or 0.0, row["rater_id"]))
    if not overall:
        return []
    leniencies = [_estimate(row, "leniency") for row in overall[:MOST]]
    rows = []
    for row, leniency in zip(overall, leniencies, strict=False):
        drifts = [other for other in _periods(effects, row["rater_id"], "") if other["leniency"] is not None]
        drift = max(drifts, key=lambda other: abs(other["leniency"]), default=None)
        halo = _estimate(row, "halo")
        cells = (
            Figure(leniency, "signed", "h"),
            Figure(_estimate(row, "infit")),
            Figure(_estimate(row, "discrimination")),
            Figure(_estimate(drift, "leniency"), "signed", "", say.name(drift["value_of"])) if drift else Cell(None),
            Cell(None) if halo.value is None else Figure(halo, "signed"),
        )
        name, is_flagged = say.name(row["rater_id"]), bool(row["flags"])
        rows.append(ForestRow(name, leniency.n, (Dot(leniency, "h"),), cells, is_flagged))
    heads = ("leniency", "infit", "discrimination", "drift", "halo")
    return [
        Text("By a model of who marked what", "h3"),
        *(Text(_flags_sentence(name, effects), "") for name in flagged),
        Text(
            Markup(
                "Leniency: steps above (left: below) an average rater on the same responses, all scores of the data "
                "taken together. Infit: 1 is as far from the others' marks as chance explains; above, surprising "
                "marks. Discrimination: 1 tells responses apart as the others do; 0, not at all. Drift: the largest "
                "shift of a period (the group variable <code>period</code>). Halo: how much more the rater's traits go "
                "together than with other persons' marks; 0 is none. In bold who needs retraining: a whole interval "
                "lies beyond the limit."
            )
        ),
        forest("Rater", heads, rows, band=0),
        *left_out(overall, "raters", "rater_effects"),
        *unknown_notes(leniencies),
    ]


def _periods(effects: Rows, name: str, trait: str) -> list[Row]:
    return [row for row in effects if (row["rater_id"], row["trait"], row["slice"]) == (name, trait, "period")]


def _flags_sentence(name: str, effects: Rows) -> str:
    """Every flag of a rater in words, with the figure it rests on."""
    clauses = []
    for row in effects:
        for flag in row["flags"] if row["rater_id"] == name else ():
            where = f" on {say.name(row['trait'])}" if row["trait"] else ""
            if flag == "drift":
                worst = max(_periods(effects, name, row["trait"]), key=lambda other: abs(other["leniency"] or 0.0))
                figure = f"{_figure(worst, LENIENCY)} steps in {say.name(worst['value_of'])}"
            else:
                figure = ", ".join(reason.words.format(_figure(row, reason)) for reason in REASONS[flag])
            clauses.append(f"{RATER_FLAGS[flag]}{where}: {figure}")
    return f"{say.name(name)} {'; '.join(clauses)}."


def _figure(row: Row, reason: _Reason) -> str:
    estimate = _estimate(row, reason.column)
    return f"{say.figure(estimate.value or 0.0, reason.unit)} ({say.interval(estimate, reason.unit)})"


def _estimate(row: Row, column: str) -> Estimate:
    low, high = ("low", "high") if column == "leniency" else (f"{column}_low", f"{column}_high")
    return Estimate(row[column], row.get(low), row.get(high), n=row["ratings"], note=row["note"] or "")
