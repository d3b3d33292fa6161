"""Why an answer waits for a person, in words, with the number that decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from tasks.contracts.tables.calibration import ROUTE_REASONS, Refusal
from tasks.contracts.tables.judging import UNSCORED_REASONS
from tasks.display import say

Row = Mapping[str, Any]
Rules = Mapping[str, Row]


def by_scope(rules: Iterable[Row]) -> Rules:
    """Rows of `release_rules`, by the item that they hold for."""
    return {row["scope"]: row for row in rules}


def why_waits(answer: Row, rules: Rules) -> str:
    """Why a person looks at a score before it goes out; no level and no score, as who votes blind reads it.

    answer: of `predictions` the columns item_id, route_reason and risk, and unscored_reason if it is known; rules: by
    their scope, those that are known. A reason that is not known is 'not released'.
    """
    reason = answer["route_reason"]
    words = ROUTE_REASONS.get(reason or "", "not released")
    rule = rules.get(answer["item_id"]) or rules.get("all")
    if reason == "unscored" and answer.get("unscored_reason") in UNSCORED_REASONS:
        return f"{words}: {UNSCORED_REASONS[answer['unscored_reason']]}"
    if reason in get_args(Refusal) and rule is not None and rule["note"]:
        return str(rule["note"])
    if reason == "risk" and answer["risk"] is not None:
        return f"{words}: {_risk(answer['risk'], rule)}"
    return words


def _risk(risk: float, rule: Row | None) -> str:
    estimate = f"estimated risk {say.share(risk)}"
    if rule is None or rule["threshold"] is None:
        return estimate
    shown, most = say.share(risk), say.share(rule["threshold"])
    if shown == most:  # the difference is in digits that a reader does not need
        return f"{estimate}, just above what may go out"
    return f"{estimate}, at most {most} may go out"
