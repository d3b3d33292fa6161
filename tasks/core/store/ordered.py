"""Tables larger than memory: rows in an order, streamed (only keys are sorted in memory, the rows are dealt to piles on
disk), and what the score frame is made from, some items at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import pairwise
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.errors import StoreError, first_line
from rubricflow.tasks.core.contracts.schema import TableRef, schema
from rubricflow.tasks.core.contracts.tables import BY_NAME
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.stats.arrays import Ints
from rubricflow.tasks.core.stats.promise import MarkedAnswers
from rubricflow.tasks.core.stats.scores import GIVEN, PROBABILITIES, ScoreTables, narrow, target_scores
from rubricflow.tasks.core.store.files import MEMORY, aside, pattern
from rubricflow.tasks.core.store.part import open_parquet, reading
from rubricflow.tasks.core.store.warehouse import Run, counted, give_back

PILE = 32 << 20
"""Bytes of rows that are put in order together; a pile ends with the row that fills it."""
MOST_PILES = 200
"""As many files are open at once; where that is too few, piles are larger."""
READ = 4 << 20
"""Bytes that are read at a time, roughly."""
ROWS = 2_048
BATCH = 20_000
"""Responses whose scores are read at a time."""
EVALUATED = ("text_only", "low", "high", "risk", "route", PROBABILITIES)
"""What the evaluation looks at of a prediction with its score."""
_PLACE = pa.field("place in order", pa.int64())
_MARKED = rf"""
    SELECT item_id, count(*) AS answers, count(*) FILTER (marked) AS marked,
        count(*) FILTER (marked AND split IN {CALIBRATES}) AS counting,
        sum(len(regexp_extract_all(text, '[^\s\p{{Z}}]+')))::BIGINT AS words
    FROM (SELECT *, response_id IN (SELECT response_id FROM given) AS marked FROM answers)
    GROUP BY item_id ORDER BY item_id"""


def in_order(
    run: Run, ref: TableRef, columns: Sequence[str], by: Sequence[str], pile: int = PILE
) -> Iterator[pa.RecordBatch]:
    """These columns of the rows behind a reference, in the order of the code points of the columns `by`, a batch at a
    time; rows that are equal there keep the order of their shards.

    Takes memory for the keys and for a few piles of that many bytes, however many rows there are and however long; and
    space in the warehouse for all the rows. StoreError if they are not all there, or there is no such space.
    """
    owner = run.warehouse.run(Path(ref.path).parts[0])
    row = BY_NAME[ref.table]
    read = partial(_read, list(owner.parts(row, ref.stage)), owner.mend())
    places, piles = _dealt(read({*columns, *by}), by, pile)
    kind = pa.schema([schema(row).field(name).with_nullable(True).remove_metadata() for name in columns])
    with aside(run.warehouse.root, "sort") as folder:
        paths = [folder / str(number) for number in range(int(piles.max(initial=-1)) + 1)]
        try:
            with closing(read(columns)) as rows:
                _deal(rows, kind.append(_PLACE), places, piles, paths)
            for path in paths:
                yield from _sorted(path)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(
                f"{ref.path} cannot be sorted in {folder.parent}: {first_line(error)}; there must be room for all of "
                "its rows: make some and start again, what is finished stays"
            ) from error


def _read(files: Sequence[Path], mend: str, columns: Iterable[str]) -> Generator[pa.RecordBatch]:
    """The rows of all files, as many at a time as make up READ bytes."""
    for path in files:
        with reading(path, mend), open_parquet(path) as file:
            groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
            length = sum(group.total_byte_size for group in groups) // max(1, file.metadata.num_rows)
            rows = min(ROWS, max(1, READ // max(1, length)))
            yield from file.iter_batches(rows, columns=list(columns))
        give_back()  # else the texts leave holes around what is kept of them


def _dealt(batches: Iterator[pa.RecordBatch], by: Sequence[str], pile: int) -> tuple[Ints, Ints]:
    """For every row its place in the order, and the number of its pile; a row's bytes are known roughly."""
    keys = []
    lengths = [np.zeros(0, np.int64)]
    for batch in batches:
        keys.append(batch.select(list(by)))
        bytes_of = np.full(batch.num_rows, 8, np.int64)
        for column in batch.columns:
            if pa.types.is_string(column.type):
                bytes_of += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
            else:
                bytes_of += column.nbytes // max(1, batch.num_rows)
        lengths.append(bytes_of)
    length = np.concatenate(lengths)
    places = np.empty_like(length)
    piles = np.empty_like(length)
    if len(length):
        order = pc.sort_indices(pa.Table.from_batches(keys), [(name, "ascending") for name in by]).to_numpy()
        ends = np.cumsum(length[order])
        _, numbers = np.unique((ends - 1) // max(pile, ends[-1] // MOST_PILES + 1), return_inverse=True)
        places[order], piles[order] = np.arange(len(order)), numbers
    return places, piles


def _deal(batches: Iterator[pa.RecordBatch], kind: pa.Schema, places: Ints, piles: Ints, paths: Sequence[Path]) -> None:
    """Write every row, with its place, to the file of its pile."""
    options, at = pa.ipc.IpcWriteOptions(compression="lz4"), 0
    with ExitStack() as stack:
        files = [stack.enter_context(pa.OSFile(str(path), "wb")) for path in paths]
        writers = [stack.enter_context(pa.ipc.new_stream(file, kind, options=options)) for file in files]
        for batch in batches:
            here = slice(at, at + batch.num_rows)
            turn = np.argsort(piles[here], kind="stable")
            own = piles[here][turn]
            dealt = pa.table([*batch.select(kind.names[:-1]).take(turn), places[here][turn]], kind)
            cuts = [0, *(np.flatnonzero(np.diff(own)) + 1), len(own)]
            for start, end in pairwise(cuts):
                writers[own[start]].write_table(dealt.slice(start, end - start))
            at += batch.num_rows


def _sorted(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a pile in their order; its file is removed."""
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_stream(file).read_all()
    path.unlink()
    yield from table.sort_by(_PLACE.name).drop_columns(_PLACE.name).to_batches(ROWS)


def packed(counts: Mapping[str, int], rows: int) -> list[list[str]]:
    """Items in the order of their ids, as many together as have at most `rows` responses; a larger one alone."""
    packs: list[list[str]] = []
    free = 0
    for item_id in sorted(counts):
        if counts[item_id] > free:
            packs.append([])
            free = rows
        packs[-1].append(item_id)
        free -= counts[item_id]
    return packs


def read_scores(
    run: Run,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    gradings: TableRef,
    predictions: TableRef,
    *,
    predicted: Sequence[str] = EVALUATED,
    signals: bool = True,
) -> Iterator[ScoreTables]:
    """What the score frame is made from, some responses at a time: no texts, and of a grading only score and signals.

    predicted: columns of `predictions` with the score; signals: whether the machine's signals are wanted.
    """
    kinds = run.read(items, ["item_id", "type"])
    columns = ["response_id", "score", *(["signals"] if signals else [])]
    for some in _together(run, responses):
        answers = run.read(responses, ["response_id", "item_id", "author_id", "split", "groups"], some)
        yield ScoreTables(
            kinds,
            answers,
            run.read(people, GIVEN, some),
            narrow(run.batches(gradings, columns, where=some)),
            run.read(predictions, ["response_id", "score", *predicted], some),
        )
        give_back()


def _together(run: Run, responses: TableRef) -> Iterator[pc.Expression]:
    """Which rows are read together: those of some items or, of an item with many responses, from one id to another."""
    sizes = counted(run, responses, "item_id")
    for names in packed(sizes, BATCH) or [[]]:
        of_items = pc.field("item_id").isin(pa.array(names, pa.string()))
        if sum(sizes[name] for name in names) <= BATCH:
            yield of_items
            continue
        ids = run.read(responses, ["response_id"], of_items)["response_id"]
        ordered = ids.take(pc.sort_indices(ids))
        response_id = pc.field("response_id")
        for start in range(0, len(ordered), BATCH):
            first = ordered[start]
            last = ordered[min(start + BATCH, len(ordered)) - 1]
            yield of_items & (response_id >= first) & (response_id <= last)


def read_marked(run: Run, responses: TableRef, people: TableRef, target: str) -> list[MarkedAnswers]:
    """How many answers every item has, marked ones, and marked ones that a promise may rest on, by the ids of items."""
    owner = run.warehouse.run(Path(responses.path).parts[0])
    files = list(map(pattern, owner.parts(BY_NAME[responses.table], responses.stage)))
    given = target_scores(run.read(people, GIVEN), target)
    with reading(responses.path, owner.mend()), duckdb.connect(config={"memory_limit": MEMORY}) as connection:
        connection.register("given", given)
        connection.read_parquet(files, hive_partitioning=False).create_view("answers")
        return [MarkedAnswers(**row) for row in connection.sql(_MARKED).to_arrow_table().to_pylist()]
