"""Raters one by one, as rows of `rater_effects`: who is strict, erratic, drifts, or lets one impression colour all.

Their marks are a frame with a row for each person and response: `response_id`, `item_id`, `rubric_id`, `rater_id`,
`period` (missing where not known), `cluster`, and a column of marks for each trait, missing without one: MARK and the
trait's name, which is SCORE for the score itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import cluster_codes
from rubricflow.tasks.core.stats.facet_likelihood import design, linked
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
MARK = "mark:"
OFF, ERRATIC, APART, HALO = 0.15, 1.2, 0.7, 0.10
"""Limits of flags: leniency in SD of the scores, as the gate on the machine's mean shift has it; infit, as for marks
that ought to agree (Wright and Linacre 1994); how well responses are told apart, erratic or central by an infit of 1
or more, or less; halo above the others'."""
ALONE = "shares no response with another rater"


def read_marks(run: Run, items: TableRef, responses: TableRef, people: TableRef) -> pd.DataFrame:
    """What persons gave responses, of all splits; cluster: the author or, where not known, the response. Read a batch
    at a time, so that of a million rows a few columns stay."""
    ids = ["response_id", "item_id", "rater_id"]
    marks = [pd.DataFrame(columns=[*ids, MARK + SCORE], dtype=str).astype({MARK + SCORE: float})]
    for batch in run.batches(people, [*ids, "rater_kind", "score", "trait_scores"]):
        gradings = pa.Table.from_batches([batch.filter(pc.equal(batch["rater_kind"], "human"))])
        part = gradings.select(ids).to_pandas()
        part[MARK + SCORE] = gradings["score"].to_numpy()
        for trait in map_keys(gradings["trait_scores"]):
            part[MARK + trait] = pc.map_lookup(gradings["trait_scores"], trait, "first").to_numpy()
        marks.append(part)
    answers = [pd.DataFrame(columns=["response_id", "period", "cluster"], dtype=str)]
    for batch in run.batches(responses, ["response_id", "author_id", "groups"]):
        part = batch.select(["response_id", "author_id"]).to_pandas()
        part["period"] = pc.map_lookup(batch["groups"], "period", "first").to_pandas()
        author = part.pop("author_id")
        answers.append(part.assign(cluster=author.where(author != "").fillna(part["response_id"])))
    rubrics = run.read(items, ["item_id", "rubric_id"]).to_pandas()
    with_rubrics = pd.concat(marks, ignore_index=True).merge(rubrics, "left", on="item_id")
    return with_rubrics.merge(pd.concat(answers, ignore_index=True), "left", on="response_id")


def rater_effects(
    marks: pd.DataFrame, steps: Mapping[tuple[str, str], float], at_random: bool, draws: int, seed: int
) -> list[Record]:
    """Rows of `rater_effects` for the score and every trait; nothing with fewer than two persons.

    steps: (rubric, trait) -> step of its scale, score units; 1 where it is not given. Raters whom no shared response
    links, unless responses were given at random, are modelled apart, and have no severity: theirs would not compare.
    """
    if marks["rater_id"].nunique() < 2:
        return []
    rows: list[Record] = []
    for column in sorted(name for name in marks.columns if name.startswith(MARK)):
        trait = column.removeprefix(MARK)
        own = marks[marks[column].notna()].rename(
            columns={"response_id": "response", "rubric_id": "group", "rater_id": "rater", column: "score"}
        )
        if own.empty:
            continue
        halos = _halos(marks, draws, seed) if trait == SCORE else {}
        sets = [tuple(own["rater"].unique())] if at_random else linked(design(own))
        unit_of = {rubric: step for (rubric, name), step in steps.items() if name == trait}
        for names in sets:
            rows += _of_set(trait, own[own["rater"].isin(names)], unit_of, at_random, halos, apart=len(sets) > 1)
    return rows


def _of_set(
    trait: str,
    marks: pd.DataFrame,
    unit_of: Mapping[str, float],
    at_random: bool,
    halos: Mapping[str, Estimate],
    apart: bool,
) -> Iterator[Record]:
    """Rows of raters who are linked. marks: of one trait, named as `design` takes them; unit_of: rubric -> step of its
    scale; apart: there are others, with whom they are not linked."""
    coded = design(marks)
    blank: Record = {"trait": trait, "slice": "all", "value_of": "all", "ratings": 0, "shared": 0, "flags": []}
    if len(coded.raters) == 1:
        yield blank | {"rater_id": coded.raters[0], "ratings": len(coded.responses), "note": ALONE}
        return
    fitted = fit(coded, at_random)
    unit = np.array([unit_of.get(group, 1.0) for group in coded.groups])
    in_steps = (marks["score"] / marks["group"].map(unit_of).fillna(1.0)).groupby(marks["group"])
    # Standard deviation of the marks about their rubric's mean, in steps
    limit = OFF * float(np.sqrt(np.average(in_steps.var(ddof=0), weights=in_steps.size())))
    unexplained = residuals(fitted)
    answers = marks.drop_duplicates("response").set_index("response").loc[[*coded.responses]]
    for code, (name, own_leniency) in enumerate(zip(coded.raters, leniency(fitted, unit), strict=True)):
        of_rater = unexplained.take(unexplained.rater == code)
        fits = infit(of_rater)
        figures = {
            "infit": fits,
            "discrimination": discrimination(of_rater),
            "halo": halos.get(name, Estimate(None)),
        }
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
        shifts = [*_shifts("item", answers["item_id"], of_rater, unit)]
        periods = [*_shifts("period", answers["period"], of_rater, unit)]
        drifts = [shifted for shifted in periods if shifted["shared"] >= FEW]
        others = [halo.value for other, halo in halos.items() if other != name and halo.value is not None]
        row["flags"] = list(_flags(row, drifts, limit, float(np.mean(others)) if others else None))
        if apart:
            note = f"compares with {', '.join(other for other in coded.raters if other != name)} only"
            row |= dict.fromkeys(("severity", "severity_se", "leniency", "low", "high")) | {"note": note}
            row["flags"] = [flag for flag in row["flags"] if flag not in ("strict", "lenient")]
        yield row
        yield from (blank | {"rater_id": name} | shifted for shifted in shifts + periods)


def _shifts(kind: str, value_of: pd.Series, of_rater: Residuals, unit: Floats) -> Iterator[Record]:
    """What is left of a rater's leniency on each item, or in each period; nothing where there is only one. value_of:
    the item or period of each response of the design."""
    values = value_of.to_numpy()[of_rater.response]
    names = sorted(set(values[pd.notna(values)]) - {""})
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


def _halos(marks: pd.DataFrame, draws: int, seed: int) -> dict[str, Estimate]:
    """Each rater's halo over the traits of all rubrics."""
    traits = [name for name in marks.columns if name.startswith(MARK) and name != MARK + SCORE]
    long = marks.melt(["response_id", "rubric_id", "rater_id"], traits, "trait", "mark").dropna(subset=["mark"])
    columns = long.groupby(["rubric_id", "trait"]).size().index
    if len(columns) < 2:
        return {}
    answers = marks.drop_duplicates("response_id")
    tables = {}
    for name, own in long.groupby("rater_id"):
        table = own.pivot(index="response_id", columns=["rubric_id", "trait"], values="mark")
        tables[str(name)] = table.reindex(index=answers["response_id"], columns=columns).to_numpy(float)
    return halo(tables, cluster_codes(answers["cluster"])[0], draws, seed)
