"""Arms against each other: which differences are larger than their intervals, and which orders are the paper's."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from tasks.contracts.settings.edit import ARMS, Arm
from tasks.contracts.tables.edit import TESTED, Tested
from tasks.display import say
from tasks.display.table import Cells, Table
from tasks.report.edit.figures import LOWER, METRICS, SeedFigure, pooled

ORDERS: tuple[tuple[Arm, Arm], ...] = (
    ("edit_sft", "base"),
    ("edit_rl", "base"),
    ("edit_rl", "edit_sft"),
    ("edit_rl", "grpo"),
    ("edit_rl", "dgpo"),
    ("edit_rl", "int_rl"),
    ("edit_sft", "int_sft"),
    ("edit_rl", "grpo_on_edit_sft"),
    ("edit_rl", "edit_rl_on_base"),
    ("edit_sft", "no_signals"),
    ("edit_sft", "no_checklist"),
    ("edit_sft", "no_locality"),
)
"""Which arm the paper has ahead of which (Tables 1-4, QWK of its larger sets)."""


class ArmGap(NamedTuple):
    """How far an arm is above another."""

    arm: Arm
    against: Arm
    part: Tested
    metric: str
    figure: SeedFigure
    """Mean difference over seeds, its paired interval, and the deviation over seeds."""

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero and the seeds vary less than the difference."""
        value, low, high, sd = self.figure[:4]
        if value is None or low is None or high is None:
            return False
        return (low > 0 or high < 0) and (sd is None or abs(value) > sd)

    @property
    def is_better(self) -> bool:
        """Whether the arm does better by the mean."""
        value = self.figure.value or 0.0
        return value < 0 if self.metric in LOWER else value > 0

    def turned(self) -> ArmGap:
        """The same difference seen from the other arm."""
        value, low, high = (None if end is None else -end for end in self.figure[:3])
        figure = self.figure._replace(value=value, low=high, high=low)
        return self._replace(arm=self.against, against=self.arm, figure=figure)


class Gaps:
    """The rows of `arm_differences`, pooled over seeds."""

    def __init__(self, differences: pa.Table) -> None:
        rows: dict[tuple[Arm, Arm, Tested, str], list[dict[str, float]]] = {}
        for row in differences.to_pylist():
            rows.setdefault((row["arm"], row["against"], row["part"], row["metric"]), []).append(row)
        self._gaps = {key: ArmGap(*key, pooled(of_seeds)) for key, of_seeds in rows.items()}
        self.pairs = list(dict.fromkeys(key[:2] for key in self._gaps))
        """(arm, against), as they are stored."""

    def gap(self, arm: Arm, against: Arm, part: Tested, metric: str) -> ArmGap | None:
        """How far an arm is above another; None where they were not compared."""
        gap = self._gaps.get((arm, against, part, metric))
        if gap is None and (other := self._gaps.get((against, arm, part, metric))):
            gap = other.turned()
        return gap if gap is not None and gap.figure.value is not None else None


def table(gaps: Gaps, part: Tested) -> Table:
    """Every pair that was compared, with the verdict on its QWK."""
    rows: list[Cells] = []
    for arm, against in gaps.pairs:
        figures = {metric: gaps.gap(arm, against, part, metric) for metric in METRICS if metric != "unmarked"}
        if (first := figures["qwk"]) is not None:
            cells = (gap.figure if gap else SeedFigure(None) for gap in figures.values())
            rows.append((f"{ARMS[arm]} less {ARMS[against]}", *cells, _verdict(first)))
    header = ("Arms", *(words for metric, words in METRICS.items() if metric != "unmarked"), "QWK says")
    return Table(f"differences-{part}", TESTED[part].capitalize(), header, tuple(rows))


def title(gaps: Gaps) -> str:
    """How many differences in QWK are larger than their intervals."""
    differences: list[ArmGap] = []
    for part in TESTED:
        differences += [gap for pair in gaps.pairs if (gap := gaps.gap(*pair, part, "qwk"))]
    clear = sum(gap.is_clear for gap in differences)
    return (
        f"{clear} of {say.plural(len(differences), 'difference')} in QWK are larger than intervals and seeds leave open"
    )


def takeaway(gaps: Gaps) -> str:
    """Of the paper's comparisons, which differences in QWK are larger than their intervals, in a sentence for each
    part."""
    return " ".join(filter(None, (_sentence(gaps, part) for part in TESTED)))


def orders(gaps: Gaps) -> Table:
    """Which of the paper's orders appear, in QWK; without those of arms that were not compared."""
    rows: list[Cells] = []
    for better, worse in ORDERS:
        by_part = [gaps.gap(better, worse, part, "qwk") for part in TESTED]
        if any(by_part):
            verdicts = ("not compared" if gap is None else _appears(gap) for gap in by_part)
            rows.append((f"{ARMS[better]} over {ARMS[worse]}", *verdicts))
    return Table("orders", "Orders that the paper reports, in QWK", ("Order", *TESTED.values()), tuple(rows))


def _appears(gap: ArmGap) -> str:
    if gap.is_clear:
        return "appears" if gap.is_better else "turned round"
    return "the same in the mean, not clear" if gap.is_better else "not in the mean, not clear either way"


def _sentence(gaps: Gaps, part: Tested) -> str:
    """Which arms are clearly ahead of which on a part, of the paper's comparisons; '' where none was made."""
    compared = [gap for pair in ORDERS if (gap := gaps.gap(*pair, part, "qwk"))]
    if not compared:
        return ""
    clear = [gap if gap.is_better else gap.turned() for gap in compared if gap.is_clear]
    if not clear:
        return f"On {TESTED[part]}: none is larger than its interval."
    unclear = len(compared) - len(clear)
    others = f"; {say.plural(unclear, 'other')} within their intervals" if unclear else ""
    return f"On {TESTED[part]}: {', '.join(map(_advantage, clear))}{others}."


def _advantage(gap: ArmGap) -> str:
    return f"{ARMS[gap.arm]} over {ARMS[gap.against]} (+{say.number(gap.figure.value or 0)})"


def _verdict(gap: ArmGap) -> str:
    if not gap.is_clear:
        return "not clear"
    return "clearly ahead" if gap.is_better else "clearly behind"
