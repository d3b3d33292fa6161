"""Trained graders as people read them: side by side over seeds, by concept and by setting, and the takeaway."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from statistics import fmean, stdev
from typing import NamedTuple

import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.bottleneck import METHODS, Training
from rubricflow.tasks.core.contracts.tables.bottleneck import ORDERS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cell, Cells, Row, Table, count

HUMAN = "human"
MARK = "★"
SAVING, LEAKAGE = "saving_", "leakage_"
"""How the metrics begin that tell what questions buy, and what concepts leak."""


class GraderColumn(NamedTuple):
    """A figure of every grader."""

    metric: str
    criterion_id: str
    words: str
    higher: bool = True
    """Whether more is better."""


CONCEPTS = GraderColumn("concept_macro_f1", "all", "concept macro-F1")
ACCURACY = GraderColumn("task_accuracy", "", "accuracy")
MACRO_F1 = GraderColumn("task_macro_f1", "", "macro-F1")
QWK = GraderColumn("task_qwk", "", "QWK")
ECE = GraderColumn("task_ece", "", "ordinal ECE", higher=False)
COLUMNS = (GraderColumn("concept_accuracy", "all", "concept accuracy"), CONCEPTS, ACCURACY, MACRO_F1, QWK, ECE)
HEADER = ("grader", "seeds", *(column.words for column in COLUMNS), "n")
"""Columns of `summary_rows`."""
SWEPT = (CONCEPTS, MACRO_F1, QWK)
"""Columns of a sweep."""
Seeds = Mapping[int, float]
"""Seed → figure."""


class Best(Cell):
    """A figure that is ahead of the next by more than the spread of the seeds."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"{super().__str__()} {MARK}"


class GraderGap(NamedTuple):
    """The mean difference of two graders over the seeds that both have, and its standard deviation."""

    mean: float
    sd: float

    @property
    def is_clear(self) -> bool:
        """Whether it is more than its own spread."""
        return abs(self.mean) > self.sd


class Graders:
    """The rows of `trials`, by what they measure. Figures are of the test split and of the study's own settings, unless
    a setting is named. order: of the trained methods."""

    def __init__(self, trials: pa.Table, order: Sequence[str] = tuple(METHODS)) -> None:
        self.rows = [row for row in trials.to_pylist() if row["split"] == "test"]
        self._values = defaultdict[tuple[str, str, str, str], dict[int, float]](dict)
        for row in self.rows:
            if row["value"] is not None:
                self._values[row["method"], row["metric"], row["criterion_id"], row["setting"]][row["seed"]] = row[
                    "value"
                ]
        measured = {row["method"] for row in self.rows if not row["setting"]}
        self.trained = tuple(name for name in dict.fromkeys((*order, *tuple(METHODS))) if name in measured)
        """Methods with a row."""
        self.judges = tuple(sorted(measured - set(self.trained) - {HUMAN}))
        """Raters that were judged or recorded."""
        people = (HUMAN,) if HUMAN in measured else ()
        self.everyone = (*self.trained, *people, *self.judges)

    def values(self, method: str, column: GraderColumn, setting: str = "") -> Seeds:
        """The figure of each seed."""
        return self._values[method, column.metric, column.criterion_id, setting]

    def cell(self, method: str, column: GraderColumn, setting: str = "") -> Cell:
        """Mean and standard deviation over seeds; of people over pairs of persons."""
        values = list(self.values(method, column, setting).values())
        spread = stdev(values) if len(values) > 1 else None
        return Cell(fmean(values) if values else None, se=spread, ends="se")

    def gap(self, method: str, other: str, column: GraderColumn) -> GraderGap | None:
        """How far one is above another, paired by seed; None for fewer than two seeds that both have."""
        values, other_values = self.values(method, column), self.values(other, column)
        differences = [values[seed] - other_values[seed] for seed in values.keys() & other_values.keys()]
        return GraderGap(fmean(differences), stdev(differences)) if len(differences) > 1 else None

    def ranked(self, column: GraderColumn) -> list[str]:
        """The trained graders that have the figure, the best mean first."""
        means = {name: self.cell(name, column).value for name in self.trained}
        defined = {name: mean for name, mean in means.items() if mean is not None}
        return sorted(defined, key=lambda name: defined[name], reverse=column.higher)

    def best(self, column: GraderColumn) -> str | None:
        """The trained grader that is ahead of the next by more than the spread of the seeds; None where none is."""
        ranked = self.ranked(column)
        gap = self.gap(ranked[0], ranked[1], column) if len(ranked) > 1 else None
        return ranked[0] if gap is not None and gap.is_clear else None

    def responses(self, method: str) -> int:
        """Responses that its figures in `COLUMNS` rest on, at most."""
        shown = {column.metric for column in COLUMNS}
        return max((row["n"] for row in self._own(method) if row["metric"] in shown), default=0)

    def seeds(self, method: str) -> int:
        """Seeds that it has rows of."""
        return len({row["seed"] for row in self._own(method)})

    def _own(self, method: str) -> list[Row]:
        """Its rows of the study's own settings."""
        return [row for row in self.rows if row["method"] == method and not row["setting"]]


def grader_name(method: str) -> str:
    """A method in words; a rater's id as a name."""
    if method == HUMAN:
        return "one person against another"
    return dict[str, str](METHODS).get(method) or say.name(method)


def main_grader(graders: Graders) -> str:
    """The grader that the report is about, which is the one exported; '' where none was trained."""
    return graders.trained[0] if graders.trained else ""


def sentence(graders: Graders) -> str:
    """The takeaway of the whole report: quadratic weighted kappa (QWK) of the first method and the best other one."""
    main = main_grader(graders)
    if not graders.values(main, QWK):
        return "No trained grader has an agreement with people on the test split"
    words = f"{grader_name(main)} grades with QWK {_short(graders.cell(main, QWK))}"
    others = [name for name in graders.ranked(QWK) if name != main]
    if others:
        best = others[0]
        gap = graders.gap(main, best, QWK)
        verdict = "one seed shows no spread" if gap is None else "within the spread of seeds"
        if gap is not None and gap.is_clear:
            verdict = f"{'ahead' if gap.mean > 0 else 'behind'} by more than the spread of seeds"
        words += f"; {grader_name(best)} {_short(graders.cell(best, QWK))}: {verdict}"
    ceiling = graders.cell(HUMAN, QWK)
    return words if ceiling.value is None else f"{words}; one person agrees with another {_short(ceiling)}"


def _short(cell: Cell) -> str:
    return str(cell._replace(digits=2))


def summary_table(graders: Graders) -> Table:
    """Every grader with every figure."""
    best = {column: graders.best(column) for column in COLUMNS}
    rows = list[Cells]()
    for name in graders.everyone:
        marked = ((Best if name == ahead else Cell)(*graders.cell(name, column)) for column, ahead in best.items())
        seeds = count(graders.seeds(name)) if name in graders.trained else Cell(None)
        rows.append((grader_name(name), seeds, *marked, count(graders.responses(name))))
    header = ("Grader", *HEADER[1:])
    return Table("graders", "Graders on the test split: mean ± standard deviation over seeds", header, rows)


def summary_rows(trials: pa.Table) -> list[tuple[str, ...]]:
    """Rows of text under `HEADER`, one per grader; '–' stands for a figure that is not known."""
    return [tuple(say.plain(str(cell)) for cell in row) for row in summary_table(Graders(trials)).rows]


def notes(graders: Graders) -> Iterator[str]:
    """Why figures of the summary are missing."""
    shown = {(column.metric, column.criterion_id): column.words for column in COLUMNS}
    missing = Counter[tuple[str, str, str]]()
    for row in graders.rows:
        words = shown.get((row["metric"], row["criterion_id"]))
        if words and row["value"] is None and not row["setting"]:
            missing[row["method"], words, say.visible(row["note"] or "not known why")] += 1
    for (method, words, why), seeds in missing.items():
        yield f"{grader_name(method)}, {words}: undefined for {say.plural(seeds, 'seed')} ({why})"


def concept_table(graders: Graders, names: Mapping[str, str]) -> Table:
    """How well each concept is read by the first grader, and by people. names: criterion → what people read."""
    main = main_grader(graders)
    shown = {"concept_accuracy": "accuracy", "concept_macro_f1": "macro-F1", "concept_qwk": "QWK"}
    header = ["Concept", *(words + whose for words, whose in product(shown.values(), ("", ", people")))]
    rows = list[Cells]()
    for criterion, name in names.items():
        columns = [GraderColumn(metric, criterion, words) for metric, words in shown.items()]
        cells = [graders.cell(grader, column) for column, grader in product(columns, (main, HUMAN))]
        if any(cell.value is not None for cell in cells[::2]):
            rows.append((say.name(name), *cells))
    return Table("concepts", f"How {grader_name(main)} reads each concept", header, rows)


def other_table(graders: Graders, of_leakage: bool) -> Table:
    """Figures that the other tables do not show, by grader: those of leakage, or all others."""
    shown = {column.metric for column in COLUMNS} | {"concept_qwk"}
    notes: dict[tuple[str, str, str], str] = {}
    for row in graders.rows:
        key = row["metric"], row["criterion_id"], row["method"]
        is_other = row["metric"] not in shown and not row["metric"].startswith(SAVING) and not row["setting"]
        if is_other and row["criterion_id"] in ("", "all") and row["metric"].startswith(LEAKAGE) == of_leakage:
            notes[key] = notes.get(key) or row["note"] or ""
    rows = []
    for (metric, criterion, method), note in sorted(notes.items(), key=lambda item: item[0][:2]):
        cell = graders.cell(method, GraderColumn(metric, criterion, ""))
        rows.append((say.worded(metric), grader_name(method), cell, say.visible(note)))
    id_, title = ("leakage", "Leakage") if of_leakage else ("others", "Other figures")
    header = ("What", "of", "value", "note of the first seed")
    return Table(id_, f"{title}: mean ± standard deviation over seeds", header, rows)


def questions_table(graders: Graders) -> Table:
    """What the questions of each order buy when they are asked over the whole set."""
    main = main_grader(graders)
    rows = list[Cells]()
    for order, words in ORDERS.items():
        area, questions = f"{SAVING}area_{order}", f"{SAVING}questions_{order}"
        cells = [graders.cell(main, GraderColumn(metric, "", "")) for metric in (area, questions)]
        notes = (row["note"] for row in graders.rows if row["method"] == main and row["metric"] == area)
        if any(cell.value is not None for cell in cells):
            rows.append((words, *cells, say.visible(next(notes, None) or "")))
    header = ("Order", "mean over budgets", "share of the questions for 90% of the gain", "first seed")
    return Table("asked", "Questions asked one at a time over the whole set, the weightiest first", header, rows)


class Sweep(NamedTuple):
    """One setting's values, rising, with the figures of `SWEPT`."""

    method: str
    field: str
    values: tuple[float, ...]
    cells: tuple[tuple[Cell, ...], ...]
    study_value: float | None
    """The value of the study: among them if it is a number, None for none."""
    study_cells: tuple[Cell, ...]

    @property
    def words(self) -> str:
        """The setting, for people."""
        return say.name(say.worded(self.field))


def sweeps_of(graders: Graders, training: Training) -> list[Sweep]:
    """The settings of the rows that name one, as 'field=value', each with the study's own value among the others."""
    settings_by_field = defaultdict[tuple[str, str], dict[float, str]](dict)
    for row in graders.rows:
        field, equals, value = row["setting"].partition("=")
        if equals:
            settings_by_field[row["method"], field][float(value)] = row["setting"]
    sweeps = []
    for (method, field), settings in settings_by_field.items():
        study_value = getattr(training, field, None)
        by_value = settings if study_value is None else {float(study_value): ""} | settings
        values = tuple(sorted(by_value))
        cells = tuple(_cells(graders, method, by_value[value]) for value in values)
        sweeps.append(Sweep(method, field, values, cells, study_value, _cells(graders, method, "")))
    return sweeps


def _cells(graders: Graders, method: str, setting: str) -> tuple[Cell, ...]:
    return tuple(graders.cell(method, column, setting) for column in SWEPT)


def sweep_table(sweep: Sweep) -> Table:
    """The figures by value."""
    rows = list[Cells]()
    for value, cells in zip(sweep.values, sweep.cells, strict=True):
        remark = " (the study's)" if value == sweep.study_value else ""
        rows.append((say.level(value) + remark, *cells))
    if sweep.study_value is None:
        rows.append(("none (the study's)", *sweep.study_cells))
    title = f"{grader_name(sweep.method)} by {sweep.words}"
    return Table(f"sweep-{sweep.field}", title, (sweep.words, *(column.words for column in SWEPT)), rows)


def sweep_takeaway(sweep: Sweep) -> str:
    """How far the task's macro-F1 moves between the best and the worst value."""
    scores = [(cells[1].value, value) for value, cells in zip(sweep.values, sweep.cells, strict=True)]
    defined = [(score, value) for score, value in scores if score is not None]
    if not defined:
        return f"{sweep.words}: not known"
    (worst, worst_value), (best, best_value) = min(defined), max(defined)
    return (
        f"{sweep.words}: macro-F1 between {say.number(worst)} at {say.level(worst_value)} and {say.number(best)} at "
        f"{say.level(best_value)}"
    )
