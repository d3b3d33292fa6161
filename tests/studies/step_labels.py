"""Does Edit's grounding audit tell an annotator's two kinds of step apart (its Table 8)?

`python tests/studies/step_labels.py RUN --warehouse DIR --to steps.csv` draws 120 steps of a finished run by chance and
writes them with an empty column `kind`, for an annotator to fill in: grounding, a judgement read off the answer against
the scheme, or synthesis, which puts earlier steps together. With `--labels FILE` such a file is read: printed is, for
each signal by steps and by rollouts, the rank-biserial effect with its one-sided p, and how far the labels agree with
the study's own pattern, where it has one.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

import pandas as pd
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.core.contracts.tables.edit import Rollouts, Steps
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.core.text.patterns import begins
from rubricflow.tasks.methods.edit.belief import HIGHER, Label, separations

KEY = ["seed", "response_id", "sample"]


def steps_of(run: Run) -> pd.DataFrame:
    """The steps of the base policy's rollouts with their signals and text."""
    steps = run.table(Steps, "edit").to_pandas().query("arm == 'base' and step > 0")
    rollouts = run.table(Rollouts, "edit").to_pandas().query("arm == 'base'")
    steps = steps.merge(rollouts[[*KEY, "text"]].rename(columns={"text": "rollout"}), on=KEY)
    cut = zip(steps["rollout"], steps["start"].astype(int), steps["end"].astype(int), strict=True)
    return steps.assign(text=[text[start:end].strip() for text, start, end in cut])


def measure(steps: pd.DataFrame, labels: pd.DataFrame, pattern: str | None) -> None:
    """Print what the labels say of the signals."""
    labelled = steps.merge(labels[[*KEY, "step", "kind"]], on=[*KEY, "step"])
    if strange := set(labelled["kind"]) - set(get_args(Label)):
        raise SystemExit(f"column 'kind' holds {strange}: only {get_args(Label)}")
    signals = {
        name: labelled[name if name.startswith("prefix_") else f"grounding_{name}"].to_numpy() for name in HIGHER
    }
    names = (labelled["response_id"] + " " + labelled["sample"].astype(str)).tolist()
    print(pd.DataFrame(separations(labelled["kind"].tolist(), signals, names)).round(3).to_string(index=False))
    if pattern:
        told = ["synthesis" if begins(pattern, text, "edit.synthesis") else "grounding" for text in labelled["text"]]
        print(f"kappa with the study's pattern {cohen_kappa_score(labelled['kind'], told):.3f}, n {len(labelled)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--warehouse", type=Path, default=Path("data/warehouse"))
    parser.add_argument("--to", type=Path)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--pattern", help="of steps that put others together, to compare the labels with")
    given = parser.parse_args()
    steps = steps_of(Warehouse.open(given.warehouse).run(given.run))
    if given.labels:
        measure(steps, pd.read_csv(given.labels, dtype={"response_id": str}), given.pattern)
    if given.to:
        drawn = steps.sample(min(120, len(steps)), random_state=0)[[*KEY, "step", "rollout", "text"]]
        drawn.assign(kind="").to_csv(given.to, index=False)


if __name__ == "__main__":
    main()
