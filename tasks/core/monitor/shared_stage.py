"""A stage whose pieces the workers of a cluster do: shards of judging, packs of calibration, packs of graphs.

The command sends every piece by `share_out`; in a worker's process `do_piece` does one. A worker opens what the stage
needs (a model, rubrics) for its first piece and keeps it for the others. Done-marks and stored replies alone tell what
is finished, so the same command goes on after the loss of a worker, of the cluster or of itself.
"""

from __future__ import annotations

import os
import pickle
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from prefect.settings import PREFECT_API_URL

from rubricflow.tasks.core.contracts.backends import BACKENDS, Choice, is_generative
from rubricflow.tasks.core.contracts.errors import BackendError, StoreError
from rubricflow.tasks.core.contracts.settings.engine import Placement
from rubricflow.tasks.core.llm.budget import SharedCap, Sharing, Unit, ledger_of, present_budget, shared, spending
from rubricflow.tasks.core.llm.calls import LIVE, METERS, CallMeters, in_words, metered_by
from rubricflow.tasks.core.llm.ledger import CallLedger
from rubricflow.tasks.core.llm.opening import model_of, this_machine
from rubricflow.tasks.core.llm.reply_store import is_database, looking, open_replies
from rubricflow.tasks.core.monitor.artifacts import saying
from rubricflow.tasks.core.monitor.engines import Crew, closing_worker, on_engine, own_workers
from rubricflow.tasks.core.monitor.piece_progress import Lookout, PieceCounts, PieceProgress
from rubricflow.tasks.core.monitor.runs import log, task
from rubricflow.tasks.core.store.manifest import code_digest
from rubricflow.tasks.core.store.objects import requests_sent
from rubricflow.tasks.core.store.warehouse import Run, Warehouse


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


class PieceResult(NamedTuple):
    """What comes back from a worker."""

    counts: PieceCounts
    errors: Mapping[str, str]
    """Digest of a request that got no reply → why: the reply store keeps no errors."""
    asked: Mapping[str, float] = MappingProxyType({})
    """What its worker counted of its calls, see `CallMeters`."""


@dataclass(frozen=True)
class SharedStage:
    """What a worker gets of a stage, the same for every piece: all by name and reference, nothing by value."""

    name: str
    label: str
    """What it is called in lines about progress."""
    members: tuple[str, str]
    """What the members of its pieces are called, and those of them that came to nothing."""
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
    command: str = ""
    """Under which name the command's lanes stand in the ledger."""


def concurrency(choice: Choice | None, slots: int, pieces: int) -> int:
    """How many pieces are worked at the same time: as many as there are slots, and not more than the server takes
    calls."""
    calls = choice.engine.concurrency if choice and choice.engine else slots
    return max(1, min(slots, pieces, calls))


def terms_of(ledger: CallLedger | None, workers: int, command: str) -> Terms:
    """The terms of so many workers, who draw the present budget of the run from their ledger themselves."""
    caps = {}
    if ledger:
        ledger.open_lanes(command, workers)
        for unit, cap in present_budget().items():
            if not isinstance(cap, SharedCap):
                raise TypeError("workers draw on a kept budget")
            cap.give_back()
            drawn, limit = cap.drawn()
            caps[unit] = cap.name, max(1, (limit - drawn) // (_STEPS * workers))
    return Terms(workers, ledger.place if ledger else None, caps, code_digest(), command)


def share_out(
    stage: SharedStage,
    pieces: Callable[[int], Iterable[Piece]],
    members: int,
    most: int,
    placement: Placement,
    ended: Callable[[Piece, PieceCounts], None] = lambda piece, counts: None,
    prepare: Callable[[], None] = lambda: None,
) -> Mapping[str, str]:
    """Has the workers of a cluster do all pieces, and says how far they are; gives the errors of requests without a
    reply.

    pieces: number of workers → pieces, each taken when a worker is free for it; members: of all pieces together; most:
    how many pieces there are at most. ended: is called after each piece. prepare: is called once the cluster is there.
    BudgetSpent where what is left of the present budget does not suffice for all workers together; the errors of
    `on_engine`, `Crew.each` and `ended`.
    """
    under_way: dict[str, Piece] = {}
    errors: dict[str, str] = {}
    command = f"{stage.run.run_id} {stage.label} {secrets.token_hex(4)}"
    house = stage.run.warehouse
    choice = stage.choice
    before = time.monotonic()
    # An encoder in a bucket asks nobody, and there is no place where its workers could count together.
    ledger = CallLedger(ledger_of(house)) if choice and (house.keeps_replies or is_generative(choice)) else None
    if ledger:
        ledger.make()
    cluster = f"{placement.engine} {placement.address or own_workers(placement)}"
    log(f"{stage.label}: {expectation(stage, placement, members, ledger.start(cluster) if ledger else None)}")

    def work(crew: Crew) -> None:
        prepare()
        workers = concurrency(choice, crew.slots, most)
        sent = pickle.dumps((stage, terms_of(ledger, workers, command)))
        progress = PieceProgress(stage.label, members, stage.members, saying(stage.run.run_id, stage.label))
        started: list[float] = []
        lookout = Lookout(lambda: ledger.lanes(command) if ledger else [])

        def done(name: str, result: PieceResult) -> None:
            errors.update(result.errors)
            piece = under_way.pop(name)
            METERS.add(result.asked)
            ended(piece, result.counts)
            progress.ended(result.counts)

        def arguments() -> Iterator[tuple[str, tuple[bytes, str, bytes]]]:
            for piece in pieces(workers):
                under_way[piece.name] = piece
                yield piece.name, (sent, piece.name, pickle.dumps(piece))

        def closed(lane: int) -> None:
            if ledger:
                with suppress(StoreError):  # then the others do not learn of it
                    ledger.close_lanes(command, lane, lane + 1)

        def asked() -> Counter[str]:
            return lookout.asked(under_way)

        def look() -> None:
            lanes = lookout.look()
            members = sum(piece.members for piece in list(under_way.values()))
            waited_s = min((lane.told.get("waited", 0) for lane in lanes), default=0)
            if ledger and not started and any(lane.worker for lane in lanes):
                started.append(time.monotonic() - before)
                log(f"{stage.label}: the first worker began after {in_words(started[0])}")
                with suppress(StoreError):
                    ledger.started(cluster, started[0])
            progress.look(asked(), members, waited_s, not ledger or bool(started))

        LIVE.append(asked)
        try:
            with looking(look):
                crew.each(work_on_piece, arguments(), workers, done, closed)
        finally:
            LIVE.remove(asked)
            if ledger:
                with suppress(StoreError):
                    ledger.close_lanes(command, 0, workers)
                    # Workers keep the replies open, and what they wrote lies apart until somebody closes them last.
                    open_replies(house.replies).close()

    with closing(ledger) if ledger else nullcontext():
        on_engine(placement, f"{stage.label} {stage.members[0]}", work)
    return errors


_START_S = {"dask": 10.0, "ray": 20.0}
"""How long it takes until workers begin, on a machine that has nothing else to do, where nobody has measured it."""
_SERVER_S = 10.0
"""The same of Prefect's temporary server."""
_OWN_S = 0.004
"""What our own part takes of an answer, at 20 criteria."""


def expectation(stage: SharedStage, placement: Placement, members: int, start_s: float | None = None) -> str:
    """What can be said before a cluster starts of how long it will take, here and by workers; what one call takes is
    known where the store has replies of the model. start_s: how long it took the last time until workers began."""
    workers = 1 if placement.address else own_workers(placement)
    who = f"workers of {placement.engine}" if placement.address else f"{workers} workers"
    if start_s is None:
        start_s = _START_S[placement.engine] + (0 if PREFECT_API_URL.value() else _SERVER_S)
        machine = this_machine()
        start_s *= 1 if placement.is_elsewhere else max(1.0, machine.load / machine.cores)
    start = f"{in_words(start_s)} to start"
    about = f"{members:,} {stage.members[0]}"
    latency = None
    engine = stage.choice and not BACKENDS[stage.choice.backend].local_weights and stage.choice.engine
    if engine:
        with open_replies(stage.run.warehouse.replies) as replies:
            latency = replies.latency(model_of(cast(Choice, stage.choice), Path()))
    if not engine or latency is None:
        return f"{about} by {who}, about {start}; what one takes shows when the first pieces are done"
    asking = members * latency / engine.concurrency
    own = members * _OWN_S
    return (
        f"{about}, a call took {latency:.2g} s until now and {engine.concurrency} go at once, of all together; local: "
        f"about {in_words(asking + own)}; {who}: about {in_words(asking + own / workers)} and {start}"
    )


BEAT_S = 1.0
"""How often a worker tells what came of its piece, and looks how many calls it may make at once."""
DRAIN = "RUBRICFLOW_DRAIN"
"""The variable that names a file; where it is there, this machine is about to be taken away."""


@contextmanager
def telling(terms: Terms, sharing: Sharing, piece: str, lane: int, own: CallMeters) -> Iterator[None]:
    """For as long as this lasts, the worker tells its command through the ledger what it counts of a piece."""
    ledger = sharing.ledger
    drain = os.environ.get(DRAIN)
    is_closing = closing_worker()
    worker = f"on {socket.gethostname()} (process {os.getpid()})"

    def beat() -> None:
        sharing.drains = is_closing() or (bool(drain) and Path(str(drain)).exists())
        if ledger:
            with suppress(StoreError):  # a database that is away is waited for by whoever needs it
                told = {**own.counted(), "waited": own.waited_s}
                sharing.lanes = ledger.tell(terms.command, lane, worker, piece, told) or sharing.lanes

    sharing.mine.add(lane)
    beat()
    try:
        with looking(beat, BEAT_S):
            yield
    finally:
        sharing.mine.discard(lane)


SHORTEST_S, LONGEST_S = 20.0, 180.0
"""How long a piece shall take at least and at most, where it is known how long a member of it takes."""
FIRST, ROUNDS = 64, 8
"""Members of a piece at most, or rounds of calls, before that is known."""


class Cutting:
    """Cuts what is to do into pieces while workers take them: long ones as long as much is left, then ever shorter
    ones, so that all workers end at about the same time (guided self-scheduling: Polychronopoulos and Kuck 1987)."""

    def __init__(self, members: int, workers: int, choice: Choice | None = None, size: int | None = None) -> None:
        """members: how many there are to do; choice: the model that is asked; size: of every piece, where somebody says
        it."""
        self._left, self._workers, self._size = members, workers, size
        # So many a worker asks at once: a piece of a multiple of them leaves no place empty at its end.
        self._calls = max(1, choice.engine.concurrency // workers) if choice and choice.engine else 1
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
                size = min(size, max(FIRST, ROUNDS * self._calls))
            size = -(-size // self._calls) * self._calls
        size = max(1, min(size, most))
        self._left -= size
        return size

    def ended(self, members: int, seconds: float) -> None:
        """Take in how long a piece of so many members took; 0 where it was there already."""
        if seconds:
            self._done, self._seconds = self._done + members, self._seconds + seconds


def do_piece(sent: bytes, name: str, piece: bytes, lane: int = 0) -> PieceResult:
    """Do one piece, wherever this runs; nothing where its shard is written already.

    sent, piece: pickled (`SharedStage`, `Terms`) and `Piece`, for Prefect looks into other parameters. lane: that it is
    worked in. BackendError where this worker has another version of the code, or another warehouse; BudgetSpent where
    the budget does not suffice.
    """
    earlier = requests_sent()
    sent_stage: tuple[SharedStage, Terms] = pickle.loads(sent)
    stage, terms = sent_stage
    mine: Piece = pickle.loads(piece)
    require_same_code(stage, terms)
    if mine.shard and stage.run.done(stage.name, mine.shard):
        return PieceResult(PieceCounts(mine.members), {})
    with _GATE:
        if sent not in KEPT:
            KEPT.clear()  # a worker that outlives a stage or a command lets go of its model
            KEPT[sent] = _Kept(stage, terms)
        kept, own = KEPT[sent], CallMeters()
    with metered_by(own), telling(terms, kept.sharing, name, lane, own):
        opened, begun = kept.opened(), time.monotonic()
        try:
            result = stage.work(opened, mine)
        finally:
            for cap in kept.caps.values():
                cap.give_back()
    requests = (requests_sent() - earlier).total()
    seconds = time.monotonic() - begun
    counts = result.counts._replace(requests=requests, seconds=seconds)
    return result._replace(counts=counts, asked=dict(own.counted()))


class _Kept:
    """What a worker keeps of a command from piece to piece."""

    def __init__(self, stage: SharedStage, terms: Terms) -> None:
        ledger = None if terms.ledger is None else CallLedger(terms.ledger)
        self.sharing = Sharing(range(terms.workers), set(), ledger)
        self.caps = {unit: SharedCap(ledger, name, step) for unit, (name, step) in terms.caps.items() if ledger}
        self._stage, self._gate, self._opened = stage, threading.Lock(), None

    def opened(self) -> Any:
        """What the pieces are worked with, opened once; it counts and spends with the other workers."""
        with self._gate, shared(self.sharing), spending(self.caps):
            if self._opened is None:
                self._opened = self._stage.open(self._stage.assignment)
        return self._opened


_GATE = threading.Lock()
KEPT: dict[bytes, _Kept] = {}
"""Of this process, by what was sent: whichever stage's pieces it takes, it holds one model."""


# A name of its own, so that the function travels by its name and meets what a worker's process keeps.
work_on_piece = task(task_run_name="{name}")(do_piece)


def with_absolute_paths(run: Run) -> Run:
    """The same run and its replies, found from any working directory."""
    named = run.warehouse.replies_named
    if named and not is_database(named):
        named = str(Path(named).absolute())
    warehouse = run.warehouse if run.warehouse.mirrored else Warehouse.open(run.warehouse.root.absolute())
    return replace(warehouse, replies_named=named).run(run.run_id)


def require_same_code(stage: SharedStage, terms: Terms) -> None:
    """BackendError where this worker has not what the command has: its code, and what it has written."""
    host = socket.gethostname()
    if code_digest() != terms.code:
        raise BackendError(
            f"the worker on {host} has another version of rubricflow than this command: install the same one on every "
            "machine, and start the workers again"
        )
    if not stage.run.done(*stage.written):
        raise BackendError(
            f"the worker on {host} does not see {stage.run.folder}: workers need the same warehouse, so name a folder "
            "that all machines share, or an object store"
        )


def require_visible(run: Run, *places: tuple[str, str]) -> None:
    """StoreError where what a worker has finished is in none of these stages and shards of this warehouse."""
    if not any(run.done(stage, shard) for stage, shard in places):
        stage, shard = places[0]
        raise StoreError(
            f"a worker finished {stage} {shard}, and {run.place} does not hold it: name a warehouse that all see"
        )
