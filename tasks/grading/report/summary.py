"""What a finished run prints and leaves in Prefect's UI.

Its end: three sentences and a table of who agrees how far. The summary: agreement next to people's on the same answers,
the gates and the release, as rows and as Markdown.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.stats.bootstrap import MARK, is_few
from rubricflow.tasks.core.stats.verdict import margin
from rubricflow.tasks.grading.report.raters import RankedRater, over_questions
from rubricflow.tasks.grading.report.verdict import RunOutcome

TABLE = ("who", "agreement", "95% interval", "answers")
_NAMED = 2
"""Reasons that a sentence names."""


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
    outcome: RunOutcome,
    rules: Rows,
    gates: Rows,
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
    released = say.plain(title if outcome.released else f"{title} {outcome.released_why}".strip())
    return Ending(state, (released, _to_people(outcome), _next_step(outcome, rules, study, has_review)), "", ())


def _to_people(outcome: RunOutcome) -> str:
    """How many answers wait for people, and why."""
    number = outcome.review + outcome.unscored
    if not number:
        return "No answer waits for a person."
    reasons = [*outcome.review_reasons, *outcome.unscored_reasons]
    named = [f"{say.count(reason.count)}: {reason.name}" for reason in reasons[:_NAMED]]
    if remaining := sum(reason.count for reason in reasons[_NAMED:]):
        named.append(f"{say.count(remaining)} for other reasons")
    return f"{say.plural(number, 'answer waits', 'answers wait')} for a person ({'; '.join(named)})."


def _next_step(outcome: RunOutcome, rules: Rows, study: str | None, has_review: bool) -> str:
    """What to do next, with the command to type: one that does not refuse."""
    if study is None:
        return (
            "Next: write what --model, --url and --compare-with say into the study file and grade it: review, grades "
            "and feedback read the study as it is written."
        )
    if not rules:
        return f"Next: rubricflow next {study} --to labels.csv proposes the answers that people should score first."
    grades = f"rubricflow grades {study} --to grades.xlsx"
    if not outcome.review and not outcome.unscored:
        return f"Next: {grades} lists them."
    if not has_review:
        return f"Next: {grades} lists them; people can review a study whose warehouse is a folder."
    return f"Next: rubricflow review {study} opens the page on which people score them; then {grades} lists all."


def with_table(end: Ending, raters: Sequence[RankedRater], target: str, doubles: str) -> Ending:
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


SHOWN = ("qwk", "icc", "mae", "within_1")
STAGES = ("raw", "calib.", "people")
TARGET = "target"
_LONGEST_NAME = 24
_FIXED_WIDTH, _STATISTIC_WIDTH = 49, 22
"""Characters that the columns before the statistics take, and those of one statistic."""
HEADER = (
    "slice",
    "n",
    "unscored",
    "qwk interval",
    *(f"{name} {stage}" for name in SHOWN for stage in STAGES),
)
GATES = ("gate", "estimate", "interval", "n", "should be", "verdict", "labels needed", "if missed")
Lines = Sequence[tuple[str, ...]]


def summary(metrics: pd.DataFrame) -> Lines:
    """Rows of text under `HEADER`, one per slice: the target with the machine, before and after calibration, and people
    with people; the interval is that of the calibrated QWK. A row's figures are of the same answers.

    With several pairs of people their mean is shown. '–' stands for an undefined number, and for one of other answers.
    """
    rows = []
    means = metrics[metrics["metric"] == "standing_qwk_item_mean"]
    metrics = metrics[metrics["metric"].isin(SHOWN)]
    for kind in dict.fromkeys(metrics["slice"]):
        part = metrics[metrics["slice"] == kind]
        rows += [_row(kind, str(value), part[part["value_of"] == value]) for value in dict.fromkeys(part["value_of"])]
    if len(means):
        machine = means.loc[means["stage"] == "raw", "rater_b"].iloc[0]
        is_shown = (means["stage"] == "human") | (means["rater_b"] == machine)
        rows.insert(1, _row("mean over items", "all", means[is_shown].assign(metric="qwk")))
    return rows


def gate_rows(verdicts: pd.DataFrame) -> Lines:
    """Rows of text under `GATES`: those of the whole set and of groups one by one, items and levels counted."""
    is_counted = verdicts["slice"].isin(["item", "level"])
    rows = []
    for gate in verdicts[~is_counted].to_dict("records"):
        part_names = " ".join(name for name in (gate["slice"], gate["value_of"]) if name != "all")
        more, is_count = gate["labels_needed"], gate["gate"] == "doubly_scored"
        row = (
            f"{gate['gate']}: {part_names}" if part_names else gate["gate"],
            f"{gate['estimate']:.0f}" if is_count else _number(gate["estimate"]),
            "–" if is_count else _interval(gate["low"], gate["high"], gate["clusters"]),
            f"{gate['n']:,}",
            _bounds(gate),
            gate["outcome"],
            "" if pd.isna(more) else f"{int(more):,}",
            "" if gate["outcome"] == "pass" else gate["if_missed"],
        )
        rows.append(row)
    for (kind, name), part in verdicts[is_counted].groupby(["slice", "gate"], sort=False):
        gates = part.to_dict("records")
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in part["outcome"].value_counts().items())
        where = f"{name}: {len(part)} {kind}s{_worst(gates)}"
        rows.append((where, "", "", "", _bounds(gates[0]), outcomes, "", ""))
    return rows


def _worst(gates: Rows) -> str:
    """The parts that miss a gate, else those that may, furthest outside its bounds first."""

    def inside(gate: Row) -> float:
        return margin(*(None if pd.isna(gate[name]) else gate[name] for name in ("estimate", "least", "most")))

    for outcome in ("fail", "undecided"):
        if off := sorted((gate for gate in gates if gate["outcome"] == outcome), key=inside):
            shown = [f"{say.cut(gate['value_of'], _LONGEST_NAME)} {_number(gate['estimate'])}" for gate in off[:3]]
            return f"; worst {', '.join(shown)}"
    return ""


def choices(calibrations: pd.DataFrame) -> dict[str, str]:
    """Scope of a mapping -> the method chosen for it, and why."""
    rows = calibrations[["scope", "method", "reason"]].itertuples(index=False)
    return {f"mapping of {scope}": f"{method}: {reason}" for scope, method, reason in rows}


def markdown(title: str, rows: Lines, gates: Lines, facts: Row) -> str:
    """The summary as Markdown: both tables, then the facts of the run."""
    lines = [f"# {title}", "", *_markdown(HEADER, rows), "", *_markdown(GATES, gates), ""]
    return "\n".join([*lines, *(f"- {name}: `{value}`" for name, value in facts.items())])


def _markdown(header: Sequence[str], rows: Lines) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    for row in rows:
        cells = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def show(rows: Lines, gates: Lines, facts: Row) -> None:
    """Print as many of the statistics as the terminal is wide enough for (at least the first), the gates, the facts."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    fitting = max(1, min(len(SHOWN), (console.width - _FIXED_WIDTH) // _STATISTIC_WIDTH))
    columns = len(HEADER) - (len(SHOWN) - fitting) * len(STAGES)
    title = "Agreement with the target on held-out responses, and of people with people"
    console.print(_table(title, HEADER[:columns], rows))
    if fitting < len(SHOWN):
        console.print(f"{', '.join(SHOWN[fitting:])}: in a wider terminal, or in the table metrics")
    if gates:
        columns = len(GATES) if console.width >= 140 else GATES.index("labels needed")
        title = "Gates: flags for a person, decided where the whole interval lies on one side"
        console.print(_table(title, GATES[:columns], gates))
    for name, value in facts.items():
        console.print(f"{name}: {escape(str(value))}", soft_wrap=True, highlight=False)


def opening(run_id: str, warehouse: str, end: Ending) -> str:
    """The head of the summary as Markdown: what came of the run, the judge compared with others, and how to see the
    report. warehouse: its folder."""
    lines = [f"# {end.state}", "", *(f"{_escaped(sentence)}\n" for sentence in end.sentences)]
    if end.rows:
        lines += [f"{_escaped(end.title)}:", "", *_markdown(TABLE, end.rows), ""]
    command = f"rubricflow report {run_id} --warehouse {warehouse} --serve"
    return "\n".join([*lines, f"The whole report: `{command}`", "", ""])


def _escaped(text: str) -> str:
    """A text that Markdown shows as it stands: a name in it is no markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def _table(title: str, header: Sequence[str], rows: Lines) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for index, name in enumerate(header):
        label = name.replace("within_1", "±1").replace(" ", "\n")
        if index == 0 or name == "if missed":
            table.add_column(label, justify="left", min_width=14)
        else:
            table.add_column(label, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*map(escape, row[: len(header)]))
    return table


def _row(kind: str, value: str, part: pd.DataFrame) -> tuple[str, ...]:
    part = part[(part["rater_a"] == TARGET) != (part["stage"] == "human")]
    calibrated = part[part["stage"] == "calibrated"].set_index("metric")
    cells = []
    for metric, stage in product(SHOWN, ("raw", "calibrated", "human")):
        rows = part[(part["metric"] == metric) & (part["stage"] == stage)]
        same = metric in calibrated.index and (rows["n"] == calibrated["n"][metric]).all()
        cells.append(_number(rows["value"].mean()) if same else "–")
    low, high, clusters = (calibrated[name].get("qwk") for name in ("low", "high", "clusters"))
    n, unscored = (str(int(calibrated[name].max())) if len(calibrated) else "0" for name in ("n", "unscored"))
    name = kind if value == "all" else f"{kind} {value}"
    return (name, n, unscored, _interval(low, high, clusters), *cells)


def _interval(low: float | None, high: float | None, clusters: float | None) -> str:
    """0.100…0.900, marked where few clusters were resampled."""
    if low is None or pd.isna(low):
        return "–"
    return f"{_number(low)}…{_number(high)}{MARK if is_few(clusters) else ''}"


def _bounds(gate: Row) -> str:
    has_least, has_most = pd.notna(gate["least"]), pd.notna(gate["most"])
    if has_least and has_most:
        return f"{gate['least']:g}…{gate['most']:g}"
    return f"≥ {gate['least']:g}" if has_least else f"≤ {gate['most']:g}" if has_most else ""


def _number(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{value:.3f}"
