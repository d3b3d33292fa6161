"""What people gave held against the rubrics, and a rubric as a row."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Rubric, Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.store.source import SHOWN, Faults
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.lock.induce import MadeRubric
from rubricflow.tasks.grading.lock.lint import lint
from rubricflow.tasks.grading.lock.meaning import Remark
from rubricflow.tasks.grading.lock.people import (
    Offence,
    mark_place,
    marked,
    off_scale,
    off_step,
    score_place,
    too_tolerant,
    unknown_mark,
)

_GRADED = ["response_id", "item_id", "rater_id", "rater_kind", "score", "trait_scores", "signals"]


def refuse_off_scale(run: Run, study: Study, base: Path, people: TableRef, rubric_of: Mapping[str, Rubric]) -> None:
    """InputErrors for all scores off the scale of their item's rubric or the range of their trait."""
    faults = Faults()
    for gradings in _of_people(run, people):
        for offence in off_scale(gradings, rubric_of):
            # Only of those that are shown the place is looked for.
            is_shown = faults.count < SHOWN
            faults.add(_refused(study, base, offence) if is_shown else InputError(offence.rule))
    faults.refuse()


def refuse_unfit(
    run: Run, study: Study, base: Path, people: TableRef, rubric_of: Mapping[str, str], scales: Mapping[str, Scale]
) -> None:
    """InputError for single persons' scores between the steps of their scale, and for a tolerance of release as wide
    as a scale. rubric_of: item → its rubric; scales: of the rubrics."""
    batches = (_averaged(gradings).to_pandas() for gradings in _of_people(run, people))
    gathered = marked(batches, rubric_of, scales)
    unfit = off_step(gathered)
    if unfit:
        raise _refused(study, base, *unfit)
    for marks in gathered:
        wide = too_tolerant(study.release.tolerance, marks)
        if wide:
            raise InputError(wide[0], field="release.tolerance", hint=wide[1])


def _of_people(run: Run, people: TableRef) -> Iterator[pa.Table]:
    """Batches of people's gradings: what a machine recorded is on a scale of its own."""
    for batch in run.batches(people, _GRADED):
        gradings = pa.Table.from_batches([batch])
        yield gradings.filter(pc.not_equal(gradings["rater_kind"], "replayed"))


def _averaged(gradings: pa.Table) -> pa.Table:
    """With a column of whether a score is a recorded mean of several persons."""
    is_averaged = pc.is_valid(pc.map_lookup(gradings["signals"], pa.scalar("averaged"), "first"))
    columns = gradings.select(["response_id", "item_id", "rater_id", "score"])
    return columns.append_column("averaged", is_averaged)


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


def rubric_row(judged: MadeRubric, origin: str, lacking: Iterable[Remark] = ()) -> dict[str, Any]:
    """A row of `rubrics`. lacking: what its prompts do not say."""
    content = json.dumps(judged.rubric.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
    return {
        "rubric_id": judged.rubric.rubric_id,
        "title": judged.rubric.title,
        "origin": origin,
        "content": content,
        "lint": [*lint(judged.rubric), *(remark.text for remark in lacking)],
        "calls": list(judged.calls),
    }
