"""Cluster bootstrap against a loop over scikit-learn, time and values: python tests/bench/bench_bootstrap.py."""

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import cohen_kappa_score, mean_absolute_error

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rubricflow.tasks.core.stats.bootstrap import (
    _counts,
    bootstrap,
    cluster_sums,
    pair_terms,
    resample_counts,
    statistics_of_totals,
)

SCALE = (1.0, 6.0, 1.0)
LABELS = np.arange(1, 7)
DRAWS = 10_000
LOOPED = 100
REPEATS = 5
SIZES = ((1_000, 100), (20_000, 2_000))


def sample(responses, authors):
    """Integer human and machine scores on 1-6 with an author effect on both."""
    rng = np.random.default_rng(responses)
    clusters = np.arange(responses) % authors
    human = 3.5 + rng.normal(0, 0.8, authors)[clusters] + rng.normal(0, 0.8, responses)
    machine = human + rng.normal(0.1, 0.6, responses)
    return (*(np.clip(np.rint(scores), 1, 6) for scores in (human, machine)), clusters)


def sklearn_loop(human, machine, clusters, counts):
    """QWK and MAE of every draw, shape (draws, 2)."""
    found = []
    for row in counts.astype(int):
        rows = np.repeat(np.arange(len(human)), row[clusters])
        h, m = human[rows], machine[rows]
        found.append((cohen_kappa_score(h, m, weights="quadratic", labels=LABELS), mean_absolute_error(h, m)))
    return np.array(found)


def compare(responses, authors):
    """Print one line: both times, their ratio and the largest difference on the same draws."""
    human, machine, clusters = sample(responses, authors)
    times = []
    for _ in range(REPEATS):
        _counts.cache_clear()  # the draws are made anew each time
        start = time.perf_counter()
        bootstrap(human, machine, clusters, SCALE, draws=DRAWS)
        times.append(time.perf_counter() - start)
    ours = float(np.median(times))

    counts = resample_counts(np.random.default_rng(0), authors, LOOPED)
    start = time.perf_counter()
    looped = sklearn_loop(human, machine, clusters, counts)
    loop = (time.perf_counter() - start) * DRAWS / LOOPED

    drawn = statistics_of_totals(counts @ cluster_sums(pair_terms(human, machine, SCALE), clusters))
    gap = np.abs(np.column_stack([drawn["qwk"], drawn["mae"]]) - looped).max(axis=0)
    print(
        f"{responses:>6} responses, {authors:>5} authors: ours {ours:7.3f} s, loop {loop:7.1f} s (extrapolated), "
        f"ratio {loop / ours:6.0f}; largest difference qwk {gap[0]:.1e}, mae {gap[1]:.1e}"
    )


if __name__ == "__main__":
    print(f"{DRAWS} cluster resamples. Ours: all twelve statistics, median of {REPEATS} runs. Loop: QWK and MAE by")
    print(f"scikit-learn, timed on {LOOPED} resamples, times {DRAWS // LOOPED}. Differences: largest over these.")
    for size in SIZES:
        compare(*size)
