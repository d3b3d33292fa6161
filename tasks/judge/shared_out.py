"""Shards of judging shared out to workers: what is sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tasks.judge.assignment import Assignment, SentAssignment
from tasks.judge.cut import Shard, cut, cut_stage
from tasks.llm.terms import terms_of, with_replies_from_anywhere


def sent_off(assignment: Assignment, shards: Sequence[Shard], workers: int, token_budget: int | None) -> SentAssignment:
    """The assignment as workers get it: its shards are cut, and the budget is in the ledger's purse."""
    run = with_replies_from_anywhere(assignment.run)
    inputs = cut_stage(assignment.responses, bool(assignment.plan.consistency_memory))
    cut(run, assignment.responses, inputs, shards)
    return SentAssignment(
        assignment=replace(assignment, run=run, base=assignment.base.resolve()),
        inputs=inputs,
        terms=terms_of(assignment.plan, run, assignment.stage, workers, token_budget),
    )
