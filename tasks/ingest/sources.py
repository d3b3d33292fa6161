"""The sources of a study: its own, or those of a shipped layout."""

from __future__ import annotations

import importlib
from pathlib import Path

import pandas as pd

from tasks.contracts.errors import InputError
from tasks.contracts.study import Data, Source, parse, read_yaml
from tasks.contracts.table import Frozen
from tasks.store.source import read

LAYOUTS = Path(__file__).with_name("layouts")


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


def load(data: Data, base: Path) -> list[tuple[Source, pd.DataFrame]]:
    """Every source with its rows, prepared where the layout has code for it."""
    found = []
    for source in sources(data):
        frame = read(base / data.folder / source.file)
        if data.layout and (LAYOUTS / f"{data.layout}.py").exists():
            frame = importlib.import_module(f"tasks.ingest.layouts.{data.layout}").prepare(source.file, frame)
        found.append((source, frame))
    return found
