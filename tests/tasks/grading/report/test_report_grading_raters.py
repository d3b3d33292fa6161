"""The model of raters on the page: who needs retraining, in words, and nothing where nobody does."""

from __future__ import annotations

from typing import Any

from builders.grading_scene import MANIFEST, STUDY, made_run

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.evaluation import RATER_FLAGS, RaterEffects
from rubricflow.tasks.grading.report.comparison import Raters
from rubricflow.tasks.grading.report.page import page
from rubricflow.tasks.grading.report.raters import with_effects
from rubricflow.tasks.grading.report.sections import listed
from rubricflow.tasks.grading.report.view import view

PLAIN = Raters("No rater is clearly more severe than the others", listed([]))


def effect(name: str, *flags: str, **more: Any) -> dict[str, Any]:
    row = {"rater_id": name, "trait": "", "slice": "all", "value_of": "all", "flags": list(flags)}
    figures = {"leniency": -0.37, "low": -0.41, "high": -0.33, "infit": 1.31, "infit_low": 1.23, "infit_high": 1.4}
    figures |= {"discrimination": 0.5, "discrimination_low": 0.4, "discrimination_high": 0.6}
    figures |= {"halo": 0.3, "halo_low": 0.2, "halo_high": 0.4}
    return row | figures | {"severity": 0.4, "severity_se": 0.02, "ratings": 80, "shared": 80} | more


def rows(*effects: dict[str, Any]) -> list[dict[str, Any]]:
    return conform(RaterEffects, effects).to_pylist()


def test_who_needs_retraining_is_said_with_the_figure() -> None:
    found = with_effects(PLAIN, rows(effect("anna"), effect("ben", "strict"), effect("ben", "erratic", trait="style")))
    assert "ben" in found.title
    assert "anna" not in found.title
    assert "needs retraining" in found.title
    (sentence,) = found.training
    assert "gives less than an average rater: −0.37 (−0.41 to −0.33) steps" in sentence
    assert "style" in sentence
    assert "infit 1.31 (1.23 to 1.40)" in sentence
    assert [(row.flagged, row.infit.value) for row in found.effects.rows] == [(True, 1.31), (False, 1.31)]


def test_drift_names_its_period() -> None:
    period = effect("ben", slice="period", value_of="week 2", leniency=-0.8, low=-1.0, high=-0.6)
    other = effect("ben", slice="period", value_of="week 1", leniency=0.3, low=0.1, high=0.5)
    found = with_effects(PLAIN, rows(effect("ben", "drift"), other, period))
    assert "−0.80 (−1.00 to −0.60) steps in" in found.training[0]
    assert "week 2" in found.effects.rows[0].period


def test_every_flag_has_its_words() -> None:
    for flag in RATER_FLAGS:
        period = effect("ben", slice="period", value_of="w")
        (sentence,) = with_effects(PLAIN, rows(effect("ben", flag), period)).training
        assert RATER_FLAGS[flag] in sentence


def test_nobody_flagged_leaves_the_title() -> None:
    found = with_effects(PLAIN, rows(effect("anna"), effect("ben")))
    assert (found.title, found.training) == (PLAIN.title, ())


def test_an_unknown_severity_is_no_number() -> None:
    lone = effect(
        "anna", severity=None, severity_se=None, leniency=None, low=None, high=None, note="shares no response"
    )
    (row,) = with_effects(PLAIN, rows(lone)).effects.rows
    assert row.leniency.value is None
    assert row.leniency.note == "shares no response"


def test_names_are_no_markup_on_the_page() -> None:
    made = made_run(raters=("anna", "ben"))
    effects = conform(RaterEffects, [effect("<b>anna</b>", "halo")])
    text = page(view(type(made)(**{**vars(made), "rater_effects": effects}), STUDY, MANIFEST))
    assert "<b>anna" not in text
    assert "lets one impression colour several traits" in text
