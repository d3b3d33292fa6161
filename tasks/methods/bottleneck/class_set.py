"""A study's responses with all that is known about them, and the rows that follow from it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.bottleneck import Bottleneck
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.files import digest_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.methods.bottleneck.arm import SharedGround, TrainedArm
from rubricflow.tasks.methods.bottleneck.backbone import Backbone, load
from rubricflow.tasks.methods.bottleneck.data import MISSING
from rubricflow.tasks.methods.bottleneck.labelled import (
    common_bundle,
    grades_of,
    labelled,
    levels_of,
    marks_of,
    weighed,
)
from rubricflow.tasks.methods.bottleneck.measures import human_rows
from rubricflow.tasks.methods.bottleneck.states import Adapted, Cached, StateEncoder, TunedBackbone, encode
from rubricflow.tasks.methods.bottleneck.states import load as load_states


@dataclass(frozen=True)
class ClassSet:
    """A study's responses with everything that is known about them, in the order of their ids."""

    ground: SharedGround
    backbone: Backbone
    bundle: Bundle
    bundle_id: str
    item_ids: tuple[str, ...]
    answered: tuple[Answered, ...]
    target: Floats
    """(n,) the human score that counts, NaN where there is none."""
    marks: Mapping[str, Floats]
    """Rater of the data → its levels (n, K)."""
    scores: Mapping[str, Floats]
    """Rater of the data → its scores (n,), NaN where there is none."""
    kinds: Mapping[str, str]
    """Rater of the data → human, adjudication or replayed."""


def people_rows(responses: ClassSet) -> Iterator[dict[str, Any]]:
    """What one person is worth by another on the test split, and what a machine recorded is worth by the labels."""
    data = responses.ground.data
    persons = [name for name, kind in responses.kinds.items() if kind == "human"]
    for seed, (a, b) in enumerate(combinations(persons, 2)):
        for row in against(responses, _marked(responses, a), _marked(responses, b)):
            yield row | {"seed": seed, "note": f"{a} and {b}" + (f"; {row['note']}" if row["note"] else "")}
    machines = [name for name, kind in responses.kinds.items() if kind == "replayed"]
    for name in machines:
        for row in against(responses, (data.levels, data.grades), _marked(responses, name)):
            yield row | {"method": name}


def _marked(responses: ClassSet, rater: str) -> tuple[Ints, Ints]:
    """A rater's levels and grades as classes."""
    data, none = responses.ground.data, np.full(responses.ground.data.levels.shape, np.nan)
    levels = responses.marks.get(rater, none)
    scores = responses.scores.get(rater, np.full(len(levels), np.nan))
    grades = grades_of(scores, responses.bundle.scale, responses.ground.plan.bands)
    return np.where(np.isnan(levels), MISSING, levels).astype(np.int64), np.asarray(grades[: len(data.grades)])


def against(responses: ClassSet, a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> list[dict[str, Any]]:
    """What one is worth by the other on the test split: levels (n, K) and grades (n,) of each, MISSING for none."""
    data = responses.ground.data
    rows = data.rows("test")
    (levels_a, grades_a), (levels_b, grades_b) = a, b
    trials = human_rows(
        levels_a[rows],
        levels_b[rows],
        grades_a[rows],
        grades_b[rows],
        concepts=data.concepts,
        scores=data.scores,
        split="test",
    )
    return [row for row in trials if row["n"]]


def judgment_rows(responses: ClassSet, outcome: TrainedArm, rater: str) -> Iterator[dict[str, Any]]:
    """The level of every concept of every response, those that it learned from too."""
    levels, chosen = outcome.estimates.levels, outcome.estimates.chosen()
    assert levels is not None
    for row, response in enumerate(responses.ground.data.response_ids):
        for k, criterion in enumerate(responses.bundle.criteria):
            level = int(chosen[row, k])
            yield {
                "response_id": response,
                "criterion_id": criterion.id,
                "rater_id": rater,
                "rater_kind": "trained",
                "sample": 0,
                "bundle_id": responses.bundle_id,
                "decision": level,
                "stated": level,
                "level_probabilities": levels[row, k, : criterion.top + 1].tolist(),
                "evidence": [],
                "action": "none",
            }


def grading_rows(responses: ClassSet, outcome: TrainedArm, rater: str) -> Iterator[dict[str, Any]]:
    """The score of every response."""
    data, head = responses.ground.data, outcome.head
    assert head is not None
    likely = head.probabilities(outcome.estimates.shares(data.concepts.tops))
    for row, response in enumerate(data.response_ids):
        grade = int(likely[row].argmax())
        probability = float(likely[row, grade])
        yield {
            "response_id": response,
            "item_id": responses.item_ids[row],
            "rater_id": rater,
            "rater_kind": "trained",
            "sample": 0,
            "bundle_id": responses.bundle_id,
            "score": float(data.scores[grade]),
            "trait_scores": {},
            "signals": {"grade_probability": probability},
            "confidence": probability,
            "status": "scored",
        }


# Tables of a run as a class set.


def class_set(
    run: Run,
    study: Study,
    base: Path,
    items: TableRef,
    responses: TableRef,
    people: TableRef,
    marks: TableRef,
    bundles: TableRef,
    labels: TableRef | None,
) -> ClassSet:
    """The responses of a study with all that is known about them.

    people, marks: gradings and judgments of the data. labels: the final labels of the study's annotation, where it
    learns from those. InputError where rubrics differ in their concepts, or the labels do not suffice.
    """
    plan = study.bottleneck
    assert plan is not None
    locked = run.read(bundles).to_pylist()
    bundle = common_bundle(unlocked(locked))
    rows = run.read(responses, ["response_id", "item_id", "text", "split"]).sort_by("response_id")
    ids = rows["response_id"].to_pylist()
    gradings, judgments = run.read(people), run.read(marks)
    kinds = _rater_kinds(gradings) | _rater_kinds(judgments)
    levels_by_rater = marks_of(judgments, gradings, bundle, ids)
    persons = [name for name, kind in kinds.items() if kind == "human"]
    if labels is None:
        levels, weights = _levels(plan, bundle, levels_by_rater, persons, len(ids))
    else:
        levels, weights = _final(run, labels, bundle, ids), None
    target = target_scores(gradings, study.evaluation.target)
    scores = dict(zip(target["response_id"].to_pylist(), target["score"].to_pylist(), strict=True))
    data = labelled(rows, bundle, levels, scores, plan.bands, weights)
    item_rows = {item["item_id"]: item for item in run.read(items).to_pylist()}
    item_ids, texts = rows["item_id"].to_pylist(), rows["text"].to_pylist()
    answered = tuple(_answered(item_rows[item], text) for item, text in zip(item_ids, texts, strict=True))
    name = str(base / plan.backbone) if (base / plan.backbone).is_dir() else plan.backbone
    backbone = load(name, plan.max_tokens, plan.match, plan.layer, plan.arithmetic == "bfloat16")
    ground = SharedGround(data, _encoder(run, plan, backbone, answered), texts, minilm(), backbone.name, plan)
    targets = np.array([scores.get(response_id) for response_id in ids], np.float64)
    scores_by_rater = {rater: _scores_of(gradings, rater, ids) for rater in kinds}
    return ClassSet(
        ground=ground,
        backbone=backbone,
        bundle=bundle,
        bundle_id=locked[0]["bundle_id"],
        item_ids=tuple(item_ids),
        answered=answered,
        target=targets,
        marks=levels_by_rater,
        scores=scores_by_rater,
        kinds=kinds,
    )


def _levels(
    plan: Bottleneck, bundle: Bundle, marks: Mapping[str, Floats], persons: list[str], n: int
) -> tuple[Floats, Floats | None]:
    """(n, K) the levels that the data's raters give, NaN where there is none, and their weights where noise tells."""
    if set(plan.methods) <= {"plm", "cb_llm"} and not marks:  # neither learns from labels of concepts
        return np.full((n, len(bundle.criteria)), np.nan), None
    if not plan.rater_noise:
        return levels_of(marks, plan.labels, persons), None
    levels, weights, notes = weighed(marks, persons, np.array([criterion.top for criterion in bundle.criteria]))
    for note in notes:
        print(f"bottleneck: {note}")
    return levels, weights


def _rater_kinds(table: Any) -> dict[str, str]:
    """Rater → kind, in the order of their ids."""
    kinds = table.select(["rater_id", "rater_kind"]).group_by(["rater_id", "rater_kind"]).aggregate([])
    raters = sorted(kinds.to_pylist(), key=lambda rater: str(rater["rater_id"]))
    return {rater["rater_id"]: rater["rater_kind"] for rater in raters}


def _answered(item: Mapping[str, Any], text: str) -> Answered:
    return Answered(item["question"], text, item["reference_answer"], item["context"])


def _final(run: Run, labels: TableRef, bundle: Bundle, ids: list[str]) -> Floats:
    """(n, K) final labels, NaN where one is open."""
    row_of = {response_id: row for row, response_id in enumerate(ids)}
    column_of = {criterion.id: column for column, criterion in enumerate(bundle.criteria)}
    levels = np.full((len(row_of), len(column_of)), np.nan)
    for label in run.read(labels, ["response_id", "criterion_id", "level"]).to_pylist():
        if label["level"] is not None:
            levels[row_of[label["response_id"]], column_of[label["criterion_id"]]] = label["level"]
    return levels


def _scores_of(gradings: Any, rater: str, ids: list[str]) -> Floats:
    of_rater = gradings.filter(pc.equal(gradings["rater_id"], rater))
    scores = dict(zip(of_rater["response_id"].to_pylist(), of_rater["score"].to_pylist(), strict=True))
    return np.array([scores.get(response_id) for response_id in ids], np.float64)


def _encoder(
    run: Run, plan: Bottleneck, backbone: Backbone, answered: tuple[Answered, ...]
) -> Callable[[], StateEncoder]:
    """Makes the encoder of an arm. The states of a frozen one are kept in the warehouse, under a digest of backbone and
    tokens, for all runs."""
    tokens = backbone.tokenize(answered)
    if plan.encoder == "tuned":
        return partial(TunedBackbone, backbone, tokens)
    if plan.encoder == "lora":
        return partial(Adapted, backbone, tokens, plan.adapter)
    folder = run.warehouse.root / "states" / digest_of([backbone.name, tokens.digest])[:16]
    states = load_states(folder) or encode(backbone, tokens, print, folder)
    return partial(Cached, states)
