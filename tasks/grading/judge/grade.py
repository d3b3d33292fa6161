"""Grading a batch: ask, verify, score. Pure but for the backend; the stage and the trainers both call it.

Where the protocol remembers what it graded, an item's responses are judged in rounds: all responses of a round see the
same store, which learns from them in the order of processing before the next round. Rounds of all items of the batch go
side by side, so one answer per item and round is the strictly sequential store, at the speed of many items at once.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.llm.ask import Attempt, Checked, OnOpen, RequestOutcome, Wave, ask, ignore_open, ignore_wave
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.grading.judge import teaching
from rubricflow.tasks.grading.judge.keep import open_parts
from rubricflow.tasks.grading.judge.memory import FORGOTTEN, Memory, Store, fitting, learn, recall
from rubricflow.tasks.grading.judge.protocol import (
    NOTHING,
    Answer,
    Outcome,
    Part,
    ProtocolModule,
    Shown,
    protocol_module,
)
from rubricflow.tasks.grading.judge.rows import Called, Case, Decision, Graded, Grading, Judged, Rater
from rubricflow.tasks.grading.judge.score import Scored

AskAll = Callable[[Sequence[Request]], list[RequestOutcome[Any]]]
"""Puts requests to the rater, all at once."""


def grade_batch(
    cases: Sequence[Case],
    rater: Rater,
    replies: Replies,
    on_wave: Callable[[Wave], None] = ignore_wave,
    on_open: OnOpen = ignore_open,
) -> Graded:
    """Grade cases under their bundles; a case without enough words is settled without a call, and one of which a file
    could not be read stays without a score.

    on_open, on_wave: are told of the beginning and the end of each wave of calls.
    """
    graded = Graded(rater)
    unasked = [asks_nobody(case) for case in cases]
    asking = [case for case, settled in zip(cases, unasked, strict=True) if not settled]

    def ask_all(requests: Sequence[Request]) -> list[RequestOutcome[Any]]:
        backend, mender = rater.backend, rater.mender
        return ask(requests, backend, replies, check, repair, on_wave=on_wave, mender=mender, on_open=on_open)

    judged = iter(_judged(asking, rater, ask_all))
    for case, settled in zip(cases, unasked, strict=True):
        answers, outcome = ([], _unasked(case)) if settled else next(judged)
        graded.called += [Called(case, part.name, call) for part, call in answers]
        graded.judged.append(outcome.judged)
        graded.gradings.append(outcome.grading)
    return graded


def asks_nobody(case: Case) -> bool:
    """Whether no judge is asked: what was handed in could not be read, or has fewer words than the protocol wants."""
    return case.unread is not None or len(tokens(case.text)) < max(1, case.bundle.protocol.min_tokens)


def first_requests(case: Case, rater: Rater) -> list[Request]:
    """What is asked about a case before anything is answered, without what memory would show."""
    return [_request(case, part, (), rater) for part in _protocol(case.bundle).parts(case.bundle, ())]


def expected_requests(case: Case, rater: Rater) -> list[Request]:
    """The first requests and those that follow on their answers, as far as these are known: as if they had decided
    nothing."""
    before: list[Answer] = []
    while parts := _protocol(case.bundle).parts(case.bundle, before):
        requests = [_request(case, part, tuple(before), rater) for part in parts]
        before += [Answer(part, RequestOutcome(request)) for part, request in zip(parts, requests, strict=True)]
    return [call.request for _, call in before]


def check(request: Request, reply: Reply) -> Checked[Any]:
    """What a reply is worth under the protocol that asked."""
    return _protocol(request.data.bundle).check(request, reply)


def repair(request: Request, history: tuple[Attempt[Any], ...]) -> Request | None:
    """The protocol's next request that mends what failed."""
    return _protocol(request.data.bundle).repair(request, history)


def rounds(cases: Sequence[Case]) -> list[list[int]]:
    """Indices of the cases, round by round, each round in the order of processing; one round where nothing is
    remembered.

    An item's cases come in the order of their ids, or of a hash of seed and ids where the protocol names a seed, so
    that a case's place does not depend on how the batch is ordered. The k-th round holds the k-th of every item.
    """
    of_item = defaultdict(list)
    for i, case in enumerate(cases):
        of_item[case.item_id].append(i)
    pieces = []
    for indices in of_item.values():
        limits, size = cases[indices[0]].bundle.protocol.consistency_memory, len(indices)
        if limits:
            size, seed = limits.round_size, limits.order_seed
            indices = sorted(indices, key=lambda i: _place(cases[i], seed))
        pieces.append([indices[first : first + size] for first in range(0, len(indices), size)])
    return [list(chain.from_iterable(of_round)) for of_round in zip_longest(*pieces, fillvalue=())]


def _place(case: Case, seed: int | None) -> str:
    if seed is None:
        return case.response_id
    return hashlib.sha256(f"{seed}:{case.item_id}:{case.response_id}".encode("utf-8", "surrogatepass")).hexdigest()


def _judged(cases: Sequence[Case], rater: Rater, ask_all: AskAll) -> list[tuple[list[Answer], Outcome]]:
    """Answers and outcome of each case, in the order of the cases."""
    stores: defaultdict[str, Store] = defaultdict(tuple)
    judged: dict[int, tuple[list[Answer], Outcome]] = {}
    for indices in rounds(cases):
        mine = [cases[i] for i in indices]
        recalled = [recall(case, stores[case.item_id]) for case in mine]
        of_round = _judged_round(mine, recalled, rater, ask_all)
        judged |= zip(indices, of_round, strict=True)
        for case, (_, outcome) in zip(mine, of_round, strict=True):
            stores[case.item_id] = learn(stores[case.item_id], case, outcome)
    return [judged[i] for i in range(len(cases))]


def _judged_round(
    cases: Sequence[Case], recalled: Sequence[Memory], rater: Rater, ask_all: AskAll
) -> list[tuple[list[Answer], Outcome]]:
    """Answers and outcome of each case: all that can be asked at once is one batch."""
    answers: list[list[Answer]] = [[] for _ in cases]
    while open_ := list(_open_parts(cases, answers)):
        requests = [_request(cases[i], part, tuple(answers[i]), rater, recalled[i]) for i, part in open_]
        for (i, part), call in zip(open_, ask_all(requests), strict=True):
            answers[i].append(Answer(part, call))
    outcomes = [_protocol(case.bundle).outcome(case, of_case) for case, of_case in zip(cases, answers, strict=True)]
    return list(zip(answers, outcomes, strict=True))


def _open_parts(cases: Sequence[Case], answers: Sequence[list[Answer]]) -> Iterator[tuple[int, Part]]:
    """(index of the case, part) of all that can be asked next."""
    for i, case in enumerate(cases):
        parts = _protocol(case.bundle).parts(case.bundle, answers[i])
        for part in open_parts(parts, case.earlier):
            yield i, part


def _request(case: Case, part: Part, before: tuple[Answer, ...], rater: Rater, recalled: Memory = FORGOTTEN) -> Request:
    """The first request for a part: as many worked examples next to the response as the context holds, then as much of
    what memory recalls."""

    def showing(shown: Shown) -> Request:
        return _protocol(case.bundle).request(case, part, before, shown, rater)

    shown = teaching.fitting(case, part, showing(NOTHING)) if case.examples else NOTHING
    if recalled != FORGOTTEN:
        shown = shown.then(fitting(recalled, case.bundle, showing(shown)))
    return showing(shown)


def _protocol(bundle: Bundle) -> ProtocolModule:
    return protocol_module(bundle.protocol.name)


def _unasked(case: Case) -> Outcome:
    """The lowest of everything for want of words; nothing where what was handed in could not be read."""
    bundle = case.bundle
    decided = bundle.criteria if _protocol(bundle).parts(bundle, ())[0].criteria else ()
    if case.unread:
        judged = Judged(case, [Decision(c.id, None, reason=case.unread) for c in decided], {})
        return Outcome(judged, Grading(case, Scored(None), {}, reason=case.unread))
    judged = Judged(case, [Decision(c.id, 0) for c in decided], {})
    lowest = {trait.id: trait.min for trait in bundle.traits if trait.source == "judged"}
    return Outcome(judged, Grading(case, Scored(bundle.scale.min, lowest), {"precheck": 1.0, "short_answer_gate": 1.0}))
