"""A table's rows in an order, streamed: only keys are sorted in memory, the rows are dealt to piles on disk."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.schema import TableRef, schema
from rubricflow.tasks.core.contracts.tables.catalogue import BY_NAME
from rubricflow.tasks.core.stats.arrays import Ints
from rubricflow.tasks.core.store.files import aside
from rubricflow.tasks.core.store.part import first_line, opened, reading
from rubricflow.tasks.core.store.warehouse import Run, give_back

PILE = 32 << 20
"""Bytes of rows that are put in order together; a pile ends with the row that fills it."""
MOST_PILES = 200
"""As many files are open at once; where that is too few, piles are larger."""
READ = 4 << 20
"""Bytes that are read at a time, roughly."""
ROWS = 2_048
_PLACE = pa.field("place in order", pa.int64())
Read = Iterator[pa.RecordBatch]


def in_order(run: Run, ref: TableRef, columns: Sequence[str], by: Sequence[str], pile: int = PILE) -> Read:
    """These columns of the rows behind a reference, in the order of the code points of the columns `by`, a batch at a
    time; rows that are equal there keep the order of their shards.

    Takes memory for the keys and for a few piles of that many bytes, however many rows there are and however long; and
    room in the warehouse for all the rows. StoreError if they are not all there, or there is no such room.
    """
    owner = run.warehouse.run(Path(ref.path).parts[0])
    row = BY_NAME[ref.table]
    read = partial(_read, list(owner.parts(row, ref.stage)), owner.mend())
    places, piles = _dealt(read({*columns, *by}), by, pile)
    kind = pa.schema([schema(row).field(name).with_nullable(True).remove_metadata() for name in columns])
    with aside(run.warehouse.root, "sort") as folder, _room(ref, folder):
        with closing(read(columns)) as rows:
            _deal(rows, kind, places, piles, folder)
        for path in _pile_files(folder, piles):
            yield from _sorted(path)


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


@contextmanager
def _room(ref: TableRef, folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise StoreError(
            f"{ref.path} cannot be sorted in {folder.parent}: {first_line(error)}; there must be room for all of its "
            "rows: make some and start again, what is finished stays"
        ) from error


def _read(files: Sequence[Path], mend: str, columns: Iterable[str]) -> Generator[pa.RecordBatch]:
    """The rows of all files, as many at a time as make up READ bytes."""
    for path in files:
        with reading(path, mend), opened(path) as file:
            groups = (file.metadata.row_group(number) for number in range(file.num_row_groups))
            length = sum(group.total_byte_size for group in groups) // max(1, file.metadata.num_rows)
            rows = min(ROWS, max(1, READ // max(1, length)))
            yield from file.iter_batches(rows, columns=list(columns))
        give_back()  # else the texts leave holes around what is kept of them


def _dealt(batches: Read, by: Sequence[str], pile: int) -> tuple[Ints, Ints]:
    """For every row its place in the order, and the number of its pile."""
    keys, lengths = list[pa.RecordBatch](), [np.zeros(0, np.int64)]
    for batch in batches:
        keys.append(batch.select(list(by)))
        lengths.append(_lengths(batch))
    length = np.concatenate(lengths)
    places, piles = np.empty_like(length), np.empty_like(length)
    if len(length):
        order = pc.sort_indices(pa.Table.from_batches(keys), [(name, "ascending") for name in by]).to_numpy()
        ends = np.cumsum(length[order])
        _, numbers = np.unique((ends - 1) // max(pile, ends[-1] // MOST_PILES + 1), return_inverse=True)
        places[order], piles[order] = np.arange(len(order)), numbers
    return places, piles


def _lengths(batch: pa.RecordBatch) -> Ints:
    """Bytes of each row, roughly."""
    length = np.full(batch.num_rows, 8, np.int64)
    for column in batch.columns:
        if pa.types.is_string(column.type):
            length += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        else:
            length += column.nbytes // max(1, batch.num_rows)
    return length


def _deal(batches: Read, kind: pa.Schema, places: Ints, piles: Ints, folder: Path) -> None:
    """Write every row, with its place, to the file of its pile."""
    options, at = pa.ipc.IpcWriteOptions(compression="lz4"), 0
    with ExitStack() as stack:
        files = [stack.enter_context(pa.OSFile(str(path), "wb")) for path in _pile_files(folder, piles)]
        opening = (pa.ipc.new_stream(file, kind.append(_PLACE), options=options) for file in files)
        writers = [stack.enter_context(writer) for writer in opening]
        for batch in batches:
            here = slice(at, at + batch.num_rows)
            turn = np.argsort(piles[here], kind="stable")
            own = piles[here][turn]
            dealt = pa.table([*batch.select(kind.names).take(turn), places[here][turn]], kind.append(_PLACE))
            cuts = [0, *(np.flatnonzero(np.diff(own)) + 1), len(own)]
            for start, end in pairwise(cuts):
                writers[own[start]].write_table(dealt.slice(start, end - start))
            at += batch.num_rows


def _pile_files(folder: Path, piles: Ints) -> list[Path]:
    return [folder / str(number) for number in range(int(piles.max(initial=-1)) + 1)]


def _sorted(path: Path) -> Read:
    """The rows of a pile in their order; its file is removed."""
    with pa.OSFile(str(path)) as file:
        table = pa.ipc.open_stream(file).read_all()
    path.unlink()
    order = pc.sort_indices(table[_PLACE.name])
    yield from table.drop_columns(_PLACE.name).take(order).to_batches(ROWS)
