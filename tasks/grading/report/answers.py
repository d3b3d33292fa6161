"""Answers one by one: the table of all with their final scores, and those that the page shows whole.

The table sorts without script: every row holds its place in each order, and CSS lays the rows out by the one chosen.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple

import pandas as pd
from markupsafe import Markup

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, STANDING
from rubricflow.tasks.core.contracts.tables.judging import QUOTES as FINDINGS
from rubricflow.tasks.core.contracts.tables.people import SCORE_SETTLED
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import body, marked
from rubricflow.tasks.core.display.reasons import Rules, by_scope, marked_by, why_waits
from rubricflow.tasks.core.display.section import Section
from rubricflow.tasks.core.display.table import Row, Rows
from rubricflow.tasks.core.text.highlight import Highlight, excerpt
from rubricflow.tasks.grading.report.charts import TEMPLATE

ScaleBounds = tuple[float, float, float]
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


class AnswerRow(NamedTuple):
    """One answer. link: the student's page of feedback, '' where none was written; places: in each of `ORDERS`, from
    1."""

    question: str
    student: str
    answer: str
    link: str
    score: str
    interval: str
    state: str
    places: tuple[int, ...]


def answers_section(
    rows: Rows, links: Mapping[str, str], rules: Rows, tolerances: Mapping[str, float]
) -> Section | None:
    """All answers with their final scores, as far as a page can hold them; None without any.

    rows: as FIRST_ANSWERS gives them; links: response → the page of feedback, relative to the report; rules: rows of
    `release_rules`; tolerances: item → the most, in points, that a score may differ without being called wrong."""
    if not rows:
        return None
    every = rows[0]["answers"]
    title = f"All {say.count(every)} answers and their scores" if every > 1 else "The one answer and its score"
    if every > len(rows):
        title = f"{say.count(len(rows))} of {say.count(every)} answers, those first that need a person most"
    lead: str = "A score that a person settled stands for the machine's. An answer that waits has none."
    if every > len(rows):
        more = Markup("{} {} more are in the sheet that <code>rubricflow grades</code> writes.")
        lead = more.format(lead, say.count(every - len(rows)))
    shown = body(TEMPLATE, "answers", {"orders": [*ORDERS], "rows": answer_rows(rows, links, rules, tolerances)})
    return Section("answers", "Answers: which score has each?", title, lead, parts=[shown])


def answer_rows(rows: Rows, links: Mapping[str, str], rules: Rows, tolerances: Mapping[str, float]) -> list[AnswerRow]:
    """The answers as the table shows them; arguments as in `answers_section`."""
    scopes = by_scope(rules)
    places: list[list[int]] = [[] for _ in rows]
    for key in ORDERS.values():
        in_order = sorted(range(len(rows)), key=lambda index: key(rows[index]))
        for place, index in enumerate(in_order, 1):
            places[index].append(place)
    shown = []
    for row, in_orders in zip(rows, places, strict=True):
        has_interval = row["decided_by"] == "machine" and row["low"] is not None and row["high"] is not None
        shown.append(
            AnswerRow(
                question=say.name(say.question(row["item_id"], row["question"])),
                student=say.name(row["author_id"]) if row["author_id"] is not None else "",
                answer=say.name(row["response_id"]),
                link=links.get(row["response_id"], ""),
                score="" if row["final_score"] is None else say.level(round(row["final_score"], 3)),
                interval=f"{say.level(row['low'])} to {say.level(row['high'])}" if has_interval else "",
                state=_state(row, scopes, tolerances.get(row["item_id"], math.inf)),
                places=tuple(in_orders),
            )
        )
    return shown


def _state(row: Row, rules: Rules, tolerance: float) -> str:
    """Who decided, or why it waits."""
    if row["decided_by"] == "machine":
        far = far_from_judge(row["judge_score"], row["final_score"], tolerance)
        return ", ".join(filter(None, ("released", far)))
    if row["settled_by"] is not None:
        by = marked_by(dict(row["marks"])) if row["settled_by"] == "marked" else SCORE_SETTLED[row["settled_by"]]
        return f"waits for a person: {by}" if row["decided_by"] == "waits" else by
    return f"waits for a person: {why_waits(row, rules)}"


def destination(row: Row, rules: Rules, tolerance: float, marked: bool = False) -> str:
    """Where a calibrated score goes, and a warning where it lies far from the judge's own. marked: whether people's
    marks decide the answer: where its score would go is no reason to ask anybody.

    row: of the score frame: item_id, route, route_reason, risk, raw, calibrated, NaN or None for what is missing;
    rules: of release, by scope; tolerance: the most, in points, that a score may differ without being called wrong.
    """
    columns = ("item_id", "route", "route_reason", "unscored_reason", "risk", "raw", "calibrated")
    values = {name: None if pd.isna(row.get(name)) else row[name] for name in columns}
    is_released = values["route"] == "release"
    if marked:
        goes = f"marked by people; the machine's score alone would {'be released' if is_released else 'go to people'}"
    else:
        goes = "would be released" if is_released else f"goes to people: {why_waits(values, rules)}"
    return "; ".join(filter(None, (goes, far_from_judge(values["raw"], values["calibrated"], tolerance))))


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


class Quoted(NamedTuple):
    """What a part of the answer is quoted for, and by whom."""

    criterion: str
    by: Literal["machine", "people"]


class ShownQuote(NamedTuple):
    """A quote and what became of it; `stands` where it counts."""

    text: str
    finding: str
    stands: bool


class Mark(NamedTuple):
    """One criterion of a case: what the machine decided and quoted, and what people decided."""

    criterion: str
    text: str
    machine: str
    people: str
    differs: bool
    quotes: tuple[ShownQuote, ...]
    note: str


class ShownCase(NamedTuple):
    """One response as the page shows it: text, scores, decisions and quotes."""

    response: str
    item: str
    question: str
    machine: str
    raw: str
    target: str
    people: tuple[tuple[str, str], ...]
    route: str
    made_of: str
    """What judge, text and item add to the score of an average response; '' where the mapping does not tell."""
    answer: Markup
    characters: int
    marks: tuple[Mark, ...]


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
    step = both["item_id"].map({item: bounds[2] for item, bounds in scales.items()}).astype(float)
    gap = ((both["calibrated"] - both["target"]).abs() / step).round(6)
    ranked = both.assign(gap=gap, withheld=both["route"] != "release")[gap >= 0.5]
    ranked = ranked.sort_values(["gap", "withheld", "response_id"], ascending=[False, True, True])
    of_item = ranked.groupby("item_id").cumcount()
    return list(ranked.loc[of_item < PER_ITEM, "response_id"].head(CASES))


@dataclass(frozen=True)
class Cases:
    """The responses that the page shows whole."""

    scores: pd.DataFrame
    questions: Mapping[str, str]
    """Of each item, as bundles and tolerances."""
    bundles: Mapping[str, Bundle]
    judgments: Rows
    """Of the responses shown, as their texts."""
    texts: Mapping[str, str]
    rules: Rules
    tolerances: Mapping[str, float]
    """The most, in points, that a score may differ."""
    marks_decide: bool
    """Whether people's marks are decisions."""

    @property
    def raters(self) -> list[str]:
        """Persons with scores."""
        return [name.removeprefix("human:") for name in self.scores.columns if name.startswith("human:")]

    def shown(self, responses: Sequence[str]) -> list[ShownCase]:
        """In the order of the ids."""
        rows = self.scores.set_index("response_id", drop=False).loc[list(responses)]
        return [self._case(row) for row in rows.to_dict("records")]

    def _case(self, row: Row) -> ShownCase:
        """One response, as machine and people decided it."""
        response, item = row["response_id"], row["item_id"]
        judgments, text = [one for one in self.judgments if one["response_id"] == response], self.texts[response]
        people = [judgment for judgment in judgments if judgment["rater_kind"] in _PEOPLE]
        machine = _first_sample(judgments)
        highlights = chain.from_iterable(_quoted(judgment) for judgment in (*machine, *people))
        scored = {rater: row[f"human:{rater}"] for rater in self.raters if pd.notna(row[f"human:{rater}"])}
        is_marked = self.marks_decide and bool(scored)
        return ShownCase(
            response=say.name(response),
            item=say.name(item),
            question=say.visible(say.cut(self.questions[item], QUESTION_LENGTH)),
            machine=say.level(row["calibrated"]),
            raw=_score(row["raw"]),
            target=_score(row["target"]),
            people=tuple((say.name(rater), say.level(score)) for rater, score in scored.items()),
            route=destination(row, self.rules, self.tolerances[item], is_marked),
            made_of=_made_of(row),
            answer=marked(excerpt(text, [*highlights]), _quoted_by, lambda quoted: quoted.criterion),
            characters=len(text),
            marks=tuple(_marks(self.bundles[item], machine, people)[:MARKS]),
        )


def _first_sample(judgments: Rows) -> list[Row]:
    """The machine's judgments of its first sample, without those that the data recorded of another machine, under no
    bundle."""
    machine = [row for row in judgments if row["rater_kind"] not in _PEOPLE]
    machine = [row for row in machine if row["rater_kind"] != "replayed" or row["bundle_id"] is not None]
    first = min((row["sample"] for row in machine), default=None)
    return [row for row in machine if row["sample"] == first]


def _quoted(judgment: Row) -> list[Highlight[Quoted]]:
    by = Quoted(say.name(judgment["criterion_id"]), "people" if judgment["rater_kind"] in _PEOPLE else "machine")
    return [
        Highlight(quote["start"], quote["end"], by)
        for quote in judgment["evidence"] or ()
        if quote["status"] in STANDING and quote["start"] is not None
    ]


def _quoted_by(quoted: Iterable[Quoted]) -> str:
    """CSS classes of words that these quote."""
    by = {mark.by for mark in quoted}
    return " ".join(kind for kind, rater in (("qm", "machine"), ("qh", "people")) if rater in by)


def _score(score: float | None) -> str:
    return say.level(round(score, 2)) if score is not None and pd.notna(score) else say.NOT_KNOWN


def _made_of(row: Row) -> str:
    if pd.isna(row["points_judge"]):
        return ""
    parts = {"points_judge": "the judge's decisions", "points_text": "the text itself", "points_item": "the item"}
    adds = [f"{say.signed(row[name])} by {words}" for name, words in parts.items() if abs(row[name]) >= 0.005]
    return f"beside an average response: {', '.join(adds) or 'nothing'}"


def _marks(bundle: Bundle, machine: Rows, people: Rows) -> list[Mark]:
    """One for each criterion that the machine judged, in the rubric's order."""
    judged, given = {row["criterion_id"]: row for row in machine}, defaultdict(list)
    for row in people:
        if row["decision"] is not None:
            given[row["criterion_id"]].append(row["decision"])
    marks = []
    for criterion in bundle.criteria:
        if criterion.id not in judged:
            continue
        row = judged[criterion.id]
        decision, human = row["decision"], given[criterion.id]
        quotes = [
            ShownQuote(
                say.cut(say.visible(" ".join(quote["quote"].split())), QUOTE_LENGTH),
                FINDINGS[quote["status"]],
                quote["status"] in STANDING,
            )
            for quote in (row["evidence"] or ())[:QUOTES]
        ]
        mark = Mark(
            criterion=say.name(criterion.id),
            text=say.visible(say.cut(criterion.text, QUESTION_LENGTH)),
            machine="unscored" if decision is None else _level(criterion, decision),
            people=", ".join(dict.fromkeys(_level(criterion, level) for level in human)),
            differs=decision is not None and {*human} - {decision} != set(),
            quotes=tuple(quotes),
            note=_note(criterion, row),
        )
        marks.append(mark)
    return marks


def _level(criterion: Criterion, decision: int) -> str:
    """The level's anchor where it is a word or two, else its number."""
    anchor = criterion.levels[decision] if decision <= criterion.top else ""
    return say.visible(anchor) if 0 < len(anchor) <= 16 else f"{decision} of {criterion.top}"


def _note(criterion: Criterion, machine: Row) -> str:
    """What else to know of a judgment: why it has no decision, what was changed, why it has no quote."""
    if machine["unscored_reason"]:
        return UNSCORED_REASONS[machine["unscored_reason"]]
    if machine["action"] != "none":
        action, stated = ACTIONS[machine["action"]], machine["stated"]
        return action if stated is None else f"stated {_level(criterion, stated)}; {action}"
    if machine["decision"] and not machine["evidence"]:
        return "no quote asked for" if machine["verified"] is None else "no quote given"
    return ""
