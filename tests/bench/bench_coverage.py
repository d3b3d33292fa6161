"""Share of human scores that intervals hold, through the real fit: python tests/bench/bench_coverage.py."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tasks" / "grading" / "calibrate"))

from coverage_scene import Case, fitted

PROMISED = 0.9
REPETITIONS = 60
SCALES = ((0, 3, 1), (0, 5, 1), (1, 6, 0.5))
LABELS = (50, 100, 200)
RATERS = ((1,), (2,), (3,), (1, 2, 3))
GRAINS = {"as fitted": None, "whole levels": 1.0, "unrounded": 0.0}


def one(case):
    """Mean share held, its standard error and mean width in steps, by each rounding of the ends; (3, 3)."""
    rows = []
    for seed in range(REPETITIONS):
        item = fitted(case, seed, new=400, coverage=PROMISED)
        found = [item.held(grain) for grain in GRAINS.values()]
        rows.append([(of.share, of.width / case.scale[2]) for of in found])
    share, width = np.moveaxis(np.array(rows), 2, 0)
    return np.column_stack([share.mean(axis=0), share.std(axis=0, ddof=1) / np.sqrt(REPETITIONS), width.mean(axis=0)])


def line(case):
    low, high, step = case.scale
    raters = f"{min(case.raters)} to {max(case.raters)}" if len(case.raters) > 1 else str(case.raters[0])
    told = "   ".join(f"{share:.3f} ± {error:.3f} {width:5.2f}" for share, error, width in one(case))
    print(f"{low:g} to {high:g} by {step:<4g} {case.labels:>6} {raters:>7}   {told}", flush=True)


if __name__ == "__main__":
    print(f"Share of new human scores inside their interval, promised {PROMISED}, over {REPETITIONS} sets of labels ±")
    print("standard error, and mean width in steps. Human scores are means of so many people's whole levels.")
    print("Peers: the same intervals with ends moved inward to whole levels, and with ends not rounded.")
    print(" " * 33 + "   ".join(f"{name:>19}" for name in GRAINS))
    print("scale         labels  people   " + "   ".join(["held             width"] * 3))
    for scale in SCALES:
        for labels in LABELS:
            for raters in RATERS:
                line(Case(raters, labels, scale))
