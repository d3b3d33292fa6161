"""The done-marks of a run, by which its shards count: files of a folder, or contents of a bucket.

In a bucket a stage's marks cost a request or two however many there are: this process remembers what it has read, and
an index of each stage holds many together. While this process alone finishes shards of a run (`listed_once`), the marks
are listed once, and those that it writes or meets are noted; a stage that others work on too is listed anew when they
have ended (`look_again`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.scoped import scoped
from rubricflow.tasks.core.store.objects import Home, version_of
from rubricflow.tasks.core.store.part import LAST, DoneMark, mark_bytes, mark_in, read_mark

DONE = "_done"
"""The folder of a run that holds its done-marks, `<stage>/<shard>.json`."""
_FEW = 8
"""So many marks are read one by one."""
_TOGETHER = 16
_MOST = 1 << 17
_seen: dict[tuple[str, Path, str], DoneMark] = {}
"""(warehouse, path, version) → mark, of this process."""
_indexed: dict[tuple[str, str], Mapping[Path, str]] = {}
"""(warehouse, key of an index) → the versions of the marks that it holds, as far as this process knows."""
_listings: ContextVar[dict[Path, dict[Path, DoneMark]] | None] = ContextVar("listings", default=None)
"""Run's folder → its marks; None where every look at them is a listing."""


def listed_once() -> AbstractContextManager[None]:
    """Within this the marks of every run in a bucket are listed once, and those noted that this process writes.

    What other processes finish meanwhile may be missing from a listing until `look_again`; a single shard that is not
    in it is asked for. In a folder nothing changes.
    """
    return scoped(_listings, {}) if _listings.get() is None else nullcontext()


def look_again(run_folder: Path) -> None:
    """Forget the listing of a run: other processes have finished shards of it."""
    (_listings.get() or {}).pop(run_folder, None)


@dataclass(frozen=True)
class Marks:
    """A run's place in its warehouse, and its done-marks."""

    warehouse: Home
    run_id: str

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.warehouse.root / self.run_id

    @property
    def place(self) -> str:
        """The run's address, for people."""
        return f"{self.warehouse.place}/{self.run_id}"

    def mend(self) -> str:
        """What to do about a run that is not whole, for messages."""
        return f"remove {self.place} and grade the study again (replies that arrived are kept, and not asked for again)"

    def marks(self) -> list[Path]:
        """Where the done-marks of all stages are, `<stage>/<shard>.json`, in order; broken ones too, but StoreError for
        one in a bucket within `listed_once`."""
        folder = self.folder / DONE
        if not self.warehouse.mirrored:
            return sorted(folder.glob("*/*.json"))
        if _listings.get() is not None:
            return list(self._marks(folder))
        return sorted(folder / name for name in self.warehouse.versions(folder))

    def _mark_path(self, stage: str, shard: str) -> Path:
        return self.folder / DONE / stage / f"{shard}.json"

    def _mark(self, stage: str, shard: str) -> DoneMark | None:
        """The mark of a shard, asked for where no listing has it; None where there is none."""
        path = self._mark_path(stage, shard)
        if not self.warehouse.mirrored:
            return read_mark(path, self.mend()) if path.exists() else None
        mark = (self._listing() or {}).get(path)
        content = None if mark else self.warehouse.stored(path)
        return mark if content is None else self._note(path, content)

    def _done_marks(self, stage: str) -> dict[str, DoneMark]:
        """The marks of a stage by the name of their shard, in name order.

        StoreError for one that cannot be read, or one that is lost of those that the stage's last one names.
        """
        marks = {path.stem: mark for path, mark in self._marks(self.folder / DONE / stage).items()}
        for other in marks[LAST].others if LAST in marks else ():
            if other not in marks:
                path = f"{self.place}/_done/{stage}/{other}.json"
                raise StoreError(f"{path} is lost, and its stage is done; {self.mend()}")
        return marks

    def _marks(self, folder: Path) -> dict[Path, DoneMark]:
        """The marks below a folder, in name order."""
        if not self.warehouse.mirrored:
            return {path: read_mark(path, self.mend()) for path in sorted(folder.rglob("*.json"))}
        listings = _listings.get()
        if listings is None:
            return self._marks_in_bucket(folder)
        if self.folder not in listings:
            listings[self.folder] = self._marks_in_bucket(self.folder / DONE)
        marks = listings[self.folder]
        return {path: marks[path] for path in sorted(marks) if folder in path.parents}

    def _listing(self) -> dict[Path, DoneMark] | None:
        """The marks as they were listed once; None where they were not, and in a folder."""
        return (_listings.get() or {}).get(self.folder)

    def _note(self, path: Path, content: bytes) -> DoneMark:
        """A mark of a bucket that was written or read: noted, so that nothing is asked for it again."""
        with self.warehouse.naming():
            mark = mark_in(content, path, self.mend())
        _seen[self.warehouse.place, path, version_of(content)] = mark
        listing = self._listing()
        if listing is not None:
            listing[path] = mark
        return mark

    def _marks_in_bucket(self, folder: Path) -> dict[Path, DoneMark]:
        """The marks below a folder of a bucket, of one stage or of all, in order."""
        versions = {folder / name: version for name, version in self.warehouse.versions(folder).items()}
        if len(_seen) > _MOST:
            _seen.clear()
        with self.warehouse.naming():
            for stage in {path.parent for path in versions}:
                self._learn(stage, {path: versions[path] for path in versions if path.parent == stage})
        return {path: _seen[self.warehouse.place, path, versions[path]] for path in sorted(versions)}

    def _learn(self, stage: Path, versions: Mapping[Path, str]) -> None:
        """Take in the marks of a stage that were not seen yet, many of them from its index, `_index/<stage>.json`."""
        warehouse, mend, index = self.warehouse, self.mend(), f"{self.run_id}/_index/{stage.name}.json"

        def unseen() -> list[Path]:
            return [path for path, version in versions.items() if (warehouse.place, path, version) not in _seen]

        if len(unseen()) > _FEW:
            try:
                records = json.loads(warehouse.objects.get(index) or b"{}")
                texts = {path: records[path.name][1] for path in versions if records[path.name][0] == versions[path]}
            except (ValueError, TypeError, KeyError, IndexError):  # broken or not complete: written anew
                texts = {}
            _indexed[warehouse.place, index] = {path: versions[path] for path in texts}
            for path, text in texts.items():
                _seen[warehouse.place, path, versions[path]] = mark_in(text.encode(), path, mend)
        paths = unseen()
        with ThreadPoolExecutor(_TOGETHER) as pool:
            for path, content in zip(paths, pool.map(warehouse.content, paths), strict=True):
                _seen[warehouse.place, path, versions[path]] = mark_in(content, path, mend)
        known = _indexed.get((warehouse.place, index), {})
        if sum(known.get(path) != version for path, version in versions.items()) > _FEW:
            records = {
                path.name: [version, mark_bytes(_seen[warehouse.place, path, version]).decode()]
                for path, version in versions.items()
            }
            warehouse.objects.put(index, json.dumps(records, ensure_ascii=False).encode())
            _indexed[warehouse.place, index] = versions
