"""Graders side by side: means and spreads over seeds, who is ahead, and what settings and questions change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from builders.bottleneck_scene import METHODS, NAMES, intervention_rows, link_rows, trial, trial_rows

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.methods import Training
from rubricflow.tasks.core.contracts.tables.bottleneck import ConceptLinks, Interventions, Trials
from rubricflow.tasks.methods.report import grader_figures as figures
from rubricflow.tasks.methods.report.grader_figures import (
    HEADER,
    QWK,
    Graders,
    concept_table,
    curves,
    grader_name,
    kind_takeaway,
    leakage_table,
    questions_table,
    sentence,
    summary_rows,
    summary_table,
    sweep_tables,
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


def test_people_and_judges_are_not_among_the_best() -> None:
    rows = [trial(name, "task_qwk", value) for name, value in (("human", 0.9), ("gpt", 0.8), ("plm", 0.1))]
    assert graders(rows).best(QWK, graders(rows).trained) == "plm"


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
    assert found.trained == ["vanilla_cbm", "rec_cbm", "plm"]
    assert sentence(found).startswith("vanilla CBM grades with QWK 0.59 ± 0.08; REC-CBM 0.62")


def test_what_is_undefined_is_a_dash_with_its_reason() -> None:
    rows = [trial("rec_cbm", "task_qwk", None, seed=seed, note="one grade <b>only</b>\u202e") for seed in (0, 1)]
    (row,) = summary_rows(conform(Trials, rows))
    assert row[HEADER.index("QWK")] == "–"
    assert summary_table(graders(rows)).notes == ["REC-CBM, QWK: undefined for 2 seeds (one grade <b>only</b>⟨U+202E⟩)"]


def test_concepts_stand_beside_people() -> None:
    rows = {str(row[0]): [str(cell) for cell in row[1:]] for row in concept_table(graders(trial_rows()), NAMES).rows}
    assert rows["\u2068Factual correctness\u2069"][:2] == ["0.670 ± 0.020", "0.850"]
    assert rows["\u2068Fluency\u2069"][1] == "–"


def test_leakage_and_questions_have_tables_of_their_own() -> None:
    rows = [*trial_rows(), trial("rec_cbm", "leakage_task_share", None, note="too few")]
    found = {(row[0], row[1]): (str(row[2]), row[3]) for row in leakage_table(graders(rows)).rows}
    assert found["leakage task", "REC-CBM"] == ("0.022 ± 0.010", "")
    assert found["leakage task share", "REC-CBM"] == ("–", "too few")
    assert [str(cell) for cell in questions_table(graders(rows)).rows[-1]] == ["random order", "0.650", "–"]


def test_a_sweep_has_the_studys_own_value_among_the_others() -> None:
    (table,) = sweep_tables(graders(trial_rows()), Training())
    assert [row[0] for row in table.rows] == ["0", "0.2", "0.4 (the study's)", "0.8"]
    assert [str(row[2]) for row in table.rows] == ["0.560 ± 0.010", "0.640 ± 0.010", "0.720 ± 0.020", "0.620 ± 0.010"]


def test_a_setting_without_a_number_of_its_own_is_below_the_others() -> None:
    rows = [trial("rec_cbm", "task_qwk", value, setting=of) for of, value in (("", 0.6), ("width=32", 0.5))]
    (table,) = sweep_tables(graders(rows), Training())
    assert [(row[0], str(row[3])) for row in table.rows] == [("32", "0.500"), ("none (the study's)", "0.600")]


def test_curves_are_means_over_seeds() -> None:
    rows = [row | {"value": row["value"] + row["seed"] / 10} for row in intervention_rows()]
    metric, points = curves(conform(Interventions, rows))
    assert metric == "task_accuracy"
    line = figures.kind_lines(points, "rec_cbm")[0]
    assert line.label == "set to people's level"
    assert [point.x for point in line.points] == [0, 1, 2, 3]
    assert line.points[2][1:] == pytest.approx((0.7 + 0.12, 0.7 + 0.06, 0.7 + 0.18))
    assert line.points[0][2:] == (None, None)
    orders = {line.label: line.points[-1].y for line in figures.order_lines(points, "rec_cbm")}
    assert orders["most expected change first"] == pytest.approx(0.7 + 0.27)


def test_what_answers_change_is_told_from_nothing_by_its_interval() -> None:
    metric, points = curves(conform(Interventions, intervention_rows()))
    told = kind_takeaway(points, "rec_cbm", metric)
    assert told == "REC-CBM, accuracy once all are set: right levels +0.18, the most damaging ones −0.36"
    found = {row[:2]: [str(cell) for cell in row[2:]] for row in figures.kind_table(points, metric).rows}
    shown = ["3", "0.780", "0.180 [0.090, 0.270]", "0.000", "40"]
    assert found["REC-CBM", "set to people's level"] == shown
    rows = [row | {"low": -1.0} for row in intervention_rows()]
    _, unsure = curves(conform(Interventions, rows))
    assert "+0.18 (not told from 0)" in kind_takeaway(unsure, "rec_cbm", metric)


def test_the_structure_is_that_of_one_seed() -> None:
    links = figures.of_first_seed(conform(ConceptLinks, link_rows()), "rec_cbm")
    assert len(links) == 3
    told = "2 of 3 pairs of concepts are linked weakly or not at all (|r| < 0.3) given all others"
    assert figures.link_takeaway(links) == told
    rows = [[str(cell) for cell in row[1:]] for row in figures.link_table(links, NAMES).rows]
    assert rows == [["–", "0.76", "0.20"], ["0.28", "–", "–"], ["−0.05", "−0.63", "–"]]
    turned = [row | {"a": row["b"], "b": row["a"]} for row in link_rows()]
    assert figures.link_table(conform(ConceptLinks, turned[:3]), NAMES) == figures.link_table(links, NAMES)


def test_an_unknown_method_is_a_name() -> None:
    assert grader_name("x\u202e\n" + "y" * 200) == "\u2068x⟨U+202E⟩ " + "y" * 53 + "…\u2069"
