"""What the rubric check reads of a graded run: answers of its calibration split that people scored, with decisions."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.backends import install, is_missing
from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.settings.study import Evaluation
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES, Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import STANDING, Gradings, Judgments
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.rubrics.item_analysis import (
    FEWEST,
    MarkedAnswer,
    MarksOfRubric,
    ScoredAnswers,
    analysed,
)

_MARKED, _LONGEST, _CHARACTERS = 40, 4_000, 40_000
"""Marked answers that a reviser is shown at most, characters of each, and of all."""


def marks_of(
    run: Run, evaluation: Evaluation, bundles: Mapping[str, Bundle], is_wanted: Callable[[str], bool]
) -> tuple[dict[str, MarksOfRubric], str]:
    """Rubric → what marks say of it, on the calibration split of a finished run; and in words why nothing is
    said, or not all. is_wanted: whether an author's answers may be looked at."""
    if not run.done("evaluate", "all"):
        return {}, "the study is not graded as it is now, so no criterion is held against people's scores"
    encode = None if is_missing("embedded") else minilm()
    marks = {}
    for name, (bundle, rows, levels) in scored_answers(run, evaluation.target, bundles).items():
        wanted = rows["cluster"].map(is_wanted).to_numpy(bool)
        marks[name] = analysed(
            ScoredAnswers(bundle, rows[wanted], levels[wanted]), encode, evaluation.draws, evaluation.seed
        )
    few = [name for name in bundles if name not in marks or not marks[name].items]
    why = []
    if few:
        lacking = f"fewer than {FEWEST} answers of the calibration split have a score by people and decisions"
        why.append(f"{lacking}: {', '.join(few)}")
    if encode is None:
        why.append(f"what no criterion names is not looked for, which needs the extra: {install('embedded')}")
    return marks, "; ".join(why)


def scored_answers(run: Run, target: str, bundles: Mapping[str, Bundle]) -> dict[str, ScoredAnswers]:
    """Rubric → its answers of the calibration split, and of no other, that people scored and the judge decided on; by
    id. Of repeated samples it is the first. A rubric without any is left out.

    target: rater, or 'mean', see `target_scores`.
    """
    scored = _scored(run, target)
    mine = ds.field("response_id").isin(pa.array(list(scored["response_id"]), pa.string())) & (ds.field("sample") == 0)
    wanted = ["response_id", "criterion_id", "decision", "evidence"]
    decided = run.read(run.ref(Judgments, "judge"), wanted, mine).to_pandas()
    credited = defaultdict[str, list[tuple[int, int]]](list)
    for row in decided[decided["decision"] > 0].itertuples():
        quotes = [quote for quote in row.evidence if quote["status"] in STANDING]
        credited[row.response_id] += [(quote["start"], quote["end"]) for quote in quotes]
    levels = decided.pivot(index="response_id", columns="criterion_id", values="decision").astype(float)
    scored = scored[scored["response_id"].isin(levels.index)]
    answers = {}
    for name, rows in scored.groupby("rubric_id", sort=False):
        if bundle := bundles.get(str(name)):
            of_rubric = levels.reindex(index=rows["response_id"], columns=[one.id for one in bundle.criteria])
            credits = rows["response_id"].map(lambda response_id: tuple(credited[response_id]))
            answers[str(name)] = ScoredAnswers(bundle, rows.assign(credited=credits), of_rubric)
    return answers


def marked_answers(run: Run, target: str) -> dict[str, tuple[MarkedAnswer, ...]]:
    """Rubric → answers that a reviser may see, of every score that people gave as far as their length allows: from the
    half of the calibration split that is not held back. The run need only have been ingested."""
    scored, chosen = _scored(run, target), {}
    scored["order"] = [hashlib.sha256(name.encode()).digest() for name in scored["response_id"]]
    for name, rows in scored[~scored["cluster"].map(held_back).astype(bool)].groupby("rubric_id", sort=False):
        drawn = rows.sort_values("order")
        turn, first = drawn.groupby("score").cumcount(), pd.factorize(drawn["score"])[0]
        drawn = drawn.iloc[np.lexsort((first, turn))]
        texts = drawn["text"].str[:_LONGEST]
        fit = min(_MARKED, int((texts.str.len().cumsum() <= _CHARACTERS).sum()))
        shown = map(MarkedAnswer, texts[:fit], drawn["score"][:fit])
        chosen[str(name)] = tuple(sorted(shown, key=lambda one: one.score))
    return chosen


def _scored(run: Run, target: str) -> pd.DataFrame:
    """The answers of the calibration split that people scored, by id: response_id, text, score, rubric_id and cluster,
    the author or the response itself where nobody knows him."""
    columns = ["response_id", "item_id", "author_id", "text"]
    calibrating = ds.field("split").isin(list(CALIBRATES))
    rows = run.read(run.ref(Responses, "ingest"), columns, calibrating)
    mine = ds.field("response_id").isin(rows["response_id"].combine_chunks())
    people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"], mine)
    items = run.read(run.ref(Items, "ingest"), ["item_id", "rubric_id"])
    frame: pd.DataFrame = rows.to_pandas().merge(target_scores(people, target).to_pandas(), on="response_id")
    frame = frame.merge(items.to_pandas(), on="item_id").sort_values("response_id", ignore_index=True)
    return frame.assign(cluster=frame["author_id"].fillna(frame["response_id"]))


def held_back(cluster: str) -> bool:
    """Whether an author's answers are of the half of the calibration split that no reviser of a rubric is shown, and on
    which a revised rubric is compared: by a digest, so that it is the same half in every run."""
    return hashlib.sha256(f"held back {cluster}".encode()).digest()[0] % 2 == 0
