"""What the rubric check reads of a graded run: answers of its calibration split that people scored, with decisions."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
    for name, answers in scored_answers(run, evaluation.target, bundles).items():
        wanted = [place for place, cluster in enumerate(answers.clusters) if is_wanted(cluster)]
        marks[name] = analysed(answers.of(wanted), encode, evaluation.draws, evaluation.seed)
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
    by_rubric, scores = _scored_rows(run, target)
    ids = [row["response_id"] for rows in by_rubric.values() for row in rows]
    mine = pc.field("response_id").isin(pa.array(ids, pa.string()))
    wanted = ["response_id", "criterion_id", "decision", "evidence"]
    decided = run.read(run.ref(Judgments, "judge"), wanted, mine & (pc.field("sample") == 0)).to_pylist()
    of_response: dict[str, list[dict[str, object]]] = defaultdict(list)
    for row in decided:
        of_response[row["response_id"]].append(row)
    answers = {}
    for name, rows in by_rubric.items():
        own = [row for row in rows if row["response_id"] in of_response]
        if own and name in bundles:
            answers[name] = _answers(bundles[name], own, scores, of_response)
    return answers


def marked_answers(run: Run, target: str) -> dict[str, tuple[MarkedAnswer, ...]]:
    """Rubric → answers that a reviser may see, of every score that people gave as far as their length allows: from the
    half of the calibration split that is not held back. The run need only have been ingested."""
    by_rubric, scores = _scored_rows(run, target)
    chosen = {}
    for name, rows in by_rubric.items():
        of_score: dict[float, list[MarkedAnswer]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: hashlib.sha256(str(row["response_id"]).encode()).digest()):
            if not held_back(str(row["author_id"] or row["response_id"])):
                score = scores[row["response_id"]]
                of_score[score].append(MarkedAnswer(str(row["text"])[:_LONGEST], score))
        in_turn = [one for turn in zip_longest(*of_score.values()) for one in turn if one is not None]
        lengths = np.cumsum([len(one.text) for one in in_turn])
        fit = int(np.searchsorted(lengths, _CHARACTERS, side="right"))
        chosen[name] = tuple(sorted(in_turn[: min(fit, _MARKED)], key=lambda one: one.score))
    return chosen


def _scored_rows(run: Run, target: str) -> tuple[dict[str, list[dict[str, Any]]], dict[str, float]]:
    """Rubric → rows of its answers of the calibration split that people scored, by id; and response → that score."""
    calibrating = ds.field("split").isin(pa.array(CALIBRATES))
    columns = ["response_id", "item_id", "author_id", "text"]
    rows = run.read(run.ref(Responses, "ingest"), columns, calibrating).sort_by("response_id").to_pylist()
    mine = pc.field("response_id").isin(pa.array([row["response_id"] for row in rows], pa.string()))
    people = run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"], mine)
    scores = dict(zip(*target_scores(people, target).to_pydict().values(), strict=True))
    items = run.read(run.ref(Items, "ingest"), ["item_id", "rubric_id"]).to_pylist()
    rubric_of = {item["item_id"]: item["rubric_id"] for item in items}
    by_rubric: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["response_id"] in scores:
            by_rubric[rubric_of[row["item_id"]]].append(row)
    return by_rubric, scores


def _answers(
    bundle: Bundle,
    rows: list[dict[str, object]],
    scores: Mapping[str, float],
    decided: Mapping[str, list[dict[str, object]]],
) -> ScoredAnswers:
    ids = [str(row["response_id"]) for row in rows]
    levels = {criterion.id: np.full(len(ids), np.nan) for criterion in bundle.criteria}
    credited = []
    for place, name in enumerate(ids):
        spans = list[tuple[int, int]]()
        for judgment in decided[name]:
            criterion, level = str(judgment["criterion_id"]), judgment["decision"]
            if criterion in levels and isinstance(level, int):
                levels[criterion][place] = level
            evidence = judgment["evidence"] if level else ()
            assert isinstance(evidence, list | tuple)
            spans += [(one["start"], one["end"]) for one in evidence if one["status"] in STANDING]
        credited.append(tuple(spans))
    return ScoredAnswers(
        bundle=bundle,
        ids=tuple(ids),
        texts=tuple(str(row["text"]) for row in rows),
        clusters=tuple(str(row["author_id"] or row["response_id"]) for row in rows),
        people=np.array([scores[name] for name in ids]),
        levels=levels,
        credited=tuple(credited),
    )


def held_back(cluster: str) -> bool:
    """Whether an author's answers are of the half of the calibration split that no reviser of a rubric is shown, and on
    which a revised rubric is compared: by a digest, so that it is the same half in every run."""
    return hashlib.sha256(f"held back {cluster}".encode()).digest()[0] % 2 == 0
