"""What `init` drafts, read back."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.people import Notes
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.lock.rubric import authored


class Read(NamedTuple):
    """What ingest makes of a drafted study."""

    items: dict[str, tuple[str, str | None]]
    """Item → question, model answer."""
    responses: list[dict[str, Any]]
    scores: dict[str, float]
    notes: dict[str, str]

    @property
    def answers(self) -> dict[str, tuple[str, str | None, str | None, str]]:
        """Response → item, author, author's name, text."""
        columns = ("item_id", "author_id", "author_name", "text")
        return {row["response_id"]: tuple(row[name] for name in columns) for row in self.responses}


def read(study: Path) -> Read:
    with TemporaryDirectory() as folder:
        run = Warehouse.open(Path(folder)).run("one")
        data = ingest.fn(run, load_study(study), study.parent)
        items, responses, scores = (run.read(ref).to_pylist() for ref in (data.items, data.responses, data.gradings))
        notes = run.read(run.ref(Notes, "ingest")).to_pylist() if "ingest" in run.stages(Notes) else []
    asked = {row["item_id"]: (row["question"], row["reference_answer"]) for row in items}
    marks = {row["response_id"]: row["score"] for row in scores}
    return Read(asked, responses, marks, {row["response_id"]: row["note"] for row in notes})


def guess(_: str, default: str) -> str:
    return default


def points_of(study: Path) -> dict[str, float]:
    """Rubric → the most points."""
    return {name: rubric.scale.max for name, rubric in authored(study.with_name("rubrics.yaml")).items()}
