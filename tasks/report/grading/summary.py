"""The summary at the end of a run: agreement beside people's and its ceiling, the gates and the release, as rows and as
Markdown."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tasks.display import say
from tasks.report.grading.ending import TABLE, Ending
from tasks.stats.bootstrap import MARK, is_few
from tasks.stats.verdict import margin

SHOWN = ("qwk", "icc", "mae", "within_1")
ALONE = ("ceiling_qwk", "length_qwk")
"""What a perfect judge would reach, and what length alone does."""
STAGES = ("raw", "calib.", "people")
_NAMED, _LONGEST_NAME = 3, 24
_FIXED_WIDTH, _STATISTIC_WIDTH, _LENGTH_WIDTH = 57, 22, 7
"""Characters that the columns before the statistics take, those of one statistic, and that of length alone."""
HEADER = (
    "slice",
    "n",
    "unscored",
    "qwk interval",
    "ceiling",
    *(f"{SHOWN[0]} {stage}" for stage in STAGES),
    "length alone",
    *(f"{name} {stage}" for name in SHOWN[1:] for stage in STAGES),
)
GATES = ("gate", "estimate", "interval", "n", "should be", "verdict", "labels needed", "if missed")
Rows = list[tuple[str, ...]]


def summary(metrics: pd.DataFrame) -> Rows:
    """Rows of text under `HEADER`, one per slice: the target with the machine, before and after calibration, and people
    with people; the interval is that of the calibrated QWK, the ceiling what a perfect judge would reach.

    With several pairs of people their mean is shown. '–' stands for an undefined number.
    """
    rows = []
    metrics = metrics[metrics["metric"].isin([*SHOWN, *ALONE, *(f"{name}_item_mean" for name in ("qwk", *ALONE))])]
    for kind in dict.fromkeys(metrics["slice"]):
        part = metrics[metrics["slice"] == kind]
        rows += [_row(kind, str(value), part[part["value_of"] == value]) for value in dict.fromkeys(part["value_of"])]
    means = metrics[metrics["metric"] == "qwk_item_mean"]
    if len(means):
        ceilings = metrics[(metrics["metric"] == "ceiling_qwk") & (metrics["slice"] == "item")]
        lengths = metrics[metrics["metric"] == "length_qwk_item_mean"].assign(metric="length_qwk")
        over_items = pd.concat([means.assign(metric="qwk"), ceilings, lengths])
        rows.insert(1, _row("mean over items", "all", over_items))
    return rows


def gate_rows(verdicts: pd.DataFrame) -> Rows:
    """Rows of text under `GATES`: those of the whole set and of groups one by one, items and levels counted."""
    single = verdicts[~verdicts["slice"].isin(["item", "level"])]
    rows = []
    for gate in single.to_dict("records"):
        parts = [name for name in (gate["slice"], gate["value_of"]) if name != "all"]
        rows.append((": ".join(filter(None, (gate["gate"], " ".join(parts)))), *_gate(gate)))
    for (kind, name), part in verdicts[verdicts["slice"].isin(["item", "level"])].groupby(
        ["slice", "gate"], sort=False
    ):
        counts = part["outcome"].value_counts()
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        where = f"{name}: {len(part)} {kind}s{_worst(part.to_dict('records'))}"
        rows.append((where, "", "", "", _bounds(part.iloc[0].to_dict()), said, "", ""))
    return rows


def _inside(gate: Mapping[Any, Any]) -> float:
    """How far inside its bounds a gate's estimate lies."""
    return margin(*(None if pd.isna(gate[name]) else gate[name] for name in ("estimate", "least", "most")))


def _worst(gates: Sequence[Mapping[Any, Any]]) -> str:
    """The parts that miss a gate, else those that may, furthest off first."""
    for outcome in ("fail", "undecided"):
        off = sorted((gate for gate in gates if gate["outcome"] == outcome), key=_inside)
        if off:
            shown = [f"{say.cut(gate['value_of'], _LONGEST_NAME)} {_number(gate['estimate'])}" for gate in off[:_NAMED]]
            return f"; worst {', '.join(shown)}"
    return ""


def choices(calibrations: pd.DataFrame) -> dict[str, str]:
    """Scope of a mapping -> the method chosen for it, and why."""
    return {
        f"mapping of {row['scope']}": f"{row['method']}: {row['reason']}" for row in calibrations.to_dict("records")
    }


def markdown(title: str, rows: Rows, gates: Rows, facts: Mapping[str, Any]) -> str:
    """The summary as Markdown: both tables, then the facts of the run."""
    lines = [f"# {title}", "", *_markdown(HEADER, rows), "", *_markdown(GATES, gates), ""]
    return "\n".join([*lines, *(f"- {name}: `{value}`" for name, value in facts.items())])


def _markdown(header: Sequence[str], rows: Rows) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]


def show(rows: Rows, gates: Rows, facts: Mapping[str, Any]) -> None:
    """Print as many of the statistics as the terminal is wide enough for (at least the first), the gates, the facts."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    room = console.width - _FIXED_WIDTH - _LENGTH_WIDTH
    fitting = max(1, min(len(SHOWN), room // _STATISTIC_WIDTH))
    columns = len(HEADER) - (len(SHOWN) - fitting) * len(STAGES) - (room < _STATISTIC_WIDTH)
    title = "Agreement with the target on held-out responses, and of people with people"
    console.print(_table(title, HEADER[:columns], rows))
    if fitting < len(SHOWN):
        console.print(f"{', '.join(SHOWN[fitting:])}: in a wider terminal, or in the table metrics")
    if gates:
        columns = len(GATES) if console.width >= 140 else GATES.index("labels needed")
        console.print(
            _table(
                "Gates: flags for a person, decided where the whole interval lies on one side", GATES[:columns], gates
            )
        )
    for name, value in facts.items():
        console.print(f"{name}: {escape(str(value))}", soft_wrap=True, highlight=False)


def opening(run_id: str, house: str, told: Ending) -> str:
    """The head of the summary as Markdown: what came of the run, the judge beside others, and how to see the report.
    house: the warehouse's folder."""
    lines = [f"# {told.state}", "", *(f"{_escaped(sentence)}\n" for sentence in told.sentences)]
    if told.rows:
        lines += [f"{_escaped(told.title)}:", "", *_markdown(TABLE, list(told.rows)), ""]
    return "\n".join([*lines, f"The whole report: `rubricflow report {run_id} --warehouse {house} --serve`", "", ""])


def _escaped(text: str) -> str:
    """A text that Markdown shows as it stands: a name in it is no markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", text)


def _table(title: str, header: Sequence[str], rows: Rows) -> Table:
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for at, name in enumerate(header):
        wide = at == 0 or name == "if missed"
        label = name.replace("within_1", "±1").replace(" ", "\n")
        table.add_column(label, justify="left" if wide else "right", no_wrap=not wide, min_width=14 if wide else None)
    for row in rows:
        table.add_row(*map(escape, row[: len(header)]))
    return table


def _row(kind: str, value: str, part: pd.DataFrame) -> tuple[str, ...]:
    machine = part[part["rater_a"] == "target"].set_index(["metric", "stage"])
    cells = []
    for metric in SHOWN:
        people = part.loc[(part["metric"] == metric) & (part["stage"] == "human"), "value"]
        cells += [
            *(_number(machine["value"].get((metric, stage))) for stage in ("raw", "calibrated")),
            _number(people.mean()),
        ]
    interval = _interval(*(machine[name].get(("qwk", "calibrated")) for name in ("low", "high", "clusters")))
    counts = machine.loc[machine.index.get_level_values("stage") == "calibrated", ["n", "unscored"]].max().fillna(0)
    name = kind if value == "all" else f"{kind} {value}"
    ceiling, length = (_number(part.loc[part["metric"] == name, "value"].mean()) for name in ALONE)
    cells.insert(len(STAGES), length)
    return (name, str(int(counts["n"])), str(int(counts["unscored"])), interval, ceiling, *cells)


def _gate(gate: Mapping[Any, Any]) -> tuple[str, ...]:
    more = gate["labels_needed"]
    counted = gate["gate"] == "doubly_scored"
    return (
        f"{gate['estimate']:.0f}" if counted else _number(gate["estimate"]),
        "–" if counted else _interval(gate["low"], gate["high"], gate["clusters"]),
        f"{gate['n']:,}",
        _bounds(gate),
        gate["outcome"],
        "" if pd.isna(more) else f"{int(more):,}",
        "" if gate["outcome"] == "pass" else gate["if_missed"],
    )


def _interval(low: float | None, high: float | None, clusters: float | None) -> str:
    """0.100…0.900, marked where few clusters were resampled."""
    if low is None or pd.isna(low):
        return "–"
    return f"{_number(low)}…{_number(high)}{MARK if is_few(clusters) else ''}"


def _bounds(gate: Mapping[Any, Any]) -> str:
    least, most = gate["least"], gate["most"]
    if not pd.isna(least) and not pd.isna(most):
        return f"{least:g}…{most:g}"
    return f"≥ {least:g}" if not pd.isna(least) else f"≤ {most:g}" if not pd.isna(most) else ""


def _number(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{value:.3f}"
