"""The judge of shards: what it is given, and how a shard, or a part of one, is graded and written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.backends import Grader, is_generative
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.llm.backend import KeyOf
from rubricflow.tasks.core.llm.foreign import foreign_scores
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.llm.reply_store import Replies, open_replies
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.judge.evidence import cite_explanations, explanations
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.keep import keeping_of
from rubricflow.tasks.grading.judge.rater import rater, repeated, signal_recorded
from rubricflow.tasks.grading.judge.rows import Graded, Rater
from rubricflow.tasks.grading.judge.simulated import human_marks
from rubricflow.tasks.grading.judge.stored_cases import case_of, sheets_of
from rubricflow.tasks.grading.judge.teaching import People, teaching_of

_OF_ONE = ("too_long", "deadline", "empty", "refusal", "safety", "not_recorded")
"""Kinds of errors that concern one answer, or come again."""


@dataclass(frozen=True)
class Assignment:
    """What is judged, under which rubrics and by whom; the same for every shard of a stage."""

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
    label: str = ""
    """What the rater's id ends with, where several judges of a run may have one model and protocol."""

    @property
    def inputs(self) -> str:
        """Under which name the inputs of shards are written: of these responses, cut in one of two ways."""
        return f"cut-{'items-' if self.plan.judges_whole_items else ''}{self.responses.digest[:12]}"

    @property
    def parts(self) -> str:
        """Under which name workers write parts of shards, until they are joined."""
        return f"{self.stage}-parts"


def study_replies(plan: Judge, warehouse: Warehouse) -> Replies:
    """The store of a judge's replies. It keeps nothing of a file of recorded replies, which stands alone: what the
    warehouse keeps may be of another recording; and nothing of an encoder where that would need a database."""
    is_free = not warehouse.keeps_replies and not is_generative(plan)
    return open_replies(":memory:" if plan.replies or is_free else warehouse.replies)


def study_rater(assignment: Assignment, replies: Replies, key_of: KeyOf, grader: Grader | None = None) -> Rater:
    """The study's rater; the simulated one gets the marks of its human rater."""
    run = assignment.run
    plan = assignment.plan
    base = assignment.base
    if plan.truth is None or assignment.people is None:
        return rater(plan, base, replies, key_of, grader)
    theirs = ds.field("rater_id") == plan.truth.rater
    gradings, judgments = assignment.people
    scores = run.read(gradings, ["response_id", "item_id", "score", "trait_scores"], theirs)
    marks = run.read(judgments, ["response_id", "criterion_id", "decision"], theirs)
    human = human_marks(scores.to_pylist(maps_as_pydicts="strict"), marks.to_pylist())
    return rater(plan, base, replies, key_of, grader, human)


class ShardJudge:
    """A rater with all that it needs besides a shard's cases; made once for many shards."""

    def __init__(self, assignment: Assignment, rater: Rater, replies: Replies) -> None:
        """InputError where an example is lacking, or what the study keeps of is not there."""
        plan, people = assignment.plan, assignment.people
        if plan.foreign:
            self._recorded = foreign_scores(plan.foreign, assignment.base)
            self._explained = explanations(plan.foreign, assignment.base)
        labelled = replace(rater, rater_id=f"{rater.rater_id}:{assignment.label}") if assignment.label else rater
        self._assignment, self._rater, self._replies = assignment, labelled, replies
        self._teaching = teaching_of(
            assignment.run,
            plan.examples,
            assignment.items,
            assignment.responses,
            assignment.bundles,
            People(*people, assignment.target) if people else None,
        )
        self._keeping = keeping_of(assignment.run, plan, rater.rater_id)
        self._sheets = sheets_of(assignment.run, assignment.items, assignment.bundles)

    def judge(self, stage: str, name: str, rows: Sequence[Mapping[str, Any]]) -> list[Graded]:
        """Grades a shard, or a part of one, and writes its tables under this name, the done-mark last; each repetition
        by itself. rows: as of `ShardInputs`.

        BackendError where no call of the stage has brought a reply until now, for reasons that lie with no answer: the
        shard is not written, so that the same command asks again.
        """
        run = self._assignment.run
        plan = self._assignment.plan
        cases = [case_of(row, *self._sheets[row["item_id"]]) for row in rows]
        shown = self._teaching(self._keeping(cases))
        graded = []
        with asking_together() as piece:
            for sample in repeated(self._rater, plan.samples):
                with piece():
                    graded.append(grade_batch(shown, sample, self._replies))
        if plan.foreign:
            signal_recorded(graded, self._recorded, plan.foreign)
            if plan.foreign.explanation:
                cite_explanations(graded, self._explained)
        last = [called.answer.attempts[-1].reply for sample in graded for called in sample.called]
        errors = Counter(reply.error for reply in last if reply.error and not reply.error.startswith(_OF_ONE))
        has_replies = run.shards(self._assignment.stage) or run.shards(self._assignment.parts)
        if last and errors.total() == len(last) and not has_replies:
            ((error, count),) = errors.most_common(1)
            rule = f"none of {len(last):,} calls brought a reply; of {count:,}: {error}"
            raise BackendError(f"Nothing was scored: {rule}")
        parts = [sample.tables() for sample in graded]
        run.commit(stage, name, {row: pa.concat_tables([part[row] for part in parts]) for row in parts[0]})
        return graded
