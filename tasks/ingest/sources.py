"""The sources of a study: its own, or those of a shipped layout."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from tasks.contracts.errors import InputError
from tasks.contracts.study import Data, Source, parse, read_yaml
from tasks.contracts.table import Frozen
from tasks.store.cells import select
from tasks.store.source import chunks

LAYOUTS = Path(__file__).with_name("layouts")
Prepare = Callable[[str, pd.DataFrame], pd.DataFrame]
"""Name of the file, a chunk of its rows → the chunk with columns that map."""


class Layout(Frozen):
    """A layout file."""

    sources: tuple[Source, ...]


def sources(data: Data) -> tuple[Source, ...]:
    """The study's sources; InputError for an unknown layout."""
    if data.layout is None:
        return data.sources
    path = LAYOUTS / f"{data.layout}.yaml"
    if not data.layout.isidentifier() or not path.is_file():
        known = ", ".join(sorted(p.stem for p in LAYOUTS.glob("*.yaml")))
        raise InputError(f"'{data.layout}' is no layout; there are {known}", field="data.layout")
    return parse(Layout, read_yaml(path), path).sources


class Stream(NamedTuple):
    """A source and its rows."""

    source: Source
    chunks: Callable[[], Iterator[pd.DataFrame]]
    """Reads the rows that the study selects, a chunk at a time, each time anew."""


def streams(data: Data, base: Path) -> list[Stream]:
    """Every source with its rows, prepared where the layout has code for it."""
    prepare = None
    if data.layout and (LAYOUTS / f"{data.layout}.py").exists():
        prepare = importlib.import_module(f"tasks.ingest.layouts.{data.layout}").prepare
    folder = base / data.folder
    return [Stream(source, partial(_chunks, source, folder / source.file, prepare)) for source in sources(data)]


def _chunks(source: Source, path: Path, prepare: Prepare | None) -> Iterator[pd.DataFrame]:
    for frame in chunks(path):
        yield select(prepare(source.file, frame) if prepare else frame, source.where, source.file)
