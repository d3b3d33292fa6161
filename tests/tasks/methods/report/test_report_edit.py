"""The report of trained arms: its figures are those of the tables, sections stand alone, and all text is text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from builders.edit_scene import (
    BELIEFS,
    LINES,
    QWK,
    TEXT,
    demonstration_rows,
    difference_rows,
    learning_rows,
    made,
    metric,
    metric_rows,
    policy_rows,
    revision_rows,
    rollout_rows,
    rule_rows,
    separation_rows,
    step_rows,
)
from builders.seen import Seen

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.edit import (
    ArmDifferences,
    ArmMetrics,
    Demonstrations,
    Learning,
    Policies,
    Revisions,
    Rollouts,
    RuleFaithfulness,
    Separations,
    Steps,
)
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.methods.report import arm_figures as figures
from rubricflow.tasks.methods.report import arms as view
from rubricflow.tasks.methods.report import cases
from rubricflow.tasks.methods.report.arm_figures import SeedFigures, summary_rows
from rubricflow.tasks.methods.report.arms import page

EVIL = '</td></style><script>alert(1)</script><img src=x onerror="1"> {{ 7*7 }} \u202e'
SECTIONS = ["arms", "differences", "grid", "curves", "beliefs", "selection", "divergence", "rules", "made"]
TABLES = (
    "metrics",
    "differences",
    "learning",
    "policies",
    "rollouts",
    "steps",
    "revisions",
    "demonstrations",
    "separations",
    "faithfulness",
)


def rows_of(table: Any) -> dict[str, list[str]]:
    """First cell of each row → the others as they are shown."""
    return {str(row[0]): [str(cell) for cell in row[1:]] for row in table.rows}


def test_a_page_has_every_section_and_opens_with_the_last_phase_next_to_base_and_what_is_clear() -> None:
    seen = Seen(page(made()))
    assert seen.ids == SECTIONS
    opening = (
        "Edit-RL marks with QWK 0.58 on unseen questions, Base 0.41; 0.63 on questions seen in training, Base 0.46"
    )
    assert opening in seen.words
    assert "6 of 10 differences in QWK are clear" in seen.words


@pytest.mark.parametrize(
    ("without", "gone"),
    [
        ("metrics", {"arms", "grid", "divergence"}),
        ("differences", {"differences"}),
        ("steps", {"beliefs"}),
        ("faithfulness", {"rules"}),
    ],
)
def test_a_run_that_lacks_a_table_lacks_its_sections(without: str, gone: set[str]) -> None:
    whole = made()
    empty: pa.Table = getattr(whole, without).slice(0, 0)
    left = [section.id for section in view.content(replace(whole, **{without: empty})).sections]
    assert left == [name for name in SECTIONS if name not in gone]


def test_a_run_without_anything_has_a_page() -> None:
    view = made()
    html = page(replace(view, **{name: getattr(view, name).slice(0, 0) for name in TABLES}, texts={}))
    assert "No arm has a QWK on the test split" in html
    assert Seen(html).ids == ["made"]


def test_the_summary_has_a_row_for_every_arm_and_part() -> None:
    rows = summary_rows(conform(ArmMetrics, metric_rows()))
    assert len(rows) == 2 * len(QWK)
    assert rows[0][:4] == ("Base", "seen", "1", "0.46 [0.43, 0.49]")
    assert {len(row) for row in rows} == {len(figures.HEADER)}


def test_the_phases_count_rollouts() -> None:
    assert cases.phases(made()) == {
        "sampled": 6,
        "wrong": 2,
        "with a harmful step": 2,
        "with a weak one": 2,
        "revision taken": 2,
        "a continuation is right": 1,
    }
    unmarked = [row | {"mark": None, "unmarked": "no_mark"} for row in rollout_rows()]
    assert cases.phases(made(rollouts=conform(Rollouts, unmarked)))["wrong"] == 6


def arms(rows: list[dict[str, Any]]) -> SeedFigures:
    return SeedFigures(conform(ArmMetrics, rows), "arm", "part", "metric")


def test_a_figure_is_the_mean_of_the_seeds_with_their_intervals_and_spread() -> None:
    assert str(arms(metric_rows())("edit_rl", "unseen", "qwk")) == "0.58 [0.55, 0.61] ± 0.01"
    assert str(arms(metric_rows())("base", "unseen", "qwk")) == "0.41 [0.38, 0.44]"
    found = arms([metric("grpo", "qwk", value, seed=seed) for seed, value in enumerate((0.2, None, 0.6))])
    assert found("grpo", "seen", "qwk")[:1] == (pytest.approx(0.4),)
    assert found("grpo", "seen", "qwk").se == pytest.approx(0.08**0.5)


def test_what_was_left_out_is_said_once() -> None:
    rows = [row | {"note": "left out: 2" if row["metric"] == "qwk" else None} for row in metric_rows()]
    assert figures.summary_table(conform(ArmMetrics, rows), "unseen").notes == ["QWK, all arms: left out: 2"]
    table = figures.summary_table(conform(ArmMetrics, [metric("base", "mae", None, note="no mark")]), "seen")
    assert table.notes == ["MAE, all arms: no mark"]
    assert rows_of(table)["Base"][4] == "–"


def test_the_grid_has_rl_on_both_starts() -> None:
    found = rows_of(figures.grid_table(arms(metric_rows()), "unseen"))
    short = {name: [cell[:4] for cell in cells] for name, cells in found.items()}
    assert short == {"no RL": ["0.41", "0.52"], "GRPO": ["0.47", "0.55"], "Edit-RL": ["0.46", "0.58"]}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((0.1,), "clearly ahead"),
        ((0.03,), "not clear"),
        ((-0.1,), "clearly behind"),
        ((0.02, 0.18), "not clear"),
        ((0.09, 0.11), "clearly ahead"),
    ],
)
def test_a_difference_is_clear_beyond_its_interval_and_the_spread_of_seeds(
    values: tuple[float, ...], verdict: str
) -> None:
    row = {"arm": "edit_rl", "against": "grpo", "part": "unseen", "metric": "qwk", "p": 0.1, "n": 9, "note": None}
    rows = [
        row | {"seed": seed, "value": value, "low": value - 0.04, "high": value + 0.04}
        for seed, value in enumerate(values)
    ]
    gaps = SeedFigures(conform(ArmDifferences, rows), "arm", "against", "part", "metric")
    assert rows_of(figures.difference_table(gaps, "unseen"))["Edit-RL less GRPO"][-1] == verdict
    better, worse = ("GRPO", "Edit-RL") if values[0] < 0 else ("Edit-RL", "GRPO")
    assert (f"{better} over {worse} (+" in figures.clear_differences(gaps)) == (verdict != "not clear")


def test_curves_begin_with_the_start() -> None:
    drawn = {drawing.title: drawing.svg for drawing in view.curves(made())}
    assert "Edit-RL: 0 0.520, 20 " in drawn["QWK, unseen questions"]
    assert 0 < drawn["Shaping (Eq. 6)"].count('class="mf" cx') <= view.POINTS


def test_the_rollouts_shown_are_mended_ones_and_one_that_was_not() -> None:
    assert cases.needs_texts(made().revisions) == [(0, "r1", 0), (0, "r2", 0)]
    case = next(cases.revised_cases(made()))
    table = cases.step_table(case)
    assert [str(row[0]) for row in table.rows] == [
        f"1. {LINES[0]}",
        f"2. {LINES[1]}",
        "→ P2 asks for water.",
        "→ The answer names no water: not met.",
        f"3. {LINES[2]}",
        f"4. {LINES[3]}",
    ]
    assert [str(cell) for cell in table.rows[1][1:]] == ["1.90", "−0.70", "0.00", "1.50", "−0.50", "chosen"]
    assert case.title.endswith("mark 2, gold 1, 2 of 4 continuations of the revision reach it")
    drawn = cases.belief_chart(case).svg
    written = ", ".join(f"{step} {mean:.3f}" for step, mean in enumerate(BELIEFS["r1"]))
    assert f"as written: mark 2: {written}" in drawn
    assert "mended: 0 1.400, 1 1.200, 2 1.100, 3 1.000" in drawn


def test_a_rollout_of_many_steps_is_cut_and_says_so() -> None:
    base = next(row for row in step_rows() if row["step"] == 1)
    rows = [base | {"step": step, "start": 0, "end": 5} for step in range(1, 501)]
    rows.append(next(row for row in step_rows() if row["step"] == 0))
    table = cases.step_table(next(cases.revised_cases(made(steps=conform(Steps, rows)))))
    assert len(table.rows) == cases.STEPS + 2
    assert table.notes == ("460 more steps in the table `steps`.",)


def test_revisions_and_pools_are_counted_by_arm() -> None:
    assert rows_of(cases.revision_table(made().revisions))["Edit-SFT"] == ["2", "3", "2", "1", "0.33", "1"]
    assert list(cases.refusal_notes(made().revisions)) == ["Edit-SFT, refused: states the mark (1)"]
    rows = [row | {"reply": row["refused"] and f"The mark\nis 2. {'x' * 400}"} for row in revision_rows()]
    (note,) = cases.refusal_notes(conform(Revisions, rows))
    assert "refused: states the mark (1). A reply that was refused for the first of these: “The mark is 2. xxx" in note
    assert note.endswith("x…”")
    assert rows_of(cases.pool_table(made().demonstrations))["Edit-SFT"] == ["2", "1.0", "0.0", "0.5", "1.5"]


def test_positions_are_shares_of_the_tenth_that_a_step_ends_in() -> None:
    row = revision_rows()[0]
    rows = [row | {"sample": at, "step": step, "steps": 30} for at, step in enumerate((1, 3, 4, 30))]
    drawn = next(cases.selection_drawings(made(revisions=conform(Revisions, rows)), {})).svg
    assert "Edit-SFT: 0.1 0.500, 0.2 0.250, 0.3 0.000," in drawn
    assert "1 0.250" in drawn


def test_the_audit_is_tried_against_kinds_of_steps() -> None:
    table = cases.separation_table(made().separations)
    assert [[str(cell) for cell in row] for row in table.rows] == [
        ["answer", unit, "2", "60", "20", "0.700", "0.002"] for unit in ("rollout", "step")
    ]


def test_rules_stand_apart_by_who_makes_the_mark() -> None:
    tables = {table.id: rows_of(table) for table in figures.rule_tables(made().faithfulness)}
    assert tables["rules-stated-levels-in_rubric"]["Edit-RL"][1] == "0.92 [0.87, 0.97] ± 0.03"
    assert tables["rules-stated-points-floor_rate"]["Base"][1] == "0.07 [0.02, 0.12]"
    assert list(tables["rules-summed-points-in_rubric"]) == ["\u2068embedded-points\u2069"]
    assert "embedded" not in "".join(tables["rules-stated-points-in_rubric"])
    assert figures.rule_takeaway(made().faithfulness).startswith("Edit-RL follows edits of level-of-response schemes")


def test_a_ratio_that_is_undefined_says_why() -> None:
    rows = [row | {"in_rubric": None, "in_rubric_note": "every mark is 0"} for row in rule_rows()[:1]]
    found = conform(RuleFaithfulness, rows)
    assert list(figures.rule_notes(found))[1:] == ["Edit-RL, A1: every mark is 0"]
    assert figures.rule_takeaway(found) == "No grader that states its mark has an in-rubric RSR"
    (_, ratio) = figures.rule_tables(found)
    assert [str(cell) for cell in ratio.rows[0][2:]] == ["–"]


def test_what_policies_and_students_wrote_is_text() -> None:
    revisions = [
        row | {"sub_steps": [EVIL], "refused": row["refused"] and EVIL, "reply": EVIL} for row in revision_rows()
    ]
    tables = {
        "revisions": conform(Revisions, revisions),
        "policies": conform(Policies, [row | {"note": EVIL} for row in policy_rows()]),
        "metrics": conform(ArmMetrics, [row | {"note": EVIL} for row in metric_rows()]),
        "faithfulness": conform(RuleFaithfulness, [row | {"rater_id": EVIL} for row in rule_rows()[:1]]),
    }
    html = page(replace(made(**tables), study=EVIL, texts={(0, name, 0): EVIL + TEXT for name in BELIEFS}))
    seen = Seen(html)
    assert not {"img", "script", "iframe", "link"} & set(seen.tags)
    assert seen.tags.count("style") == 1
    assert not any(word in ("49", "49 \u27e8U+202E\u27e9") for word in seen.words)
    assert "{{ 7*7 }}" in html
    assert "\u202e" not in html
    assert any("<script>alert(1)</script>" in word for word in seen.words)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    found = Warehouse.open(tmp_path).run("one")
    tables = {
        Rollouts: rollout_rows(),
        Steps: step_rows(),
        Separations: separation_rows(),
        Revisions: revision_rows(),
        Demonstrations: demonstration_rows(),
        Policies: policy_rows(),
        Learning: learning_rows(),
        ArmMetrics: metric_rows(),
        ArmDifferences: difference_rows(),
        RuleFaithfulness: rule_rows(),
    }
    found.commit("edit", "worth", tables)
    return found


@pytest.fixture
def asked(run: Run) -> Callable[[str], list[dict[str, Any]]]:
    def rows(question: str) -> list[dict[str, Any]]:
        answer = ask(run, question)
        return [dict(zip(answer.columns, row, strict=True)) for row in answer.fetchall()]

    return rows


def test_a_question_sets_arms_side_by_side(asked: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = [row for row in asked("arms") if (row["part"], row["metric"]) == ("unseen", "qwk")]
    assert [row["arm"] for row in rows[:2]] == ["edit_rl", "grpo_on_edit_sft"]
    assert (rows[0]["mean"], rows[0]["sd"], rows[0]["seeds"]) == (pytest.approx(0.58), pytest.approx(0.01), 3)
    errors = [row["mean"] for row in asked("arms") if (row["part"], row["metric"]) == ("unseen", "mae")]
    assert errors == sorted(errors)


def test_a_question_shows_the_steps_that_were_edited(asked: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = asked("edited_steps")
    assert len(rows) == len(revision_rows())
    first = rows[0]
    assert (first["arm"], first["says"], first["fate"], first["kept"]) == ("edit_sft", LINES[1], "chosen", True)
    assert first["change"] == pytest.approx(-0.7)
    assert first["sub_steps"] == revision_rows()[0]["sub_steps"]


def test_a_question_gives_learning_curves(asked: Callable[[str], list[dict[str, Any]]]) -> None:
    rows = [row for row in asked("learning_curve") if (row["arm"], row["metric"]) == ("grpo", "reward")]
    assert [row["step"] for row in rows] == list(range(1, 61))
    assert (rows[0]["mean"], rows[0]["sd"], rows[0]["seeds"]) == (pytest.approx(0.512), pytest.approx(0.01), 3)
