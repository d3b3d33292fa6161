"""Hit rate and false credit of a log's judge, held against scipy's exact intervals."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.log import credit_rates, trust_section

LOG = {
    "tool": "promptfoo",
    "version": "0.1",
    "files": ["<b>.json"],
    "told": {"model": "m"},
    "digest": "d",
    "remarks": [],
}


def test_rates_count_from_the_middle_of_the_scale_on() -> None:
    drawn = np.random.default_rng(1)
    frame = pd.DataFrame({"target": drawn.integers(0, 5, 90), "raw": drawn.uniform(0, 4, 90)})
    hit, false = credit_rates(frame, (0, 4, 1))
    for rate, asked in ((hit, frame["target"] >= 2), (false, frame["target"] < 2)):
        credited = int((frame.loc[asked, "raw"] >= 2).sum())
        exact = binomtest(credited, int(asked.sum())).proportion_ci()
        assert rate.value == pytest.approx(credited / asked.sum())
        assert (rate.low, rate.high) == (pytest.approx(exact.low), pytest.approx(exact.high))


def test_what_nobody_credits_has_no_hit_rate() -> None:
    hit, false = credit_rates(pd.DataFrame({"target": [0.0, 0.0], "raw": [0.0, 1.0]}), (0, 1, 1))
    assert hit.value is None
    assert hit.note
    assert false.value == 0.5


def test_without_labels_the_section_says_what_the_log_tells() -> None:
    frame = pd.DataFrame({"item_id": ["a"], "target": [np.nan], "raw": [1.0]})
    section = trust_section(LOG, frame, {"a": (0, 1, 1)}, Figures([]))
    assert section.unknown
    assert section.parts
