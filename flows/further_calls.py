"""A second judging of the parts of rollouts whose doubts weigh most in the reward, within a fixed number of calls."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.backends import BACKENDS
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.judge.grade import asks_nobody
from rubricflow.tasks.grading.judge.protocol import protocol_module
from rubricflow.tasks.grading.judge.rows import Case, EarlierDecision, Graded, Judged, judgments
from rubricflow.tasks.rewards.reward.compiled import Batch
from rubricflow.tasks.rewards.reward.local import Locals
from rubricflow.tasks.rewards.reward.repeats import averaged


class RepeatedCase(NamedTuple):
    """A rollout that is judged again in part."""

    row: int
    """Its place in the batch."""
    case: Case
    """As it is judged again: what is not asked again is kept."""


def worth_repeating(judged: Sequence[Judged], batch: Batch, weights: Floats, calls: int) -> list[RepeatedCase]:
    """The rollouts with calls that are worth making again, at most so many calls for all of them together.

    judged: in the order of the batch; weights: of its criteria, see `weights_of_doubts`. A call is worth what its
    criteria are. One without doubts is never made again, nor is one that was not made.
    """
    worths: list[tuple[float, int, frozenset[str]]] = []
    called = [(row, decided) for row, decided in enumerate(judged) if not asks_nobody(decided.case)]
    for row, decided in called:
        of_criteria = dict(
            zip(batch.compiled[batch.rubric_index[row]].criteria, _part(weights, batch, row), strict=True)
        )
        worths += [(worth, row, names) for names, worth in _calls(decided.case.bundle, of_criteria) if worth > 0]
    chosen: defaultdict[int, set[str]] = defaultdict(set)
    for _, row, names in heapq.nlargest(calls, worths, key=lambda call: call[0]):
        chosen[row] |= names
    return [RepeatedCase(row, _again(judged[row], names)) for row, names in sorted(chosen.items())]


def judged_again(
    graded: Graded,
    local: Locals,
    repeats: Sequence[RepeatedCase],
    asking: Callable[[Sequence[Case]], Graded],
    local_of: Callable[[pa.Table, Sequence[Case]], Locals],
) -> tuple[Locals, list[pa.Table]]:
    """Local scores with what is judged again, and its rows of `judgments`. The calls are added to those of `graded`.

    asking: judges cases with another seed; local_of: makes local scores of judgments.
    """
    if not repeats:
        return local, []
    cases = [repeat.case for repeat in repeats]
    again = asking(cases)
    graded.called += again.called
    decisions = judgments(again.rater, again.judged)
    rows = np.array([repeat.row for repeat in repeats])
    both = averaged(local.batch, local_of(decisions, cases).batch, rows)
    return replace(local, batch=both), [decisions]


def refuse_same_replies(judge: Judge, path: Path) -> None:
    """InputError for a judge that would say the same again."""
    if BACKENDS[judge.backend].needs != "engine":
        rule = f"judge '{judge.backend}' gives the same reply every time; leave 'further_calls' out"
        raise InputError(rule, file=path, field="further_calls")
    if judge.sampling.temperature == 0:
        rule = "with temperature 0 every reply is the same; set judge.sampling.temperature"
        raise InputError(rule, file=path, field="further_calls")


def _part(weights: Floats, batch: Batch, row: int) -> list[float]:
    """The weights of one rollout's criteria."""
    of_rollout: list[float] = weights[batch.start[row] : batch.start[row + 1]].tolist()
    return of_rollout


def _calls(bundle: Bundle, of_criteria: Mapping[str, float]) -> list[tuple[frozenset[str], float]]:
    """The criteria of each call, and what they are worth: those of which the call decides something."""
    parent_of = {criterion.id: criterion.parent for criterion in (*bundle.criteria, *bundle.composites)}

    def whole(name: str) -> str:
        parent = parent_of[name]
        return whole(parent) if parent else name

    calls = []
    for part in protocol_module(bundle.protocol.name).parts(bundle, ()):
        names = frozenset(criterion.id for criterion in part.criteria)
        calls.append((names, sum(of_criteria[name] for name in {whole(name) for name in names})))
    return calls


def _again(judged: Judged, names: set[str]) -> Case:
    """The case with all that stands but what these criteria are."""
    earlier = {
        decision.criterion_id: EarlierDecision(decision, judged.probabilities.get(decision.criterion_id))
        for decision in judged.decisions
        if decision.criterion_id not in names
    }
    return replace(judged.case, earlier=earlier)
