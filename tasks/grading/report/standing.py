"""Where the judge stands: raters by one measure on the same answers, and two answers of middle risk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.figures import Figures

MEASURE, OF_ITEMS = "standing_qwk", "standing_qwk_item_mean"
PEOPLE_TOGETHER = "people"
RAW, PEOPLE, LENGTH = "judge alone (raw)", "people with each other", "length alone"
PARTS = {"judge": "judge", "item": "question"}
"""Block of a stacked mapping → what it is called in the name of a rater; every other block is words."""
OTHER = "other:"
Row = Mapping[str, Any]


class RaterStanding(NamedTuple):
    """One rater's agreement with the human score (QWK), on the answers on which all are compared."""

    name: str
    by: str
    """m for the machine, h for people, '' for what they are compared with."""
    pooled: Estimate
    """Of all answers as one set: what differs between questions counts, too."""
    mean: Estimate
    """The mean over questions."""


def standing(figures: Figures, calibrations: Sequence[Row]) -> tuple[RaterStanding, ...]:
    """The calibrated score, the judge alone, people, other runs, the text and length; nothing without human scores, and
    people only where two scored each of the answers.

    calibrations: rows of the table, which tell what the calibrated score is made of.
    """
    mean, baselines = OF_ITEMS, dict.fromkeys(("text_only", "length"), LENGTH)
    mapped, baselines["text_only"] = _names(calibrations)
    raters = figures.raters(mean)
    others = [name for name in raters if name.startswith(OTHER)]
    rows = [(mapped, "m", "calibrated", name) for name in raters if name not in {*others, *baselines}]
    rows += [(RAW, "m", "raw", "")]
    rows += [(PEOPLE, "h", "human", PEOPLE_TOGETHER)] * (doubles(figures, calibrations) == "")
    rows += [(name.removeprefix(OTHER), "", "calibrated", name) for name in others]
    rows += [(words, "", "calibrated", name) for name, words in baselines.items()]
    found = []
    for name, by, stage, rater in rows:
        pooled, over_items = (figures.rater(metric, rater, stage) for metric in (MEASURE, mean))
        if over_items.n or pooled.n or rater in others:
            found.append(RaterStanding(name, by, pooled, over_items))
    return tuple(found)


def doubles(figures: Figures, calibrations: Sequence[Row]) -> str:
    """How people agree with each other, and the calibrated score on the same answers, in a sentence; '' where two
    people scored all of them, which then stand in the table, or none."""
    for metric, words in ((OF_ITEMS, "QWK, mean over questions"), (MEASURE, "QWK")):
        people, everywhere = figures.rater(metric, PEOPLE_TOGETHER, "human"), figures.rater(metric, "")
        machines = [name for name in figures.raters(metric, "human") if name != PEOPLE_TOGETHER]
        if people.value is None or not machines or people.n == everywhere.n:
            continue
        machine = figures.rater(metric, machines[0], "human")
        shown = say.number(machine.value) if machine.value is not None else say.NOT_KNOWN
        return (
            f"On {say.plural(people.n, 'answer')} that two people scored ({words}): people with each other "
            f"{say.number(people.value)}, {_names(calibrations)[0]} {shown}."
        )
    return ""


def over_questions(rows: Sequence[RaterStanding]) -> bool:
    """Whether a table of these shows the mean over questions, in every row, or all answers as one set: there is no such
    mean where no question has human scores that differ."""
    return any(row.mean.value is not None for row in rows)


def _names(calibrations: Sequence[Row]) -> tuple[str, str]:
    """What the calibrated score is called, and the baseline without the judge, by what all mappings take together."""
    mapped, text = list[str](), list[str]()
    for row in calibrations:
        content = json.loads(row["content"])
        mapping = content["mapping"] or {}
        mapped += _parts(mapping) if "blocks" in mapping else ["judge"]
        mapped += ["question"] if mapping.get("offsets") else []
        text += _parts(content["text_only"] or {})
    names = (" + ".join(part for part in ("judge", "words", "question") if part in parts) for parts in (mapped, text))
    first, second = names
    return first if " + " in first else f"{first or 'judge'}, calibrated", f"{second}, no judge"


def _parts(stack: Mapping[str, Any]) -> list[str]:
    return [PARTS.get(block["name"], "words") for block in stack.get("blocks", ())]


def middle(scores: pd.DataFrame) -> list[str]:
    """A released response and one that people see: those of middle risk, so that nobody picks them.

    Both are of the upper half by what the judge itself gave: what earns nothing has nothing to quote.
    """
    scored = scores[scores["calibrated"].notna()]
    released = scored["route"] == "release"
    halves = (part[part["raw"] >= part["raw"].median()] for part in (scored[released], scored[~released]))
    ranked = (half.sort_values(["risk", "response_id"])["response_id"].tolist() for half in halves)
    return [names[len(names) // 2] for names in ranked if names]


def sources(manifest: Mapping[str, Any]) -> str:
    """Where replayed replies come from, in words; '' where nothing is replayed."""
    return "; ".join(manifest.get("identity", {}).get("recordings", {}).values())
