"""The door of ingest: source files in, canonical tables out."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from prefect import task

from tasks.contracts.errors import InputError
from tasks.contracts.study import Study
from tasks.contracts.table import Row, conform
from tasks.contracts.tables import Gradings, Items, Judgments, Responses, TableRef, Units
from tasks.ingest.canonical import canonical, unit_rows
from tasks.ingest.sources import load
from tasks.ingest.split import split
from tasks.stats.target import MEAN, target_scores
from tasks.store.warehouse import Rows, Run


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

    def make() -> dict[type[Row], Rows]:
        loaded = load(study.data, base)
        target = study.evaluation.target
        raters = {rater.rater for source, _ in loaded for rater in source.scores}
        if raters and target not in {MEAN, *raters}:
            rule = f"'{target}' is no rater of the sources; there are {', '.join(sorted(raters))}"
            raise InputError(rule, field="evaluation.target")
        found = canonical(loaded, limit)
        gradings = conform(Gradings, found.gradings)
        labelled = set(target_scores(gradings, target)["response_id"].to_pylist())
        for key, side in split(found.responses, labelled, study.split).items():
            found.responses[key]["split"] = side
        return {
            Items: found.items.values(),
            Responses: found.responses.values(),
            Units: unit_rows(found.responses),
            Gradings: gradings,
            Judgments: found.judgments,
        }

    run.once("ingest", make)
    return Data(*(run.ref(row, "ingest") for row in (Items, Responses, Units, Gradings, Judgments)))
