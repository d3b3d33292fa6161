"""Whether the promise of a cascade holds, and what it costs: python tests/studies/cascades.py simulate|rewardbench

simulate: classes whose truth is known, 500 studies a cell: cascades of two and three judges whose errors hang together,
weak, middling and strong, with 50 to 400 labels. A promise is broken where more of what goes out is wrong than it says.
Cost is beside that of limits that nobody can choose who knows no more than labels: the cheapest combination that keeps
the promise in truth (`known`); the cheapest of those that pass the test on these labels, too (`passing`); and those of
an oracle that knows what every combination costs, whether it keeps the promise, and how likely each labelled score was
to be wrong, but must put them on a path before it sees which are, and test them as `least_cost` does (`oracle`).
rewardbench: recorded scores of GPT-5.4 and Claude models for RewardBench 2 (--data FILE, its scores.parquet): the best
of the responses to a prompt is chosen, wrongly where it is not the one that people chose, or tied. The risk is learned
from the margin between the best two mean scores, on labelled prompts, for each step; limits are those of the least
expected error (`least_error`) for half of what the whole jury takes, and nothing goes to people. The steps: a small
model, with the large one of its family, with two models of another family; who was asked before is not asked again.
Labelled prompts are drawn again and again, and the others measured.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from promise_world import TOLERANCE, World, drawn_by_judges, wrongness
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.stats.promise import exact_interval
from rubricflow.tasks.grading.calibrate.fit import outcome
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels, cross_fit, folds
from rubricflow.tasks.grading.calibrate.rows import LabelledRows, RiskRows
from rubricflow.tasks.grading.calibrate.spread import Placed, error_risk, risks, sigmas
from rubricflow.tasks.grading.cascade.limits import (
    NEVER,
    CascadeTerms,
    ChosenLimits,
    StepRisks,
    _chance,
    _grid,
    _last_passed,
    _limits,
    _tried,
    stopping,
)

STUDIES = 500
"""Of a cell, every second one with authors who answer several questions."""
CONFIDENCE, TARGET = 0.9, 0.1
IN_COMMON = 0.5
NEW = 1_000
"""New answers of a study, over all items."""
JUDGES = {
    "weak": ((1.6, 1.0), (1.0, 10.0)),
    "middling": ((1.0, 0.6), (1.0, 10.0)),
    "strong": ((0.6, 0.35), (1.0, 10.0)),
    "three": ((1.6, 1.0, 0.4), (1.0, 5.0, 30.0)),
}
"""Noise and cost of each step."""
PEOPLE = 20
"""What people cost, in answers of the dearest step."""


def new_risks(labels: LabelledRows, new: LabelledRows) -> tuple[Floats, Floats, Bools, RiskRows]:
    """(level, risk and whether it may go out of new answers; the same of the labelled ones)."""
    fold = folds(labels.cluster)
    tried = cross_fit("linear", labels, fold, 2.5)
    spread, known, _ = outcome(labels, tried, fold, Release(tolerance=TOLERANCE, confidence=CONFIDENCE))
    mapped = apply_to_labels(tried.mapping, new, tried.weight)
    level = new.levels(mapped.aligned)
    sigma = sigmas(spread.sigma, mapped.aligned, new.matrix[:, [1]] if spread.signals else new.matrix[:, []])
    steps, epsilon = new.steps(mapped.aligned), np.array(spread.epsilon)
    sigma = sigma / (new.high - new.low) * new.top
    risk = risks(steps, sigma, level, new.top, epsilon, spread.tolerance, spread.grain)
    if spread.errors is not None:
        effect = np.array([spread.errors.effect(item) for item in new.items])[new.item]
        risk = error_risk(spread.errors, Placed(steps, level, new.top, risk), new.matrix, effect)
    return level, risk, ~mapped.clipped, known


def study(
    noises: Sequence[float], costs: Sequence[float], n: int, clustered: bool, rng: np.random.Generator
) -> dict[str, float]:
    """One study: what its limits let out of new answers, what of that is wrong in truth, and costs."""
    world, by_people = World(1, clustered, 1.0), PEOPLE * max(costs)
    labels, true = drawn_by_judges(world, noises, IN_COMMON, round(n / 3), rng)
    new, truth = drawn_by_judges(replace(world, clustered=False), noises, IN_COMMON, round(NEW / 3), rng)
    seen = [new_risks(one, other) for one, other in zip(labels, new, strict=True)]
    told = [one[3] for one in seen]
    rows = StepRisks(
        np.column_stack([one.risk for one in told]),
        np.column_stack([one.wrong for one in told]),
        ~np.column_stack([one.clipped for one in told]),
        labels[0].cluster,
    )
    terms = CascadeTerms(costs, by_people, TARGET, CONFIDENCE)
    policies = _grid(rows)
    tried = _tried(rows, policies, terms)
    share, cost, out = _exact(
        np.column_stack([one[1] for one in seen]),
        np.column_stack([one[2] for one in seen]),
        np.column_stack([wrongness(level, truth, 1, TOLERANCE) for level, *_ in seen]),
        policies,
        terms,
    )
    allowed, chance = _chance(rows, tried, terms)
    keeps, passes = share <= TARGET, (tried.released > 0) & (tried.wrong <= allowed)
    # What the labels would show in the mean, had they been marked again and again.
    likely = np.column_stack([wrongness(one.level, true, 1, TOLERANCE) for one in told])
    expected = _exact(rows.risk, rows.open, likely, policies, terms)[0] * tried.released
    oracle = _chance(rows, tried._replace(expected=expected), terms)[1] * keeps
    alone = costs[0] + by_people
    found = {"out": 0.0, "wrong": np.nan, "cost": alone, "oracle": alone, "people": alone}
    if (at := _last_passed(tried, allowed, chance, tried.cost)) is not None:
        found |= {"out": out[at], "wrong": share[at], "cost": cost[at]}
    if (at := _last_passed(tried, allowed, oracle, cost)) is not None:
        found["oracle"] = cost[at]
    best = {"known": keeps, "passing": keeps & passes}
    found |= {name: cost[which].min(initial=alone) for name, which in best.items()}
    return found | {"made": found["out"] > 0, "broken": found["wrong"] > TARGET}


def least_error(rows: StepRisks, costs: Sequence[float], most: float, confidence: float) -> ChosenLimits | None:
    """The limits of least expected error among those whose steps cost an answer at most that in the mean, where every
    answer that its last step may let out goes out; None where the first step alone costs more.

    They are chosen by risks and costs alone, so that `upper` bounds their error at the confidence given as it would
    that of limits named beforehand.
    """
    policies = _grid(rows)
    policies = np.unique(np.column_stack([policies[:, :-1], np.where(policies[:, -1:] >= 0, 1.0, NEVER)]), axis=0)
    # Some step asks last, and lets out all that it may.
    last = policies.shape[1] - 1 - np.argmax(policies[:, ::-1] >= 0, axis=1)
    policies = np.unique(policies[policies[np.arange(len(policies)), last] >= 1.0], axis=0)
    tried = _tried(rows, policies, CascadeTerms(costs, 0.0, TARGET, confidence))
    fits = np.flatnonzero((tried.asking <= most) & (tried.released > 0))
    if not len(fits):
        return None
    share = tried.expected[fits] / tried.released[fits]
    return _limits(policies, tried, int(fits[np.lexsort((tried.cost[fits], share))[0]]), confidence)


def _exact(
    risk: Floats, is_open: Bools, chance: Floats, policies: Floats, terms: CascadeTerms
) -> tuple[Floats, Floats, Floats]:
    """(share wrong of what goes out, cost of an answer, share that goes out), (m,), under each combination, in truth.
    risk, is_open, chance: (n, K), of answers at each step: risk, whether it may go out, how likely it is wrong."""
    marks = [np.unique(column) for column in policies.T]
    place = [np.searchsorted(mark, column) for mark, column in zip(marks, policies.T, strict=True)]
    # The first limit at which each answer stops; beyond the last where at none.
    bins = np.where(is_open, np.column_stack([*map(np.searchsorted, marks, risk.T)]), [*map(len, marks)])
    n, (wrong, out, cost) = len(risk), np.zeros((3, len(policies)))
    for step, price in enumerate(terms.costs):
        cost += price * (1 - out) * ((policies[:, step] > NEVER) | (step == 0))
        for total, weight in ((wrong, chance[:, step]), (out, np.ones(n))):
            table = np.zeros([len(mark) + 1 for mark in marks[: step + 1]])
            np.add.at(table, tuple(bins[:, : step + 1].T), weight / n)
            for axis in range(step):  # what stopped at no step before
                table = table.sum(axis=axis, keepdims=True) - table.cumsum(axis=axis)
            total += table.cumsum(axis=step)[tuple(place[: step + 1])]
    share = np.divide(wrong, out, out=np.zeros(len(policies)), where=out > 1e-12)
    return share, cost + terms.by_people * (1 - out), out


def simulate(studies: int, sizes: Sequence[int], names: Sequence[str]) -> None:
    """Broken promises, and costs beside the best in hindsight."""
    for number, (name, (noises, costs)) in enumerate(JUDGES.items()):
        for n in sizes if name in names else ():
            rows = [
                study(noises, costs, n, at % 2 == 1, np.random.default_rng([number, n, at])) for at in range(studies)
            ]
            frame = pd.DataFrame(rows).astype(float)
            broken, mean = int(frame["broken"].sum()), frame.mean()
            low, high = exact_interval(broken, studies)
            errors = frame.sem()
            over = (frame["cost"] - frame["oracle"]).sem() / mean["oracle"]
            print(
                f"{name:9} {n:4} labels: promise made {mean['made']:.2f}, held {1 - broken / studies:.3f} "
                f"[{1 - high:.3f}, {1 - low:.3f}] (n = {studies}), out {mean['out']:.2f}, wrong {mean['wrong']:.3f}; "
                f"cost {mean['cost']:.1f} ± {errors['cost']:.1f}, oracle {mean['oracle']:.1f} (cost "
                f"{mean['cost'] / mean['oracle'] - 1:+.0%} ± {over:.0%}), passing {mean['passing']:.1f} "
                f"({mean['cost'] / mean['passing'] - 1:+.0%}), known {mean['known']:.1f}, people alone "
                f"{mean['people']:.0f}",
                flush=True,
            )


ARMS = {
    "GPT-5.4 mini": ("criteria_both_k8", "mini"),
    "GPT-5.4": ("criteria_both_k8", "full"),
    "Claude, large": ("criteria_claude_both_k8", "full"),
    "Claude, small": ("criteria_claude_both_k8", "mini"),
}
"""Name → collection and judge: eight replies each, with the criterion of the subset in the prompt."""
STEPS = (("GPT-5.4 mini",), ("GPT-5.4 mini", "GPT-5.4"), tuple(ARMS))


def rewardbench(file: Path, labels: Sequence[int], repeats: int) -> None:
    """Accuracy and tokens of juries of these models, and of cascades of them."""
    recorded = pd.read_parquet(file).astype({"score": float})
    means: dict[str, Any] = {}
    tokens: dict[str, Any] = {}
    for name, (collection, judge) in ARMS.items():
        own = recorded[(recorded["collection"] == collection) & (recorded["judge"] == judge)]
        mean = own.groupby(["prompt_id", "response_index"])["score"].mean().unstack()
        means[name] = (mean - np.nanmean(mean.to_numpy())) / np.nanstd(mean.to_numpy())
        taken = own.groupby("prompt_id")[["prompt_input_tokens", "prompt_output_tokens"]].first()
        tokens[name] = taken.sum(axis=1)
    prompts = sorted(set.intersection(*(set(mean.index[mean[0].notna()]) for mean in means.values())))
    subset = recorded.drop_duplicates("prompt_id").set_index("prompt_id")["subset"].loc[prompts]
    right: dict[Any, Any] = {}
    margin: dict[Any, Any] = {}
    for jury in {*STEPS, *((name,) for name in ARMS)}:
        score = np.sum([means[name].loc[prompts].fillna(0.0).to_numpy() for name in jury], axis=0)
        best = np.sort(score, axis=1)
        right[jury] = score[:, 0] > score[:, 1:].max(axis=1) + 1e-9
        margin[jury] = best[:, -1] - best[:, -2]
        low, high = exact_interval(int(right[jury].sum()), len(prompts))
        took = sum(tokens[name].loc[prompts].mean() for name in jury)
        print(
            f"{', '.join(jury)}: accuracy {right[jury].mean():.3f} [{low:.3f}, {high:.3f}], {took:,.0f} tokens a prompt"
        )
    costs = [
        sum(tokens[name].loc[prompts].mean() for name in set(jury) - set(before))
        for before, jury in zip(((), *STEPS), STEPS, strict=False)
    ]
    wrong = ~np.column_stack([right[jury] for jury in STEPS])
    hints = [np.column_stack([np.log(margin[jury] + 0.05), pd.get_dummies(subset)]) for jury in STEPS]
    print(
        f"steps cost {', '.join(f'{cost:,.0f}' for cost in costs)}; {len(prompts)} prompts, {repeats} draws of labels"
    )
    for n in labels:
        cells = []
        for seed in range(repeats):
            drawn = np.random.default_rng([n, seed]).permutation(len(prompts))
            known, new = drawn[:n], drawn[n:]
            risk = np.empty((len(prompts), len(STEPS)))
            for step, hint in enumerate(hints):
                model = LogisticRegression(C=1.0)
                risk[new, step] = model.fit(hint[known], wrong[known, step]).predict_proba(hint[new])[:, 1]
                fold = StratifiedKFold(5, shuffle=True, random_state=seed)
                risk[known, step] = cross_val_predict(
                    model, hint[known], wrong[known, step], cv=fold, method="predict_proba"
                )[:, 1]
            rows = StepRisks(risk[known], wrong[known], np.ones((n, len(STEPS)), np.bool_), known.astype(str))
            made = least_error(rows, costs, sum(costs) / 2, CONFIDENCE)
            assert made is not None
            place = stopping(risk[new], np.ones((len(new), len(STEPS)), np.bool_), made.limits)
            took = sum(costs[k] * (place >= k).mean() for k in range(len(STEPS)) if k == 0 or made.limits[k] > NEVER)
            error = wrong[new, place].mean()
            whole = wrong[new, -1].mean()
            cells.append((1 - error, took / sum(costs), 1 - whole, error <= made.upper))
        accuracy, share, jury, held = np.array(cells, dtype=float).T
        print(
            f"{n} labelled prompts: cascade {accuracy.mean():.3f} ({np.quantile(accuracy, 0.025):.3f} to "
            f"{np.quantile(accuracy, 0.975):.3f} over draws), {share.mean():.2f} of the jury's tokens (at most "
            f"{share.max():.2f}), the jury on the same prompts {jury.mean():.3f}; "
            f"error within its bound in {held.mean():.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["simulate", "rewardbench"])
    parser.add_argument("--data", type=Path, default=Path("../shared/data/rewardbench2_scores/scores.parquet"))
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--studies", type=int, default=STUDIES)
    parser.add_argument("--judges", nargs="*", choices=JUDGES, default=[*JUDGES])
    parser.add_argument("--labels", type=int, nargs="*", help="50 to 400, or 100 to 400")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    if given.part == "simulate":
        simulate(given.studies, given.labels or [50, 100, 200, 400], given.judges)
    else:
        rewardbench(given.data, given.labels or [100, 200, 400], given.repeats)


if __name__ == "__main__":
    main()
