"""A batch of rollouts: what became of it, what it did not wait for, what of it is judged again, and what becomes of a
training where rollouts have no reward."""

from __future__ import annotations

import heapq
import logging
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.llm.ask import Wave
from rubricflow.tasks.core.llm.backend import Backend, Steady
from rubricflow.tasks.core.llm.calls import PENDING, InFlight
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.grade import asks_nobody
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.protocol import protocol_of
from rubricflow.tasks.grading.judge.rater import repeated
from rubricflow.tasks.grading.judge.rows import Called, Case, EarlierDecision, Graded, Judged, Rater
from rubricflow.tasks.rewards.reward.compiled import Batch
from rubricflow.tasks.rewards.reward.local import Locals
from rubricflow.tasks.rewards.serve.answered import AgreementAnswer

if TYPE_CHECKING:
    from rubricflow.flows.prepared_items import PreparedItem

WINDOW = 512
"""Rollouts, the last ones, whose share without a reward the alarm looks at."""
FEW = 16
"""Fewer are no share, but where nothing at all has a reward."""
FAILURES = frozenset({"deadline", "outage"})
"""Reasons that lie with the judge and with no rollout."""
_SHOWN = 200
_logger = logging.getLogger(__name__)
OnFailure = Literal["stop", "none"]
"""What happens to rollouts for which the judge gave no answer, because it is down or out of time: the training stops,
or goes on without their rewards."""
Judging = Callable[[Sequence[Case], Rater], Graded]


class PosedRollout(NamedTuple):
    """A rollout with the item that it answers."""

    item: PreparedItem
    text: str
    step: int | None = None
    """The step of the training that it was made in."""
    paid: tuple[Reply, ...] = ()
    """Replies to calls that were made for it before, where it is judged for another time."""


class UnfinishedRollout(NamedTuple):
    """A rollout with calls that its batch did not wait for."""

    awaited: Sequence[Future[Reply]]
    """Their replies."""
    paid: tuple[Reply, ...]
    """The replies to its other calls."""


class Trouble(NamedTuple):
    """Why a rollout has no reward."""

    reason: str
    """The kind of error that the call ended with (deadline, outage, too_long, refused, ...), or an `UnscoredReason`."""
    said: str
    """The error, or the reply that cannot be used."""


UNKNOWN = Trouble("unscored", "")


@dataclass(frozen=True)
class Cost:
    """What one batch took."""

    rollouts: int
    unscored: int
    """Rollouts without a reward."""
    calls: int
    """Calls to the judge; replies from the store and those shared by identical rollouts are none."""
    prompt_tokens: int
    """Of the calls, as far as the backend counts them."""
    completion_tokens: int
    seconds: float


class JudgedBatch(NamedTuple):
    """What became of a batch, in the order of its rollouts."""

    graded: Graded
    local: Locals
    """What each criterion is worth on its own."""
    rewards: list[float | None]
    variances: list[float | None]
    """Of the rewards, by the judge's own doubts; None where nothing is known of them."""
    missing: list[Trouble | None]
    """Why there is no reward, where there is none."""
    cost: Cost
    repeats: Graded | None
    """The second judging of the rollouts that were judged twice."""


def patient(who: Rater, until: float, through: Callable[[Backend], Backend] = Steady) -> Rater:
    """The rater that waits for no reply after a time of `time.monotonic`. through: makes of a backend the one that is
    asked."""
    mender = through(who.mender) if who.mender else None
    return replace(who, backend=through(who.backend), mender=mender, until=until)


def cost_of(rewards: list[float | None], waves: Sequence[Wave], seconds: float) -> Cost:
    """What a batch took that was asked in these waves."""
    return Cost(
        rollouts=len(rewards),
        unscored=rewards.count(None),
        calls=sum(wave.asked for wave in waves),
        prompt_tokens=sum(wave.prompt_tokens for wave in waves),
        completion_tokens=sum(wave.completion_tokens for wave in waves),
        seconds=seconds,
    )


def case_of_rollout(name: str, rollout: PosedRollout) -> Case:
    """A rollout as it is judged, under a name of its own."""
    item = rollout.item
    text = rollout.text.encode("utf-8", "replace").decode()  # half a surrogate pair fits into no table
    return Case(
        response_id=name,
        item_id=item.row["item_id"],
        text=text,
        units=tuple(units(text)),
        question=item.row["question"],
        context=item.row.get("context"),
        bundle=item.bundle,
        bundle_id=item.bundle_id,
        reference_answer=item.row.get("reference_answer"),
    )


# Calls that a batch does not wait for.


def unfinished(several: Sequence[Graded], in_flight: InFlight) -> dict[str, UnfinishedRollout]:
    """Response → what its judgings, of which there may be several, still wait for; those that wait for something."""
    awaited: dict[str, list[Future[Reply]]] = {}
    paid: defaultdict[str, list[Reply]] = defaultdict(list)
    for graded in several:
        for called in graded.called:
            name = called.response_id
            last = called.answer.attempts[-1]
            paid[name] += made(called)
            if last.reply.error == PENDING:
                reply = in_flight.reply_of(last.digest)
                awaited.setdefault(name, []).extend([reply] if reply else [])
    return {name: UnfinishedRollout(replies, tuple(paid[name])) for name, replies in awaited.items()}


def made(called: Called) -> list[Reply]:
    """The replies to the calls that were made for a part of a rollout."""
    return [one.reply for one in called.answer.attempts if not one.stored and one.reply.error != PENDING]


def finished(graded: Graded, names: Collection[str]) -> Graded:
    """What became of all but these responses."""
    return replace(
        graded,
        judged=[judged for judged in graded.judged if judged.case.response_id not in names],
        called=[called for called in graded.called if called.response_id not in names],
    )


# Rollouts without a reward: why, how many, and when that ends a training.


def troubles(graded: Graded) -> dict[str, Trouble]:
    """Response → what went wrong with its calls, of several the judge's failure first; nothing where all went well."""
    met = {}
    for called in graded.called:
        answer = called.answer
        last = called.answer.attempts[-1]
        trouble = None
        if answer.value is None and last.reply.error is not None:
            trouble = Trouble(last.reply.error.partition(":")[0], last.reply.error)
        elif answer.value is None or last.checked.violations:
            trouble = Trouble(reason_of(answer), last.reply.text or last.reply.error or "")
        if trouble and (trouble.reason in FAILURES or called.response_id not in met):
            met[called.response_id] = trouble
    return met


class Watch:
    """Counts the rollouts without a reward, warns of them, and ends a training that they spoil.

    Under `stop` a failure of the judge ends it, under `none` it is a warning. Where more than a share `limit` of the
    last `WINDOW` rollouts have no reward, whatever the reason, or none has one, `stop` ends it, too, and `none` raises
    an alarm, once until the share falls again. Threads may share one.
    """

    def __init__(self, name: str, on_failure: OnFailure, limit: float) -> None:
        self.unscored: Counter[str] = Counter()
        """Rollouts without a reward, by reason."""
        self._name = name
        self._on_failure = on_failure
        self._limit = limit
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._alarmed = False
        self._shown = UNKNOWN
        self._lock = threading.Lock()

    def note(self, batch: Sequence[Trouble | None]) -> None:
        """Takes note of a batch's rollouts, None for each that has its reward. BackendError ends the training."""
        lost = [trouble for trouble in batch if trouble]
        failures = [trouble for trouble in lost if trouble.reason in FAILURES]
        with self._lock:
            self.unscored.update(trouble.reason for trouble in lost)
            self._recent.extend(trouble is not None for trouble in batch)
            self._shown = next(iter(failures or lost), self._shown)
            rollouts = len(self._recent)
            unscored = sum(self._recent)
            enough = rollouts >= FEW or (unscored == rollouts and rollouts > 1)
            before = self._alarmed
            self._alarmed = enough and unscored > self._limit * rollouts
            reasons = ", ".join(f"{reason} {number:,}" for reason, number in self.unscored.most_common())
            reported = (
                f"{self._name}: {len(lost)} of {len(batch)} rollouts have no reward; so far, by reason: {reasons}"
            )
            reported += f". The judge, of one of them: {self._shown.said[:_SHOWN]!r}"
            is_alarm = self._alarmed and not before
            if is_alarm:
                share = f"{unscored / rollouts:.0%} of the last {rollouts} rollouts have no reward"
                reported += f". ALARM: {share}, more than {self._limit:.0%}"
        if self._on_failure == "stop" and (failures or is_alarm):
            raise BackendError(f"{reported}; {_STOP}")
        if lost or is_alarm:
            _logger.log(logging.ERROR if is_alarm else logging.WARNING, "%s", reported)


_STOP = (
    "the training stops, as on_failure is 'stop'. Replies that came are kept. Mend the judge and go on from the last "
    "checkpoint, give a batch more time (deadline), or train on without such rewards (on_failure='none')"
)


# What is judged a second time: some, to see how far a judge agrees with itself, and the parts whose doubts weigh most
# in the reward, within a fixed number of calls.


def chosen_share(cases: Sequence[Case], share: float) -> list[Case]:
    """About this share of the cases, by a digest of item and text: the same ones whenever they come again."""
    chosen = []
    for case in cases:
        digest = digest_bytes(f"{case.item_id}\n{case.text}")
        if int.from_bytes(digest[:8], "big") / 2**64 < share:
            chosen.append(case)
    return chosen


def second_judging(cases: Sequence[Case], rater: Rater, judging: Judging) -> Graded | None:
    """These cases, at least one, judged by the rater's second repetition, which has another seed; None where that
    fails, which never costs a reward."""
    try:
        return judging(cases, repeated(rater, 2)[1])
    except Exception as error:  # the first judging meets the same and says it
        _logger.warning("the second judging of %d rollouts failed: %s", len(cases), error)
        return None


def agreements(first: Sequence[Judged], second: Sequence[Judged]) -> dict[str, AgreementAnswer]:
    """Response → how far its two judgings agree, for the responses that were judged twice."""
    levels = {judged.case.response_id: _levels(judged) for judged in first}
    found: dict[str, AgreementAnswer] = {}
    for judged in second:
        one = levels[judged.case.response_id]
        two = _levels(judged)
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
    worths = []
    for row, decided in enumerate(judged):
        if not asks_nobody(decided.case):
            names = batch.compiled[batch.rubric_index[row]].criteria
            part = slice(*batch.start[row : row + 2])
            of_criteria: dict[str, float] = dict(zip(names, weights[part].tolist(), strict=True))
            worths += [(worth, row, call) for call, worth in _calls(decided.case.bundle, of_criteria) if worth > 0]
    chosen: defaultdict[int, set[str]] = defaultdict(set)
    for _, row, names in heapq.nlargest(calls, worths, key=lambda call: call[0]):
        chosen[row] |= names
    repeats = {}
    for row, again in sorted(chosen.items()):
        earlier = {
            decision.criterion_id: EarlierDecision(decision, judged[row].probabilities.get(decision.criterion_id))
            for decision in judged[row].decisions
            if decision.criterion_id not in again
        }
        repeats[row] = replace(judged[row].case, earlier=earlier)
    return repeats


def _calls(bundle: Bundle, of_criteria: Mapping[str, float]) -> Iterator[tuple[frozenset[str], float]]:
    """The criteria of each call, and what they are worth: a sub-point is worth what its criterion is."""
    parent_of = {criterion.id: criterion.parent for criterion in (*bundle.criteria, *bundle.composites)}
    for part in protocol_of(bundle.protocol.name).parts(bundle, ()):
        names = frozenset(criterion.id for criterion in part.criteria)
        wholes = set()
        for name in names:
            while (parent := parent_of[name]) is not None:
                name = parent
            wholes.add(name)
        yield names, sum(of_criteria[name] for name in wholes)
