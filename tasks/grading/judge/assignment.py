"""A shard of judging as a worker gets it: everything by name and reference, nothing by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.terms import PieceCounts, Terms
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.judge.rows import Graded


@dataclass(frozen=True)
class Assignment:
    """What is judged, under which rubrics, by whom and beside which people; the same for every shard of a stage."""

    run: Run
    plan: Judge
    base: Path
    items: TableRef
    responses: TableRef
    bundles: TableRef
    people: tuple[TableRef, TableRef] | None
    """Human gradings and judgments."""
    target: str
    """See `Evaluation.target`."""
    stage: str
    """Under which name the tables are written."""


class SentAssignment(NamedTuple):
    """An assignment on its way to workers."""

    assignment: Assignment
    inputs: str
    """Under which name the shards' inputs were written."""
    terms: Terms
    """What the workers have in common."""


def counts_of(graded: Sequence[Graded]) -> PieceCounts:
    """The numbers of what was graded; each repetition by itself."""
    calls = chain.from_iterable(sample.called for sample in graded)
    attempts = list(chain.from_iterable(call.answer.attempts for call in calls))
    paid = [attempt.reply for attempt in attempts if not attempt.stored]
    gradings = list(chain.from_iterable(sample.gradings for sample in graded))
    unscored = [grading for grading in gradings if grading.scored.score is None]
    tokens = [(reply.prompt_tokens or 0) + (reply.completion_tokens or 0) for reply in paid]
    return PieceCounts(
        members=len(gradings),
        failed=len(unscored),
        calls=len(paid),
        reused=len(attempts) - len(paid),
        tokens=sum(tokens),
    )
