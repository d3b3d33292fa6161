"""Rule faithfulness: how far marks follow when the mark scheme is edited (section 3.4, Tables 5 and 9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from statistics import fmean
from typing import Any, Literal

import pyarrow as pa

from rubricflow.tasks.core.contracts.settings.edit import ARMS
from rubricflow.tasks.core.contracts.tables.rules import FAMILIES, RULE_EDITS, TOTALS, Family, Totals
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Cells, Table, count
from rubricflow.tasks.methods.report.edit.figures import SeedFigure, pooled

Measure = Literal["floor_rate", "in_rubric"]
MEASURES: Mapping[Measure, tuple[str, str]] = {
    "floor_rate": ("floor", "floor rate, the share of marks under the edit that are 0"),
    "in_rubric": ("in_rubric", "in-rubric RSR, over marks under the edit that are not 0; 1 follows it"),
}
"""Measure → how the names of its ends begin, and its words."""
Record = Mapping[str, Any]
Graders = Mapping[str, list[Record]]
"""An arm in words, or another judge's name → its rows, those of an arm of all seeds."""


def tables(faithfulness: pa.Table) -> Iterator[Table]:
    """Every measure by grader and edit, apart by who makes the mark and by kind of scheme."""
    for totals, maker in TOTALS.items():
        for family, schemes in FAMILIES.items():
            if rows := _rows(faithfulness, totals, family):
                for measure in MEASURES:
                    yield _table(rows, measure, f"{totals}-{family}-{measure}", f"{maker.capitalize()}, {schemes}")


def takeaway(faithfulness: pa.Table) -> str:
    """Which grader that states its mark is closest to following the edits, by kind of scheme."""
    clauses = []
    for family, schemes in FAMILIES.items():
        graders = _graders(_rows(faithfulness, "stated", family))
        ratios = {name: _figure(rows, "in_rubric").value for name, rows in graders.items()}
        defined = {name: ratio for name, ratio in ratios.items() if ratio is not None}
        if defined:
            best = min(defined, key=lambda name: abs(defined[name] - 1))
            clauses.append(f"{best} follows edits of {schemes} best (mean in-rubric RSR {say.number(defined[best])})")
    return "; ".join(clauses) or "No grader that states its mark has an in-rubric RSR"


def _table(rows: list[Record], measure: Measure, name: str, words: str) -> Table:
    edits = [edit for edit in RULE_EDITS if any(row["edit"] == edit for row in rows)]
    table_rows: list[Cells] = []
    for grader, grader_rows in _graders(rows).items():
        figures = [_figure(_of_edit(grader_rows, edit), measure) for edit in edits]
        table_rows.append((grader, count(max(row["n"] for row in grader_rows)), *figures))
    header = ("Grader", "n", *map(_edit_title, edits))
    return Table(f"rules-{name}", f"{words}: {MEASURES[measure][1]}", header, tuple(table_rows))


def notes(faithfulness: pa.Table) -> Iterator[str]:
    """How far edits move the gold marks, and why ratios are missing."""
    changes: dict[str, list[float]] = {}
    for row in faithfulness.to_pylist():
        if row["gold_change"] is not None:
            changes.setdefault(_edit_title(row["edit"]), []).append(row["gold_change"])
    mean_changes = (f"{edit} {say.number(fmean(values))}" for edit, values in changes.items())
    yield f"Mean change of the gold marks: {', '.join(mean_changes)}."
    missing = (row for row in faithfulness.to_pylist() if row["in_rubric"] is None)
    why = (f"{_grader_name(row['rater_id'])}, {_edit_title(row['edit'])}: {row['in_rubric_note']}" for row in missing)
    yield from dict.fromkeys(map(say.visible, why))


def _of_edit(rows: Iterable[Record], edit: str) -> list[Record]:
    return [row for row in rows if row["edit"] == edit]


def _edit_title(edit: str) -> str:
    return edit.replace("x", "×")


def _rows(faithfulness: pa.Table, totals: Totals, family: Family) -> list[Record]:
    return [row for row in faithfulness.to_pylist() if (row["totals"], row["family"]) == (totals, family)]


def _graders(rows: Iterable[Record]) -> Graders:
    """Arms in their order, then other judges by name."""
    graders: dict[str, list[Record]] = {}
    for row in rows:
        graders.setdefault(_grader_name(row["rater_id"]), []).append(row)
    order = list(ARMS.values())
    names = sorted(graders, key=lambda name: (order.index(name) if name in order else len(order), name))
    return {name: graders[name] for name in names}


def _grader_name(rater: str) -> str:
    """'edit_rl-0' as its arm in words; another judge's id as a name."""
    arm, _, seed = rater.rpartition("-")
    words = {str(name): words for name, words in ARMS.items()}
    return words[arm] if arm in words and seed.isdigit() else say.name(rater)


def _figure(rows: Iterable[Record], measure: Measure) -> SeedFigure:
    begins, n = MEASURES[measure][0], "in_rubric_n" if measure == "in_rubric" else "n"
    low, high = f"{begins}_low", f"{begins}_high"
    return pooled([{"value": row[measure], "low": row[low], "high": row[high], "n": row[n]} for row in rows])
