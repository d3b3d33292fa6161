"""The demo as cases, and what its rater `key` said: for benchmarks."""

from pathlib import Path

import pandas as pd
import yaml

from rubricflow.tasks.core.contracts.bundle import Rubric
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.judge.rows import Case
from rubricflow.tasks.grading.judge.simulated import human_marks
from rubricflow.tasks.grading.lock.bundles import lock

DEMO = Path(__file__).resolve().parents[2] / "data" / "demo"


def cases_of_demo(plan):
    """(cases of all responses under the plan's protocol, response → what `key` said about it)."""
    protocol = plan.as_protocol()
    items = pd.read_csv(DEMO / "items.csv").set_index("item_id")
    content = yaml.safe_load((DEMO / "rubrics.yaml").read_text(encoding="utf-8"))["rubrics"]
    locked = {rubric["rubric_id"]: bundle_of(rubric, protocol, items, plan) for rubric in content}
    responses = pd.read_csv(DEMO / "responses.csv", keep_default_na=False)
    cases = [
        Case(
            response_id=row.response_id,
            item_id=row.item_id,
            text=row.text,
            units=tuple(units(row.text)),
            question=items.question[row.item_id],
            context=None,
            bundle=locked[row.item_id],
            bundle_id=locked[row.item_id].bundle_id,
            reference_answer=items.reference_answer[row.item_id],
        )
        for row in responses.itertuples()
    ]
    scores = responses.rename(columns={"score_key": "score"}).assign(trait_scores=[{}] * len(responses))
    marks = pd.read_csv(DEMO / "marks.csv").rename(columns={"level": "decision"})
    return cases, human_marks(scores.to_dict("records"), marks[marks.rater_id == "key"].to_dict("records"))


def bundle_of(content, protocol, items, plan):
    """The bundle of a rubric as the file holds it; in the demo a rubric has the id of its item."""
    return lock(Rubric.model_validate(content), protocol, [items.type[content["rubric_id"]]], plan.evidence)
