"""The summary at the end of a run: agreement before and after calibration beside people's, as rows and as Markdown."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

SHOWN = ("qwk", "icc", "mae", "within_1")
STAGES = ("raw", "calibrated", "people")
HEADER = ("slice", "n", "unscored", *(f"{name} {stage}" for name in SHOWN for stage in STAGES))


def summary(metrics: pd.DataFrame, slices: tuple[str, ...] = ("all", "type", "item")) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`: the target with the machine, before and after calibration, and people with people.

    With several human pairs the human figure is their mean. '–' stands for an undefined number.
    """
    rows = []
    for kind in slices:
        part = metrics[metrics["slice"] == kind]
        for value in dict.fromkeys(part["value_of"]):
            rows.append(_row(kind, str(value), part[part["value_of"] == value]))
    if (metrics["metric"] == "qwk_item_mean").any():
        means = metrics[metrics["metric"] == "qwk_item_mean"].assign(metric="qwk")
        rows.insert(1, _row("mean over items", "all", means))
    return rows


def markdown(title: str, rows: list[tuple[str, ...]], facts: Mapping[str, Any]) -> str:
    """The summary as Markdown: the table, then the facts of the run."""
    lines = [f"# {title}", "", "| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([*lines, "", *(f"- {name}: `{value}`" for name, value in facts.items())])


def show(rows: list[tuple[str, ...]], facts: Mapping[str, Any]) -> None:
    """Print the summary, then the facts."""
    table = Table(title="Agreement with the target on held-out responses, and of people with people", title_justify="left")
    for name in HEADER:
        left = name == "slice"
        table.add_column(name.replace(" ", "\n"), justify="left" if left else "right", no_wrap=not left, max_width=28)
    for row in rows:
        table.add_row(*map(escape, row))
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    for name, value in facts.items():
        console.print(f"{name}: {escape(str(value))}", soft_wrap=True, highlight=False)


def _row(kind: str, value: str, part: pd.DataFrame) -> tuple[str, ...]:
    name = kind if value == "all" else f"{kind} {value}"
    cells = []
    for metric in SHOWN:
        of = part[part["metric"] == metric]
        machine = of[of["rater_a"] == "target"].set_index("stage")["value"]
        cells += [_number(machine.get("raw")), _number(machine.get("calibrated"))]
        cells.append(_number(of.loc[of["stage"] == "human", "value"].mean()))
    target = part[(part["rater_a"] == "target") & (part["stage"] == "calibrated")]
    n, unscored = (int(target[column].max()) if len(target) else 0 for column in ("n", "unscored"))
    return (name, str(n), str(unscored), *cells)


def _number(value: float | None) -> str:
    return "–" if value is None or pd.isna(value) else f"{value:.3f}"
