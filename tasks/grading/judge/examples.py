"""Which responses that people graded are shown beside another one.

No response is judged beside its own label, for what is calibrated on it would promise too much. A response is kin of
itself, of what its author wrote and of what says the same words; its kin is never among its examples. Nor may what is
left tell who is left out: were the only response of score 3 an example for all but itself, whoever misses a 3 would be
known to have one. So by level every labelled response is shown the same scores: of each score no more examples than the
labelled response with the most kin among them has left. By similarity the own label has no part in the choice.

Likeness is the cosine of TF-IDF weights of n-grams of characters, within words and over the item's labelled responses.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import filterfalse
from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.protocols import WorkedExamples
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.text.tokens import tokens

LONGEST = 1_200
"""Characters of an example that are shown; by level, longer responses are the last to be chosen."""
GRAMS = (2, 5)
"""Shortest and longest n-gram of characters."""


class WorkedExample(NamedTuple):
    """A response as people graded it. Scores are on steps of their scales."""

    response_id: str
    author_id: str | None
    text: str
    score: float
    traits: Mapping[str, float] = {}
    """Trait → score."""
    levels: Mapping[str, int] = {}
    """Criterion → level."""


class GradedItem:
    """What can be shown of one item: its labelled responses, in the order of their ids."""

    def __init__(self, graded: Sequence[WorkedExample], plan: WorkedExamples) -> None:
        """graded: at least one."""
        self._plan = plan
        self._graded = sorted(graded, key=lambda example: example.response_id)
        self._by_name: dict[object, set[int]] = defaultdict(set)
        for index, example in enumerate(self._graded):
            for name in _names(example.response_id, example.author_id, example.text):
                self._by_name[name].add(index)
        from sklearn.feature_extraction.text import TfidfVectorizer  # seconds to import, and few ask for examples

        self._read = TfidfVectorizer(analyzer="char_wb", ngram_range=GRAMS, sublinear_tf=True)
        self._vectors = self._read.fit_transform([_readable(example.text) for example in self._graded])
        self._ranked = self._by_level() if plan.by == "level" else {}
        self._scores_shown = spread(self._never_missing(), plan.count)

    @property
    def shows(self) -> bool:
        """Whether there is anything to show: by level, a score that no labelled response has to miss."""
        return bool(self._scores_shown) if self._plan.by == "level" else len(self._graded) > 1

    def beside(self, response_id: str, author_id: str | None, text: str) -> tuple[WorkedExample, ...]:
        """The examples for a response, the most wanted first; fewer than the plan's where there are no more."""
        kin = self._kin(response_id, author_id, text)
        if self._plan.by == "similarity":
            near = [index for index in self._nearest(text) if index not in kin]
            return tuple(self._graded[index] for index in near[: self._plan.count])
        others = {score: filterfalse(kin.__contains__, ranked) for score, ranked in self._ranked.items()}
        chosen = [next(others[score], None) for score in self._scores_shown]
        return tuple(self._graded[index] for index in chosen if index is not None)

    def _kin(self, response_id: str, author_id: str | None, text: str) -> set[int]:
        """The labelled responses that are this one, its author's or the same words."""
        kin = [self._by_name.get(name, set()) for name in _names(response_id, author_id, text)]
        return set().union(*kin)

    def _nearest(self, text: str) -> list[int]:
        """The labelled responses, the most alike first; those as alike in the order of their ids."""
        alike = (self._vectors @ self._read.transform([_readable(text)]).T).toarray().ravel()
        return [int(index) for index in np.argsort(-np.round(alike, 9), kind="stable")]

    def _by_level(self) -> dict[float, list[int]]:
        """Score → its labelled responses, the most typical first: the closest to the others on average; those that
        would be cut come last."""
        by_score: dict[float, list[int]] = defaultdict(list)
        for index, example in enumerate(self._graded):
            by_score[example.score].append(index)
        return {score: self._typical(indices) for score, indices in sorted(by_score.items())}

    def _typical(self, indices: list[int]) -> list[int]:
        vectors = self._vectors[indices]
        central: Floats = np.round(np.asarray(vectors @ vectors.sum(axis=0).T).ravel(), 9)
        is_cut = np.array([len(self._graded[index].text) > LONGEST for index in indices])
        return [indices[rank] for rank in np.lexsort((-central, is_cut))]

    def _never_missing(self) -> dict[float, int]:
        """Score → examples that no labelled response has to miss: all of it, less the most that are kin of one."""
        most = Counter[float]()
        for example in self._graded if self._ranked else ():
            kin = self._kin(example.response_id, example.author_id, example.text)
            most |= Counter(self._graded[index].score for index in kin)
        return {score: len(ranked) - most[score] for score, ranked in self._ranked.items()}


def spread(available: Mapping[float, int], count: int) -> list[float]:
    """At most `count` scores, the most wanted first: the lowest, then what is farthest from all before it, and again
    from the lowest when every score was there. available: score → how often it may stand."""
    free, order, before = Counter(dict(available)), list[float](), list[float]()
    while len(order) < count and any(free.values()):
        open_scores = [score for score in sorted(free) if free[score] and score not in before]
        if not open_scores:
            before = []
            continue
        score = max(open_scores, key=lambda score: min((abs(score - other) for other in before), default=-score))
        free[score] -= 1
        before.append(score)
        order.append(score)
    return order


def _names(response_id: str, author_id: str | None, text: str) -> list[tuple[str, object]]:
    """What its kin has in common with a response."""
    names: list[tuple[str, object]] = [("response", response_id), ("words", tuple(tokens(text)))]
    return names if author_id is None else [*names, ("author", author_id)]


def _readable(text: str) -> str:
    """The text as its words; never nothing, of which no n-gram could be made."""
    return " ".join(tokens(text)) or "-"
