"""What the columns of HealthBench need before they map."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

_MET = {"True": 1, "False": 0}


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A conversation becomes a text with its roles, a verdict a level. A criterion gets an id of its points and text,
    since the graders list an item's criteria in orders of their own. Only the runs with a seed record a share of the
    points, the others the points themselves, which are left out."""
    if "criteria_met" in frame:
        asked = zip(frame["points"], frame["criterion"], frame["completion_id"], strict=True)
        met = [_MET.get(str(cell)) for cell in frame["criteria_met"]]
        return frame.assign(criterion_id=_ids(asked), met=pd.Series(met, frame.index, dtype=object))
    if "recorded_score" in frame:
        return frame.assign(share=frame["recorded_score"].where(frame["run"].str.contains("|seed", regex=False)))
    themes = [_theme(cell) for cell in frame["example_tags"]]
    criteria = [_listed(json.loads(cell)) for cell in frame["rubric_json"]]
    return frame.assign(
        conversation=[_told(json.loads(cell)) for cell in frame["conversation_json"]],
        theme=pd.Series(themes, frame.index, dtype=object),
        criteria=pd.Series(criteria, frame.index, dtype=object),
    )


def _listed(rubric: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = _ids((one["points"], one["criterion"]) for one in rubric)
    return [
        {"id": name, "text": one["criterion"], "weight": one["points"]} for name, one in zip(names, rubric, strict=True)
    ]


def _ids(criteria: Iterable[tuple[Any, ...]]) -> list[str]:
    """Ids of criteria given as points, text and whom they belong to; of the same ones the second ends in '.2'."""
    seen: Counter[tuple[str, ...]] = Counter()
    found = []
    for points, text, *owner in criteria:
        name = "C" + hashlib.sha256(f"{points:g} {text}".encode()).hexdigest()[:8]
        seen[name, *owner] += 1
        found.append(name if seen[name, *owner] == 1 else f"{name}.{seen[name, *owner]}")
    return found


def _told(turns: list[dict[str, str]]) -> str:
    return "\n\n".join(f"{turn['role'].capitalize()}: {turn['content']}" for turn in turns)


def _theme(tags: str | None) -> str | None:
    """The first theme among the tags."""
    return next((tag.removeprefix("theme:") for tag in json.loads(tags or "[]") if tag.startswith("theme:")), None)
