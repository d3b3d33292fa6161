"""Worked examples of a study: what people graded outside the test split, with every response that is judged."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import filterfalse
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, WorkedExamples
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.scores import people_marks, target_scores
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.grading.judge.rows import LONGEST, Case, WorkedExample
from rubricflow.tasks.grading.judge.score import round_half_up
from rubricflow.tasks.grading.judge.stored_cases import sheets_of

GRAMS = (2, 5)
"""Shortest and longest n-gram of characters."""


class GradedItem:
    """What can be shown of one item: its labelled responses, in the order of their ids."""

    def __init__(self, graded: Sequence[WorkedExample], plan: WorkedExamples) -> None:
        """graded: at least one."""
        self._plan = plan
        self._graded = sorted(graded, key=lambda example: example.response_id)
        self._words = [tokens(example.text) for example in self._graded]
        from sklearn.feature_extraction.text import TfidfVectorizer  # seconds to import, and few ask for examples

        self._read = TfidfVectorizer(analyzer="char_wb", ngram_range=GRAMS, sublinear_tf=True)
        self._vectors = self._read.fit_transform([_readable(example.text) for example in self._graded])
        self._ranked: dict[float, list[int]] = {}
        # Score → examples that no labelled response has to miss: all of it, less the most that are kin of one.
        available = {}
        if plan.by == "level":
            scores = np.array([example.score for example in self._graded])
            is_cut = np.array([len(example.text) > LONGEST for example in self._graded])
            kin = [self._kin(example.response_id, example.author_id, example.text) for example in self._graded]
            for score in np.unique(scores).tolist():
                # The most typical first, the closest to the others on average; those that would be cut last.
                indices = np.flatnonzero(scores == score)
                vectors = self._vectors[indices]
                central: Floats = np.round(np.asarray(vectors @ vectors.sum(axis=0).T).ravel(), 9)
                self._ranked[score] = indices[np.lexsort((-central, is_cut[indices]))].tolist()
                available[score] = len(indices) - max(int((scores[list(of_one)] == score).sum()) for of_one in kin)
        self._scores_shown = spread(available, plan.count)

    @property
    def shows(self) -> bool:
        """Whether there is anything to show: by level, a score that no labelled response has to miss."""
        return bool(self._scores_shown) if self._plan.by == "level" else len(self._graded) > 1

    def beside(self, response_id: str, author_id: str | None, text: str) -> tuple[WorkedExample, ...]:
        """The examples for a response, the most wanted first; fewer than the plan's where there are no more."""
        kin = self._kin(response_id, author_id, text)
        if self._plan.by == "similarity":
            # The most alike first; those as alike in the order of their ids.
            alike = (self._vectors @ self._read.transform([_readable(text)]).T).toarray().ravel()
            near = [index for index in np.argsort(-np.round(alike, 9), kind="stable").tolist() if index not in kin]
            return tuple(self._graded[index] for index in near[: self._plan.count])
        others = {score: filterfalse(kin.__contains__, ranked) for score, ranked in self._ranked.items()}
        chosen = [next(others[score], None) for score in self._scores_shown]
        return tuple(self._graded[index] for index in chosen if index is not None)

    def _kin(self, response_id: str, author_id: str | None, text: str) -> set[int]:
        """The labelled responses that are this one, its author's or the same words."""
        words, found = tokens(text), set[int]()
        for index, one in enumerate(self._graded):
            by_author = author_id is not None and one.author_id == author_id
            if by_author or one.response_id == response_id or self._words[index] == words:
                found.add(index)
        return found


def spread(available: Mapping[float, int], count: int) -> list[float]:
    """At most `count` scores, the most wanted first: the lowest, then what is farthest from all before it, and again
    from the lowest when every score was there. available: score → how often it may stand."""
    free = Counter(dict(available))
    order = list[float]()
    before = list[float]()
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


def _readable(text: str) -> str:
    """The text as its words; never nothing, of which no n-gram could be made."""
    return " ".join(tokens(text)) or "-"


TAUGHT = ("train", *CALIBRATES, "chosen")
"""The splits whose labels a judge may see."""
_HINT = (
    "examples are responses of the calibration split that people scored, with marks on every criterion under pointwise "
    "and scores of every judged trait under mts and unlocked; by level two of a score, of different authors and words"
)
_SOME = 3
"""Items that an error names."""


class People(NamedTuple):
    """Human gradings and judgments, and whose count: see `Evaluation.target`."""

    gradings: TableRef
    judgments: TableRef
    target: str


def teaching_of(
    run: Run,
    plan: WorkedExamples | None,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    people: People | None,
) -> Callable[[list[Case]], list[Case]]:
    """Gives cases the worked examples that they are shown; the same cases where the study asks for none.

    InputError for items of which people graded nothing that could be shown.
    """
    if plan is None:
        return lambda cases: cases
    assert people is not None  # flows that know nobody's grading refuse the setting
    graded = _graded(run, items, responses, bundles, people)
    item_ids = pc.unique(run.read(responses, ["item_id"])["item_id"]).to_pylist()
    graded_items = {item_id: GradedItem(examples, plan) for item_id, examples in graded.items() if examples}
    shown = {item_id for item_id, item in graded_items.items() if item.shows}
    if lacking := sorted(set(item_ids) - shown):
        some = ", ".join(f"'{name}'" for name in lacking[:_SOME])
        more = f" and {len(lacking) - _SOME} more" if len(lacking) > _SOME else ""
        most = max(len(graded.get(name, ())) for name in lacking)
        rule = f"there is no worked example to show for item {some}{more}, with {most} usable labels at most"
        raise InputError(rule, field="judge.examples", hint=_HINT)

    def teaching(cases: list[Case]) -> list[Case]:
        mine = ds.field("response_id").isin([case.response_id for case in cases])
        rows = run.read(responses, ["response_id", "author_id"], mine)
        author = dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))
        with_examples = []
        for case in cases:
            examples = graded_items[case.item_id].beside(case.response_id, author[case.response_id], case.text)
            with_examples.append(replace(case, examples=examples))
        return with_examples

    return teaching


def _graded(
    run: Run, items: TableRef, responses: TableRef, bundles: TableRef, people: People
) -> dict[str, list[WorkedExample]]:
    """Item → its responses outside the test split that people graded as far as the protocol shows it."""
    columns = ["response_id", "item_id", "author_id", "text"]
    rows = run.read(responses, columns, ds.field("split").isin(TAUGHT))
    sheets, (scores, trait_scores, levels) = sheets_of(run, items, bundles), _marks(run, people, rows["response_id"])
    of_item = defaultdict[str, list[dict[str, Any]]](list)
    for row in rows.to_pylist():
        if row["response_id"] in scores:
            of_item[row["item_id"]].append(row)
    graded = {}
    for item_id, mine in of_item.items():
        _, bundle, _ = sheets[item_id]
        judged = bundle.judged
        teaches = PROTOCOLS[bundle.protocol.name].teaches
        # Where the protocol states no score, people must have decided all that it states.
        required = {trait.id for trait in judged} if "traits" in teaches else set()
        required |= {criterion.id for criterion in bundle.criteria} if "criteria" in teaches else set()
        # Criteria that people marked on more levels than the bundle has cannot be shown.
        comparable = {criterion.id: criterion.top for criterion in bundle.criteria}
        for row in mine:
            for name, level in levels.get(row["response_id"], {}).items():
                if level > comparable.get(name, -1):
                    comparable.pop(name, None)
        examples = []
        for row in mine:
            response_id = row["response_id"]
            means = trait_scores.get(response_id, {})
            marked = levels.get(response_id, {})
            traits = {trait.id: round_half_up(means[trait.id], trait) for trait in judged if trait.id in means}
            decided = {name: int(level + 0.5) for name, level in marked.items() if name in comparable}
            if "score" in teaches or required <= traits.keys() | decided.keys():
                score = round_half_up(scores[response_id], bundle.scale)
                examples.append(WorkedExample(response_id, row["author_id"], row["text"], score, traits, decided))
        graded[item_id] = examples
    return graded


Means = dict[str, dict[str, float]]
"""Response → trait or criterion → mean of the marks that count."""


def _marks(run: Run, people: People, ids: pa.ChunkedArray) -> tuple[dict[str, float], Means, Means]:
    """Scores, trait scores and levels of these responses: those by a named target or, where it gave none of a kind,
    everybody's."""
    mine = ds.field("response_id").isin(ids.combine_chunks())
    gradings = run.read(people.gradings, ["response_id", "rater_id", "rater_kind", "score", "trait_scores"], mine)
    judgments = run.read(people.judgments, ["response_id", "criterion_id", "rater_id", "rater_kind", "decision"], mine)
    scores = target_scores(gradings.select(["response_id", "rater_id", "rater_kind", "score"]), people.target)
    levels = people_marks(judgments, people.target).select(["response_id", "criterion_id", "decision"])
    rows = [row for row in gradings.to_pylist(maps_as_pydicts="strict") if row["trait_scores"]]
    by_target = [row for row in rows if row["rater_id"] == people.target]
    traits = []
    for row in by_target or [row for row in rows if row["rater_kind"] == "human"]:
        traits += [(row["response_id"], name, score) for name, score in row["trait_scores"].items()]
    return (
        dict(zip(*(column.to_pylist() for column in scores.columns), strict=True)),
        _means(traits),
        _means(tuple(row.values()) for row in levels.to_pylist()),
    )


def _means(marks: Iterable[Sequence[Any]]) -> Means:
    """The means of (response, name, number)."""
    numbers = defaultdict[str, dict[str, list[float]]](lambda: defaultdict(list))
    for response_id, name, number in marks:
        numbers[response_id][name].append(number)
    means = {}
    for response_id, by_name in numbers.items():
        means[response_id] = {name: fmean(sorted(values)) for name, values in by_name.items()}
    return means
