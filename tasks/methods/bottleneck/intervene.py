"""What becomes of the grade when concepts are set by somebody else (REC-CBM, section 5.5 and appendix E.3), which
concept an educator is asked about first, and what the questions save.

A hard intervention puts a level's share in the place of s̃ and leaves the head as it is, as the paper does. A soft one
takes a person's answer as one more noisy observation of the latent concept, which the paper does not have.

confidence: the most probable p̂_k first, as the paper intervenes; uncertainty: the highest entropy first;
expected_change: the concept first whose level, were it known, is expected to move the grade most; random. A policy's
priority of a concept does not depend on its label.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
from scipy.special import softmax
from scipy.stats import entropy

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.tables.bottleneck import GradeMetric, Intervention, Order
from rubricflow.tasks.core.stats.arrays import Floats, Ints, ratio
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, pair_sums, statistics_of_totals
from rubricflow.tasks.methods.bottleneck.data import MISSING, LabelledData, shares_of
from rubricflow.tasks.methods.bottleneck.measures import MEASURES
from rubricflow.tasks.methods.bottleneck.model import Head

DRAWS = 2000
SUMMED: dict[GradeMetric, str] = {"task_accuracy": "exact", "task_macro_f1": "macro_f1", "task_qwk": "qwk"}
"""What `tasks.core.stats.pair_sums` calls the metrics."""
POLICIES: tuple[Order, ...] = get_args(Order)
STEPS = 20
"""Pieces of the budget at which a saving curve is measured."""
GAIN = 0.9
"""Share of the gain of all answers that the needed questions are to reach."""


def intervention_rows(
    shares: Floats, head: Head, data: LabelledData, rows: Ints, order: Ints, seed: int, draws: int = DRAWS
) -> list[Record]:
    """Rows of table `interventions` without the grader and the order: the grades after 0 … K concepts of each response
    were set, for every kind.

    shares: (rows, K) s̃ of `rows`; order: (rows, K) concepts, first asked first (`order_of`). Responses without a grade
    leave. At `asked` = k the first k concepts are set, save that a concept without a label stays as it is under oracle
    and wrong. change is against no intervention, its interval a paired bootstrap over responses. seed: of random levels
    and draws.
    """
    graded = data.grades[rows] != MISSING
    shares, order, rows = shares[graded], order[graded], rows[graded]
    tops = data.concepts.tops[: shares.shape[1]]
    levels = data.levels[rows][:, : shares.shape[1]]
    right = data.grades[rows]
    values: dict[Intervention, Floats] = {
        "oracle": oracle_values(levels, tops),
        "wrong": wrong_values(head, shares, order, levels, tops, right),
        "random": random_values(len(rows), tops, seed),
    }
    records = []
    for kind, set_to in values.items():
        grades = grades_after(head, shares, order, set_to)
        records += [{"kind": kind} | row for row in _measured(grades, right, len(data.scores), draws, seed)]
    return records


def oracle_values(levels: Ints, tops: Ints) -> Floats:
    """(n, K) shares c/M of labels; NaN where there is none."""
    return np.where(levels == MISSING, np.nan, levels / tops)


def random_values(n: int, tops: Ints, seed: int) -> Floats:
    """(n, K) shares of levels drawn uniformly; a draw may hit the level that the grader gave."""
    drawn: Floats = np.random.default_rng([seed, 1]).integers(0, tops + 1, size=(n, len(tops))) / tops
    return drawn


def wrong_values(head: Head, shares: Floats, order: Ints, levels: Ints, tops: Ints, right: Ints) -> Floats:
    """(n, K) shares of the most damaging levels; NaN where a concept has no label.

    Each concept in its turn gets, of all levels but its label, the one after which the right grade is least probable,
    all those before it being set already. Found by trying every level; the lower one of equals. right: (n,) grades.
    """
    rows = np.arange(len(shares))
    grid = np.arange(int(tops.max()) + 1)
    shares_so_far = shares.copy()
    chosen = np.full(shares.shape, np.nan)
    for k in order.T:
        tried = np.repeat(shares_so_far[:, None], len(grid), axis=1)
        tried[rows, :, k] = grid / tops[k][:, None]
        likely = head.probabilities(tried)[rows, :, right]
        likely[(grid > tops[k][:, None]) | (grid == levels[rows, k][:, None])] = np.inf
        worst = likely.argmin(axis=1) / tops[k]
        labelled = levels[rows, k] != MISSING
        shares_so_far[rows, k] = np.where(labelled, worst, shares_so_far[rows, k])
        chosen[rows, k] = np.where(labelled, worst, np.nan)
    return chosen


def grades_after(head: Head, shares: Floats, order: Ints, values: Floats) -> Ints:
    """(K + 1, n) the most probable grade after the first 0 … K concepts of each response's order were set.

    shares, order, values: (n, K); a value is a share, NaN for a concept that stays as it is.
    """
    count = shares.shape[1]
    turn = np.argsort(order, axis=1)
    set_by_now = (turn < np.arange(count + 1)[:, None, None]) & ~np.isnan(values)
    grades: Ints = head.logits(np.where(set_by_now, values, shares)).argmax(axis=2)
    return grades


def _measured(grades: Ints, right: Ints, classes: int, draws: int, seed: int) -> list[Record]:
    """The metrics of each row of `grades`, and their change against its first row."""
    drawn = resampled_metrics(grades, right, classes, draws, seed)
    records = []
    for name, measure in MEASURES.items():
        metric = f"task_{name}"
        stats = [measure(right, chosen, 0, classes - 1) for chosen in grades]
        start = stats[0].value
        for questions, stat in enumerate(stats):
            change = None if start is None or stat.value is None else stat.value - start
            low, high = interval(drawn[metric][questions] - drawn[metric][0], len(right))[:2]
            measured = {"asked": questions, "metric": metric, "value": stat.value, "change": change}
            records.append(measured | {"low": low, "high": high, "n": len(right)})
    return records


def resampled_metrics(grades: Ints, right: Ints, classes: int, draws: int, seed: int) -> dict[str, Floats]:
    """Metric → (ways, draws) its value when responses are resampled, the same ones for all ways.

    grades: (ways, n), right: (n,), classes: their number. NaN where undefined; macro-F1 is above 15 classes.
    """
    codes, size = cluster_codes(np.arange(len(right)))
    blocks = [pair_sums(right, chosen, codes, size, (0.0, classes - 1.0, 1.0)) for chosen in grades]
    drawn = [statistics_of_totals(totals) for totals in draw_totals(blocks, draws, seed)]
    undefined = np.full(draws, np.nan)
    metrics: dict[str, Floats] = {}
    for metric, name in SUMMED.items():
        metrics[metric] = np.stack([statistics.get(name, undefined) for statistics in drawn])
    return metrics


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
        return expected_change(levels, head, shares_of(levels, tops), tops)
    return np.random.default_rng([seed, 2]).random(levels.shape[:2])


def order_of(policy: Order, levels: Floats, head: Head, tops: Ints, seed: int) -> Ints:
    """(n, K) concepts of each response, first asked first; of equal priorities the earlier concept."""
    first: Ints = np.argsort(-priorities(policy, levels, head, tops, seed), axis=1, kind="stable")
    return first


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


def ask(policy: Order, levels: Floats, head: Head, answers: Floats, tops: Ints, seed: int) -> tuple[Ints, Ints]:
    """Every question that can be asked, one at a time, always the one of highest priority in the whole set: order, (n,
    K) concepts of a response, first asked first; turn, (n, K) the question, 0 first, at which they are asked; K·n for
    what cannot be asked.

    answers: (n, K) shares that the educator gives, NaN where none can be had. expected_change is taken anew for what is
    left of a response after each of its answers. Of equal priorities the earlier response, then the earlier concept.
    """
    if policy == "expected_change":
        order, priority = _adaptive(levels, head, answers, tops)
    else:
        fixed = np.where(np.isnan(answers), -np.inf, priorities(policy, levels, head, tops, seed))
        order = np.argsort(-fixed, axis=1, kind="stable")
        priority = np.take_along_axis(fixed, order, axis=1)
    return order, _turns(priority)


def _adaptive(levels: Floats, head: Head, answers: Floats, tops: Ints) -> tuple[Ints, Floats]:
    """(order, the priority that each concept had when it was asked)."""
    rows = np.arange(len(answers))
    state = shares_of(levels, tops)
    open_ = ~np.isnan(answers)
    order = np.empty(answers.shape, np.int64)
    priority = np.empty(answers.shape)
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


def saving_rows(
    levels: Floats, head: Head, data: LabelledData, rows: Ints, seed: int, draws: int = 500
) -> list[Record]:
    """Rows of table `trials` without the grader: what the questions of every policy buy when an educator gives the
    labels one by one.

    saving_area_<policy>: under the curve of the accuracy over the questions asked, 0 … 1: its mean over budgets;
    saving_questions_<policy>: share of the questions at which 90% of the gain of all answers is first reached, None
    where answers do not gain. The note compares with random, by a 95% interval over responses.

    levels: (rows, K, M + 1) p̂ of `rows`; responses without a grade leave. Each policy asks
    once, over the whole set; the bootstrap then resamples responses with what they were asked, the same ones for all
    policies.
    """
    graded = data.grades[rows] != MISSING
    levels, rows = levels[graded], rows[graded]
    tops = data.concepts.tops[: levels.shape[1]]
    answers = oracle_values(data.levels[rows][:, : len(tops)], tops)
    right = data.grades[rows]
    shares = np.linspace(0, 1, STEPS + 1)
    questions = int((~np.isnan(answers)).sum())
    budgets = np.round(shares * questions).astype(np.int64)
    classes = len(data.scores)
    grades = []
    for policy in POLICIES:
        order, turn = ask(policy, levels, head, answers, tops, seed)
        after = grades_after(head, shares_of(levels, tops), order, answers)
        answered = (turn < budgets[:, None, None]).sum(axis=2)
        grades.append(after[answered, np.arange(len(rows))])  # of each budget and response
    measure = MEASURES["accuracy"]
    found = [[measure(right, chosen, 0, classes - 1).value for chosen in of_policy] for of_policy in grades]
    values = np.array(found, np.float64)  # (policies, STEPS + 1), NaN where it is undefined
    sample = resampled_metrics(np.concatenate(grades), right, classes, draws, seed)["task_accuracy"]
    drawn = np.moveaxis(sample.reshape(len(POLICIES), len(shares), draws), 2, 1)
    numbers = {
        "area": (np.asarray(np.trapezoid(values, shares)), np.asarray(np.trapezoid(drawn, shares))),
        "questions": (_needed(values, shares), _needed(drawn, shares)),
    }
    records, random = [], POLICIES.index("random")
    for place, policy in enumerate(POLICIES):
        for name, (of_policies, resampled) in numbers.items():
            value = float(of_policies[place])
            change = float(of_policies[place] - of_policies[random])
            low, high = interval(resampled[place] - resampled[random], len(rows))[:2]
            note = "of task_accuracy"
            if np.isnan(value):
                note = "undefined: the answers do not raise task_accuracy"
            elif low is not None and high is not None and not np.isnan(change):
                note += f"; {change:+.3f} [{low:+.3f}, {high:+.3f}] against random"
            record = {"metric": f"saving_{name}_{policy}", "criterion_id": "", "n": len(rows), "note": note}
            records.append(record | {"value": None if np.isnan(value) else value})
    return records


def _needed(values: Floats, shares: Floats) -> Floats:
    """(...,) share of the questions where curves (..., STEPS + 1) first reach `GAIN` of their gain, between two budgets
    by a straight line; NaN for a curve that does not end above its start."""
    start = values[..., :1]
    gain = values[..., -1:] - values[..., :1]
    reached = ratio(values - start, gain)
    first = np.argmax(reached >= GAIN, axis=-1)
    high = np.take_along_axis(reached, first[..., None], axis=-1)[..., 0]
    low = np.take_along_axis(reached, np.maximum(first - 1, 0)[..., None], axis=-1)[..., 0]
    # At the first point nothing is gained, so a curve that gains reaches it later.
    gains = first > 0
    beyond = (high - GAIN) / np.where(gains, high - low, 1)
    return np.where(gains, shares[first] - beyond * shares[1], np.nan)
