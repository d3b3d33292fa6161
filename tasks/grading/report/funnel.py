"""What was read, lost and held out: the funnel of all responses, that of the labelled ones, and what is odd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rubricflow.tasks.core.contracts.tables.calibration import ROUTE_REASONS
from rubricflow.tasks.core.contracts.tables.data import INPUT_WARNINGS, MEASURED
from rubricflow.tasks.core.contracts.tables.judging import UNSCORED_REASONS
from rubricflow.tasks.core.display import say
from rubricflow.tasks.grading.report.sections import DataSection, FunnelStep, NamedCount, Oddity
from rubricflow.tasks.grading.report.tallies import reasons, total

Row = Mapping[str, Any]
FEW_DOUBLY_SCORED = 100
"""Responses of two people below which figures about true scores are unsteady."""


def data(responses: Sequence[Row], totals: Row, quarantined: int, warnings: Sequence[Row] = ()) -> DataSection:
    """The funnel of all responses and that of the labelled ones, with every loss by name, and what is odd about them.
    totals: of the whole set, items, authors and responses; warnings: rows of `input_warnings`."""
    labelled = [row for row in responses if row["labelled"]]
    held_out = [row for row in labelled if row["split"] in MEASURED]
    scored = total(responses, lambda row: row["scored"])
    return DataSection(
        title=_data_title(total(responses), scored, total(labelled), total(held_out)),
        every=_funnel(responses),
        labelled=_labelled_funnel(labelled, held_out, total(responses)),
        facts=tuple(_facts(responses, held_out, totals, quarantined)),
        oddities=tuple(_oddity(row) for row in warnings),
    )


def _funnel(responses: Sequence[Row]) -> tuple[FunnelStep, ...]:
    every = total(responses)
    unscored = [row for row in responses if not row["scored"]]
    scored = [row for row in responses if row["scored"]]
    marked = total(scored, lambda row: row["by_people"])
    undecided = [row for row in scored if not row["by_people"]]
    released = [row for row in undecided if row["route"] == "release"]
    review = [row for row in undecided if row["route"] != "release"]
    by_people = (f"{say.count(marked)} marked by people",) if marked else ()
    return (
        _step("read", every, every, ()),
        _step("scored", total(scored), every, _losses(unscored, "unscored_reason", UNSCORED_REASONS)),
        _step("released", total(released), every, by_people + _losses(review, "route_reason", ROUTE_REASONS)),
    )


def _labelled_funnel(labelled: Sequence[Row], held_out: Sequence[Row], every: int) -> tuple[FunnelStep, ...]:
    compared = [row for row in held_out if row["scored"]]
    not_scored = [row for row in held_out if not row["scored"]]
    released = total(compared, lambda row: row["route"] == "release")
    unlabelled = every - total(labelled)
    without = (f"{say.count(unlabelled)} without one",) if unlabelled > 0 else ()
    splits = {split: total(_of_split(labelled, split)) for split in ("calibration", "train", "chosen")}
    elsewhere = tuple(f"{say.count(count)} in the {split} split" for split, count in splits.items() if count)
    return (
        _step("with a human score", total(labelled), every, without),
        _step("held out for this report", total(held_out), every, elsewhere),
        _step("compared", total(compared), every, _losses(not_scored, "unscored_reason", UNSCORED_REASONS)),
        _step("compared, of the released", released, every, ()),
    )


def _facts(responses: Sequence[Row], held_out: Sequence[Row], totals: Row, quarantined: int) -> list[NamedCount]:
    nameless = totals["responses"] - totals["with_author"]
    authors_note = f"{say.count(nameless)} responses name none" if nameless else ""
    doubles = total(held_out, lambda row: row["persons"] >= 2)
    unsteady = f"fewer than {FEW_DOUBLY_SCORED}: true-score figures are unsteady" if doubles < FEW_DOUBLY_SCORED else ""
    splits = ["train", "calibration", "test"]
    if _of_split(responses, "chosen"):
        splits.append("chosen")
    return [
        NamedCount("items", totals["items"]),
        NamedCount("authors", totals["authors"], None, authors_note),
        *(NamedCount(f"in the {split} split", total(_of_split(responses, split))) for split in splits),
        NamedCount("held out and scored by two people", doubles, None, unsteady),
        NamedCount("rows in quarantine", quarantined),
    ]


def _oddity(row: Row) -> Oddity:
    more = ", …" if row["responses"] > len(row["examples"]) else ""
    examples = ", ".join(row["examples"]) + more
    return Oddity(INPUT_WARNINGS[row["kind"]], row["responses"], examples)


def _of_split(rows: Sequence[Row], split: str) -> list[Row]:
    return [row for row in rows if row["split"] == split]


def _data_title(every: int, scored: int, labelled: int, held_out: int) -> str:
    if not labelled:
        return f"{say.count(scored)} of {say.plural(every, 'response')} scored, none of them with a human score"
    start = f"{say.count(scored)} of {say.plural(every, 'response')} scored"
    return f"{start}; {say.count(held_out)} with a human score held out to judge by"


def _step(name: str, count: int, total: int, lost: tuple[str, ...]) -> FunnelStep:
    return FunnelStep(name, count, count / total if total else 0.0, lost)


def _losses(rows: Sequence[Row], column: str, names: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(f"{say.count(loss.count)} {loss.name}" for loss in reasons(rows, column, names))
