"""Tables → what graders learn from: a bundle's criteria are the concepts, people's marks their labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from rubricflow.tasks.core.contracts.bundle import Bundle, Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, LabelledData
from rubricflow.tasks.methods.bottleneck.rater_noise import consensus
from rubricflow.tasks.methods.bottleneck.trace import BIAS

MEAN = "mean"


def concepts_of(bundle: Bundle) -> Concepts:
    """The decided criteria of a bundle, in its order."""
    criteria = bundle.criteria
    return Concepts(
        ids=tuple(criterion.id for criterion in criteria),
        names=tuple(bundle.names.values()),
        texts=tuple(criterion.text for criterion in criteria),
        anchors=tuple(criterion.levels for criterion in criteria),
    )


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


def lone_traits(bundle: Bundle) -> dict[str, str]:
    """Trait → the criterion that alone makes it up, where their levels are as many: a score of the trait is then a
    label of the criterion."""
    criterion_of = {}
    for trait in bundle.traits:
        criteria = list(bundle.of_trait(trait.id))
        if len(criteria) == 1 and len(criteria[0].levels) == trait.levels:
            criterion_of[trait.id] = criteria[0].id
    return criterion_of


def marks_of(judgments: pa.Table, gradings: pa.Table, bundle: Bundle, response_ids: Sequence[str]) -> dict[str, Floats]:
    """Rater of the data → levels (n, K), NaN where there is none.

    judgments: response_id, criterion_id, rater_id, decision. gradings: response_id, rater_id, trait_scores, for
    concepts that alone make up their trait. A judgment wins over a trait's score.
    """
    row_of = {response_id: row for row, response_id in enumerate(response_ids)}
    column_of = {criterion.id: column for column, criterion in enumerate(bundle.criteria)}
    marks: dict[str, Floats] = {}

    def levels(rater: str) -> Floats:
        return marks.setdefault(rater, np.full((len(row_of), len(column_of)), np.nan))

    scales = {trait.id: trait for trait in bundle.traits}
    criterion_of = lone_traits(bundle)
    for grading in gradings.to_pylist(maps_as_pydicts="strict"):
        for trait, score in grading["trait_scores"].items():
            if trait in criterion_of and grading["response_id"] in row_of:
                place = row_of[grading["response_id"]], column_of[criterion_of[trait]]
                levels(grading["rater_id"])[place] = round((score - scales[trait].min) / scales[trait].step)
    for judgment in judgments.to_pylist():
        row, column = row_of.get(judgment["response_id"]), column_of.get(judgment["criterion_id"])
        if judgment["decision"] is not None and row is not None and column is not None:
            levels(judgment["rater_id"])[row, column] = judgment["decision"]
    return marks


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
    """(S + 1,) the score that each class stands for: every score of the scale, or the middle of each band.

    InputError where there are more bands than scores.
    """
    if bands is None:
        return np.asarray(scale.min + scale.step * np.arange(scale.levels), np.float64)
    if bands > scale.levels:
        raise InputError(f"{bands} bands of {scale.levels} scores", field="bottleneck.bands")
    band = _band(np.arange(scale.levels), scale.levels, bands)
    middles = [math.floor(np.flatnonzero(band == number).mean() + 0.5) for number in range(bands)]
    return scale.min + scale.step * np.array(middles, np.float64)


def grades_of(scores: Floats, scale: Scale, bands: int | None) -> Ints:
    """(n,) classes of scores, rounded half up to the scale; MISSING where a score is NaN."""
    steps = np.clip(np.floor((scores - scale.min) / scale.step + 0.5), 0, scale.levels - 1)
    index = np.where(np.isnan(scores), 0, steps).astype(np.int64)
    classes = index if bands is None else _band(index, scale.levels, bands)
    return np.where(np.isnan(scores), MISSING, classes)


def labelled(
    responses: pa.Table,
    bundle: Bundle,
    levels: Floats,
    scores: Mapping[str, float],
    bands: int | None,
    weights: Floats | None = None,
) -> LabelledData:
    """The labels of a data set.

    responses: response_id and split, sorted by the id. levels: (n, K), NaN where there is none. scores: response → the
    human score that counts.
    """
    ids = responses["response_id"].to_pylist()
    targets = np.array([scores.get(response_id, np.nan) for response_id in ids], np.float64)
    split = np.array(responses["split"].to_pylist(), np.str_)
    classes = np.where(np.isnan(levels), MISSING, levels).astype(np.int64)
    if weights is None:
        weights = np.ones(levels.shape)
    return LabelledData(
        response_ids=tuple(ids),
        concepts=concepts_of(bundle),
        levels=classes,
        weights=weights,
        grades=grades_of(targets, bundle.scale, bands),
        scores=grade_classes(bundle.scale, bands),
        split=split,
    )


def weighed(marks: Mapping[str, Floats], persons: Sequence[str], tops: Ints) -> tuple[Floats, Floats, Sequence[str]]:
    """(n, K) levels, NaN without marks, and weights by the persons' own noise, and what is to be known about it, see
    `rater_noise.consensus`. InputError where fewer than two persons marked."""
    persons_levels = [marks[name] for name in persons if name in marks]
    if len(persons_levels) < 2:
        raise InputError("rater_noise needs the marks of at least two persons", field="bottleneck.rater_noise")
    labels = consensus(np.stack(persons_levels, axis=2), tops)
    levels = np.where(labels.levels == MISSING, np.nan, labels.levels)
    return levels, labels.weights, [note for note in labels.notes if note]


def _band(index: Ints, levels: int, bands: int) -> Ints:
    """Equal bands of the scale's scores."""
    band: Ints = index * bands // levels
    return band
