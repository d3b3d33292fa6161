"""Rollouts judged a second time: some, to see how far a judge agrees with itself, and the parts whose doubts weigh most
in the reward, within a fixed number of calls."""

from __future__ import annotations

import hashlib
import heapq
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.backends import BACKENDS
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.judge.grade import asks_nobody
from rubricflow.tasks.grading.judge.protocol import protocol_of
from rubricflow.tasks.grading.judge.rater import repeated
from rubricflow.tasks.grading.judge.rows import Case, EarlierDecision, Graded, Judged, Rater, judgments
from rubricflow.tasks.rewards.reward.aggregate import averaged
from rubricflow.tasks.rewards.reward.compiled import Batch
from rubricflow.tasks.rewards.reward.local import Locals
from rubricflow.tasks.rewards.serve.answered import AgreementAnswer

Judging = Callable[[Sequence[Case], Rater], Graded]
_logger = logging.getLogger(__name__)


def chosen_share(cases: Sequence[Case], share: float) -> list[Case]:
    """About this share of the cases, by a digest of item and text: the same ones whenever they come again."""
    digests = [hashlib.sha256(f"{case.item_id}\n{case.text}".encode()).digest() for case in cases]
    places = [int.from_bytes(digest[:8], "big") / 2**64 for digest in digests]
    return [case for case, place in zip(cases, places, strict=True) if place < share]


@contextmanager
def second_judging(cases: Sequence[Case], rater: Rater, judging: Judging) -> Iterator[Future[Graded | None]]:
    """While the block runs, these cases are judged by the rater's second repetition, which has another seed. The future
    holds None where there is nothing to judge or that judging fails: it never costs a reward."""
    if not cases:
        nothing: Future[Graded | None] = Future()
        nothing.set_result(None)
        yield nothing
        return
    _, second = repeated(rater, 2)

    def judge() -> Graded | None:
        try:
            return judging(cases, second)
        except Exception as error:  # the first judging meets the same and says it
            _logger.warning("the second judging of %d rollouts failed: %s", len(cases), error)
            return None

    with ThreadPoolExecutor(1, thread_name_prefix="second-judging") as threads:
        yield threads.submit(judge)


def agreements(first: Sequence[Judged], second: Sequence[Judged]) -> dict[str, AgreementAnswer]:
    """Response → how far its two judgings agree, for the responses that were judged twice."""
    levels = {judged.case.response_id: _levels(judged) for judged in first}
    found: dict[str, AgreementAnswer] = {}
    for judged in second:
        one, two = levels[judged.case.response_id], _levels(judged)
        both = one.keys() & two.keys()
        same = sum(one[name] == two[name] for name in both)
        found[judged.case.response_id] = {"same": same, "compared": len(both)}
    return found


def _levels(judged: Judged) -> dict[str, int]:
    """Criterion → its level, where it was decided."""
    return {decision.criterion_id: decision.level for decision in judged.decisions if decision.level is not None}


def worth_repeating(judged: Sequence[Judged], batch: Batch, weights: Floats, calls: int) -> dict[int, Case]:
    """Place in the batch → the rollout as it is judged again, what is not asked again being kept: those with calls that
    are worth making again, at most so many calls for all of them together.

    judged: in the order of the batch; weights: of its criteria, see `weights_of_doubts`. A call is worth what its
    criteria are. One without doubts is never made again, nor is one that was not made.
    """
    worths: list[tuple[float, int, frozenset[str]]] = []
    for row, decided in enumerate(judged):
        if not asks_nobody(decided.case):
            names, part = batch.compiled[batch.rubric_index[row]].criteria, slice(*batch.start[row : row + 2])
            of_criteria: dict[str, float] = dict(zip(names, weights[part].tolist(), strict=True))
            worths += [(worth, row, call) for call, worth in _calls(decided.case.bundle, of_criteria) if worth > 0]
    chosen: defaultdict[int, set[str]] = defaultdict(set)
    for _, row, names in heapq.nlargest(calls, worths, key=lambda call: call[0]):
        chosen[row] |= names
    repeats: dict[int, Case] = {}
    for row, again in sorted(chosen.items()):
        earlier = {
            decision.criterion_id: EarlierDecision(decision, judged[row].probabilities.get(decision.criterion_id))
            for decision in judged[row].decisions
            if decision.criterion_id not in again
        }
        repeats[row] = replace(judged[row].case, earlier=earlier)
    return repeats


def judged_again(
    graded: Graded,
    local: Locals,
    repeats: Mapping[int, Case],
    asking: Callable[[Sequence[Case]], Graded],
    local_of: Callable[[pa.Table, Sequence[Case]], Locals],
) -> tuple[Locals, list[pa.Table]]:
    """Local scores with what is judged again, and its rows of `judgments`. The calls are added to those of `graded`.

    asking: judges cases with another seed; local_of: makes local scores of judgments.
    """
    if not repeats:
        return local, []
    cases = list(repeats.values())
    again = asking(cases)
    graded.called += again.called
    decisions = judgments(again.rater, again.judged)
    both = averaged(local.batch, local_of(decisions, cases).batch, np.array(list(repeats)))
    return replace(local, batch=both), [decisions]


def refuse_same_replies(judge: Judge, path: Path) -> None:
    """InputError for a judge that would say the same again."""
    if BACKENDS[judge.backend].needs != "engine":
        rule = f"judge '{judge.backend}' gives the same reply every time; leave 'further_calls' out"
        raise InputError(rule, file=path, field="further_calls")
    if judge.sampling.temperature == 0:
        rule = "with temperature 0 every reply is the same; set judge.sampling.temperature"
        raise InputError(rule, file=path, field="further_calls")


def _calls(bundle: Bundle, of_criteria: Mapping[str, float]) -> list[tuple[frozenset[str], float]]:
    """The criteria of each call, and what they are worth: those of which the call decides something."""
    parent_of = {criterion.id: criterion.parent for criterion in (*bundle.criteria, *bundle.composites)}

    def whole(name: str) -> str:
        parent = parent_of[name]
        return whole(parent) if parent else name

    calls = []
    for part in protocol_of(bundle.protocol.name).parts(bundle, ()):
        names = frozenset(criterion.id for criterion in part.criteria)
        calls.append((names, sum(of_criteria[name] for name in {whole(name) for name in names})))
    return calls
