"""A judge beside another run: paired on the responses that both scored, and the same as comparing the two runs."""

import numpy as np
import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.grading.evaluate.agree import compare, compare_over_items
from rubricflow.tasks.grading.evaluate.baselines import OTHER, against_others, scores_of_other_run
from rubricflow.tasks.grading.evaluate.slices import ScoreSlice, Setting

SCALES = {"p": (0.0, 4.0, 1.0), "q": (0.0, 4.0, 1.0)}
BASE = OTHER + "base"


def scores(seed, n=80, noise=0.6, other_noise=1.5):
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 5, 2 * n).astype(float)
    near = (np.clip(np.round(target + rng.normal(0, spread, 2 * n)), 0, 4) for spread in (noise, other_noise))
    authors = np.tile(np.arange(n // 2), 4)
    frame = pd.DataFrame({"target": target, **dict(zip(("calibrated", BASE), near, strict=True)), "cluster": authors})
    names = [f"r{i}" for i in range(2 * n)]
    return frame.assign(item_id=["p"] * n + ["q"] * n, response_id=names, author_id=[f"a{c:03d}" for c in authors])


def figures(frame, draws=300, scale=SCALES["p"]):
    part = ScoreSlice("all", "all", frame, scale, "author")
    return {
        (row["metric"], row["value_of"]): row for row in against_others(part, Setting(SCALES, "m", draws=draws, seed=7))
    }


@pytest.mark.parametrize("seed", range(5))
def test_the_gain_is_that_of_two_runs_compared(seed):
    frame = scores(seed, other_noise=1.5 if seed % 2 else 0.6)
    rows = figures(frame)
    ids = ["response_id", "item_id", "author_id", "target"]
    a = frame[[*ids, BASE]].rename(columns={BASE: "calibrated"})
    b = frame[[*ids, "calibrated"]]
    of_item = (frame["item_id"] == "q").to_numpy()
    gap = compare(a[of_item], b[of_item], SCALES["q"], 300, 7)[0]["qwk"]
    assert rows["over_other_qwk", "q"]["value"] == pytest.approx(gap.estimate)
    assert (rows["over_other_qwk", "q"]["low"], rows["over_other_qwk", "q"]["high"]) == pytest.approx(
        (gap.low, gap.high), abs=0.03
    )
    over_items = compare_over_items(a, b, SCALES, 300, 7)
    mean = rows["over_other_qwk_item_mean", "all"]
    assert mean["value"] == pytest.approx(over_items.estimate)
    assert (mean["low"], mean["high"]) == pytest.approx((over_items.low, over_items.high), abs=0.03)


def test_only_responses_that_both_scored_count():
    frame = scores(9)
    gone = frame.assign(**{BASE: frame[BASE].where(frame.index % 4 > 0)})
    row = figures(gone)["over_other_qwk", "p"]
    kept = gone.dropna().query("item_id == 'p'")
    assert row["n"] == len(kept) == 60
    mine, theirs = (qwk(kept["target"], kept[name], 0, 4).value for name in ("calibrated", BASE))
    assert row["value"] == pytest.approx(mine - theirs)


def test_without_draws_there_are_figures_and_no_intervals():
    row = figures(scores(1), draws=0)["over_other_qwk_item_mean", "all"]
    assert row["value"] is not None
    assert row["low"] is None


def test_nothing_stands_beside_it_without_another_run():
    assert figures(scores(1).drop(columns=BASE)) == {}
    assert figures(scores(1).assign(**{BASE: np.nan})) == {}


def test_scores_are_placed_by_response_and_on_the_items_own_scale():
    frame = scores(2).head(3)
    assert scores_of_other_run(frame, {"r2": 4.0, "r0": 0.0, "x": 99.0}, SCALES, "base").tolist()[::2] == [0.0, 4.0]
    assert scores_of_other_run(frame, {"r1": None}, SCALES, "base").isna().all()
    for off in (-0.5, 4.5):
        with pytest.raises(InputError, match="'base' scores some of the items on another scale"):
            scores_of_other_run(frame, {"r1": off}, SCALES, "base")
