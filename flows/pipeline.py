"""The command `pipeline`: from annotators to the report of a trained grader, with pauses for people in between."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rubricflow.flows.annotate import annotate
from rubricflow.flows.bottleneck import bottleneck
from rubricflow.flows.checks import check_extras
from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    DollarLimit,
    Limit,
    StudyFile,
    TokenLimit,
    WarehouseFolder,
    arguments,
)
from rubricflow.flows.grade import grade
from rubricflow.flows.review import board_of, unanswered
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.monitor.runs import announce_answered, completed, flow, introduce, wait_for_people


@flow(name="pipeline")
def pipeline(
    study: StudyFile,
    grading: Annotated[
        str | None, typer.Option(help="A study of its own that the grader grades; what it holds back waits, too.")
    ] = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
) -> str:
    """Annotate, wait for people's votes, train, grade, and wait for people where a study of its own is graded; returns
    the id of the last run that there is.

    Whatever ended it, the same call goes on, and passes over what is finished. Votes that come later train another
    grader. token_budget, budget_usd: of each step, see `grade`. InputError where a study has not what a step needs.
    """
    taught = load_study(Path(study))
    graded = load_study(Path(grading or study))
    check_chained(Path(study), taught, Path(grading or study), graded, Path(warehouse))
    check_extras("annotate", study)  # all of them before people are asked
    check_extras("train", study)
    check_extras("grade", grading or study)
    introduce(taught.name, flow="pipeline", grading=graded.name)

    run_id = annotate(study, warehouse, limit, token_budget, budget_usd)
    if waits := asked_of_people(study, warehouse, limit):
        return wait_for_people(run_id, taught.name, waits)
    bottleneck(study, warehouse, limit, token_budget, budget_usd)
    run_id = grade(grading or study, warehouse, limit, token_budget, budget_usd)
    if graded.annotation is None and (waits := asked_of_people(str(grading), warehouse, limit)):
        return wait_for_people(run_id, graded.name, waits)
    announce_answered({taught.name, graded.name})  # whoever waited for the same has nothing left to do
    return completed(run_id, f"{graded.name} is graded by the grader that learned from {taught.name}")


def check_chained(study: Path, taught: Study, grading: Path, graded: Study, warehouse: Path) -> None:
    """InputError where a grader does not learn from the study's annotation, or another one grades."""
    if taught.annotation is None or taught.bottleneck is None or taught.bottleneck.labels != "final":
        hint = "sections 'annotation' and 'bottleneck: {labels: final}', as in data/demo/concepts.yaml"
        raise InputError("no grader learns here from what annotators and people say", file=study, hint=hint)
    default = warehouse / "graders" / f"{taught.name}.safetensors"
    exported = study.parent / taught.bottleneck.grader if taught.bottleneck.grader else default
    judge = graded.judge
    if judge.backend != "trained" or (grading.parent / str(judge.grader)).resolve() != exported.resolve():
        hint = f"judge: {{protocol: bottleneck, backend: trained, grader: …}} with the path of {exported}"
        raise InputError("its judge is not the grader that is trained", file=grading, field="judge.grader", hint=hint)


def asked_of_people(study: str, warehouse: str, limit: int | None) -> str | None:
    """What of a study waits for people, in a sentence; None where they have answered all that was queued."""
    board = board_of(study, warehouse, limit)
    if not (left := unanswered(board, warehouse)):
        return None
    what = "labels" if load_study(Path(study)).annotation else "scores"
    page = f"rubricflow review {arguments(study, warehouse, limit)}"
    return f"the {what} of {left:,} of {len(board.cases):,} cases of {board.study} wait for people: {page}"
