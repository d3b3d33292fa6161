"""The stage entry point of bottleneck: responses and concept labels in; trained graders, what they are worth and the
first of them as a file out."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.methods import Prompting
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.bottleneck import ConceptLinks, Interventions, Models, Traces, Trials
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments
from rubricflow.tasks.core.llm.backend import KeyOf
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.llm.opening import open_backend
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.store.files import named, write_atomically
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.methods.bottleneck.arm import Arm, RowsByTable, TrainedArm, arms
from rubricflow.tasks.methods.bottleneck.arm import run as run_arm
from rubricflow.tasks.methods.bottleneck.card import card
from rubricflow.tasks.methods.bottleneck.class_set import (
    ClassSet,
    against,
    class_set,
    grades_of,
    grading_rows,
    judgment_rows,
    people_rows,
)
from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.grader import load as load_grader
from rubricflow.tasks.methods.bottleneck.grader import save
from rubricflow.tasks.methods.bottleneck.model import contribution_error
from rubricflow.tasks.methods.bottleneck.prompted import choose_shots, prompted

STAGE = "bottleneck"
TABLES: tuple[type[Row], ...] = (Models, Trials, Interventions, ConceptLinks, Judgments, Gradings, Traces)
"""What bottleneck writes; judgments, gradings and traces are those of the exported grader."""


@task(task_run_name=named(STAGE))
def train(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    marks: TableRef,
    bundles: TableRef,
    labels: TableRef | None,
    key_of: KeyOf = os.environ.get,
) -> tuple[TableRef, ...]:
    """Train and measure every grader of the study, a shard for each; finished ones are passed over.

    people, marks: gradings and judgments of the data. labels: the final labels of the study's annotation, where it
    learns from those. key_of: name of a credential → its value, see `Engine.key`. InputError where rubrics differ in
    their concepts, or the labels do not suffice.
    """
    plan = study.bottleneck
    assert plan is not None  # or the flow would have refused the study
    todo = [arm for arm in arms(plan) if not run.done(STAGE, arm.name)]
    shot_counts = plan.prompted.shots if plan.prompted else ()
    unprompted = [shots for shots in shot_counts if not run.done(STAGE, f"prompted-{shots}")]
    if todo or unprompted or not run.done(STAGE, "people"):
        study_set = class_set(
            run, study, base, items, responses, people=people, marks=marks, bundles=bundles, labels=labels
        )
        run.commit(STAGE, "people", {row: [] for row in TABLES} | {Trials: list(people_rows(study_set))})
        for number, arm in enumerate(todo, 1):
            outcome = run_arm(arm, study_set.ground)
            tables = dict(outcome.tables)
            if arm == arms(plan)[0] and outcome.trained.concept_encoder is not None:
                tables |= exported(run, study, base, study_set, arm, outcome)
            run.commit(STAGE, arm.name, tables)
            print(progress_line(arm, outcome, number, len(todo)))
        with asking_together() as piece:
            for shots in unprompted:
                assert plan.prompted is not None
                with piece():
                    rows = _prompted_rows(run, base, study_set, plan.prompted, shots, key_of)
                    run.commit(STAGE, f"prompted-{shots}", {Trials: rows})
    return tuple(run.ref(row, STAGE) for row in TABLES)


def _prompted_rows(
    run: Run, base: Path, responses: ClassSet, plan: Prompting, shots: int, key_of: KeyOf
) -> list[Record]:
    """What a prompted language model is worth on the test split."""
    data = responses.ground.data
    rows = data.rows("test")
    scale = responses.bundle.scale
    examples = choose_shots(responses.answered, responses.target, data.rows("train"), shots, seed=plan.sampling.seed)
    tested = [responses.answered[row] for row in rows]
    response_ids = [data.response_ids[row] for row in rows]
    with open_replies(run.warehouse.replies) as replies:
        backend = open_backend(plan, base, replies, key_of)
        found = prompted(
            tested,
            examples,
            scale,
            backend,
            replies,
            response_ids=response_ids,
            rubric=responses.bundle.text,
            sampling=plan.sampling,
            structured=plan.engine.structured if plan.engine else True,
        )
    scores = np.array(found, np.float64)  # NaN where there is none
    grades = np.full(len(data.grades), MISSING)
    grades[rows] = grades_of(scores, scale, responses.ground.plan.bands)
    no_levels = np.full_like(data.levels, MISSING)
    trials = against(responses, (data.levels, data.grades), (no_levels, grades))
    return [row | {"method": f"prompted_{shots}_shot"} for row in trials]


def exported(run: Run, study: Study, base: Path, responses: ClassSet, arm: Arm, outcome: TrainedArm) -> RowsByTable:
    """Writes the grader with its card, in the run and where the study wants it; its rows."""
    plan = responses.ground.plan
    data = responses.ground.data
    head = outcome.head
    assert head is not None  # a method with concepts has one
    path = run.folder / "grader.safetensors"
    digest = save(
        path,
        outcome.trained,
        head,
        arm.method,
        arm.seed,
        arm.training,
        data=data,
        bundle=responses.bundle,
        backbone=responses.backbone,
        plan=plan,
    )
    grader = load_grader(path, base)
    human: dict[str, float | None] = {}
    for row in data.rows("test"):
        grade = data.grades[row]
        human[data.response_ids[row]] = None if grade == MISSING else float(data.scores[grade])
    traced = grader.traces(list(human), [responses.answered[row] for row in data.rows("test")])
    traced = [trace | {"human": human[trace["response_id"]]} for trace in traced]
    error = {"split": "test", "metric": "contribution_error", "criterion_id": "", "value": contribution_error(traced)}
    tested = {"method": arm.method, "seed": arm.seed, "setting": arm.setting, "n": len(data.rows("test")), "note": None}
    trials = [*outcome.tables[Trials], tested | error]
    copy = base / plan.grader if plan.grader else run.warehouse.root / "graders" / f"{study.name}.safetensors"
    about = card(grader.about, digest, plan.grader or str(copy), [*trials, *people_rows(responses)]).encode()
    write_atomically(copy, path.read_bytes())
    write_atomically(path.with_suffix(".md"), about)
    write_atomically(copy.with_suffix(".md"), about)
    for file in [path] if plan.grader else [path, copy]:
        run.warehouse.share(file)
        run.warehouse.share(file.with_suffix(".md"))
    print(f"bottleneck: the grader is in {copy}, its card next to it")
    (model,) = outcome.tables[Models]
    file_columns = {"path": str(path.relative_to(run.warehouse.root)), "digest": digest, "head": grader.head_json()}
    return {
        Models: [model | file_columns],
        Trials: trials,
        Traces: traced,
        Judgments: list(judgment_rows(responses, outcome, grader.name)),
        Gradings: list(grading_rows(responses, outcome, grader.name)),
    }


def progress_line(arm: Arm, outcome: TrainedArm, number: int, count: int) -> str:
    """What is said of an arm that is done, the number-th of `count`."""
    worth = {row["metric"]: row["value"] for row in outcome.tables[Trials] if row["split"] == "test"}
    names = [name for name in ("task_macro_f1", "task_qwk") if worth.get(name) is not None]
    shown = ", ".join(f"{name} {worth[name]:.3f}" for name in names)
    grader = f"{arm.method}{' ' + arm.setting if arm.setting else ''}, seed {arm.seed}"
    return f"bottleneck: {number} of {count}: {grader}: {shown} on the test split, {outcome.seconds:.0f} s"
