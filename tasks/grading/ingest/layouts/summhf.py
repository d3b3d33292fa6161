"""What the objects of the summaries with human feedback need before they map."""

from __future__ import annotations

from typing import Any

import pandas as pd

AXES = ("overall", "accuracy", "coverage", "coherence")
COLUMNS = ("rating", "post_id", "post", "subreddit", "text", "policy", *AXES)


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """What lies inside `info` and `summary` becomes columns; only posts are kept. An axis not rated is empty."""
    frame = frame.loc[[bool(info.get("post")) for info in frame["info"]]]
    pairs = zip(frame.index, frame["info"], frame["summary"], strict=True)
    rows = [_row(place + 1, info, summary) for place, info, summary in pairs]
    return pd.DataFrame(rows, index=frame.index, columns=pd.Index(COLUMNS), dtype=object)


def _row(number: int, info: dict[str, Any], summary: dict[str, Any]) -> dict[str, Any]:
    """One rated summary; number: of its row in the file, from 1."""
    post = {
        "rating": f"{info['id']}:{number}",
        "post_id": info["id"],
        "post": f"{info.get('title') or ''}\n\n{info['post']}".strip(),
        "subreddit": info.get("subreddit"),
    }
    marks = {axis: summary["axes"].get(axis) for axis in AXES}
    return post | {"text": summary["text"], "policy": summary["policy"]} | marks
