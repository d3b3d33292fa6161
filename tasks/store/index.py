"""The done-marks of a stage in a bucket, by a request or two however many there are.

One listing says which marks there are and of which version. Those that this process has not seen are in the stage's
index; what the index does not hold in that version is read by itself. Whoever knows of many marks that the index lacks
writes it anew. So an index may be old, lost or broken, and nobody reads anything wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tasks.store.home import Home
from tasks.store.mark import DoneMark, mark_bytes, mark_in
from tasks.store.objects import version_of

_FEW = 8
"""So many marks are read one by one."""
_TOGETHER = 16
_MOST = 1 << 17
_seen: dict[tuple[str, str, str], DoneMark] = {}
"""(warehouse, key, version) → mark, of this process."""
_indexed: dict[tuple[str, str], Mapping[Path, str]] = {}
"""(warehouse, key of an index) → the versions of the marks that it holds, as far as this process knows."""


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
