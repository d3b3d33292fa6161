"""Trained arms as people read them: side by side over seeds, with intervals, and the takeaway in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, get_args

import pyarrow as pa

from tasks.contracts.settings.edit import ARMS, Arm
from tasks.contracts.tables.edit import TESTED, Tested
from tasks.display import say
from tasks.display.table import Bar, Cell, Cells, Panel, Table, count

METRICS = {"qwk": "QWK", "accuracy": "accuracy", "within_1": "within 1", "mae": "MAE", "unmarked": "unmarked"}
LOWER = ("mae", "unmarked")
"""Metrics of which less is better."""
HEADER = ("arm", "split", "seeds", *METRICS.values(), "n")
"""Columns of `summary_rows`."""
PHASES: tuple[Arm, ...] = ("edit_rl", "edit_sft", "base")
"""Phases of Edit, the last first."""
ABLATIONS: tuple[Arm, ...] = ("edit_sft", "no_signals", "no_checklist", "no_locality")
"""Table 4."""


class SeedFigure(Cell):
    """A mean over seeds with its 95% interval over responses, and the standard deviation over seeds behind it."""

    __slots__ = ()

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.se is None else f"{text} ± {say.number(self.se, self.digits)}"


class Arms:
    """The rows of `arm_metrics`, by what they measure."""

    def __init__(self, metrics: pa.Table) -> None:
        self.rows = metrics.to_pylist()
        given = {row["arm"] for row in self.rows}
        self.names: tuple[Arm, ...] = tuple(arm for arm in get_args(Arm) if arm in given)
        """Arms with a row, in the order of the contract."""

    def of(self, arm: str, part: str, metric: str) -> list[dict[str, Any]]:
        """A row for each seed."""
        key = arm, part, metric
        return [row for row in self.rows if (row["arm"], row["part"], row["metric"]) == key]

    def figure(self, arm: str, part: str, metric: str, digits: int = 2) -> SeedFigure:
        """Mean over seeds, of the intervals' ends too."""
        return pooled(self.of(arm, part, metric), digits)

    def responses(self, arm: str, part: str) -> int:
        """Responses that its figures rest on, at most."""
        of = (row for row in self.rows if (row["arm"], row["part"]) == (arm, part) and row["metric"] in METRICS)
        return max((row["n"] for row in of), default=0)

    def ranked(self, part: str) -> list[Arm]:
        """Arms that have a QWK, the best mean first."""
        known = {arm: self.figure(arm, part, "qwk").value for arm in self.names}
        return sorted((arm for arm, value in known.items() if value is not None), key=lambda arm: -(known[arm] or 0.0))


def pooled(rows: Sequence[Mapping[str, Any]], digits: int = 2) -> SeedFigure:
    """Rows of several seeds as one figure: means of values and of the intervals' ends, the values' deviation."""
    known = [row for row in rows if row["value"] is not None]
    values = [row["value"] for row in known]
    ends = [None if any(row[end] is None for row in known) else [row[end] for row in known] for end in ("low", "high")]
    low, high = (fmean(of) if of else None for of in ends)
    deviation = stdev(values) if len(values) > 1 else None
    fewest = min((row["n"] for row in known), default=None)
    return SeedFigure(fmean(values) if values else None, low, high, deviation, digits, "interval", fewest)


def summary_table(arms: Arms, part: Tested) -> Table:
    """Every arm with every figure on one part of the test split."""
    rows: list[Cells] = []
    for arm in arms.names:
        if n := arms.responses(arm, part):
            seeds = count(len(arms.of(arm, part, "qwk")))
            rows.append((ARMS[arm], seeds, *(arms.figure(arm, part, metric) for metric in METRICS), count(n)))
    header = ("Arm", *HEADER[2:])
    return Table(part, TESTED[part].capitalize(), header, tuple(rows), tuple(_notes(arms, part)))


def summary_rows(metrics: pa.Table) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one per arm and part of the test split; '–' stands for a figure not known."""
    arms = Arms(metrics)
    tables = {part: summary_table(arms, part) for part in TESTED}
    return [(str(row[0]), part, *map(str, row[1:])) for part, table in tables.items() for row in table.rows]


def _notes(arms: Arms, part: Tested) -> Iterator[str]:
    """Why figures are missing, and what was left out: each once, with the arms that it is said of."""
    said: dict[tuple[str, str], list[str]] = {}
    for row in arms.rows:
        if row["part"] == part and row["note"] and row["metric"] in METRICS:
            of = said.setdefault((METRICS[row["metric"]], say.visible(row["note"])), [])
            of += [] if ARMS[row["arm"]] in of else [ARMS[row["arm"]]]
    everyone = sum(1 for arm in arms.names if arms.responses(arm, part))
    for (metric, note), of in said.items():
        yield f"{metric}, {'all arms' if len(of) == everyone else ', '.join(of)}: {note}"


def panel(arms: Arms, part: Tested, of: Iterable[Arm], metric: str = "qwk") -> Panel | None:
    """Bars of arms with their intervals; None where no arm has the figure."""
    figures = {arm: arms.figure(arm, part, metric) for arm in of}
    bars = [Bar(ARMS[arm], one.value, one.low, one.high) for arm, one in figures.items() if one.value is not None]
    return Panel(f"{METRICS[metric]}, {TESTED[part]}", tuple(bars)) if bars else None


def grid(arms: Arms, part: Tested) -> Table:
    """Table 3: what RL adds, directly on Base and on Edit-SFT."""
    cells = {
        "no RL": ("base", "edit_sft"),
        "GRPO": ("grpo", "grpo_on_edit_sft"),
        "Edit-RL": ("edit_rl_on_base", "edit_rl"),
    }
    rows: list[Cells] = []
    for words, pair in cells.items():
        figures = [arms.figure(arm, part, "qwk") for arm in pair]
        if any(one.value is not None for one in figures):
            rows.append((words, *figures))
    return Table(f"grid-{part}", f"QWK, {TESTED[part]}", ("RL", "on Base", "on Edit-SFT"), tuple(rows))


def listed(arms: Arms, of: Iterable[Arm]) -> str:
    """QWK of some arms, on unseen questions where there are any."""
    for part in ("unseen", "seen"):
        known = {arm: arms.figure(arm, part, "qwk").value for arm in of}
        told = [f"{ARMS[arm]} {say.number(value)}" for arm, value in known.items() if value is not None]
        if told:
            return f"QWK on {TESTED[part]}: {', '.join(told)}"
    return "No QWK"


def sentence(arms: Arms) -> str:
    """The takeaway of the whole report: macro QWK of the last phase trained beside Base, on unseen questions first."""
    told, mine = list[str](), next((arm for arm in PHASES if arm in arms.names), PHASES[-1])
    for part in ("unseen", "seen"):
        figure, base = (arms.figure(arm, part, "qwk") for arm in (mine, "base"))
        if figure.value is not None:
            beside = f", Base {say.number(base.value)}" if mine != "base" and base.value is not None else ""
            told.append(f"{say.number(figure.value)} on {TESTED[part]}{beside}")
    return f"{ARMS[mine]} marks with QWK {'; '.join(told)}" if told else "No arm has a QWK on the test split"
