"""What a user could do in ten lines with the same labels: TF-IDF + ridge, and encoder embedding + ridge, beside a run.

    python tests/studies/baselines.py RUN_ID [--warehouse DIR] [--markdown]

Same calibration and test responses, same scope (an item of its own, or all items pooled) and the same distribution map
as the run, once on the ridge's own latents (as published) and once on cross-fitted ones, which do not overfit.
"""

from __future__ import annotations

import argparse

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict

from rubricflow.flows.finished_runs import read_finished
from rubricflow.tasks.core.contracts.tables.calibration import Calibrations
from rubricflow.tasks.core.contracts.tables.data import Responses
from rubricflow.tasks.core.llm.encoder import minilm
from rubricflow.tasks.core.stats.scores import score_frame
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.calibrate.alignment import knots
from rubricflow.tasks.grading.evaluate.agree import statistics

SHOWN = ("qwk", "icc", "mae", "within_1")


def features(texts: pd.Series, fitted: np.ndarray, kind: str) -> object:
    """Feature rows of all texts; TF-IDF learns its words on the calibration rows only."""
    if kind == "embedding":
        return minilm()(texts.tolist())
    vectorizer = TfidfVectorizer().fit(texts[fitted])
    return vectorizer.transform(texts)


def baseline(part: pd.DataFrame, scale: tuple[float, float, float], kind: str, cross: bool) -> np.ndarray:
    """Mapped scores of every row of `part` (columns text, target, fitted), fitted on its fitted rows."""
    fitted = part["fitted"].to_numpy()
    x, y = features(part["text"], fitted, kind), part.loc[fitted, "target"].to_numpy()
    ridge = Ridge(1.0).fit(x[fitted], y)
    own = cross_val_predict(Ridge(1.0), x[fitted], y, cv=10) if cross else ridge.predict(x[fitted])
    at, score = knots(own, y, 1e-9)
    return np.clip(np.interp(ridge.predict(x), at, score), scale[0], scale[1])


def table(run: Run) -> pd.DataFrame:
    """One row per item and one for the mean over items and for all pooled: n, and each statistic of each method."""
    study, tables, scales = read_finished(run)
    frame, _, people, _ = score_frame(tables, study.evaluation.target, splits=("calibration", "test"))
    texts = run.read(run.ref(Responses, "ingest"), ["response_id", "text"]).to_pandas()
    frame = frame.merge(texts, on="response_id").assign(
        fitted=lambda f: (f["split"] == "calibration") & f["target"].notna()
    )
    scopes = set(run.read(run.ref(Calibrations, "calibrate"))["scope"].to_pylist())
    groups = [frame] if scopes == {"pooled"} else [part for _, part in frame.groupby("item_id")]
    methods = {"raw": "raw", "calibrated": "calibrated"}
    for kind in ("tfidf", "embedding"):
        for cross in (False, True):
            name = f"{kind}{' cross-fitted' if cross else ''}"
            values = [
                pd.Series(baseline(part, scales[part["item_id"].iloc[0]], kind, cross), part.index) for part in groups
            ]
            frame[name] = pd.concat(values)
            methods[name] = name
    test = frame[(frame["split"] == "test") & frame["target"].notna() & frame["calibrated"].notna()]
    rows = []
    parts = [*test.groupby("item_id"), *([("all pooled", test)] if len(set(scales.values())) == 1 else [])]
    for item, part in parts:
        scale = scales[part["item_id"].iloc[0]]
        row: dict[str, object] = {"item": item, "n": len(part)}
        for name, column in methods.items():
            found = statistics(part["target"].to_numpy(), part[column].to_numpy(), scale)
            row |= {(name, statistic): found[statistic].value for statistic in SHOWN}
        if len(people) >= 2:
            both = part.dropna(subset=[f"human:{people[0]}", f"human:{people[1]}"])
            found = statistics(both[f"human:{people[0]}"].to_numpy(), both[f"human:{people[1]}"].to_numpy(), scale)
            row |= {("human", statistic): found[statistic].value for statistic in SHOWN}
        rows.append(row)
    result = pd.DataFrame(rows).set_index(["item", "n"]).astype(float)
    result.columns = pd.MultiIndex.from_tuples(result.columns)
    count = test["item_id"].nunique()
    mean = result[:count].mean().to_frame().T.set_axis(pd.MultiIndex.from_tuples([("mean over items", len(test))]))
    return pd.concat([result[:count], mean, result[count:]])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--warehouse", default="data/warehouse")
    arguments = parser.parse_args()
    found = table(Warehouse.open(arguments.warehouse).run(arguments.run))
    for statistic in SHOWN:
        print(f"\n== {statistic}")
        print(found.xs(statistic, axis=1, level=1).round(3).to_string())
