"""The command `propose`: concepts that a language model proposes for a study's data, as a rubric file for people to
edit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    DollarLimit,
    RubricTo,
    StudyFile,
    TokenLimit,
    WarehouseFolder,
)
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.monitor.runs import credential
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.rubric import authored, guided
from rubricflow.tasks.people.annotate.inventory import Brief, as_yaml, constructions
from rubricflow.tasks.people.annotate.inventory import propose as ask_for


def propose(
    study: StudyFile,
    to: RubricTo,
    concepts: Annotated[int, typer.Option(min=1, max=20, help="How many concepts.")] = 8,
    levels: Annotated[int, typer.Option(min=2, max=10, help="Levels of each.")] = 3,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
) -> None:
    """Writes the proposal; prints where it is and how it keeps the construction criteria, a line for each.

    Questions, model answers, the rubric's prose and the scale are shown, no response. InputError where the file is
    there already, no language model is named, or its replies are of no use.
    """
    if to.exists():
        raise InputError("is there already, and somebody may have edited it", file=to)
    settings = load_study(Path(study))
    base = Path(study).parent
    annotator = next(iter(settings.annotation.annotators.values())) if settings.annotation else settings.judge.lead
    if not is_generative(annotator):
        rule = f"backend '{annotator.backend}' proposes nothing; name a language model"
        raise InputError(rule, field="annotation.annotators", hint="backend: vllm or openai with an engine")
    with TemporaryDirectory() as folder:
        run = Warehouse.open(Path(folder) / "validation").run("validation")
        items = run.read(ingest.fn(run, settings, base, 1).items).to_pylist()
    items.sort(key=lambda row: str(row["item_id"]))
    text, scale = _prose_and_scale(settings, base, items)
    brief = Brief(settings.name, scale, items, settings.name, text, concepts, levels)
    house = Warehouse.open(warehouse)
    budget = kept_budget(house, f"proposal for {settings.name}", token_budget, budget_usd)
    with open_replies(house.replies) as replies, budget:
        structured = annotator.engine.structured if annotator.engine else True
        model = open_backend(annotator, base, replies, credential)
        rubric = ask_for(brief, model, replies, annotator.sampling, structured)
    write_atomically(to, as_yaml(rubric).encode())
    print(f"{to}: {len(rubric.criteria)} concepts")
    for row in constructions(rubric):
        if row["outcome"] != "unknown":
            print(f"{row['outcome']:7} {row['rule']}, {row['subject']}: {row['detail']}")


def _prose_and_scale(study: Study, base: Path, items: list[Record]) -> tuple[str, Scale]:
    """Of the study's first rubric; or the scale that rubrics are derived on, without prose."""
    rubrics = list(authored(base / study.rubrics.file, True).values()) if study.rubrics.file else []
    if rubrics:
        its = next((item for item in items if item["rubric_id"] == rubrics[0].rubric_id), {})
        return guided(rubrics[0], its).text, rubrics[0].scale
    assert study.rubrics.derive  # the contract demands one of the two
    if study.rubrics.derive.scale is None:
        raise InputError("concepts are proposed for one scale; name it", field="rubrics.derive.scale")
    return "", study.rubrics.derive.scale
