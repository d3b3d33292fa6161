"""The reply store: replies a second and bytes a reply, beside a bare SQLite table and a folder of JSON files.

    python tests/bench/bench_replies.py [REPLIES] [--batch N]

A reply is a checklist artifact of nine decisions with quotes, about 1.3 kB as text, with its token counts; words are
drawn at random, so that nothing is equal. Writes go in batches of `--batch`, reads ask for half of what there is and as
many strangers. Wall-clock time, since waiting for the disk is part of it; each in a fresh folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply

MODEL = "example-8b"
WORDS = [
    "".join(letters)
    for letters in zip(*[random.Random(seed).choices("etaoinshrdlucmfw", k=4_000) for seed in range(6)], strict=True)
]


def replies(count: int) -> Iterator[tuple[str, str, Reply]]:
    """(digest, model, reply) of so many invented replies."""
    rng = random.Random(0)
    for number in range(count):
        decisions = {
            f"C{n:02d}": {
                "evidence": [{"unit": f"s{rng.randint(1, 9)}", "quote": " ".join(rng.choices(WORDS, k=10))}],
                "level": rng.randint(0, 2),
            }
            for n in range(9)
        }
        text = json.dumps({"decisions": decisions})
        yield _digest(number), MODEL, Reply(text=text, prompt_tokens=900, completion_tokens=330, latency_s=0.8)


def _digest(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


class Bare:
    """A plain table over sqlite3 as its defaults are: no wrapping, one transaction a batch."""

    def __init__(self, folder: Path) -> None:
        self.connection = sqlite3.connect(folder / "bare.sqlite")
        self.connection.execute("CREATE TABLE replies(digest TEXT PRIMARY KEY, reply TEXT)")

    def put(self, batch: list[tuple[str, str, Reply]]) -> None:
        rows = [(digest, json.dumps({"text": reply.text, "prompt_tokens": 900})) for digest, _, reply in batch]
        with self.connection:
            self.connection.executemany("INSERT OR IGNORE INTO replies VALUES (?, ?)", rows)

    def get(self, digests: list[str]) -> int:
        marks = ",".join("?" * len(digests))
        query = f"SELECT digest, reply FROM replies WHERE digest IN ({marks})"
        return len({digest: json.loads(line) for digest, line in self.connection.execute(query, digests)})


class Files:
    """A JSON file a reply, in folders by the first two digits of its digest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for at in range(256):
            (folder / f"{at:02x}").mkdir()

    def put(self, batch: list[tuple[str, str, Reply]]) -> None:
        for digest, _, reply in batch:
            self._path(digest).write_text(json.dumps({"text": reply.text, "prompt_tokens": 900}), encoding="utf-8")

    def get(self, digests: list[str]) -> int:
        found = 0
        for digest in digests:
            try:
                json.loads(self._path(digest).read_text(encoding="utf-8"))
            except FileNotFoundError:
                continue
            found += 1
        return found

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / f"{digest}.json"


class Ours:
    """The product's store."""

    def __init__(self, folder: Path) -> None:
        self.store = ReplyStore(folder / "replies.sqlite")

    def put(self, batch: list[tuple[str, str, Reply]]) -> None:
        self.store.put_many(batch)

    def get(self, digests: list[str]) -> int:
        return len(self.store.get_many(digests))


def measure(make: Callable[[Path], Bare | Files | Ours], made: list[tuple[str, str, Reply]], batch: int) -> list[float]:
    """[written a second, read a second, bytes a reply on disk (blocks taken)]."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = make(folder)
        start = time.perf_counter()
        for at in range(0, len(made), batch):
            store.put(made[at : at + batch])
        put = time.perf_counter() - start
        known = [digest for digest, _, _ in made]
        random.Random(1).shuffle(known)
        asked = [*known[: len(known) // 2], *(_digest(-number - 1) for number in range(len(known) // 2))]
        random.Random(2).shuffle(asked)
        start = time.perf_counter()
        found = sum(store.get(asked[at : at + batch]) for at in range(0, len(asked), batch))
        get = time.perf_counter() - start
        assert found == len(known) // 2
        size = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
        return [len(made) / put, len(asked) / get, size / len(made)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("replies", nargs="?", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=500)
    given = parser.parse_args()
    made = list(replies(given.replies))
    mean = sum(len(reply.text or "") for _, _, reply in made) / len(made)
    print(f"{len(made):,} replies of {mean:,.0f} characters on average, {given.batch} a batch")
    print("store                 written/s     read/s   bytes/reply   GB per million")
    for name, make in (("reply store", Ours), ("bare SQLite table", Bare), ("folder of JSON files", Files)):
        put, get, size = measure(make, made, given.batch)
        print(f"{name:20} {put:10,.0f} {get:10,.0f} {size:13,.0f} {size / 1000:16.2f}")


if __name__ == "__main__":
    main()
