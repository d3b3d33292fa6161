"""A stage whose pieces the workers of a cluster do: shards of judging, packs of calibration, packs of graphs.

The command sends every piece by `share_out`; in a worker's process `do_piece` does one. A worker opens what the stage
needs (a model, rubrics) for its first piece and keeps it for the others. Done-marks and stored replies alone tell what
is finished, so the same command goes on after the loss of a worker, of the cluster or of itself.
"""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from rubricflow.tasks.core.contracts.backends import Choice, is_generative
from rubricflow.tasks.core.contracts.errors import BackendError, StoreError
from rubricflow.tasks.core.contracts.settings.engine import Placement
from rubricflow.tasks.core.llm.budget import SharedCap, Sharing, Unit, ledger_of, present_budget, shared, spending
from rubricflow.tasks.core.llm.calls import in_words, pace
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.reply_store import is_database
from rubricflow.tasks.core.monitor.engines import Crew, on_engine
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.objects import requests_sent
from rubricflow.tasks.core.store.warehouse import Run, Warehouse

Opened = TypeVar("Opened")


class Piece(NamedTuple):
    """A part of a stage's work that one worker does."""

    name: str
    """As people and Prefect see it."""
    members: int
    """Responses, gradings or rubrics in it."""
    shard: str | None = None
    """The shard that it writes; None where it leaves replies alone."""
    content: Any = None
    """What else a worker needs for it; small."""


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


class PieceResult(NamedTuple):
    """What comes back from a worker."""

    counts: PieceCounts
    errors: Mapping[str, str]
    """Digest of a request that got no reply → why: the reply store keeps no errors."""


@dataclass(frozen=True)
class SharedStage:
    """What a worker gets of a stage, the same for every piece: all by name and reference, nothing by value."""

    name: str
    pieces: str
    """What its pieces are called."""
    run: Run
    assignment: Any
    """What `open` takes. Its paths are found from any working directory."""
    written: tuple[str, str]
    """Stage and shard that the command has written: a worker that does not see it has another warehouse."""
    open: Callable[[Any], Any]
    """Opens what the pieces are worked with; a function of a module."""
    work: Callable[[Any, Piece], PieceResult]
    """Does a piece with what was opened. A function of a module."""
    choice: Choice | None = None
    """The model that is asked."""


_STEPS = 16
"""Steps in which a worker draws its equal part of a budget."""


class Terms(NamedTuple):
    """What every worker gets with each piece."""

    workers: int
    """How many work at the same time."""
    ledger: Path | str | None
    """Where they count together; None for an encoder in a bucket, which asks nobody."""
    caps: Mapping[Unit, tuple[str, int]]
    """The ledger's caps that pay, and how much a worker draws from each together; empty without a budget."""
    code: str
    """Digest of the code that sends it: a worker of another version refuses its piece."""


def concurrency(choice: Choice | None, slots: int, pieces: int) -> int:
    """How many pieces are worked at the same time: as many as there are slots, and not more than the server takes
    calls."""
    calls = choice.engine.concurrency if choice and choice.engine else slots
    return max(1, min(slots, pieces, calls))


def terms_of(choice: Choice | None, run: Run, workers: int) -> Terms:
    """The terms of so many workers. Makes their ledger, from which they draw the present budget of the run themselves;
    none where nobody is asked."""
    if choice is None or (run.warehouse.mirrored and not is_generative(choice)):
        return Terms(workers, ledger=None, caps={}, code=code_digest())
    place, caps = ledger_of(run.warehouse), {}
    with closing(CallLedger(place)) as made:
        made.make()
    for unit, cap in present_budget().items():
        if not isinstance(cap, SharedCap):
            raise TypeError("workers draw on a kept budget")
        cap.give_back()
        drawn, limit = cap.drawn()
        caps[unit] = cap.name, max(1, (limit - drawn) // (_STEPS * workers))
    return Terms(workers, place, caps, code_digest())


def share_out(
    stage: SharedStage,
    pieces: Callable[[int], Iterable[Piece]],
    most: int,
    placement: Placement,
    ended: Callable[[Piece, PieceCounts], None],
    prepare: Callable[[], None] = lambda: None,
) -> Mapping[str, str]:
    """Has the workers of a cluster do all pieces; gives the errors of requests without a reply.

    pieces: number of workers → pieces, each taken when a worker is free for it; most: how many there are at most.
    ended: is called after each piece. prepare: is called once the cluster is there. BudgetSpent where what is left of
    the present budget does not suffice for all workers together; the errors of `on_engine`, `Crew.each` and `ended`.
    """
    under_way: dict[str, Piece] = {}
    errors: dict[str, str] = {}

    def done(name: str, result: PieceResult) -> None:
        errors.update(result.errors)
        ended(under_way.pop(name), result.counts)

    def work(crew: Crew) -> None:
        prepare()
        workers = concurrency(stage.choice, crew.slots, most)
        sent = pickle.dumps((stage, terms_of(stage.choice, stage.run, workers)))

        def arguments() -> Iterator[tuple[str, tuple[bytes, str, bytes]]]:
            for piece in pieces(workers):
                under_way[piece.name] = piece
                yield piece.name, (sent, piece.name, pickle.dumps(piece))

        crew.each(work_on_piece, arguments(), workers, done)

    on_engine(placement, f"{stage.name} {stage.pieces}", work)
    return errors


SHORTEST_S, LONGEST_S = 5.0, 180.0
"""How long a piece shall take at least and at most, where it is known how long a member of it takes."""
FIRST = 200
"""Members of a piece at most, before that is known."""


class Cutting:
    """Cuts what is to do into pieces while workers take them: long ones as long as much is left, then ever shorter
    ones, so that all workers end at about the same time (guided self-scheduling: Polychronopoulos and Kuck 1987)."""

    def __init__(self, members: int, workers: int, choice: Choice | None = None, size: int | None = None) -> None:
        """members: how many there are to do; choice: the model that is asked; size: of every piece, where somebody says
        it."""
        self._left, self._workers, self._size = members, workers, size
        # So many a worker asks at once: a piece of a multiple of them leaves no place empty at its end.
        self._calls = Sharing(workers).part(choice.engine.concurrency) if choice and choice.engine else 1
        self._done, self._seconds = 0, 0.0

    def next_size(self, most: int) -> int:
        """How many members the next piece has, `most` at most; they are taken off what is left."""
        size = self._size
        if size is None:
            size = -(-self._left // (2 * self._workers))
            if self._done and self._seconds:
                each = self._seconds / self._done
                size = max(min(size, int(LONGEST_S / each)), int(SHORTEST_S / each))
            else:
                size = min(size, FIRST)
            size = -(-size // self._calls) * self._calls
        size = max(1, min(size, most))
        self._left -= size
        return size

    def ended(self, members: int, seconds: float) -> None:
        """Take in how long a piece of so many members took; 0 where it was there already."""
        if seconds:
            self._done, self._seconds = self._done + members, self._seconds + seconds


def do_piece(sent: bytes, name: str, piece: bytes) -> PieceResult:
    """Do one piece, wherever this runs; nothing where its shard is written already.

    sent, piece: pickled (`SharedStage`, `Terms`) and `Piece`, for Prefect looks into other parameters. BackendError
    where this worker has another version of the code, or another warehouse; BudgetSpent where the budget does not
    suffice.
    """
    earlier = requests_sent()
    sent_stage: tuple[SharedStage, Terms] = pickle.loads(sent)
    stage, terms = sent_stage
    mine: Piece = pickle.loads(piece)
    written_stage, written_shard = stage.written
    require_same_code(stage.run, written_stage, written_shard, terms.code)
    if mine.shard and stage.run.done(stage.name, mine.shard):
        return PieceResult(PieceCounts(mine.members), {})

    def open_stage() -> tuple[Any, list[SharedCap]]:
        """What is opened counts and spends with the other workers."""
        ledger = None if terms.ledger is None else CallLedger(terms.ledger)
        caps = {unit: SharedCap(ledger, name, step) for unit, (name, step) in terms.caps.items() if ledger}
        with shared(Sharing(terms.workers, ledger)), spending(caps):
            return stage.open(stage.assignment), [*caps.values()]

    opened, caps = WORKER_CACHE.get_or_open(sent, open_stage)
    begun = time.monotonic()
    try:
        result = stage.work(opened, mine)
    finally:
        for cap in caps:
            cap.give_back()
    requests, seconds = (requests_sent() - earlier).total(), time.monotonic() - begun
    return result._replace(counts=result.counts._replace(requests=requests, seconds=seconds))


# A name of its own, so that the function travels by its name and meets what a worker's process keeps.
work_on_piece = task(task_run_name="{name}")(do_piece)


def with_absolute_paths(run: Run) -> Run:
    """The same run and its replies, found from any working directory."""
    named = run.warehouse.replies_named
    if named and not is_database(named):
        named = str(Path(named).absolute())
    warehouse = run.warehouse if run.warehouse.mirrored else Warehouse.open(run.warehouse.root.absolute())
    return replace(warehouse, replies_named=named).run(run.run_id)


class PieceProgress:
    """Counts finished pieces and logs a line for each."""

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
        self._ended, self._counts = 0, PieceCounts()

    def ended(self, _: Piece, counts: PieceCounts) -> None:
        """A piece is done."""
        self._ended += 1
        self._counts = PieceCounts(*map(sum, zip(self._counts, counts, strict=True)))  # type: ignore[arg-type]
        self._say(self._line(), self._counts.members / self._members)

    def _line(self) -> str:
        counts, seconds = self._counts, self._clock() - self._begun
        members, failed = self._names
        seconds_left = seconds / counts.members * (self._members - counts.members) if counts.members else 0
        rate = f", {pace(counts.members / seconds)}/s" if counts.members and seconds > 0 else ""
        parts = [
            f"{self._stage}: {counts.members:,}/{self._members:,} {members}{rate}",
            f"about {in_words(seconds_left)} left" if seconds_left else "",
            f"{self._ended:,} {'pieces' if self._ended > 1 else 'piece'}",
            f"{counts.calls:,} calls",
            f"{counts.reused:,} replies reused",
            f"{counts.failed:,} {failed}",
            f"{counts.tokens:,} tokens" if counts.tokens else "",
            f"{counts.requests:,} requests to the store" if counts.requests else "",
        ]
        return ", ".join(filter(None, parts))


class WorkerCache:
    """What one command's pieces are worked with, kept from piece to piece. Threads may share it."""

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._kept: dict[bytes, Any] = {}

    def get_or_open(self, sent: bytes, open_: Callable[[], Opened]) -> Opened:
        """What the first piece that was sent with the same bytes was worked with, or else what `open_` gives."""
        with self._gate:
            if sent not in self._kept:
                self._kept.clear()  # a worker that outlives a stage or a command lets go of its model
                self._kept[sent] = open_()
            return cast(Opened, self._kept[sent])


WORKER_CACHE = WorkerCache()
"""Of this process: whichever stage's pieces it takes, it holds one model."""


def require_same_code(run: Run, stage: str, shard: str, code: str) -> None:
    """BackendError where this worker has not what the command has: its code, by the digest, and in its warehouse a
    shard that the command has written."""
    host = socket.gethostname()
    if code_digest() != code:
        raise BackendError(
            f"the worker on {host} has another version of rubricflow than this command: install the same one on every "
            "machine, and start the workers again"
        )
    if not run.done(stage, shard):
        raise BackendError(
            f"the worker on {host} does not see {run.folder}: workers need the same warehouse, so name a folder that "
            "all machines share, or an object store"
        )


def require_visible(run: Run, *places: tuple[str, str]) -> None:
    """StoreError where what a worker has finished is in none of these stages and shards of this warehouse."""
    if not any(run.done(stage, shard) for stage, shard in places):
        stage, shard = places[0]
        raise StoreError(
            f"a worker finished {stage} {shard}, and {run.place} does not hold it: name a warehouse that all see"
        )
