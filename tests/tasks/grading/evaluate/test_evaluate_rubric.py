"""What the rubric adds to the text: paired, by item and over items, and nothing without a baseline."""

import numpy as np
import pandas as pd
import pytest

from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.grading.evaluate.baselines import against_text
from rubricflow.tasks.grading.evaluate.slices import ScoreSlice, Setting

SCALES = {"p": (0.0, 4.0, 1.0), "q": (0.0, 4.0, 1.0)}


def scores(seed, noise, text_noise, n=150):
    """Two items with a machine and a text baseline of given noise around the target."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 5, 2 * n).astype(float)

    def near(spread):
        return np.clip(np.round(target + rng.normal(0, spread, 2 * n)), 0, 4)

    columns = {"target": target, "calibrated": near(noise), "text_only": near(text_noise)}
    named = {"item_id": ["p"] * n + ["q"] * n, "author_id": None, "cluster": np.arange(2 * n)}
    return pd.DataFrame(columns | named)


def figures(frame, draws=200):
    part = ScoreSlice("all", "all", frame, SCALES["p"], "response")
    return {(row["metric"], row["value_of"]): row for row in against_text(part, Setting(SCALES, "m", draws=draws))}


def test_the_gain_is_the_paired_difference_of_both_agreements():
    frame = scores(1, 0.6, 1.5)
    rows = figures(frame)
    for item, part in frame.groupby("item_id"):
        own, text = (qwk(part["target"], part[name], 0, 4).value for name in ("calibrated", "text_only"))
        assert rows["text_qwk", item]["value"] == pytest.approx(text)
        assert rows["over_text_qwk", item]["value"] == pytest.approx(own - text)
        assert rows["over_text_qwk", item]["low"] > 0
    means = [rows["over_text_qwk", item]["value"] for item in "pq"]
    assert rows["over_text_qwk_item_mean", "all"]["value"] == pytest.approx(np.mean(means))


def test_a_score_that_is_the_texts_gains_exactly_nothing():
    frame = scores(2, 1.0, 1.0)
    rows = figures(frame.assign(calibrated=frame["text_only"]))
    gain = rows["over_text_qwk_item_mean", "all"]
    assert (gain["value"], gain["low"], gain["high"]) == (0, 0, 0)


def test_pairing_narrows_the_interval():
    frame = scores(3, 1.0, 1.0)
    alike = frame.assign(calibrated=frame["text_only"].where(np.arange(300) % 10 > 0, frame["calibrated"]))
    paired, apart = (figures(one)["over_text_qwk_item_mean", "all"] for one in (alike, frame))
    assert paired["high"] - paired["low"] < 0.6 * (apart["high"] - apart["low"])


def test_without_a_baseline_there_is_no_figure():
    frame = scores(4, 1.0, 1.0)
    assert figures(frame.drop(columns="text_only")) == {}
    assert figures(frame.assign(text_only=np.nan)) == {}
