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
    for trait in sorted({trait for row in marked for trait in row.marks}):
        own = [row for row in marked if trait in row.marks]
        coded = design([_rating(row, trait) for row in own])
        sets = [coded.raters] if at_random else linked(coded)
        for names in sets:
            some = [row for row in own if row.rater in names]
            part = coded if len(sets) == 1 else design([_rating(row, trait) for row in some])
            halos = colours if trait == SCORE else {}
            rows += _of_set(part, trait, some, steps, at_random, halos, apart=len(sets) > 1)
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
    left, sd = residuals(fitted), _spread(marked, trait, steps)
    given = leniency(fitted, unit)
    for code, name in enumerate(coded.raters):
        own = left.take(left.rater == code)
        shifts = [row for kind in ("item", "period") for row in _shifts(kind, own, coded, marked, unit)]
        whole = _whole(fitted, code, own, given[code], halos.get(name))
        drifts = [row for row in shifts if row["slice"] == "period" and row["shared"] >= FEW]
        whole["flags"] = list(_flags(whole, drifts, OFF * sd, _others(halos, name)))
        if apart:
            note = f"compares with {', '.join(other for other in coded.raters if other != name)} only"
            whole |= dict.fromkeys(("severity", "severity_se", "leniency", "low", "high")) | {"note": note}
            whole["flags"] = [flag for flag in whole["flags"] if flag not in ("strict", "lenient")]
        yield _row(name, trait) | whole
        yield from (_row(name, trait) | row for row in shifts)


def _whole(fitted: Facets, code: int, own: Residuals, given: Estimate, colour: Estimate | None) -> Record:
    fits, apart, colour = infit(own), discrimination(own), colour or Estimate(None)
    return {
        "severity": float(fitted.severity[code]),
        "severity_se": float(fitted.se[code]),
        "leniency": given.value,
        "low": given.low,
        "high": given.high,
        "infit": fits.value,
        "infit_low": fits.low,
        "infit_high": fits.high,
        "outfit": outfit(own).value,
        "discrimination": apart.value,
        "discrimination_low": apart.low,
        "discrimination_high": apart.high,
        "halo": colour.value,
        "halo_low": colour.low,
        "halo_high": colour.high,
        "ratings": given.n,
        "shared": len(own.observed),
        "note": fits.note or None,
    }


def _shifts(
    kind: str, own: Residuals, coded: Design, marked: Sequence[MarkedResponse], unit: Floats
) -> Iterator[Record]:
    """What is left of a rater's leniency on each item, or in each period; nothing where there is only one."""
    of = {row.response: row.item if kind == "item" else row.period for row in marked}
    values = np.array([of[coded.responses[at]] or "" for at in own.response], dtype=str)
    names = [name for name in np.unique(values).tolist() if name]
    for name in names if len(names) > 1 else ():
        found = shift(own.take(values == name), unit, len(names))
        yield {
            "slice": kind,
            "value_of": name,
            "leniency": found.value,
            "low": found.low,
            "high": found.high,
            "ratings": found.n,
            "shared": found.n,
            "note": found.note or None,
        }


def _flags(whole: Record, drifts: Sequence[Record], limit: float, others: float | None) -> Iterator[str]:
    if whole["shared"] < FEW:
        return
    if whole["high"] is not None and whole["high"] < -limit:
        yield "strict"
    if whole["low"] is not None and whole["low"] > limit:
        yield "lenient"
    blurred = whole["discrimination_high"] is not None and whole["discrimination_high"] < APART
    if whole["infit_low"] is not None and (whole["infit_low"] > ERRATIC or (blurred and whole["infit"] >= 1)):
        yield "erratic"
    if blurred and whole["infit"] < 1:
        yield "central"
    if any(row["low"] > limit or row["high"] < -limit for row in drifts):
        yield "drift"
    if others is not None and whole["halo_low"] is not None and whole["halo_low"] > others + HALO:
        yield "halo"


def _spread(marked: Sequence[MarkedResponse], trait: str, steps: Mapping[tuple[str, str], float]) -> float:
    """Standard deviation of the marks about their rubric's mean, in steps."""
    by_rubric: dict[str, list[float]] = {}
    for row in marked:
        by_rubric.setdefault(row.rubric, []).append(row.marks[trait] / steps.get((row.rubric, trait), 1.0))
    return float(
        np.sqrt(np.average([np.var(own) for own in by_rubric.values()], weights=list(map(len, by_rubric.values()))))
    )


def _halos(marked: Sequence[MarkedResponse], draws: int, seed: int) -> dict[str, Estimate]:
    """Each rater's halo over the traits of all rubrics."""
    traits = sorted({(row.rubric, trait) for row in marked for trait in row.marks if trait != SCORE})
    if len(traits) < 2:
        return {}
    place = {trait: at for at, trait in enumerate(traits)}
    cluster_of = {row.response: row.cluster for row in marked}
    responses = {name: at for at, name in enumerate(cluster_of)}
    tables = {name: np.full((len(responses), len(traits)), np.nan) for name in sorted({row.rater for row in marked})}
    for row in marked:
        for trait in row.marks.keys() - {SCORE}:
            tables[row.rater][responses[row.response], place[row.rubric, trait]] = row.marks[trait]
    return halo(tables, cluster_codes(list(cluster_of.values()))[0], draws, seed)


def _others(halos: Mapping[str, Estimate], name: str) -> float | None:
    values = [one.value for other, one in halos.items() if other != name and one.value is not None]
    return float(np.mean(values)) if values else None


def _row(name: str, trait: str) -> Record:
    return {"rater_id": name, "trait": trait, "slice": "all", "value_of": "all", "ratings": 0, "shared": 0, "flags": []}
