"""Some rollouts judged twice, beside the first judging: how far a judge agrees with itself."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from rubricflow.tasks.grading.judge.rater import repeated
from rubricflow.tasks.grading.judge.rows import Case, Graded, Judged, Rater

Judging = Callable[[Sequence[Case], Rater], Graded]
_logger = logging.getLogger(__name__)


class Agreement(NamedTuple):
    """What two judgings of one rollout have in common."""

    same: int
    """Criteria that both put on the same level."""
    compared: int
    """Criteria that both decided."""


def chosen(cases: Sequence[Case], share: float) -> list[Case]:
    """About this share of the cases, by a digest of item and text: the same ones whenever they come again."""
    return [case for case in cases if _place(case) < share]


@contextmanager
def beside(cases: Sequence[Case], rater: Rater, judging: Judging) -> Iterator[Future[Graded | None]]:
    """While the block runs, these cases are judged by the rater's second repetition, which has another seed. The future
    holds None where there is nothing to judge or that judging fails: it never costs a reward."""
    again: Future[Graded | None] = Future()
    if not cases:
        again.set_result(None)
        yield again
        return
    _, second = repeated(rater, 2)
    with ThreadPoolExecutor(1, thread_name_prefix="second-judging") as threads:
        yield threads.submit(_safely, judging, cases, second)


def agreements(first: Sequence[Judged], second: Sequence[Judged]) -> dict[str, Agreement]:
    """Response → how far its two judgings agree, for the responses that were judged twice."""
    levels = {judged.case.response_id: _levels(judged) for judged in first}
    return {judged.case.response_id: _agreement(levels[judged.case.response_id], _levels(judged)) for judged in second}


def _agreement(first: Mapping[str, int], second: Mapping[str, int]) -> Agreement:
    both = first.keys() & second.keys()
    return Agreement(sum(first[name] == second[name] for name in both), len(both))


def _levels(judged: Judged) -> dict[str, int]:
    """Criterion → its level, where it was decided."""
    return {decision.criterion_id: decision.level for decision in judged.decisions if decision.level is not None}


def _place(case: Case) -> float:
    """Where a case stands between 0 and 1."""
    digest = hashlib.sha256(f"{case.item_id}\n{case.text}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _safely(judging: Judging, cases: Sequence[Case], rater: Rater) -> Graded | None:
    try:
        return judging(cases, rater)
    except Exception as error:  # the first judging meets the same and says it
        _logger.warning("the second judging of %d rollouts failed: %s", len(cases), error)
        return None
