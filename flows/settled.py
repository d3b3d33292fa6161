"""What people have said of a run's scores, brought into its tables before anything reads them."""

from __future__ import annotations

import sys

from tasks.review.settled_scores import keep_settled_scores
from tasks.store.warehouse import Run


def settle_scores(run: Run) -> None:
    """Bring votes into the run's tables; says how many do not count any more."""
    study = run.run_id.rpartition("-")[0]
    stale = keep_settled_scores(run, study)
    if stale:
        rule = "do not count: the answer or its scale has changed since"
        print(f"{stale:,} {'vote' if stale == 1 else 'votes'} on scores {rule}", file=sys.stderr)
