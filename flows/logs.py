"""What the log says of an error that a user can mend: its message, once, and no traceback."""

from __future__ import annotations

import logging

from rubricflow.tasks.core.contracts.errors import UserError


class _NoTraceback(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, UserError):
            record.exc_info = record.exc_text = None
        return True


def without_tracebacks() -> None:
    """From now on Prefect's loggers leave them out for a UserError."""
    for name in ("prefect.flow_runs", "prefect.task_runs"):
        logger = logging.getLogger(name)
        if not any(isinstance(existing, _NoTraceback) for existing in logger.filters):
            logger.addFilter(_NoTraceback())
