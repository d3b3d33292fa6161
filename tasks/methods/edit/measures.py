"""How well trained graders mark (appendix B): QWK of each question, accuracy, within-1, MAE, and how arms differ.

Intervals say how far a figure would move with other answers to the same questions: responses are resampled within their
question, the questions stay. How far it moves with another seed is the spread of the seeds' figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import rel_entr

from rubricflow.tasks.core.contracts import Fields, Record
from rubricflow.tasks.core.contracts.settings.methods import STARTS, TUNED
from rubricflow.tasks.core.contracts.tables.edit import TESTED, Arm, Part
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints, ratio
from rubricflow.tasks.core.stats.bootstrap import TERMS, interval, pair_terms, resample_counts, statistics_of_totals

PROBED = 200
"""Rollouts on which the beliefs of a policy and of its start are compared (appendix C)."""
Rows = Sequence[Fields]
Graded = Mapping[tuple[Arm, int], Rows]
"""Arm and seed → its greedy rollouts as rows of `rollouts`."""


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
class GraderMarks:
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


class _Resampled(NamedTuple):
    """A metric of the data, and of every draw; n: responses that it rests on; note: why it is undefined, and what was
    left out."""

    value: float
    draws: Floats
    n: int
    note: str | None


def figures(marks: GraderMarks, draws: int = 2000, seed: int = 0) -> list[Record]:
    """Each metric of `BOUNDS` with its 95% interval, as columns of `arm_metrics`: metric, value, low, high (None where
    undefined), n, note.

    Macro QWK is the mean over the questions whose gold marks differ: of constant ones it is undefined or zero whatever
    a grader does. They are left out and counted in the note. Who always gives the same mark where gold marks differ has
    0 there.
    """
    measured = _measured(marks, draws, seed)
    return [{"metric": metric, **_columns(found, BOUNDS[metric])} for metric, found in measured.items()]


def differences(arm: GraderMarks, against: GraderMarks, draws: int = 2000, seed: int = 0) -> list[Record]:
    """Each metric of `arm` less that of `against`, paired over responses, as columns of `arm_differences`: those of
    `figures`, and p, the two-sided bootstrap p-value of no difference, above 0.

    QWK and MAE compare the responses that both have marked, and so need not be the difference of the two figures. Both
    are of the same responses.
    """
    both = ~np.isnan(arm.predicted) & ~np.isnan(against.predicted)
    own = _measured(arm, draws, seed)
    other = _measured(against, draws, seed)
    for grader, measured in ((arm, own), (against, other)):
        shared = replace(grader, predicted=np.where(both, grader.predicted, np.nan))
        of_shared = _measured(shared, draws, seed)
        measured |= {metric: of_shared[metric] for metric in OF_MARKED}
    rows = []
    for metric, first in own.items():
        value = first.value - other[metric].value
        change = first.draws - other[metric].draws
        # Twice the share of 2θ − draws beyond zero; counting one draw more, so that it is never 0.
        mirrored = (2 * value - change)[~np.isnan(change)]
        p = None
        if len(mirrored) and not np.isnan(value):
            tail = min(np.count_nonzero(mirrored <= 0), np.count_nonzero(mirrored >= 0)) + 1
            p = min(1.0, float(2 * tail / (len(mirrored) + 1)))
        rows.append({"metric": metric, **_columns(first._replace(value=value, draws=change)), "p": p})
    return rows


def _columns(found: _Resampled, bounds: tuple[float, float] = (-np.inf, np.inf)) -> Record:
    """Value, low, high, n and note. The basic interval 2θ − quantiles of the draws (Davison and Hinkley 1997, 5.2), and
    the figure itself in it.

    QWK of few responses is too low, in draws once more, and a mean over questions does not lessen that: in simulations
    of 50 questions with 40 responses plain percentiles held the true macro QWK 69 times of 100, these 96 times.
    """
    value, draws, n, note = found
    columns: Record = {"value": None, "low": None, "high": None, "n": n, "note": note}
    if not np.isnan(value):
        columns["value"] = value
        low, high = interval(draws, n)[:2]
        if low is not None and high is not None:
            ends = np.clip((2 * value - high, 2 * value - low), *bounds)
            columns |= {"low": float(min(ends[0], value)), "high": float(max(ends[1], value))}
    return columns


def _measured(marks: GraderMarks, draws: int, seed: int) -> dict[str, _Resampled]:
    """Every metric. Row 0 of the sums is the data, the others are the draws."""
    rng = np.random.default_rng(seed)
    sums = np.zeros((draws + 1, len(TERMS)))
    stated, kappa, defined = np.zeros((3, draws + 1))
    left_out = 0
    has_mark = ~np.isnan(marks.predicted)
    # The rows of each question
    _, codes = np.unique(np.asarray(marks.items, dtype=object), return_inverse=True)
    order = np.argsort(codes, kind="stable")
    questions = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1) if len(codes) else []
    for rows in questions:
        counts = np.vstack([np.ones(len(rows)), resample_counts(rng, len(rows), draws)])
        # A response without a mark adds nothing
        marked = has_mark[rows]
        top = float(marks.tops[rows].max())
        terms = pair_terms(marks.gold[rows], np.where(marked, marks.predicted[rows], 0.0), (0.0, top, 1.0))
        totals = counts @ (terms[:, : len(TERMS)] * marked[:, None])
        sums += totals
        stated += counts @ (marked & ~marks.closed[rows])
        # QWK of every draw; NaN where the gold marks of the marked responses are constant
        n, gold, squared = (totals[:, TERMS.index(name)] for name in ("n", "i", "ii"))
        varies = n * squared > gold**2  # whole numbers, so this is exact
        kappas = np.where(varies, statistics_of_totals(totals)["qwk"], np.nan)
        kappa += np.nan_to_num(kappas)
        defined += ~np.isnan(kappas)
        left_out += int(np.isnan(kappas[0]))
    exact, within_1, error, marked_n = (sums[:, TERMS.index(name)] for name in ("exact", "w1", "abs_d", "n"))
    count = len(marks.items)
    everything = np.full(draws + 1, float(count))
    values = {
        "qwk": ratio(kappa, defined),
        "accuracy": ratio(exact, everything),
        "within_1": ratio(within_1, everything),
        "mae": ratio(error, marked_n),
        "unmarked": 1 - ratio(stated, everything),
    }
    marked_count = int(has_mark.sum())
    notes = {}
    if not count:
        notes = dict.fromkeys(values, "no responses")
    elif not marked_count:
        notes = dict.fromkeys(OF_MARKED, "no response has a mark")
    elif left_out:
        notes["qwk"] = f"questions left out because their gold marks are constant: {left_out}"
    measured = {}
    for metric, column in values.items():
        responses = marked_count if metric in OF_MARKED else count
        measured[metric] = _Resampled(float(column[0]), column[1:], responses, notes.get(metric))
    return measured


# What the arms are worth on the test split, as rows: figures, paired differences, and how far beliefs moved. Pure.


def metric_rows(graded: Graded, draws: int, seed: int) -> Iterator[Record]:
    """Rows of `arm_metrics`; a part without gold marks has none."""
    for (arm, number), rows in graded.items():
        for part in TESTED:
            if marks := marks_of(rows, part):
                for figure in figures(marks, draws, seed):
                    yield {"arm": arm, "seed": number, "part": part, **figure}


def difference_rows(graded: Graded, draws: int, seed: int) -> Iterator[Record]:
    """Rows of `arm_differences`, of the arms that `pairs` names."""
    of_base = next((rows for (arm, _), rows in graded.items() if arm == "base"), None)
    for arm, against in pairs(tuple(dict.fromkeys(arm for arm, _ in graded))):
        for name, number in graded:
            other = of_base if against == "base" else graded.get((against, number))
            if name != arm or other is None:
                continue
            for part in TESTED:
                marks = marks_of(graded[arm, number], part)
                other_marks = marks_of(other, part)
                if marks and other_marks:
                    for difference in differences(marks, other_marks, draws, seed):
                        yield {"arm": arm, "against": against, "seed": number, "part": part, **difference}


def pairs(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """(arm, against): each against base and its own start; Edit-RL against all other RL, Edit-SFT against all other
    supervised fine-tuning."""
    compared: list[tuple[Arm, Arm]] = []
    for arm in arms:
        compared += [(arm, other) for other in ("base", STARTS.get(arm)) if other in arms and other != arm]  # type: ignore[misc]
    for arm, others in (("edit_rl", tuple(STARTS)), ("edit_sft", TUNED)):
        compared += [(arm, other) for other in others if {arm, other} <= set(arms) and other != arm]
    return list(dict.fromkeys(compared))


def marks_of(rows: Rows, part: Part) -> GraderMarks | None:
    """The marks of greedy rollouts in one part of the test split that have a gold mark; None where there is none."""
    marked = [row for row in rows if row["part"] == part and row["gold"] is not None]
    if not marked:
        return None
    items = [row["item_id"] for row in marked]
    tops = np.array([row["top"] for row in marked], np.int64)
    gold = np.array([row["gold"] for row in marked], np.int64)
    predicted = np.array([row["mark"] for row in marked], np.float64)
    is_closed = np.array([row["unmarked"] == "closed" for row in marked])
    return GraderMarks(items, tops, gold, predicted, is_closed)


def spaced(rows: Rows, part: Part) -> Rows:
    """Rollouts of a part to probe: all, or `PROBED` evenly spaced ones."""
    of_part = [row for row in rows if row["part"] == part]
    if len(of_part) <= PROBED:
        return of_part
    return [of_part[place] for place in np.linspace(0, len(of_part) - 1, PROBED).round().astype(int)]


def probe_rows(
    arm: Arm, seed: int, part: Part, policy: Sequence[Floats], reference: Sequence[Floats]
) -> Iterator[Record]:
    """Rows of `arm_metrics`: how far an arm's beliefs lie from those of its start on the start's own rollouts."""
    for name, value in divergence(policy, reference).items():
        note = None if value is not None else "no boundary there"
        row = {"arm": arm, "seed": seed, "part": part, "metric": f"probe_{name}", "n": len(policy)}
        yield row | {"value": value, "note": note}


def divergence(policy: Sequence[Floats], reference: Sequence[Floats]) -> dict[str, float | None]:
    """Table 7: kl, KL(policy ‖ reference) ≥ 0; jsd, Jensen-Shannon divergence in 0…ln 2; and jsd_early, jsd_mid and
    jsd_late, that of the boundaries k of T steps up to k/T = 1/3, up to 2/3 and behind. Means over step boundaries, in
    nats; None without boundaries, in a part too, or where not finite.

    policy, reference: beliefs at the boundaries of the same rollouts, each (T + 1, M + 1), rows that sum to 1. A
    rollout without steps has no relative position and so no part.
    """
    kl: list[Floats] = [np.empty(0)]
    jsd, third = kl.copy(), kl.copy()
    for p, q in zip(policy, reference, strict=True):
        kl.append(rel_entr(p, q).sum(axis=1))
        between = (p + q) / 2
        jsd.append((rel_entr(p, between).sum(axis=1) + rel_entr(q, between).sum(axis=1)) / 2)
        boundary, steps = 3 * np.arange(len(p)), len(p) - 1  # whole numbers, so that k/T = 1/3 is exact
        thirds = np.digitize(boundary, [steps + 1, 2 * steps + 1]) if steps else [np.nan]
        third.append(np.asarray(thirds, dtype=np.float64))
    parts = {"kl": np.concatenate(kl), "jsd": np.concatenate(jsd)}
    for number, name in enumerate(("jsd_early", "jsd_mid", "jsd_late")):
        parts[name] = parts["jsd"][np.concatenate(third) == number]
    means = {name: float(values.mean()) if len(values) else np.nan for name, values in parts.items()}
    return {name: mean if np.isfinite(mean) else None for name, mean in means.items()}
