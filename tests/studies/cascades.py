"""Whether the promise of a cascade holds, and what it costs: python tests/studies/cascades.py simulate|rewardbench

simulate: classes whose truth is known, 500 studies a cell: cascades of two and three judges whose errors hang together,
weak, middling and strong, with 50 to 400 labels. A promise is broken where more of what goes out is wrong than it says.
Cost is beside that of the best limits in hindsight: of all combinations the cheapest that keeps the promise in truth
(`known`), and the cheapest of those that pass the test on these labels, too (`passing`).
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
from rubricflow.tasks.core.stats.promise import exact_interval, tolerated
from rubricflow.tasks.grading.calibrate.fit import outcome
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels, cross_fit, folds
from rubricflow.tasks.grading.calibrate.rows import LabelledRows
from rubricflow.tasks.grading.calibrate.spread import Placed, error_risk, risks, sigmas
from rubricflow.tasks.grading.cascade.limits import (
    NEVER,
    CascadeTerms,
    ChosenLimits,
    StepRisks,
    _grid,
    _limits,
    _tried,
    least_cost,
    stopping,
)

STUDIES, HINDSIGHT = 500, 60
"""Of a cell, every second one with authors who answer several questions; and those whose best limits are looked for."""
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


def new_risks(labels: LabelledRows, new: LabelledRows) -> tuple[Floats, Floats, Bools, tuple[Floats, Bools, Bools]]:
    """(level, risk and whether it may go out of new answers; risk, wrong and the same of the labelled ones)."""
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
    return level, risk, ~mapped.clipped, (known.risk, known.wrong, ~known.clipped)


def study(
    noises: Sequence[float], costs: Sequence[float], n: int, clustered: bool, hindsight: bool, rng: np.random.Generator
) -> dict[str, float]:
    """One study: what its limits let out of new answers, what of that is wrong in truth, and costs; hindsight: whether
    those of the best limits, too."""
    world, by_people = World(1, clustered, 1.0), PEOPLE * max(costs)
    labels, _ = drawn_by_judges(world, noises, IN_COMMON, round(n / 3), rng)
    new, truth = drawn_by_judges(replace(world, clustered=False), noises, IN_COMMON, round(NEW / 3), rng)
    seen = [new_risks(one, other) for one, other in zip(labels, new, strict=True)]
    risk, wrong, may_go = (np.column_stack(column) for column in zip(*(one[3] for one in seen), strict=True))
    rows = StepRisks(risk, wrong, may_go, labels[0].cluster)
    of_new = (
        np.column_stack([one[1] for one in seen]),
        np.column_stack([one[2] for one in seen]),
        np.column_stack([wrongness(level, truth, 1, TOLERANCE) for level, *_ in seen]),
    )
    terms = CascadeTerms(costs, by_people, TARGET, CONFIDENCE)
    made = least_cost(rows, terms)
    people_alone = costs[0] + by_people
    found = {"made": made is not None, "out": 0.0, "wrong": np.nan, "cost": people_alone, "people": people_alone}
    if made is not None:
        share, cost, went = _exact(of_new, np.array([made.limits]), costs, by_people)
        found |= {"out": went[0], "wrong": share[0], "cost": cost[0]}
    if hindsight:
        policies = _grid(rows)
        told, (share, cost, _) = _tried(rows, policies, terms), _exact(of_new, policies, costs, by_people)
        keeps = share <= TARGET
        allowed = tolerated(np.maximum(told.released, 1), told.worth, TARGET, 1 - CONFIDENCE)
        passes = keeps & (told.wrong <= allowed) & (told.released > 0)
        found |= {"known": cost[keeps].min(initial=people_alone), "passing": cost[passes].min(initial=people_alone)}
    return found | {"broken": found["wrong"] > TARGET}


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
    new: tuple[Floats, Bools, Floats], policies: Floats, costs: Sequence[float], by_people: float
) -> tuple[Floats, Floats, Floats]:
    """(share wrong of what goes out, cost of an answer, share that goes out) under each combination, in truth. new: of
    new answers the risk at each step, whether the score may go out, and the chance that it is wrong."""
    risk, is_open, chance = new
    share, cost, out = [], [], []
    for limits in policies:
        at = stopping(risk, is_open, limits)
        went = at < len(costs)
        asked = sum(c * (at >= k).mean() for k, c in enumerate(costs) if k == 0 or limits[k] > NEVER)
        share.append(chance[np.flatnonzero(went), at[went]].mean() if went.any() else 0.0)
        cost.append(asked + by_people * (~went).mean())
        out.append(went.mean())
    return np.array(share), np.array(cost), np.array(out)


def simulate(studies: int, sizes: Sequence[int]) -> None:
    """Broken promises, and costs beside the best in hindsight."""
    for number, (name, (noises, costs)) in enumerate(JUDGES.items()):
        for n in sizes:
            cells = [
                study(noises, costs, n, at % 2 == 1, at < HINDSIGHT, np.random.default_rng([number, n, at]))
                for at in range(studies)
            ]
            frame = pd.DataFrame(cells).astype(float)
            broken = int(frame["broken"].sum())
            low, high = exact_interval(broken, studies)
            mean, some = frame.mean(), frame[:HINDSIGHT].mean()
            # Of what the best limits save of people's work.
            saved = [(some["people"] - some["cost"]) / (some["people"] - some[best]) for best in ("passing", "known")]
            print(
                f"{name:9} {n:4} labels: promise made {mean['made']:.2f}, held {1 - broken / studies:.3f} "
                f"[{1 - high:.3f}, {1 - low:.3f}] (n = {studies}), out {mean['out']:.2f}, wrong {mean['wrong']:.3f}; "
                f"cost {some['cost']:.1f}, passing {some['passing']:.1f}, known {some['known']:.1f}, people alone "
                f"{some['people']:.0f}: {saved[0]:.0%} and {saved[1]:.0%} of what these save (n = {HINDSIGHT})",
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
    parser.add_argument("--labels", type=int, nargs="*", help="50 to 400, or 100 to 400")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    if given.part == "simulate":
        simulate(given.studies, given.labels or [50, 100, 200, 400])
    else:
        rewardbench(given.data, given.labels or [100, 200, 400], given.repeats)


if __name__ == "__main__":
    main()
