"""Two runs side by side: what is compared and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from builders.rows import grading, item, response

from rubricflow.tasks.core.contracts.errors import UserError
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables.calibration import Predictions
from rubricflow.tasks.core.contracts.tables.data import Items, Responses
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.stats.scores import ScoreTables, narrow, score_frame
from rubricflow.tasks.grading.evaluate.agree import (
    LEVEL,
    agreements,
    alike,
    compare,
    compare_over_items,
    most_changed,
    side_by_side,
)
from rubricflow.tasks.grading.evaluate.figures import gates
from rubricflow.tasks.grading.evaluate.people import again
from rubricflow.tasks.grading.evaluate.slices import ScoreSlice, Setting

SCALE = (0.0, 4.0, 1.0)


def scores(spread: float, seed: int = 0, n: int = 200) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    target = np.random.default_rng(9).integers(0, 5, n)
    return pd.DataFrame(
        {
            "response_id": [f"r{i}" for i in range(n)],
            "item_id": "i",
            "author_id": [f"s{i % 40}" for i in range(n)],
            "target": target.astype(float),
            "calibrated": (own := np.clip(np.round(target + rng.normal(0, spread, n)), 0, 4)),
            "raw": own,
        }
    )


def test_the_better_run_wins() -> None:
    found, n, resampled = compare(scores(2.0), scores(0.5, 1), SCALE, 500, 0)
    assert found["qwk"].low is not None
    assert found["qwk"].low > 0
    assert found["mae"].high is not None
    assert found["mae"].high < 0
    assert (n, resampled) == (200, "author")


def test_only_common_scored_responses_count() -> None:
    a, b = scores(1.0), scores(1.0, 1)
    a.loc[:9, "calibrated"] = np.nan
    assert compare(a, b.iloc[:150], SCALE, 50, 0)[1] == 140


def test_different_targets_are_refused() -> None:
    b = scores(1.0, 1)
    b["target"] = 4 - b["target"]
    with pytest.raises(UserError, match="different human scores"):
        compare(scores(1.0), b, SCALE, 50, 0)


def test_runs_without_common_responses_are_refused() -> None:
    b = scores(1.0, 1).assign(response_id=lambda f: f["response_id"] + "x")
    with pytest.raises(UserError, match="no response in common"):
        compare(scores(1.0), b, SCALE, 50, 0)


def of_items(scores: pd.DataFrame, *names: str) -> pd.DataFrame:
    return scores.assign(item_id=[names[at % len(names)] for at in range(len(scores))])


def test_the_mean_over_items_is_that_of_their_differences() -> None:
    a, b = (of_items(one, "i", "j", "k") for one in (scores(2.0), scores(0.5, 1)))
    found = compare_over_items(a, b, dict.fromkeys("ijk", SCALE), 300, 0)
    alone = [compare(a[a["item_id"] == item], b, SCALE, 2, 0)[0]["qwk"].estimate for item in "ijk"]
    assert found.estimate == pytest.approx(np.mean(alone))
    assert found.low is not None
    assert 0 < found.low < found.estimate < found.high


def test_of_one_item_it_is_what_is_pooled() -> None:
    a, b = scores(2.0), scores(0.5, 1)
    pooled = compare(a, b, SCALE, 300, 0)[0]["qwk"]
    assert compare_over_items(a, b, {"i": SCALE}, 300, 0) == pytest.approx(pooled)


def test_what_only_knows_the_items_means_wins_the_pool_and_not_the_items() -> None:
    a = of_items(scores(1.0), "i", "j")
    a["target"] = np.where(a["item_id"] == "i", np.arange(200) % 2, 3 + np.arange(200) // 2 % 2).astype(float)
    a["calibrated"] = np.random.default_rng(0).permutation(200) % 5
    b = a.assign(calibrated=np.where(a["item_id"] == "i", 0.0, 3.0))
    pooled = compare(a, b, SCALE, 300, 0)[0]["qwk"].estimate
    within = compare_over_items(a, b, dict.fromkeys("ij", SCALE), 300, 0)
    assert pooled > 0.5
    assert within.low < 0.1


RAW, MAPPED = ["identity"], ["linking"]


@pytest.mark.parametrize(
    ("raw", "methods", "why"),
    [
        (0, (RAW, RAW), "both runs keep the raw score, and it is the same"),
        (0, ([], []), "both runs keep the raw score, and it is the same"),
        (0, (RAW, MAPPED), "the mappings (identity, linking) give the same scores, of the same raw scores"),
        (1, (MAPPED, MAPPED), "the mappings (linking) give the same scores"),
    ],
)
def test_equal_scores_are_told_with_the_reason(raw: float, methods: tuple[list[str], list[str]], why: str) -> None:
    a = scores(1.0)
    b = a.assign(raw=a["raw"] + raw).sample(frac=1, random_state=0)
    assert alike(a, b, methods) == f"equal scores on all 200 responses: {why}"


def test_items_with_equal_scores_are_counted() -> None:
    a = of_items(scores(1.0), "i", "j", "k")
    b = a.assign(calibrated=a["calibrated"].where(a["item_id"] != "k", 4 - a["calibrated"]))
    assert alike(a, b, (RAW, MAPPED)) == "equal scores on 2 of 3 items"
    assert alike(scores(1.0), scores(1.0, 1), (RAW, RAW)) == ""


def both_runs(n: int = 200) -> pd.DataFrame:
    """Two runs on one item, a quarter of the answers for calibration, the first ten without a score by people."""
    a, b = (
        scores(spread, seed, n).assign(split="test", route="release", type="t", cluster=0)
        for spread, seed in ((1.0, 0), (0.5, 1))
    )
    a["cluster"] = a["author_id"].str[1:].astype(int)
    a["group:class"] = np.where(np.arange(n) % 2, "red", "blue")
    a.loc[: n // 4 - 1, "split"] = b.loc[: n // 4 - 1, "split"] = "calibration"
    a.loc[n // 4 : n // 4 + 9, "target"] = np.nan
    return side_by_side(a, b)


def test_each_run_is_compared_with_people_where_held_out_and_with_the_other_everywhere() -> None:
    both = both_runs()
    rows = list(agreements(both, ["class"], {"i": SCALE}, 200, 0))
    found = {(row["rater_a"], row["rater_b"], row["slice"], row["value_of"], row["metric"]): row for row in rows}
    assert found["people", "a", "all", "all", "exact"]["n"] == 140
    same = found["a", "b", "all", "all", "exact"]
    assert same["n"] == 200
    assert same["value"] == pytest.approx((both["a"] == both["b"]).mean())
    assert same["low"] < same["value"] < same["high"]
    for level, part in both.groupby("a"):
        row = found["a", "b", LEVEL, f"{level:g}", "bias"]
        assert (row["n"], row["value"]) == (len(part), pytest.approx((part["b"] - part["a"]).mean()))
    red = both[both["group:class"] == "red"]
    assert found["a", "b", "class", "red", "bias"]["value"] == pytest.approx((red["b"] - red["a"]).mean())


def test_what_changed_most_is_counted_in_steps_of_its_scale() -> None:
    both = both_runs(6).assign(
        item_id=["i", "i", "i", "j", "j", "j"],
        a=0.0,
        b=[1.0, -2.0, 0.0, 20.0, np.nan, 10.0],
        response_id=list("fedcba"),
    )
    changed = most_changed(both, {"i": SCALE, "j": (0.0, 100.0, 10.0)})
    assert changed["response_id"].tolist() == ["c", "e", "a", "f"]  # equal scores and none are no change
    assert most_changed(both, {"i": SCALE, "j": (0.0, 100.0, 10.0)}, 1)["response_id"].tolist() == ["c"]


# Whether the same response asked again gets the same score: the column, the figure and its gate.


def test_a_response_is_the_same_again_where_all_its_scored_samples_agree() -> None:
    given = {"same": [2.0, 2.0, None], "other": [2.0, 3.0], "once": [1.0], "lost": [1.0, None]}
    rows = [grading(name, "m", score, sample=at) for name, scores in given.items() for at, score in enumerate(scores)]
    graded = conform(Gradings, rows)
    tables = ScoreTables(
        pa.table(conform(Items, [item()])),
        conform(Responses, [response(name) for name in given]),
        graded.slice(0, 0),
        narrow(graded.select(["response_id", "score", "signals"]).to_batches()),
        conform(Predictions, []),
    )
    frame = score_frame([tables], "mean").frame.set_index("response_id")["again"]
    assert frame.to_dict() == pytest.approx({"same": 1.0, "other": 0.0, "once": np.nan, "lost": np.nan}, nan_ok=True)


def verdict_of(same: np.ndarray) -> dict[str, object]:
    rows = pd.DataFrame({"again": same, "cluster": np.arange(len(same))})
    metrics = conform(
        Metrics, list(again(ScoreSlice("all", "all", rows, SCALE, "response"), Setting({}, "m", draws=200)))
    ).to_pandas()
    (found,) = [g for g in gates(metrics, [], {"i": SCALE}, Release(), 0) if g["gate"] == "same_answer_again"]
    return found


def test_the_gate_is_decided_by_the_share_of_responses_that_got_the_same_score() -> None:
    mostly, always = np.ones(400), np.ones(400)
    mostly[:80] = 0
    assert verdict_of(mostly)["outcome"] == "fail"
    assert verdict_of(mostly)["estimate"] == pytest.approx(0.8)
    assert verdict_of(always)["outcome"] == "pass"
