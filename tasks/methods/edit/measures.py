"""How well trained graders mark (appendix B): QWK of each question, accuracy, within-1, MAE, and how arms differ.

Intervals say how far a figure would move with other answers to the same questions: responses are resampled within their
question, the questions stay. How far it moves with another seed is the spread of the seeds' figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import rel_entr

from rubricflow.tasks.core.contracts.settings.edit import STARTS, TUNED, Arm
from rubricflow.tasks.core.contracts.tables.edit import TESTED, Part
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import interval, resample_counts
from rubricflow.tasks.core.stats.pair_sums import TERMS, pair_terms, statistics_of_totals

PROBED = 200
"""Rollouts on which the beliefs of a policy and of its start are compared (appendix C)."""
Rows = Sequence[Mapping[str, Any]]
Graded = Mapping[tuple[Arm, int], Rows]
"""Arm and seed → its greedy rollouts as rows of `rollouts`."""


class Divergence(NamedTuple):
    """Means over step boundaries, in nats; None without boundaries, in a part too, or where not finite."""

    kl: float | None
    """KL(policy ‖ reference), ≥ 0."""
    jsd: float | None
    """Jensen-Shannon divergence, 0…ln 2."""
    early: float | None
    """JSD of the boundaries k of T steps up to k/T = 1/3."""
    mid: float | None
    """Of those behind it up to 2/3."""
    late: float | None
    """Of those behind that."""


BOUNDS = {
    "qwk": (-1.0, 1.0),
    "accuracy": (0.0, 1.0),
    "within_1": (0.0, 1.0),
    "mae": (0.0, np.inf),
    "unmarked": (0.0, 1.0),
}
"""Metric → its range: macro QWK; shares of the responses with the gold mark, at most one mark off it, and whose
grading states no mark by itself; mean absolute error in marks."""
OF_MARKED = ("qwk", "mae")
"""What unmarked responses are left out of."""


@dataclass(frozen=True)
class Marks:
    """Marks of one grader.

    A response without a mark is wrong in accuracy and within-1. QWK and MAE leave it out: to call it the furthest
    possible error would invent a mark.
    """

    items: Sequence[str]
    """(n,) question of each response."""
    tops: Ints
    """(n,) M_q."""
    gold: Ints
    """(n,) m*, in 0…M_q."""
    predicted: Floats
    """(n,) m, in 0…M_q; NaN where unmarked."""
    closed: Bools
    """(n,) whether the mark had to be asked for: it counts as any other, and the response as unmarked, too."""


class PolicyMeasure(NamedTuple):
    """A figure with its 95% interval, None where it is undefined; n: responses that it rests on; note: why it is
    undefined, and what was left out."""

    metric: str
    value: float | None
    low: float | None
    high: float | None
    n: int
    note: str | None


class PolicyDifference(NamedTuple):
    """What one grader has more than another, as `PolicyMeasure`.

    p: two-sided bootstrap p-value of no difference, above 0.
    """

    metric: str
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    n: int
    note: str | None


class _Drawn(NamedTuple):
    """A metric of the data, and of every draw."""

    value: float
    draws: Floats
    n: int
    note: str | None


def figures(marks: Marks, draws: int = 2000, seed: int = 0) -> list[PolicyMeasure]:
    """Each metric of `BOUNDS`; ValueError on a mark off its scale or arrays of different lengths.

    Macro QWK is the mean over the questions whose gold marks differ: of constant ones it is undefined or zero whatever
    a grader does. They are left out and counted in the note. Who always gives the same mark where gold marks differ has
    0 there.
    """
    measures = []
    for metric, drawn in _measured(marks, draws, seed).items():
        low, high = _interval(drawn, BOUNDS[metric])
        measures.append(PolicyMeasure(metric, _defined(drawn.value), low, high, drawn.n, drawn.note))
    return measures


def differences(arm: Marks, against: Marks, draws: int = 2000, seed: int = 0) -> list[PolicyDifference]:
    """Each metric of `arm` less that of `against`, paired over responses.

    QWK and MAE compare the responses that both have marked, and so need not be the difference of the two figures.
    ValueError where the responses are not the same.
    """
    if list(arm.items) != list(against.items) or not np.array_equal(arm.gold, against.gold):
        raise ValueError("two graders are compared on the same responses")
    both = ~np.isnan(arm.predicted) & ~np.isnan(against.predicted)
    own, other = _measured(arm, draws, seed), _measured(against, draws, seed)
    own_shared = _measured(_where(arm, both), draws, seed)
    other_shared = _measured(_where(against, both), draws, seed)
    rows = []
    for metric in BOUNDS:
        shared = metric in OF_MARKED
        first = (own_shared if shared else own)[metric]
        second = (other_shared if shared else other)[metric]
        gap = _Drawn(first.value - second.value, first.draws - second.draws, first.n, first.note)
        low, high = _interval(gap)
        row = PolicyDifference(metric, _defined(gap.value), low, high, p=_p(gap), n=gap.n, note=gap.note)
        rows.append(row)
    return rows


def _where(marks: Marks, counted: Bools) -> Marks:
    """The same, unmarked where a response does not count."""
    return replace(marks, predicted=np.where(counted, marks.predicted, np.nan))


def _interval(drawn: _Drawn, bounds: tuple[float, float] = (-np.inf, np.inf)) -> tuple[float | None, float | None]:
    """The basic interval 2θ − quantiles of the draws (Davison and Hinkley 1997, 5.2), and the figure itself in it.

    QWK of few responses is too low, in draws once more, and a mean over questions does not lessen that: in simulations
    of 50 questions with 40 responses plain percentiles held the true macro QWK 69 times of 100, these 96 times.
    """
    low, high = interval(drawn.draws, drawn.n)[:2]
    if low is None or high is None or np.isnan(drawn.value):
        return None, None
    ends = np.clip((2 * drawn.value - high, 2 * drawn.value - low), *bounds)
    return float(min(ends[0], drawn.value)), float(max(ends[1], drawn.value))


def _p(gap: _Drawn) -> float | None:
    """Twice the share of 2θ − draws beyond zero; counting one draw more, so that it is never 0."""
    mirrored = (2 * gap.value - gap.draws)[~np.isnan(gap.draws)]
    if not len(mirrored) or np.isnan(gap.value):
        return None
    tail = min(np.count_nonzero(mirrored <= 0), np.count_nonzero(mirrored >= 0)) + 1
    return min(1.0, float(2 * tail / (len(mirrored) + 1)))


def _defined(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _measured(marks: Marks, draws: int, seed: int) -> dict[str, _Drawn]:
    """Every metric. Row 0 of the sums is the data, the others are the draws."""
    columns = (marks.tops, marks.gold, marks.predicted, marks.closed)
    if {column.shape for column in columns} != {(len(marks.items),)}:
        raise ValueError(f"highest, gold and given marks must be of the same {len(marks.items)} responses")
    for scores in (marks.gold, marks.predicted):
        if ((scores < 0) | (scores > marks.tops)).any():
            raise ValueError("a mark lies outside 0…M_q")
    rng = np.random.default_rng(seed)
    sums: dict[str, Floats] = {name: np.zeros(draws + 1) for name in ("exact", "w1", "abs_d", "n", "stated", "all")}
    kappa, defined, left_out = np.zeros(draws + 1), np.zeros(draws + 1), 0
    # The rows of each question
    _, codes = np.unique(np.asarray(marks.items, dtype=object), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    questions = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(codes) else []
    for rows in questions:
        counts = np.vstack([np.ones(len(rows)), resample_counts(rng, len(rows), draws)])
        totals = counts @ _terms(marks, rows)
        for name in ("exact", "w1", "abs_d", "n"):
            sums[name] += totals[:, TERMS.index(name)]
        # (n,) whether the mark was stated without being asked for
        sums["stated"] += counts @ np.asarray(~np.isnan(marks.predicted) & ~marks.closed)[rows]
        sums["all"] += counts.sum(axis=1)
        question_kappa = _kappa(totals)
        kappa += np.nan_to_num(question_kappa)
        defined += ~np.isnan(question_kappa)
        left_out += int(np.isnan(question_kappa[0]))
    values = {
        "qwk": _ratio(kappa, defined),
        "accuracy": _ratio(sums["exact"], sums["all"]),
        "within_1": _ratio(sums["w1"], sums["all"]),
        "mae": _ratio(sums["abs_d"], sums["n"]),
        "unmarked": 1 - _ratio(sums["stated"], sums["all"]),
    }
    marked = int(np.count_nonzero(~np.isnan(marks.predicted)))
    notes = dict.fromkeys(values, "no responses") if not len(marks.items) else {}
    if not marked and not notes:
        notes = dict.fromkeys(OF_MARKED, "no response has a mark")
    elif left_out:
        notes["qwk"] = f"questions left out because their gold marks are constant: {left_out}"
    measured = {}
    for metric, column in values.items():
        n = marked if metric in OF_MARKED else len(marks.items)
        measured[metric] = _Drawn(float(column[0]), column[1:], n, notes.get(metric))
    return measured


def _terms(marks: Marks, rows: Ints) -> Floats:
    """What is summed over the responses of a question, (rows, terms): zeros for one without a mark."""
    marked = ~np.isnan(marks.predicted[rows])
    scale = 0.0, float(marks.tops[rows].max()), 1.0
    terms = pair_terms(marks.gold[rows], np.where(marked, marks.predicted[rows], 0.0), scale)[:, : len(TERMS)]
    return terms * marked[:, None]


def _kappa(totals: Floats) -> Floats:
    """QWK of every draw; NaN where the gold marks of the marked responses are constant."""
    n, gold, squared = (totals[:, TERMS.index(name)] for name in ("n", "i", "ii"))
    varies = n * squared > gold**2  # whole numbers, so this is exact
    return np.where(varies, statistics_of_totals(totals)["qwk"], np.nan)


def _ratio(top: Floats, bottom: Floats) -> Floats:
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)


# What the arms are worth on the test split, as rows: figures, paired differences, and how far beliefs moved. Pure.


def metric_rows(graded: Graded, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of `arm_metrics`; a part without gold marks has none."""
    for (arm, number), rows in graded.items():
        for part in TESTED:
            if marks := marks_of(rows, part):
                for figure in figures(marks, draws, seed):
                    yield {"arm": arm, "seed": number, "part": part, **figure._asdict()}


def difference_rows(graded: Graded, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of `arm_differences`, of the arms that `pairs` names."""
    of_base = next((rows for (arm, _), rows in graded.items() if arm == "base"), None)
    for arm, against in pairs(tuple(dict.fromkeys(arm for arm, _ in graded))):
        seeds = [number for name, number in graded if name == arm]
        for number in seeds:
            other = of_base if against == "base" else graded.get((against, number))
            compared = {"arm": arm, "against": against, "seed": number}
            for part in TESTED:
                marks, other_marks = marks_of(graded[arm, number], part), other and marks_of(other, part)
                if marks and other_marks:
                    for difference in differences(marks, other_marks, draws, seed):
                        yield {**compared, "part": part, **difference._asdict()}


def pairs(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """(arm, against): each against base and its own start; Edit-RL against all other RL, Edit-SFT against all other
    supervised fine-tuning."""
    compared: list[tuple[Arm, Arm]] = []
    for arm in arms:
        compared += [(arm, other) for other in ("base", STARTS.get(arm)) if other in arms and other != arm]  # type: ignore[misc]
    for arm, others in (("edit_rl", tuple(STARTS)), ("edit_sft", TUNED)):
        compared += [(arm, other) for other in others if {arm, other} <= set(arms) and other != arm]
    return list(dict.fromkeys(compared))


def marks_of(rows: Rows, part: Part) -> Marks | None:
    """The marks of greedy rollouts in one part of the test split that have a gold mark; None where there is none."""
    marked = [row for row in rows if row["part"] == part and row["gold"] is not None]
    if not marked:
        return None
    items = [row["item_id"] for row in marked]
    tops = np.array([row["top"] for row in marked], np.int64)
    gold = np.array([row["gold"] for row in marked], np.int64)
    predicted = np.array([row["mark"] for row in marked], np.float64)
    is_closed = np.array([row["unmarked"] == "closed" for row in marked])
    return Marks(items, tops, gold, predicted, is_closed)


def spaced(rows: Rows, part: Part) -> Rows:
    """Rollouts of a part to probe: all, or `PROBED` evenly spaced ones."""
    of_part = [row for row in rows if row["part"] == part]
    if len(of_part) <= PROBED:
        return of_part
    return [of_part[place] for place in np.linspace(0, len(of_part) - 1, PROBED).round().astype(int)]


def probe_rows(
    arm: Arm, seed: int, part: Part, policy: Sequence[Floats], reference: Sequence[Floats]
) -> Iterator[dict[str, Any]]:
    """Rows of `arm_metrics`: how far an arm's beliefs lie from those of its start on the start's own rollouts."""
    apart = divergence(policy, reference)
    values = {"kl": apart.kl, "jsd": apart.jsd, "jsd_early": apart.early, "jsd_mid": apart.mid, "jsd_late": apart.late}
    for name, value in values.items():
        note = None if value is not None else "no boundary there"
        row = {"arm": arm, "seed": seed, "part": part, "metric": f"probe_{name}", "n": len(policy)}
        yield row | {"value": value, "note": note}


def divergence(policy: Sequence[Floats], reference: Sequence[Floats]) -> Divergence:
    """Table 7. policy, reference: beliefs at the boundaries of the same rollouts, each (T + 1, M + 1), rows that sum
    to 1. A rollout without steps has no relative position and so no part. ValueError where rollouts or shapes differ.
    """
    if [belief.shape for belief in policy] != [belief.shape for belief in reference]:
        raise ValueError("beliefs must be of the same boundaries and marks")
    kl = _joined([_kl(p, q) for p, q in zip(policy, reference, strict=True)])
    jsd = _joined([_jsd(p, q) for p, q in zip(policy, reference, strict=True)])
    third = _joined([_thirds(len(p) - 1) for p in policy])
    early, mid, late = (_mean(jsd[third == number]) for number in range(3))
    return Divergence(_mean(kl), _mean(jsd), early, mid, late)


def _kl(p: Floats, q: Floats) -> Floats:
    return np.asarray(rel_entr(p, q).sum(axis=1), dtype=np.float64)


def _jsd(p: Floats, q: Floats) -> Floats:
    between = (p + q) / 2
    return (_kl(p, between) + _kl(q, between)) / 2


def _thirds(steps: int) -> Floats:
    """Third of the chain that each boundary lies in, 0…2; whole numbers, so that k/T = 1/3 is exact."""
    if not steps:
        return np.array([np.nan])
    boundary = np.arange(steps + 1)
    return np.where(3 * boundary <= steps, 0.0, np.where(3 * boundary <= 2 * steps, 1.0, 2.0))


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.empty(0), *parts])


def _mean(values: Floats) -> float | None:
    mean = float(values.mean()) if len(values) else np.nan
    return mean if np.isfinite(mean) else None
