"""Contract → Great Expectations suite, and the suite run over batches of reduced rows; what one rule found in one
table, as a row of `checks` and as a message for the person who has to mend it.

Only what a rule needs goes in: the values of columns with a set or bounds; of a text that should not be empty its first
character that is no white space; of every other column, nested ones among them, a mark of presence that Arrow computes.
Keys stay outside and are looked up by position.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.schema import Expectation, Row, expectations

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations import ExpectationSuite
    from great_expectations.core import ExpectationValidationResult
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rubricflow.tasks.core.contracts.errors import ContractError, UserError

KEYS = 5
"""Offending keys that are kept for each rule."""
REFUSED = 1_000
"""Offending rows of each rule that go to quarantine."""
LONGEST = 80
"""Characters of a key that are shown."""
LONGEST_DETAIL = 300


class CheckError(UserError):
    """A check that could not run: the data may be fine, and still nothing may pass unchecked."""


@dataclass(frozen=True)
class Finding:
    """One rule held against one table."""

    row: type[Row]
    expectation: Expectation
    rows: int
    """Rows looked at; of a rule of most values, those it is a share of."""
    unexpected: int = 0
    first: tuple[str, ...] = ()
    """Keys of the first unexpected rows."""
    places: tuple[int, ...] = ()
    """Places of the unexpected rows, REFUSED at most, counted over the table's files in the order of their names."""
    error: str | None = None
    """Why the rule could not be checked, or not in every row."""
    digest: str = ""
    """Digest of the content looked at; stored with the key's uniqueness, so that other content is checked anew."""
    actual: str = ""
    """What was there instead, where the rule can say so."""

    @property
    def outcome(self) -> Literal["passed", "failed", "error"]:
        """A row that breaks the rule is proof, also where other rows could not be looked at; of a rule of most values
        the share is, and only where all of them were."""
        mostly = self.expectation.mostly
        if mostly is not None and self.error is None:
            return "failed" if self.rows and (self.rows - self.unexpected) / self.rows < mostly else "passed"
        if mostly is None and self.unexpected:
            return "failed"
        return "error" if self.error is not None else "passed"

    @property
    def detail(self) -> str:
        """The rule's parameters, or the exception."""
        if self.outcome == "error":
            return shown(self.error or "", LONGEST_DETAIL)
        content = f"; content {self.digest[:16]}" if self.expectation.rule == "unique" else ""
        return self.demand + content

    @property
    def demand(self) -> str:
        """What the rule demands, and what was there instead where the rule can say so."""
        return parameters(self.expectation) + (f"; found {self.actual}" if self.actual else "")

    @property
    def first_keys(self) -> str:
        """The keys of the first unexpected rows, in words; '' where there are none."""
        return f"; first {' / '.join(self.row.key)}: {'; '.join(self.first)}" if self.first else ""

    def record(self, stage: str) -> dict[str, object]:
        """The row of `checks`."""
        return {
            "stage": stage,
            "table_name": self.row.table,
            "rule": self.expectation.rule,
            "column": ", ".join(self.expectation.columns),
            "severity": self.expectation.severity,
            "outcome": self.outcome,
            "rows": self.rows,
            "unexpected": self.unexpected,
            "first": list(self.first),
            "detail": self.detail,
        }


def parameters(expectation: Expectation) -> str:
    """What the rule demands, in words."""
    value = expectation.value
    match expectation.rule:
        case "type":
            return f"must be {value}"
        case "not_null":
            return "must not be null"
        case "in_set":
            return "must be one of " + ", ".join(value)
        case "mostly_not_null":
            return f"should be there in {_share(expectation)}"
        case "mostly_null":
            return f"should be null in {_share(expectation)}"
        case "mostly_filled":
            return f"should hold more than white space in {_share(expectation)}"
        case "mostly_in_set":
            return f"should be {' or '.join(map(str, value))} in {_share(expectation)}"
        case "between":
            low, high = value
            ends = [f"at least {low}" if low is not None else "", f"at most {high}" if high is not None else ""]
            return "must be " + " and ".join(end for end in ends if end)
        case "references":
            return f"must occur in {value[0]}.{value[1]}"
        case "unique":
            return "must be unique"


def _share(expectation: Expectation) -> str:
    unless = f" where {expectation.unless[0]} is not {expectation.unless[1]}" if expectation.unless else ""
    return f"at least {expectation.mostly:.0%} of the rows{unless}"


def shown(text: str, longest: int = LONGEST) -> str:
    """Text that is safe to print: control, format and separator characters escaped, cut to a length."""
    safe = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text[: longest + 1]
    )
    return safe if len(safe) <= longest else safe[: longest - 1] + "…"


def key_text(key: Sequence[object], value: object = None) -> str:
    """A row's key, and what it points to where that is the trouble."""
    text = " / ".join(shown(str(part)) for part in key)
    return shown(text if value is None else f"{text} → {shown(str(value))}")


def broken(findings: Iterable[Finding], severity: str = "critical") -> list[Finding]:
    """The findings that stop a run: rules of every value that failed or could not run; or those that warn."""
    return [one for one in findings if one.expectation.severity == severity and one.outcome != "passed"]


def warnings(findings: Iterable[Finding], stage: str) -> list[str]:
    """A line for each rule of most values that failed or could not run."""
    lines = []
    for finding in broken(findings, "warning"):
        place = f"check: {stage}: warning: {finding.row.table}.{', '.join(finding.expectation.columns)}"
        if finding.outcome == "error":
            lines.append(f"{place}: '{finding.expectation.rule}' could not run: {finding.detail}")
        else:
            lines.append(f"{place} {finding.demand}; {finding.unexpected:,} of {finding.rows:,} are not so")
    return lines


def stop(findings: Iterable[Finding], stage: str, more: Sequence[str] = ()) -> UserError:
    """What ends the run: a ContractError that names every rule that failed; where none did, a CheckError that names
    those that could not run. `more`: lines that tell where to look."""
    failed, errors = [], []
    for finding in broken(findings):
        columns = ", ".join(finding.expectation.columns)
        place = f"table '{finding.row.table}', column '{columns}', rule '{finding.expectation.rule}'"
        if finding.outcome == "error":
            errors.append(f"{place}: {finding.detail}")
        else:
            broken_by = f"{finding.unexpected:,} of {finding.rows:,} rows break this"
            failed.append(f"{place}: {finding.demand}; {broken_by}{finding.first_keys}")
    if not failed:
        return CheckError("\n".join([f"stage '{stage}': checks could not run:", *errors, *more]))
    if errors:
        failed.append(f"{len(errors)} further checks could not run")
    return ContractError("\n".join([f"stage '{stage}' breaks its contract:", *failed, *more]))


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


def configuration(rule: Expectation) -> Record:
    """A rule of a suite in Great Expectations' own form; its `meta` names the rule, as the results give it back."""
    arguments: Record = {"column": rule.columns[0]}
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


def exception(info: Fields | None) -> str | None:
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
    of_column: dict[str, Record] = {}
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
