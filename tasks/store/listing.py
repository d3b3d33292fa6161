"""The done-marks of a run in a bucket while this process alone finishes shards of it: they are listed once.

A mark that this process writes or meets is noted, so that nothing is asked for it again. A stage that others work on
too is looked at anew when they have ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from tasks.store.home import Home
from tasks.store.index import marks_below, remember
from tasks.store.mark import DoneMark, mark_in

DONE = "_done"
"""The folder of a run that holds its done-marks, `<stage>/<shard>.json`."""
_listings: ContextVar[dict[Path, dict[Path, DoneMark]] | None] = ContextVar("listings", default=None)
"""Run's folder → its marks; None where every look at them is a listing."""


@contextmanager
def listed_once() -> Iterator[None]:
    """Within this the marks of every run in a bucket are listed once, and those noted that this process writes.

    What other processes finish meanwhile may be missing from a listing until `look_again`; a single shard that is not
    in it is asked for. In a folder nothing changes.
    """
    if _listings.get() is not None:
        yield
        return
    token = _listings.set({})
    try:
        yield
    finally:
        _listings.reset(token)


def look_again(run_folder: Path) -> None:
    """Forget the listing of a run: other processes have finished shards of it."""
    (_listings.get() or {}).pop(run_folder, None)


def listed_marks(house: Home, run_folder: Path, folder: Path, mend: str) -> dict[Path, DoneMark]:
    """The marks below a folder of a run in a bucket, in order; StoreError where one cannot be read."""
    listings = _listings.get()
    if listings is None:
        return marks_below(house, folder, mend)
    if run_folder not in listings:
        listings[run_folder] = marks_below(house, run_folder / DONE, mend)
    marks = listings[run_folder]
    return {path: marks[path] for path in sorted(marks) if folder in path.parents}


def listed_paths(house: Home, run_folder: Path, mend: str) -> list[Path]:
    """Where the marks of a run in a bucket are, in order; broken ones too, but StoreError where they are listed
    once."""
    if _listings.get() is not None:
        return list(listed_marks(house, run_folder, run_folder / DONE, mend))
    return sorted(run_folder / DONE / name for name in house.versions(run_folder / DONE))


def is_unlisted(run_folder: Path, path: Path) -> bool:
    """Whether the run was listed and this mark is not among its marks."""
    marks = (_listings.get() or {}).get(run_folder)
    return marks is not None and path not in marks


def single_mark(house: Home, run_folder: Path, path: Path, mend: str) -> DoneMark | None:
    """The mark of one shard in a bucket, asked for where no listing has it; None where there is none."""
    mark = (_listings.get() or {}).get(run_folder, {}).get(path)
    if mark is not None:
        return mark
    content = house.stored(path)
    return None if content is None else note_mark(house, run_folder, path, content, mend)


def note_mark(house: Home, run_folder: Path, path: Path, content: bytes, mend: str) -> DoneMark:
    """Take in a mark that was written or read: it is in the run's listing, and in no index anew."""
    mark = mark_in(content, path, mend)
    remember(house, path, content, mark)
    marks = (_listings.get() or {}).get(run_folder)
    if marks is not None:
        marks[path] = mark
    return mark
