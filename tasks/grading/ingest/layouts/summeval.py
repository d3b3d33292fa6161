"""What the columns of SummEval need before they map."""

from __future__ import annotations

import pandas as pd


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Article and system together are the summary's id."""
    if "system" not in frame:
        return frame
    pairs = zip(frame["doc_id"], frame["system"], strict=True)
    return frame.assign(summarised=[f"{document}:{system}" for document, system in pairs])
