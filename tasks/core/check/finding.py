"""What one rule found in one table, as a row of `checks` and as a message for the person who has to mend it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from rubricflow.tasks.core.contracts.errors import ContractError, UserError
from rubricflow.tasks.core.contracts.schema import Expectation, Row

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
