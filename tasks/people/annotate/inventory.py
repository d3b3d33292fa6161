"""Whether an inventory of concepts keeps what it is constructed by (REC-CBM, appendix C.3): rows of `constructions`.

Coverage: the concepts decide the grade. Non-redundancy: no concept re-scores what another one scores. Ordinal anchors:
every level has a descriptor of its own, and higher levels go with higher grades. Without labels only the rubric's form
and wording are judged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold, cross_val_predict

from rubricflow.tasks.core.contracts.bundle import Criterion, Rubric
from rubricflow.tasks.core.display.table import Record
from rubricflow.tasks.core.stats.agreement import spearman
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.tokens import tokens

COVERED = 0.5
"""Share of the grades' variance, predicted from the concepts, that they must tell: below it more of what decides the
grade lies outside the concepts than inside."""
REDUNDANT = 0.9
"""Rank correlation from which two concepts tell the same: .81 of the variance of one's ranks is then the other's, about
what two good raters of one concept share."""
SAME_WORDS = 0.6
"""Share of common words from which two statements are one in other words: they differ in less than every second."""
FEWEST = 30
"""Labelled responses below which figures say nothing: four of their five folds are three responses for each of eight
concepts."""
FOLDS = 5
NOISE = 2.0
"""Standard errors by which a mean grade must fall from one level to the next before it counts as falling."""


def constructions(rubric: Rubric, labels: Ints | None = None, grades: Floats | None = None) -> list[Record]:
    """Rows of `constructions`: for every trait and all concepts, every pair of concepts, and every concept.

    labels: (n, C) levels of the rubric's criteria in their order, -1 where there is none; those of a criterion that is
    made of its sub-points do not count. grades: (n,) on the rubric's scale, NaN where there is none.
    """
    if labels is None:
        labels = np.empty((0, len(rubric.criteria)), np.int64)
    if grades is None:
        grades = np.full(len(labels), np.nan)
    parents = {criterion.parent for criterion in rubric.criteria}
    decided = [place for place, criterion in enumerate(rubric.criteria) if criterion.id not in parents]
    concepts, labels = [rubric.criteria[place] for place in decided], labels[:, decided]
    findings = {
        "coverage": _coverage(rubric, concepts, labels, grades),
        "non_redundancy": _redundancy(concepts, labels),
        "ordinal_anchors": _anchors(concepts, labels, grades),
    }
    rows = []
    for rule, of_rule in findings.items():
        rows += [{"rubric_id": rubric.rubric_id, "rule": rule, **finding._asdict()} for finding in of_rule]
    return rows


class RuleFinding(NamedTuple):
    """What a rule finds, in the columns of `constructions`."""

    subject: str
    value: float | None
    limit: float | None
    outcome: str
    detail: str


def _coverage(rubric: Rubric, concepts: Sequence[Criterion], labels: Ints, grades: Floats) -> Iterator[RuleFinding]:
    for trait in rubric.traits:
        count = sum(concept.trait == trait.id for concept in concepts)
        yield RuleFinding(trait.id, float(count), 1.0, _outcome(count > 0), f"{count} concepts count for it")
    complete = (labels >= 0).all(axis=1) & np.isfinite(grades)
    n = int(complete.sum())
    share = explained(labels[complete], grades[complete]) if n >= FEWEST else None
    if share is None:
        detail = f"{n} responses have all labels and a grade; {FEWEST} with unlike grades are needed"
        yield RuleFinding("all", None, COVERED, "unknown", detail)
    else:
        detail = f"a line through the concepts tells {share:.0%} of the variance of {n} grades that it did not see"
        yield RuleFinding("all", share, COVERED, _outcome(share >= COVERED), detail)


def explained(labels: Ints, grades: Floats) -> float | None:
    """Cross-validated R² of the grade by a ridge on the levels, ≤ 1; None where all grades are one.

    labels: (n, K) without gaps; grades: (n,). Each fold is predicted by the line of the others.
    """
    spread = float(((grades - grades.mean()) ** 2).sum())
    if spread == 0:
        return None
    folds = KFold(FOLDS, shuffle=True, random_state=0)
    predicted = cross_val_predict(Ridge(alpha=1.0), labels.astype(np.float64), grades, cv=folds)
    return 1 - float(((grades - predicted) ** 2).sum()) / spread


def _redundancy(concepts: Sequence[Criterion], labels: Ints) -> Iterator[RuleFinding]:
    words = [set(tokens(concept.text)) for concept in concepts]
    for i, j in combinations(range(len(concepts)), 2):
        subject = f"{concepts[i].id} and {concepts[j].id}"
        both = labels[(labels[:, i] >= 0) & (labels[:, j] >= 0)][:, [i, j]]
        rho = spearman(*both.T).value if len(both) >= FEWEST else None
        if rho is not None:
            detail = f"their labels of {len(both)} responses correlate with {rho:.2f}"
            yield RuleFinding(subject, abs(rho), REDUNDANT, _outcome(abs(rho) < REDUNDANT), detail)
            continue
        share = len(words[i] & words[j]) / max(len(words[i] | words[j]), 1)
        detail = f"they share {share:.0%} of their words; too few labels, or all alike, to correlate"
        yield RuleFinding(subject, share, SAME_WORDS, "unknown" if share < SAME_WORDS else "broken", detail)


def _anchors(concepts: Sequence[Criterion], labels: Ints, grades: Floats) -> Iterator[RuleFinding]:
    for k, concept in enumerate(concepts):
        distinct = len({folded(anchor) for anchor in concept.levels if anchor.strip()})
        if distinct < len(concept.levels):
            detail = f"{distinct} of its {len(concept.levels)} levels have a descriptor of their own"
            yield RuleFinding(concept.id, float(distinct), float(len(concept.levels)), "broken", detail)
            continue
        graded = (labels[:, k] >= 0) & np.isfinite(grades)
        yield RuleFinding(concept.id, *_rising(labels[graded, k], grades[graded], concept.top))


def _rising(levels: Ints, grades: Floats, top: int) -> tuple[float | None, float | None, str, str]:
    """Whether the mean grade rises with the level: the smallest step from a level to the next, in grade points."""
    counts = np.bincount(levels, minlength=top + 1)
    if len(levels) < FEWEST:
        return None, 0.0, "unknown", f"descriptors differ; {len(levels)} graded labels, {FEWEST} are needed"
    if not counts.all():
        unused = ", ".join(str(level) for level in np.flatnonzero(counts == 0))
        return None, 0.0, "broken", f"descriptors differ; nobody gives level {unused}"
    means = np.bincount(levels, grades, top + 1) / counts
    within = ((grades - means[levels]) ** 2).sum() / max(len(levels) - top - 1, 1)
    steps = np.diff(means)
    noise = NOISE * np.sqrt(within * (1 / counts[:-1] + 1 / counts[1:]))
    level = int(steps.argmin())
    smallest = float(steps[level])
    detail = f"descriptors differ; the mean grade moves least from level {level} to {level + 1}, by {smallest:+.2f}"
    if (steps < -noise).any():
        return smallest, 0.0, "broken", detail
    if not (steps > 0).all():
        return smallest, 0.0, "unknown", f"{detail}, within chance"
    return smallest, 0.0, "kept", detail


def _outcome(holds: bool) -> str:
    return "kept" if holds else "broken"
