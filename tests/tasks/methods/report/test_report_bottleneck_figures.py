"""Graders side by side: means and spreads over seeds, who is ahead, and what settings and questions change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders.bottleneck_scene import METHODS, NAMES, intervention_rows, link_rows, trial, trial_rows

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.bottleneck import Training
from rubricflow.tasks.core.contracts.tables.bottleneck import ConceptLinks, Interventions, Trials
from rubricflow.tasks.methods.report.bottleneck import interventions
from rubricflow.tasks.methods.report.bottleneck.figures import (
    ECE,
    HEADER,
    MARK,
    QWK,
    Graders,
    concept_table,
    grader_name,
    notes,
    other_table,
    questions_table,
    sentence,
    summary_rows,
    sweep_table,
    sweep_takeaway,
    sweeps_of,
)
from rubricflow.tasks.methods.report.bottleneck.interventions import (
    FigureKey,
    curves,
    kind_takeaway,
    order_table,
    order_takeaway,
)


def graders(rows: list[dict[str, Any]]) -> Graders:
    return Graders(conform(Trials, rows))


def of_seeds(metric: str, **values: tuple[float | None, ...]) -> Graders:
    """Graders with one figure, seed by seed."""
    return graders(
        [trial(method, metric, value, seed=seed) for method, of in values.items() for seed, value in enumerate(of)]
    )


def test_figures_are_means_with_the_standard_deviation_of_a_sample() -> None:
    cell = graders(trial_rows()).cell("vanilla_cbm", QWK)
    assert cell.value == pytest.approx(np.mean(METHODS["vanilla_cbm"]))
    assert cell.se == pytest.approx(np.std(METHODS["vanilla_cbm"], ddof=1))


def test_other_splits_and_settings_are_no_part_of_a_figure() -> None:
    rows = [trial("plm", "task_qwk", 0.5), trial("plm", "task_qwk", 0.9, split="train")]
    rows.append(trial("plm", "task_qwk", 0.9, setting="temperature=2"))
    assert dict(graders(rows).values("plm", QWK)) == {0: 0.5}


def test_the_short_table_holds_every_grader_then_people_then_judges() -> None:
    rows = [dict(zip(HEADER, row, strict=True)) for row in summary_rows(conform(Trials, trial_rows()))]
    assert len(set(HEADER)) == len(HEADER)
    assert [row["grader"] for row in rows] == [
        "REC-CBM",
        "encoder alone (PLM)",
        "vanilla CBM",
        "one person against another",
        "recorded-gpt",
    ]
    assert (rows[0]["QWK"], rows[0]["seeds"], rows[0]["n"]) == ("0.620 ± 0.020", "3", "40")
    assert (rows[1]["concept accuracy"], rows[3]["QWK"], rows[3]["seeds"]) == ("–", "0.720", "–")


@pytest.mark.parametrize(
    ("mine", "other", "best"),
    [
        ((0.60, 0.62, 0.64), (0.50, 0.52, 0.54), "rec_cbm"),  # ahead by 0.1 with every seed
        ((0.60, 0.62, 0.64), (0.64, 0.62, 0.60), None),  # the same mean
        ((0.9, 0.5), (0.6, 0.7), None),  # the pairs differ by 0.3 and −0.2
        ((0.6,), (0.1,), None),  # one seed shows no spread
        ((0.6, 0.7), (None, 0.1), None),  # they share one seed
    ],
)
def test_only_who_is_ahead_by_more_than_the_spread_of_the_pairs_is_marked(
    mine: tuple[float, ...], other: tuple[float | None, ...], best: str | None
) -> None:
    assert of_seeds("task_qwk", rec_cbm=mine, plm=other).best(QWK) == best


def test_of_errors_the_least_is_best() -> None:
    found = of_seeds("task_ece", rec_cbm=(0.30, 0.31), plm=(0.1, 0.11))
    assert found.best(ECE) == "plm"
    rows = summary_rows(conform(Trials, found.rows))
    assert [row[HEADER.index("ordinal ECE")].endswith(MARK) for row in rows] == [False, True]


def test_people_and_judges_are_not_among_the_best() -> None:
    rows = [trial(name, "task_qwk", value) for name, value in (("human", 0.9), ("gpt", 0.8), ("plm", 0.1))]
    assert graders(rows).ranked(QWK) == ["plm"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "No trained grader has an agreement with people on the test split"),
        ({"rec_cbm": (0.6,)}, "REC-CBM grades with QWK 0.60"),
        ({"rec_cbm": (0.6,), "plm": (0.5,)}, "encoder alone (PLM) 0.50: one seed shows no spread"),
        ({"rec_cbm": (0.6, 0.7), "plm": (0.7, 0.6)}, "within the spread of seeds"),
        ({"rec_cbm": (0.6, 0.7), "plm": (0.4, 0.5)}, "ahead by more than the spread of seeds"),
        ({"rec_cbm": (0.4, 0.5), "plm": (0.6, 0.7)}, "behind by more than the spread of seeds"),
    ],
)
def test_the_takeaway_follows_from_the_pairs(values: dict[str, tuple[float, ...]], said: str) -> None:
    assert said in sentence(of_seeds("task_qwk", **values))


def test_the_study_says_which_grader_the_report_is_about() -> None:
    found = Graders(conform(Trials, trial_rows()), ("vanilla_cbm", "rec_cbm"))
    assert found.trained == ("vanilla_cbm", "rec_cbm", "plm")
    assert sentence(found).startswith("vanilla CBM grades with QWK 0.59 ± 0.08; REC-CBM 0.62")


def test_what_is_undefined_is_a_dash_with_its_reason() -> None:
    rows = [trial("rec_cbm", "task_qwk", None, seed=seed, note="one grade <b>only</b>\u202e") for seed in (0, 1)]
    (row,) = summary_rows(conform(Trials, rows))
    assert row[HEADER.index("QWK")] == "–"
    assert list(notes(graders(rows))) == ["REC-CBM, QWK: undefined for 2 seeds (one grade <b>only</b>⟨U+202E⟩)"]


def test_concepts_stand_beside_people() -> None:
    rows = {str(row[0]): [str(cell) for cell in row[1:]] for row in concept_table(graders(trial_rows()), NAMES).rows}
    assert rows["\u2068Factual correctness\u2069"][:2] == ["0.670 ± 0.020", "0.850"]
    assert rows["\u2068Fluency\u2069"][1] == "–"


def test_figures_without_a_table_of_their_own_are_listed_once() -> None:
    rows = [*trial_rows(), trial("rec_cbm", "saving_area_random", 0.7, note="of task_accuracy")]
    rows.append(trial("rec_cbm", "leakage_task_share", None, note="too few"))
    found = {(row[0], row[1]): (str(row[2]), row[3]) for row in other_table(graders(rows), of_leakage=True).rows}
    assert found["leakage task", "REC-CBM"] == ("0.022 ± 0.010", "")
    assert found["leakage task share", "REC-CBM"] == ("–", "too few")
    assert not other_table(graders(rows), of_leakage=False).rows
    assert not [name for name, _ in found if "saving" in str(name) or "qwk" in str(name)]
    (asked,) = questions_table(graders(rows)).rows
    assert (asked[0], str(asked[1]), str(asked[2]), asked[3]) == ("random order", "0.700", "–", "of task_accuracy")


def test_a_sweep_has_the_studys_own_value_among_the_others() -> None:
    (found,) = sweeps_of(graders(trial_rows()), Training())
    assert found.values == (0.0, 0.2, 0.4, 0.8)
    assert [str(row[2]) for row in sweep_table(found).rows] == [
        "0.560 ± 0.010",
        "0.640 ± 0.010",
        "0.720 ± 0.020",
        "0.620 ± 0.010",
    ]
    assert sweep_table(found).rows[2][0] == "0.4 (the study's)"
    assert sweep_takeaway(found) == "\u2068ranking weight\u2069: macro-F1 between 0.56 at 0 and 0.72 at 0.4"


def test_a_setting_without_a_number_of_its_own_is_below_the_others() -> None:
    rows = [trial("rec_cbm", "task_qwk", value, setting=of) for of, value in (("", 0.6), ("width=32", 0.5))]
    (found,) = sweeps_of(graders(rows), Training())
    assert [(row[0], str(row[3])) for row in sweep_table(found).rows] == [
        ("32", "0.500"),
        ("none (the study's)", "0.600"),
    ]


def test_curves_are_means_over_seeds() -> None:
    rows = [row | {"value": row["value"] + row["seed"] / 10} for row in intervention_rows()]
    found = curves(conform(Interventions, rows))
    sets = found[FigureKey("rec_cbm", "task_accuracy", "oracle", "confidence")]
    assert [one.concepts_set for one in sets] == [0, 1, 2, 3]
    assert sets[2].value == pytest.approx(0.7 + 0.12)
    assert (sets[2].low, sets[2].high) == (pytest.approx(0.06), pytest.approx(0.18))
    line = interventions.kind_lines(found, "rec_cbm", "task_accuracy")[0]
    assert line.label == "set to people's level"
    assert (line.points[2].low, line.points[2].high) == (pytest.approx(0.7 + 0.06), pytest.approx(0.7 + 0.18))


def test_what_answers_change_is_told_from_nothing_by_its_interval() -> None:
    found = curves(conform(Interventions, intervention_rows()))
    told = kind_takeaway(found, "rec_cbm", "task_accuracy")
    assert told == "REC-CBM, accuracy once all are set: right levels +0.18, the most damaging ones −0.36"
    rows = [row | {"low": -1.0} for row in intervention_rows()]
    assert "+0.18 (not told from 0)" in kind_takeaway(curves(conform(Interventions, rows)), "rec_cbm", "task_accuracy")


def gains(**changes: tuple[float, ...]) -> dict[FigureKey, tuple[interventions.InterventionPoint, ...]]:
    rows = [
        {"method": "rec_cbm", "seed": 0, "kind": "oracle", "order": order, "asked": asked, "metric": "task_qwk"}
        | {"value": 0.5 + change, "change": change, "n": 9}
        for order, of in changes.items()
        for asked, change in enumerate(of)
    ]
    return curves(conform(Interventions, rows))


def test_orders_are_compared_by_their_mean_gain_and_how_soon_it_comes() -> None:
    found = gains(confidence=(0.0, 0.0, 0.1, 0.2), random=(0.0, 0.18, 0.19, 0.2))
    rows = {row[0]: [str(cell) for cell in row[1:]] for row in order_table(found, "rec_cbm", "task_qwk").rows}
    # Trapezia: (0 + 0.05 + 0.15)/3 and (0.09 + 0.185 + 0.195)/3; 90% of 0.2 is 0.18.
    assert rows["surest first"] == ["0.067", "3", "0.200"]
    assert rows["random order"] == ["0.157", "1", "0.200"]
    assert order_takeaway(found, "rec_cbm", "task_qwk").startswith("Of the orders, random order gains most: +0.16 QWK")


def test_answers_that_gain_nothing_need_no_number_of_questions() -> None:
    found = gains(confidence=(0.0, -0.1))
    assert str(order_table(found, "rec_cbm", "task_qwk").rows[0][2]) == "–"
    assert order_takeaway(found, "rec_cbm", "task_qwk") == "One order of asking was tried"


def test_the_structure_is_that_of_one_seed() -> None:
    links = interventions.of_first_seed(conform(ConceptLinks, link_rows()), "rec_cbm")
    assert len(links) == 3
    assert interventions.takeaway(links) == (
        "2 of 3 pairs of concepts are linked weakly or not at all (|r| < 0.3) given all others; 1 of 2 by their labels"
    )
    found = interventions.table(links, NAMES)
    assert [str(cell) for cell in found.rows[0][1:]] == ["–", "−0.63", "90"]
    assert found.notes == ("1 pair with |r| < 0.1 given all others",)
    assert "corrects nothing" in interventions.takeaway(interventions.of_first_seed(links, "plm"))


def test_an_unknown_method_is_a_name() -> None:
    assert grader_name("x\u202e\n" + "y" * 200) == "\u2068x⟨U+202E⟩ " + "y" * 53 + "…\u2069"
