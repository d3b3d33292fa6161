"""Raters by one measure on the same answers: against scikit-learn, and equal scores have equal rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.grading.evaluate.baselines import rank_raters
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, RehearsedArm, on_shares, rehearsal
from rubricflow.tasks.grading.evaluate.slices import ScoreSlice, Setting

SCALE = (0.0, 4.0, 1.0)
RATERS = {("calibrated", "m"): "calibrated", ("raw", "m"): "raw", ("calibrated", "text_only"): "text_only"}
RATERS |= {("calibrated", "length"): "length", ("calibrated", "other:b"): "other:b", ("human", "people"): "human:b"}


def study(seed: int, items: int, each: int, lost: float) -> pd.DataFrame:
    """Answers whose questions differ in difficulty, with raters of different error, some scores lost."""
    rng = np.random.default_rng(seed)
    n = items * each
    item = np.repeat(np.arange(items), each)
    target = np.clip(np.round(rng.normal(2, 1.2, items)[item] + rng.normal(0, 1, n)), 0, 4)
    frame = pd.DataFrame({"item_id": [f"q{i}" for i in item], "cluster": np.arange(n), "target": target})
    for name in ("calibrated", "raw", "text_only", "other:b", "human:b"):
        scores = np.clip(np.round(target + rng.normal(0, rng.uniform(0.3, 3), n)), 0, 4)
        frame[name] = np.where(rng.random(n) < lost, np.nan, scores)
    return frame.assign(**{"human:a": target, "signal:length": rng.normal(5, 1, n)})


def figures(frame: pd.DataFrame, draws: int = 0) -> dict[tuple[str, str, str], dict]:
    whole = ScoreSlice("all", "all", frame, SCALE, "response")
    scales = dict.fromkeys(frame["item_id"], SCALE)
    rows = rank_raters(whole, Setting(scales, "m", ["a", "b"], draws=draws))
    return {(row["metric"], row["stage"], row["rater_b"]): row for row in rows}


def kappa(human: pd.Series, machine: pd.Series) -> float:
    return float(cohen_kappa_score(human.astype(int), machine.astype(int), labels=range(5), weights="quadratic"))


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(3, 40), st.sampled_from([0.0, 0.1, 0.5]))
def test_every_row_is_scikit_learns_on_the_answers_that_all_score(
    seed: int, items: int, each: int, lost: float
) -> None:
    frame = study(seed, items, each, lost)
    found = figures(frame)
    shared = frame
    for name in ("calibrated", "raw", "text_only", "other:b"):
        shared = shared[shared[name].notna()] if shared[name].notna().any() else shared
    telling = shared.groupby("item_id").filter(lambda part: part["target"].nunique() > 1)
    for (stage, rater), column in RATERS.items():
        row = found.get(("standing_qwk_item_mean", stage, rater))
        if row is None or row["value"] is None or column == "length":
            continue
        both = telling[telling[column].notna()].groupby("item_id").filter(lambda part: part["target"].nunique() > 1)
        assert row["n"] == len(both)
        kappas = [kappa(part["target"], part[column]) for _, part in both.groupby("item_id")]
        assert row["value"] == pytest.approx(np.nanmean(kappas), abs=1e-9)
        pooled = shared[shared[column].notna()]
        assert found["standing_qwk", stage, rater]["value"] == pytest.approx(
            kappa(pooled["target"], pooled[column]), abs=1e-9
        )
    for metric in {metric for metric, stage, _ in found if stage == "human"}:
        people, machine = (found[metric, "human", name] for name in ("people", "m"))
        assert people["n"] == machine["n"]
    sizes = {row["n"] for (metric, stage, _), row in found.items() if stage != "human" and metric.endswith("item_mean")}
    assert len(sizes - {0}) <= 1


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.permutations(["calibrated", "raw", "text_only", "other:b", "human:b"]))
def test_two_raters_with_the_same_scores_have_the_same_rows(seed: int, names: list[str]) -> None:
    frame = study(seed, 4, 20, 0.0)
    frame[names[0]] = frame[names[1]]
    found = figures(frame, draws=100)
    keys = {column: key for key, column in RATERS.items()}
    for metric in ("standing_qwk", "standing_qwk_item_mean"):
        first, second = (found[metric, *keys[name]] for name in names[:2])
        for what in ("value", "low", "high", "n", "clusters"):
            assert first[what] == second[what]


@settings(max_examples=8)
@given(st.integers(0, 10**6), st.floats(0.1, 0.9))
def test_the_machine_stands_next_to_people_on_the_answers_that_two_of_them_scored(seed: int, lost: float) -> None:
    frame = study(seed, 3, 30, 0.0)
    chance = np.random.default_rng(seed).random((2, len(frame)))
    frame["human:a"] = frame["target"].where(chance[0] > lost)
    frame["human:b"] = frame["calibrated"].where(chance[1] > lost)
    found = figures(frame)
    for metric in {metric for metric, stage, _ in found if stage == "human"}:
        people, machine = (found[metric, "human", name] for name in ("people", "m"))
        assert (people["value"], people["n"]) == (machine["value"], machine["n"])


def test_a_run_that_scored_other_answers_has_a_row_and_no_figure() -> None:
    frame = study(1, 3, 40, 0.0)
    late = np.arange(len(frame)) % 2 == 0
    frame["other:b"] = frame["other:b"].where(late)
    frame["other:late"] = frame["target"].where(~late)
    found = figures(frame)
    row = found["standing_qwk_item_mean", "calibrated", "other:late"]
    assert (row["value"], row["n"]) == (None, 0)
    assert found["standing_qwk_item_mean", "calibrated", "m"]["n"] == len(frame) // 2


def test_an_item_on_which_people_do_not_differ_counts_for_nobody() -> None:
    frame = study(2, 3, 40, 0.0)
    flat = frame["item_id"] == "q0"
    same = frame.assign(target=frame["target"].where(~flat, 2.0), calibrated=frame["calibrated"].where(~flat, 2.0))
    found = figures(same)["standing_qwk_item_mean", "calibrated", "m"]
    rest = figures(frame[~flat])["standing_qwk_item_mean", "calibrated", "m"]
    assert (found["value"], found["n"]) == (rest["value"], rest["n"])
    assert figures(same.assign(target=2.0))["standing_qwk_item_mean", "calibrated", "m"]["value"] is None


# A rehearsal: scores of several scales together, and which way of asking is taken.


PLAN = BootstrapPlan(400, 0)


def frame(target: list[float], raw: list[float], item: str = "i") -> pd.DataFrame:
    names = [f"{item}{at}" for at in range(len(target))]
    known = {"response_id": names, "item_id": item, "author_id": None, "split": "calibration"}
    return pd.DataFrame({**known, "target": target, "raw": raw})


def arm(name: str, scores: pd.DataFrame, tokens: int | None = 100, quotes: int = 10, **more: object) -> RehearsedArm:
    took = {"calls": 10, "usd": None, "violations": 1, "standing": quotes - quotes // 10} | more
    return RehearsedArm(name, on_shares(scores, {"i": SCALE}), tokens=tokens, quotes=quotes, **took)


@pytest.fixture
def people() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 5, 60).astype(float)


def off(people: np.ndarray, share: float, seed: int) -> list[float]:
    """The same scores, a share of them drawn anew."""
    rng = np.random.default_rng(seed)
    return list(np.where(rng.random(len(people)) < share, rng.integers(0, 5, len(people)), people))


def test_scores_of_items_of_several_scales_are_shares_of_them() -> None:
    both = pd.concat([frame([0, 1.5, 2], [0, np.nan, 1.2], "a"), frame([1, 3, 6], [1, 6, 3], "b")])
    shares = on_shares(both, {"a": (0.0, 2.0, 1.0), "b": (1.0, 6.0, 1.0)})
    assert shares["target"].tolist() == pytest.approx([0, 1, 1, 0, 0.4, 1])  # a half goes up
    assert shares["raw"].tolist() == pytest.approx([0, np.nan, 0.5, 0, 1, 0.4], nan_ok=True)


def test_the_agreement_is_qwk_on_what_every_way_scores(people: np.ndarray) -> None:
    raw = off(people, 0.5, 1)
    holes = [np.nan if at < 5 else value for at, value in enumerate(raw)]
    sentence, table = rehearsal([arm("plain", frame(people, raw)), arm("parts", frame(people, holes))], PLAN)
    first, second = (dict(zip(table.header, row, strict=True)) for row in table.rows)
    assert first["QWK"].value == pytest.approx(qwk(people[5:], raw[5:], 0, 4).value)
    assert [cell.value for cell in (first["n"], first["unscored"], second["n"], second["unscored"])] == [55, 0, 55, 5]
    assert (second["more than plain"].value, first["more than plain"]) == (0, "–")
    assert (second["quotes that stand"].value, second["cost"]) == (0.9, "not known")
    assert "55 answers" in sentence


@pytest.mark.parametrize(
    ("shares", "tokens", "quotes", "taken"),
    [
        ((0.1, 0.9, 0.9), (10, 50, 90), (0, 9, 9), "plain"),  # far better than any checklist
        ((0.1, 0.1, 0.1), (10, 50, 90), (0, 9, 9), "four"),  # as good: the checklist that takes less
        ((0.9, 0.9, 0.1), (10, 50, 90), (0, 9, 9), "one"),
        ((0.9, 0.1, 0.9), (10, 90, 50), (0, 9, 9), "four"),
        ((0.1, 0.1, 0.1), (50, 10, 90), (0, 0, 0), "four"),  # where nobody gives quotes, what takes least
    ],
)
def test_of_what_agrees_as_well_the_cheapest_with_a_checklist_is_taken(
    people: np.ndarray,
    shares: tuple[float, ...],
    tokens: tuple[int, ...],
    quotes: tuple[int, ...],
    taken: str,
) -> None:
    names = ("plain", "four", "one")
    arms = [
        arm(name, frame(people, off(people, share, 5)), took, quoted)
        for name, share, took, quoted in zip(names, shares, tokens, quotes, strict=True)
    ]
    sentence, _ = rehearsal(arms, PLAN)
    assert sentence.startswith(f"Use {taken}: QWK ")
    assert ("none of the ways" in sentence) == (len(set(shares)) == 1)


def test_without_an_agreement_nothing_is_taken() -> None:
    same = arm("plain", frame([2.0] * 5, [2.0] * 5))
    sentence, table = rehearsal([same, same._replace(name="four")], PLAN)
    assert sentence.startswith("These answers do not tell")
    assert [str(row[1]) for row in table.rows] == ["–", "–"]
