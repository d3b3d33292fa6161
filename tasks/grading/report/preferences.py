"""The judge beside people's preferences between two answers, as the report shows it and the command prints it."""

from __future__ import annotations

from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.section import Content, Figure, Fold, Grid, Part, Section, Text, figure_table
from rubricflow.tasks.core.display.table import Rows
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.figures import ALL, Figures

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
    """How often the judge prefers what people prefer, the surest first, and what it is worth beside baselines; None
    without preferences. lost: as in `preference_lines`."""
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
