"""The summary at the end of a run: agreement before and after calibration beside people's, as rows and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

SHOWN = ("qwk", "icc", "mae", "within_1")
STAGES = ("raw", "calib.", "people")
_FIXED_WIDTH, _STATISTIC_WIDTH = 54, 24
"""Characters that the columns before the statistics take, and those of one statistic."""
HEADER = ("slice", "n", "unscored", "qwk interval", *(f"{name} {stage}" for name in SHOWN for stage in STAGES))


def summary(metrics: pd.DataFrame) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one per slice: the target with the machine, before and after calibration, and people
    with people; the interval is that of the calibrated QWK.

    With several pairs of people their mean is shown. '–' stands for an undefined number.
    """
    rows = []
    for kind in dict.fromkeys(metrics["slice"]):
        part = metrics[metrics["slice"] == kind]
        rows += [_row(kind, str(value), part[part["value_of"] == value]) for value in dict.fromkeys(part["value_of"])]
    means = metrics[metrics["metric"] == "qwk_item_mean"]
    if len(means):
        rows.insert(1, _row("mean over items", "all", means.assign(metric="qwk")))
    return rows


def markdown(title: str, rows: list[tuple[str, ...]], facts: Mapping[str, Any]) -> str:
    """The summary as Markdown: the table, then the facts of the run."""
    lines = [f"# {title}", "", "| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"- {name}: `{value}`" for name, value in facts.items())])


def show(rows: list[tuple[str, ...]], facts: Mapping[str, Any]) -> None:
    """Print as many of the statistics as the terminal is wide enough for (at least the first), then the facts."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    fixed = len(HEADER) - len(SHOWN) * len(STAGES)
    fitting = max(1, min(len(SHOWN), (console.width - _FIXED_WIDTH) // _STATISTIC_WIDTH))
    columns = fixed + fitting * len(STAGES)
    title = "Agreement with the target on held-out responses, and of people with people"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for name in HEADER[:columns]:
        left = name == "slice"
        label = name.replace("within_1", "±1").replace(" ", "\n")
        table.add_column(label, justify="left" if left else "right", no_wrap=not left, min_width=22 if left else None)
    for row in rows:
        table.add_row(*map(escape, row[:columns]))
    console.print(table)
    if fitting < len(SHOWN):
        console.print(f"{', '.join(SHOWN[fitting:])}: in a wider terminal, or in the table metrics")
    for name, value in facts.items():
        console.print(f"{name}: {escape(str(value))}", soft_wrap=True, highlight=False)


def _row(kind: str, value: str, part: pd.DataFrame) -> tuple[str, ...]:
    machine = part[part["rater_a"] == "target"].set_index(["metric", "stage"])
    cells = []
    for metric in SHOWN:
        people = part.loc[(part["metric"] == metric) & (part["stage"] == "human"), "value"]
        cells += [
            *(_number(machine["value"].get((metric, stage))) for stage in ("raw", "calibrated")),
            _number(people.mean()),
        ]
    low, high = (_number(machine[end].get(("qwk", "calibrated"))) for end in ("low", "high"))
    counts = machine.loc[machine.index.get_level_values("stage") == "calibrated", ["n", "unscored"]].max().fillna(0)
    name = kind if value == "all" else f"{kind} {value}"
    return (name, str(int(counts["n"])), str(int(counts["unscored"])), "–" if low == "–" else f"{low}…{high}", *cells)


def _number(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{value:.3f}"
