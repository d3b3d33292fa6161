"""Trained arms as people read them: side by side over seeds, with intervals, and the takeaway in a sentence.

What the report of trained arms is made from.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import fmean, stdev
from typing import NamedTuple, get_args

import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.edit import Edit
from rubricflow.tasks.core.contracts.tables.edit import ARMS, TESTED, Arm, Tested
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Bar, Cell, Cells, Panel, Record, Row, Rows, Table, count

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
        rows = defaultdict[tuple[Arm, Arm, Tested, str], list[Row]](list)
        for row in differences.to_pylist():
            rows[row["arm"], row["against"], row["part"], row["metric"]].append(row)
        self._gaps = {key: ArmGap(*key, pooled(of_seeds)) for key, of_seeds in rows.items()}
        self.pairs = list(dict.fromkeys(key[:2] for key in self._gaps))
        """(arm, against), as they are stored."""

    def gap(self, arm: Arm, against: Arm, part: Tested, metric: str) -> ArmGap | None:
        """How far an arm is above another; None where they were not compared."""
        gap = self._gaps.get((arm, against, part, metric))
        if gap is None and (other := self._gaps.get((against, arm, part, metric))):
            gap = other.turned()
        return gap if gap is not None and gap.figure.value is not None else None


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
        measured = {row["arm"] for row in self.rows}
        self.names: tuple[Arm, ...] = tuple(arm for arm in get_args(Arm) if arm in measured)
        """Arms with a row, in the order of the contract."""

    def of_seeds(self, arm: str, part: str, metric: str) -> list[Record]:
        """A row for each seed."""
        key = arm, part, metric
        return [row for row in self.rows if (row["arm"], row["part"], row["metric"]) == key]

    def figure(self, arm: str, part: str, metric: str, digits: int = 2) -> SeedFigure:
        """Mean over seeds, of the intervals' ends too."""
        return pooled(self.of_seeds(arm, part, metric), digits)

    def responses(self, arm: str, part: str) -> int:
        """Responses that its figures rest on, at most."""
        rows = (row for row in self.rows if (row["arm"], row["part"]) == (arm, part) and row["metric"] in METRICS)
        return max((row["n"] for row in rows), default=0)

    def ranked(self, part: str) -> list[Arm]:
        """Arms that have a QWK, the best mean first."""
        means = {arm: self.figure(arm, part, "qwk").value for arm in self.names}
        defined = {arm: -mean for arm, mean in means.items() if mean is not None}
        return sorted(defined, key=defined.__getitem__)


def pooled(rows: Rows, digits: int = 2) -> SeedFigure:
    """Rows of several seeds as one figure: means of values and of the intervals' ends, the values' deviation."""
    defined = [row for row in rows if row["value"] is not None]
    values = [row["value"] for row in defined]
    value, low, high = (_mean([row[name] for row in defined]) for name in ("value", "low", "high"))
    return SeedFigure(
        value,
        low,
        high,
        se=stdev(values) if len(values) > 1 else None,
        digits=digits,
        ends="interval",
        clusters=min((row["n"] for row in defined), default=None),
    )


def _mean(values: list[float | None]) -> float | None:
    """None where one of them has no value."""
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def summary_table(arms: Arms, part: Tested) -> Table:
    """Every arm with every figure on one part of the test split."""
    rows = list[Cells]()
    for arm in arms.names:
        if n := arms.responses(arm, part):
            seeds = count(len(arms.of_seeds(arm, part, "qwk")))
            figures = [arms.figure(arm, part, metric) for metric in METRICS]
            rows.append((ARMS[arm], seeds, *figures, count(n)))
    header = ("Arm", *HEADER[2:])
    return Table(part, TESTED[part].capitalize(), header, rows, tuple(_notes(arms, part)))


def summary_rows(metrics: pa.Table) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one per arm and part of the test split; '–' stands for a figure not known."""
    arms = Arms(metrics)
    rows: list[tuple[str, ...]] = []
    for part in TESTED:
        rows += [(str(row[0]), part, *map(str, row[1:])) for row in summary_table(arms, part).rows]
    return rows


def _notes(arms: Arms, part: Tested) -> Iterator[str]:
    """Why figures are missing, and what was left out: each once, with the arms that it is said of."""
    arms_of_note = defaultdict[tuple[str, str], dict[str, None]](dict)
    for row in arms.rows:
        if row["part"] == part and row["note"] and row["metric"] in METRICS:
            arms_of_note[METRICS[row["metric"]], say.visible(row["note"])][ARMS[row["arm"]]] = None
    everyone = sum(arms.responses(arm, part) > 0 for arm in arms.names)
    for (metric, note), names in arms_of_note.items():
        yield f"{metric}, {'all arms' if len(names) == everyone else ', '.join(names)}: {note}"


def panel(arms: Arms, part: Tested, names: Iterable[Arm]) -> Panel | None:
    """Bars of arms by QWK, with their intervals; None where no arm has one."""
    bars = []
    for arm in names:
        figure = arms.figure(arm, part, "qwk")
        if figure.value is not None:
            bars.append(Bar(ARMS[arm], figure.value, figure.low, figure.high))
    return Panel(f"QWK, {TESTED[part]}", bars) if bars else None


def grid(arms: Arms, part: Tested) -> Table:
    """Table 3: what RL adds, directly on Base and on Edit-SFT."""
    cells = {
        "no RL": ("base", "edit_sft"),
        "GRPO": ("grpo", "grpo_on_edit_sft"),
        "Edit-RL": ("edit_rl_on_base", "edit_rl"),
    }
    rows = list[Cells]()
    for words, pair in cells.items():
        figures = [arms.figure(arm, part, "qwk") for arm in pair]
        if any(figure.value is not None for figure in figures):
            rows.append((words, *figures))
    return Table(f"grid-{part}", f"QWK, {TESTED[part]}", ("RL", "on Base", "on Edit-SFT"), rows)


def listed(arms: Arms, names: Iterable[Arm]) -> str:
    """QWK of some arms, on unseen questions where there are any."""
    for part in ("unseen", "seen"):
        means = {arm: arms.figure(arm, part, "qwk").value for arm in names}
        if words := [f"{ARMS[arm]} {say.number(value)}" for arm, value in means.items() if value is not None]:
            return f"QWK on {TESTED[part]}: {', '.join(words)}"
    return "No QWK"


def sentence(arms: Arms) -> str:
    """The takeaway of the whole report: macro QWK of the last phase trained next to Base, on unseen questions first."""
    clauses, last_phase = list[str](), next((arm for arm in PHASES if arm in arms.names), PHASES[-1])
    for part in ("unseen", "seen"):
        figure, base = (arms.figure(arm, part, "qwk") for arm in (last_phase, "base"))
        if figure.value is not None:
            baseline = f", Base {say.number(base.value)}" if last_phase != "base" and base.value is not None else ""
            clauses.append(f"{say.number(figure.value)} on {TESTED[part]}{baseline}")
    return (
        f"{ARMS[last_phase]} marks with QWK {'; '.join(clauses)}" if clauses else "No arm has a QWK on the test split"
    )


Key = tuple[int, str, int]
"""A sampled rollout of the base policy: seed, response_id, sample."""


@dataclass(frozen=True)
class EditView:
    """What the report is made from: Arrow tables with the columns of tasks/core/contracts/tables/edit.py and
    tables/rules.py."""

    study: str
    run_id: str
    settings: Edit
    metrics: pa.Table
    """Table `arm_metrics`."""
    differences: pa.Table
    """Table `arm_differences`."""
    learning: pa.Table
    policies: pa.Table
    rollouts: pa.Table
    """Without its texts."""
    steps: pa.Table
    separations: pa.Table
    """Empty where the study does not tell kinds of steps apart."""
    revisions: pa.Table
    demonstrations: pa.Table
    faithfulness: pa.Table
    """Table `rule_faithfulness`; empty where the arms were not tested."""
    texts: Mapping[Key, str]
    """Rollout → its text, at least of those that `cases.needs_texts` names."""


# Arms against each other: which differences are larger than their intervals, and which orders are the paper's.


def table(gaps: Gaps, part: Tested) -> Table:
    """Every pair that was compared, with the verdict on its QWK."""
    rows = list[Cells]()
    for arm, against in gaps.pairs:
        figures = {metric: gaps.gap(arm, against, part, metric) for metric in METRICS if metric != "unmarked"}
        if (first := figures["qwk"]) is not None:
            cells = (gap.figure if gap else SeedFigure(None) for gap in figures.values())
            verdict = "not clear"
            if first.is_clear:
                verdict = "clearly ahead" if first.is_better else "clearly behind"
            rows.append((f"{ARMS[arm]} less {ARMS[against]}", *cells, verdict))
    header = ("Arms", *(words for metric, words in METRICS.items() if metric != "unmarked"), "QWK says")
    return Table(f"differences-{part}", TESTED[part].capitalize(), header, rows)


def title(gaps: Gaps) -> str:
    """How many differences in QWK are larger than their intervals."""
    every = [gaps.gap(arm, other, part, "qwk") for part, (arm, other) in product(TESTED, gaps.pairs)]
    is_clear = [gap.is_clear for gap in every if gap]
    differences = say.plural(len(is_clear), "difference")
    return f"{sum(is_clear)} of {differences} in QWK are larger than intervals and seeds leave open"


def takeaway(gaps: Gaps) -> str:
    """Of the paper's comparisons, which differences in QWK are larger than their intervals, in a sentence for each
    part where some were made."""
    sentences = []
    for part, words in TESTED.items():
        compared = [gap for pair in ORDERS if (gap := gaps.gap(*pair, part, "qwk"))]
        ahead = []
        for gap in compared:
            if gap.is_clear:
                better = gap if gap.is_better else gap.turned()
                size = say.number(better.figure.value or 0)
                ahead.append(f"{ARMS[better.arm]} over {ARMS[better.against]} (+{size})")
        unclear = len(compared) - len(ahead)
        others = f"; {say.plural(unclear, 'other')} within their intervals" if unclear else ""
        if ahead:
            sentences.append(f"On {words}: {', '.join(ahead)}{others}.")
        elif compared:
            sentences.append(f"On {words}: none is larger than its interval.")
    return " ".join(sentences)


def orders(gaps: Gaps) -> Table:
    """Which of the paper's orders appear, in QWK; without those of arms that were not compared."""
    rows = []
    for better, worse in ORDERS:
        by_part = [gaps.gap(better, worse, part, "qwk") for part in TESTED]
        if any(by_part):
            verdicts = ("not compared" if gap is None else _appears(gap) for gap in by_part)
            rows.append((f"{ARMS[better]} over {ARMS[worse]}", *verdicts))
    return Table("orders", "Orders that the paper reports, in QWK", ("Order", *TESTED.values()), rows)


def _appears(gap: ArmGap) -> str:
    if gap.is_clear:
        return "appears" if gap.is_better else "turned round"
    return "the same in the mean, not clear" if gap.is_better else "not in the mean, not clear either way"
