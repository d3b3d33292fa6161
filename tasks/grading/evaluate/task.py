"""The door of evaluate: people's and the machine's scores in, metrics and verdicts out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Study
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, RaterEffects, Verdicts
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import people_marks, resampled, score_frame
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.ordered import read_scores
from rubricflow.tasks.core.store.warehouse import Rows, Run, give_back
from rubricflow.tasks.grading.evaluate.decisions import CRITERION, decided, decision_figures
from rubricflow.tasks.grading.evaluate.figures import figures
from rubricflow.tasks.grading.evaluate.other_runs import other_column, placed
from rubricflow.tasks.grading.evaluate.raters import SCORE, rater_effects
from rubricflow.tasks.grading.evaluate.slices import Record
from rubricflow.tasks.grading.evaluate.tables import read_marks


class Evaluated(NamedTuple):
    """What evaluate writes."""

    metrics: TableRef
    verdicts: TableRef
    rater_effects: TableRef


@task(task_run_name=named("evaluate"))
def evaluate(
    run: Run,
    study: Study,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    gradings: TableRef,
    predictions: TableRef,
    bundles: TableRef,
    marks: TableRef,
    judgments: TableRef,
    others: Mapping[str, tuple[Run, TableRef]] | None = None,
) -> Evaluated:
    """Compare every rater with the human scores on the test split, and the judge's probabilities of single decisions
    with people's marks; without any there is nothing to compare.

    others: what the machine's scores stand beside: another run and its predictions, by what that is called. InputError
    where these have a score off an item's scale.
    """

    def make() -> dict[type[Row], Rows]:
        locked = unlocked(run.read(bundles).to_pylist())
        # First of all: it needs as much room as all that comes after it.
        effects = _rater_effects(run, items, responses, people, locked, study.evaluation)
        give_back()
        scores = score_frame(read_scores(run, items, responses, people, gradings, predictions), study.evaluation.target)
        give_back()
        scales = {row["item_id"]: locked[row["rubric_id"]].scale.bounds for row in run.read(items).to_pylist()}
        for name, (other, theirs) in (others or {}).items():
            table = other.read(theirs, ["response_id", "score"])
            score_of = dict(zip(table["response_id"].to_pylist(), table["score"].to_pylist(), strict=True))
            scores.frame[other_column(name)] = placed(scores.frame, score_of, scales, name)
        machine = next((batch["rater_id"][0].as_py() for batch in run.batches(gradings, ["rater_id"], 1)), "machine")
        metrics, verdicts = figures(scores, scales, machine, study.evaluation, study.release)
        metrics += _decisions(
            run, scores.frame, marks, judgments, locked, items, machine=machine, plan=study.evaluation
        )
        return {Metrics: metrics, Verdicts: verdicts, RaterEffects: effects}

    run.once("evaluate", make)
    return Evaluated(*(run.ref(row, "evaluate") for row in (Metrics, Verdicts, RaterEffects)))


def _rater_effects(
    run: Run,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    locked: Mapping[str, Bundle],
    plan: Evaluation,
) -> list[Record]:
    """Rows of `rater_effects` by all persons' scores, those of the calibration split too."""
    steps = dict[tuple[str, str], float]()
    for rubric, bundle in locked.items():
        steps[rubric, SCORE] = bundle.scale.step
        steps |= {(rubric, trait.id): trait.step for trait in bundle.traits}
    marks = read_marks(run, items, responses, people)
    return rater_effects(marks, steps, plan.random_assignment, plan.draws, plan.seed)


def _decisions(
    run: Run,
    scores: pd.DataFrame,
    marks: TableRef,
    judgments: TableRef,
    locked: Mapping[str, Bundle],
    items: TableRef,
    machine: str,
    plan: Evaluation,
) -> list[Record]:
    """Rows of `metrics` about the judge's probabilities of single decisions; none where people marked no criteria."""
    human_marks = people_marks(run.read(marks, [*CRITERION, "rater_id", "rater_kind", "decision"]), plan.target)
    batches = run.batches(judgments, [*CRITERION, "level_probabilities"]) if len(human_marks) else ()
    rows = decided(batches, human_marks, scores[["response_id", "item_id", "cluster"]])
    kinds = dict[tuple[str, str], str]()
    for item in run.read(items, ["item_id", "rubric_id"]).to_pylist():
        criteria = locked[item["rubric_id"]].criteria
        kinds |= {(item["item_id"], criterion.id): criterion.kind for criterion in criteria}
    return list(decision_figures(rows, kinds, machine, resampled(scores), plan.draws, plan.seed))
