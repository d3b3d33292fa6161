"""The door of annotate: annotators' judgments and final labels in, agreement and construction checks out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.people import Agreements, Constructions
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.people.annotate.agreement import MISSING, agreements
from rubricflow.tasks.people.annotate.tables import annotators, construction_rows, settled, sheet_of

FINAL = "final"


class ComparedTables(NamedTuple):
    """What compare writes."""

    agreements: TableRef
    constructions: TableRef


@task(task_run_name=named("compare"))
def compare(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    rubrics: TableRef,
    annotated: Mapping[str, TableRef],
) -> ComparedTables:
    """How far the annotators agree before anybody is asked, and how the inventories keep the construction criteria by
    what both say. annotated: annotator → its judgments."""

    def make() -> dict[Any, Any]:
        sheet = sheet_of(run, study, items, responses, people, rubrics)
        (first, a), (second, b) = annotators(run, sheet, annotated).items()
        rows = agreements([(first, a), (second, b)], sheet.tops, "before")
        agreed = np.where(a == b, a, MISSING)
        return {Agreements: rows, Constructions: list(construction_rows(sheet, agreed, "before"))}

    run.once("compare", make)
    return ComparedTables(run.ref(Agreements, "compare"), run.ref(Constructions, "compare"))


@task(task_run_name=named("compare-settled"))
def compare_settled(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    rubrics: TableRef,
    annotated: Mapping[str, TableRef],
    labels: TableRef,
) -> ComparedTables:
    """The same after people were asked: the persons among each other by their votes, every annotator by the final
    labels that people settled, and the construction criteria by all of them. A label that the annotators settled agrees
    with them by itself: it is compared with nobody."""

    def make() -> dict[Any, Any]:
        sheet = sheet_of(run, study, items, responses, people, rubrics)
        final, by_people, persons = settled(run, sheet, labels)
        rows = agreements(list(persons.items()), sheet.tops, "after") if len(persons) > 1 else []
        if (by_people != MISSING).any():
            for name, levels in annotators(run, sheet, annotated).items():
                rows += agreements([(name, levels), (FINAL, by_people)], sheet.tops, "after")
        return {Agreements: rows, Constructions: list(construction_rows(sheet, final, "after"))}

    run.once("compare-settled", make)
    return ComparedTables(run.ref(Agreements, "compare-settled"), run.ref(Constructions, "compare-settled"))
