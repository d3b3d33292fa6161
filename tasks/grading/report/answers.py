"""Answers one by one: the table of all with their final scores, and those that the page shows whole.

The table sorts and filters without script: every row holds its place in each order, and CSS lays the rows out by the
one chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, product
from typing import Any, NamedTuple, get_args

import pandas as pd

from rubricflow.tasks.core.contracts import Record, ScaleBounds
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.tables.calibration import Refusal
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, STANDING
from rubricflow.tasks.core.contracts.tables.judging import QUOTES as FINDINGS
from rubricflow.tasks.core.contracts.tables.people import SCORE_SETTLED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import Fold, Part, Section, Text, body, marked
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.display.verdict import Rules, marked_by, why_waits
from rubricflow.tasks.core.stats.scores import steps_off
from rubricflow.tasks.core.text.highlight import Highlight, excerpt
from rubricflow.tasks.core.text.traces import heading_at, headings
from rubricflow.tasks.grading.report.charts import TEMPLATE

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
ORDERS: Mapping[str, Callable[[Row], tuple[Any, ...]]] = {
    "waiting first": lambda row: (),
    "question": lambda row: (say.in_order(row["item_id"]), row["author_id"] or ""),
    "student": lambda row: (row["author_id"] is None, row["author_id"] or "", say.in_order(row["item_id"])),
    "lowest score first": lambda row: (row["final_score"] is None, row["final_score"] or 0.0),
    "highest score first": lambda row: (row["final_score"] is None, -(row["final_score"] or 0.0)),
}
"""What the rows can be ordered by, and the key; the first is the order that they stand in."""


def answers_section(
    rows: Rows,
    links: Mapping[str, str],
    rules: Rules,
    scales: Mapping[str, ScaleBounds],
    tolerances: Mapping[str, float],
    cases: Sequence[Part],
    heads: tuple[str, str] = ("Question", "Student"),
) -> Section | None:
    """All answers with their final scores, as far as a page can hold them; None without any.

    rows: as FIRST_ANSWERS gives them; links: response → the page of feedback, relative to the report; tolerances: item
    → the most, in points, that a score may differ without being called wrong; cases: typical answers, shown whole;
    heads: what items and authors are called."""
    if not rows:
        return None
    every = rows[0]["answers"]
    title = f"All {say.count(every)} answers and their scores" if every > 1 else "The one answer and its score"
    lead = "An answer that waits has no score. A score that a person settled stands for the machine's."
    if every > len(rows):
        title = f"{say.count(len(rows))} of {say.count(every)} answers, those first that need a person most"
        lead += " The others are in the sheet that `rubricflow grades` writes."
    orders = [sorted(range(len(rows)), key=lambda index: key(rows[index])) for key in ORDERS.values()]
    places = [[order.index(index) + 1 for order in orders] for index in range(len(rows))]
    shown = []
    for row, in_orders in zip(rows, places, strict=True):
        item = row["item_id"]
        shown.append(answer_row(row, links, rules, scales[item], tolerances[item], heads) | {"places": in_orders})
    called = dict(zip(("question", "student"), map(str.lower, heads), strict=True))
    orders_named = [called.get(name, name) for name in ORDERS]
    table = body(TEMPLATE, "answers", {"orders": orders_named, "rows": shown})
    return Section("answers", "Answers: which score has each?", title, lead, parts=[table, *cases])


def answer_row(
    row: Row,
    links: Mapping[str, str],
    rules: Rules,
    scale: ScaleBounds,
    tolerance: float,
    heads: tuple[str, str] = ("Question", "Student"),
) -> Record:
    """An answer as the table shows it; arguments as in `answers_section`, of its item."""
    has_interval = row["decided_by"] == "machine" and row["low"] is not None and row["high"] is not None
    score = row["final_score"]
    return {
        "id": row["response_id"],
        "link": links.get(row["response_id"], ""),
        "waits": row["decided_by"] == "waits",
        "cells": {
            heads[0]: say.name(say.question(row["item_id"], row["question"])),
            heads[1]: say.name(row["author_id"]) if row["author_id"] is not None else "",
            "Answer": say.name(row["response_id"]),
            "Score": "" if score is None else f"{say.level(round(score, 2))} of {say.level(scale[1])}",
            "Likely range": f"{say.level(row['low'])} to {say.level(row['high'])}" if has_interval else "",
            "State": _state(row, rules, tolerance),
        },
    }


def _state(row: Row, rules: Rules, tolerance: float) -> str:
    """Who decided, or why it waits."""
    if row["decided_by"] == "machine":
        far = far_from_judge(row["judge_score"], row["final_score"], tolerance)
        return f"released, {far}" if far else "released"
    if row["settled_by"] is not None:
        by = marked_by(dict(row["marks"])) if row["settled_by"] == "marked" else SCORE_SETTLED[row["settled_by"]]
        return f"waits for a person: {by}" if row["decided_by"] == "waits" else by
    is_of_all = row["route_reason"] in get_args(Refusal) and "all" in rules
    return f"waits for a person: {'nothing is promised' if is_of_all else why_waits(row, rules)}"


def destination(row: Row, rules: Rules, tolerance: float, by_people: bool = False) -> str:
    """Where a calibrated score goes, and a warning where it lies far from the judge's own. by_people: whether people's
    marks decide the answer: where its score would go is no reason to ask anybody.

    row: of the score frame: item_id, route, route_reason, risk, raw, calibrated, NaN or None for what is missing;
    rules: of release, by scope; tolerance: the most, in points, that a score may differ without being called wrong.
    """
    columns = ("item_id", "route", "route_reason", "unscored_reason", "risk", "raw", "calibrated")
    values = {name: None if pd.isna(row.get(name)) else row[name] for name in columns}
    is_released = values["route"] == "release"
    goes = "would be released" if is_released else f"goes to people: {why_waits(values, rules)}"
    if by_people:
        goes = f"marked by people; the machine's score alone would {'be released' if is_released else 'go to people'}"
    far = far_from_judge(values["raw"], values["calibrated"], tolerance)
    return f"{goes}; {far}" if far else goes


def far_from_judge(judged: float | None, score: float | None, tolerance: float) -> str:
    """A warning where a score differs from the judge's own by more than the tolerance, in points; else ''."""
    if judged is None or score is None or abs(score - judged) <= tolerance + 1e-9:
        return ""
    moved = say.level(round(abs(score - judged), 2))
    where = "above" if score > judged else "below"
    return f"{moved} {where} what the judge itself gave ({say.level(round(judged, 2))})"


# Answers shown whole: two of middle risk, and the worst disagreements.

CASES, PER_ITEM = 6, 2
QUOTES, MARKS, QUOTE_LENGTH, QUESTION_LENGTH = 4, 24, 240, 320
_PEOPLE = ("human", "adjudication")


def middle(scores: pd.DataFrame) -> list[str]:
    """A released response and one that people see: those of middle risk, so that nobody picks them.

    Both are of the upper half by what the judge itself gave: what earns nothing has nothing to quote, and what a rule
    settled the judge did not see.
    """
    scored = scores[scores["calibrated"].notna() & (scores["route_reason"] != "precheck")]
    released = scored["route"] == "release"
    halves = (part[part["raw"] >= part["raw"].median()] for part in (scored[released], scored[~released]))
    ranked = (half.sort_values(["risk", "response_id"])["response_id"].tolist() for half in halves)
    return [names[len(names) // 2] for names in ranked if names]


def worst(scores: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> list[str]:
    """Responses with the largest gaps in steps of their scale, half a step at least; at most six, two of an item.

    Released ones come first among equals: nobody else would look at them. scales: item → (min, max, step).
    """
    both = scores[scores["target"].notna() & scores["calibrated"].notna()]
    gap = steps_off(both, scales).abs().round(6)
    ranked = both.assign(gap=gap, withheld=both["route"] != "release")[gap >= 0.5]
    ranked = ranked.sort_values(["gap", "withheld", "response_id"], ascending=[False, True, True])
    of_item = ranked.groupby("item_id").cumcount()
    return list(ranked.loc[of_item < PER_ITEM, "response_id"].head(CASES))


def case_folds(cases: Sequence[Row], lead: str) -> list[Part]:
    """Answers shown whole, each behind its scores. cases: as `shown_case` gives them."""
    folds = [
        Fold(f"{case['item']}: machine {case['machine']}, people {case['target']}", [body(TEMPLATE, "article", case)])
        for case in cases
    ]
    return [Text(lead, "h3"), *folds] if folds else []


class Quoted(NamedTuple):
    """What a part of the answer is quoted for, and by whom."""

    criterion: str
    style: str
    """The CSS class of the machine's words, or of people's."""


def shown_case(row: Row, question: str, bundle: Bundle, judgments: Rows, text: str, goes: str) -> Record:
    """One response as the page shows it: text, scores, decisions and quotes. row: of the score frame; judgments: of the
    response, the machine's and people's; goes: where its score goes."""
    people = [judgment for judgment in judgments if judgment["rater_kind"] in _PEOPLE]
    machine = _first_sample(judgments)
    highlights = []
    for style, judgment in chain(product(["qm"], machine), product(["qh"], people)):
        quoted = Quoted(say.name(judgment["criterion_id"]), style)
        for quote in (judgment["evidence"] or ()) if judgment["decision"] else ():
            if quote["status"] in STANDING and quote["start"] is not None:
                highlights.append(Highlight(quote["start"], quote["end"], quoted))
    top = say.level(bundle.scale.max)
    scores = {name: row[f"human:{name}"] for name in persons(row) if pd.notna(row[f"human:{name}"])}
    return {
        "response": say.name(row["response_id"]),
        "item": say.name(row["item_id"]),
        "question": say.visible(say.cut(question, QUESTION_LENGTH)),
        "machine": f"{_score(row['calibrated'])} of {top}",
        "raw": _score(row["raw"]),
        "target": f"{_score(row['target'])} of {top}" if pd.notna(row["target"]) else say.NOT_KNOWN,
        "people": ", ".join(f"{say.name(name)} {say.level(score)}" for name, score in scores.items()),
        "route": goes,
        "made_of": _made_of(row),
        "answer": marked(
            excerpt(text, highlights, headings(text) if bundle.protocol.units == "turns" else ()),
            lambda labels: " ".join(dict.fromkeys(label.style for label in labels)),
            lambda label: label.criterion,
        ),
        "characters": len(text),
        "marks": _marks(bundle, machine, people, text)[:MARKS],
    }


def persons(row: Mapping[Any, Any] | pd.DataFrame) -> list[str]:
    return [name.removeprefix("human:") for name in map(str, row) if name.startswith("human:")]


def _first_sample(judgments: Rows) -> list[Row]:
    """The machine's judgments of its first sample, without those that the data recorded of another machine, under no
    bundle."""
    machine = [row for row in judgments if row["rater_kind"] not in _PEOPLE]
    machine = [row for row in machine if row["rater_kind"] != "replayed" or row["bundle_id"] is not None]
    first = min((row["sample"] for row in machine), default=None)
    return [row for row in machine if row["sample"] == first]


def _score(score: float | None) -> str:
    return say.level(round(score, 2)) if score is not None and pd.notna(score) else say.NOT_KNOWN


def _made_of(row: Row) -> str:
    """What judge, words and question add to the score of an average answer; '' where the mapping does not tell."""
    parts = {"judge": row["points_judge"], "wording": row["points_text"], "question": row["points_item"]}
    if pd.isna(parts["judge"]):
        return ""
    adds = ", ".join(f"{words} {say.signed(points)}" for words, points in parts.items() if abs(points) >= 0.005)
    return f"Compared with an average answer: {adds} points" if adds else ""


def _marks(bundle: Bundle, machine: Rows, people: Rows, text: str) -> list[Record]:
    """What machine and people decided of each criterion that the machine judged, in the rubric's order; text: what the
    quotes are of, and of a trace the turns and steps in which they stand."""
    is_trace = bundle.protocol.units == "turns"
    judged = {row["criterion_id"]: row for row in machine}
    marks = []
    for criterion in bundle.criteria:
        if criterion.id not in judged:
            continue
        row = judged[criterion.id]
        decision = row["decision"]
        human = [
            mark["decision"] for mark in people if mark["criterion_id"] == criterion.id and mark["decision"] is not None
        ]
        quotes = [
            {
                "text": say.cut(say.visible(" ".join(quote["quote"].split())), QUOTE_LENGTH),
                "place": heading_at(text, quote["start"]) if is_trace and quote["start"] is not None else "",
                "fault": "" if quote["status"] in STANDING else FINDINGS[quote["status"]],
            }
            for quote in (row["evidence"] or ())[:QUOTES]
        ]
        marks.append(
            {
                "criterion": say.name(criterion.id),
                "text": say.visible(say.cut(criterion.text, QUESTION_LENGTH)),
                "machine": "unscored" if decision is None else level_words(criterion, decision),
                "people": "; ".join(dict.fromkeys(level_words(criterion, level) for level in human)),
                "differs": decision is not None and bool({*human} - {decision}),
                "quotes": quotes,
                "note": _note(criterion, row),
            }
        )
    return marks


def level_words(criterion: Criterion, decision: int) -> str:
    """A level as a number of its scale with what it stands for, where that is short: 1 of 2, said in part."""
    number = f"{decision} of {criterion.top}"
    anchor = criterion.levels[decision] if decision <= criterion.top else ""
    return f"{number}, {say.visible(anchor)}" if 0 < len(anchor) <= 24 else number


def _note(criterion: Criterion, machine: Row) -> str:
    """What else to know of a judgment: why it has no decision, what was changed, why it has no quote."""
    if machine["unscored_reason"]:
        return UNSCORED_REASONS[machine["unscored_reason"]]
    if machine["action"] != "none":
        action = ACTIONS[machine["action"]]
        stated = machine["stated"]
        return action if stated is None else f"stated {level_words(criterion, stated)}; {action}"
    if machine["decision"] and not machine["evidence"]:
        return "no quote asked for" if machine["verified"] is None else "no quote given"
    return ""
