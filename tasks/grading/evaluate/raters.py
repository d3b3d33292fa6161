"""Raters one by one, as rows of `rater_effects`: who is strict, erratic, drifts, or lets one impression colour all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.stats.bootstrap import cluster_codes
from rubricflow.tasks.core.stats.facet_likelihood import Design, RatingColumns, Texts, design_of_columns, linked
from rubricflow.tasks.core.stats.facets import fit
from rubricflow.tasks.core.stats.raters import (
    FEW,
    Residuals,
    discrimination,
    halo,
    infit,
    leniency,
    outfit,
    residuals,
    shift,
)
from rubricflow.tasks.core.stats.scores import map_keys
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.evaluate.slices import Record

SCORE = ""
"""In place of a trait, the score itself."""
OFF, ERRATIC, APART, HALO = 0.15, 1.2, 0.7, 0.10
"""Limits of flags: leniency in SD of the scores, as the gate on the machine's mean shift has it; infit, as for marks
that ought to agree (Wright and Linacre 1994); how well responses are told apart, erratic or central by an infit of 1
or more, or less; halo above the others'."""
ALONE = "shares no response with another rater"


@dataclass(frozen=True)
class RaterMarks:
    """What persons gave responses, a row for each person and response: in columns, for there may be millions.

    table: `response_id`, `item_id`, `rubric_id`, `rater_id`, `period`, null where not known, and `cluster`. scores:
    trait -> (n,) its marks, NaN without one; '' the score.
    """

    table: pa.Table
    scores: Mapping[str, Floats]

    def of(self, trait: str, raters: Sequence[str] | None = None) -> RaterMarks:
        """The rows that have a mark of this trait, of all raters or some."""
        rows = ~np.isnan(self.scores[trait])
        if raters is not None:
            rows &= _is_in(self.table["rater_id"], raters)
        return RaterMarks(self.table.filter(pa.array(rows)), {trait: self.scores[trait][rows]})

    def design(self, trait: str) -> Design:
        """The marks of this trait as the many-facet model takes them; every row has one."""
        responses, rubrics, raters = (self.table[name] for name in ("response_id", "rubric_id", "rater_id"))
        return design_of_columns(RatingColumns(responses, rubrics, raters, self.scores[trait]))


def rater_effects(
    marks: RaterMarks, steps: Mapping[tuple[str, str], float], at_random: bool, draws: int, seed: int
) -> list[Record]:
    """Rows of `rater_effects` for the score and every trait; nothing with fewer than two persons.

    steps: (rubric, trait) -> step of its scale, score units; 1 where it is not given. Raters whom no shared response
    links, unless responses were given at random, are modelled apart, and have no severity: theirs would not compare.
    """
    if pc.count_distinct(marks.table["rater_id"]).as_py() < 2:
        return []
    colours = _halos(marks, draws, seed)
    rows: list[Record] = []
    for trait in sorted(marks.scores):
        own = marks.of(trait)
        if not len(own.table):
            continue
        coded = own.design(trait)
        sets = [coded.raters] if at_random else linked(coded)
        halos = colours if trait == SCORE else {}
        for names in sets:
            some = own if len(sets) == 1 else own.of(trait, names)
            part = coded if len(sets) == 1 else some.design(trait)
            rows += _of_set(part, trait, some, steps, at_random, halos, apart=len(sets) > 1)
    return rows


def _is_in(column: Texts, names: Sequence[str]) -> Bools:
    rows = pc.is_in(column, value_set=pa.array(names, pa.string()))
    return np.asarray(rows.to_numpy(zero_copy_only=False), dtype=np.bool_)


def _of_set(
    coded: Design,
    trait: str,
    marks: RaterMarks,
    steps: Mapping[tuple[str, str], float],
    at_random: bool,
    halos: Mapping[str, Estimate],
    apart: bool,
) -> Iterator[Record]:
    """Rows of raters who are linked; apart: there are others, with whom they are not."""
    blank: Record = {"trait": trait, "slice": "all", "value_of": "all", "ratings": 0, "shared": 0, "flags": []}
    if len(coded.raters) == 1:
        yield blank | {"rater_id": coded.raters[0], "ratings": len(coded.responses), "note": ALONE}
        return
    fitted = fit(coded, at_random)
    unit = np.array([steps.get((group, trait), 1.0) for group in coded.groups])
    unexplained, limit = residuals(fitted), OFF * _spread(marks, trait, steps)
    for code, (name, own_leniency) in enumerate(zip(coded.raters, leniency(fitted, unit), strict=True)):
        of_rater = unexplained.take(unexplained.rater == code)
        fits, apart_of, colour = infit(of_rater), discrimination(of_rater), halos.get(name, Estimate(None))
        figures = {"infit": fits, "discrimination": apart_of, "halo": colour}
        row = blank | {
            "rater_id": name,
            "severity": float(fitted.severity[code]),
            "severity_se": float(fitted.se[code]),
            "leniency": own_leniency.value,
            "low": own_leniency.low,
            "high": own_leniency.high,
            "outfit": outfit(of_rater).value,
            "ratings": own_leniency.n,
            "shared": len(of_rater.observed),
            "note": fits.note or None,
        }
        for column, figure in figures.items():
            row |= {column: figure.value, f"{column}_low": figure.low, f"{column}_high": figure.high}
        shifts = [shifted for kind in ("item", "period") for shifted in _shifts(kind, of_rater, coded, marks, unit)]
        drifts = [shifted for shifted in shifts if shifted["slice"] == "period" and shifted["shared"] >= FEW]
        others = [halo.value for other, halo in halos.items() if other != name and halo.value is not None]
        row["flags"] = list(_flags(row, drifts, limit, float(np.mean(others)) if others else None))
        if apart:
            note = f"compares with {', '.join(other for other in coded.raters if other != name)} only"
            row |= dict.fromkeys(("severity", "severity_se", "leniency", "low", "high")) | {"note": note}
            row["flags"] = [flag for flag in row["flags"] if flag not in ("strict", "lenient")]
        yield row
        yield from (blank | {"rater_id": name} | shifted for shifted in shifts)


def _shifts(kind: str, of_rater: Residuals, coded: Design, marks: RaterMarks, unit: Floats) -> Iterator[Record]:
    """What is left of a rater's leniency on each item, or in each period; nothing where there is only one."""
    rows = pc.index_in(pa.array(coded.responses, pa.string()), value_set=marks.table["response_id"])
    column = marks.table["item_id" if kind == "item" else "period"]
    values = column.take(rows).take(pa.array(of_rater.response))
    names = sorted(filter(None, pc.unique(values).to_pylist()))
    if len(names) < 2:
        return
    for name in names:
        shifted = shift(of_rater.take(_is_in(values, (name,))), unit, len(names))
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


def _spread(marks: RaterMarks, trait: str, steps: Mapping[tuple[str, str], float]) -> float:
    """Standard deviation of the marks about their rubric's mean, in steps."""
    rubrics = marks.table["rubric_id"].to_pandas()
    unit = rubrics.map({rubric: step for (rubric, name), step in steps.items() if name == trait}).astype(float)
    by_rubric = pd.Series(marks.scores[trait] / unit.fillna(1.0)).groupby(rubrics)
    return float(np.sqrt(np.average(by_rubric.var(ddof=0), weights=by_rubric.size())))


def _halos(marks: RaterMarks, draws: int, seed: int) -> dict[str, Estimate]:
    """Each rater's halo over the traits of all rubrics."""
    traits = {trait: column for trait, column in marks.scores.items() if trait != SCORE}
    ids = ["response_id", "rubric_id", "rater_id", "cluster"]
    rows = marks.table.select(ids).to_pandas().assign(**traits)
    long = rows.melt(ids, [*traits], "trait", "mark").dropna(subset=["mark"])
    columns = long.groupby(["rubric_id", "trait"]).size().index
    if len(columns) < 2:
        return {}
    firsts = rows.drop_duplicates("response_id")
    tables = {}
    for name, own in long.groupby("rater_id"):
        table = own.pivot(index="response_id", columns=["rubric_id", "trait"], values="mark")
        tables[str(name)] = table.reindex(index=firsts["response_id"], columns=columns).to_numpy(float)
    return halo(tables, cluster_codes(firsts["cluster"])[0], draws, seed)


# The marks of a run, read a batch at a time, so that of a million rows a few columns stay.

_IDS = ["response_id", "item_id", "rater_id"]


def read_marks(run: Run, items: TableRef, responses: TableRef, people: TableRef) -> RaterMarks:
    """What persons gave responses, of all splits."""
    ids, scores = [_empty(_IDS)], []
    for batch in run.batches(people, [*_IDS, "rater_kind", "score", "trait_scores"]):
        human = batch.filter(pc.equal(batch["rater_kind"], "human"))
        ids.append(pa.Table.from_batches([human.select(_IDS)]))
        scores.append(_scores(human))
    table = pa.concat_tables(ids, promote_options="default")
    rubrics = run.read(items, ["item_id", "rubric_id"])
    of_item = pc.index_in(table["item_id"], value_set=rubrics["item_id"])
    known = _periods_and_clusters(run, responses)
    of_response = pc.index_in(table["response_id"], value_set=known["response_id"])
    table = table.append_column("rubric_id", rubrics["rubric_id"].take(of_item))
    for name in ("period", "cluster"):
        table = table.append_column(name, known[name].take(of_response))
    return RaterMarks(table, _joined(scores))


def _scores(gradings: pa.RecordBatch) -> dict[str, Floats]:
    """Trait -> its marks, '' the score; (n,), NaN without one."""
    traits = gradings["trait_scores"]
    columns = {name: pc.map_lookup(traits, name, "first") for name in map_keys(pa.chunked_array([traits]))}
    columns[SCORE] = gradings["score"]
    return {name: np.asarray(column.to_numpy(zero_copy_only=False)) for name, column in columns.items()}


def _joined(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """The columns of all parts one behind the other, NaN where a part has no such column."""
    names = {name for part in parts for name in part}
    empty = [np.full(len(part[SCORE]), np.nan) for part in parts]
    return {
        name: np.concatenate([part.get(name, nothing) for part, nothing in zip(parts, empty, strict=True)])
        for name in sorted(names)
    }


def _periods_and_clusters(run: Run, responses: TableRef) -> pa.Table:
    """Of every response the group `period`, null without one, and its author, itself where not known."""
    parts = []
    for batch in run.batches(responses, ["response_id", "author_id", "groups"]):
        author = pc.if_else(pc.equal(batch["author_id"], ""), None, batch["author_id"])
        cluster = pc.coalesce(author, batch["response_id"])
        period = pc.map_lookup(batch["groups"], "period", "first")
        parts.append(pa.table({"response_id": batch["response_id"], "period": period, "cluster": cluster}))
    names = ("response_id", "period", "cluster")
    return pa.concat_tables([_empty(names), *parts], promote_options="default")


def _empty(names: Sequence[str]) -> pa.Table:
    """No rows of columns of texts."""
    return pa.table({name: pa.array([], pa.string()) for name in names})
