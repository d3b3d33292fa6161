"""Rollouts without a reward: why, how many, and when that ends a training."""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.rows import Graded

OnFailure = Literal["stop", "none"]
"""What happens to rollouts for which the judge gave no answer, because it is down or out of time: the training stops,
or goes on without their rewards."""
FAILURES = frozenset({"deadline", "outage"})
"""Reasons that lie with the judge and with no rollout."""
WINDOW = 512
"""Rollouts, the last ones, whose share without a reward the alarm looks at."""
FEW = 16
"""Fewer are no share, but where nothing at all has a reward."""
_SHOWN = 200
_logger = logging.getLogger(__name__)


class Trouble(NamedTuple):
    """Why a rollout has no reward."""

    reason: str
    """The kind of error that the call ended with (deadline, outage, too_long, refused, ...), or an `UnscoredReason`."""
    said: str
    """The error, or the reply that cannot be used."""

    @property
    def is_failure(self) -> bool:
        """Whether it lies with the judge and not with the rollout."""
        return self.reason in FAILURES


UNKNOWN = Trouble("unscored", "")


def troubles(graded: Graded) -> dict[str, Trouble]:
    """Response → what went wrong with its calls, of several the judge's failure first; nothing where all went well."""
    met: dict[str, Trouble] = {}
    for called in graded.called:
        answer, last = called.answer, called.answer.attempts[-1]
        trouble = None
        if answer.value is None and last.reply.error is not None:
            trouble = Trouble(last.reply.error.partition(":")[0], last.reply.error)
        elif answer.value is None or last.checked.violations:
            trouble = Trouble(reason_of(answer), last.reply.text or last.reply.error or "")
        if trouble and (trouble.is_failure or called.case.response_id not in met):
            met[called.case.response_id] = trouble
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
        self._name, self._on_failure, self._limit = name, on_failure, limit
        self._seen = 0
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._alarmed = False
        self._shown = UNKNOWN
        self._lock = threading.Lock()

    def note(self, batch: Sequence[Trouble | None]) -> None:
        """Takes note of a batch's rollouts, None for each that has its reward. BackendError ends the training."""
        lost = [trouble for trouble in batch if trouble]
        failures = [trouble for trouble in lost if trouble.is_failure]
        with self._lock:
            self._seen += len(batch)
            self.unscored.update(trouble.reason for trouble in lost)
            self._recent.extend(trouble is not None for trouble in batch)
            self._shown = next(iter(failures or lost), self._shown)
            rollouts, unscored = len(self._recent), sum(self._recent)
            enough = rollouts >= FEW or (unscored == rollouts and rollouts > 1)
            before, self._alarmed = self._alarmed, enough and unscored > self._limit * rollouts
            alarm = ""
            if self._alarmed and not before:
                share = f"{unscored / rollouts:.0%} of the last {rollouts} rollouts have no reward"
                alarm = f". ALARM: {share}, more than {self._limit:.0%}"
            in_batch = f"{len(lost)} of {len(batch)} rollouts have no reward"
            in_batch += _listed(Counter(trouble.reason for trouble in lost))
            so_far = f"so far {self.unscored.total():,} of {self._seen:,}{_listed(self.unscored)}"
            said = f"The judge, of one of them: {self._shown.said[:_SHOWN]!r}"
            reported = f"{self._name}: {in_batch}; {so_far}. {said}"
        if self._on_failure == "stop" and (failures or alarm):
            raise BackendError(f"{reported}{alarm}; {_STOP}")
        if lost or alarm:
            _logger.log(logging.ERROR if alarm else logging.WARNING, "%s%s", reported, alarm)


_STOP = (
    "the training stops, as on_failure is 'stop'. Replies that came are kept. Mend the judge and go on from the last "
    "checkpoint, give a batch more time (deadline), or train on without such rewards (on_failure='none')"
)


def _listed(reasons: Counter[str]) -> str:
    counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
    return f" ({counts})" if counts else ""
