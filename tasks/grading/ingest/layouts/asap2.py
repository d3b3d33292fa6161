"""What the columns of ASAP 2.0 need before they map."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from rubricflow.tasks.core.store.cells import with_columns


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """The source texts of a prompt become one; rows without an essay's id are blank and go."""
    frame = frame.loc[[bool(str(cell or "").strip()) for cell in frame["essay_id"]]]
    names = sorted(name for name in frame.columns if name.startswith("source_text_"))
    rows = frame[names].to_numpy()
    return with_columns(frame, {"source_texts": map(_joined, rows)})


def _joined(cells: Iterable[object]) -> str:
    parts = (str(cell).strip() for cell in cells if cell)
    return "\n\n".join(part for part in parts if part)
