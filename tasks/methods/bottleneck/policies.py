"""Which concept an educator is asked about first, and what the questions save.

confidence: the most probable p̂_k first, as the paper intervenes (REC-CBM, section 5.5); uncertainty: the highest
entropy first; expected_change: the concept first whose level, were it known, is expected to move the grade most;
random. A policy's priority of a concept does not depend on its label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import numpy as np
from scipy.special import softmax
from scipy.stats import entropy

from rubricflow.tasks.core.contracts.tables.bottleneck import GradeMetric, Order
from rubricflow.tasks.core.stats.arrays import Floats, Ints
from rubricflow.tasks.core.stats.bootstrap import interval
from rubricflow.tasks.methods.bottleneck.data import MISSING, Estimates, LabelledData
from rubricflow.tasks.methods.bottleneck.intervene import drawn_metrics, grades_after, oracle_values
from rubricflow.tasks.methods.bottleneck.measures import MEASURES
from rubricflow.tasks.methods.bottleneck.trace import Head

POLICIES: tuple[Order, ...] = get_args(Order)
STEPS = 20
"""Pieces of the budget at which a saving curve is measured."""
GAIN = 0.9
"""Share of the gain of all answers that the needed questions are to reach."""


def priorities(policy: Order, levels: Floats, head: Head, tops: Ints, seed: int) -> Floats:
    """(n, K) priority of each concept before anything is asked, the highest first.

    levels: (n, K, M + 1) p̂, 0 beyond a concept's top; tops: (K,). confidence: the highest probability, 0 … 1;
    uncertainty: entropy over that of M_k + 1 equally likely levels, 0 … 1; expected_change: see there; random: uniform
    in 0 … 1 by `seed`.
    """
    if policy == "confidence":
        return np.asarray(levels.max(axis=2), np.float64)
    if policy == "uncertainty":
        return np.asarray(entropy(levels, axis=2) / np.log(tops + 1), np.float64)
    if policy == "expected_change":
        return expected_change(levels, head, expected_shares(levels, tops), tops)
    return np.random.default_rng([seed, 2]).random(levels.shape[:2])


def order_of(policy: Order, levels: Floats, head: Head, tops: Ints, seed: int) -> Ints:
    """(n, K) concepts of each response, first asked first; of equal priorities the earlier concept."""
    first: Ints = np.argsort(-priorities(policy, levels, head, tops, seed), axis=1, kind="stable")
    return first


def expected_shares(levels: Floats, tops: Ints) -> Floats:
    """(n, K) s̃ of p̂ (Eqs. 13 and 18)."""
    return Estimates(levels, np.empty((len(levels), 0))).shares(tops)


def expected_change(levels: Floats, head: Head, shares: Floats, tops: Ints) -> Floats:
    """(n, K) expected total variation, 0 … 1, between the grade's probabilities as they are and with a level known.

    Σ_m p̂_k,m · ½ Σ_y |P(y | s̃_k = m/M_k) − P(y)|: the head is evaluated for every level. shares: (n, K) the present
    state, in which some concepts may be answered already.
    """
    effects = (head.weights @ head.correction) / head.temperature
    logits = head.logits(shares) / head.temperature
    before = softmax(logits, axis=1)
    changes = np.empty(shares.shape)
    for k, top in enumerate(tops):
        moved = np.arange(top + 1) / top - shares[:, k, None]
        after = softmax(logits[:, None] + moved[..., None] * effects[:, k], axis=2)
        distances = np.abs(after - before[:, None]).sum(axis=2)
        changes[:, k] = (levels[:, k, : top + 1] * distances).sum(axis=1) / 2
    return changes


class Questions(NamedTuple):
    """The questions of a policy over a whole set: order, (n, K) concepts of a response, first asked first; turn,
    (n, K) the question, 0 first, at which they are asked; K·n for what cannot be asked."""

    order: Ints
    turn: Ints


def ask(policy: Order, levels: Floats, head: Head, answers: Floats, tops: Ints, seed: int) -> Questions:
    """Every question that can be asked, one at a time, always the one of highest priority in the whole set.

    answers: (n, K) shares that the educator gives, NaN where none can be had. expected_change is taken anew for what is
    left of a response after each of its answers. Of equal priorities the earlier response, then the earlier concept.
    """
    if policy == "expected_change":
        order, priority = _adaptive(levels, head, answers, tops)
    else:
        fixed = np.where(np.isnan(answers), -np.inf, priorities(policy, levels, head, tops, seed))
        order = np.argsort(-fixed, axis=1, kind="stable")
        priority = np.take_along_axis(fixed, order, axis=1)
    return Questions(order, _turns(priority))


def _adaptive(levels: Floats, head: Head, answers: Floats, tops: Ints) -> tuple[Ints, Floats]:
    """(order, the priority that each concept had when it was asked)."""
    rows, state = np.arange(len(answers)), expected_shares(levels, tops)
    open_ = ~np.isnan(answers)
    order, priority = np.empty(answers.shape, np.int64), np.empty(answers.shape)
    unasked = np.ones(answers.shape, np.bool_)
    for turn in range(answers.shape[1]):
        value = np.where(open_, expected_change(levels, head, state, tops), -np.inf)
        # What is asked already stands behind what cannot be asked, so that the order holds every concept once.
        k = np.where(unasked, np.maximum(value, -1.0), -2.0).argmax(axis=1)
        order[:, turn], priority[:, turn] = k, value[rows, k]
        state[rows, k] = np.where(open_[rows, k], answers[rows, k], state[rows, k])
        open_[rows, k] = unasked[rows, k] = False
    return order, priority


def _turns(priority: Floats) -> Ints:
    """(n, K) place of each question among those of all responses, whose questions stay in their own order.

    What has a higher priority than its forerunner comes right after it, so the lowest priority so far decides.
    """
    n, count = priority.shape
    so_far = np.minimum.accumulate(priority, axis=1)
    by = np.lexsort((np.tile(np.arange(count), n), np.repeat(np.arange(n), count), -so_far.ravel()))
    turn = np.empty(n * count, np.int64)
    turn[by] = np.arange(n * count)
    return np.where(np.isneginf(priority), n * count, turn.reshape(n, count))


class OverRandom(NamedTuple):
    """A number of a policy: value; change: less that of asking at random, with its 95% interval over responses; None
    where undefined."""

    value: float | None
    change: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Saving:
    """What the questions of a policy buy on n responses."""

    policy: Order
    metric: GradeMetric
    n: int
    """Responses with a grade."""
    questions: int
    """All that can be asked."""
    shares: Floats
    """(STEPS + 1,) shares of the questions asked."""
    values: Floats
    """(STEPS + 1,) the metric there, NaN where it is undefined."""
    area: OverRandom
    """Under the curve, 0 … 1: the mean of the metric over budgets."""
    needed: OverRandom
    """Share of the questions at which 90% of the gain of all answers is first reached; None where answers do not
    gain."""


def savings(
    levels: Floats,
    head: Head,
    data: LabelledData,
    rows: Ints,
    seed: int,
    metric: GradeMetric = "task_accuracy",
    draws: int = 500,
) -> list[Saving]:
    """The saving curve of every policy, when an educator gives the labels one by one.

    levels: (rows, K, M + 1) p̂ of `rows`; responses without a grade leave. Each policy asks once, over the whole set;
    the bootstrap then resamples responses with what they were asked, the same ones for all policies.
    """
    graded = data.grades[rows] != MISSING
    levels, rows = levels[graded], rows[graded]
    tops = data.concepts.tops[: levels.shape[1]]
    answers, right = oracle_values(data.levels[rows][:, : len(tops)], tops), data.grades[rows]
    shares, questions = np.linspace(0, 1, STEPS + 1), int((~np.isnan(answers)).sum())
    budgets = np.round(shares * questions).astype(np.int64)
    classes = len(data.scores)
    grades = []
    for policy in POLICIES:
        plan = ask(policy, levels, head, answers, tops, seed)
        grades.append(_grades_within(budgets, plan, head, expected_shares(levels, tops), answers))
    values = np.array([_values(metric, right, of_policy, classes) for of_policy in grades])
    sample = drawn_metrics(np.concatenate(grades), right, classes, draws, seed)[metric]
    drawn = np.moveaxis(sample.reshape(len(POLICIES), len(shares), draws), 2, 1)
    areas = _compared(_area(values, shares), _area(drawn, shares), len(rows))
    needs = _compared(_needed(values, shares), _needed(drawn, shares), len(rows))
    return [
        Saving(policy, metric, len(rows), questions, shares, values=curve, area=area, needed=needed)
        for policy, curve, area, needed in zip(POLICIES, values, areas, needs, strict=True)
    ]


def _grades_within(budgets: Ints, plan: Questions, head: Head, shares: Floats, answers: Floats) -> Ints:
    """(budgets, n) grades when so many questions were asked over the whole set."""
    after = grades_after(head, shares, plan.order, answers)
    answered = (plan.turn < budgets[:, None, None]).sum(axis=2)
    grades: Ints = after[answered, np.arange(len(shares))]
    return grades


def _values(metric: GradeMetric, right: Ints, grades: Ints, classes: int) -> list[float]:
    """The metric of each row of grades (budgets, n), NaN where it is undefined."""
    measure = MEASURES[metric.removeprefix("task_")]
    values = []
    for chosen in grades:
        value = measure(right, chosen, 0, classes - 1).value
        values.append(np.nan if value is None else value)
    return values


def _area(values: Floats, shares: Floats) -> Floats:
    return np.asarray(np.trapezoid(values, shares), np.float64)


def _needed(values: Floats, shares: Floats) -> Floats:
    """(...,) share of the questions where curves (..., STEPS + 1) first reach `GAIN` of their gain, between two budgets
    by a straight line; NaN for a curve that does not end above its start."""
    start, gain = values[..., :1], values[..., -1:] - values[..., :1]
    with np.errstate(divide="ignore", invalid="ignore"):
        reached = np.where(gain > 0, (values - start) / gain, np.nan)
    first = np.argmax(reached >= GAIN, axis=-1)
    high = np.take_along_axis(reached, first[..., None], axis=-1)[..., 0]
    low = np.take_along_axis(reached, np.maximum(first - 1, 0)[..., None], axis=-1)[..., 0]
    # At the first point nothing is gained, so a curve that gains reaches it later.
    gains = first > 0
    beyond = (high - GAIN) / np.where(gains, high - low, 1)
    return np.where(gains, shares[first] - beyond * shares[1], np.nan)


def _compared(values: Floats, drawn: Floats, responses: int) -> list[OverRandom]:
    """Each policy's number beside that of random; values: (policies,), drawn: (policies, draws), of so many
    responses."""
    random = POLICIES.index("random")
    comparisons = []
    for value, sample in zip(values, drawn, strict=True):
        low, high = interval(sample - drawn[random], responses)[:2]
        comparisons.append(OverRandom(_plain(value), _plain(value - values[random]), low, high))
    return comparisons


def _plain(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def saving_rows(savings: list[Saving], method: str, seed: int, split: str) -> list[dict[str, Any]]:
    """Rows of table `trials`: saving_area_<policy> and saving_questions_<policy>; the note compares with random."""
    grader = {"method": method, "seed": seed, "setting": "", "split": split}
    rows = []
    for saving in savings:
        for name, number in (("area", saving.area), ("questions", saving.needed)):
            metric = f"saving_{name}_{saving.policy}"
            value = {"metric": metric, "criterion_id": "", "value": number.value, "n": saving.n}
            rows.append(grader | value | {"note": _against_random(saving, number)})
    return rows


def _against_random(saving: Saving, number: OverRandom) -> str:
    if number.value is None:
        return f"undefined: the answers do not raise {saving.metric}"
    if number.low is None or number.change is None:
        return f"of {saving.metric}"
    return f"of {saving.metric}; {number.change:+.3f} [{number.low:+.3f}, {number.high:+.3f}] against random"
