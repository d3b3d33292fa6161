"""What people gave, held against the rubrics: scores on their scales, marks of criteria and levels that there are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.bundle import Rubric, Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.data import QUESTION, Column, Data, Source
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.judging import out_of
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.store.cells import as_text, select, text_or_none
from rubricflow.tasks.core.store.reshape import Counted, questions_of, reshaped
from rubricflow.tasks.core.store.source import SHOWN as MOST_FAULTS
from rubricflow.tasks.core.store.source import Faults, chunks, row_lines
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.formulas import unguarded
from rubricflow.tasks.grading.lock.rubric import parted

DUST = 2e-4
"""Share of a step that a score may be off: what a short float or four decimals leave of a third."""
MOST_STEPS = 200
"""Steps of the finest scale that is proposed; scores that need more look continuous."""
SHOWN = 3


class Offence(NamedTuple):
    """What one person gave one response against its rubric."""

    response_id: str
    rater_id: str
    part: str | None
    """The trait or criterion; None for the score itself."""
    rule: str


class Place(NamedTuple):
    """Where the sources say so."""

    file: str
    row: int
    field: str
    line: int | None
    """The line of the file on which the row begins, where the file has lines."""


def off_scale(gradings: pa.Table, rubric_of: Mapping[str, Rubric]) -> list[Offence]:
    """The scores outside the scale of their item's rubric, or out of other points than it ends at ("4 / 5" on one that
    ends at 10), then the trait scores outside the range of the rubric's trait.

    gradings: response_id, item_id, rater_id, score, trait_scores, signals; rubric_of: item → its rubric. A trait that
    the rubric does not have is free.
    """
    ranges_of: dict[str, dict[str, Scale]] = {"": {item: rubric.scale for item, rubric in rubric_of.items()}}
    for item, rubric in rubric_of.items():
        for trait in rubric.traits:
            ranges_of.setdefault(trait.id, {})[item] = trait
    ids = gradings.select(["response_id", "item_id", "rater_id"]).to_pandas()
    offences = []
    for part, ranges in sorted(ranges_of.items()):
        given = pc.map_lookup(gradings["trait_scores"], pa.scalar(part), "first") if part else gradings["score"]
        most = pc.map_lookup(gradings["signals"], pa.scalar(out_of(part)), "first")
        rows = ids.assign(value=given.to_pandas().astype(float), most=most.to_pandas().astype(float))
        low, high = (
            rows["item_id"].map({item: scale.bounds[end] for item, scale in ranges.items()}).astype(float)
            for end in (0, 1)
        )
        is_off = (rows["value"] < low) | (rows["value"] > high)
        is_of_other = rows[["value", "most"]].notna().all(axis=1) & high.notna() & (rows["most"] != high)
        for response, item, rater, value, of in rows[is_off | is_of_other].to_numpy().tolist():
            ends = f"{ranges[item].min:g} to {ranges[item].max:g}"
            where = f"off the range {ends} of trait '{part}'" if part else f"off the scale {ends}"
            said = f"{value:g}" if np.isnan(of) else f"{value:g} out of {of:g}"
            rule = f"rater '{rater}' gave response '{response}' {said}, {where} of item '{item}'"
            offences.append(Offence(response, rater, part or None, rule))
    return offences


def unknown_mark(marks: pa.Table, answered: pa.Table, rubric_of: Mapping[str, Rubric]) -> Offence | None:
    """A mark of a criterion, or of a level, that its response's rubric does not have, or of a criterion that is made
    of its sub-points.

    marks: response_id, criterion_id, rater_id, decision; answered: response_id and item_id of all responses.
    """
    rows = marks.to_pandas().merge(answered.to_pandas(), on="response_id", how="left")
    tops = {
        (item, criterion.id): criterion.top for item, rubric in rubric_of.items() for criterion in parted(rubric)[0]
    }
    pairs = pd.MultiIndex.from_frame(rows[["item_id", "criterion_id"]])
    rows["top"] = pd.Series(tops, dtype=float).reindex(pairs).to_numpy()
    wrong = rows[~(rows["decision"] <= rows["top"])]
    if wrong.empty:
        return None
    row = wrong.iloc[0]
    criterion_id = row["criterion_id"]
    rubric = rubric_of[row["item_id"]]
    has = f"has no criterion '{criterion_id}'"
    if not np.isnan(row["top"]):
        has = f"has levels 0 to {row['top']:g} for it"
    elif any(criterion.id == criterion_id for criterion in rubric.criteria):
        has = "makes it of its sub-points"
    rule = (
        f"rater '{row['rater_id']}' marked response '{row['response_id']}' with level {row['decision']} of criterion "
        f"'{criterion_id}'; rubric '{rubric.rubric_id}' {has}"
    )
    return Offence(row["response_id"], row["rater_id"], criterion_id, rule)


def score_place(data: Data, base: Path, offence: Offence) -> Place | None:
    """Where the sources give this score or trait score; None where a layout, which only ingest reads, maps them."""
    cells = {"response_id": offence.response_id}
    for source in data.sources:
        mapping = {"response_id": source.scored} if source.scored else source.responses
        for columns in source.scores:
            field = columns.traits.get(offence.part) if offence.part else columns.score
            is_given = field is not None and columns.rater == offence.rater_id
            if is_given and (place := _place(data, base, source, mapping, cells, str(field))):
                return place
    return None


def mark_place(data: Data, base: Path, offence: Offence) -> Place | None:
    """Where the sources give this mark."""
    cells = {"response_id": offence.response_id, "rater_id": offence.rater_id, "criterion_id": str(offence.part)}
    for source in data.sources:
        if source.marks and (place := _place(data, base, source, source.marks, cells, str(source.marks["level"]))):
            return place
    return None


def _place(
    data: Data, base: Path, source: Source, mapping: Mapping[str, Column], cells: Mapping[str, str], field: str
) -> Place | None:
    """The first row of a source, in the form in which ingest maps it, whose cells are these ids and that fills the
    field, which is called as in the file."""
    path = base / data.folder / source.file
    counted = Counted()
    for frame in chunks(path, source.encoding, source.sheet, repeats=bool(source.wide)):
        rows = select(reshaped(source, frame, counted), source.where, path)
        filled = [text_or_none(cell) is not None for cell in rows[field]] if field in rows.columns else []
        rows = rows.loc[filled] if filled else rows
        for name, text in cells.items():
            column = mapping[name]
            ids = rows[column] if isinstance(column, str) else [column["const"]] * len(rows)
            words = [as_text(cell).strip() for cell in ids]
            # A file of votes keeps ids from running as formulas, see `canonical.scored`.
            rows = rows.loc[[text in (word, unguarded(word)) for word in words]]
        if len(rows):
            row = int(rows.index[0]) + 1
            if field in source.wide:
                questions = questions_of(list(frame.columns), source.wide, source.file)
                number = rows[QUESTION].iloc[0]
                field = next(question.columns[field] for question in questions if question.words[QUESTION] == number)
            return Place(source.file, row, field, row_lines(path, {row}, source).get(row))
    return None


# Human scores held against the steps of their scales, and the tolerance of release against the width of these.


def between_steps(scores: Floats, scale: Scale) -> Bools:
    """Which scores lie on no step of a scale."""
    steps = (scores - scale.min) / scale.step
    return np.asarray(np.abs(steps - np.rint(steps)) > DUST)


def widest_step(values: Floats, scale: Scale) -> float | None:
    """The widest step of a scale with these ends that holds all values; None where that takes more than MOST_STEPS."""
    for count in range(1, MOST_STEPS + 1):
        finer = Scale(min=scale.min, max=scale.max, step=(scale.max - scale.min) / count)
        if not between_steps(values, finer).any():
            return finer.step
    return None


def off_step(scored: pd.DataFrame, scales: Mapping[str, Scale]) -> tuple[Offence, str] | None:
    """The first score between steps, its rule with the count and further ones, and what to do; None where all fit.

    scored: response_id, rater_id, rubric_id, score and averaged, whether it is a recorded mean of several persons,
    which may lie between steps; scales: of the rubrics. What a person gave between steps is another score on the
    scale's grid, and a tolerance in steps takes both for the same.
    """
    single = scored[~scored["averaged"].astype(bool)]
    for rubric_id, scale in scales.items():
        rows = single[single["rubric_id"] == rubric_id]
        off = rows[between_steps(rows["score"].to_numpy(float), scale)]
        if off.empty:
            continue
        offences = []
        for row in off.head(SHOWN).itertuples():
            rule = f"rater '{row.rater_id}' gave response '{row.response_id}' {row.score:g}"
            offences.append(Offence(str(row.response_id), str(row.rater_id), None, rule))
        shown = ", ".join(offence.rule for offence in offences) + (", …" if len(off) > SHOWN else "")
        count = int((scored["rubric_id"] == rubric_id).sum())
        ends = f"{scale.min:g} to {scale.max:g}"
        rule = (
            f"{len(off):,} of {count:,} human scores lie between the steps of rubric '{rubric_id}', "
            f"{ends} in steps of {scale.step:g}: {shown}"
        )
        on_scale = single["rubric_id"].isin([name for name, other in scales.items() if other == scale])
        step = widest_step(single.loc[on_scale, "score"].to_numpy(float), scale)
        hint = f"they look continuous, no scale of up to {MOST_STEPS} steps holds them: round them to steps"
        if step:
            hint = f"scale {{min: {scale.min:g}, max: {scale.max:g}, step: {step:.12g}}} holds them all"
        hint += "; of a column that is a mean of several persons, say 'averaged: true'"
        return offences[0]._replace(rule=rule), hint
    return None


def refuse_tolerance(tolerance: float, rubric_id: str, scale: Scale) -> None:
    """InputError for a tolerance in steps under which no score of a scale could be wrong."""
    steps = scale.levels - 1
    if tolerance >= steps:
        rule = (
            f"a tolerance of {tolerance:g} steps is as wide as the scale of rubric '{rubric_id}', "
            f"{scale.min:g} to {scale.max:g} in steps of {scale.step:g}: no score could be wrong"
        )
        hint = f"give at most {steps - 1}, or give the scale finer steps"
        raise InputError(rule, field="release.tolerance", hint=hint)


def refuse_off_scale(run: Run, study: Study, base: Path, people: TableRef, rubric_of: Mapping[str, Rubric]) -> None:
    """InputErrors for all scores off the scale of their item's rubric or the range of their trait."""
    faults = Faults()
    for offence in off_scale(_of_people(run, people), rubric_of):
        # Only of those that are shown the place is looked for.
        is_shown = faults.count < MOST_FAULTS
        faults.add(_refused(study, base, offence) if is_shown else InputError(offence.rule))
    faults.refuse()


def refuse_unfit(
    run: Run, study: Study, base: Path, people: TableRef, rubric_of: Mapping[str, str], scales: Mapping[str, Scale]
) -> None:
    """InputError for single persons' scores between the steps of their scale, and for a tolerance of release as wide
    as a scale. rubric_of: item → its rubric; scales: of the rubrics."""
    gradings = _of_people(run, people)
    is_averaged = pc.is_valid(pc.map_lookup(gradings["signals"], pa.scalar("averaged"), "first"))
    given = gradings.select(["response_id", "item_id", "rater_id", "score"]).to_pandas()
    given = given.assign(averaged=is_averaged.to_pandas(), rubric_id=given["item_id"].map(rubric_of))
    scored = given[given["score"].notna()]
    unfit = off_step(scored, scales)
    if unfit:
        raise _refused(study, base, *unfit)
    used = set(scored["rubric_id"])
    for rubric_id, scale in scales.items():
        if rubric_id in used:
            refuse_tolerance(study.release.tolerance, rubric_id, scale)


def _of_people(run: Run, people: TableRef) -> pa.Table:
    """People's gradings: what a machine recorded is on a scale of its own."""
    columns = ["response_id", "item_id", "rater_id", "score", "trait_scores", "signals"]
    return run.read(people, columns, ds.field("rater_kind") != "replayed")


def _refused(study: Study, base: Path, offence: Offence, hint: str | None = None) -> InputError:
    place = score_place(study.data, base, offence)
    return InputError(offence.rule, hint=hint, **(place._asdict() if place else {"field": offence.part or "score"}))


def refuse_unknown_marks(
    run: Run, study: Study, base: Path, marks: TableRef, answered: pa.Table, rubric_of: Mapping[str, Rubric]
) -> None:
    """InputError for a mark of a criterion or level that its rubric does not have."""
    for batch in run.batches(marks, ["response_id", "criterion_id", "rater_id", "decision"]):
        offence = unknown_mark(pa.Table.from_batches([batch]), answered, rubric_of)
        if offence:
            place = mark_place(study.data, base, offence)
            raise InputError(offence.rule, **(place._asdict() if place else {"field": "level"}))
