"""The model of raters on the page: who needs retraining, in words, and nothing where nobody does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from builders.grading_scene import MANIFEST, STUDY, made_run

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.evaluation import RATER_FLAGS, RaterEffects
from rubricflow.tasks.core.display.page import rendered
from rubricflow.tasks.core.display.section import Figure, Grid, Section, Text
from rubricflow.tasks.core.stats.verdict import Estimate
from rubricflow.tasks.grading.report.figures import Figures
from rubricflow.tasks.grading.report.raters import raters_section
from rubricflow.tasks.grading.report.view import view


def section(*effects: dict[str, Any]) -> Section:
    return raters_section(Figures([]), [], rows(*effects))


def sentences(found: Section) -> list[str]:
    return [part.text for part in found.parts if isinstance(part, Text) and not part.style]


def grid(found: Section) -> Grid:
    (table,) = [part for part in found.parts if isinstance(part, Grid)]
    return table


def effect(name: str, *flags: str, **more: Any) -> dict[str, Any]:
    row = {"rater_id": name, "trait": "", "slice": "all", "value_of": "all", "flags": list(flags)}
    figures = {"leniency": -0.37, "low": -0.41, "high": -0.33, "infit": 1.31, "infit_low": 1.23, "infit_high": 1.4}
    figures |= {"discrimination": 0.5, "discrimination_low": 0.4, "discrimination_high": 0.6}
    figures |= {"halo": 0.3, "halo_low": 0.2, "halo_high": 0.4}
    return row | figures | {"severity": 0.4, "severity_se": 0.02, "ratings": 80, "shared": 80} | more


def rows(*effects: dict[str, Any]) -> list[dict[str, Any]]:
    return conform(RaterEffects, effects).to_pylist()


def test_who_needs_retraining_is_said_with_the_figure() -> None:
    found = section(effect("anna"), effect("ben", "strict"), effect("ben", "erratic", trait="style"))
    assert "ben" in found.title
    assert "anna" not in found.title
    assert "needs retraining" in found.title
    (sentence,) = sentences(found)
    assert "gives less than an average rater: −0.37 (−0.41 to −0.33) steps" in sentence
    assert "style" in sentence
    assert "infit 1.31 (1.23 to 1.40)" in sentence
    table = grid(found)
    assert table.marks == ["flag", ""]
    assert [row[3] for row in table.rows] == [Figure(Estimate(1.31, 1.23, 1.4, n=80))] * 2


def test_drift_names_its_period() -> None:
    period = effect("ben", slice="period", value_of="week 2", leniency=-0.8, low=-1.0, high=-0.6)
    other = effect("ben", slice="period", value_of="week 1", leniency=0.3, low=0.1, high=0.5)
    found = section(effect("ben", "drift"), other, period)
    assert "−0.80 (−1.00 to −0.60) steps in" in sentences(found)[0]
    assert "week 2" in str(grid(found).rows[0][5])


def test_every_flag_has_its_words() -> None:
    for flag in RATER_FLAGS:
        period = effect("ben", slice="period", value_of="w")
        (sentence,) = sentences(section(effect("ben", flag), period))
        assert RATER_FLAGS[flag] in sentence


def test_nobody_flagged_leaves_the_title() -> None:
    found = section(effect("anna"), effect("ben"))
    assert (found.title, sentences(found)) == (section().title, [])


def test_an_unknown_severity_is_no_number() -> None:
    lone = effect(
        "anna", severity=None, severity_se=None, leniency=None, low=None, high=None, note="shares no response"
    )
    (row,) = grid(section(lone)).rows
    assert isinstance(row[2], Figure)
    assert (row[2].estimate.value, row[2].estimate.note) == (None, "shares no response")


def test_names_are_no_markup_on_the_page() -> None:
    made = made_run(items=2, each=60)
    effects = conform(RaterEffects, [effect("<b>anna</b>", "halo")])
    text = rendered(view(replace(made, rater_effects=effects), STUDY, MANIFEST).page)
    assert "<b>anna" not in text
    assert "lets one impression colour several traits" in text
