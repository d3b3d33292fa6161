"""What the columns of HealthBench need before they map."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pandas as pd

from rubricflow.tasks.core.store.cells import with_columns

_MET = {"True": 1, "False": 0}


def prepare(file: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A conversation becomes a text with its roles, a verdict a level. A criterion gets an id of its points and text,
    since the graders list an item's criteria in orders of their own. Only the runs with a seed record a share of the
    points, the others the points themselves, which are left out."""
    if "criteria_met" in frame:
        criteria_graded = zip(frame["points"], frame["criterion"], frame["completion_id"], strict=True)
        met = [_MET.get(str(cell)) for cell in frame["criteria_met"]]
        return with_columns(frame, {"criterion_id": _ids(criteria_graded), "met": met})
    if "recorded_score" in frame:
        return frame.assign(share=frame["recorded_score"].where(frame["run"].str.contains("|seed", regex=False)))
    columns: dict[str, Iterable[Any]] = {
        "conversation": [_conversation(json.loads(cell)) for cell in frame["conversation_json"]],
        "theme": [_theme(cell) for cell in frame["example_tags"]],
        "criteria": [_listed(json.loads(cell)) for cell in frame["rubric_json"]],
    }
    return with_columns(frame, columns)


def _listed(rubric: list[dict[str, Any]]) -> list[dict[str, Any]]:
    criteria = [(criterion["points"], criterion["criterion"]) for criterion in rubric]
    named = zip(_ids(criteria), criteria, strict=True)
    return [{"id": name, "text": text, "weight": points} for name, (points, text) in named]


def _ids(criteria: Iterable[tuple[Any, ...]]) -> list[str]:
    """Ids of criteria given as points, text and whom they belong to; of the same ones the second ends in '.2'."""
    counts: Counter[tuple[str, ...]] = Counter()
    ids = []
    for points, text, *owner in criteria:
        name = "C" + hashlib.sha256(f"{points:g} {text}".encode()).hexdigest()[:8]
        counts[name, *owner] += 1
        ids.append(name if counts[name, *owner] == 1 else f"{name}.{counts[name, *owner]}")
    return ids


def _conversation(turns: list[dict[str, str]]) -> str:
    return "\n\n".join(f"{turn['role'].capitalize()}: {turn['content']}" for turn in turns)


def _theme(tags: str | None) -> str | None:
    """The first theme among the tags."""
    themes = (tag for tag in json.loads(tags or "[]") if tag.startswith("theme:"))
    first = next(themes, None)
    return first and first.removeprefix("theme:")
