"""The trained grader that a study names: loaded only where one is named, because torch is an extra."""

from __future__ import annotations

from pathlib import Path

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.extras import install
from rubricflow.tasks.core.contracts.grader import Grader
from rubricflow.tasks.core.contracts.settings.judge import Judge


def grader_of(judge: Judge, base: Path) -> Grader | None:
    """The grader of a judge, relative to `base`; None for a judge that is none.

    InputError for a file that is no whole grader, BackendError where its extra is missing.
    """
    if judge.backend != "trained" or judge.grader is None:
        return None
    try:
        from rubricflow.tasks.methods.bottleneck.grader import load
    except ImportError as error:
        raise BackendError(f"trained graders need the extra: {install('embedded')}") from error
    return load(base / judge.grader, base)
