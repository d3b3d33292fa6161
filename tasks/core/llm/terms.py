"""What the workers of one command have in common while they ask a model: its code, a ledger, a budget."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rubricflow.tasks.core.contracts.backends import Choice, is_generative
from rubricflow.tasks.core.llm.budget import SharedTokenBudget
from rubricflow.tasks.core.llm.calls import in_words, pace
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.reply_store import is_database
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.store.workers import from_anywhere

# Pieces of work that ask a model, in numbers: what came of each, and the progress line about all of them.


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
        """Counts a finished piece, and says the line."""
        self.pieces_ended, self._counts = self.pieces_ended + 1, self._counts.plus(counts)
        names, counts, seconds = self._names, self._counts, self._clock() - self._begun
        seconds_left = seconds / self.pieces_ended * (self._pieces - self.pieces_ended)
        rate = f", {pace(counts.members / seconds)}/s" if counts.members and seconds > 0 else ""
        time_left = f", about {in_words(seconds_left)} left" if seconds_left else ""
        tokens = f", {counts.tokens:,} tokens" if counts.tokens else ""
        requests = f", {counts.requests:,} requests to the store" if counts.requests else ""
        members = f"{counts.members:,}/{self._members:,} {names.members}"
        pieces = f"{self.pieces_ended:,}/{self._pieces:,} {names.pieces}"
        calls = f"{counts.calls:,} calls, {counts.reused:,} replies reused, {counts.failed:,} {names.failed}"
        line = f"{names.stage}: {pieces}, {members}{rate}, {calls}{tokens}{requests}{time_left}"
        self._say(line, self.pieces_ended / self._pieces)


# What the workers of one command share while they ask a model.


@dataclass(frozen=True)
class Sharing:
    """What a worker shares with the others of its run."""

    workers: int = 1
    """How many there are at most at any time."""
    ledger: CallLedger | None = None
    """Where calls are counted together; None where there is one process."""

    def part(self, concurrency: int) -> int:
        """Of so many calls at once those of this worker; at least one."""
        return max(1, concurrency // self.workers)


_ALONE = Sharing()
_sharing: ContextVar[Sharing] = ContextVar("sharing", default=_ALONE)


@contextmanager
def shared(sharing: Sharing) -> Iterator[None]:
    """Clients that are opened within the block share so."""
    token = _sharing.set(sharing)
    try:
        yield
    finally:
        _sharing.reset(token)


def sharing() -> Sharing:
    """How a client that is opened here shares."""
    return _sharing.get()


_STEPS = 16
"""Steps in which a worker draws its equal part of a token budget."""


class Terms(NamedTuple):
    """What every worker gets with each piece."""

    workers: int
    """How many work at the same time."""
    ledger: Path | str | None
    """Where they count together; None for an encoder in a bucket, which asks nobody."""
    budget: str | None
    """The ledger's budget that pays; None without one."""
    step: int
    """Tokens that a worker draws from it together."""
    code: str
    """Digest of the code that sends it: a worker of another version refuses its piece."""


def concurrency(choice: Choice, slots: int, pieces: int) -> int:
    """How many pieces are worked at the same time: as many as there are slots, and not more than the server takes
    calls."""
    calls = choice.engine.concurrency if choice.engine else slots
    return max(1, min(slots, pieces, calls))


def terms_of(choice: Choice, run: Run, stage: str, workers: int, token_budget: int | None) -> Terms:
    """The terms of so many workers. Makes their ledger, with the token budget where there is one.

    The ledger is in the database of the replies, else in a file next to them; none where nobody is asked.
    """
    ledger: Path | str | None = None
    budget = None
    replies = run.warehouse.replies
    if not run.warehouse.mirrored or is_generative(choice):
        ledger = str(replies) if is_database(replies) else Path(replies).absolute().with_name("ledger.sqlite")
        with closing(CallLedger(ledger)) as made:
            made.make()
            if token_budget is not None:
                budget = f"{run.run_id} {stage} {secrets.token_hex(8)}"
                made.fill(budget, token_budget)
    step = max(1, (token_budget or 0) // (_STEPS * workers))
    return Terms(workers=workers, ledger=ledger, budget=budget, step=step, code=code_digest())


def tokens_drawn(terms: Terms) -> int:
    """Tokens that the workers drew and did not give back: what they spent, unless one was killed."""
    if terms.budget is None or terms.ledger is None:
        return 0
    with closing(CallLedger(terms.ledger)) as ledger:
        return ledger.drawn(terms.budget)[0]


@contextmanager
def spending(terms: Terms, ledger: CallLedger | None) -> Iterator[SharedTokenBudget | None]:
    """What pays for a piece, None without a budget; what the piece leaves of it is given back."""
    if terms.budget is None or ledger is None:
        yield None
        return
    budget = SharedTokenBudget(ledger, terms.budget, terms.step)
    try:
        yield budget
    finally:
        budget.give_back()


def opened_ledger(terms: Terms) -> CallLedger | None:
    """Where this worker counts with the others."""
    return None if terms.ledger is None else CallLedger(terms.ledger)


def with_absolute_paths(run: Run) -> Run:
    """The same run and its replies, found from any working directory."""
    run = from_anywhere(run)
    named = run.warehouse.replies_named
    if not named or is_database(named):
        return run
    return replace(run.warehouse, replies_named=str(Path(named).absolute())).run(run.run_id)
