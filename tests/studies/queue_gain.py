"""What the order of the queue gains: labels set right per case reviewed, by simulation.

python tests/studies/queue_gain.py [--responses N] [--seeds N]

True levels come from a quality that a response's concepts share. Two annotators see them with noise of their own, one
twice as noisy as the other, and with noise that they share, which makes them err together; one gives probabilities,
which are too sure of themselves. Quotes of wrong levels fail more often than those of right ones, one level in a
hundred is missing, and the human score is the mean share of the true levels with noise. People then review a share of
the responses and say the truth. Set right: labels that were wrong or open before. The orders: ours; by levels on which
the annotators differ; by the sum of the differences; by chance; and by the truth, which nothing can beat.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.settings.annotation import Doubt
from rubricflow.tasks.people.review.cells import NO_LEVEL, CellLabels, cells_of
from rubricflow.tasks.people.review.queue import label_queue

CONCEPTS = 8
NOISE = (0.15, 0.3)
"""Standard deviation of each annotator, in widths of a level."""
SHARED = 0.2
"""Of what both see alike."""
SURE = 0.7
"""The annotator's idea of its own noise, as a share of what it is."""
BUDGETS = (0.05, 0.1, 0.25, 0.5)


def annotator(name, opinion, top, noise, truth, rng, gives):
    """What an annotator with an opinion on [0, top] says in every cell."""
    level = np.clip(np.floor(opinion * (top + 1)), 0, top).astype(np.int64)
    edges = np.arange(1, top + 1) / (top + 1)
    width = noise * SURE / (top + 1)
    above = norm.cdf((opinion[:, None] - edges) / width)
    levels = -np.diff(np.column_stack([np.ones(len(level)), above, np.zeros(len(level))]), axis=1)
    probability = levels[np.arange(len(level)), level] if gives else np.full(len(level), np.nan)
    failed = rng.random(len(level)) < np.where(level == truth, 0.03, 0.2)
    missing = rng.random(len(level)) < 0.01
    return CellLabels(
        name,
        np.where(missing, NO_LEVEL, level),
        np.where(missing, np.nan, probability),
        failed & (level > 0) & ~missing,
    )


def simulate(responses, top, seed):
    """Cells, annotators, human shares and the true levels."""
    rng = np.random.default_rng(seed)
    concept = [
        Criterion(id=f"C{k}", trait="t", text="?", levels=tuple(map(str, range(top + 1)))) for k in range(CONCEPTS)
    ]
    cells = cells_of({f"r{i:06d}": "rubric" for i in range(responses)}, {"rubric": concept})
    quality = rng.random(responses)[cells.response]
    true = np.clip(0.6 * quality + 0.4 * rng.random(len(quality)), 0, 1 - 1e-9)
    truth = np.floor(true * (top + 1)).astype(np.int64)
    together = rng.normal(0, SHARED / (top + 1), len(true))
    says = [
        annotator(name, true + together + rng.normal(0, noise / (top + 1), len(true)), top, noise, truth, rng, gives)
        for name, noise, gives in (("a", NOISE[0], False), ("b", NOISE[1], True))
    ]
    share = np.bincount(cells.response, truth / top) / CONCEPTS
    human = np.clip(np.round(5 * (share + rng.normal(0, 0.08, responses))) / 5, 0, 1)
    return cells, tuple(says), dict(zip(cells.responses, human.tolist(), strict=True)), truth


def gains(responses, top, seed):
    """Order → budget → labels set right per case."""
    cells, (a, b), human, truth = simulate(responses, top, seed)
    rng = np.random.default_rng(seed)
    of = dict(zip(cells.responses, range(responses), strict=True))
    per_response = lambda cell: np.bincount(cells.response, cell, responses)  # noqa: E731
    wrong = per_response(~((a.level == b.level) & (a.level == truth)))
    both = (a.level >= 0) & (b.level >= 0)
    keys = {
        "differing labels": per_response(a.level != b.level),
        "sum of differences": per_response(np.where(both, np.abs(a.level - b.level), 0)),
        "chance": rng.random(responses),
        "truth": wrong,
    }
    ties = rng.random(responses)
    orders = {name: np.lexsort((ties, -key)) for name, key in keys.items()}
    queued = [of[row["response_id"]] for row in label_queue(cells, (a, b), human, Doubt(audit=1))]
    orders = {"queue": np.array(queued), **orders}
    return {
        (top + 1, name): {budget: wrong[order[: int(budget * responses)]].mean() for budget in BUDGETS}
        for name, order in orders.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    runs = [pd.DataFrame(gains(given.responses, top, seed)).T for top in (2, 4) for seed in range(given.seeds)]
    every = pd.concat(runs).groupby(level=[0, 1], sort=False)
    table = every.mean().round(2).astype(str) + " ± " + every.std().round(2).astype(str)
    table.index.names, table.columns = ["levels", "order"], [f"{budget:.0%} reviewed" for budget in BUDGETS]
    print(table.to_string())


if __name__ == "__main__":
    main()
