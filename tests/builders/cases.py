"""Cases to judge, and a run that stands before its judging."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from builders.rows import item, locked, response, rubric

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles, Rubrics
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.rows import Case

TEXT = "Plants need light. Water helps them grow."


def case(bundle: Bundle, text: str = TEXT, response_id: str = "r1", item_id: str = "i1", **known: Any) -> Case:
    """known: what the judge may see of the item beside its question."""
    seen = {"question": "What do plants need?", "context": None, "bundle_id": bundle.bundle_id} | known
    return Case(response_id, item_id, text, tuple(units(text)), bundle=bundle, **seen)


def to_judge(
    run: Run, bundle: Bundle, texts: Mapping[str, Mapping[str, str]], **of_items: Any
) -> tuple[TableRef, TableRef, TableRef]:
    """Item → response → text, all under one bundle: the references that the judge's door takes."""
    rows = [response(key, name, text=text) for name, answers in texts.items() for key, text in answers.items()]
    run.commit("ingest", "all", {Items: [item(name, **of_items) for name in texts], Responses: rows})
    rubrics = {Rubrics: [rubric(name) for name in texts], Bundles: [locked(bundle, name) for name in texts]}
    run.commit("lock", "all", rubrics)
    return run.ref(Items, "ingest"), run.ref(Responses, "ingest"), run.ref(Bundles, "lock")
