"""Rewards on real data: python tests/studies/rewards.py PART --data FOLDER

posterior: ways to learn retention factors, and exact inference, on held-out human scores.
exploit: aggregations, doubts and further calls on a task in which false credit can be earned.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import rewards_exploit
import rewards_posterior

PARTS = {
    "posterior": rewards_posterior.report,
    "exploit": rewards_exploit.report,
}


def table(title: str, rows: Sequence[dict[str, object]]) -> None:
    """Print rows of figures under a title."""
    print(f"\n== {title}")
    with pd.option_context("display.max_colwidth", None):
        print(pd.DataFrame(rows).to_string(index=False, float_format="{:.4f}".format, na_rep="–"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    given = parser.parse_args()
    for title, rows in PARTS[given.part](given.data):
        table(title, rows)


if __name__ == "__main__":
    main()
