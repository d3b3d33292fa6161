"""Trained graders as people read them: side by side over seeds, by concept and by setting; what becomes of the grade
when concepts are set; and how concepts hang together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.settings.methods import METHODS, Training
from rubricflow.tasks.core.contracts.tables.bottleneck import GRADE_METRICS, INTERVENTIONS, ORDERS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.charts import ChartLine, ChartPoint
from rubricflow.tasks.core.display.table import Cell, Cells, Table, count

HUMAN = "human"


class GraderColumn(NamedTuple):
    """A figure of every grader."""

    metric: str
    criterion_id: str
    words: str


CONCEPTS = GraderColumn("concept_macro_f1", "all", "concept macro-F1")
MACRO_F1 = GraderColumn("task_macro_f1", "", "macro-F1")
QWK = GraderColumn("task_qwk", "", "QWK")
ECE = GraderColumn("task_ece", "", "ordinal ECE")
COLUMNS = (
    GraderColumn("concept_accuracy", "all", "concept accuracy"),
    CONCEPTS,
    GraderColumn("task_accuracy", "", "accuracy"),
    MACRO_F1,
    QWK,
    ECE,
)
HEADER = ("grader", "seeds", *(column.words for column in COLUMNS), "n")
"""Columns of `summary_rows`."""
SWEPT = (CONCEPTS, MACRO_F1, QWK)
"""Columns of a sweep."""
READ = {"concept_accuracy": "accuracy", "concept_macro_f1": "macro-F1", "concept_qwk": "QWK"}
"""How a concept is read."""


class Graders:
    """The rows of `trials` of the test split, by what they measure; figures are of the study's own settings, unless a
    setting is named. order: of the trained methods."""

    def __init__(self, trials: pa.Table, order: Sequence[str] = tuple(METHODS)) -> None:
        rows = trials.to_pandas()
        self.rows = rows[rows["split"] == "test"]
        known = self.rows[self.rows["value"].notna()].set_index("seed")
        groups = known.groupby(["method", "metric", "criterion_id", "setting"])["value"]
        self._values: dict[Any, pd.Series[float]] = dict(list(groups))
        self.own = self.rows[self.rows["setting"] == ""]
        measured = set(self.own["method"])
        self.trained = [name for name in dict.fromkeys((*order, *METHODS)) if name in measured]
        """Methods with a row."""
        self.judges = sorted(measured - {*self.trained, HUMAN})
        """Raters that were judged or recorded."""
        self.everyone = [*self.trained, *([HUMAN] if HUMAN in measured else []), *self.judges]

    @property
    def main(self) -> str:
        """The grader that the report is about, which is the one exported; '' where none was trained."""
        return self.trained[0] if self.trained else ""

    def values(self, method: str, column: GraderColumn, setting: str = "") -> pd.Series[float]:
        """The figure of each seed."""
        key = method, column.metric, column.criterion_id, setting
        return self._values.get(key, pd.Series(dtype=float))

    def cell(self, method: str, column: GraderColumn, setting: str = "") -> Cell:
        """Mean and standard deviation over seeds; of people over pairs of persons."""
        values = self.values(method, column, setting)
        if values.empty:
            return Cell(None)
        spread = float(values.std()) if len(values) > 1 else None
        return Cell(float(values.mean()), se=spread, ends="se")

    def best(self, column: GraderColumn, among: Sequence[str]) -> str | None:
        """The grader with the highest mean; None where none has the figure."""
        means = {name: self.cell(name, column).value for name in among}
        known = {name: mean for name, mean in means.items() if mean is not None}
        return max(known, key=lambda name: known[name]) if known else None


def grader_name(method: str) -> str:
    """A method in words; a rater's id as a name."""
    if method == HUMAN:
        return "one person against another"
    return dict[str, str](METHODS).get(method) or say.name(method)


def sentence(graders: Graders) -> str:
    """The takeaway of the whole report: quadratic weighted kappa (QWK) of the first method and the best other one,
    compared seed by seed."""
    main = graders.main
    values = graders.values(main, QWK)
    if values.empty:
        return "No trained grader has an agreement with people on the test split"
    words = f"{grader_name(main)} grades with QWK {_short(graders.cell(main, QWK))}"
    best = graders.best(QWK, [name for name in graders.trained if name != main])
    if best:
        gaps = (values - graders.values(best, QWK)).dropna()
        verdict = "one seed shows no spread"
        if len(gaps) > 1:
            verdict = "within the spread of seeds"
            if abs(gaps.mean()) > gaps.std():
                verdict = f"{'ahead' if gaps.mean() > 0 else 'behind'} by more than the spread of seeds"
        words += f"; {grader_name(best)} {_short(graders.cell(best, QWK))}: {verdict}"
    ceiling = graders.cell(HUMAN, QWK)
    return words if ceiling.value is None else f"{words}; one person agrees with another {_short(ceiling)}"


def _short(cell: Cell) -> str:
    return str(cell._replace(digits=2))


def best_graders(graders: Graders) -> str:
    """Who has the highest mean agreement with people."""
    clauses = []
    for column in (QWK, MACRO_F1, CONCEPTS):
        best = graders.best(column, graders.trained)
        if best:
            clauses.append(f"{grader_name(best)} in {column.words}")
    return f"Highest mean: {'; '.join(clauses)}" if clauses else "No trained grader has a figure"


def summary_table(graders: Graders) -> Table:
    """Every grader with every figure, and why figures are missing."""
    rows = list[Cells]()
    for name in graders.everyone:
        own = graders.own[graders.own["method"] == name]
        seeds = count(own["seed"].nunique()) if name in graders.trained else Cell(None)
        shown = own[own["metric"].isin([column.metric for column in COLUMNS])]
        responses = count(int(shown["n"].max()) if len(shown) else 0)
        rows.append((grader_name(name), seeds, *(graders.cell(name, column) for column in COLUMNS), responses))
    notes = []
    for column in COLUMNS:
        of_column = (graders.own["metric"] == column.metric) & (graders.own["criterion_id"] == column.criterion_id)
        missing = graders.own[of_column & graders.own["value"].isna()].fillna({"note": "not known why"})
        for (method, why), seeds in missing.groupby(["method", "note"]).size().items():
            reason = f"undefined for {say.plural(seeds, 'seed')} ({say.visible(why)})"
            notes.append(f"{grader_name(method)}, {column.words}: {reason}")
    header = ("Grader", *HEADER[1:])
    return Table("graders", "Graders on the test split: mean ± standard deviation over seeds", header, rows, notes)


def summary_rows(trials: pa.Table) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one per grader; '–' stands for a figure that is not known."""
    return [tuple(say.plain(str(cell)) for cell in row) for row in summary_table(Graders(trials)).rows]


def concept_table(graders: Graders, names: Mapping[str, str]) -> Table:
    """How well each concept is read by the first grader, and by people. names: criterion → what people read."""
    rows = list[Cells]()
    for criterion, name in names.items():
        columns = [GraderColumn(metric, criterion, words) for metric, words in READ.items()]
        cells = [graders.cell(grader, column) for column, grader in product(columns, (graders.main, HUMAN))]
        if any(cell.value is not None for cell in cells[::2]):
            rows.append((say.name(name), *cells))
    header = ["Concept", *(words + whose for words, whose in product(READ.values(), ("", ", people")))]
    return Table("concepts", f"How {grader_name(graders.main)} reads each concept", header, rows)


def leakage_table(graders: Graders) -> Table:
    """What leaks through the concepts of each grader."""
    leaks = graders.own[graders.own["metric"].str.startswith("leakage_")]
    rows = []
    for (metric, criterion, method), own in leaks.groupby(["metric", "criterion_id", "method"]):
        note = own["note"].dropna()
        cell = graders.cell(method, GraderColumn(metric, criterion, ""))
        rows.append((say.worded(metric), grader_name(method), cell, say.visible(note.iloc[0] if len(note) else "")))
    header = ("What", "of", "value", "note of the first seed")
    return Table("leakage", "Leakage: mean ± standard deviation over seeds", header, rows)


def questions_table(graders: Graders) -> Table:
    """What the questions of each order buy when they are asked over the whole set."""
    rows = list[Cells]()
    for order, words in ORDERS.items():
        cells = [graders.cell(graders.main, column) for column in saving_columns(order)]
        if any(cell.value is not None for cell in cells):
            rows.append((words, *cells))
    header = ("Order", "accuracy, mean over budgets", "share of the questions for 90% of the gain")
    return Table("asked", "Questions asked one at a time over the whole set, the weightiest first", header, rows)


def saving_columns(order: str) -> tuple[GraderColumn, GraderColumn]:
    """Mean accuracy over budgets, and share of the questions for most of the gain."""
    return GraderColumn(f"saving_area_{order}", "", order), GraderColumn(f"saving_questions_{order}", "", order)


def sweep_tables(graders: Graders, training: Training) -> Iterator[Table]:
    """The figures by the value of every setting that was changed. training: the study's."""
    changed = graders.rows[graders.rows["setting"] != ""]
    fields = changed["setting"].map(lambda setting: setting.partition("=")[0])
    for (method, field), own in changed.groupby([changed["method"], fields], sort=False):
        settings = {float(setting.partition("=")[2]): setting for setting in own["setting"].unique()}
        study_value = getattr(training, field, None)
        if study_value is not None:
            settings[float(study_value)] = ""
        rows = list[Cells]()
        for value, setting in sorted(settings.items()):
            cells = [graders.cell(method, column, setting) for column in SWEPT]
            rows.append((say.level(value) + ("" if setting else " (the study's)"), *cells))
        if study_value is None:
            rows.append(("none (the study's)", *(graders.cell(method, column) for column in SWEPT)))
        words = say.name(say.worded(field))
        header = (words, *(column.words for column in SWEPT))
        yield Table(f"sweep-{field}", f"{grader_name(method)} by {words}", header, rows)


WEAK = 0.3
"""REC-CBM, appendix E.6: a partial correlation below counts as weak."""


def curves(interventions: pa.Table) -> tuple[str, pd.DataFrame]:
    """The metric that is shown, the first of `GRADE_METRICS` that was measured, and its rows pooled over seeds: method,
    kind, order, asked; means of value, change and of the ends of its interval, deviation of the change over seeds, n.
    """
    rows = interventions.to_pandas().dropna(subset=["value", "change"])
    metric = next((name for name in GRADE_METRICS if name in set(rows["metric"])), "")
    groups = rows[rows["metric"] == metric].groupby(["method", "kind", "order", "asked"])
    pooled = groups[["value", "change"]].mean()
    pooled[["low", "high"]] = groups[["low", "high"]].agg(lambda ends: ends.mean(skipna=False))
    pooled["sd"], pooled["n"] = groups["change"].std(), groups["n"].min()
    pooled = pooled.astype(object).where(pooled.notna(), None)
    return metric, pooled.reset_index()


def kind_lines(points: pd.DataFrame, method: str) -> list[ChartLine]:
    """One line for each kind, in the paper's order of asking, with the interval of its change."""
    lines = []
    for kind, words in INTERVENTIONS.items():
        curve = _curve(points, method, kind, "confidence")
        # The interval is of the change: it lies around the figure before any concept is set.
        unset = curve["value"] - curve["change"]
        ends = zip(curve["asked"], curve["value"], curve["low"], curve["high"], unset, strict=True)
        placed = []
        for asked, value, low, high, before in ends:
            known = asked and low is not None and high is not None
            interval = (before + low, min(1.0, before + high)) if known else ()
            placed.append(ChartPoint(float(asked), value, *interval))
        if placed:
            lines.append(ChartLine(words, tuple(placed)))
    return lines


def order_lines(points: pd.DataFrame, method: str) -> list[ChartLine]:
    """One line for each order of asking, of right answers."""
    lines = []
    for order, words in ORDERS.items():
        curve = _curve(points, method, "oracle", order)
        if len(curve):
            pairs = zip(curve["asked"], curve["value"], strict=True)
            lines.append(ChartLine(words, tuple(ChartPoint(float(asked), value) for asked, value in pairs)))
    return lines


def _curve(points: pd.DataFrame, method: str, kind: str, order: str) -> pd.DataFrame:
    of_curve = (points["method"] == method) & (points["kind"] == kind) & (points["order"] == order)
    return points[of_curve]


def kind_table(points: pd.DataFrame, metric: str) -> Table:
    """The change once every concept is set, of each method and kind."""
    last = points[points["order"] == "confidence"].groupby(["method", "kind"], as_index=False, sort=False).last()
    rows = []
    for row in last.to_dict("records"):
        change = Cell(row["change"], row["low"], row["high"], ends="interval", clusters=row["n"])
        words = grader_name(row["method"]), INTERVENTIONS[row["kind"]]
        rows.append((*words, count(row["asked"]), Cell(row["value"]), change, Cell(row["sd"]), count(row["n"])))
    header = ("Grader", "concepts", "set", GRADE_METRICS[metric], "change [95%]", "sd over seeds", "n")
    return Table("interventions", "Once all concepts are set", header, rows)


def kind_takeaway(points: pd.DataFrame, method: str, metric: str) -> str:
    """What right answers gain and wrong ones cost, by the interval of the change."""
    clauses = []
    for kind, words in (("oracle", "right levels"), ("wrong", "the most damaging ones")):
        for last in _curve(points, method, kind, "confidence").to_dict("records")[-1:]:
            low, high = last["low"], last["high"]
            is_sure = low is not None and high is not None and not low <= 0 <= high
            clauses.append(f"{words} {say.signed(last['change'])}{'' if is_sure else ' (not told from 0)'}")
    return f"{grader_name(method)}, {GRADE_METRICS[metric]} once all are set: {', '.join(clauses)}"


# How concepts hang together: correlations of their labels, and what the grader's precision leaves of them.


def of_first_seed(links: pa.Table, method: str) -> pa.Table:
    """The rows of a method's first seed."""
    rows = links.filter(pc.field("method") == method)
    return rows.filter(pc.equal(rows["seed"], pc.min(rows["seed"])))


def link_takeaway(links: pa.Table) -> str:
    """How many links are left."""
    partial = links["partial_correlation"].to_pylist()
    weak = sum(abs(value) < WEAK for value in partial)
    pairs = say.plural(len(partial), "pair")
    return f"{say.count(weak)} of {pairs} of concepts are linked weakly or not at all (|r| < {WEAK}) given all others"


def link_table(links: pa.Table, names: Mapping[str, str]) -> Table:
    """Above the diagonal how labels go together, below it what is left given all other concepts.

    links: of one grader; names: concept → what people read, in order.
    """
    places = [*names]
    found = dict[tuple[str, str], float | None]()
    for row in links.to_pylist():
        first, second = sorted((row["a"], row["b"]), key=places.index)
        found[first, second], found[second, first] = row["label_correlation"], row["partial_correlation"]
    rows = list[Cells]()
    for number, name in enumerate(names, 1):
        correlations = [Cell(found.get((name, other)), digits=2) for other in names]
        rows.append((f"{number} {say.name(names[name])}", *correlations))
    header = ("Concept", *(str(number) for number in range(1, len(names) + 1)))
    return Table("links", "Correlations: above the diagonal of labels, below it given all others", header, rows)
