"""The sources of a study: those of a shipped layout, and its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError, refuse
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.settings.data import Data, Source
from rubricflow.tasks.core.contracts.settings.written import parse, read_yaml
from rubricflow.tasks.core.store.cells import did_you_mean, select
from rubricflow.tasks.core.store.essays import essay_words, is_essays
from rubricflow.tasks.core.store.reshape import Counted, QuestionIds, reshaped
from rubricflow.tasks.core.store.sheets import ENDINGS, open_source
from rubricflow.tasks.core.store.source import Report, chunks, row_lines
from rubricflow.tasks.grading.ingest import prepared

LAYOUTS = Path(__file__).with_name("layouts")
Prepare = Callable[[str, pd.DataFrame], pd.DataFrame]
"""Name of the file, a chunk of its rows → the chunk with columns that map."""
_PREPARED = (
    prepared.asap2,
    prepared.asap_aes,
    prepared.asap_sas,
    prepared.dress,
    prepared.gradeagentops,
    prepared.mocha,
    prepared.physics_partial_credit,
    prepared.sas_bench,
    prepared.summeval,
    prepared.summhf,
    prepared.webnlg,
    prepared.healthbench,
    prepared.paperbench,
    prepared.plawbench,
    prepared.writingbench,
)
PREPARE: dict[str, Prepare] = {prepare.__name__: prepare for prepare in _PREPARED}
"""Layout → what its chunks need before they map."""


class SourceLayout(Frozen):
    """A layout file."""

    sources: tuple[Source, ...] = ()
    evaluation_only: bool = False
    """Whether its authors ask that nothing is trained or fitted on it: all responses are then test responses."""


def _layout(name: str | None) -> SourceLayout:
    if name is None:
        return SourceLayout()
    path = LAYOUTS / f"{name}.yaml"
    if not name.isidentifier() or not path.is_file():
        names = sorted(layout.stem for layout in LAYOUTS.glob("*.yaml"))
        rule = f"'{name}' is no layout; there are {', '.join(names)}"
        raise InputError(rule, field="data.layout", hint=did_you_mean(name, names))
    return parse(SourceLayout, read_yaml(path), path)


def sources(data: Data) -> tuple[Source, ...]:
    """The study's sources, the layout's first; InputError for an unknown layout."""
    return (*_layout(data.layout).sources, *data.sources)


def evaluation_only(data: Data) -> bool:
    """Whether nothing may be trained, fitted or learnt on this data; InputError for an unknown layout."""
    return _layout(data.layout).evaluation_only


def read_as(data: Data, base: Path) -> dict[str, str]:
    """File, as the study names it → what it was found to be, in a line for people: the encoding and delimiter of a CSV
    file, the sheet of a workbook, whose submissions a folder holds. What cannot be read is left out."""
    words = {}
    for source in sources(data):
        path = base / data.folder / source.file
        with suppress(InputError, OSError):
            if is_essays(path):
                words[source.file] = essay_words(path)
            elif path.suffix.lower() in ENDINGS:
                words[source.file] = open_source(path, source).words
    return words


class Stream(NamedTuple):
    """A source and its rows."""

    source: Source
    chunks: Callable[..., Iterator[pd.DataFrame]]
    """Reads the rows that the study selects, a chunk at a time, each time anew. An argument is what becomes of a row
    that the file's reader refuses (`Report`)."""
    path: Path | None = None
    """The file."""

    def lines_of(self, rows: set[int]) -> dict[int, int]:
        """Row → the line of the file on which it begins, where the file has lines."""
        return row_lines(self.path, rows, self.source) if self.path else {}


def streams(data: Data, base: Path) -> list[Stream]:
    """Every source with its rows, a layout's prepared where its columns need that."""
    of_layout = _layout(data.layout).sources
    numbers = QuestionIds()
    found = []
    for source in (*of_layout, *data.sources):
        path = base / data.folder / source.file
        prepare = PREPARE.get(data.layout or "") if source in of_layout else None
        found.append(Stream(source, partial(_chunks, source, path, prepare, numbers), path))
    return found


def _chunks(
    source: Source, path: Path, prepare: Prepare | None, numbers: QuestionIds, report: Report = refuse
) -> Iterator[pd.DataFrame]:
    """numbers: the questions' ids, which all sources of a study share."""
    counted = Counted(numbers)
    for frame in chunks(path, source.encoding, source.sheet, report, repeats=bool(source.wide)):
        rows = reshaped(source, prepare(source.file, frame) if prepare else frame, counted)
        yield select(rows, source.where, source.file)
