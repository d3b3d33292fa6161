"""An experiment's tables over made-up arms, against scikit-learn and plain pandas."""

from __future__ import annotations

import statistics
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score, mean_absolute_error, root_mean_squared_error

from rubricflow.tasks.core.contracts.settings.experiment import (
    Ablation,
    ArmPair,
    CalibrationSize,
    GradeAgentOps,
    Orders,
    Perturbation,
    Rulers,
    Stability,
)
from rubricflow.tasks.core.display.table import Bar, Cell, LevelShares, Panel, Table, labelled, markdown
from rubricflow.tasks.core.stats.agreement import icc_2_1
from rubricflow.tasks.grading.evaluate.agree import compare
from rubricflow.tasks.grading.evaluate.experiment import cases, gradeagentops, tables
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, ExperimentArm, agreement
from rubricflow.tasks.grading.evaluate.experiment.cases import by_pattern
from rubricflow.tasks.grading.evaluate.experiment.tables import page

SCALE = (0.0, 10.0, 1.0)
PLAN = BootstrapPlan(200, 3)
N = 120
LEVELS = list(range(11))


def make(name: str, spread: float, seed: int = 0, **changes: Any) -> ExperimentArm:
    """N responses by 20 authors to 6 questions, the first half technical; two people and a machine with this error."""
    truth = np.random.default_rng(9)
    target, own = truth.integers(0, 11, N), np.random.default_rng(seed)
    raw = np.clip(np.round(target + own.normal(-1, spread, N)), 0, 10)
    names = [f"r{at:03d}" for at in range(N)]
    scores = pd.DataFrame(
        {
            "response_id": names,
            "item_id": [f"q{at % 6}" for at in range(N)],
            "type": ["technical" if at % 6 < 3 else "argumentative" for at in range(N)],
            "author_id": [f"a{at // 6:02d}" for at in range(N)],
            "split": ["calibration" if at < 36 else "test" for at in range(N)],
            "target": target.astype(float),
            "human:key": target.astype(float),
            "human:strict": np.clip(target - truth.integers(0, 3, N), 0, 10).astype(float),
            "raw": raw,
            "calibrated": np.clip(raw + 1, 0, 10),
        }
    )
    gradings = pd.DataFrame({"response_id": names, "status": "scored", "signals": [{} for _ in names]})
    attempts = calls([(one, "grade", 0, []) for one in names])
    nothing = pd.DataFrame(columns=["metric", "value", "low", "high", "n"])
    return ExperimentArm(name, scores, gradings, attempts, SCALE, False, {}, nothing)._replace(**changes)


def calls(made: list[tuple[str, str, int, list[str]]], prompt: float | None = 100.0) -> pd.DataFrame:
    frame = pd.DataFrame(made, columns=["response_id", "role", "attempt", "violations"])
    return frame.assign(prompt_tokens=prompt, completion_tokens=20.0, latency_s=0.5)


def cell(table: Table, row: int, column: str) -> Cell:
    found = table.rows[row][table.header.index(column)]
    assert isinstance(found, Cell)
    return found


def test_agreement_equals_other_libraries() -> None:
    arm = make("A", 2.0)
    found = agreement(arm.scores, "target", "raw", SCALE, PLAN)
    human, machine = arm.scores["target"], arm.scores["raw"]
    assert found["qwk"].value == pytest.approx(
        cohen_kappa_score(human.astype(int), machine.astype(int), labels=LEVELS, weights="quadratic")
    )
    assert found["mae"].value == pytest.approx(mean_absolute_error(human, machine))
    assert found["rmse"].value == pytest.approx(root_mean_squared_error(human, machine))
    assert found["within_2"].value == pytest.approx(((human - machine).abs() <= 2).mean())
    assert found["bias"].value == pytest.approx((machine - human).mean())
    assert (found.n, found.mean_a, found.mean_b) == (N, pytest.approx(human.mean()), pytest.approx(machine.mean()))


def test_the_standard_error_is_that_of_whole_authors_resampled() -> None:
    arm = make("A", 2.0)
    found = agreement(arm.scores, "target", "raw", SCALE, BootstrapPlan(4000, 0))["mae"]
    errors = (arm.scores["target"] - arm.scores["raw"]).abs().groupby(arm.scores["author_id"]).agg(["sum", "size"])
    rng = np.random.default_rng(1)
    picks = rng.integers(0, len(errors), (4000, len(errors)))
    drawn = errors["sum"].to_numpy()[picks].sum(axis=1) / errors["size"].to_numpy()[picks].sum(axis=1)
    assert found.se == pytest.approx(drawn.std(ddof=1), rel=0.06)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])), abs=0.03)


def test_unscored_responses_are_left_out_and_counted() -> None:
    arm = make("A", 1.0)
    arm.scores.loc[:9, "raw"] = np.nan
    arm.scores.loc[100:, "target"] = np.nan
    assert agreement(arm.scores, "target", "raw", SCALE, PLAN).n == 90
    table = gradeagentops.main([arm], "key", PLAN)
    assert (cell(table, 0, "n").value, cell(table, 0, "unscored").value) == (90, 10)


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.lists(st.sampled_from([0.0, 0.2, 0.7, 1.0]), min_size=2, max_size=4))
def test_arms_of_a_table_are_measured_on_the_responses_that_all_score(seed: int, lost: list[float]) -> None:
    rng = np.random.default_rng(seed)
    arms = [make(f"A{at}", 2.0, at) for at in range(len(lost))]
    for arm, share in zip(arms, lost, strict=True):
        arm.scores.loc[rng.random(N) < share, ["raw", "calibrated"]] = np.nan
    shared = set(arms[0].scores["response_id"])
    for arm in arms:
        scored = set(arm.scores.dropna(subset=["raw"])["response_id"])
        shared = shared & scored or shared
    table = gradeagentops.main(arms, "key", PLAN)
    for at, arm in enumerate(arms):
        rows = arm.scores[arm.scores["response_id"].isin(shared)].dropna(subset=["raw"])
        assert cell(table, at, "n").value in (0, len(shared))
        if cell(table, at, "n").value:
            assert cell(table, at, "MAE").value == pytest.approx(mean_absolute_error(rows["target"], rows["raw"]))
    by_arm = {arm.name: arm for arm in arms}
    ablated = tables.ablation(by_arm, Ablation(full="A0", others={name: name for name in [*by_arm][1:]}), PLAN)
    assert len({cell(ablated, at, "n").value for at in range(len(arms))} - {0}) <= 1


def test_table_4_sets_two_people_side_by_side() -> None:
    arm = make("A", 1.0)
    table = gradeagentops.human(arm, "strict", "key", PLAN)
    assert [row[0] for row in table.rows] == ["overall", "argumentative", "technical"]
    part = arm.scores[arm.scores["type"] == "technical"]
    both = part[["human:strict", "human:key"]]
    assert cell(table, 2, "bias").value == pytest.approx((part["human:key"] - part["human:strict"]).mean())
    assert cell(table, 2, "ICC(2,1)").value == pytest.approx(icc_2_1(both).value, abs=1e-9)


def test_table_5_shows_an_arm_that_scored_nothing() -> None:
    silent = make("A", 1.0)
    silent.scores["raw"] = np.nan
    table = gradeagentops.main([silent, make("B", 1.0)], "key", PLAN)
    assert (cell(table, 0, "n").value, cell(table, 0, "unscored").value, cell(table, 0, "MAE").value) == (0, N, None)
    assert [one.label for one in table.figures[0].bars] == ["B"]  # type: ignore[union-attr]


def test_table_6_turns_smaller_errors_into_gains() -> None:
    arms = {"base": make("base", 3.0), "full": make("full", 1.0, 1)}
    table = gradeagentops.paired(arms, [ArmPair("full", "base")], PLAN)
    a, b = (arm.scores.assign(calibrated=arm.scores["raw"]) for arm in arms.values())
    found, n, _ = compare(a, b, SCALE, *PLAN)
    mae, qwk = cell(table, 0, "gain"), cell(table, 1, "gain")
    assert (mae.value, mae.low, mae.high) == (-found["mae"].estimate, -found["mae"].high, -found["mae"].low)
    assert (qwk.value, qwk.low, qwk.high) == (found["qwk"].estimate, found["qwk"].low, found["qwk"].high)
    assert mae.low > 0
    assert cell(table, 0, "n").value == n == N


def test_table_7_and_figure_4_add_up_to_the_whole() -> None:
    base, full = make("base", 3.0), make("full", 1.0, 1)
    by_type = gradeagentops.by_type(base, full, PLAN)
    by_item = gradeagentops.by_item(base, full, PLAN)
    whole = [(arm.scores["target"] - arm.scores["raw"]).abs().mean() for arm in (base, full)]
    gain = pytest.approx(whole[0] - whole[1])
    assert statistics.fmean(cell(by_type, row, "ΔMAE").value for row in range(2)) == gain
    assert statistics.fmean(cell(by_item, row, "ΔMAE").value for row in range(6)) == gain
    row = [cell(by_type, 0, name).value for name in ("base MAE", "full MAE", "ΔMAE")]
    assert row[0] - row[1] == pytest.approx(row[2])


def test_table_8_counts_responses_not_calls() -> None:
    arm = make("A", 1.0)
    signals = [{"covered_gold_evidence_invalid": 3.0} if at < 12 else {"short_answer_gate": 0.0} for at in range(N)]
    asked = [(f"r{at:03d}", "grade", 0, ["evidence_failed:P1"] if at < 20 else []) for at in range(100)]
    mended = [(f"r{at:03d}", "semantic_repair", n, ["evidence_failed:P1"]) for at in range(10) for n in (1, 2)]
    arm = arm._replace(gradings=arm.gradings.assign(signals=signals), attempts=calls(asked + mended))
    table = gradeagentops.outcomes([arm])
    assert cell(table, 0, "Pass@1").value == pytest.approx(0.9)
    assert cell(table, 0, "clean at once").value == pytest.approx(0.8)
    assert cell(table, 0, "invalid gold evidence").value == pytest.approx(0.1)
    assert cell(table, 0, "short-answer gate").value == 0


def test_table_10_costs_are_per_response_asked() -> None:
    asked = calls([("r000", "grade", 0, []), ("r000", "contract_repair", 1, []), ("r001", "grade", 0, [])])
    table = gradeagentops.efficiency([make("A", 1.0, attempts=asked)])
    row = {name: cell(table, 0, name).value for name in table.header[1:]}
    assert row == pytest.approx(
        {
            "calls": 3,
            "calls per response": 1.5,
            "repair rate": 0.5,
            "responses repaired": 0.5,
            "prompt tokens": 150,
            "reply tokens": 30,
            "engine seconds": 1.5,
            "seconds per response": 0.75,
        }
    )


def test_table_10_makes_up_no_tokens() -> None:
    table = gradeagentops.efficiency([make("A", 1.0, attempts=calls([("r000", "grade", 0, [])], None))])
    assert cell(table, 0, "prompt tokens").value is None
    assert str(cell(table, 0, "prompt tokens")) == "–"


def test_all_tables_of_gradeagentops_have_rows_as_wide_as_their_headings() -> None:
    arms = {name: make(name, 2.0, at) for at, name in enumerate(("B0", "FULL", "other"))}
    wanted = GradeAgentOps(
        second="strict", baseline="B0", full="FULL", pairs=(ArmPair("FULL", "B0"),), memory=(ArmPair("FULL", "B0"),)
    )
    made = list(gradeagentops.tables(arms, wanted, "key", PLAN))
    assert [table.id for table in made] == [
        *("gao_4", "gao_5", "gao_6", "gao_7", "gao_figure_4", "gao_8", "gao_9", "gao_10", "gao_11")
    ]
    assert {len(row) - len(table.header) for table in made for row in table.rows} == {0}
    assert [row[0] for row in made[1].rows] == ["B0", "FULL"]


def case(name: str, base: float, full: float, target: float, lost: list[str], new: list[str]) -> dict[str, Any]:
    errors = abs(base - target), abs(full - target)
    return {
        "response_id": name,
        "base": base,
        "full": full,
        "base_error": errors[0],
        "full_error": errors[1],
        "gain": errors[0] - errors[1],
        "lost": lost,
        "new": new,
    }


def test_cases_are_by_pattern_rule() -> None:
    both = pd.DataFrame(
        [
            case("exact", 6, 10, 10, [], []),
            case("near", 3, 9, 10, [], []),
            case("halfway", 4, 7, 10, [], []),
            case("cleaner", 5, 5, 8, ["contract_fail"], []),
            case("swapped", 5, 5, 8, ["contract_fail"], ["forced_completeness_from_gold"]),
            case("worse", 1, 5, 1, ["contract_fail"], []),
            case("same", 5, 6, 5, [], []),
        ]
    )
    found = {pattern: list(rows["response_id"]) for pattern, rows in by_pattern(both).items()}
    assert found == {
        "clear gain": ["near", "exact"],
        "partial gain": ["halfway"],
        "cleaner output": ["cleaner"],
        "baseline closer": ["worse"],
    }


def test_the_spread_of_scores_over_orders_is_numpys() -> None:
    arms = [make("A", 2.0, seed) for seed in range(4)]
    arms[1].scores.loc[0, "raw"] = np.nan
    found = cases.spread_of_scores(arms)
    scores = np.column_stack([arm.scores["raw"] for arm in arms])
    assert found["sd"].to_numpy() == pytest.approx(np.nanstd(scores, axis=1, ddof=1))
    assert found["range"].to_numpy() == pytest.approx(np.nanmax(scores, axis=1) - np.nanmin(scores, axis=1))


def test_orders_that_change_nothing_have_no_spread() -> None:
    arms = {name: make(name, 2.0) for name in ("C1", "C1, order 1", "C1, order 2")}
    each, spread = cases.tables(arms, Orders(arms=("C1",), seeds=(1, 2)), PLAN)
    assert [row[1] for row in each.rows] == ["by id", "order 1", "order 2"]
    for row, statistic in enumerate(("MAE", "QWK")):
        assert spread.rows[row][1] == statistic
        for column in ("range over orders", "SD over orders", "mean SD of a score", "scores that move"):
            assert cell(spread, row, column).value == pytest.approx(0, abs=1e-12)
        assert cell(spread, row, "bootstrap SE").value > 0


def test_table_2_is_calibrated_and_held_out() -> None:
    arms = {"dhs on small": make("dhs on small", 3.0), "rulers on small": make("rulers on small", 1.0, 1)}
    wanted = Rulers(methods=("dhs", "rulers"), backbones={"small": {}})
    kappas, tokens = tables.rulers_tables(arms, wanted, PLAN)
    test = arms["rulers on small"].scores.query("split == 'test'")
    assert kappas.rows[0][0] == "small"
    assert cell(kappas, 0, "rulers").value == pytest.approx(
        cohen_kappa_score(
            test["target"].astype(int), test["calibrated"].astype(int), labels=LEVELS, weights="quadratic"
        )
    )
    assert cell(tokens, 0, "dhs").value == pytest.approx(120)
    shares = kappas.figures[1]
    assert shares.people == pytest.approx(test["target"].value_counts(normalize=True).reindex(LEVELS, fill_value=0))  # type: ignore[union-attr]


def test_a_calibration_size_without_labels_is_not_known() -> None:
    arm = make("dhs", 2.0)
    sized = arm._replace(resized={50: arm.scores.assign(calibrated=arm.scores["target"]), 100: None})
    table = tables.calibration_size({"dhs": sized}, CalibrationSize(arms=("dhs",), sizes=(50, 100)), PLAN)
    assert (cell(table, 0, "N = 50").value, cell(table, 0, "N = 100").value) == (1.0, None)
    assert any("no 100 labelled" in note for note in table.notes)


def test_the_largest_shift_is_from_the_standard_presentation() -> None:
    arms = {
        name: make(name, spread)
        for name, spread in (("A", 1.0), ("A, criteria_reversed", 3.0), ("A, paraphrased", 1.2))
    }
    wanted = Perturbation(arms=("A",), variants=("criteria_reversed", "paraphrased"))
    table = tables.perturbation(arms, wanted, PLAN)
    standard, *others = (cell(table, 0, name).value for name in ("standard", "criteria reversed", "paraphrased"))
    assert cell(table, 0, "largest shift").value == pytest.approx(max(abs(one - standard) for one in others))


def test_an_ablation_is_paired_with_the_full_arm() -> None:
    arms = {"full": make("full", 1.0), "less": make("less", 4.0, 1)}
    table = tables.ablation(arms, Ablation(full="full", others={"without": "less"}), PLAN)
    change = cell(table, 1, "change from full")
    assert change.value == pytest.approx(cell(table, 1, "QWK").value - cell(table, 0, "QWK").value)
    assert change.high < 0


def test_stability_is_mean_and_sample_deviation() -> None:
    arms = {f"A, induction {seed}": make("A", 2.0, seed) for seed in (1, 2, 3)}
    table = tables.stability(arms, Stability(arm="A", seeds=(1, 2, 3)), PLAN)
    runs = [cell(table, 0, f"run {seed}").value for seed in (1, 2, 3)]
    assert cell(table, 0, "mean").value == pytest.approx(statistics.fmean(runs))
    assert cell(table, 0, "SD").value == pytest.approx(statistics.stdev(runs))


def test_decisions_are_the_runs_own_figures() -> None:
    rows = [
        ("decision_ece", 0.1, 0.05, 0.2, 300, 12),
        ("decision_brier", 0.3, None, None, 300, None),
        ("qwk", 0.9, 0.8, 1.0, 40, 40),
    ]
    metrics = pd.DataFrame(rows, columns=["metric", "value", "low", "high", "n", "clusters"])
    table = tables.decisions([make("A", 1.0, metrics=metrics), make("B", 1.0)])
    assert [cell(table, row, "decisions").value for row in (0, 1)] == [300, 0]
    assert str(cell(table, 0, "ECE")) == "0.100 [0.050, 0.200]†"
    assert "(here 12 at the least)" in table.remarks[-1]
    assert (str(cell(table, 0, "Brier")), cell(table, 1, "ECE").value) == ("0.300", None)


# How an experiment's tables are shown: numbers with their ends, names as text, simulated raters said to be so.


EVIL = '<img src=x onerror="1"> a|b [bold] \x1b[31m'
PANEL = Panel("Errors", (Bar("A", 0.5, 0.4, 0.7), Bar(EVIL, -0.25)))
SHARES = LevelShares("Scores", ("0", "1"), (0.25, 0.75), {"A": (0.5, 0.5)})
TABLE = Table(
    "t_1",
    "Table 1",
    ("arm", "MAE"),
    (("A", Cell(0.5, 0.4, 0.7, 0.1, ends="interval")), (EVIL, Cell(None))),
    (EVIL,),
    (PANEL, SHARES),
)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


def test_every_title_says_that_the_rater_is_simulated() -> None:
    found = labelled(TABLE)
    assert all("simulated" in title for title in (found.title, *(figure.title for figure in found.figures)))
    assert "simulated" in markdown("e", [], [found], [])
    assert page("e", "", [found], {}, True).count("simulated") >= 4


def test_names_are_text_on_the_page() -> None:
    tags = Tags()
    tags.feed(page("e", "", [TABLE], {EVIL: "run"}, False))
    assert {"img", "script"}.isdisjoint(tags.seen)
    assert tags.seen.count("svg") == 3


def test_a_page_opens_with_its_contrast() -> None:
    html = page("e", "A agrees better <with> people than B.", [TABLE], {}, False)
    assert html.index("A agrees better &lt;with&gt; people than B.") < html.index("Table 1")
    assert markdown("e", ["A agrees better <with> people than B."], [TABLE], []).splitlines()[2].startswith("A agrees")
