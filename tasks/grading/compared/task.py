"""The door of the page that sets two runs beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.page import filled, rendered
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.compared.page import AgreementGap, ChangedAnswer, ComparedRun, Figures, page

LONGEST = 3000
"""Characters of an answer that are shown."""


def write_compared(
    runs: tuple[Run, Run],
    studies: tuple[Study, Study],
    figures: Figures,
    differences: Sequence[AgreementGap],
    changed: pd.DataFrame,
    unscored: tuple[int, int],
) -> tuple[str, Path]:
    """Write `compared-with-<a>.html` into the folder of run b; returns its sentence and where it is.

    figures: scale → rows as of `metrics`, of raters people, a and b. changed: rows of the score frame with the scores
    `a` and `b`, in the order shown. unscored: answers that run a alone scores, and run b alone.
    """
    a, b = runs
    answers = _answers(a, changed)
    named = [ComparedRun(run.run_id, study.name, study.judge.backend) for run, study in zip(runs, studies, strict=True)]
    shown = page(
        named, figures, differences, filled(Path(__file__).parent / "changed.html.j2", answers=answers), unscored
    )
    path = b.folder / f"compared-with-{a.run_id}.html"
    b.warehouse.write(path, rendered(shown, ".case > div { grid-column: 1 / -1; }").encode())
    return shown.title, path


def _answers(run: Run, changed: pd.DataFrame) -> list[ChangedAnswer]:
    wanted = pa.array(changed["response_id"], pa.string())
    rows = run.read(run.ref(Responses, "ingest"), ["response_id", "text"], ds.field("response_id").isin(wanted))
    texts = {row["response_id"]: row["text"] for row in rows.to_pylist()}
    items = run.read(run.ref(Items, "ingest"), ["item_id", "question"]).to_pylist()
    questions: Mapping[str, str] = {row["item_id"]: row["question"] for row in items}
    return [
        ChangedAnswer(
            response=say.name(row["response_id"]),
            item=say.name(row["item_id"]),
            question=say.visible(questions[row["item_id"]]),
            text=say.cut(say.visible(texts[row["response_id"]]), LONGEST),
            a=say.level(row["a"]),
            b=say.level(row["b"]),
            change=say.signed(row["b"] - row["a"]),
            people="" if pd.isna(row["target"]) else say.level(row["target"]),
        )
        for row in changed.to_dict("records")
    ]
