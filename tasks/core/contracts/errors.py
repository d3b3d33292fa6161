"""Errors a user can act on. Everything else that escapes is a defect of the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class UserError(Exception):
    """Something the user can mend; the command prints it without a traceback and exits with 2."""


class InputError(UserError):
    """Bad input, located: which file, which row, which field, and the rule that it breaks."""

    def __init__(
        self,
        rule: str,
        *,
        file: object = None,
        line: int | None = None,
        row: int | None = None,
        field: str | None = None,
        hint: str | None = None,
        column: int | None = None,
    ) -> None:
        """line: of the file as an editor or a spreadsheet shows it; row: among the rows of the data, from 1; field: the
        column, or the key of a file of settings; column: of the line, from 1, in a file of settings."""
        self.rule, self.file, self.line, self.row, self.field, self.hint = rule, file, line, row, field, hint
        self.column = column
        kind = "field" if line is None or column is not None else "column"
        where = [
            str(file) if file is not None else "",
            f"line {line}" + ("" if row in (None, line) else f" (row {row})") if line is not None else "",
            f"row {row}" if line is None and row is not None else "",
            f"column {column}" if column is not None else "",
            f"{kind} '{field}'" if field is not None else "",
        ]
        place = ", ".join(part for part in where if part)
        super().__init__((f"{place}: " if place else "") + rule + (f" ({hint})" if hint else ""))

    def placed(self, file: object, line: int | None) -> InputError:
        """The same error under another name of its file, and with the line that its row begins on."""
        return InputError(self.rule, file=file, line=line, row=self.row, field=self.field, hint=self.hint)


class InputErrors(InputError):
    """Several errors of the input at once; what is said of one place is that of the first."""

    def __init__(self, errors: Sequence[InputError], count: int) -> None:
        """errors: those to show, at least one; count: how many there are."""
        first = errors[0]
        super().__init__(
            first.rule, file=first.file, line=first.line, row=first.row, field=first.field, column=first.column
        )
        self.errors, self.count = tuple(errors), count
        more = count - len(self.errors)
        lines = [f"{count} errors in the input" + (f"; the first {len(self.errors)}:" if more else ":")]
        lines += [f"  {error}" for error in self.errors]
        lines += [f"  … and {more} more"] if more else []
        self.args = ("\n".join(lines),)

    def __reduce__(self) -> tuple[Any, ...]:  # an error may come from another process
        return InputErrors, (self.errors, self.count)


def first_line(error: Exception) -> str:
    """The message of an error of a library, such as DuckDB or Arrow, without its advice and places in their code."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def one_line(error: BaseException, longest: int = 300) -> str:
    """All that an error says, on one line and cut short."""
    return " ".join(str(error).split())[:longest] or type(error).__name__


def refuse(error: InputError) -> None:
    """What becomes of an error where nobody gathers them: it is raised."""
    raise error


class ContractError(UserError):
    """A table or bundle that does not keep its contract."""


class StoreError(UserError):
    """A warehouse that cannot be used: not writable, foreign, or holding something else than it says."""


class BackendError(UserError):
    """A backend that cannot be used at all: a missing package, an unreadable replay file, a wrong model name."""


class StoppedError(BackendError):
    """A backend that gave up while it was asked. What it answered before is kept, and a command goes on from there."""

    def __init__(self, reason: str, passing: bool) -> None:
        """passing: whether it may pass by itself, as a full or broken server may, and a wrong key or model does not."""
        self.reason, self.passing = reason, passing
        super().__init__(f"{reason}; every reply is kept, and the same command continues")

    def __reduce__(self) -> tuple[Any, ...]:
        return StoppedError, (self.reason, self.passing)
