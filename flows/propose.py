"""Concepts proposed by a language model for a study's data, as a rubric file for people to edit."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rubricflow.tasks.core.contracts.backends import is_generative
from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.monitor.credentials import credential
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.rubric import authored, guided
from rubricflow.tasks.people.annotate.inventory import constructions
from rubricflow.tasks.people.annotate.propose import Brief, as_yaml
from rubricflow.tasks.people.annotate.propose import propose as ask_for


def propose(study_file: Path, warehouse: Path, to: Path, concepts: int, levels: int) -> list[str]:
    """Writes the proposal; returns where it is and how it keeps the construction criteria, a line for each.

    Questions, model answers, the rubric's prose and the scale are shown, no response. InputError where the file is
    there already, no language model is named, or its replies are of no use.
    """
    if to.exists():
        raise InputError("is there already, and somebody may have edited it", file=to)
    study, base = load_study(study_file), study_file.parent
    annotator = next(iter(study.annotation.annotators.values())) if study.annotation else study.judge
    if not is_generative(annotator):
        rule = f"backend '{annotator.backend}' proposes nothing; name a language model"
        raise InputError(rule, field="annotation.annotators", hint="backend: vllm or openai with an engine")
    items = _items(study, base)
    text, scale = _given(study, base, items)
    brief = Brief(study.name, scale, items, study.name, text, concepts, levels)
    with open_replies(Warehouse.open(warehouse).replies) as replies:
        structured = annotator.engine.structured if annotator.engine else True
        model = open_backend(annotator, base, replies, credential)
        proposal = ask_for(brief, model, replies, annotator.sampling, structured)
    write_atomically(to, as_yaml(proposal.rubric).encode())
    checks = constructions(proposal.rubric)
    return [
        f"{to}: {len(proposal.rubric.criteria)} concepts",
        *(_line(row) for row in checks if row["outcome"] != "unknown"),
    ]


def _line(row: dict[str, Any]) -> str:
    return f"{row['outcome']:7} {row['rule']}, {row['subject']}: {row['detail']}"


def _given(study: Study, base: Path, items: list[dict[str, Any]]) -> tuple[str, Scale]:
    """Prose and scale of the study's first rubric, or the scale that rubrics are derived on."""
    rubrics = list(authored(base / study.rubrics.file, True).values()) if study.rubrics.file else []
    if rubrics:
        its = next((item for item in items if item["rubric_id"] == rubrics[0].rubric_id), {})
        return guided(rubrics[0], its).text, rubrics[0].scale
    assert study.rubrics.derive  # the contract demands one of the two
    if study.rubrics.derive.scale is None:
        raise InputError("concepts are proposed for one scale; name it", field="rubrics.derive.scale")
    return "", study.rubrics.derive.scale


def _items(study: Study, base: Path) -> list[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        run = Warehouse.open(Path(folder) / "validation").run("validation")
        data = ingest.fn(run, study, base, 1)
        return sorted(run.read(data.items).to_pylist(), key=lambda row: str(row["item_id"]))
