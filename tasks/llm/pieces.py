"""Pieces of work that ask a model, in numbers: what came of each, and the line that is said of all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from tasks.llm.calls import in_words, pace


class PieceCounts(NamedTuple):
    """What came of pieces."""

    members: int = 0
    """Of what a piece consists: responses, rubrics."""
    failed: int = 0
    """What came to nothing: responses without a score, requests without a reply."""
    calls: int = 0
    """That were paid for."""
    reused: int = 0
    """Replies that the reply store had."""
    tokens: int = 0
    """Of the calls, prompts and replies."""
    requests: int = 0
    """That workers sent to the object store."""

    def plus(self, other: PieceCounts) -> PieceCounts:
        """Both together."""
        return PieceCounts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class PieceNames(NamedTuple):
    """What the line calls them."""

    stage: str
    pieces: str
    members: str
    failed: str


class PieceProgress:
    """Counts finished pieces and says a line for each."""

    def __init__(
        self,
        names: PieceNames,
        pieces: int,
        members: int,
        say: Callable[[str, float], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """pieces, members: how many there are to work on. say: takes the line and the share that is done. clock:
        seconds."""
        self._names, self._say, self._clock = names, say, clock
        self._pieces, self._members, self._begun = pieces, members, clock()
        self.pieces_ended, self._counts = 0, PieceCounts()

    def ended(self, counts: PieceCounts) -> None:
        """A piece is worked."""
        self.pieces_ended, self._counts = self.pieces_ended + 1, self._counts.plus(counts)
        self._say(self._line(), self.pieces_ended / self._pieces)

    def _line(self) -> str:
        names, counts, seconds = self._names, self._counts, self._clock() - self._begun
        seconds_left = seconds / self.pieces_ended * (self._pieces - self.pieces_ended)
        rate = f", {pace(counts.members / seconds)}/s" if counts.members and seconds > 0 else ""
        time_left = f", about {in_words(seconds_left)} left" if seconds_left else ""
        tokens = f", {counts.tokens:,} tokens" if counts.tokens else ""
        requests = f", {counts.requests:,} requests to the store" if counts.requests else ""
        members = f"{counts.members:,}/{self._members:,} {names.members}"
        pieces = f"{self.pieces_ended:,}/{self._pieces:,} {names.pieces}"
        calls = f"{counts.calls:,} calls, {counts.reused:,} replies reused, {counts.failed:,} {names.failed}"
        return f"{names.stage}: {pieces}, {members}{rate}, {calls}{tokens}{requests}{time_left}"
