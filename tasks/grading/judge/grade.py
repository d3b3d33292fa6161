"""Grading a batch: ask, verify, score. Pure but for the backend; the stage and the trainers both call it.

Where the protocol remembers what it graded, an item's responses are judged in rounds: all responses of a round see the
same store, which learns from them in the order of processing before the next round. Rounds of all items of the batch go
side by side, so one answer per item and round is the strictly sequential store, at the speed of many items at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, zip_longest
from typing import Any

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.llm.ask import Attempt, Checked, RequestOutcome, Wave, ask, ignore_wave
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Reply, Request
from rubricflow.tasks.core.text.digest import nonce, text_digest
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge.comparing import Compared, compared, comparisons, is_compared, part_of
from rubricflow.tasks.grading.judge.memory import FORGOTTEN, Memory, Store, fitting, learn, recall
from rubricflow.tasks.grading.judge.protocol import (
    ALL,
    NOTHING,
    Answer,
    JudgingProtocol,
    Outcome,
    Part,
    Shown,
    open_parts,
    protocol_of,
    spare_characters,
    unscored,
)
from rubricflow.tasks.grading.judge.rows import (
    LONGEST,
    Called,
    Case,
    Decision,
    Graded,
    Grading,
    Judged,
    Rater,
    WorkedExample,
)
from rubricflow.tasks.grading.judge.schema import numbered_names
from rubricflow.tasks.grading.judge.score import Scored


def grade_batch(
    cases: Sequence[Case],
    rater: Rater,
    replies: Replies,
    on_wave: Callable[[Wave], None] = ignore_wave,
) -> Graded:
    """Grade cases under their bundles; a case without enough words is settled without a call, and one of which a file
    could not be read stays without a score.

    on_wave: is told of the end of each wave of calls.
    """

    def ask_all(requests: Sequence[Request]) -> list[RequestOutcome[Any]]:
        backend, mender = rater.backend, rater.mender
        return ask(requests, backend, replies, check, repair, on_wave=on_wave, mender=mender)

    outcomes = {place: _unasked(case) for place, case in enumerate(cases) if asks_nobody(case)}
    if cases and is_compared(cases[0]):
        together = [case for place, case in enumerate(cases) if place not in outcomes]
        orders = comparisons(together, rater.sample)
        calls = ask_all([_request(case, Part(ALL), (), rater) for case in orders])
        found = compared(together, orders, calls) if together else Compared([], [])
        scored = iter(found.gradings)
        gradings = [outcomes[place].grading if place in outcomes else next(scored) for place in range(len(cases))]
        by_order = zip(orders, calls, strict=True)
        called = [Called(case.answers[0].response_id, part_of(case), call) for case, call in by_order]
        verdicts = found.verdicts if PROTOCOLS[cases[0].bundle.protocol.name].compares == "pairs" else None
        return Graded(rater, [Judged(case) for case in cases], gradings, called, verdicts)
    answers: list[list[Answer]] = [[] for _ in cases]
    stores: defaultdict[str, Store] = defaultdict(tuple)
    open_ = [place for place in range(len(cases)) if place not in outcomes]
    for chosen in rounds([cases[place] for place in open_]):
        places = [open_[number] for number in chosen]
        recalled = {place: recall(cases[place], stores[cases[place].item_id]) for place in places}
        # All that can be asked at once is one batch.
        while asked := [(place, part) for place in places for part in _open_parts(cases[place], answers[place])]:
            requests = []
            for place, part in asked:
                requests.append(_request(cases[place], part, tuple(answers[place]), rater, recalled[place]))
            for (place, part), call in zip(asked, ask_all(requests), strict=True):
                answers[place].append(Answer(part, call))
        for place in places:
            case = cases[place]
            outcomes[place] = _protocol(case.bundle).outcome(case, answers[place])
            stores[case.item_id] = learn(stores[case.item_id], case, outcomes[place])
    graded = Graded(rater)
    for place, (case, of_case) in enumerate(zip(cases, answers, strict=True)):
        outcome = outcomes[place]
        graded.called += [Called(case.response_id, part.name, call) for part, call in of_case]
        graded.judged.append(outcome.judged)
        graded.gradings.append(outcome.grading)
    return graded


def asks_nobody(case: Case) -> bool:
    """Whether no judge is asked: what was handed in could not be read, or has fewer words than the protocol wants."""
    return case.unread is not None or len(tokens(case.text)) < max(1, case.bundle.protocol.min_tokens)


def asked_about(cases: Iterable[Case]) -> Iterable[Case]:
    """What judges are asked about: the cases themselves without those that nobody is asked about, or the comparisons of
    them."""
    asked = [case for case in cases if not asks_nobody(case)]
    return comparisons(asked) if asked and is_compared(asked[0]) else asked


def first_requests(case: Case, rater: Rater) -> list[Request]:
    """What is asked about a case before anything is answered, without what memory would show."""
    return [_request(case, part, (), rater) for part in _protocol(case.bundle).parts(case.bundle, ())]


def expected_requests(case: Case, rater: Rater) -> list[Request]:
    """The first requests and those that follow on their answers, as far as these are known: as if they had decided
    nothing."""
    before: list[Answer] = []
    while parts := _protocol(case.bundle).parts(case.bundle, before):
        before += [Answer(part, RequestOutcome(_request(case, part, tuple(before), rater))) for part in parts]
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

    def place(index: int) -> str:
        case = cases[index]
        limits = cases[index].bundle.protocol.consistency_memory
        if limits is None or limits.order_seed is None:
            return case.response_id
        words = f"{limits.order_seed}:{case.item_id}:{case.response_id}"
        return text_digest(words)

    of_item = defaultdict(list)
    for i, case in enumerate(cases):
        of_item[case.item_id].append(i)
    pieces = []
    for indices in of_item.values():
        limits = cases[indices[0]].bundle.protocol.consistency_memory
        size = len(indices)
        if limits:
            size, indices = limits.round_size, sorted(indices, key=place)
        pieces.append([indices[first : first + size] for first in range(0, len(indices), size)])
    return [list(chain.from_iterable(of_round)) for of_round in zip_longest(*pieces, fillvalue=())]


def _open_parts(case: Case, answers: Sequence[Answer]) -> list[Part]:
    """What can be asked next about a case."""
    return open_parts(_protocol(case.bundle).parts(case.bundle, answers), case.earlier)


def _request(case: Case, part: Part, before: tuple[Answer, ...], rater: Rater, recalled: Memory = FORGOTTEN) -> Request:
    """The first request for a part: as many worked examples next to the response as the context holds, then as much of
    what memory recalls."""

    def showing(shown: Shown) -> Request:
        return _protocol(case.bundle).request(case, part, before, shown, rater)

    shown = fitting_examples(case, part, showing(NOTHING)) if case.examples else NOTHING
    if recalled != FORGOTTEN:
        shown = shown.then(fitting(recalled, showing(shown)))
    return showing(shown)


def _protocol(bundle: Bundle) -> JudgingProtocol:
    return protocol_of(bundle.protocol.name)


def _unasked(case: Case) -> Outcome:
    """The lowest of everything for want of words; nothing where what was handed in could not be read."""
    bundle = case.bundle
    decided = bundle.criteria if _protocol(bundle).parts(bundle, ())[0].criteria else ()
    if case.unread:
        return unscored(case, decided, case.unread)
    judged = Judged(case, [Decision(c.id, 0) for c in decided])
    lowest = {trait.id: trait.min for trait in bundle.judged}
    return Outcome(judged, Grading(case, Scored(bundle.scale.min, lowest), {"precheck": 1.0, "short_answer_gate": 1.0}))


# Worked examples in a prompt: responses that people graded, in the user's message before the response, where the
# prefix cache holds those that are the same for an item.


def fitting_examples(case: Case, part: Part, bare: Request) -> Shown:
    """As many of a case's examples as the context holds next to a request without them; the most wanted stay."""
    spare = spare_characters(bare)
    for count in range(len(case.examples), 0, -1):
        shown = show(case.examples[:count], part, case.bundle)
        if len(shown.text) < spare:  # a line break comes after it
            return shown
    return NOTHING


def show(examples: Sequence[WorkedExample], part: Part, bundle: Bundle) -> Shown:
    """Examples, the most wanted first, with what people decided of the part that is asked for; the most wanted is shown
    last, next to the response."""
    lines = []
    for number, example in enumerate(examples[::-1], 1):
        cut = " […]" if len(example.text) > LONGEST else ""
        lines.append(f"{number}. response: {prompt.quoted(example.text[:LONGEST])}{cut}")
        lines.append(f"   decided by people: {'; '.join(_decided(example, part, bundle))}")
    text = "\n".join(lines)
    shown = prompt.fill("worked", {"examples": text, "nonce": nonce(text)}).rstrip("\n")
    return Shown(shown, tuple(f"example:{example.response_id}" for example in examples[::-1]))


def _decided(example: WorkedExample, part: Part, bundle: Bundle) -> Iterator[str]:
    """What people decided, in the words of the contract."""
    protocol = PROTOCOLS[bundle.protocol.name]
    if "score" in protocol.teaches:
        yield f"score {example.score:g}"
    yield from (f"{t.id} {example.traits[t.id]:g}" for t in part.traits if t.id in example.traits)
    names = numbered_names(bundle)
    for criterion in part.criteria:
        if criterion.id in example.levels:
            level = example.levels[criterion.id]
            is_point = protocol.shape == "points"
            yield f"{names[criterion.id]} {criterion.levels[level]}" if is_point else f"{criterion.id} level {level}"
