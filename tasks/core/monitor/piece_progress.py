"""How far the pieces of a shared stage are, wherever they are worked: what came of those that ended, what their workers
tell of those under way, and the line that is logged of both."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import NamedTuple

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.llm.calls import EVERY_S, METERS, PAID, WAITING_S, by_what, in_words, pace
from rubricflow.tasks.core.llm.ledger import Lane
from rubricflow.tasks.core.monitor.runs import log


class PieceCounts(NamedTuple):
    """What came of pieces."""

    members: int = 0
    """Responses, gradings or rubrics."""
    failed: int = 0
    """What came to nothing: responses without a score, requests without a reply."""
    calls: int = 0
    """Paid for."""
    reused: int = 0
    """Replies that the reply store had."""
    tokens: int = 0
    """Of the calls, prompts and replies."""
    requests: int = 0
    """That workers sent to the object store."""
    seconds: float = 0.0
    """That workers took for them, without what they opened first."""


class Lookout:
    """What the lanes of a command tell while they work. Says where a worker is lost, and counts its calls."""

    def __init__(self, lanes: Callable[[], list[Lane]], say: Callable[[str], None] = log) -> None:
        """lanes: asks the ledger. say: takes a line."""
        self._ask, self._say = lanes, say
        self._lanes: list[Lane] = []
        self._workers: dict[str, Lane] = {}
        """Piece → what was last told of it."""

    def look(self) -> list[Lane]:
        """The lanes as they are now; as they were, where the database is away."""
        with suppress(StoreError):
            self._lanes = self._ask()
        for lane in filter(lambda lane: lane.worker, self._lanes):
            before = self._workers.get(lane.piece, lane)
            self._workers[lane.piece] = lane
            if before.worker != lane.worker:
                self._say(f"the worker {before.worker} was lost; the one {lane.worker} works {lane.piece} anew")
                METERS.add({name: told for name, told in before.told.items() if name.partition(" ")[0] in PAID})
        return self._lanes

    def asked(self, under_way: Collection[str]) -> Counter[str]:
        """What workers counted of these pieces."""
        return sum((Counter(lane.told) for lane in self._lanes if lane.piece in under_way), Counter[str]())


class PieceProgress:
    """Counts pieces, finished and under way, wherever they are worked, and logs a line now and then: plain text, so
    that it reads in any log."""

    def __init__(
        self,
        stage: str,
        members: int,
        names: tuple[str, str],
        say: Callable[[str, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """members: of all pieces together. names: what they are called, and what came to nothing. say: takes the line
        and the share that is done. clock: seconds."""
        self._stage, self._names, self._say, self._clock = stage, names, say, clock
        self._members, self._begun = members, clock()
        self._said, self._ended, self._counts = self._begun, 0, PieceCounts()
        self._last, self._gate = Counter[str](), threading.Lock()

    def ended(self, counts: PieceCounts) -> None:
        """A piece is done."""
        with self._gate:
            self._ended += 1
            self._counts = PieceCounts(*map(sum, zip(self._counts, counts, strict=True)))  # type: ignore[arg-type]
            if self._counts.members == self._members or self._clock() - self._said >= EVERY_S:
                self._tell({}, 0)

    def look(self, asked: Mapping[str, float], members: int, waited_s: float = 0.0, has_begun: bool = True) -> None:
        """Says a line where the last one is some seconds ago, more of them where nothing came since. asked: what was
        counted of pieces under way; members: of these; waited_s: since when nothing has come of them; has_begun:
        whether anybody works them, from when on their time counts."""
        with self._gate:
            if not members or self._clock() - self._said < (WAITING_S if asked == self._last else EVERY_S):
                return
            if has_begun or self._ended:
                self._tell(asked, members, waited_s)
            else:
                self._say(f"{self._stage}: no worker has begun yet; they may be starting", 0.0)
                self._said = self._begun = self._clock()

    def _tell(self, asked: Mapping[str, float], members: int, waited_s: float = 0.0) -> None:
        counts, so_far, self._said, self._last = self._counts, by_what(asked), self._clock(), Counter(asked)
        calls, open_ = so_far["calls"], so_far["open"]
        answered = int(members * calls / (calls + open_)) if calls else 0
        done, seconds, (names, failed) = counts.members + answered, self._said - self._begun, self._names
        seconds_left = seconds / done * (self._members - done) if done else 0
        tokens = counts.tokens + so_far["prompt_tokens"] + so_far["completion_tokens"]
        absent = next((f" of {name.partition(' ')[2]}" for name in asked if name.startswith("absent ")), "")
        parts = [
            f"{self._stage}: {'about ' if answered else ''}{done:,}/{self._members:,} {names}",
            f"{pace(done / seconds)}/s" if done and seconds > 0 else "",
            f"about {in_words(seconds_left)} left" if seconds_left else "",
            f"{self._ended:,} pieces" if self._ended > 1 else "",
            f"{counts.calls + calls:,} calls",
            f"{open_:,} open" if open_ else "",
            f"waiting for replies{absent}, {in_words(waited_s)}" if waited_s >= WAITING_S and open_ else "",
            f"{counts.reused:,} replies reused",
            f"{counts.failed:,} {failed}",
            f"{tokens:,} tokens" if tokens else "",
            f"{counts.requests:,} requests to the store" if counts.requests else "",
        ]
        self._say(", ".join(filter(None, parts)), min(1.0, done / self._members))
