"""The exported grader: its file with its card, and the rows that tell of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.bottleneck import Models, Traces, Trials
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.methods.bottleneck.arm import Arm, RowsByTable, TrainedArm
from rubricflow.tasks.methods.bottleneck.card import card
from rubricflow.tasks.methods.bottleneck.class_set import ClassSet, grading_rows, judgment_rows, people_rows
from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.grader import BottleneckGrader, save
from rubricflow.tasks.methods.bottleneck.grader import load as load_grader
from rubricflow.tasks.methods.bottleneck.trace import contribution_error


def exported(run: Run, study: Study, base: Path, responses: ClassSet, arm: Arm, outcome: TrainedArm) -> RowsByTable:
    """Writes the grader with its card, in the run and where the study wants it; its rows."""
    plan, data, head = responses.ground.plan, responses.ground.data, outcome.head
    assert head is not None  # a method with concepts has one
    path = run.folder / "grader.safetensors"
    digest = save(
        path,
        outcome.trained,
        head,
        arm.training,
        data=data,
        bundle=responses.bundle,
        backbone=responses.backbone,
        plan=plan,
    )
    grader = load_grader(path, base)
    traced = _traces(grader, responses)
    error = {"split": "test", "metric": "contribution_error", "criterion_id": "", "value": contribution_error(traced)}
    tested = {"method": arm.method, "seed": arm.seed, "setting": arm.setting, "n": len(data.rows("test")), "note": None}
    trials = [*outcome.tables[Trials], tested | error]
    copy = base / plan.grader if plan.grader else run.warehouse.root / "graders" / f"{study.name}.safetensors"
    about = card(grader.about, digest, plan.grader or str(copy), [*trials, *people_rows(responses)]).encode()
    write_atomically(copy, path.read_bytes())
    write_atomically(path.with_suffix(".md"), about)
    write_atomically(copy.with_suffix(".md"), about)
    in_warehouse = [path] if plan.grader else [path, copy]
    for file in in_warehouse:
        run.warehouse.share(file)
        run.warehouse.share(file.with_suffix(".md"))
    print(f"bottleneck: the grader is in {copy}, its card beside it")
    (model,) = outcome.tables[Models]
    file_columns = {"path": str(path.relative_to(run.warehouse.root)), "digest": digest, "head": grader.head_json()}
    judgments = list(judgment_rows(responses, outcome, grader.name))
    gradings = list(grading_rows(responses, outcome, grader.name))
    return {
        Models: [model | file_columns],
        Trials: trials,
        Traces: traced,
        Judgments: judgments,
        Gradings: gradings,
    }


def _traces(grader: BottleneckGrader, responses: ClassSet) -> list[dict[str, Any]]:
    """Rows of `traces` of the test split, with the score that people gave."""
    data, rows = responses.ground.data, responses.ground.data.rows("test")
    human: dict[str, float | None] = {}
    for row in rows:
        grade = data.grades[row]
        human[data.response_ids[row]] = None if grade == MISSING else float(data.scores[grade])
    traced = grader.traces(list(human), [responses.answered[row] for row in rows])
    return [trace | {"human": human[trace["response_id"]]} for trace in traced]


def progress_line(arm: Arm, outcome: TrainedArm, number: int, count: int) -> str:
    """What is said of an arm that is done, the number-th of `count`."""
    worth = {row["metric"]: row["value"] for row in outcome.tables[Trials] if row["split"] == "test"}
    names = [name for name in ("task_macro_f1", "task_qwk") if worth.get(name) is not None]
    shown = ", ".join(f"{name} {worth[name]:.3f}" for name in names)
    grader = f"{arm.method}{' ' + arm.setting if arm.setting else ''}, seed {arm.seed}"
    return f"bottleneck: {number} of {count}: {grader}: {shown} on the test split, {outcome.trained.seconds:.0f} s"
