"""The sort that judging rests on, its time, memory and disk: python tests/bench/bench_sort.py [ROWS] [CHARACTERS].

Responses of random letters in shards as ingest cuts them, in no order. MEMORY is the most that the process held beyond
what it held before the sort.
"""

import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.store.ordered import in_order
from rubricflow.tasks.core.store.source import CHARACTERS, ROWS
from rubricflow.tasks.core.store.warehouse import Warehouse

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", dtype=np.uint8)
COLUMNS = ("item_id", "response_id", "text")


def fill(run, rows, characters):
    """Commit so many responses of that length."""
    rng = np.random.default_rng(0)
    order, size = rng.permutation(rows), max(1, min(ROWS, CHARACTERS // characters))
    for number, at in enumerate(range(0, rows, size)):
        ids = order[at : at + size]
        letters = LETTERS[rng.integers(0, len(LETTERS), len(ids) * characters, dtype=np.uint8)]
        ends = pa.py_buffer(np.arange(0, (len(ids) + 1) * characters, characters, dtype=np.int32))
        columns = {
            "response_id": [f"r{n:08d}" for n in ids],
            "item_id": [f"item{n % 20:02d}" for n in ids],
            "author_id": pa.nulls(len(ids), pa.string()),
            "text": pa.StringArray.from_buffers(len(ids), ends, pa.py_buffer(letters.tobytes())),
            "split": ["test"] * len(ids),
            "groups": pa.array([[]] * len(ids), pa.map_(pa.string(), pa.string())),
        }
        run.commit("ingest", f"{number:05d}", {Responses: pa.table(columns)})


def watch(folder, seen, end):
    """Keep the most bytes that were put aside in the warehouse."""
    while not end.wait(0.2):
        sizes = []
        for path in (folder / ".aside").glob("*/*"):
            try:
                sizes.append(path.stat().st_size)
            except FileNotFoundError:
                continue
        seen.append(sum(sizes))


def peak():
    """Largest memory that this process has held, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(rows, characters):
    """Sort so many responses of that length and print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        run = Warehouse.open(Path(folder) / "house").run("sort")
        fill(run, rows, characters)
        ref = run.ref(Responses, "ingest")
        before, start, put_aside, end = peak(), time.perf_counter(), [0], threading.Event()
        watcher = threading.Thread(target=watch, args=(Path(folder) / "house", put_aside, end))
        watcher.start()
        last, count = ("", ""), 0
        for batch in in_order(run, ref, COLUMNS, COLUMNS[:2]):
            keys = list(zip(batch["item_id"].to_pylist(), batch["response_id"].to_pylist(), strict=True))
            assert keys == sorted(keys)
            assert last < keys[0]
            last, count = keys[-1], count + len(keys)
        end.set()
        watcher.join()
        assert count == rows
        print(
            f"{rows:,} x {characters:,} characters: {time.perf_counter() - start:.1f} s, memory {peak():,.0f} MiB "
            f"({before:,.0f} before the sort), on disk {max(put_aside) / 2**20:,.0f} MiB"
        )


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    main(*(numbers or (200_000, 1_500)))
