"""The exported grader: its file with its card, and the rows that tell of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tasks.bottleneck.arm import Arm, TrainedArm
from tasks.bottleneck.card import card
from tasks.bottleneck.class_set import ClassSet, grading_rows, judgment_rows, people_rows
from tasks.bottleneck.data import MISSING
from tasks.bottleneck.grader import BottleneckGrader, save
from tasks.bottleneck.grader import load as load_grader
from tasks.bottleneck.trace import contribution_error
from tasks.contracts.schema import Row
from tasks.contracts.settings.study import Study
from tasks.contracts.tables.bottleneck import Models, Traces, Trials
from tasks.contracts.tables.judging import Gradings, Judgments
from tasks.store.files import write_atomically
from tasks.store.warehouse import Run


def exported(
    run: Run, study: Study, base: Path, of: ClassSet, arm: Arm, outcome: TrainedArm
) -> dict[type[Row], list[dict[str, Any]]]:
    """Writes the grader with its card, in the run and where the study wants it; its rows."""
    plan, data, head = of.ground.plan, of.ground.data, outcome.head
    assert head is not None  # a method with concepts has one
    place = run.folder / "grader.safetensors"
    digest = save(place, outcome.trained, head, arm.training, data, of.bundle, of.backbone, plan)
    grader = load_grader(place, base)
    traced = _traces(grader, of)
    off = {"split": "test", "metric": "contribution_error", "criterion_id": "", "value": contribution_error(traced)}
    tested = {"method": arm.method, "seed": arm.seed, "setting": arm.setting, "n": len(data.rows("test")), "note": None}
    trials = [*outcome.tables[Trials], tested | off]
    wanted = base / plan.grader if plan.grader else run.warehouse.root / "graders" / f"{study.name}.safetensors"
    about = card(grader.about, digest, plan.grader or str(wanted), [*trials, *people_rows(of)]).encode()
    write_atomically(wanted, place.read_bytes())
    for path in (place, wanted):
        write_atomically(path.with_suffix(".md"), about)
    own = [] if plan.grader else [wanted, wanted.with_suffix(".md")]
    for path in (place, place.with_suffix(".md"), *own):
        run.warehouse.share(path)
    print(f"bottleneck: the grader is in {wanted}, its card beside it")
    (model,) = outcome.tables[Models]
    told = {"path": str(place.relative_to(run.warehouse.root)), "digest": digest, "head": grader.head_json()}
    return {
        Models: [model | told],
        Trials: trials,
        Traces: traced,
        Judgments: list(judgment_rows(of, outcome, grader.name)),
        Gradings: list(grading_rows(of, outcome, grader.name)),
    }


def _traces(grader: BottleneckGrader, of: ClassSet) -> list[dict[str, Any]]:
    """Rows of `traces` of the test split, with the score that people gave."""
    data, rows = of.ground.data, of.ground.data.rows("test")
    human = {
        data.response_ids[row]: None if data.grades[row] == MISSING else float(data.scores[data.grades[row]])
        for row in rows
    }
    traces = grader.traces(list(human), [of.answered[row] for row in rows])
    return [row | {"human": human[row["response_id"]]} for row in traces]


def line(arm: Arm, outcome: TrainedArm, number: int, of: int) -> str:
    """What is said of an arm that is done, the number-th of so many."""
    worth = {row["metric"]: row["value"] for row in outcome.tables[Trials] if row["split"] == "test"}
    names = [name for name in ("task_macro_f1", "task_qwk") if worth.get(name) is not None]
    shown = ", ".join(f"{name} {worth[name]:.3f}" for name in names)
    what = f"{arm.method}{' ' + arm.setting if arm.setting else ''}, seed {arm.seed}"
    return f"bottleneck: {number} of {of}: {what}: {shown} on the test split, {outcome.trained.seconds:.0f} s"
