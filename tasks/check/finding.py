"""What one rule found in one table, as a row of `checks` and as a message for the person who has to mend it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from tasks.contracts.errors import ContractError, UserError
from tasks.contracts.table import Expectation, Row

KEYS = 5
"""Offending keys that are kept for each rule."""
LONGEST = 80
"""Characters of a key that are shown."""
LONGEST_DETAIL = 300


class CheckError(UserError):
    """A check that could not run: says nothing about the data, and still nothing may pass unchecked."""


@dataclass(frozen=True)
class Finding:
    """One rule held against one table."""

    row: type[Row]
    expectation: Expectation
    rows: int
    """Rows looked at."""
    unexpected: int = 0
    first: tuple[str, ...] = ()
    """Keys of the first unexpected rows."""
    error: str | None = None
    """Why the rule could not be checked, or not in every row."""
    digest: str = ""
    """Digest of the content looked at; stored with the key's uniqueness, so that other content is checked anew."""
    found: str = ""
    """What was there instead, where the rule can say so."""

    @property
    def outcome(self) -> Literal["passed", "failed", "error"]:
        """A row that breaks the rule is proof, also where other rows could not be looked at."""
        return "failed" if self.unexpected else "error" if self.error is not None else "passed"

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
        return parameters(self.expectation) + (f"; found {self.found}" if self.found else "")

    def record(self, stage: str) -> dict[str, object]:
        """The row of `checks`."""
        return {
            "stage": stage,
            "table_name": self.row.table,
            "rule": self.expectation.rule,
            "column": ", ".join(self.expectation.columns),
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
        case "between":
            low, high = value
            ends = [f"at least {low}" if low is not None else "", f"at most {high}" if high is not None else ""]
            return "must be " + " and ".join(end for end in ends if end)
        case "references":
            return f"must occur in {value[0]}.{value[1]}"
        case "unique":
            return "must be unique"


def shown(text: str, longest: int = LONGEST) -> str:
    """Text that is safe to print: control, format and separator characters escaped, cut to a length."""
    head = text[: longest + 1]
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in head)
    return safe if len(safe) <= longest else safe[: longest - 1] + "…"


def key_text(key: Sequence[object], value: object = None) -> str:
    """A row's key, and what it points to where that is the trouble."""
    text = " / ".join(shown(str(part)) for part in key)
    return shown(text if value is None else f"{text} → {shown(str(value))}")


def stop_if_broken(findings: Iterable[Finding], stage: str) -> None:
    """ContractError names every rule that failed; CheckError, where none did, those that could not run."""
    found = list(findings)
    failed = [finding for finding in found if finding.outcome == "failed"]
    errors = [finding for finding in found if finding.outcome == "error"]
    if failed:
        rest = [f"{len(errors)} further checks could not run"] if errors else []
        raise ContractError("\n".join([f"stage '{stage}' breaks its contract:", *map(_failed, failed), *rest]))
    if errors:
        raise CheckError("\n".join([f"stage '{stage}': checks could not run:", *map(_error, errors)]))


def _place(finding: Finding) -> str:
    columns = ", ".join(finding.expectation.columns)
    return f"table '{finding.row.table}', column '{columns}', rule '{finding.expectation.rule}'"


def _failed(finding: Finding) -> str:
    keys = f"; first {' / '.join(finding.row.key)}: " + "; ".join(finding.first) if finding.first else ""
    return f"{_place(finding)}: {finding.demand}; {finding.unexpected:,} of {finding.rows:,} rows break this{keys}"


def _error(finding: Finding) -> str:
    return f"{_place(finding)}: {finding.detail}"
