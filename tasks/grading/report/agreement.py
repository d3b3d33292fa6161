"""How far machine, people and baselines agree with the human score, and which raters are severe or need retraining; and
the judge compared with people's preferences between two answers, as the report shows it and the command prints it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from markupsafe import Markup

from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.evaluation import RATER_FLAGS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import Axis
from rubricflow.tasks.core.display.page import (
    MOST,
    Content,
    Figure,
    Fold,
    Grid,
    Named,
    Part,
    Section,
    Text,
    figure_table,
    left_out,
    long_list,
    unknown_notes,
)
from rubricflow.tasks.core.display.table import Cell, Row, Rows
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.charts import Dot, ForestRow, forest, forest_axis
from rubricflow.tasks.grading.report.figures import ALL, Figures

OTHER = "other:"
NO_LABELS = "no held-out response has a human score"
WIDE_GAP = 0.1
"""QWK below people's from which an item is in bold: the flag for degradation."""
TOGETHER = ("alpha_ordinal", "reliability", "ceiling_qwk", "prmse", "qwk_true", "r_true")
"""Figures of people together, and of the machine with people's true score."""
MACHINE, PEOPLE, WORDS = "this judge", "people with each other", "words alone"


class RankedRater(NamedTuple):
    """One rater's agreement with the human score (QWK), on the answers on which all are compared."""

    name: str
    by: str
    """m for the machine, h for people, '' for what they are compared with."""
    agreement: Estimate


class Ranking(NamedTuple):
    """Who agrees how far with the human score, people first."""

    raters: tuple[RankedRater, ...]
    measure: str
    """QWK, mean over questions; or of all answers as one set, where no question has human scores that differ."""
    doubles: str
    """How people and machine compare on the answers that two people scored, where these are not all; '' otherwise."""

    @property
    def top(self) -> list[RankedRater]:
        """The four rows of the first screen: people, unless they are compared on other answers, the machine, the
        strongest other run or length, words alone."""
        by_name = {rater.name: rater for rater in self.raters}
        names = (MACHINE, WORDS) if self.doubles else (PEOPLE, MACHINE, WORDS)
        first = [by_name.get(name, RankedRater(name, "", Estimate(None))) for name in names]
        rest = [rater for rater in self.raters if rater.by == "" and rater.name != WORDS]
        others = [rater for rater in rest if rater.name != "length alone"] or rest
        strongest = sorted(others, key=lambda rater: -(rater.agreement.value or 0.0))[:1]
        return [*first[:-1], *strongest, first[-1]]

    @property
    def sentence(self) -> str:
        """The first rows in one line, for terminals; '' without human scores."""
        known = [rater for rater in self.top if rater.agreement.value is not None]
        if not known:
            return ""
        shown = ", ".join(f"{say.plain(rater.name)} {say.number(rater.agreement.value or 0.0)}" for rater in known)
        return f"Agreement with people ({self.measure}): {shown}."


def ranking_of(figures: Figures) -> Ranking:
    """People, the calibrated score, the judge before calibration, other runs, words and length; no rater without human
    scores."""
    names = figures.raters("standing_qwk_item_mean")
    by_question = any(figures.rater("standing_qwk_item_mean", name).value is not None for name in names)
    metric = "standing_qwk_item_mean" if by_question else "standing_qwk"
    baselines = {"text_only": WORDS, "length": "length alone"}
    others = {name: name.removeprefix(OTHER) for name in names if name.startswith(OTHER)}
    mapped = [name for name in names if name not in others | baselines]
    doubles = _doubles(figures, metric)
    rows = [] if doubles else [(PEOPLE, "h", "human", "people")]
    rows += [(MACHINE, "m", "calibrated", name) for name in mapped[:1]]
    rows += [("judge before calibration", "m", "raw", "")]
    rows += [(words, "", "calibrated", name) for name, words in (others | baselines).items()]
    ranked = [RankedRater(words, by, figures.rater(metric, name, stage)) for words, by, stage, name in rows]
    found = tuple(rater for rater in ranked if rater.agreement.n)
    measure = "QWK, mean over questions" if by_question else "QWK, all answers as one set"
    return Ranking(found if mapped else (), measure, doubles)


def _doubles(figures: Figures, metric: str) -> str:
    people = figures.rater(metric, "people", "human")
    everywhere = figures.rater(metric, "")
    machines = [name for name in figures.raters(metric, "human") if name != "people"]
    if people.value is None or not machines or people.n == everywhere.n:
        return ""
    machine = figures.rater(metric, machines[0], "human").value
    shown = say.NOT_KNOWN if machine is None else say.number(machine)
    return (
        f"On {say.plural(people.n, 'answer')} that two people scored, people agree with each other at "
        f"{say.number(people.value)}, this judge with people at {shown}."
    )


def made_of(calibrations: Rows) -> str:
    """What the calibrated score takes, as people call it: judge + words + question."""
    parts = {"judge"}
    for row in calibrations:
        mapping = json.loads(row["content"])["mapping"] or {}
        names = {"judge": "judge", "item": "question"}
        parts |= {names.get(block["name"], "words") for block in mapping.get("blocks", ())}
        parts |= {"question"} if mapping.get("offsets") else set()
    return " + ".join(part for part in ("judge", "words", "question") if part in parts)


def top_table(ranking: Ranking, is_log: bool) -> list[Part]:
    """The first rows of the ranking on one axis, for the head of the page; nothing without human scores. is_log: words
    alone are left out where they are not known, as a log may hold no answers."""
    if not ranking.raters:
        return []
    top = [row for row in ranking.top if not is_log or row.name != WORDS or row.agreement.value is not None]
    parts: list[Part] = [_ranked_table(top, ranking.measure)]
    return [*parts, Text(ranking.doubles, "note")] if ranking.doubles else parts


def _ranked_table(raters: Sequence[RankedRater], measure: str) -> Grid:
    rows = []
    for name, by, estimate in raters:
        shown = Markup('<span class="{} key">{}</span>').format(by, name) if by else name
        dots = (Dot(estimate, "m" if by == "m" else "h" if by == "h" else "c"),)
        rows.append(ForestRow(shown, 0, dots, (Figure(estimate, by=by),)))
    n = max(rater.agreement.n for rater in raters)
    caption = f"Agreement with people on {say.plural(n, 'held-out answer')} ({measure}), 95% intervals"
    return replace(forest("", ("QWK",), rows, forest_axis(rows)), caption=caption)


class SliceComparison(NamedTuple):
    """One slice: the machine with the target, people with each other, and what the words alone reach."""

    name: str
    machine: Estimate
    people: Estimate
    words: Estimate

    @property
    def gap(self) -> float:
        """How far the machine is below people; without people, −∞, so that the row comes after those with them."""
        if self.machine.value is None or self.people.value is None:
            return float("-inf")
        return self.people.value - self.machine.value


def compared(figures: Figures, part: str) -> list[SliceComparison]:
    """Items or types, the largest gap first."""
    rows = []
    for value in figures.values("qwk", part):
        machine = figures.machine("qwk", "calibrated", part, value)
        people = figures.people("qwk", part, value, machine.n)
        words = figures.any("text_qwk", part, value)
        words = words if words.n == machine.n else Estimate(None, note="of other answers")
        rows.append(SliceComparison(say.name(value), machine, people, words))
    return sorted(rows, key=lambda row: (-row.gap, 2.0 if row.machine.value is None else row.machine.value, row.name))


def agreement_section(figures: Figures, ranking: Ranking, labelled: int) -> Section:
    """The machine next to a second person, by question and type, and before and after calibration."""
    items, types = compared(figures, "item"), compared(figures, "type")
    has_words = any(row.words.value is not None for row in items)
    lines = _compared_rows(items, has_words)
    of_types = _compared_rows(types if len(types) > 1 else [], False)
    on = forest_axis([*lines, *of_types])
    parts = []
    if items:
        lead = "Calibrated scores of held-out answers, before any is withheld; the largest gap first. Bold: at least "
        parts += [Text(f"{lead}{WIDE_GAP:.2f} QWK below people."), *_compared_table(lines, on, "Question", has_words)]
        parts += unknown_notes(chain.from_iterable((row.machine, row.people) for row in items[:MOST]))
    if of_types:
        parts.append(Fold("By type of question", _compared_table(of_types, on, "Type", False)))
    if len(ranking.raters) > len(ranking.top):
        parts.append(Fold("All baselines", [_ranked_table(ranking.raters, ranking.measure)]))
    rows = list[tuple[Content, ...]]()
    for metric in figures.listed("agreement"):
        if figures.values(metric.name, ALL):
            raw, after, out = (figures.machine(metric.name, stage) for stage in ("raw", "calibrated", "released"))
            shown = zip((figures.people(metric.name, on=after.n), raw, after, out), ("h", "", "m", ""), strict=True)
            rows.append((metric.title, *(Figure(estimate, metric.unit, by) for estimate, by in shown)))
    if rows:
        stages = (Named(name, "m key") for name in ("before calibration", "after", "released"))
        table: list[Part] = [Grid(("", Named("people", "h key"), *stages), rows, "stack")]
        table += figure_table([figures.named(name, figures.any(name)) for name in TOGETHER])
        parts.append(Fold("All figures of agreement, before and after calibration", table))
    title = _agreement_title(figures, ranking) if labelled else "Whether machine and people agree is not known"
    why = "" if labelled else NO_LABELS
    return Section("agreement", "Agreement: as good as a second person?", title, unknown=why, parts=parts)


def _compared_rows(rows: Sequence[SliceComparison], has_words: bool) -> list[ForestRow]:
    lines = []
    for row in rows:
        cells = Figure(row.machine, by="m"), Figure(row.people, by="h"), *([Figure(row.words)] if has_words else [])
        dots = Dot(row.people, "h"), Dot(row.machine, "m")
        lines.append(ForestRow(row.name, row.machine.n, dots, cells, row.gap >= WIDE_GAP))
    return lines


def _compared_table(rows: Sequence[ForestRow], on: Axis, first: str, has_words: bool) -> list[Part]:
    heads: list[str | Named] = [
        Named("machine", "m key"),
        Named("people", "h key"),
        *(["words alone"] if has_words else []),
    ]
    return long_list(forest(first, heads, rows, on), "rows", "metrics", "more, the smaller gaps")


def worst_item(figures: Figures) -> str:
    """What to say of the item furthest below people, where it is in bold and one of several; '' otherwise."""
    items = compared(figures, "item")
    if len(items) < 2 or items[0].gap < WIDE_GAP:
        return ""
    name, machine, people, _ = items[0]
    return f"{name} agrees at {say.number(machine.value or 0)} QWK where people reach {say.number(people.value or 0)}"


def _agreement_title(figures: Figures, ranking: Ranking) -> str:
    by_name = {rater.name: rater.agreement.value for rater in ranking.raters}
    machine, people, worst = by_name.get(MACHINE), by_name.get(PEOPLE), worst_item(figures)
    if worst or machine is None:
        return worst or "How far the machine agrees with people is not known"
    start = f"The machine agrees with people at {say.number(machine)} ({ranking.measure})"
    if people is None:
        return f"{start}; how far people agree on the same answers is not known"
    return f"{start}, people with each other at {say.number(people)}"


# Raters: severity on shared responses, or by the many-facet model where it is fitted.


def raters_section(figures: Figures, persons: Sequence[str], effects: Rows) -> Section:
    """Severity of each rater, those who need retraining first. effects: rows of `rater_effects`."""
    question = "Raters: who is severe, who needs retraining?"
    overall = [row for row in effects if row["slice"] == "all" and row["trait"] == ""]
    if overall:
        flagged = sorted({row["rater_id"] for row in effects if row["flags"]})
        title = "No rater needs retraining"
        if flagged:
            more = f" and {len(flagged) - 3} more" if len(flagged) > 3 else ""
            names = ", ".join(map(say.name, flagged[:3]))
            title = f"{names}{more} {'needs' if len(flagged) == 1 else 'need'} retraining"
        sentences = [Text(_flags_sentence(name, effects), "") for name in flagged]
        return Section("raters", question, title, parts=[*sentences, *_effects(overall, effects)])
    rows = []
    for name in figures.values("severity", "rater"):
        severity = figures.any("severity", "rater", name)
        cells = Figure(severity, "signed"), Figure(figures.any("sd_ratio", "rater", name))
        rows.append(ForestRow(say.name(name), severity.n, (Dot(severity, "h" if name in persons else "m"),), cells))
    if not rows:
        why = "one person scored; a second one on the same responses would show how far people agree"
        return Section("raters", question, "Who is severe is not known", unknown=why if persons else NO_LABELS)
    rows.sort(key=lambda row: (row.dots[0].estimate.value or 0.0, row.name))
    lead = "Mean difference from the others on shared responses, in points: left is severe. Spread: SD over theirs."
    shown = [forest("Rater", ("severity", "spread"), rows[:MOST], forest_axis(rows, 0), 0)]
    notes = unknown_notes(row.dots[0].estimate for row in rows)
    parts = [Text(lead), *shown, *left_out(rows, "raters", "metrics"), *notes]
    return Section("raters", question, "How severe each rater is", parts=parts)


def _effects(overall: Rows, effects: Rows) -> list[Part]:
    """What the model says of each rater's scores."""
    ordered = sorted(overall, key=lambda row: (not row["flags"], row["leniency"] or 0.0, row["rater_id"]))
    rows = []
    for row in ordered[:MOST]:
        leniency = _effect(row, "leniency")
        of_rater = [other for other in effects if (other["rater_id"], other["slice"]) == (row["rater_id"], "period")]
        drifts = [other for other in of_rater if other["trait"] == "" and other["leniency"] is not None]
        drift = max(drifts, key=lambda other: abs(other["leniency"]), default=None)
        cells = (
            Figure(leniency, "signed", "h"),
            *(Figure(_effect(row, column)) for column in ("infit", "discrimination")),
            Figure(_effect(drift, "leniency"), "signed", "", say.name(drift["value_of"])) if drift else Cell(None),
            Cell(None) if row["halo"] is None else Figure(_effect(row, "halo"), "signed"),
        )
        rows.append(ForestRow(say.name(row["rater_id"]), leniency.n, (Dot(leniency, "h"),), cells, bool(row["flags"])))
    lead = Markup(
        "Leniency: steps above or below an average rater on the same responses. Infit: 1 is as far from the others' "
        "marks as chance explains. Discrimination: 1 tells responses apart as the others do, 0 not at all. Drift: the "
        "largest shift of a period (the group <code>period</code>). Halo: how much more a rater's own traits agree "
        "with each other than with other raters' marks. Bold: needs retraining, as an interval is beyond the limit."
    )
    heads = ("leniency", "infit", "discrimination", "drift", "halo")
    table = forest("Rater", heads, rows, forest_axis(rows, 0), 0)
    return [Text(lead), table, *left_out(overall, "raters", "rater_effects")]


def _flags_sentence(name: str, effects: Rows) -> str:
    """Every flag of a rater in words; the figures that they rest on stand in the table."""
    flags = [(flag, row) for row in effects for flag in row["flags"] if row["rater_id"] == name]
    clauses = [f"{RATER_FLAGS[flag]}{' on ' + say.name(row['trait']) if row['trait'] else ''}" for flag, row in flags]
    return f"{say.name(name)} {'; '.join(clauses)}."


def _effect(row: Row, column: str) -> Estimate:
    low, high = ("low", "high") if column == "leniency" else (f"{column}_low", f"{column}_high")
    return Estimate(row[column], row.get(low), row.get(high), n=row["ratings"], note=row["note"] or "")


ACCURACY, CHOSEN = "pair_accuracy", "pair_chosen"
_OF_SAMPLE = (ACCURACY, "pair_verdict", "pair_agreed", "pair_agreed_share")


def preference_lines(figures: Figures, lost: Rows) -> list[str]:
    """What the command prints, a line for each figure with its interval and number; none without preferences. lost:
    reason, number and number of all comparisons of those without a verdict."""
    if not figures.values(ACCURACY, ALL):
        return []
    lines = []
    for metric in figures.listed("preferences"):
        if figures.values(metric.name, ALL):
            found = figures.machine(metric.name, "raw")
            lines.append(f"{metric.title}: {_words(found)}" + (f" ({found.note})" if found.note else "") + ".")
    covered = [(value, figures.machine(ACCURACY, "raw", "coverage", value)) for value in _values(figures, "coverage")]
    if covered:
        shown = ", ".join(f"{_words(found)} of the surest {value}" for value, found in covered)
        lines.append(f"Right where it is sure: {shown}.")
    return ["Pairs of which people prefer one answer:", *lines, *_lost(lost)]


def preference_section(figures: Figures, lost: Rows) -> Section | None:
    """How often the judge prefers what people prefer, the surest first, and what it is worth compared with baselines;
    None without preferences. lost: as in `preference_lines`."""
    if not figures.values(ACCURACY, ALL):
        return None
    listed = [metric for metric in figures.listed("preferences") if figures.values(metric.name, ALL)]
    parts: list[Part] = figure_table([figures.named(of.name, figures.machine(of.name, "raw")) for of in listed])
    for part, head in (("coverage", "The surest"), ("type", "Type")):
        rows = [
            (value, Figure(figures.machine(ACCURACY, "raw", part, value), "share")) for value in _values(figures, part)
        ]
        if rows:
            parts.append(Grid((head, "right"), rows, "tight narrow"))
    titles = [figures.metrics[name].title for name in _OF_SAMPLE]
    lines: list[tuple[Content, ...]] = [
        (value, *(Figure(figures.machine(name, "raw", "sample", value), "share") for name in _OF_SAMPLE))
        for value in _values(figures, "sample")
    ]
    if lines:
        parts.append(Fold("Every sample by itself", [Grid(("Sample", *titles), lines, "stack")]))
    parts += [Text(line, "note") for line in _lost(lost)]
    parts.append(Text("Intervals are over questions; who does not choose is right by half.", "note"))
    best = CHOSEN if figures.values(CHOSEN, ALL) else ACCURACY
    found, length = (figures.machine(name, "raw") for name in (best, "pair_length"))
    title = "No pair has a verdict"
    if found.value is not None:
        title = f"It prefers what people prefer in {say.share(found.value)} of {say.count(found.n)} pairs"
        title += f"; the longer answer does in {say.share(length.value)}" if length.value is not None else ""
    return Section("preferences", "Preferences: does it choose as people do?", title, parts=parts)


def _lost(lost: Rows) -> list[str]:
    """Comparisons without a verdict, in a sentence; none where every one has one."""
    if not lost:
        return []
    whys = "; ".join(f"{say.count(row['n'])}: {UNSCORED_REASONS[row['reason']]}" for row in lost)
    every = sum(row["n"] for row in lost)
    return [f"Without a verdict: {say.count(every)} of {say.plural(lost[0]['asked'], 'comparison')} ({whys})."]


def _values(figures: Figures, part: str) -> list[str]:
    return sorted(figures.values(ACCURACY, part), key=lambda value: (len(value), value))


def _words(found: Estimate) -> str:
    """.875 [.836, .910], n 288."""
    if found.value is None:
        return say.NOT_KNOWN
    ends = "" if found.low is None or found.high is None else f" [{_three(found.low)}, {_three(found.high)}]"
    return f"{_three(found.value)}{ends}, n {found.n:,}"


def _three(value: float) -> str:
    return f"{value:.3f}".removeprefix("0") if value < 1 else f"{value:.3f}"
