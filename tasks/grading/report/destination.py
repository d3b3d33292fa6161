"""Where a score goes, and whether it lies far from what the judge itself gave, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.reasons import Rules, why_waits

Row = Mapping[str, Any]


def destination(row: Row, rules: Rules, tolerance: float, marked: bool = False) -> str:
    """Where a calibrated score goes, and a warning where it lies far from the judge's own. marked: whether people's
    marks decide the answer: where its score would go is no reason to ask anybody.

    row: of the score frame: item_id, route, route_reason, risk, raw, calibrated, NaN or None for what is missing;
    rules: of release, by scope; tolerance: the most, in points, that a score may differ without being called wrong.
    """
    values = {name: None if _is_missing(row.get(name)) else row.get(name) for name in _COLUMNS}
    if marked:
        alone = "be released" if values["route"] == "release" else "go to people"
        goes = f"marked by people; the machine's score alone would {alone}"
    else:
        goes = "would be released" if values["route"] == "release" else f"goes to people: {why_waits(values, rules)}"
    return "; ".join(filter(None, (goes, far_from_judge(values["raw"], values["calibrated"], tolerance))))


_COLUMNS = ("item_id", "route", "route_reason", "unscored_reason", "risk", "raw", "calibrated")


def far_from_judge(judged: float | None, score: float | None, tolerance: float) -> str:
    """A warning where a score differs from the judge's own by more than the tolerance, in points; else ''."""
    if judged is None or score is None or abs(score - judged) <= tolerance + 1e-9:
        return ""
    moved = say.level(round(abs(score - judged), 2))
    where = "above" if score > judged else "below"
    return f"{moved} {where} what the judge itself gave ({say.level(round(judged, 2))})"


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
