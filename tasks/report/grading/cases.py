"""The worst disagreements: which they are, and each with its answer, quotes and decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tasks.contracts.bundle import Bundle, Criterion
from tasks.contracts.tables.judging import ACTIONS, STANDING, UNSCORED_REASONS
from tasks.contracts.tables.judging import QUOTES as FINDINGS
from tasks.display import say
from tasks.report.grading.parts import Quoted
from tasks.text.highlight import Highlight, Piece, excerpt

Row = Mapping[str, Any]
ScaleBounds = tuple[float, float, float]
CASES, PER_ITEM = 6, 2
QUOTES, MARKS, QUOTE_LENGTH, QUESTION_LENGTH = 4, 24, 240, 320
_PEOPLE = ("human", "adjudication")


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
    ranked = both.assign(gap=gap, kept=both["route"] != "release")
    ranked = ranked[ranked["gap"] >= 0.5].sort_values(["gap", "kept", "response_id"], ascending=[False, True, True])
    of_item: Counter[str] = Counter()
    found: list[str] = []
    for response, item in ranked[["response_id", "item_id"]].itertuples(index=False):
        if of_item[item] < PER_ITEM and len(found) < CASES:
            of_item[item] += 1
            found.append(response)
    return found


def case(
    row: Row, raters: Sequence[str], question: str, bundle: Bundle, judgments: Sequence[Row], text: str, route: str
) -> ShownCase:
    """One response, as machine and people decided it. row: of the score frame; judgments: of this response, by the
    machine and by people; those that the data recorded of another machine, under no bundle, are left out; route: where
    its score goes, in words."""
    people = [found for found in judgments if found["rater_kind"] in _PEOPLE]
    machine = [found for found in judgments if found["rater_kind"] not in _PEOPLE and not _is_recorded(found)]
    machine = [found for found in machine if found["sample"] == min(one["sample"] for one in machine)]
    quoted = [highlight for found in (*machine, *people) for highlight in _quoted(found)]
    decided = {found["criterion_id"]: found for found in machine}
    marks = [
        _mark(criterion, decided.get(criterion.id), [p for p in people if p["criterion_id"] == criterion.id])
        for criterion in bundle.criteria
        if criterion.id in decided
    ]
    persons = tuple(
        (say.name(rater), say.level(row[f"human:{rater}"])) for rater in raters if pd.notna(row[f"human:{rater}"])
    )
    return ShownCase(
        say.name(row["response_id"]),
        say.name(row["item_id"]),
        say.visible(say.cut(question, QUESTION_LENGTH)),
        say.level(row["calibrated"]),
        say.level(round(row["raw"], 2)) if pd.notna(row["raw"]) else say.NOT_KNOWN,
        say.level(round(row["target"], 2)) if pd.notna(row["target"]) else say.NOT_KNOWN,
        persons,
        route,
        _made_of(row),
        excerpt(text, quoted),
        len(text),
        tuple(marks[:MARKS]),
    )


def _made_of(row: Row) -> str:
    if pd.isna(row["points_judge"]):
        return ""
    parts = (("the judge's decisions", "points_judge"), ("the text itself", "points_text"), ("the item", "points_item"))
    told = [f"{say.signed(row[name])} by {words}" for words, name in parts if abs(row[name]) >= 0.005]
    return f"beside an average response: {', '.join(told) or 'nothing'}"


def _is_recorded(judgment: Row) -> bool:
    return judgment["rater_kind"] == "replayed" and judgment["bundle_id"] is None


def _quoted(judgment: Row) -> list[Highlight[Quoted]]:
    by = Quoted(say.name(judgment["criterion_id"]), "people" if judgment["rater_kind"] in _PEOPLE else "machine")
    return [
        Highlight(quote["start"], quote["end"], by)
        for quote in judgment["evidence"] or ()
        if quote["status"] in STANDING and quote["start"] is not None
    ]


def _mark(criterion: Criterion, machine: Row | None, people: Sequence[Row]) -> Mark:
    given = [row["decision"] for row in people if row["decision"] is not None]
    own = machine["decision"] if machine else None
    shown = list(dict.fromkeys(_level(criterion, decision) for decision in given))
    quotes = [_quote(one) for one in (machine["evidence"] or ())[:QUOTES]] if machine else []
    return Mark(
        say.name(criterion.id),
        say.visible(say.cut(criterion.text, QUESTION_LENGTH)),
        _level(criterion, own) if own is not None else "unscored",
        ", ".join(shown),
        bool(given) and own is not None and any(decision != own for decision in given),
        tuple(quotes),
        _note(criterion, machine),
    )


def _level(criterion: Criterion, decision: int) -> str:
    """The level's anchor where it is a word or two, else its number."""
    anchor = criterion.levels[decision] if decision <= criterion.top else ""
    return say.visible(anchor) if 0 < len(anchor) <= 16 else f"{decision} of {criterion.top}"


def _quote(found: Row) -> ShownQuote:
    text = say.cut(say.visible(" ".join(found["quote"].split())), QUOTE_LENGTH)
    return ShownQuote(text, FINDINGS[found["status"]], found["status"] in STANDING)


def _note(criterion: Criterion, machine: Row | None) -> str:
    if machine is None:
        return ""
    if machine["unscored_reason"]:
        return UNSCORED_REASONS[machine["unscored_reason"]]
    if machine["action"] != "none":
        return (
            f"stated {_level(criterion, machine['stated'])}; {ACTIONS[machine['action']]}"
            if machine["stated"] is not None
            else ACTIONS[machine["action"]]
        )
    if machine["decision"] and not machine["evidence"]:
        return "no quote asked for" if machine["verified"] is None else "no quote given"
    return ""
