"""All answers with their final scores, as far as a page can hold them: who needs a person first.

The table sorts without script: every row says its place in each order, and CSS lays the rows out by the one chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rubricflow.tasks.core.contracts.tables.people import SCORE_SETTLED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.reasons import Rules, by_scope, marked_by, why_waits
from rubricflow.tasks.grading.report.destination import far_from_judge

Row = Mapping[str, Any]
MOST_ANSWERS = 500
"""Rows of the page: a browser stays quick, and the file small."""
FIRST_ANSWERS = f"""
SELECT f.response_id, f.item_id, r.author_id, f.final_score, f.decided_by, f.settled_by, f.low, f.high, f.risk,
    f.route_reason, f.unscored_reason, f.judge_score, f.marks, i.question, count(*) OVER () AS answers
FROM final_scores AS f
JOIN responses AS r USING (response_id)
LEFT JOIN (SELECT item_id, any_value(question) AS question FROM items GROUP BY item_id) AS i ON i.item_id = f.item_id
ORDER BY f.decided_by <> 'waits', f.risk DESC NULLS FIRST, f.item_id, f.response_id
LIMIT {MOST_ANSWERS}
"""
ORDERS = ("waiting first", "question", "student", "lowest score first", "highest score first")
"""What the rows can be ordered by; the first is the order that they stand in."""


@dataclass(frozen=True)
class AnswerRow:
    """One answer. places: its place in each of `ORDERS`, from 1."""

    question: str
    student: str
    answer: str
    link: str
    """Where the student's page of feedback is; '' where none was written."""
    score: str
    interval: str
    state: str
    places: tuple[int, ...]


@dataclass(frozen=True)
class AnswerTable:
    """The answers that the page holds, and how many it leaves out."""

    title: str
    rows: tuple[AnswerRow, ...]
    left_out: int
    orders: tuple[str, ...] = ORDERS


def answers(
    rows: Sequence[Row], links: Mapping[str, str], rules: Sequence[Row], tolerances: Mapping[str, float]
) -> AnswerTable | None:
    """rows: as FIRST_ANSWERS gives them; links: response → the page of feedback, relative to the report; rules: rows of
    `release_rules`; tolerances: item → the most, in points, that a score may differ without being called wrong."""
    if not rows:
        return None
    scopes = by_scope(rules)
    places_by_row = zip(*(_places(rows, key) for key in _KEYS), strict=True)
    shown = []
    for row, places in zip(rows, places_by_row, strict=True):
        state = _state(row, scopes, tolerances.get(row["item_id"], math.inf))
        shown.append(_answer(row, state, places, links))
    every = rows[0]["answers"]
    return AnswerTable(_title(rows, every), tuple(shown), every - len(rows))


def _title(rows: Sequence[Row], every: int) -> str:
    if every == 1:
        return "The one answer and its score"
    if every > len(rows):
        return f"{say.count(len(rows))} of {say.count(every)} answers, those first that need a person most"
    return f"All {say.count(every)} answers and their scores"


def _places(rows: Sequence[Row], key: Callable[[Row], tuple[Any, ...]]) -> list[int]:
    """The place of each row, from 1, when they are ordered by a key; equal ones stay in their order."""
    ranked = sorted(range(len(rows)), key=lambda index: key(rows[index]))
    places = [0] * len(rows)
    for place, index in enumerate(ranked, 1):
        places[index] = place
    return places


def _by_question(row: Row) -> tuple[Any, ...]:
    return say.in_order(row["item_id"]), row["author_id"] or ""


def _by_student(row: Row) -> tuple[Any, ...]:
    return row["author_id"] is None, row["author_id"] or "", say.in_order(row["item_id"])


def _lowest_first(row: Row) -> tuple[Any, ...]:
    """Answers without a score come last."""
    score = row["final_score"]
    return score is None, score or 0.0


def _highest_first(row: Row) -> tuple[Any, ...]:
    score = row["final_score"]
    return score is None, -(score or 0.0)


_KEYS = (lambda row: (), _by_question, _by_student, _lowest_first, _highest_first)
"""In the order of `ORDERS`."""


def _answer(row: Row, state: str, places: tuple[int, ...], links: Mapping[str, str]) -> AnswerRow:
    return AnswerRow(
        question=say.name(say.question(row["item_id"], row["question"])),
        student=say.name(row["author_id"]) if row["author_id"] is not None else "",
        answer=say.name(row["response_id"]),
        link=links.get(row["response_id"], ""),
        score="" if row["final_score"] is None else say.level(round(row["final_score"], 3)),
        interval=_interval(row),
        state=state,
        places=places,
    )


def _interval(row: Row) -> str:
    if row["decided_by"] != "machine" or row["low"] is None or row["high"] is None:
        return ""
    return f"{say.level(row['low'])} to {say.level(row['high'])}"


def _state(row: Row, rules: Rules, tolerance: float) -> str:
    """Who decided, or why it waits."""
    if row["decided_by"] == "machine":
        far = far_from_judge(row["judge_score"], row["final_score"], tolerance)
        return ", ".join(filter(None, ("released", far)))
    if row["settled_by"] is not None:
        by = marked_by(dict(row["marks"])) if row["settled_by"] == "marked" else SCORE_SETTLED[row["settled_by"]]
        return f"waits for a person: {by}" if row["decided_by"] == "waits" else by
    return f"waits for a person: {why_waits(row, rules)}"
