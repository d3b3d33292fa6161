"""Stage entry point of judge: items, responses and bundles in; judgments, gradings and attempts out, shard by shard."""

from __future__ import annotations

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.backends import BACKENDS, Grader, is_generative
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.engine import HERE, Placement
from rubricflow.tasks.core.contracts.settings.judge import Judge, SupportJudge
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.contracts.tables.judging import (
    Attempts,
    Comparisons,
    Gradings,
    Judgments,
    ShardInputs,
    Supports,
)
from rubricflow.tasks.core.llm.ask import OnOpen, Wave, ask, ignore_open, ignore_wave
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.llm.foreign import foreign_scores
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import Replies, looking, open_replies
from rubricflow.tasks.core.monitor.artifacts import saying
from rubricflow.tasks.core.monitor.runs import credential, log, task
from rubricflow.tasks.core.monitor.shared_stage import (
    Cutting,
    Piece,
    PieceCounts,
    PieceProgress,
    PieceResult,
    SharedStage,
    require_visible,
    share_out,
    with_absolute_paths,
)
from rubricflow.tasks.core.stats.scores import MEAN
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run, Warehouse, counted
from rubricflow.tasks.grading.judge import support
from rubricflow.tasks.grading.judge.explained import cite_explanations, explanations
from rubricflow.tasks.grading.judge.grade import grade_batch
from rubricflow.tasks.grading.judge.keep import keeping_of
from rubricflow.tasks.grading.judge.progress import Progress
from rubricflow.tasks.grading.judge.rater import rater, repeated, signal_recorded
from rubricflow.tasks.grading.judge.rows import Called, Graded, Rater, attempts
from rubricflow.tasks.grading.judge.simulated import human_marks
from rubricflow.tasks.grading.judge.stored_cases import Sheet, case_of, in_shard_order, sheets_of
from rubricflow.tasks.grading.judge.teaching import People, teaching_of

SHARD = 2_000
"""Responses in a shard: some whole small items, or a part of a large one."""
WHOLE_ITEMS = 20_000
"""Responses in a shard where an item remembers what was graded of it and so is never cut: as many whole items as that,
for their rounds run together; a larger item is a shard of its own."""
_OF_ONE = ("too_long", "deadline", "empty", "refusal", "safety", "not_recorded")
"""Kinds of errors that concern one answer, or come again."""


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


@dataclass(frozen=True)
class Assignment:
    """What is judged, under which rubrics and by whom; the same for every shard of a stage."""

    run: Run
    plan: Judge
    base: Path
    items: TableRef
    responses: TableRef
    bundles: TableRef
    people: tuple[TableRef, TableRef] | None
    """Human gradings and judgments."""
    target: str
    """See `Evaluation.target`."""
    stage: str
    """Under which name the tables are written."""
    label: str = ""
    """What the rater's id ends with, where several judges of a run may have one model and protocol."""

    @property
    def inputs(self) -> str:
        """Under which name the inputs of shards are written: of these responses, cut in one of two ways."""
        return f"cut-{'items-' if self.plan.judges_whole_items else ''}{self.responses.digest[:12]}"

    @property
    def parts(self) -> str:
        """Under which name workers write parts of shards, until they are joined."""
        return f"{self.stage}-parts"


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
        hint = "the sources give items alone; name those of the responses beside them"
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
    size, sizes, free = WHOLE_ITEMS if whole_items else SHARD, list[int](), 0
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
    with _replies(plan, run.warehouse) as replies, _libraries_out_of_collection():
        to_judge = sum(shard.responses for shard in shards if not shard.done)
        progress = Progress(plan.samples * to_judge, saying(run.run_id, assignment.stage), stage=assignment.stage)
        study_rater = progress.watch(_rater(assignment, replies, grader))
        shard_judge = ShardJudge(assignment, study_rater, replies, progress.wave, progress.opened)
        rows = in_shard_order(run, assignment.responses)
        with looking(progress.look), asking_together() as piece:
            for shard in shards:
                mine = list(islice(rows, shard.responses))
                if not shard.done:
                    with piece():
                        for graded in shard_judge.judge(assignment.stage, shard.name, mine):
                            progress.graded(graded)
        progress.end()


def _rater(assignment: Assignment, replies: Replies, grader: Grader | None = None) -> Rater:
    """The study's rater; the simulated one gets the marks of its human rater."""
    run, plan, base = assignment.run, assignment.plan, assignment.base
    if plan.truth is None or assignment.people is None:
        return rater(plan, base, replies, credential, grader)
    theirs = ds.field("rater_id") == plan.truth.rater
    gradings, judgments = assignment.people
    scores = run.read(gradings, ["response_id", "item_id", "score", "trait_scores"], theirs)
    marks = run.read(judgments, ["response_id", "criterion_id", "decision"], theirs)
    human = human_marks(scores.to_pylist(maps_as_pydicts="strict"), marks.to_pylist())
    return rater(plan, base, replies, credential, grader, human)


class ShardJudge:
    """A rater with all that it needs besides a shard's cases; made once for many shards."""

    def __init__(
        self,
        assignment: Assignment,
        rater: Rater,
        replies: Replies,
        on_wave: Callable[[Wave], None] = ignore_wave,
        on_open: OnOpen = ignore_open,
    ) -> None:
        """on_open, on_wave: are called at the beginning and the end of each wave of calls. InputError where an example
        is lacking, or what the study keeps of is not there."""
        plan, people = assignment.plan, assignment.people
        labelled = replace(rater, rater_id=f"{rater.rater_id}:{assignment.label}") if assignment.label else rater
        self._assignment, self._rater, self._replies = assignment, labelled, replies
        self._on_wave, self._on_open = on_wave, on_open
        self._teaching = teaching_of(
            assignment.run,
            plan.examples,
            assignment.items,
            assignment.responses,
            assignment.bundles,
            People(*people, assignment.target) if people else None,
        )
        self._recorded = foreign_scores(plan.foreign, assignment.base) if plan.foreign else {}
        self._explained = (
            explanations(plan.foreign, assignment.base) if plan.foreign and plan.foreign.explanation else {}
        )
        self._keeping = keeping_of(assignment.run, plan, rater.rater_id)
        self._sheets = sheets_of(assignment.run, assignment.items, assignment.bundles)

    def judge(self, stage: str, name: str, rows: Sequence[Mapping[str, Any]]) -> list[Graded]:
        """Grades a shard, or a part of one, and writes its tables under this name, the done-mark last; each repetition
        by itself. rows: as of `ShardInputs`.

        BackendError where no call of the stage has brought a reply until now, for reasons that lie with no answer: the
        shard is not written, so that the same command asks again.
        """
        run, plan = self._assignment.run, self._assignment.plan
        cases = [case_of(row, *self._sheets[row["item_id"]]) for row in rows]
        shown = self._teaching(self._keeping(cases))
        graded = []
        with asking_together() as piece:
            for sample in repeated(self._rater, plan.samples):
                with piece():
                    graded.append(grade_batch(shown, sample, self._replies, self._on_wave, self._on_open))
        if plan.foreign:
            signal_recorded(graded, self._recorded, plan.foreign)
            if plan.foreign.explanation:
                cite_explanations(graded, self._explained)
        last = [called.answer.attempts[-1].reply for sample in graded for called in sample.called]
        errors = Counter(reply.error for reply in last if reply.error and not reply.error.startswith(_OF_ONE))
        has_replies = run.shards(self._assignment.stage) or run.shards(self._assignment.parts)
        if last and errors.total() == len(last) and not has_replies:
            ((error, count),) = errors.most_common(1)
            rule = f"none of {len(last):,} calls brought a reply; of {count:,}: {error}"
            raise BackendError(f"Nothing was scored: {rule}")
        parts = [sample.tables() for sample in graded]
        run.commit(stage, name, {row: pa.concat_tables([part[row] for part in parts]) for row in parts[0]})
        return graded


def _replies(plan: Judge, warehouse: Warehouse) -> Replies:
    """The store of a judge's replies. It keeps nothing of a file of recorded replies, which stands alone: what the
    warehouse keeps may be of another recording; and nothing of an encoder where that would need a database."""
    is_free = warehouse.mirrored and not is_generative(plan)
    return open_replies(":memory:" if plan.replies or is_free else warehouse.replies)


@contextmanager
def _libraries_out_of_collection() -> Iterator[None]:
    """A shard makes so many objects that Python looks through all there are, those of the libraries too, once a shard:
    a quarter of the time. What is there before the first shard is left out of that."""
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
    with asking_together() as piece:
        for juror, own in stated.items():
            others = [of.tables.judgments for other, of in stated.items() if other != juror]
            with piece():
                if own.stage != own.tables.judgments.stage:
                    _look_again(run, own, base, items, responses, people, others)
    for own in stated.values():
        if own.stage != own.tables.judgments.stage:
            run.drop(own.tables.judgments.stage)
    tables = list[TableRef]()
    for own in stated.values():
        looked_at: tuple[type[Row], ...] = (Supports,) if own.plan.support else ()
        tables += [run.ref(row, own.stage) for row in (*_written(own.plan), *looked_at)]
    return tuple(tables)


def _look_again(
    run: Run,
    stated: StatedTables,
    base: Path,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    others: Sequence[TableRef],
) -> None:
    stage, rule, names = stated.stage, stated.plan.support, sorted(run.shards(stated.tables.judgments.stage))
    assert rule is not None
    if run.finished(stage, names) == set(names):
        return
    sheets, shard_of = sheets_of(run, items, stated.bundles), dict[str, str]()
    looks, before = list[support.SupportCase](), stated.tables.judgments.stage
    for name in names:
        rows = run.shard(Judgments, before, name).to_pylist()
        shard_of |= {row["response_id"]: name for row in rows}
        looks += _looks(run, responses, sheets, rows, others)
    of_judged = ds.field("response_id").isin(list(shard_of))
    known = run.read(responses, ["response_id", "author_id", "split"], of_judged).to_pylist()
    cluster = {row["response_id"]: row["author_id"] or row["response_id"] for row in known}
    marked = ds.field("response_id").isin([row["response_id"] for row in known if row["split"] in CALIBRATES])
    credited = support.credited(run.read(people, ["response_id", "criterion_id", "decision"], marked).to_pylist())
    by, called = None, list[Called]()
    if stated.plan.support_by:
        by, called = _asked(run, stated.plan.support_by, base, support.asked(looks, credited, cluster, rule))
    found = support.second_look(looks, credited, cluster, rule, called)
    kinds = Counter((row["kind"], row["doubted"]) for row in found)
    credits = kinds["credit", True] + kinds["credit", False]
    asked = f", {len(called):,} questions to {by.rater_id}" if by else ""
    proposed = f"{kinds['missing', True]:,} sentences that may have been missed"
    log(f"{stage}: {credits:,} credits looked at again, {kinds['credit', True]:,} doubted{asked}; {proposed}")
    bundle_of = {item: bundle for item, (_, bundle, _) in sheets.items()}
    for name in names:
        rows = run.shard(Judgments, before, name).to_pylist()
        graded = run.shard(Gradings, before, name).to_pylist(maps_as_pydicts="strict")
        calls = [run.shard(Attempts, before, name)]
        if by:
            calls.append(attempts(by, [call for call in called if shard_of[call.response_id] == name]))
        own = [row for row in found if shard_of[row["response_id"]] == name]
        rows, graded = support.settled(rows, graded, bundle_of, own, rule.failed)
        tables: dict[type[Row], Any] = {Judgments: rows, Gradings: graded}
        run.commit(stage, name, tables | {Attempts: pa.concat_tables(calls), Supports: own})


def _looks(
    run: Run, responses: TableRef, sheets: Mapping[str, Sheet], judged: support.Rows, others: Sequence[TableRef]
) -> list[support.SupportCase]:
    """The looks at a shard's decisions."""
    mine = ds.field("response_id").isin(sorted({row["response_id"] for row in judged}))
    cases = {}
    for row in run.read(responses, ["response_id", "item_id", "text", "made_from"], mine).to_pylist():
        cases[row["response_id"]] = case_of(row, *sheets[row["item_id"]])
    of_case, by_others = defaultdict[tuple[str, int], list[Any]](list), defaultdict[str, list[Any]](list)
    for row in judged:
        of_case[row["response_id"], row["sample"]].append(row)
    for table in others:
        for row in run.read(table, where=mine).to_pylist():
            by_others[row["response_id"]].append(row)
    needed = set[str]()
    for (name, _), rows in of_case.items():
        needed |= support.texts(cases[name], rows)
    distinct = sorted(needed)
    vectors = dict(zip(distinct, minilm()(distinct), strict=True))
    return [
        look
        for (name, _), rows in of_case.items()
        for look in support.looks(cases[name], rows, by_others[name], vectors)
    ]


def _asked(
    run: Run, judge: SupportJudge, base: Path, some: Sequence[support.SupportCase]
) -> tuple[Rater, list[Called]]:
    """The further judge, and what it said of some looks. BackendError where no reply can be used."""
    with open_replies(run.warehouse.replies) as replies:
        backend = open_backend(judge, base, replies, credential)
        is_structured = judge.engine is None or judge.engine.structured
        questions = support.requests(some, judge.sampling, is_structured)
        answers = ask(questions, backend, replies, support.check)
    if answers and not any(answer.value for answer in answers):
        last = answers[0].attempts[-1]
        wrong = last.reply.error or "; ".join(last.checked.violations)
        raise BackendError(f"judge.support_by: none of {len(answers):,} questions has a usable reply: {wrong}")
    by = Rater(f"{judge.backend}:{backend.model}:support", BACKENDS[judge.backend].rater_kind, backend)
    called = [Called(one.request.subject, f"support {n}", one) for n, one in enumerate(answers, 1)]
    return by, called


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
    stage, plan = share_of(assignment, shards), assignment.plan
    parts = Parts(assignment, shards)
    gaps = parts.gaps()
    to_judge = sum(gap.stop - gap.start for gap in gaps)
    if not to_judge:
        return
    progress = PieceProgress(
        assignment.stage, plan.samples * to_judge, ("responses", "unscored"), saying(stage.run.run_id, assignment.stage)
    )
    cutting: list[Cutting] = []

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
        progress.ended(piece, counts)

    share_out(stage, pieces, to_judge, placement, ended, lambda: cut(assignment, shards))


def share_of(assignment: Assignment, shards: Sequence[Shard]) -> SharedStage:
    """The stage as workers get it."""
    run = with_absolute_paths(assignment.run)
    return SharedStage(
        name=assignment.parts,
        pieces="pieces",
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
    replies = _replies(assignment.plan, assignment.run.warehouse)
    return assignment, ShardJudge(assignment, _rater(assignment, replies), replies)


def _judge_piece(opened: tuple[Assignment, ShardJudge], piece: Piece) -> PieceResult:
    assignment, shard_judge = opened
    part: ShardPart = piece.content
    with _libraries_out_of_collection():
        inputs = assignment.run.shard(ShardInputs, assignment.inputs, part.shard)
        rows = inputs.slice(part.start, part.stop - part.start).to_pylist()
        graded = shard_judge.judge(assignment.parts, part.name, rows)
    attempts = [attempt for sample in graded for called in sample.called for attempt in called.answer.attempts]
    paid = [attempt.reply for attempt in attempts if not attempt.stored]
    gradings = list(chain.from_iterable(sample.gradings for sample in graded))
    counts = PieceCounts(
        members=len(gradings),
        failed=sum(grading.scored.score is None for grading in gradings),
        calls=len(paid),
        reused=len(attempts) - len(paid),
        tokens=sum((reply.prompt_tokens or 0) + (reply.completion_tokens or 0) for reply in paid),
    )
    return PieceResult(counts, {})
