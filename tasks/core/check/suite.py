"""Contract → Great Expectations suite, and the suite run over batches of reduced rows.

Only what a rule needs goes in: the values of columns with a set or bounds; of a text that should not be empty its first
character that is no white space; of every other column, nested ones among them, a mark of presence that Arrow computes.
Keys stay outside and are looked up by position.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.check.finding import KEYS, REFUSED, Finding, key_text
from rubricflow.tasks.core.contracts.schema import Expectation, Row, expectations

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations import ExpectationSuite
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext

TOGETHER = 24
"""Batches of one validation, some 20 MB as they go in: a validation's fixed cost is that of 100,000 rows."""
SUITE = {
    "not_null": "expect_column_values_to_not_be_null",
    "in_set": "expect_column_values_to_be_in_set",
    "between": "expect_column_values_to_be_between",
    "mostly_not_null": "expect_column_values_to_not_be_null",
    "mostly_null": "expect_column_values_to_be_null",
    "mostly_filled": "expect_column_value_lengths_to_be_between",
    "mostly_in_set": "expect_column_values_to_be_in_set",
}
"""Rules that can be seen in one row → what Great Expectations calls them."""
Validate = Callable[["pd.DataFrame"], Iterable["ExpectationValidationResult"]]
RuleKey = tuple[str, str]
"""Rule and column."""


def rules(row: type[Row]) -> list[Expectation]:
    """The rules of a table that can be seen in one row, and so belong in its suite."""
    return [rule for rule in expectations(row) if rule.rule in SUITE]


def columns(row: type[Row]) -> list[str]:
    """The columns to read: those with a rule, and the key."""
    return list(dict.fromkeys([*row.key, *(rule.columns[0] for rule in rules(row))]))


def suite(row: type[Row]) -> ExpectationSuite:
    import great_expectations as gx
    from great_expectations.expectations.expectation_configuration import ExpectationConfiguration

    configured = [ExpectationConfiguration(**configuration(rule)).to_domain_obj() for rule in rules(row)]
    return gx.ExpectationSuite(name=row.table, expectations=configured)


def configuration(rule: Expectation) -> dict[str, Any]:
    """A rule of a suite in Great Expectations' own form; its `meta` names the rule, as the results give it back."""
    arguments: dict[str, Any] = {"column": rule.columns[0]}
    match rule.rule:
        case "in_set" | "mostly_in_set":
            arguments["value_set"] = list(rule.value)
        case "between":
            arguments["min_value"], arguments["max_value"] = rule.value
        case "mostly_filled":
            arguments["min_value"] = 1
    if rule.mostly is not None:
        arguments["mostly"] = rule.mostly
    if rule.unless is not None:
        column, value = rule.unless
        arguments["row_condition"] = {
            "type": "comparison",
            "column": {"name": column},
            "operator": "!=",
            "parameter": value,
        }
    return {"type": SUITE[rule.rule], "kwargs": arguments, "meta": {"rule": rule.rule}, "severity": rule.severity}


def check_values(row: type[Row], batches: Iterable[pa.RecordBatch]) -> list[Finding]:
    """Every rule of the suite over all batches; Great Expectations is imported with the first row."""
    findings: dict[RuleKey, Finding] = {(rule.rule, rule.columns[0]): Finding(row, rule, 0) for rule in rules(row)}
    rows, validate = 0, None
    parts = ((_reduced(row, batch), batch.select(list(row.key))) for batch in batches if batch.num_rows)
    while some := list(islice(parts, TOGETHER)):
        frame, keys = map(pa.Table.from_batches, zip(*some, strict=True))
        start, rows = rows, rows + keys.num_rows
        error, missing = "Great Expectations returned no result", set(findings)
        try:
            validate = validate or _validator(row)
            for result in list(validate(frame.to_pandas())):
                if config := result.expectation_config:
                    key = config.meta["rule"], config.kwargs["column"]
                    findings[key] = _with_batch(findings[key], result, keys, start)
                    missing.discard(key)
        except Exception as raised:  # whatever it is, the check did not run and the data may be fine
            error = f"{type(raised).__name__}: {raised}"
        for key in missing:
            findings[key] = replace(findings[key], error=findings[key].error or error)
    every = findings.values()
    return [replace(of, rows=rows) if of.expectation.mostly is None else of for of in every]


def _with_batch(finding: Finding, result: ExpectationValidationResult, keys: pa.Table, start: int) -> Finding:
    """A finding with the result of one more batch, whose first row is row `start` of the table; without a count there
    was no check. Its rows are the values that a rule of most values is a share of."""
    counts, rule = result.result, finding.expectation
    count = counts.get("unexpected_count")
    error = finding.error or exception(result.exception_info)
    if error is None and (count is None or (rule.mostly is None and bool(count) == result.success)):
        error = f"no usable result: success={result.success}, unexpected={count}"
    places = counts.get("partial_unexpected_index_list", [])[: REFUSED - len(finding.places)] if count else []
    named = keys.take(pa.array(places[: KEYS - len(finding.first)], pa.int64())).to_pylist()
    return replace(
        finding,
        rows=finding.rows + counts.get("element_count", 0) - counts.get("missing_count", 0),
        unexpected=finding.unexpected + (count or 0),
        first=(*finding.first, *(key_text(list(key.values())) for key in named)),
        places=(*finding.places, *(start + place for place in places)),
        error=error,
    )


def exception(info: Mapping[str, Any] | None) -> str | None:
    """What was raised inside an expectation, flat or by metric; None if nothing was."""
    if not info:
        return None
    if "raised_exception" in info:
        return str(info.get("exception_message") or "unknown exception") if info["raised_exception"] else None
    return next((text for part in info.values() if (text := exception(part)) is not None), None)


def _validator(row: type[Row]) -> Validate:
    """A function that holds a frame against the table's suite, in a context of its own that is kept nowhere."""
    context = quiet_context()
    asset = context.data_sources.add_pandas(row.table).add_dataframe_asset(row.table)
    batch_definition = asset.add_batch_definition_whole_dataframe(row.table)
    expected = suite(row)
    form = {"result_format": "SUMMARY", "partial_unexpected_count": REFUSED, "exclude_unexpected_values": True}

    def validate(frame: pd.DataFrame) -> Iterable[ExpectationValidationResult]:
        return batch_definition.get_batch({"dataframe": frame}).validate(expected, result_format=form).results

    return validate


def quiet_context() -> EphemeralDataContext:
    """A context of Great Expectations that is kept nowhere, and neither prints nor reports."""
    os.environ["GX_ANALYTICS_ENABLED"] = "false"  # read at import
    import great_expectations as gx
    from great_expectations.data_context.types.base import ProgressBarsConfig

    logger = logging.getLogger("great_expectations")
    logger.propagate = False  # its log would only repeat the results on the terminal
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = ProgressBarsConfig(globally=False, metric_calculations=False)
    return context


def _reduced(row: type[Row], batch: pa.RecordBatch) -> pa.RecordBatch:
    """Each column with a rule, as little of it as its rules need."""
    of_column: dict[str, dict[str, Any]] = {}
    for rule in rules(row):
        of_column.setdefault(rule.columns[0], {})[rule.rule] = rule.value
    values = {}
    for name, named in of_column.items():
        column = batch[name]
        if named.keys() <= {"not_null", "mostly_not_null", "mostly_null"}:
            column = pc.if_else(pc.is_valid(column), pa.scalar(1, pa.int8()), pa.scalar(None, pa.int8()))
        elif "mostly_filled" in named:
            column = pc.utf8_slice_codeunits(pc.utf8_ltrim_whitespace(column), 0, 1)
        elif "between" in named and pa.types.is_floating(column.type):
            # pandas takes NaN for null, which no bounds apply to; the infinity beyond a bound is what it is to a range
            beyond = float("-inf") if named["between"][0] is not None else float("inf")
            column = pc.if_else(pc.is_nan(column), pa.scalar(beyond, column.type), column)
        values[name] = column
    return pa.RecordBatch.from_pydict(values)
