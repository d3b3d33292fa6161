"""Why an answer waits for a person, in words, with the number that decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS, Refusal
from rubricflow.tasks.core.contracts.tables.judging import UNSCORED_REASONS
from rubricflow.tasks.core.display import say

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


def marked_by(marks: Mapping[str, float]) -> str:
    """Who marked an answer in the data, and with what: marked 3 by anna and 2 by ben. marks: rater → score, at least
    one."""
    given = [f"{say.level(round(score, 2))} by {say.name(rater)}" for rater, score in sorted(marks.items())]
    return f"marked {given[0] if len(given) == 1 else ', '.join(given[:-1]) + ' and ' + given[-1]}"


def score_step(step: Row) -> str:
    """A step of column `history` of `settled_scores`: the score, who gave it, when and why."""
    score = "none" if step["score"] is None else f"{step['score']:g}"
    when = f", {step['at'][:16].replace('T', ' ')}" if step["at"] else ""
    why = f": {step['comment']}" if step["comment"] else ""
    return f"{score} ({step['who']}{when}){why}"


def against_constant(figures: Row) -> str:
    """What a promise is worth, in a sentence without its full stop: how often the best constant score of each question
    would be wrong, and how many scores are exactly right.

    figures: shares of the released, `constant_released` and `exact_released`, and of all, `constant` and `exact`, as in
    `release_rules`.
    """
    constant, exact = (f"{say.share(figures[f'{key}_released'])} of" for key in ("constant", "exact"))
    of_all, exact_of_all = (f"{say.share(figures[key])} of all" for key in ("constant", "exact"))
    return (
        f"the same score for every answer to a question would be so for {constant} them ({of_all}); "
        f"{exact} them are exactly right ({exact_of_all})"
    )


def _risk(risk: float, rule: Row | None) -> str:
    estimate = f"estimated risk {say.share(risk)}"
    if rule is None or rule["threshold"] is None:
        return estimate
    shown, most = say.share(risk), say.share(rule["threshold"])
    if shown == most:  # the difference is in digits that a reader does not need
        return f"{estimate}, just above what may go out"
    return f"{estimate}, at most {most} may go out"
