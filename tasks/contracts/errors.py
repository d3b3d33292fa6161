"""Errors a user can act on. Everything else that escapes is a defect of the program."""

from __future__ import annotations


class UserError(Exception):
    """Something the user can mend; the command prints it without a traceback and exits with 2."""


class InputError(UserError):
    """Bad input, located: which file, which row, which field, and the rule that it breaks."""

    def __init__(
        self,
        rule: str,
        *,
        file: object = None,
        row: int | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.rule, self.file, self.row, self.field, self.hint = rule, file, row, field, hint
        where = [
            str(file) if file is not None else "",
            f"row {row}" if row is not None else "",
            f"field '{field}'" if field is not None else "",
        ]
        place = ", ".join(part for part in where if part)
        super().__init__((f"{place}: " if place else "") + rule + (f" ({hint})" if hint else ""))


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
