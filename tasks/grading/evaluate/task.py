"""The stage of evaluate: people's and the machine's scores in, metrics and verdicts out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, RaterEffects, Verdicts
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import people_marks, resampled, score_frame
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.ordered import read_scores
from rubricflow.tasks.core.store.warehouse import Rows, Run, give_back
from rubricflow.tasks.grading.evaluate.baselines import OTHER, scores_of_other_run
from rubricflow.tasks.grading.evaluate.decisions import CRITERION, decided, decision_figures
from rubricflow.tasks.grading.evaluate.figures import figures
from rubricflow.tasks.grading.evaluate.raters import SCORE, rater_effects, read_marks
from rubricflow.tasks.grading.evaluate.slices import Setting


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

    others: other runs to compare the machine's scores with, by name, each with its predictions. InputError where these
    have a score off an item's scale.
    """

    plan = study.evaluation

    def make() -> dict[type[Row], Rows]:
        locked = unlocked(run.read(bundles).to_pylist())
        rubric_of = {row["item_id"]: row["rubric_id"] for row in run.read(items, ["item_id", "rubric_id"]).to_pylist()}
        bundle_of = {item: locked[rubric] for item, rubric in rubric_of.items()}
        # First of all: it needs as much memory as all that comes after it. Marks of the calibration split count, too.
        steps = {(rubric, SCORE): bundle.scale.step for rubric, bundle in locked.items()}
        for rubric, bundle in locked.items():
            steps |= {(rubric, trait.id): trait.step for trait in bundle.traits}
        all_marks = read_marks(run, items, responses, people)
        effects = rater_effects(all_marks, steps, plan.random_assignment, plan.draws, plan.seed)
        del all_marks
        give_back()
        scores = score_frame(read_scores(run, items, responses, people, gradings, predictions), plan.target)
        give_back()
        scales = {item: bundle.scale.bounds for item, bundle in bundle_of.items()}
        for name, (other, theirs) in (others or {}).items():
            table = other.read(theirs, ["response_id", "score"])
            score_of = dict(zip(table["response_id"].to_pylist(), table["score"].to_pylist(), strict=True))
            scores.frame[OTHER + name] = scores_of_other_run(scores.frame, score_of, scales, name)
        machine = next((batch["rater_id"][0].as_py() for batch in run.batches(gradings, ["rater_id"], 1)), "machine")
        metrics, verdicts = figures(scores, scales, machine, plan, study.release)
        # The judge's probabilities of single decisions; no rows where people marked no criteria.
        human_marks = people_marks(run.read(marks, [*CRITERION, "rater_id", "rater_kind", "decision"]), plan.target)
        batches = run.batches(judgments, [*CRITERION, "level_probabilities"]) if len(human_marks) else ()
        rows = decided(batches, human_marks, scores.frame[["response_id", "item_id", "cluster"]])
        kinds = dict[tuple[str, str], str]()
        for item, bundle in bundle_of.items():
            kinds |= {(item, criterion.id): criterion.kind for criterion in bundle.criteria}
        on = Setting(scales, machine, draws=plan.draws, seed=plan.seed)
        metrics += decision_figures(rows, kinds, resampled(scores.frame), on)
        return {Metrics: metrics, Verdicts: verdicts, RaterEffects: effects}

    run.once("evaluate", make)
    return Evaluated(*(run.ref(row, "evaluate") for row in (Metrics, Verdicts, RaterEffects)))
