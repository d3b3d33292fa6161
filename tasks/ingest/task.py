"""The door of ingest: source files in, canonical tables out."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from prefect import task

from tasks.contracts.errors import InputError
from tasks.contracts.study import Study
from tasks.contracts.tables import Gradings, Items, Judgments, Responses, TableRef, Units
from tasks.ingest.canonical import canonical, unit_rows
from tasks.ingest.sources import load
from tasks.ingest.split import split
from tasks.store.warehouse import Run


class Data(NamedTuple):
    """What ingest writes; gradings and judgments are those of people."""

    items: TableRef
    responses: TableRef
    units: TableRef
    gradings: TableRef
    judgments: TableRef


@task
def ingest(run: Run, study: Study, base: Path, limit: int | None = None) -> Data:
    """Read the sources, map them, cut units, and split; with a limit only the first responses of each item.

    InputError for bad input (see `read` and `canonical`), or a target that is none of the raters.
    """

    def make() -> dict:
        found = canonical(load(study.data, base), limit)
        target = study.evaluation.target
        raters = {g["rater_id"] for g in found.gradings}
        if raters and target not in {"mean", *raters}:
            raise InputError(f"'{target}' gave no score; there are {', '.join(sorted(raters))}", field="evaluation.target")
        labelled = {g["response_id"] for g in found.gradings if g["score"] is not None and target in ("mean", g["rater_id"])}
        for key, side in split(found.responses, labelled, study.split).items():
            found.responses[key]["split"] = side
        return {
            Items: found.items.values(),
            Responses: found.responses.values(),
            Units: unit_rows(found.responses),
            Gradings: found.gradings,
            Judgments: found.judgments,
        }

    run.once("ingest", make)
    return Data(*(run.ref(row, "ingest") for row in (Items, Responses, Units, Gradings, Judgments)))
