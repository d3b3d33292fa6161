"""What a model of raters is worth: severities found again, fair scores beside the mean, mappings fitted to either.

Simulated, since only there the truth is known: python tests/studies/raters.py [studies a cell]. First severities in
points (slope and bias of estimated on true, root mean squared error, coverage of 95% intervals, mean infit), then root
mean squared errors of mean and fair score (their ratio, the fair score's standard error and coverage, worst ratio),
then the kappa with the truth of a line fitted to either on half of the responses.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from rubricflow.tasks.core.stats.agreement import qwk_continuous
from rubricflow.tasks.core.stats.bootstrap import bootstrap
from rubricflow.tasks.core.stats.facet_likelihood import design
from rubricflow.tasks.core.stats.facets import fair_scores, fit
from rubricflow.tasks.core.stats.rater_fit import infit, leniency, residuals
from rubricflow.tasks.core.stats.true_score import true_score_intervals
from tests.builders.ratings import marked, world

CELLS = {
    "2 marks of 5 raters": ({"raters": 5, "spread": 0.5}, {"n": 200}),
    "1 or 2 marks": ({"raters": 5, "spread": 0.5}, {"n": 200, "doubles": 0.5}),
    "answers sorted by rater": ({"raters": 5, "spread": 0.5}, {"n": 200, "sorted_out": True}),
    "20 raters": ({"raters": 20, "spread": 0.5}, {"n": 200}),
    "equal raters": ({"raters": 6, "spread": 0.0}, {"n": 150}),
    "30 levels": ({"raters": 5, "spread": 0.5, "levels": 30, "slope": 20.0}, {"n": 200}),
    "60 responses": ({"raters": 3, "spread": 0.5}, {"n": 60}),
}
COLUMNS = "slope bias rmse cover infit | mean fair ratio se cover worst | by_mean by_fair"


def study(seed: int, scale: dict[str, float], plan: dict[str, float]) -> list[float]:
    """One simulated study; the columns of COLUMNS."""
    of = world(seed, **scale)
    ratings, truth = marked(of, seed + 1000, **plan)
    fitted = fit(design(ratings))
    given = defaultdict(list)
    for one in ratings:
        given[one.response].append(one.score)
    names = fitted.design.responses
    true, mean = np.array([truth[name] for name in names]), np.array([np.mean(given[name]) for name in names])
    fair = fair_scores(fitted)
    ability = np.random.default_rng(0).normal(size=1000)
    severities = [of.severity[name] for name in fitted.design.raters]
    wanted = np.array([np.mean([of.fair(z - s) - of.fair(z) for z in ability]) for s in severities])
    found = leniency(fitted, np.ones(1))
    error = np.array([one.value for one in found]) - wanted
    left = residuals(fitted)
    fits = [infit(left.take(left.rater == code)).value for code in range(len(severities))]
    rmse = [float(np.sqrt(np.mean((own - true) ** 2))) for own in (mean, fair.score)]
    machine = true + np.random.default_rng(seed).normal(size=len(true)) * true.std() * 0.6
    mapped = [_mapped(machine, own, true) for own in (mean, fair.score)]
    slope = np.polyfit(wanted, wanted + error, 1)[0] if np.ptp(wanted) else np.nan
    held = np.mean([one.low <= value <= one.high for one, value in zip(found, wanted, strict=True)])
    near = np.mean(np.abs(fair.score - true) <= 1.96 * fair.se)
    spread = float(np.sqrt(np.mean(fair.se**2)))
    severe = [slope, error.mean(), np.sqrt(np.mean(error**2)), held, np.mean(fits), np.nan]
    return [*severe, *rmse, rmse[1] / rmse[0], spread, near, rmse[1] / rmse[0], np.nan, *mapped]


def _mapped(machine: np.ndarray, target: np.ndarray, true: np.ndarray) -> float:
    """Kappa with the truth of a line fitted to the target on half of the responses, on the other half."""
    half = len(true) // 2
    line = np.polyval(np.polyfit(machine[:half], target[:half], 1), machine[half:])
    return float(qwk_continuous(true[half:], line).value or 0.0)


def covered(seed: int, wanted: float) -> tuple[bool, bool]:
    """Whether the intervals of kappa hold what it is with the truth: against the mean of two people, and corrected."""
    ratings, machine = _noisy(seed, 150)[:2]
    rows = np.arange(len(machine))
    plain = bootstrap(np.nanmean(ratings, axis=1), machine, rows, (-3, 9, 0.001), 400, seed)["qwk_continuous"]
    true = true_score_intervals(ratings, machine, rows, 400, seed)["qwk_true"]
    return plain.low <= wanted <= plain.high, true.low <= wanted <= true.high


def _noisy(seed: int, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    true = rng.normal(3, 1, n)
    ratings = true[:, None] + rng.normal(0, 0.8, (n, 2))
    ratings[rng.random(n) < 0.3, 1] = np.nan
    return ratings, 3.2 + 0.7 * (true - 3) + rng.normal(0, 0.5, n), true


def main(studies: int) -> None:
    """Print the tables."""
    columns = COLUMNS.split()
    print(" " * 26, *(name.rjust(7) for name in columns))
    for name, (scale, plan) in CELLS.items():
        rows = np.array([study(seed, scale, plan) for seed in range(studies)])
        means = np.where([word == "worst" for word in columns], rows.max(axis=0), rows.mean(axis=0))
        shown = ["|" if word == "|" else f"{mean:.3f}" for word, mean in zip(columns, means, strict=True)]
        print(name.ljust(26), *(word.rjust(7) for word in shown), flush=True)
    _, machine, true = _noisy(10**6, 400_000)
    wanted = float(qwk_continuous(true, machine).value or 0.0)
    held = np.mean([covered(seed, wanted) for seed in range(4 * studies)], axis=0)
    print(f"95% intervals that hold kappa with the truth: of the mean {held[0]:.3f}, corrected {held[1]:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
