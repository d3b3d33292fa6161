"""The done-marks of a run in a bucket while this process alone finishes shards of it: they are listed once.

A mark that this process writes or meets is noted, so that nothing is asked for it again. A stage that others work on
too is looked at anew when they have ended.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from rubricflow.tasks.core.store.home import Home
from rubricflow.tasks.core.store.objects import version_of
from rubricflow.tasks.core.store.part import DoneMark, mark_bytes, mark_in

_FEW = 8
"""So many marks are read one by one."""
_TOGETHER = 16
_MOST = 1 << 17
_seen: dict[tuple[str, str, str], DoneMark] = {}
"""(warehouse, key, version) → mark, of this process."""
_indexed: dict[tuple[str, str], Mapping[Path, str]] = {}
"""(warehouse, key of an index) → the versions of the marks that it holds, as far as this process knows."""


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


# The done-marks of a stage in a bucket, by a request or two however many there are.


def marks_below(house: Home, folder: Path, mend: str) -> dict[Path, DoneMark]:
    """The marks below a folder of a bucket, of one stage or of all; in order. StoreError where one cannot be read."""
    versions = {folder / name: version for name, version in house.versions(folder).items()}
    stages: dict[Path, list[Path]] = {}
    for path in versions:
        stages.setdefault(path.parent, []).append(path)
    for stage, paths in stages.items():
        _learn(house, stage, {path: versions[path] for path in paths}, mend)
    return {path: _seen[_key(house, path, versions[path])] for path in sorted(versions)}


def _learn(house: Home, stage: Path, versions: Mapping[Path, str], mend: str) -> None:
    """Take in the marks of a stage that were not seen yet."""
    if len(_seen) > _MOST:
        _seen.clear()
    if len(_unseen(house, versions)) > _FEW:
        _take_from_index(house, stage, versions, mend)
    unseen = _unseen(house, versions)
    _read(house, {path: versions[path] for path in unseen}, mend)
    indexed = _indexed.get((house.place, _index(house, stage)), {})
    if sum(indexed.get(path) != version for path, version in versions.items()) > _FEW:
        _write_index(house, stage, versions)


def remember(house: Home, path: Path, content: bytes, mark: DoneMark) -> None:
    """Note a mark that this process has written or read, so that it is not read again."""
    _seen[_key(house, path, version_of(content))] = mark


def _write_index(house: Home, stage: Path, versions: Mapping[Path, str]) -> None:
    records = {path.name: [version, _text(house, path, version)] for path, version in versions.items()}
    house.objects.put(_index(house, stage), json.dumps(records, ensure_ascii=False).encode())
    _indexed[house.place, _index(house, stage)] = versions


def _take_from_index(house: Home, stage: Path, versions: Mapping[Path, str], mend: str) -> None:
    try:
        records = json.loads(house.objects.get(_index(house, stage)) or b"{}")
        texts = {path: text for path in versions for version, text in [records[path.name]] if version == versions[path]}
    except (ValueError, TypeError, KeyError):  # written anew
        return
    _indexed[house.place, _index(house, stage)] = {path: versions[path] for path in texts}
    for path, text in texts.items():
        _seen[_key(house, path, versions[path])] = mark_in(text.encode(), path, mend)


def _read(house: Home, versions: Mapping[Path, str], mend: str) -> None:
    with ThreadPoolExecutor(_TOGETHER) as pool:
        contents = list(pool.map(lambda path: house.content(path), versions))
    for path, content in zip(versions, contents, strict=True):
        _seen[_key(house, path, versions[path])] = mark_in(content, path, mend)


def _unseen(house: Home, versions: Mapping[Path, str]) -> list[Path]:
    return [path for path, version in versions.items() if _key(house, path, version) not in _seen]


def _text(house: Home, path: Path, version: str) -> str:
    return mark_bytes(_seen[_key(house, path, version)]).decode()


def _key(house: Home, path: Path, version: str) -> tuple[str, str, str]:
    return house.place, str(path), version


def _index(house: Home, stage: Path) -> str:
    """The key of a stage's index, `<run>/_index/<stage>.json`."""
    run = stage.parent.parent.relative_to(house.root)
    return f"{run.as_posix()}/_index/{stage.name}.json"
