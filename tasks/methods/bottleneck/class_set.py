"""Tables of a run → what graders learn from: a bundle's criteria are the concepts, people's marks their labels; and the
rows that follow from a study's responses with everything that is known about them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.backends import Answered
from rubricflow.tasks.core.contracts.bundle import Bundle, Scale, unlocked
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.methods import Bottleneck
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.scores import target_scores
from rubricflow.tasks.core.store.files import digest_of
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.methods.bottleneck.arm import SharedGround, TrainedArm
from rubricflow.tasks.methods.bottleneck.backbone import Backbone, load
from rubricflow.tasks.methods.bottleneck.data import BIAS, MISSING, LabelledData, concepts_of
from rubricflow.tasks.methods.bottleneck.measures import human_rows
from rubricflow.tasks.methods.bottleneck.rater_noise import consensus
from rubricflow.tasks.methods.bottleneck.states import Adapted, Cached, StateEncoder, TunedBackbone, encode

MEAN = "mean"


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
    scores: pd.DataFrame
    """A row for each response, a column for each rater of the data, NaN where there is no score."""
    kinds: Mapping[str, str]
    """Rater of the data → human, adjudication or replayed."""


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
    ids, item_ids, texts = (rows[name].to_pylist() for name in ("response_id", "item_id", "text"))
    gradings = run.read(people)
    judgments = run.read(marks)
    kinds = _rater_kinds(gradings) | _rater_kinds(judgments)
    marks_by_rater = marks_of(judgments, gradings, bundle, ids)
    persons = [name for name, kind in kinds.items() if kind == "human"]
    if labels is None:
        levels, weights = given_levels(plan, bundle, marks_by_rater, persons, len(ids))
    else:
        final = run.read(labels, ["response_id", "criterion_id", "level"]).to_pylist()
        decided = [{**label, "rater_id": "", "decision": label["level"]} for label in final]
        levels = _by_rater(decided, bundle, ids)[""]
        weights = None
    target = target_scores(gradings, study.evaluation.target)
    scores = target.to_pandas().set_index("response_id")["score"].reindex(ids).to_numpy(np.float64)
    item_rows = {item["item_id"]: item for item in run.read(items).to_pylist()}
    answered = []
    for item_id, text in zip(item_ids, texts, strict=True):
        item = item_rows[item_id]
        answered.append(Answered(item["question"], text, item["reference_answer"], item["context"]))
    name = str(base / plan.backbone) if (base / plan.backbone).is_dir() else plan.backbone
    backbone = load(name, plan.max_tokens, plan.match, plan.layer, plan.arithmetic == "bfloat16")
    data = labelled(rows, bundle, levels, scores, plan.bands, weights)
    graded = gradings.select(["response_id", "rater_id", "score"]).to_pandas()
    by_rater = graded.pivot_table("score", "response_id", "rater_id", aggfunc="last")
    encoder = _encoder(run, plan, backbone, answered)
    return ClassSet(
        ground=SharedGround(data, encoder, texts, minilm(), backbone.name, plan),
        backbone=backbone,
        bundle=bundle,
        bundle_id=locked[0]["bundle_id"],
        item_ids=tuple(item_ids),
        answered=tuple(answered),
        target=scores,
        marks=marks_by_rater,
        scores=by_rater.reindex(index=ids, columns=list(kinds)).astype(float),
        kinds=kinds,
    )


def _rater_kinds(table: pa.Table) -> dict[str, str]:
    """Rater → kind, in the order of their ids."""
    kinds = table.group_by(["rater_id", "rater_kind"]).aggregate([]).sort_by("rater_id")
    return dict(zip(kinds["rater_id"].to_pylist(), kinds["rater_kind"].to_pylist(), strict=True))


def _encoder(
    run: Run, plan: Bottleneck, backbone: Backbone, answered: Sequence[Answered]
) -> Callable[[], StateEncoder]:
    """Makes the encoder of an arm. The states of a frozen one are kept in the warehouse, under a digest of backbone and
    tokens, for all runs."""
    tokens = backbone.tokenize(answered)
    if plan.encoder == "tuned":
        return partial(TunedBackbone, backbone, tokens)
    if plan.encoder == "lora":
        return partial(Adapted, backbone, tokens, plan.adapter)
    folder = run.warehouse.root / "states" / digest_of([backbone.name, tokens.digest])[:16]
    return partial(Cached, encode(backbone, tokens, folder))


def common_bundle(bundles: Mapping[str, Bundle]) -> Bundle:
    """The first bundle, where all have the same concepts and scale; InputError where they do not.

    Rubrics of several questions may word a concept differently; its id and its number of levels make it one.
    """
    if not bundles:
        raise InputError("there is no rubric, and so no concept to learn", field="rubrics")
    (first, bundle), *others = bundles.items()
    if any(criterion.id == BIAS for criterion in bundle.criteria):
        raise InputError(f"no concept can be called '{BIAS}', which has a place of its own in a trace", field="rubrics")
    shape = [(c.id, c.top) for c in bundle.criteria]
    for name, other in others:
        if [(c.id, c.top) for c in other.criteria] != shape or other.scale.bounds != bundle.scale.bounds:
            rule = f"rubrics '{first}' and '{name}' differ in concepts, levels or scale; one grader has one bottleneck"
            raise InputError(rule, field="rubrics", hint="train them in studies of their own")
    return bundle


def marks_of(judgments: pa.Table, gradings: pa.Table, bundle: Bundle, response_ids: Sequence[str]) -> dict[str, Floats]:
    """Rater of the data → levels (n, K), NaN where there is none.

    judgments: response_id, criterion_id, rater_id, decision. gradings: response_id, rater_id, trait_scores, for
    concepts that alone make up their trait and have as many levels: a score of the trait is then a label of the
    concept. A judgment wins over a trait's score.
    """
    lone = {}
    for trait in bundle.traits:
        criteria = list(bundle.of_trait(trait.id))
        if len(criteria) == 1 and len(criteria[0].levels) == trait.levels:
            lone[trait.id] = criteria[0].id, trait
    decided = []
    for grading in gradings.to_pylist(maps_as_pydicts="strict"):
        for name, score in grading["trait_scores"].items():
            if name in lone:
                criterion_id, trait = lone[name]
                level = round((score - trait.min) / trait.step)
                decided.append({**grading, "criterion_id": criterion_id, "decision": level})
    return _by_rater([*decided, *judgments.to_pylist()], bundle, response_ids)


def _by_rater(decided: Sequence[Fields], bundle: Bundle, ids: Sequence[str]) -> defaultdict[str, Floats]:
    """Rater → levels (n, K) by rows with response_id, criterion_id, rater_id and decision, of which the last counts;
    NaN where there is none."""
    row_of = {response_id: row for row, response_id in enumerate(ids)}
    column_of = {criterion.id: column for column, criterion in enumerate(bundle.criteria)}
    levels = defaultdict[str, Floats](lambda: np.full((len(row_of), len(column_of)), np.nan))
    for one in decided:
        row = row_of.get(one["response_id"])
        column = column_of.get(one["criterion_id"])
        if one["decision"] is not None and row is not None and column is not None:
            levels[one["rater_id"]][row, column] = one["decision"]
    return levels


def given_levels(
    plan: Bottleneck, bundle: Bundle, marks: Mapping[str, Floats], persons: list[str], n: int
) -> tuple[Floats, Floats | None]:
    """(n, K) the levels that the data's raters give, NaN where there is none, and their weights where raters' noise is
    modelled, see `rater_noise.consensus`. InputError where fewer than two persons marked then."""
    if set(plan.methods) <= {"plm", "cb_llm"} and not marks:  # neither learns from labels of concepts
        return np.full((n, len(bundle.criteria)), np.nan), None
    if not plan.rater_noise:
        return levels_of(marks, plan.labels, persons), None
    persons_levels = [marks[name] for name in persons if name in marks]
    if len(persons_levels) < 2:
        raise InputError("rater_noise needs the marks of at least two persons", field="bottleneck.rater_noise")
    labels = consensus(np.stack(persons_levels, axis=2), concepts_of(bundle).tops)
    for note in filter(None, labels.notes):
        print(f"bottleneck: {note}")
    return np.where(labels.levels == MISSING, np.nan, labels.levels), labels.weights


def levels_of(marks: Mapping[str, Floats], whose: str, persons: Sequence[str]) -> Floats:
    """(n, K) the levels of one rater, or the mean of the persons' rounded half up; NaN where there is none.

    InputError where the rater marked nothing.
    """
    if whose != MEAN:
        if whose not in marks:
            raters = ", ".join(sorted(marks)) or "nobody"
            raise InputError(f"'{whose}' marked no concept; {raters} did", field="bottleneck.labels")
        return marks[whose]
    persons_levels = [marks[name] for name in persons if name in marks]
    if not persons_levels:
        raise InputError("no person marked a concept", field="bottleneck.labels")
    stacked = np.stack(persons_levels)
    count = (~np.isnan(stacked)).sum(axis=0)
    total = np.nansum(stacked, axis=0)
    return np.where(count > 0, np.floor(total / np.maximum(count, 1) + 0.5), np.nan)


def grade_classes(scale: Scale, bands: int | None) -> Floats:
    """(S + 1,) the score that each class stands for: every score of the scale, or the middle of each of `bands` equal
    bands of them.

    InputError where there are more bands than scores.
    """
    if bands is None:
        return np.asarray(scale.min + scale.step * np.arange(scale.levels), np.float64)
    if bands > scale.levels:
        raise InputError(f"{bands} bands of {scale.levels} scores", field="bottleneck.bands")
    band = np.arange(scale.levels) * bands // scale.levels
    middles = [math.floor(np.flatnonzero(band == number).mean() + 0.5) for number in range(bands)]
    return scale.min + scale.step * np.array(middles, np.float64)


def grades_of(scores: Floats, scale: Scale, bands: int | None) -> Ints:
    """(n,) classes of scores, rounded half up to the scale; MISSING where a score is NaN."""
    steps = np.clip(np.floor((scores - scale.min) / scale.step + 0.5), 0, scale.levels - 1)
    index = np.where(np.isnan(scores), 0, steps).astype(np.int64)
    return np.where(np.isnan(scores), MISSING, index if bands is None else index * bands // scale.levels)


def labelled(
    responses: pa.Table,
    bundle: Bundle,
    levels: Floats,
    scores: Floats,
    bands: int | None,
    weights: Floats | None = None,
) -> LabelledData:
    """The labels of a data set.

    responses: response_id and split, sorted by the id. levels: (n, K), scores: (n,) the human score that counts; NaN
    where there is none.
    """
    return LabelledData(
        response_ids=tuple(responses["response_id"].to_pylist()),
        concepts=concepts_of(bundle),
        levels=_classes(levels),
        weights=np.ones(levels.shape) if weights is None else weights,
        grades=grades_of(scores, bundle.scale, bands),
        scores=grade_classes(bundle.scale, bands),
        split=np.array(responses["split"].to_pylist(), np.str_),
    )


def _classes(levels: Floats) -> Ints:
    return np.where(np.isnan(levels), MISSING, levels).astype(np.int64)


def people_rows(responses: ClassSet) -> Iterator[Record]:
    """What one person is worth by another on the test split, and what a machine recorded is worth by the labels."""
    data = responses.ground.data
    plan = responses.ground.plan
    scale = responses.bundle.scale
    marked = {}
    for rater in responses.kinds:
        levels = responses.marks.get(rater, np.full(data.levels.shape, np.nan))
        marked[rater] = _classes(levels), grades_of(responses.scores[rater].to_numpy(), scale, plan.bands)
    persons = [name for name, kind in responses.kinds.items() if kind == "human"]
    for seed, (a, b) in enumerate(combinations(persons, 2)):
        for row in against(responses, marked[a], marked[b]):
            yield row | {"seed": seed, "note": f"{a} and {b}" + (f"; {row['note']}" if row["note"] else "")}
    for name, kind in responses.kinds.items():
        if kind == "replayed":
            for row in against(responses, (data.levels, data.grades), marked[name]):
                yield row | {"method": name}


def against(responses: ClassSet, a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> list[Record]:
    """What one is worth by the other on the test split: levels (n, K) and grades (n,) of each, MISSING for none."""
    data = responses.ground.data
    rows = data.rows("test")
    levels = a[0][rows], b[0][rows]
    trials = human_rows(*levels, a[1][rows], b[1][rows], data.concepts, data.scores)
    human = {"method": "human", "seed": 0, "setting": "", "split": "test"}
    return [human | row for row in trials if row["n"]]


def judgment_rows(responses: ClassSet, outcome: TrainedArm, rater: str) -> Iterator[Record]:
    """The level of every concept of every response, those that it learned from too."""
    levels = outcome.estimates.levels
    chosen = outcome.estimates.chosen()
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


def grading_rows(responses: ClassSet, outcome: TrainedArm, rater: str) -> Iterator[Record]:
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
