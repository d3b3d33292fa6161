"""What people have said of a run's scores, brought into its tables before anything reads them."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.recorded import manifest_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.review.settled_scores import keep_settled_scores


def settle_scores(run: Run, study: Study | None = None) -> None:
    """Bring marks and votes into the run's tables; says how many votes do not count any more.

    study: the one that the run is of as study, data and code are now; None for a run of any time, whose manifest tells
    what its marks are. A run that did not finish has none, and its marks decide nothing yet.
    """
    plan: dict[str, Any] = {"marks": "calibrate"}
    with suppress(StoreError):
        plan |= study.model_dump() if study else manifest_of(run)["identity"]["study"]
    target = plan["evaluation"]["target"] if plan["marks"] == "grade" else None
    stale = keep_settled_scores(run, run.run_id.rpartition("-")[0], target, keep=study is not None)
    if stale:
        rule = "do not count: the answer or its scale has changed since"
        print(f"{stale:,} {'vote' if stale == 1 else 'votes'} on scores {rule}", file=sys.stderr)
