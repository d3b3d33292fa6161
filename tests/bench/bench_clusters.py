"""How often intervals of few authors hold the true figure: python tests/bench/bench_clusters.py."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, interval, pair_sums
from rubricflow.tasks.core.stats.pair_sums import statistics_of_totals

SCALE = (0.0, 5.0, 1.0)
AUTHORS = (5, 10, 15, 20, 40, 100)
NAMES = ("qwk", "exact", "mae", "bias", "pearson")
REPETITIONS, DRAWS = 400, 1_000


def sample(rng, authors):
    """Scores of a machine and a human that share a part within each author; four to twelve responses of each."""
    author = np.repeat(np.arange(authors), rng.integers(4, 13, authors))
    human = 2.5 + rng.normal(0, 0.8, authors)[author] + rng.normal(0, 0.8, len(author))
    machine = human + rng.normal(0, 0.4, authors)[author] + rng.normal(0.1, 0.7, len(author))
    return (*(np.clip(np.rint(scores), 0, 5) for scores in (human, machine)), author)


def held(authors, true):
    """Share of samples whose interval holds the true figure, by statistic, and mean width: ours, plain percentiles."""
    inside, width = np.zeros((2, len(NAMES))), np.zeros((2, len(NAMES)))
    for seed in range(REPETITIONS):
        human, machine, author = sample(np.random.default_rng([authors, seed]), authors)
        codes, size = cluster_codes(author)
        (totals,) = draw_totals([pair_sums(human, machine, codes, size, SCALE)], DRAWS, seed % 4)
        drawn = statistics_of_totals(totals)
        for at, name in enumerate(NAMES):
            plain = np.nanquantile(drawn[name], [0.025, 0.975])
            for by, (low, high) in enumerate((interval(drawn[name], size)[:2], plain)):
                inside[by, at] += low <= true[name] <= high
                width[by, at] += high - low
    return inside / REPETITIONS, width[0] / width[1]


if __name__ == "__main__":
    human, machine, author = sample(np.random.default_rng(0), 50_000)
    whole = pair_sums(human, machine, np.zeros(len(author), dtype=np.int64), 1, SCALE)
    true = {name: value[0] for name, value in statistics_of_totals(whole).items()}
    error = np.sqrt(0.95 * 0.05 / REPETITIONS)
    print(f"95% intervals over authors, {REPETITIONS} samples, {DRAWS} draws: share that hold the true figure, each")
    print(f"± {error:.3f}; wider: than plain percentiles, mean over the statistics.")
    print("authors  by       " + "".join(f"{name:>9}" for name in NAMES) + "    wider")
    for authors in AUTHORS:
        shares, wider = held(authors, true)
        for words, row in zip(("ours", "plain"), shares, strict=True):
            last = f"{wider.mean() - 1:9.1%}" if words == "ours" else ""
            print(f"{authors:>7}  {words:<9}" + "".join(f"{share:9.3f}" for share in row) + last, flush=True)
