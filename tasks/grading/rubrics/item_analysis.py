"""Item analysis: a checklist's criteria held against the scores that people gave.

Classical item statistics (Lord and Novick 1968; Henrysson 1963 for the corrected item-total correlation), with the
difference that what counts is people's score: how often each level occurs, how far a criterion's decisions go with that
score and with the other criteria, what the sum loses without it, which criteria are one, and what answers say that
people pay for and no criterion names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.composite import composed, composition, levels_counted, together
from rubricflow.tasks.core.llm.encoder import Encoder
from rubricflow.tasks.core.stats.agreement import pearson
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import Difference, Interval, bootstrap, paired_bootstrap
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.rubrics.findings import RubricFinding

MARK_RULES: Mapping[str, str] = {
    "against_people": "its decisions go against people's scores",
    "constant": "it has one level on all answers",
    "harmful": "the sum agrees better without it",
    "one_pair": "two criteria are decided alike",
    "unnamed": "what people pay for and no criterion names",
}
FEWEST = 20
"""Answers with a score by people below which nothing is told of a rubric's criteria."""
_RARE = 5
"""Answers at another level than most below which a criterion is not held against people's scores."""
_ONE = 0.97
"""Share of equal decisions from which two criteria are one."""
_SAME_MEANING = 0.6
"""Cosine from which two sentences are of one group."""
_FEWEST_WORDS = 3


class MarkedAnswer(NamedTuple):
    """An answer with the score that people gave."""

    text: str
    score: float


@dataclass(frozen=True)
class ScoredAnswers:
    """Answers to be scored by one bundle, which people scored too."""

    bundle: Bundle
    ids: tuple[str, ...]
    """(n,) of the responses."""
    texts: tuple[str, ...]
    """(n,)."""
    clusters: tuple[str, ...]
    """(n,) author, or the response itself where nobody knows him."""
    people: Floats
    """(n,) on the bundle's scale."""
    levels: dict[str, Floats]
    """Decided criterion → (n,) its level, NaN where there is none."""
    credited: tuple[tuple[tuple[int, int], ...], ...]
    """(n,) of each answer the spans [start, end) of quotes that stand, of decisions above 0."""

    @property
    def total(self) -> Floats:
        """(n,) what the checklist comes to, see `checklist_sum`."""
        return checklist_sum(self.bundle, counted_shares(self.bundle, self.levels))

    def of(self, keep: Sequence[int]) -> ScoredAnswers:
        """Some of the answers, by place."""
        places = list(keep)
        return ScoredAnswers(
            bundle=self.bundle,
            ids=tuple(self.ids[i] for i in keep),
            texts=tuple(self.texts[i] for i in keep),
            clusters=tuple(self.clusters[i] for i in keep),
            people=self.people[places],
            levels={name: column[places] for name, column in self.levels.items()},
            credited=tuple(self.credited[i] for i in keep),
        )


class ItemStatistics(NamedTuple):
    """What marks say of one criterion."""

    criterion: str
    n: int
    """Answers on which it was decided."""
    shares: tuple[float, ...]
    """How often each level occurs, lowest first."""
    with_people: float | None
    """Correlation of its points with people's score, -1 to 1; positive is right, also of what costs points."""
    with_people_interval: Interval
    with_rest: float | None
    """Correlation of its points with the sum of the other criteria, -1 to 1."""
    adds: Difference
    """QWK of the sum with people less that of the sum without it; of some answers where some lack a decision."""
    adds_r2: float | None
    """The same of the squared correlation of the sum, not rounded."""


def counted_shares(bundle: Bundle, levels: Mapping[str, Floats]) -> dict[str, Floats]:
    """Decided criterion → (n,) the level that it counts at as a share of its highest, 0 to 1; NaN where it has none.

    levels: decided criterion → (n,).
    """
    tops = {criterion.id: criterion.top for criterion in bundle.criteria}
    shares = {}
    for name, counted in levels_counted(bundle).items():
        worth = np.array(counted, dtype=np.float64) / tops[name]
        shares[name] = np.where(np.isnan(levels[name]), np.nan, worth[np.nan_to_num(levels[name]).astype(int)])
    return shares


def checklist_sum(bundle: Bundle, shares: Mapping[str, Floats]) -> Floats:
    """The scores that the checklist alone comes to by the bundle's counting rule, not rounded; (n,) NaN where one of
    its criteria is not decided. Where the judge states the score it is the share of weighted points.

    shares: see `counted_shares`.
    """
    reached = composed(
        composition(bundle), {one.id: shares[one.id] for one in bundle.criteria}, lambda share: np.clip(share, 0.0, 1.0)
    )
    whole = bundle.whole
    if bundle.protocol.final_score not in ("trait_mean", "trait_sum"):
        return _onto(_share(whole, reached), bundle.scale.min, bundle.scale.max)
    of_traits = [(trait, [criterion for criterion in whole if criterion.trait == trait.id]) for trait in bundle.traits]
    by_trait = [(trait, _share(criteria, reached)) for trait, criteria in of_traits if criteria]
    if bundle.protocol.final_score == "trait_sum":
        summed: Floats = np.sum([_onto(share, trait.min, trait.max) for trait, share in by_trait], axis=0)
        return summed
    return _onto(np.mean([share for _, share in by_trait], axis=0), bundle.scale.min, bundle.scale.max)


def _share(criteria: Sequence[Criterion], reached: Mapping[str, Floats]) -> Floats:
    earned = np.sum([criterion.weight * reached[criterion.id] for criterion in criteria], axis=0)
    positive = together([criterion for criterion in criteria if criterion.weight > 0])
    share: Floats = earned / positive if positive else 1 + earned / (together(criteria) or 1.0)
    return np.clip(share, 0.0, 1.0)


def _onto(share: Floats, low: float, high: float) -> Floats:
    return low + share * (high - low)


def without(bundle: Bundle, name: str) -> Bundle | None:
    """The bundle without a decided criterion, and without composites that then have no sub-points; None where nothing
    is left of a trait."""
    criteria = tuple(criterion for criterion in bundle.criteria if criterion.id != name)
    composites = bundle.composites
    while gone := {one.id for one in composites} - {one.parent for one in (*criteria, *composites)}:
        composites = tuple(one for one in composites if one.id not in gone)
    ids = {one.id for one in (*criteria, *composites)}
    kept = []
    for one in composites:
        needs = tuple(need for need in one.count.needs if need in ids) if one.count else ()
        kept.append(
            one.model_copy(update={"count": one.count.model_copy(update={"needs": needs})}) if one.count else one
        )
    traits = {trait.id for trait in bundle.traits if trait.source == "derived"}
    if traits - {one.trait for one in (*criteria, *kept) if one.parent is None and one.weight}:
        return None
    return bundle.model_copy(update={"criteria": criteria, "composites": tuple(kept)})


def item_statistics(answers: ScoredAnswers, draws: int, seed: int) -> list[ItemStatistics]:
    """Of every criterion that was decided twice, in the bundle's order; intervals resample authors."""
    bundle, scale = answers.bundle, answers.bundle.scale.bounds
    shares = counted_shares(bundle, answers.levels)
    total = checklist_sum(bundle, shares)
    decided = ~np.isnan(total)
    clusters = np.array(answers.clusters)
    rows = []
    for criterion in bundle.criteria:
        at = answers.levels[criterion.id]
        own = ~np.isnan(at)
        if own.sum() < 2:
            continue
        points = shares[criterion.id] * (-1 if criterion.weight < 0 else 1)
        of_people = pearson(answers.people[own], points[own]).value
        ends = bootstrap(answers.people[own], points[own], clusters[own], scale, draws, seed)["pearson"]
        rest, adds, r2 = None, Difference(None, None, None, None, 0, 0), None
        fewer = without(bundle, criterion.id)
        if fewer is not None and decided.any():
            others = checklist_sum(fewer, shares)[decided]
            people, whole = answers.people[decided], total[decided]
            rest = pearson(points[decided], others).value
            adds = paired_bootstrap(people, others, whole, clusters[decided], scale, draws, seed)["qwk"]
            r2 = _squared(people, whole) - _squared(people, others)
        occurs = tuple(float(np.mean(at[own] == level)) for level in range(criterion.top + 1))
        rows.append(ItemStatistics(criterion.id, int(own.sum()), occurs, of_people, ends, rest, adds, r2))
    return rows


def _squared(people: Floats, score: Floats) -> float:
    return (pearson(people, score).value or 0.0) ** 2


def pairs_that_are_one(answers: ScoredAnswers) -> list[tuple[str, str, float]]:
    """(criterion, criterion, share of equal decisions) of the pairs that are decided alike on nearly all answers,
    though neither has one level throughout."""
    found = []
    tops = {criterion.id: criterion.top for criterion in answers.bundle.criteria}
    varying = [name for name, at in answers.levels.items() if len(np.unique(at[~np.isnan(at)])) > 1]
    for first, second in combinations(varying, 2):
        a, b = answers.levels[first] / tops[first], answers.levels[second] / tops[second]
        both = ~np.isnan(a) & ~np.isnan(b)
        a, b = a[both], b[both]
        # Where both are nearly always 0 they are equal by that alone: the answers with either must agree, too.
        either = (a > 0) | (b > 0)
        if len(a) >= FEWEST and either.sum() >= 5 and min(np.mean(a == b), np.mean(a[either] == b[either])) >= 0.9:
            share = float(np.mean(a == b))
            found += [(first, second, share)] if share >= _ONE else []
    return found


class Apart(NamedTuple):
    """An answer on which checklist and people differ."""

    response_id: str
    text: str
    people: float
    checklist: float


def furthest(answers: ScoredAnswers, most: int = 10) -> list[Apart]:
    """The answers on which the checklist's sum, rounded to nothing, and people differ most, by at least half a step."""
    total = answers.total
    gap = np.nan_to_num(np.abs(total - answers.people))
    order = sorted(range(len(gap)), key=lambda i: (-gap[i], answers.ids[i]))[:most]
    near = answers.bundle.scale.step / 2
    return [
        Apart(answers.ids[i], answers.texts[i], float(answers.people[i]), float(total[i]))
        for i in order
        if gap[i] > near
    ]


class Unnamed(NamedTuple):
    """Sentences of one meaning in answers that people scored higher than the checklist, which no quote covers."""

    representative: str
    answers: tuple[str, ...]
    """Ids of the answers, by id."""


def unnamed(answers: ScoredAnswers, encode: Encoder, most: int = 10) -> list[Unnamed]:
    """What answers say that no criterion names: the sentences, without a quote that stands, of answers that people
    scored at least a step higher than the checklist; groups of like meaning, of most answers first."""
    total = answers.total
    paid_more = np.flatnonzero(np.nan_to_num(answers.people - total) >= answers.bundle.scale.step - 1e-9)
    sentences = [(answers.ids[i], sentence) for i in paid_more for sentence in _uncovered(answers, int(i))]
    if not sentences:
        return []
    vectors = encode([sentence for _, sentence in sentences])
    alike = vectors @ vectors.T
    left, groups = np.ones(len(sentences), dtype=bool), list[Unnamed]()
    while left.any() and len(groups) < most:  # the largest is taken first
        near = (alike >= _SAME_MEANING) & left[None, :] & left[:, None]
        names = [{sentences[j][0] for j in np.flatnonzero(row)} for row in near]
        best = max(np.flatnonzero(left), key=lambda i: (len(names[i]), float(alike[i][near[i]].sum()), -i))
        groups.append(Unnamed(sentences[best][1], tuple(sorted(names[best]))))
        left &= ~near[best]
        left[best] = False
    return groups


def _uncovered(answers: ScoredAnswers, i: int) -> Iterator[str]:
    text = answers.texts[i]
    for unit in units(text):
        overlaps = any(start < unit.end and unit.start < end for start, end in answers.credited[i])
        sentence = " ".join(text[unit.start : unit.end].split())
        if unit.kind == "sentence" and not overlaps and len(tokens(sentence)) >= _FEWEST_WORDS:
            yield sentence


class MarksOfRubric(NamedTuple):
    """All that marks say of a rubric."""

    n: int
    """Answers that people scored and the judge decided on."""
    items: list[ItemStatistics]
    pairs: list[tuple[str, str, float]]
    apart: list[Apart]
    unnamed: list[Unnamed]
    """Empty where there is no encoder."""


def analysed(answers: ScoredAnswers, encode: Encoder | None, draws: int, seed: int) -> MarksOfRubric:
    """What marks say of a rubric; of fewer than FEWEST answers nothing but their number."""
    n = len(answers.ids)
    if n < FEWEST:
        return MarksOfRubric(n, [], [], [], [])
    said = unnamed(answers, encode) if encode else []
    items = item_statistics(answers, draws, seed)
    return MarksOfRubric(n, items, pairs_that_are_one(answers), furthest(answers), said)


def mark_findings(rubric_id: str, marks: MarksOfRubric) -> Iterator[RubricFinding]:
    """What marks say for sure, as findings; nothing of criteria that few answers were scored on."""
    for row in marks.items:
        low, high = row.with_people_interval[:2]
        if row.n < FEWEST:
            continue
        if max(row.shares) == 1:
            level = row.shares.index(1.0)
            text = f"It is at level {level} on all {row.n} answers: it tells none from another."
            yield RubricFinding(rubric_id, (row.criterion,), "constant", "doubtful", text)
        elif row.n * (1 - max(row.shares)) < _RARE:
            continue  # no resample of so few tells how much hangs on chance
        elif high is not None and low is not None and high < 0:
            text = f"Answers that people score higher meet it less (correlation {row.with_people:.2f}, 95% interval "
            text += f"{low:.2f} to {high:.2f}, {row.n} answers)."
            yield RubricFinding(rubric_id, (row.criterion,), "against_people", "wrong", text)
        elif row.adds.high is not None and row.adds.high < 0:
            text = f"Without it the sum's QWK with people is {-(row.adds.estimate or 0):.3f} higher (95% interval "
            text += f"{-row.adds.high:.3f} to {-(row.adds.low or 0):.3f})."
            yield RubricFinding(rubric_id, (row.criterion,), "harmful", "doubtful", text)
    for first, second, share in marks.pairs:
        text = (
            f"They are decided alike on {share:.0%} of the answers: one of them is paid twice, or both are one thing."
        )
        yield RubricFinding(rubric_id, (first, second), "one_pair", "doubtful", text)
    for group in marks.unnamed:
        if len(group.answers) >= 3:
            text = (
                f"{len(group.answers)} answers that people score higher than the checklist say: {group.representative}"
            )
            yield RubricFinding(rubric_id, (), "unnamed", "doubtful", text)
