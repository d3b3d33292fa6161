"""Hit rate and false credit of a log's judge, held against scipy's exact intervals."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from rubricflow.tasks.core.display.say import name
from rubricflow.tasks.core.stats.promise import labels_for_promise
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.log import credit_rates, in_terms_of_logs, known, trust_section

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


RELEASE = {"tolerance": 0, "risk": 0.1, "confidence": 0.9, "by": "set"}


@pytest.mark.parametrize("wrong", [2, 20])
def test_labels_tell_how_often_verdicts_are_wrong_and_what_a_promise_takes(wrong: int) -> None:
    is_wrong = np.arange(50) < wrong
    frame = pd.DataFrame({"item_id": "a", "target": 1.0, "raw": 1.0, "calibrated": np.where(is_wrong, 0.0, 1.0)})
    frame = frame.assign(risk=0.2, route_reason=None)
    told, takes = known(frame, {"a": (0, 1, 1)}, Figures([]), RELEASE, "wrong")
    assert f"{2 * wrong:.0f}%" in told or f"{2 * wrong:.1f}%" in told
    expected = labels_for_promise(frame["risk"], is_wrong, 0.1, 0.9)
    assert (expected is None) == (wrong == 20)
    assert expected is None or f" {expected[0]:,} labels" in takes
    assert known(frame.assign(target=np.nan), {"a": (0, 1, 1)}, Figures([]), RELEASE, "wrong") == ("", "")


def test_names_and_commands_keep_their_words() -> None:
    kept = f"{name('question of a student')} `question`"
    assert in_terms_of_logs(f"Questions of {kept}, responses") == f"Criteria of {kept}, answers"
