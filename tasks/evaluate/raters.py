"""Raters one by one, as rows of `rater_effects`: who is strict, erratic, drifts, or lets one impression colour all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tasks.evaluate.slices import Record
from tasks.stats.arrays import Floats
from tasks.stats.bootstrap import cluster_codes
from tasks.stats.estimate import Estimate
from tasks.stats.facet_design import Design, Rating, design, linked
from tasks.stats.facets import Facets, fit
from tasks.stats.rater_fit import FEW, Residuals, discrimination, halo, infit, leniency, outfit, residuals, shift

SCORE = ""
"""In place of a trait, the score itself."""
OFF, ERRATIC, APART, HALO = 0.15, 1.2, 0.7, 0.10
"""Limits of flags: leniency in SD of the scores, as the gate on the machine's mean shift has it; infit, as for marks
that ought to agree (Wright and Linacre 1994); how well responses are told apart, erratic or central by an infit of 1
or more, or less; halo above the others'."""
ALONE = "shares no response with another rater"


class MarkedResponse(NamedTuple):
    """What one person gave one response. marks: trait -> mark, '' the score; period: when, where known."""

    response: str
    item: str
    rubric: str
    rater: str
    marks: Mapping[str, float]
    period: str | None
    cluster: str


def rater_effects(
    marked: Sequence[MarkedResponse], steps: Mapping[tuple[str, str], float], at_random: bool, draws: int, seed: int
) -> list[Record]:
    """Rows of `rater_effects` for the score and every trait; nothing with fewer than two persons.

    steps: (rubric, trait) -> step of its scale, score units; 1 where it is not given. Raters whom no shared response
    links, unless responses were given at random, are modelled apart, and have no severity: theirs would not compare.
    """
    if len({row.rater for row in marked}) < 2:
        return []
    colours = _halos(marked, draws, seed)
    rows: list[Record] = []
    for trait in sorted(set[str]().union(*(row.marks for row in marked))):
        of_trait = [row for row in marked if trait in row.marks]
        coded = design([_rating(row, trait) for row in of_trait])
        sets = [coded.raters] if at_random else linked(coded)
        for names in sets:
            of_linked = [row for row in of_trait if row.rater in names]
            part = coded if len(sets) == 1 else design([_rating(row, trait) for row in of_linked])
            halos = colours if trait == SCORE else {}
            rows += _of_set(part, trait, of_linked, steps, at_random, halos, apart=len(sets) > 1)
    return rows


def _rating(row: MarkedResponse, trait: str) -> Rating:
    return Rating(row.response, row.rubric, row.rater, row.marks[trait])


def _of_set(
    coded: Design,
    trait: str,
    marked: Sequence[MarkedResponse],
    steps: Mapping[tuple[str, str], float],
    at_random: bool,
    halos: Mapping[str, Estimate],
    apart: bool,
) -> Iterator[Record]:
    """Rows of raters who are linked; apart: there are others, with whom they are not."""
    if len(coded.raters) == 1:
        yield _row(coded.raters[0], trait) | {"ratings": len(coded.responses), "note": ALONE}
        return
    fitted = fit(coded, at_random)
    unit = np.array([steps.get((group, trait), 1.0) for group in coded.groups])
    unexplained, sd = residuals(fitted), _spread(marked, trait, steps)
    leniencies = leniency(fitted, unit)
    for code, name in enumerate(coded.raters):
        of_rater = unexplained.take(unexplained.rater == code)
        by_item = list(_shifts("item", of_rater, coded, marked, unit))
        by_period = list(_shifts("period", of_rater, coded, marked, unit))
        record = _over_all(fitted, code, of_rater, leniencies[code], halos.get(name))
        drifts = [row for row in by_period if row["shared"] >= FEW]
        record["flags"] = list(_flags(record, drifts, OFF * sd, _others(halos, name)))
        if apart:
            note = f"compares with {', '.join(other for other in coded.raters if other != name)} only"
            record |= dict.fromkeys(("severity", "severity_se", "leniency", "low", "high")) | {"note": note}
            record["flags"] = [flag for flag in record["flags"] if flag not in ("strict", "lenient")]
        yield _row(name, trait) | record
        yield from (_row(name, trait) | row for row in (*by_item, *by_period))


def _over_all(
    fitted: Facets, code: int, of_rater: Residuals, own_leniency: Estimate, colour: Estimate | None
) -> Record:
    fits, apart = infit(of_rater), discrimination(of_rater)
    colour = colour or Estimate(None)
    return {
        "severity": float(fitted.severity[code]),
        "severity_se": float(fitted.se[code]),
        "leniency": own_leniency.value,
        "low": own_leniency.low,
        "high": own_leniency.high,
        "infit": fits.value,
        "infit_low": fits.low,
        "infit_high": fits.high,
        "outfit": outfit(of_rater).value,
        "discrimination": apart.value,
        "discrimination_low": apart.low,
        "discrimination_high": apart.high,
        "halo": colour.value,
        "halo_low": colour.low,
        "halo_high": colour.high,
        "ratings": own_leniency.n,
        "shared": len(of_rater.observed),
        "note": fits.note or None,
    }


def _shifts(
    kind: str, of_rater: Residuals, coded: Design, marked: Sequence[MarkedResponse], unit: Floats
) -> Iterator[Record]:
    """What is left of a rater's leniency on each item, or in each period; nothing where there is only one."""
    slice_of = {row.response: row.item if kind == "item" else row.period for row in marked}
    values = np.array([slice_of[coded.responses[response]] or "" for response in of_rater.response], dtype=str)
    names = [name for name in np.unique(values).tolist() if name]
    if len(names) < 2:
        return
    for name in names:
        shifted = shift(of_rater.take(values == name), unit, len(names))
        yield {
            "slice": kind,
            "value_of": name,
            "leniency": shifted.value,
            "low": shifted.low,
            "high": shifted.high,
            "ratings": shifted.n,
            "shared": shifted.n,
            "note": shifted.note or None,
        }


def _flags(record: Record, drifts: Sequence[Record], limit: float, others: float | None) -> Iterator[str]:
    if record["shared"] < FEW:
        return
    if record["high"] is not None and record["high"] < -limit:
        yield "strict"
    if record["low"] is not None and record["low"] > limit:
        yield "lenient"
    blurred = record["discrimination_high"] is not None and record["discrimination_high"] < APART
    if record["infit_low"] is not None and (record["infit_low"] > ERRATIC or (blurred and record["infit"] >= 1)):
        yield "erratic"
    if blurred and record["infit"] < 1:
        yield "central"
    if any(row["low"] > limit or row["high"] < -limit for row in drifts):
        yield "drift"
    if others is not None and record["halo_low"] is not None and record["halo_low"] > others + HALO:
        yield "halo"


def _spread(marked: Sequence[MarkedResponse], trait: str, steps: Mapping[tuple[str, str], float]) -> float:
    """Standard deviation of the marks about their rubric's mean, in steps."""
    by_rubric: dict[str, list[float]] = {}
    for row in marked:
        by_rubric.setdefault(row.rubric, []).append(row.marks[trait] / steps.get((row.rubric, trait), 1.0))
    variances = [np.var(marks) for marks in by_rubric.values()]
    sizes = [len(marks) for marks in by_rubric.values()]
    return float(np.sqrt(np.average(variances, weights=sizes)))


def _halos(marked: Sequence[MarkedResponse], draws: int, seed: int) -> dict[str, Estimate]:
    """Each rater's halo over the traits of all rubrics."""
    traits = sorted(set[tuple[str, str]]().union(*(_traits(row) for row in marked)))
    if len(traits) < 2:
        return {}
    place = {trait: index for index, trait in enumerate(traits)}
    cluster_of = {row.response: row.cluster for row in marked}
    responses = {name: index for index, name in enumerate(cluster_of)}
    names = sorted({row.rater for row in marked})
    tables = {name: np.full((len(responses), len(traits)), np.nan) for name in names}
    for row in marked:
        for rubric, trait in _traits(row):
            tables[row.rater][responses[row.response], place[rubric, trait]] = row.marks[trait]
    return halo(tables, cluster_codes(list(cluster_of.values()))[0], draws, seed)


def _traits(row: MarkedResponse) -> set[tuple[str, str]]:
    """(rubric, trait) of what was marked beside the score."""
    return {(row.rubric, trait) for trait in row.marks if trait != SCORE}


def _others(halos: Mapping[str, Estimate], name: str) -> float | None:
    values = [estimate.value for other, estimate in halos.items() if other != name and estimate.value is not None]
    return float(np.mean(values)) if values else None


def _row(name: str, trait: str) -> Record:
    return {"rater_id": name, "trait": trait, "slice": "all", "value_of": "all", "ratings": 0, "shared": 0, "flags": []}
