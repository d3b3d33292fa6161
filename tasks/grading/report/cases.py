"""The worst disagreements: which they are, and each with its answer, quotes and decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, STANDING, UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.judging import QUOTES as FINDINGS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.text.highlight import Highlight, Piece, excerpt
from rubricflow.tasks.grading.report.sections import Quoted

Row = Mapping[str, Any]
ScaleBounds = tuple[float, float, float]
CASES, PER_ITEM = 6, 2
QUOTES, MARKS, QUOTE_LENGTH, QUESTION_LENGTH = 4, 24, 240, 320
_PEOPLE = ("human", "adjudication")
_PARTS = (("the judge's decisions", "points_judge"), ("the text itself", "points_text"), ("the item", "points_item"))
"""What adds to a score, and the columns that hold how much."""


@dataclass(frozen=True)
class ShownQuote:
    """A quote and what became of it; `stands` where it counts."""

    text: str
    finding: str
    stands: bool


@dataclass(frozen=True)
class Mark:
    """One criterion of a case: what the machine decided and quoted, and what people decided."""

    criterion: str
    text: str
    machine: str
    people: str
    differs: bool
    quotes: tuple[ShownQuote, ...]
    note: str


@dataclass(frozen=True)
class ShownCase:
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
    pieces: tuple[Piece[Quoted], ...]
    characters: int
    marks: tuple[Mark, ...]


def worst(scores: pd.DataFrame, scales: Mapping[str, ScaleBounds]) -> list[str]:
    """Responses with the largest gaps in steps of their scale, half a step at least; at most six, two of an item.

    Released ones come first among equals: nobody else would look at them. scales: item → (min, max, step).
    """
    both = scores[scores["target"].notna() & scores["calibrated"].notna()]
    step = both["item_id"].map({item: bounds[2] for item, bounds in scales.items()}).astype(float)
    gap = ((both["calibrated"] - both["target"]).abs() / step).round(6)
    ranked = both.assign(gap=gap, withheld=both["route"] != "release")
    ranked = ranked[ranked["gap"] >= 0.5]
    ranked = ranked.sort_values(["gap", "withheld", "response_id"], ascending=[False, True, True])
    chosen_of_item: Counter[str] = Counter()
    chosen: list[str] = []
    for response, item in ranked[["response_id", "item_id"]].itertuples(index=False):
        if chosen_of_item[item] < PER_ITEM and len(chosen) < CASES:
            chosen_of_item[item] += 1
            chosen.append(response)
    return chosen


def case(
    row: Row, raters: Sequence[str], question: str, bundle: Bundle, judgments: Sequence[Row], text: str, route: str
) -> ShownCase:
    """One response, as machine and people decided it. row: of the score frame; judgments: of this response, by the
    machine and by people; those that the data recorded of another machine, under no bundle, are left out; route: where
    its score goes, in words."""
    people = [judgment for judgment in judgments if judgment["rater_kind"] in _PEOPLE]
    machine = _first_sample(judgments)
    highlights = list(chain.from_iterable(_quoted(judgment) for judgment in (*machine, *people)))
    raters_scored = [rater for rater in raters if pd.notna(row[f"human:{rater}"])]
    return ShownCase(
        response=say.name(row["response_id"]),
        item=say.name(row["item_id"]),
        question=say.visible(say.cut(question, QUESTION_LENGTH)),
        machine=say.level(row["calibrated"]),
        raw=_score(row["raw"]),
        target=_score(row["target"]),
        people=tuple((say.name(rater), say.level(row[f"human:{rater}"])) for rater in raters_scored),
        route=route,
        made_of=_made_of(row),
        pieces=excerpt(text, highlights),
        characters=len(text),
        marks=tuple(_marks(bundle, machine, people)[:MARKS]),
    )


def _first_sample(judgments: Sequence[Row]) -> list[Row]:
    """The machine's judgments of its first sample."""
    machine = [row for row in judgments if row["rater_kind"] not in _PEOPLE and not _is_recorded(row)]
    first = min((row["sample"] for row in machine), default=None)
    return [row for row in machine if row["sample"] == first]


def _marks(bundle: Bundle, machine: Sequence[Row], people: Sequence[Row]) -> list[Mark]:
    """One for each criterion that the machine judged, in the rubric's order."""
    judged = {row["criterion_id"]: row for row in machine}
    marks = []
    for criterion in bundle.criteria:
        if criterion.id in judged:
            persons = [row for row in people if row["criterion_id"] == criterion.id]
            marks.append(_mark(criterion, judged[criterion.id], persons))
    return marks


def _score(score: float | None) -> str:
    return say.level(round(score, 2)) if score is not None and pd.notna(score) else say.NOT_KNOWN


def _made_of(row: Row) -> str:
    if pd.isna(row["points_judge"]):
        return ""
    contributions = [f"{say.signed(row[name])} by {words}" for words, name in _PARTS if abs(row[name]) >= 0.005]
    return f"beside an average response: {', '.join(contributions) or 'nothing'}"


def _is_recorded(judgment: Row) -> bool:
    return judgment["rater_kind"] == "replayed" and judgment["bundle_id"] is None


def _quoted(judgment: Row) -> list[Highlight[Quoted]]:
    by = Quoted(say.name(judgment["criterion_id"]), "people" if judgment["rater_kind"] in _PEOPLE else "machine")
    return [
        Highlight(quote["start"], quote["end"], by)
        for quote in judgment["evidence"] or ()
        if quote["status"] in STANDING and quote["start"] is not None
    ]


def _mark(criterion: Criterion, machine: Row, people: Sequence[Row]) -> Mark:
    human = [row["decision"] for row in people if row["decision"] is not None]
    decision = machine["decision"]
    levels = list(dict.fromkeys(_level(criterion, level) for level in human))
    quotes = [_quote(quote) for quote in (machine["evidence"] or ())[:QUOTES]]
    return Mark(
        criterion=say.name(criterion.id),
        text=say.visible(say.cut(criterion.text, QUESTION_LENGTH)),
        machine=_level(criterion, decision) if decision is not None else "unscored",
        people=", ".join(levels),
        differs=decision is not None and any(level != decision for level in human),
        quotes=tuple(quotes),
        note=_note(criterion, machine),
    )


def _level(criterion: Criterion, decision: int) -> str:
    """The level's anchor where it is a word or two, else its number."""
    anchor = criterion.levels[decision] if decision <= criterion.top else ""
    return say.visible(anchor) if 0 < len(anchor) <= 16 else f"{decision} of {criterion.top}"


def _quote(quote: Row) -> ShownQuote:
    text = say.cut(say.visible(" ".join(quote["quote"].split())), QUOTE_LENGTH)
    return ShownQuote(text, FINDINGS[quote["status"]], quote["status"] in STANDING)


def _note(criterion: Criterion, machine: Row) -> str:
    """What else to know of a judgment: why it has no decision, what was changed, why it has no quote."""
    if machine["unscored_reason"]:
        return UNSCORED_REASONS[machine["unscored_reason"]]
    if machine["action"] != "none":
        action = ACTIONS[machine["action"]]
        stated = machine["stated"]
        return f"stated {_level(criterion, stated)}; {action}" if stated is not None else action
    if machine["decision"] and not machine["evidence"]:
        return "no quote asked for" if machine["verified"] is None else "no quote given"
    return ""
