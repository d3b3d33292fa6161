"""The figures beyond agreement: each against a plain computation on a small class."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Evaluation, Release
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, Verdicts
from rubricflow.tasks.core.stats.scores import ScoreFrame
from rubricflow.tasks.grading.evaluate.figures import figures

SCALES = {"a": (0.0, 4.0, 1.0), "b": (0.0, 4.0, 1.0)}
N = 240


def frame(seed: int = 0) -> pd.DataFrame:
    """Two items, two people, a machine that is lenient to group y; the surest scores are the best ones."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 5, N)
    group = np.where(np.arange(N) % 3, "x", "y")

    def marks(spread: float) -> np.ndarray:
        return np.clip(np.round(truth + rng.normal(0, spread, N)), 0, 4)

    one, two = marks(0.6), marks(0.6)
    own = np.clip(marks(0.8) + (group == "y"), 0, 4)
    scores = {"target": one, "human:one": one, "human:two": two, "raw": own, "calibrated": own}
    ids = {"response_id": [f"r{i}" for i in range(N)], "item_id": np.where(np.arange(N) % 2, "a", "b"), "type": "t"}
    risk = np.abs(own - one) / 5
    return pd.DataFrame(
        ids
        | scores
        | {
            "author_id": [f"s{i % 60}" for i in range(N)],
            "cluster": np.arange(N) % 60,
            "group:home": group,
            "low": np.maximum(own - 1, 0),
            "high": np.minimum(own + 1, 4),
            "risk": risk,
            "route": np.where(risk < 0.3, "release", "review"),
            "row": np.arange(N),
            "signal:length": truth * 10.0 + rng.normal(0, 10, N),
            "signal:criterion.P1": own / 4,
        }
    )


def likely(n: int = N) -> pa.ChunkedArray:
    """All levels are equally probable."""
    return pa.chunked_array([pa.array([[0.2] * 5] * n, pa.list_(pa.float64()))])


def found(scores: pd.DataFrame, scales: dict | None = None, draws: int = 50) -> tuple[pd.DataFrame, pd.DataFrame]:
    raters = [name.removeprefix("human:") for name in scores.columns if name.startswith("human:")]
    plan = Evaluation(target="one", draws=draws), Release(tolerance=1, risk=0.2)
    metrics, verdicts = figures(ScoreFrame(scores, ["home"], raters, likely()), scales or SCALES, "m", *plan)
    return conform(Metrics, metrics).to_pandas(), conform(Verdicts, verdicts).to_pandas()


@pytest.fixture(scope="module")
def both() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    scores = frame()
    return scores, *found(scores)


def value(metrics: pd.DataFrame, metric: str, **where: str) -> float:
    for name, wanted in ({"slice": "all", "value_of": "all", "metric": metric} | where).items():
        metrics = metrics[metrics[name] == wanted]
    assert len(metrics) == 1, metrics
    return metrics["value"].iloc[0]


def kappa(a: pd.Series, b: pd.Series) -> float:
    return cohen_kappa_score(a, b, weights="quadratic", labels=range(5))


def test_keys_are_unique(both: tuple[pd.DataFrame, ...]) -> None:
    _, metrics, verdicts = both
    assert not metrics.duplicated(list(Metrics.key)).any()
    assert not verdicts.duplicated(list(Verdicts.key)).any()


def test_degradation_is_what_the_machine_loses_against_a_second_person(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    one, two, own = (scores[name] for name in ("human:one", "human:two", "calibrated"))
    wanted = (kappa(one, own) + kappa(two, own)) / 2 - kappa(one, two)
    assert value(metrics, "degradation_qwk") == pytest.approx(wanted)
    items = metrics[(metrics["metric"] == "degradation_qwk") & (metrics["slice"] == "item")]["value"]
    assert value(metrics, "degradation_qwk_item_mean") == pytest.approx(items.mean())


def test_losses_add_up_to_what_prmse_lacks(both: tuple[pd.DataFrame, ...]) -> None:
    _, metrics, _ = both
    lost = sum(value(metrics, f"loss_{name}", stage="calibrated") for name in ("association", "spread", "bias"))
    assert value(metrics, "prmse", stage="calibrated") == pytest.approx(1 - lost)


def test_the_ceiling_is_that_of_the_target(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    rho = value(metrics, "reliability")
    assert value(metrics, "ceiling_qwk") == pytest.approx(2 * rho / (1 + rho))
    mean = scores.assign(target=(scores["human:one"] + scores["human:two"]) / 2)
    pooled = figures(ScoreFrame(mean, [], ["one", "two"], likely()), SCALES, "m", Evaluation(draws=0), Release())[0]
    of_mean = 2 * rho / (1 + rho)
    wanted = 2 * of_mean / (1 + of_mean)
    assert value(conform(Metrics, pooled).to_pandas(), "ceiling_qwk") == pytest.approx(wanted)


def test_a_resolved_target_has_no_ceiling_of_a_single_person() -> None:
    plan = Evaluation(target="resolved", draws=0), Release()
    metrics, _ = figures(ScoreFrame(frame(), [], ["one", "two"], likely()), SCALES, "m", *plan)
    shown = conform(Metrics, metrics).to_pandas()
    assert np.isnan(value(shown, "ceiling_qwk"))
    assert value(shown, "reliability") > 0


def test_a_perfect_judge_of_the_truth_reaches_the_ceiling_and_no_more() -> None:
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 1, 4_000)
    one, two = (np.round(truth + rng.normal(0, 0.7, 4_000), 1) for _ in range(2))
    scores = frame().iloc[np.zeros(4_000, dtype=int)].reset_index(drop=True)
    columns = {"target": one, "human:one": one, "human:two": two, "raw": truth, "calibrated": truth}
    scores = scores.assign(**columns, item_id="a", risk=np.nan, low=np.nan, high=np.nan, row=0)
    metrics, _ = found(scores, {"a": (-20.0, 20.0, 0.1)}, draws=0)
    assert value(metrics, "qwk", rater_a="target", stage="calibrated") == pytest.approx(
        value(metrics, "ceiling_qwk"), abs=0.02
    )


def test_released_scores_and_their_errors_are_counted(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    out = scores[scores["route"] == "release"]
    wrong = (out["calibrated"] - out["target"]).abs() > 1
    assert value(metrics, "released_share") == pytest.approx(len(out) / N)
    assert value(metrics, "beyond_tolerance", stage="released") == pytest.approx(wrong.mean())


def test_coverage_counts_human_scores_inside_their_interval_and_none_beside_it(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    held = (scores["target"] >= scores["low"]) & (scores["target"] <= scores["high"])
    assert value(metrics, "interval_coverage") == pytest.approx(held.mean())
    ends = {"low": scores["target"], "high": scores["target"] + [0, 0.5] * (N // 2)}
    between = scores.assign(target=scores["target"] + 0.5, **ends)
    assert value(found(between, SCALES, draws=0)[0], "interval_coverage") == 0.5


def test_level_shares_are_those_of_the_people_and_of_the_machine(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    at = {"slice": "level", "value_of": "4"}
    assert value(metrics, "level_share", stage="human", **at) == pytest.approx((scores["target"] == 4).mean())
    gap = (scores["calibrated"] == 4).mean() - (scores["target"] == 4).mean()
    assert value(metrics, "level_share_gap", **at) == pytest.approx(gap)


def test_length_is_given_its_share_of_what_can_be_explained(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    y, length = scores["target"], scores[["signal:length"]].to_numpy()
    both_of_them = scores[["signal:length", "calibrated"]].to_numpy()
    alone = LinearRegression().fit(length, y).score(length, y)
    together = LinearRegression().fit(both_of_them, y).score(both_of_them, y)
    assert value(metrics, "length_share") == pytest.approx(alone / together)


def test_a_criterion_is_correlated_plain_and_given_length(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    rows = scores[scores["item_id"] == "a"]
    y, x, length = (rows[name].to_numpy() for name in ("target", "signal:criterion.P1", "signal:length"))
    left = [v - np.polyval(np.polyfit(length, v, 1), length) for v in (y, x)]
    at = {"slice": "criterion", "value_of": "a / P1"}
    assert value(metrics, "criterion_r", **at) == pytest.approx(np.corrcoef(y, x)[0, 1])
    assert value(metrics, "criterion_partial_r", **at) == pytest.approx(np.corrcoef(*left)[0, 1])


def test_a_group_that_is_scored_generously_fails_its_gate(both: tuple[pd.DataFrame, ...]) -> None:
    _, metrics, verdicts = both
    assert value(metrics, "dsm", slice="home", value_of="y") > 0.1
    gate = verdicts[(verdicts["gate"] == "group_difference") & (verdicts["value_of"] == "y")].iloc[0]
    assert gate["n"] < 100
    assert gate["outcome"] == "undecided"  # however clear, a group needs a hundred responses
    assert gate["labels_needed"] >= 100 - gate["n"]


def test_items_of_different_scales_are_judged_by_the_mean_over_items() -> None:
    metrics, verdicts = found(frame(), {"a": (0.0, 4.0, 1.0), "b": (0.0, 8.0, 1.0)}, draws=20)
    gate = verdicts[(verdicts["gate"] == "machine_qwk") & (verdicts["slice"] == "all")].iloc[0]
    assert gate["estimate"] == pytest.approx(value(metrics, "qwk_item_mean", rater_a="target", stage="calibrated"))
    assert "shares of each item's scale" in metrics.loc[metrics["metric"] == "reliability", "note"].iloc[0]


def test_one_person_leaves_no_figure_about_people() -> None:
    metrics, verdicts = found(frame().drop(columns="human:two"), draws=20)
    assert not len(metrics[metrics["metric"].isin(["reliability", "prmse", "degradation_qwk", "severity"])])
    assert verdicts.set_index("gate").loc["doubly_scored", "outcome"] == "fail"


def test_a_slice_whose_authors_are_all_known_is_resampled_as_the_set_is() -> None:
    scores = frame()
    first = scores.index == 0
    scores = scores.assign(author_id=scores["author_id"].mask(first), cluster=np.arange(N))
    metrics, _ = found(scores, draws=20)
    assert set(metrics["resampled"]) == {"response", "none: exact binomial", "none: counted", ""}


def test_without_a_human_score_there_is_nothing() -> None:
    assert figures(
        ScoreFrame(frame().assign(target=np.nan), [], [], likely()), SCALES, "m", Evaluation(), Release()
    ) == ([], [])


def test_severity_is_a_persons_mean_difference(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    wanted = (scores["human:one"] - scores["human:two"]).mean()
    assert value(metrics, "severity", slice="rater", value_of="one") == pytest.approx(wanted)


def test_equally_probable_levels_have_the_score_they_deserve(both: tuple[pd.DataFrame, ...]) -> None:
    scores, metrics, _ = both
    at_least = np.array([0.8, 0.6, 0.4, 0.2])
    wanted = ((at_least - (scores["target"].to_numpy()[:, None] >= np.arange(1, 5))) ** 2).sum(axis=1).mean()
    assert value(metrics, "rps") == pytest.approx(wanted)


def test_what_one_run_cannot_answer_is_unknown(both: tuple[pd.DataFrame, ...]) -> None:
    verdicts = both[2].set_index("gate")
    assert verdicts.loc["same_answer_again", "outcome"] == "unknown"
    assert verdicts.loc["new_items", "outcome"] == "unknown"
