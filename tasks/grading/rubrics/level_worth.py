"""What a level is worth in people's eyes: the share of its criterion's weight with which the checklist's sum comes
closest to people's scores, in squares.

Criteria whose levels read alike are taken together, over all rubrics of a study: a rubric made of one reference answer
has few scored answers. The lowest level is worth nothing and the highest all; only levels between them are asked about.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Bundle, Rubric
from rubricflow.tasks.core.contracts.settings.study import Evaluation
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import (
    Difference,
    cluster_codes,
    folds_of,
    paired_bootstrap,
    resample_counts,
)
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.rubrics.findings import RubricFinding
from rubricflow.tasks.grading.rubrics.item_analysis import FEWEST, RARE, ScoredAnswers, scored_answers
from rubricflow.tasks.grading.rubrics.revision import RubricChange

_PRIOR = 0.25
"""How far from what it earns now a level lies before any marks are seen: the standard deviation of a normal prior."""
_STEPS = 20
"""Shares are told in so many steps of the criterion's weight."""
_FOLDS = 5
_TRIFLE = 0.08
"""A share that moves by no more is not worth a person's decision."""

Earns = tuple[float, ...]
"""The share of its weight that each level of a criterion earns, lowest first."""


class LevelWorth(NamedTuple):
    """What levels are worth that read alike."""

    levels: tuple[str, ...]
    criteria: dict[str, list[str]]
    """Rubric → its criteria with these levels."""
    answers: int
    """That people scored, with a decision on every criterion."""
    between: int
    """Of these, with one of the criteria between its lowest and its highest level."""
    now: Earns
    earns: Earns
    """What they are worth, drawn towards what they earn now, the more the fewer answers there are."""
    ends: tuple[tuple[float, float], ...]
    """95 % interval of each, over authors."""
    gain: Difference
    """QWK with people of the sum, each author's answers by what the others' tell, less that of the sum as it is."""

    @property
    def is_better(self) -> bool:
        """Whether a level moves by more than a trifle, and the gain is more than chance makes."""
        moved = max(abs(earns - now) for earns, now in zip(self.earns, self.now, strict=True))
        return moved > _TRIFLE and self.gain.low is not None and self.gain.low > 0

    @property
    def sentence(self) -> str:
        """What was found, for a person who decides on it."""
        worth = "; ".join(
            f"“{self.levels[m]}” earns {self.now[m]:.2g} of the points; the sum comes closest to people's scores with "
            f"{self.earns[m]:g} (95% interval {self.ends[m][0]:.2g} to {self.ends[m][1]:.2g})"
            for m in range(1, len(self.levels) - 1)
        )
        gain = f"{self.gain.estimate:.3f} higher (95% interval {self.gain.low:.3f} to {self.gain.high:.3f})"
        of_all = f"{self.between} of {self.answers} answers have one of its criteria there"
        return f"{worth}; {of_all}. So counted, as other answers tell it, the sum's QWK with people is {gain}."


def worths_of(
    run: Run, evaluation: Evaluation, bundles: Mapping[str, Bundle], is_wanted: Callable[[str], bool]
) -> list[LevelWorth]:
    """What the marks of a finished run say of levels for sure, on its calibration split; nothing of one that is not
    finished. is_wanted: whether an author's answers may be looked at."""
    if not run.done("evaluate", "all"):
        return []
    answers = scored_answers(run, evaluation.target, bundles, is_wanted)
    return [worth for worth in level_worths(answers, evaluation.draws, evaluation.seed) if worth.is_better]


def level_worths(answers: Mapping[str, ScoredAnswers], draws: int, seed: int) -> Iterator[LevelWorth]:
    """What levels are worth, of each wording of three and more that enough answers are at. Not of sub-points that are
    counted: they are met or not. answers: by rubric."""
    alike: dict[tuple[tuple[str, ...], Earns], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, one in answers.items():
        counting = {composite.id for composite in one.bundle.composites if composite.count}
        for criterion in one.bundle.criteria:
            if criterion.top > 1 and criterion.weight and criterion.parent not in counting:
                alike[criterion.levels, criterion.shares][name].append(criterion.id)
    for (levels, now), criteria in alike.items():
        if worth := _worth(answers, levels, now, criteria, draws, seed):
            yield worth


def _worth(
    answers: Mapping[str, ScoredAnswers],
    levels: tuple[str, ...],
    now: Earns,
    criteria: dict[str, list[str]],
    draws: int,
    seed: int,
) -> LevelWorth | None:
    """None where too few answers are scored, or at a level between."""
    top, mine = len(levels) - 1, []
    for name, ids in criteria.items():
        is_whole = ~np.isnan(answers[name].total)
        mine.append(
            (ids, answers[name]._replace(rows=answers[name].rows[is_whole], levels=answers[name].levels[is_whole]))
        )
    clusters = np.concatenate([one.rows["cluster"].to_numpy(str) for _, one in mine])
    n_between = sum(int(((one.levels[ids] > 0) & (one.levels[ids] < top)).any(axis=1).sum()) for ids, one in mine)
    if len(clusters) < FEWEST or n_between < RARE:
        return None
    people = np.concatenate([_share(one.people, one) for _, one in mine])
    step = min(one.bundle.scale.step / (one.bundle.scale.max - one.bundle.scale.min) for _, one in mine)

    @cache
    def sums(earns: Earns) -> Floats:
        made = []
        for ids, one in mine:
            paid = (c.model_copy(update={"earns": earns}) if c.id in ids else c for c in one.bundle.criteria)
            bundle = one.bundle.model_copy(update={"criteria": tuple(paid)})
            made.append(_share(one._replace(bundle=bundle).total, one))
        return np.concatenate(made)

    def fitted(times: Floats) -> Earns:
        """times: (n,) how often each answer counts."""
        earns = now
        for level in [*range(1, top), *range(1, top)]:
            grid = (share / _STEPS for share in range(_STEPS + 1))
            within = sorted({earns[level], *(s for s in grid if earns[level - 1] <= s <= earns[level + 1])})
            tried = [(*earns[:level], share, *earns[level + 1 :]) for share in within]
            left = np.array([times @ (sums(one) - people) ** 2 for one in tried])
            noise = max(left.min() / max(times.sum() - 1, 1), step**2 / 12)  # at least that of rounded scores
            earns = tried[int((left / noise + ((np.array(within) - now[level]) / _PRIOR) ** 2).argmin())]
        return earns

    fold, crossed = folds_of(clusters, _FOLDS, seed), sums(now).copy()
    for number in range(_FOLDS):
        crossed[fold == number] = sums(fitted((fold != number) * 1.0))[fold == number]
    gain = paired_bootstrap(people, sums(now), crossed, clusters, (0.0, 1.0, step), draws, seed)["qwk"]
    codes, size = cluster_codes(clusters)
    drawn = [fitted(times[codes]) for times in resample_counts(np.random.default_rng(seed), size, min(draws, 200))]
    ends = tuple(map(tuple, np.quantile(drawn, [0.025, 0.975], axis=0).T.tolist()))
    return LevelWorth(levels, criteria, len(people), n_between, now, fitted(np.ones(len(people))), ends, gain)


def _share(scores: Floats, one: ScoredAnswers) -> Floats:
    """Scores as shares of their scale."""
    low, high, _ = one.bundle.scale.bounds
    return (scores - low) / (high - low)


def worth_findings(worths: Sequence[LevelWorth]) -> Iterator[RubricFinding]:
    """A finding of each rubric that has the levels."""
    for worth in worths:
        wording = f"earns: [{', '.join(f'{share:g}' for share in worth.earns)}]"
        for name, ids in worth.criteria.items():
            yield RubricFinding(name, tuple(ids), "level_worth", "doubtful", worth.sentence, wording)


def with_worths(rubric: Rubric, worths: Sequence[LevelWorth]) -> tuple[Rubric, list[RubricChange]]:
    """The rubric whose levels earn what they are worth, where its criteria still have these levels."""
    made = []
    for worth in worths:
        own = worth.criteria.get(rubric.rubric_id, [])
        ids = tuple(one.id for one in rubric.criteria if one.id in own and one.levels == worth.levels)
        if ids:
            update = {"earns": worth.earns}
            paid = (one.model_copy(update=update) if one.id in ids else one for one in rubric.criteria)
            rubric = rubric.model_copy(update={"criteria": tuple(paid)})
            made.append(RubricChange(rubric.rubric_id, ids, ids, "points", worth.sentence, "rule"))
    return rubric, made
