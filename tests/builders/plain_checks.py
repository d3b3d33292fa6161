"""The rules of a table by pandas and Arrow, in place of Great Expectations and DuckDB: half the time of a run.

Flow tests hold their tables against the contracts by these; test_check_plain.py holds these against the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rubricflow.flows import plan
from rubricflow.tasks.core.check import checkpoint, docs, suite
from rubricflow.tasks.core.check.suite import REFUSED, Finding
from rubricflow.tasks.core.contracts.schema import Expectation, Row, expectations
from rubricflow.tasks.grading.calibrate import choose
from rubricflow.tasks.grading.evaluate import task as evaluate

_PLACES = (suite, "_validator"), (docs, "_render"), (checkpoint, "check_across"), (plan, "write_database")
_REAL, _FIGURES = [getattr(*place) for place in _PLACES], evaluate.figures


def use_plain_checks(patch: pytest.MonkeyPatch) -> None:
    """Until it is undone no run of this process loads Great Expectations, Data Docs are one empty page, and the views
    of all runs wait for the command that asks them."""
    for place, plain in zip(_PLACES, (plain_validator, _empty_page, plain_across, lambda warehouse: None), strict=True):
        patch.setattr(*place, plain)


@contextmanager
def great_expectations() -> Iterator[None]:
    """While it lasts checkpoints, and what a run leaves at its end, are the real ones again."""
    with pytest.MonkeyPatch.context() as patch:
        for place, real in zip(_PLACES, _REAL, strict=True):
            patch.setattr(*place, real)
        yield


def measure_nothing(patch: pytest.MonkeyPatch) -> None:
    """Until it is undone runs of this process end without figures of agreement, as those without human scores do, and
    try one mapping beside the raw score: half of a run that tests of what is asked, kept and asked again need not
    take."""
    patch.setattr(evaluate, "figures", lambda *given: ([], []))
    patch.setattr(evaluate, "rater_effects", lambda *given: [])
    patch.setattr("rubricflow.tasks.grading.calibrate.fit.decide", _of_two_mappings)


@contextmanager
def figures() -> Iterator[None]:
    """While it lasts runs have figures of agreement again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate, "figures", _FIGURES)
        yield


def _of_two_mappings(labels: Any, plan: Any, chosen: Any = None) -> choose.MethodChoice:
    named = plan.method if plan.method in choose.STANDARD else "linear"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choose, "STANDARD", tuple({named: 1, "identity": 1}))
        return choose.decide(labels, plan, chosen)


def _empty_page(results: object, site: Path) -> None:
    site.mkdir(parents=True)
    (site / "index.html").touch()


def plain_across(
    row: type[Row], files: Sequence[checkpoint.Footer], parts: checkpoint.Parts, *more: Any
) -> list[Finding]:
    """As `checkpoint.check_across`, which is asked where Arrow finds a key twice or a reference that leads nowhere."""

    def read(paths: Sequence[Path], *columns: str) -> pa.Table:
        tables = [pq.ParquetFile(path).read(list(columns)) for path in paths]
        return pa.concat_tables(tables) if tables else pa.table({name: [] for name in columns})

    own, findings = [file.path for file in files], []
    for rule in expectations(row):
        if rule.rule == "unique":
            keys = read([*{*own, *parts(row.table)}], *row.key)
            sound = not own or keys.group_by(list(row.key)).aggregate([]).num_rows == keys.num_rows
        elif rule.rule == "references":
            (column,), (table, target) = rule.columns, rule.value
            known = read(parts(table), target)[target].to_pylist()
            sound = set(read(own, column)[column].to_pylist()) <= {None, *known}
        else:
            continue
        if not (sound and files):
            return _REAL[2](row, files, parts, *more)
        findings.append(Finding(row, rule, sum(file.rows for file in files), digest=more[0]))
    return findings


def plain_validator(row: type[Row]) -> Callable[[pd.DataFrame], Iterator[Any]]:
    """As `suite._validator` gives it."""
    return lambda frame: (_result(rule, frame) for rule in suite.rules(row))


def _result(rule: Expectation, frame: pd.DataFrame) -> Any:
    if rule.unless is not None:
        frame = frame[frame[rule.unless[0]] != rule.unless[1]]
    column = frame[rule.columns[0]]
    there = column.notna()
    match rule.rule:
        case "not_null" | "mostly_not_null":
            wrong = ~there
        case "mostly_null":
            wrong = there
        case "in_set" | "mostly_in_set":
            wrong = there & ~column.isin(rule.value)
        case "mostly_filled":
            wrong = there & (column.str.len() < 1)
        case _:
            low, high = (pd.NA if bound is None else bound for bound in rule.value)
            wrong = there & ((column < low).fillna(False) | (column > high).fillna(False))
    counted = len(column) if rule.rule in ("not_null", "mostly_not_null", "mostly_null") else int(there.sum())
    kept = (counted - wrong.sum()) / counted if counted else 1.0
    return SimpleNamespace(
        success=kept >= (rule.mostly or 1.0),
        exception_info=None,
        expectation_config=SimpleNamespace(meta={"rule": rule.rule}, kwargs={"column": rule.columns[0]}),
        result={
            "element_count": len(column),
            "missing_count": len(column) - counted,
            "unexpected_count": int(wrong.sum()),
            "partial_unexpected_index_list": column.index[wrong].tolist()[:REFUSED],
        },
    )
