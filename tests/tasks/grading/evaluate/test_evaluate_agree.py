"""Who agrees with whom, per slice: the right rows, the right pairs, the right numbers."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.stats.bootstrap import interval
from rubricflow.tasks.grading.evaluate.agree import agree, pairs
from rubricflow.tasks.grading.evaluate.slices import Setting

SCALES = {"a": (0.0, 4.0, 1.0), "b": (0.0, 4.0, 1.0)}


def frame(n: int = 80, seed: int = 0) -> pd.DataFrame:
    """Two items, two raters and a machine that agrees better after calibration."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 5, n)

    def noisy(spread: float) -> np.ndarray:
        return np.clip(np.round(truth + rng.normal(0, spread, n)), 0, 4)

    return pd.DataFrame(
        {
            "response_id": [f"r{i}" for i in range(n)],
            "item_id": np.where(np.arange(n) % 2, "a", "b"),
            "type": "short",
            "author_id": [f"s{i % 10}" for i in range(n)],
            "group:school": np.where(np.arange(n) % 3, "north", "south"),
            "target": truth.astype(float),
            "human:one": truth.astype(float),
            "human:two": noisy(0.5),
            "raw": noisy(2.0),
            "calibrated": noisy(1.0),
            "route": np.where(np.arange(n) % 4, "release", "review"),
            "cluster": np.arange(n) % 10,
        }
    )


def metrics(scores: pd.DataFrame, draws: int = 100, scales: dict | None = None) -> pd.DataFrame:
    found = agree(scores, ["school"], pairs(["one", "two"], "m"), Setting(scales or SCALES, draws=draws))
    return conform(Metrics, found).to_pandas()


def kappa(human: pd.Series, machine: pd.Series) -> float:
    return cohen_kappa_score(human, machine, weights="quadratic", labels=range(5))


def plain_kappa(human: pd.Series, machine: pd.Series) -> float:
    chance = human.var(ddof=0) + machine.var(ddof=0) + (human.mean() - machine.mean()) ** 2
    return 1 - ((human - machine) ** 2).mean() / chance


@pytest.fixture(scope="module")
def plain() -> pd.DataFrame:
    return metrics(frame())


def one(found: pd.DataFrame, **where: str) -> pd.Series:
    for name, value in where.items():
        found = found[found[name] == value]
    assert len(found) == 1
    return found.iloc[0]


def test_slices_and_pairs_have_the_kappa_of_their_own_rows(plain: pd.DataFrame) -> None:
    scores, machine = frame(), {"metric": "qwk", "rater_a": "target", "stage": "calibrated"}
    part, out = scores[scores["item_id"] == "a"], scores[scores["route"] == "release"]
    of_item = one(plain, **machine, slice="item", value_of="a")
    assert of_item["value"] == pytest.approx(kappa(part["target"], part["calibrated"]))
    of_people = one(plain, metric="qwk", stage="human", slice="all")
    assert of_people["value"] == pytest.approx(kappa(scores["human:one"], scores["human:two"]))
    released = one(plain, metric="qwk", stage="released", slice="all")
    assert (released["value"], released["n"]) == (pytest.approx(kappa(out["target"], out["calibrated"])), len(out))
    items = plain[(plain["rater_a"] == "target") & (plain["stage"] == "raw")]
    kappas = items[(items["metric"] == "qwk") & (items["slice"] == "item")]["value"]
    assert one(items, metric="qwk_item_mean")["value"] == pytest.approx(kappas.mean())


def test_keys_are_unique_subgroups_are_slices_and_known_authors_resampled(plain: pd.DataFrame) -> None:
    assert not plain.duplicated(list(Metrics.key)).any()
    assert set(plain.loc[plain["slice"] == "school", "value_of"]) == {"north", "south"}
    assert set(plain.loc[plain["low"].notna(), "resampled"]) == {"author"}


def test_responses_are_resampled_where_an_author_is_missing() -> None:
    scores = frame()
    scores = scores.assign(author_id=scores["author_id"].where(scores.index != 3), cluster=np.arange(len(scores)))
    found = metrics(scores)
    assert set(found.loc[found["low"].notna(), "resampled"]) == {"response"}


@pytest.mark.parametrize(("column", "unscored"), [("calibrated", 5), ("target", 0)])
def test_unscored_responses_that_people_scored_are_counted_and_left_out(column: str, unscored: int) -> None:
    scores = frame()
    scores.loc[:4, column] = np.nan
    row = one(metrics(scores, draws=0), metric="qwk", rater_a="target", stage="calibrated", slice="all")
    assert (row["n"], row["unscored"]) == (75, unscored)


def test_items_of_different_scales_are_not_pooled() -> None:
    found = metrics(frame(), scales={"a": (0.0, 4.0, 1.0), "b": (0.0, 8.0, 1.0)})
    row = one(found, metric="qwk", rater_a="target", stage="raw", slice="all")
    assert pd.isna(row["value"])
    assert "different scales" in row["note"]


def test_an_item_with_an_undefined_kappa_is_named() -> None:
    scores = frame()
    columns = ["target", "human:one", "human:two", "raw", "calibrated"]
    scores.loc[scores["item_id"] == "b", columns] = 2.0
    row = one(metrics(scores), metric="qwk_item_mean", rater_a="target", stage="raw")
    assert row["note"] == "undefined for 1 items, the first b"


def test_the_interval_of_the_item_mean_draws_an_author_in_all_items_at_once() -> None:
    scores = frame(400)
    row = one(metrics(scores, 400), metric="qwk_item_mean", rater_a="target", stage="raw")
    rng, of_cluster = np.random.default_rng(1), [rows for _, rows in scores.groupby("cluster")]
    drawn = []
    for _ in range(400):
        rows = pd.concat([of_cluster[c] for c in rng.integers(0, 10, 10)])
        drawn.append(np.mean([plain_kappa(part["target"], part["raw"]) for _, part in rows.groupby("item_id")]))
    low, high = interval(np.array(drawn), 10)[:2]
    assert row["clusters"] == 10
    assert (row["low"], row["high"]) == (pytest.approx(low, abs=0.05), pytest.approx(high, abs=0.05))


def test_without_draws_there_are_no_intervals() -> None:
    found = metrics(frame(), draws=0)
    assert found["low"].isna().all()
    assert (found["resampled"] == "").all()
