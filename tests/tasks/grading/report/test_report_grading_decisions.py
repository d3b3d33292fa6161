"""The page's section on probabilities of decisions: there with figures, absent without."""

from __future__ import annotations

import pytest

from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Page
from rubricflow.tasks.grading.report.evidence import decisions_section
from rubricflow.tasks.grading.report.figures import Figures


def row(metric: str, value: float, part: str = "all", of: str = "all", **more: object) -> dict[str, object]:
    named = {"rater_a": "people", "rater_b": "judge", "stage": "raw", "slice": part, "value_of": of}
    common = {"low": None, "high": None, "n": 50, "resampled": "", "undefined_draws": 0, "clusters": None, "note": None}
    return {"metric": f"decision_{metric}", "value": value} | named | common | more


BINS = [
    row("confidence", 0.6, "confidence", "01"),
    row("accuracy", 0.5, "confidence", "01", low=0.4, high=0.6),
    row("confidence", 0.9, "confidence", "02"),
    row("accuracy", 0.7, "confidence", "02", low=0.6, high=0.8),
]


def whole(sure: float, right: float) -> list[dict[str, object]]:
    return [row("ece", 0.15), row("confidence", sure), row("accuracy", right)]


@pytest.mark.parametrize(
    ("sure", "right", "said"),
    [
        (0.75, 0.6, "The judge is 75% sure of its decisions and right in 60%: surer than it is right"),
        (0.5, 0.6, "The judge is 50% sure of its decisions and right in 60%: less sure than it is right"),
        (0.6, 0.61, "The judge is 60% sure of its decisions and right in 61%"),
    ],
)
def test_the_title_says_which_way_the_judge_errs(sure: float, right: float, said: str) -> None:
    found = decisions_section(Figures([*whole(sure, right), *BINS]))
    assert found is not None
    assert found.title == said


def test_the_picture_has_a_dot_and_a_bar_for_each_bin_and_says_what_it_shows() -> None:
    found = decisions_section(Figures([*whole(0.75, 0.6), *BINS]))
    assert found is not None
    drawn = rendered(Page("", "", "", (found,)))
    assert drawn.count("<circle") == 2
    assert drawn.count('class="ml thin"') == 2
    assert "60% sure, 50% right; 90% sure, 70% right" in drawn


def test_without_probabilities_there_is_no_section() -> None:
    assert decisions_section(Figures([])) is None
    assert decisions_section(Figures(whole(0.7, 0.7))) is None
