"""Does Rulers' phase III help recorded judges of real essays? `python tests/studies/phase_three.py [SPLITS]`: four
models under three prompts each on 475 ENEM essays (five competences), the project's own functions, N labelled essays
and the rest held out, QWK of the total with people's. Columns are means over splits and judges; the interval is of
judges."""

from __future__ import annotations

import sys

import numpy as np
import pandas as pd
from recorded_sets import need

from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.grading.calibrate import alignment

SCALE = (0.0, 1000.0, 40.0)
SIZES = (50, 100, 150, 200)
HELD_OUT = 275


def agreements(traits: Floats, length: Floats, human: Floats, size: int, order: np.ndarray) -> dict[str, float]:
    """QWK over the held-out essays of each way to a score, all fitted to the first `size` of `order`."""
    known, rest = order[:size], order[-HELD_OUT:]
    total = traits.sum(axis=1)
    ways = {
        "traits and length": np.column_stack([traits, length]),
        "total and length": np.column_stack([total, length]),
        "total alone": total[:, None],
        "length alone": length[:, None],
    }
    found = {"raw": alignment.snap(total[rest], SCALE)}
    for name, matrix in ways.items():
        fitted = alignment.fit(matrix[known], human[known], *SCALE[:2])
        found[f"{name}, phase III"] = alignment.apply(fitted, matrix[rest], SCALE).score
        if name == "traits and length":
            found["traits and length, ridge alone"] = alignment.apply(
                alignment.without_map(fitted), matrix[rest], SCALE
            ).score
    return {name: qwk(human[rest], score, *SCALE).value or 0.0 for name, score in found.items()}


def of_judges(splits: int) -> pd.DataFrame:
    """QWK by way, labels and judge, the mean over splits."""
    essays = pd.read_parquet(need("enem_essays", "essays_human_competences.parquet")).set_index("essay_id")
    judged = pd.read_parquet(need("enem_essays", "judge_competence_scores.parquet"))
    rows = []
    for judge, part in judged.groupby(["model", "strategy"]):
        part = part.dropna(subset=[f"llm_c{n}" for n in range(1, 6)]).set_index("essay_id")
        known = essays.loc[part.index]
        traits = part[[f"llm_c{n}" for n in range(1, 6)]].to_numpy(float)
        human = known[[f"human_c{n}" for n in range(1, 6)]].sum(axis=1).to_numpy(float)
        length = np.log1p(known["essay"].str.split().str.len().to_numpy(float))
        for split in range(splits):
            order = np.random.default_rng(split).permutation(len(part))
            for size in SIZES:
                found = agreements(traits, length, human, size, order)
                rows += [(" ".join(judge), size, name, value) for name, value in found.items()]
    table = pd.DataFrame(rows, columns=["judge", "labels", "way", "qwk"])
    return table.groupby(["way", "labels", "judge"])["qwk"].mean().reset_index()


def gain(of_judge: pd.DataFrame, other: str) -> str:
    """What phase III with all labels is above another way, with its interval over judges."""
    at = of_judge[of_judge["labels"] == SIZES[-1]].pivot(index="judge", columns="way", values="qwk")
    gains = (at["traits and length, phase III"] - at[other]).to_numpy()
    drawn = np.random.default_rng(0).choice(gains, (10_000, len(gains))).mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return f"{gains.mean():.3f} [{low:.3f}, {high:.3f}], better for {(gains > 0).sum()} of {len(gains)}"


OTHERS = ("raw", "traits and length, ridge alone", "total alone, phase III", "total and length, phase III")


def main(splits: int) -> None:
    of_judge = of_judges(splits)
    print(of_judge.groupby(["way", "labels"])["qwk"].mean().unstack().round(3).to_string())
    for other in OTHERS:
        print(f"less {other}: {gain(of_judge, other)}")
    at = of_judge[of_judge["labels"] == SIZES[-1]].pivot(index="judge", columns="way", values="qwk")
    print(at.round(3).to_string())


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
