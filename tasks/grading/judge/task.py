"""Stage entry point of judge: items, responses and bundles in; judgments, gradings and attempts out, shard by shard."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from rubricflow.tasks.core.contracts.backends import Grader
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import (
    Attempts,
    Comparisons,
    Gradings,
    Judgments,
    ShardInputs,
    Supports,
)
from rubricflow.tasks.core.llm.calls import METERS
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.llm.reply_store import looking
from rubricflow.tasks.core.monitor.artifacts import saying
from rubricflow.tasks.core.monitor.piece_progress import PieceCounts, PieceProgress
from rubricflow.tasks.core.monitor.runs import credential, log, task
from rubricflow.tasks.core.monitor.shared_stage import (
    Cutting,
    Piece,
    PieceResult,
    SharedStage,
    require_visible,
    share_out,
    with_absolute_paths,
)
from rubricflow.tasks.core.stats.scores import MEAN
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run, counted
from rubricflow.tasks.grading.judge.rows import Graded
from rubricflow.tasks.grading.judge.second_look import JudgedAnswers, write_second_look
from rubricflow.tasks.grading.judge.shard_judge import Assignment, ShardJudge, study_rater, study_replies
from rubricflow.tasks.grading.judge.stored_cases import in_shard_order, sheets_of

SHARD = 2_000
"""Responses in a shard: some whole small items, or a part of a large one."""
WHOLE_ITEMS = 20_000
"""Responses in a shard where an item remembers what was graded of it and so is never cut: as many whole items as that,
for their rounds run together; a larger item is a shard of its own."""


MEMBERS = ("responses", "unscored")
"""What lines about progress count."""
WRITTEN: tuple[type[Row], ...] = (Judgments, Gradings, Attempts)


class JudgedTables(NamedTuple):
    """What judge writes."""

    judgments: TableRef
    gradings: TableRef
    attempts: TableRef
    comparisons: TableRef | None = None
    """Of a judge that compares pairs."""
    supports: TableRef | None = None
    """Of a judge whose credits were looked at again."""


class Shard(NamedTuple):
    """A shard of judging."""

    name: str
    responses: int
    done: bool
    """Whether its done-mark is there."""


@task(task_run_name=named("judge"), pauses_s=(60, 300, 900))
def judge(
    run: Run,
    plan: Judge,
    base: Path,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    people: tuple[TableRef, TableRef] | None = None,
    grader: Grader | None = None,
    target: str = MEAN,
    stage: str = "judge",
    placement: Placement = HERE,
    label: str = "",
) -> JudgedTables:
    """Grade every response, shard by shard; finished shards are passed over; no reply that arrived is asked for again.

    people: human gradings and judgments, for the simulated rater and for worked examples. grader: the trained grader,
    where the plan's backend is one. target: the human score that examples show, see `Evaluation.target`. stage: under
    which name the tables are written. placement: who judges the shards. label: see `Assignment`. InputError where there
    is no response, or no example for an item; BudgetSpent where the present budget does not suffice.
    """
    if not responses.rows:
        hint = "the sources give items alone; name those of the responses next to them"
        raise InputError("there are no responses to judge", field="data.sources", hint=hint)
    sizes = shard_sizes(counted(run, responses, "item_id"), whole_items=plan.judges_whole_items)
    finished = run.finished(stage, sizes)
    shards = [Shard(name, count, name in finished) for name, count in sizes.items()]
    if not all(shard.done for shard in shards):
        assignment = Assignment(run, plan, base, items, responses, bundles, people, target, stage, label)
        if placement.is_local:
            _judge_here(assignment, shards, grader)
        elif grader is not None:
            rule = "a trained grader judges where the command runs: other processors may round its sums otherwise"
            raise InputError(rule, field="run.engine", hint="take engine: local")
        else:
            _share_out(assignment, shards, placement)
    if run.shards(f"{stage}-parts"):
        run.drop(f"{stage}-parts")
    return JudgedTables(*(run.ref(row, stage) for row in _written(plan)))


def _written(plan: Judge) -> tuple[type[Row], ...]:
    """The tables of a judge, in the order of `JudgedTables`."""
    return (*WRITTEN, Comparisons) if PROTOCOLS[plan.protocol].compares == "pairs" else WRITTEN


def shard_sizes(counts: Mapping[str, int], whole_items: bool = False) -> dict[str, int]:
    """Shard → number of its responses, items in the order of their ids; whole_items: no item is cut."""
    size = WHOLE_ITEMS if whole_items else SHARD
    sizes = []
    free = 0
    for item_id in sorted(counts):
        left = counts[item_id]
        while left:
            part = left if whole_items else min(size, left)
            if part > free:
                sizes.append(0)
                free = size
            sizes[-1] += part
            free, left = free - part, left - part
    return {f"{number:05d}": responses for number, responses in enumerate(sizes)}


def _judge_here(assignment: Assignment, shards: Sequence[Shard], grader: Grader | None) -> None:
    """Judges the shards that are not done one after the other, in this process."""
    run, plan = assignment.run, assignment.plan
    with study_replies(plan, run.warehouse) as replies, _libraries_out_of_collection():
        to_judge = plan.samples * sum(shard.responses for shard in shards if not shard.done)
        progress = PieceProgress(assignment.stage, to_judge, MEMBERS, saying(run.run_id, assignment.stage))
        shard_judge = ShardJudge(assignment, study_rater(assignment, replies, credential, grader), replies)
        rows = in_shard_order(run, assignment.responses)
        under_way = 0
        before = METERS.counted()

        def look() -> None:
            asked = METERS.counted()
            asked.subtract(before)
            progress.look(asked, under_way, METERS.waited_s)

        with looking(look), asking_together() as piece:
            for shard in shards:
                mine = list(islice(rows, shard.responses))
                if not shard.done:
                    under_way = plan.samples * shard.responses
                    before = METERS.counted()
                    with piece():
                        progress.ended(_counts(shard_judge.judge(assignment.stage, shard.name, mine)))


@contextmanager
def _libraries_out_of_collection() -> Iterator[None]:
    """A shard makes so many objects that Python looks through all there are, those of the libraries too, once a shard:
    a quarter of the time. What is there before the first shard is left out of that."""
    if gc.get_freeze_count():  # it is already, and stays so for whoever wanted that
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


# The second look at what was judged.


class StatedTables(NamedTuple):
    """What a judge stated, to be looked at again."""

    plan: Judge
    bundles: TableRef
    tables: JudgedTables
    stage: str
    """Under which name it is written then; that of the tables where its settings ask for no second look, or it was."""


@task(task_run_name=named("support"), pauses_s=(60, 300, 900))
def look_again(
    run: Run, base: Path, items: TableRef, responses: TableRef, people: TableRef, stated: Mapping[str, StatedTables]
) -> tuple[TableRef, ...]:
    """The tables of all jurors after a second look at its credits, see `support`, which what it stated gives way to;
    finished shards are passed over, and no reply of a further judge that arrived is asked for again.

    people: human judgments, of which those of the calibration split alone are looked at; stated: juror → what it
    stated. BackendError where a further judge gave no reply that can be used.
    """
    looked_at = {juror: own for juror, own in stated.items() if own.stage != own.tables.judgments.stage}
    with asking_together() as piece:
        for juror, own in looked_at.items():
            sheets = sheets_of(run, items, own.bundles)
            judgments = own.tables.judgments
            others = [of.tables.judgments for other, of in stated.items() if other != juror]
            judged = JudgedAnswers(run, sheets, responses, people, judgments, others)
            with piece():
                if line := write_second_look(judged, own.plan, base, own.stage, credential):
                    log(line)
    for own in looked_at.values():
        run.drop(own.tables.judgments.stage)
    tables = []
    for own in stated.values():
        looked: tuple[type[Row], ...] = (Supports,) if own.plan.support else ()
        tables += [run.ref(row, own.stage) for row in (*_written(own.plan), *looked)]
    return tuple(tables)


# Shards that the workers of a cluster judge.


class ShardPart(NamedTuple):
    """Neighbouring responses of a shard, from position `start` to before `stop` in its order."""

    shard: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"{self.shard}.{self.start:06d}-{self.stop:06d}"

    @classmethod
    def named(cls, name: str) -> ShardPart:
        """The part of this name."""
        shard, _, ends = name.partition(".")
        start, _, stop = ends.partition("-")
        return cls(shard, int(start), int(stop))


class Parts:
    """The parts of the shards that are to judge: those that are there, and those that are cut while workers take them.

    However they are cut, a shard's tables are the rows of its parts, one after the other.
    """

    def __init__(self, assignment: Assignment, shards: Sequence[Shard]) -> None:
        """Takes in what workers have finished. Of parts that overlap, as a worker may leave one whose command was
        killed, the first counts."""
        self._run, self._assignment = assignment.run, assignment
        self.sizes = {shard.name: shard.responses for shard in shards if not shard.done}
        self._of: dict[str, list[ShardPart]] = {name: [] for name in self.sizes}
        for part in sorted(
            map(ShardPart.named, self._run.finished(assignment.parts, self._run.shards(assignment.parts)))
        ):
            held = self._of.get(part.shard)
            if held is not None and part.start >= (held[-1].stop if held else 0):
                held.append(part)
        for name in self.sizes:
            self._join(name)

    def gaps(self) -> list[ShardPart]:
        """What no part holds yet, in order."""
        found = []
        for name, parts in self._of.items():
            at = 0
            for part in (*parts, ShardPart(name, self.sizes[name], self.sizes[name])):
                if part.start > at:
                    found.append(ShardPart(name, at, part.start))
                at = part.stop
        return found

    def ended(self, part: ShardPart) -> None:
        """A part is written; its shard, if it was the last one of it. StoreError where it is not in this warehouse."""
        require_visible(self._run, (self._assignment.parts, part.name), (self._assignment.stage, part.shard))
        self._of[part.shard] = sorted([*self._of[part.shard], part])
        self._join(part.shard)

    def _join(self, shard: str) -> None:
        parts = self._of[shard]
        if sum(part.stop - part.start for part in parts) < self.sizes[shard]:
            return
        run, stage = self._run, self._assignment.parts
        if run.done(self._assignment.stage, shard):  # by another command, which may have removed its parts
            return
        rows = _written(self._assignment.plan)
        tables = {row: pa.concat_tables([run.shard(row, stage, part.name) for part in parts]) for row in rows}
        run.commit(self._assignment.stage, shard, tables)


def _share_out(assignment: Assignment, shards: Sequence[Shard], placement: Placement) -> None:
    """Has the workers of a cluster judge the shards that are not done, in pieces of a length that suits them."""
    stage = share_of(assignment, shards)
    plan = assignment.plan
    parts = Parts(assignment, shards)
    gaps = parts.gaps()
    to_judge = sum(gap.stop - gap.start for gap in gaps)
    if not to_judge:
        return
    cutting = []

    def pieces(workers: int) -> Iterator[Piece]:
        cutting.append(Cutting(to_judge, workers, plan, placement.piece))
        for shard, at, stop in gaps:
            # Where responses of an item bear on one another, they stay together, and so their shard.
            while at < stop:
                size = stop - at if plan.judges_whole_items else min(cutting[0].next_size(stop - at), stop - at)
                part = ShardPart(shard, at, at + size)
                yield Piece(f"{assignment.stage} {part.name}", plan.samples * size, part.name, part)
                at += size

    def ended(piece: Piece, counts: PieceCounts) -> None:
        cutting[0].ended(piece.members // plan.samples, counts.seconds)
        parts.ended(piece.content)

    share_out(stage, pieces, plan.samples * to_judge, to_judge, placement, ended, lambda: cut(assignment, shards))


def share_of(assignment: Assignment, shards: Sequence[Shard]) -> SharedStage:
    """The stage as workers get it."""
    run = with_absolute_paths(assignment.run)
    return SharedStage(
        name=assignment.parts,
        label=assignment.stage,
        members=MEMBERS,
        run=run,
        assignment=replace(assignment, run=run, base=assignment.base.resolve()),
        written=(assignment.inputs, next(shard.name for shard in shards if not shard.done)),
        open=_open_judge,
        work=_judge_piece,
        choice=assignment.plan,
    )


def cut(assignment: Assignment, shards: Sequence[Shard]) -> None:
    """Writes the input of every shard that is neither judged nor cut, so that a worker reads its own and no other file
    of answers. shards: all of them, in order."""
    run, stage = assignment.run, assignment.inputs
    to_judge = {shard.name for shard in shards if not shard.done}
    lacking = to_judge - run.finished(stage, to_judge)
    if not lacking:
        return
    rows = in_shard_order(run, assignment.responses)
    for shard in shards:
        mine = list(islice(rows, shard.responses))
        if shard.name in lacking:
            run.commit(stage, shard.name, {ShardInputs: mine})


def _open_judge(assignment: Assignment) -> tuple[Assignment, ShardJudge]:
    replies = study_replies(assignment.plan, assignment.run.warehouse)
    return assignment, ShardJudge(assignment, study_rater(assignment, replies, credential), replies)


def _judge_piece(opened: tuple[Assignment, ShardJudge], piece: Piece) -> PieceResult:
    assignment, shard_judge = opened
    part: ShardPart = piece.content
    with _libraries_out_of_collection():
        inputs = assignment.run.shard(ShardInputs, assignment.inputs, part.shard)
        rows = inputs.slice(part.start, part.stop - part.start).to_pylist()
        graded = shard_judge.judge(assignment.parts, part.name, rows)
    return PieceResult(_counts(graded), {})


def _counts(graded: Sequence[Graded]) -> PieceCounts:
    """What came of a shard, or a part of one."""
    attempts = [attempt for sample in graded for called in sample.called for attempt in called.answer.attempts]
    paid = [attempt.reply for attempt in attempts if not attempt.stored]
    gradings = list(chain.from_iterable(sample.gradings for sample in graded))
    return PieceCounts(
        members=len(gradings),
        failed=sum(grading.scored.score is None for grading in gradings),
        calls=len(paid),
        reused=len(attempts) - len(paid),
        tokens=sum((reply.prompt_tokens or 0) + (reply.completion_tokens or 0) for reply in paid),
    )
