"""Which figure speaks for a gate, and when it is asked at all."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.contracts.tables.evaluation import Metrics, Verdicts
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.grading.evaluate.baselines import against_text
from rubricflow.tasks.grading.evaluate.figures import gates
from rubricflow.tasks.grading.evaluate.slices import ScoreSlice, Setting

SCALE = (0.0, 4.0, 1.0)
PLAN = Release(risk=0.07, coverage=0.8)
Record = dict[str, Any]


def figure(metric: str, value: float | None, stage: str = "calibrated", of: str = "target", **more: Any) -> Record:
    """A row of `metrics` with an interval of ± 0.01."""
    ends = {"low": None, "high": None} if value is None else {"low": value - 0.01, "high": value + 0.01}
    whole = {"rater_b": "m", "slice": "all", "value_of": "all", "n": 400, "unscored": 0, "resampled": "author"}
    row = {"metric": metric, "rater_a": of, "stage": stage, "value": value, "undefined_draws": 0, "clusters": 40}
    return row | whole | ends | more


def pair(one: str, two: str, value: float | None, metric: str = "qwk", **more: Any) -> Record:
    """The agreement of two people."""
    return figure(metric, value, "human", one, rater_b=two, **more)


def asked(*rows: Record, groups: tuple[str, ...] = (), scale: tuple[float, ...] = SCALE, doubles: int = 0) -> Any:
    """Verdicts by gate, slice and value."""
    metrics = conform(Metrics, list(rows)).to_pandas()
    made = list(gates(metrics, list(groups), {"i": scale, "j": scale}, PLAN, doubles))
    assert len(conform(Verdicts, made)) == len(made)
    return {(row["gate"], row["slice"], row["value_of"]): row for row in made}


PAIRS = (
    pair("a", "b", 0.9, n=300, clusters=30),
    pair("a", "c", 0.6, n=350, clusters=12),
    pair("b", "c", 0.8, n=400, clusters=40),
)


@pytest.mark.parametrize("rows", list(permutations(PAIRS)))
def test_the_pair_that_agrees_least_speaks_whatever_the_order(rows: tuple[Record, ...]) -> None:
    gate = asked(*rows)["human_qwk", "all", "all"]
    told = ("estimate", "low", "high", "n", "clusters", "outcome")
    assert [gate[name] for name in told] == [0.6, 0.59, 0.61, 350, 12, "fail"]


def test_an_undefined_pair_speaks_only_where_no_pair_is_defined() -> None:
    none = pair("a", "c", None)
    assert asked(none, *PAIRS[2:])["human_qwk", "all", "all"]["estimate"] == 0.8
    assert asked(none)["human_qwk", "all", "all"]["outcome"] == "unknown"


def test_every_item_has_the_pair_that_agrees_least_on_it() -> None:
    rows = [
        pair(one, two, value, slice="item", value_of=item)
        for item, values in (("i", (0.5, 0.9)), ("j", (0.8, 0.75)))
        for (one, two), value in zip((("a", "b"), ("a", "c")), values, strict=True)
    ]
    found = asked(*PAIRS, *rows)
    assert [found["human_qwk", "item", item]["estimate"] for item in ("i", "j")] == [0.5, 0.75]
    assert found["human_qwk", "all", "all"]["estimate"] == 0.6


def test_the_machine_is_held_against_the_target_at_its_own_stage() -> None:
    others = [figure("qwk", 0.1, "raw"), figure("qwk", 0.2, of="a"), figure("qwk", 0.3, "released")]
    assert asked(*others, figure("qwk", 0.75))["machine_qwk", "all", "all"]["estimate"] == 0.75
    assert ("machine_qwk", "all", "all") not in asked(*others)


def test_a_figure_of_the_machine_with_itself_or_with_people_counts_too() -> None:
    found = asked(figure("same_again", 0.99, "raw", of="m"), figure("prmse", 0.9, of="people"))
    assert found["same_answer_again", "all", "all"]["outcome"] == "pass"
    assert found["prmse", "all", "all"]["outcome"] == "pass"


def test_whether_the_answer_stays_the_same_is_unknown_where_it_was_asked_once() -> None:
    found = asked(figure("qwk", 0.8))
    unknown = {gate for gate, row in found.items() if row["outcome"] == "unknown"}
    assert unknown == {(name, "all", "all") for name in ("same_answer_again", "new_items", "outside_measures")}


@pytest.mark.parametrize("of_set", [None, 0.9])
def test_the_mean_over_items_speaks_where_nothing_can_be_pooled(of_set: float | None) -> None:
    found = asked(figure("qwk", of_set), figure("qwk_item_mean", 0.5))["machine_qwk", "all", "all"]
    assert found["estimate"] == (0.5 if of_set is None else of_set)


def items(**values: float) -> list[Record]:
    return [figure("qwk", value, slice="item", value_of=name) for name, value in values.items()]


def test_the_mean_over_items_stands_beside_what_pools_them() -> None:
    found = asked(figure("qwk", 0.9), figure("qwk_item_mean", 0.5), *items(i=0.6, j=0.4))
    told = {where: found["machine_qwk", "all", where]["outcome"] for where in ("all", "mean over items")}
    assert told == {"all": "pass", "mean over items": "fail"}


@pytest.mark.parametrize(("of_set", "values"), [(0.5, {"i": 0.5}), (None, {"i": 0.6, "j": 0.4})])
def test_the_mean_over_items_is_not_told_twice(of_set: float | None, values: dict[str, float]) -> None:
    found = asked(figure("qwk", of_set), figure("qwk_item_mean", 0.5), *items(**values))
    assert found["machine_qwk", "all", "all"]["estimate"] == 0.5
    assert ("machine_qwk", "all", "mean over items") not in found


@pytest.mark.parametrize(
    ("value", "outcome"), [(0.2, "pass"), (0.055, "undecided"), (0.045, "fail"), (-0.2, "fail"), (None, "unknown")]
)
def test_that_a_score_is_more_than_length_has_to_be_shown(value: float | None, outcome: str) -> None:
    gate = asked(figure("over_length_qwk", value, slice="item", value_of="i"))["length", "item", "i"]
    assert gate["outcome"] == outcome
    assert (gate["labels_needed"] is not None) == (outcome == "undecided")


@pytest.mark.parametrize(("n", "outcome"), [(29, None), (30, "undecided"), (99, "undecided"), (100, "fail")])
def test_a_group_is_shown_from_thirty_and_decided_from_a_hundred_responses(n: int, outcome: str | None) -> None:
    found = asked(figure("dsm", 0.3, slice="home", value_of="x", n=n), groups=("home",))
    gate = found.get(("group_difference", "home", "x"))
    assert (gate and gate["outcome"]) == outcome
    if n == 99:
        assert gate["labels_needed"] == 1


def test_a_group_between_the_bounds_needs_what_decides_it() -> None:
    wide = figure("dsm", 0.08, slice="home", value_of="x", n=50) | {"low": -0.3, "high": 0.4}
    assert asked(wide, groups=("home",))["group_difference", "home", "x"]["labels_needed"] > 1_000


@pytest.mark.parametrize(("top", "least"), [(1, 0.85), (2, 0.80), (3, 0.75), (4, 0.75), (5, 0.60), (6, None)])
def test_exact_agreement_of_people_is_asked_by_the_number_of_levels(top: int, least: float | None) -> None:
    gate = asked(pair("a", "b", 0.7, metric="exact"), scale=(0.0, top, 1.0)).get(("human_exact", "all", "all"))
    assert (gate and gate["least"]) == least


def test_exact_agreement_is_not_asked_over_unlike_scales() -> None:
    metrics = conform(Metrics, [pair("a", "b", 0.7, metric="exact")]).to_pandas()
    found = gates(metrics, [], {"i": SCALE, "j": (0.0, 2.0, 1.0)}, PLAN, 0)
    assert "human_exact" not in {row["gate"] for row in found}


def test_promises_are_those_of_the_study() -> None:
    found = asked(figure("beyond_tolerance", 0.05, "released"), figure("interval_coverage", 0.75))
    errors, coverage = (found[name, "all", "all"] for name in ("released_errors", "interval_coverage"))
    assert (errors["least"], errors["most"], errors["outcome"]) == (None, 0.07, "pass")
    assert (coverage["least"], coverage["most"], coverage["outcome"]) == (0.8, None, "fail")


@pytest.mark.parametrize(("doubles", "outcome"), [(0, "fail"), (99, "fail"), (100, "pass")])
def test_a_hundred_responses_are_scored_twice(doubles: int, outcome: str) -> None:
    gate = asked(doubles=doubles)["doubly_scored", "all", "all"]
    assert (gate["outcome"], gate["estimate"], gate["n"], gate["clusters"]) == (outcome, doubles, doubles, None)


def test_nothing_measured_asks_nothing_of_the_machine() -> None:
    empty = pd.DataFrame(conform(Metrics, []).to_pandas())
    names = [row["gate"] for row in gates(empty, ["home"], {"i": SCALE}, PLAN, 0)]
    assert names == ["doubly_scored", "same_answer_again", "new_items", "outside_measures"]


# What the rubric adds to the text: paired, by item and over items, and nothing without a baseline.


SCALES = {"p": (0.0, 4.0, 1.0), "q": (0.0, 4.0, 1.0)}


def scores(seed, noise, text_noise, n=150):
    """Two items with a machine and a text baseline of given noise around the target."""
    rng = np.random.default_rng(seed)
    target = rng.integers(0, 5, 2 * n).astype(float)

    def near(spread):
        return np.clip(np.round(target + rng.normal(0, spread, 2 * n)), 0, 4)

    columns = {"target": target, "calibrated": near(noise), "text_only": near(text_noise)}
    named = {"item_id": ["p"] * n + ["q"] * n, "author_id": None, "cluster": np.arange(2 * n)}
    return pd.DataFrame(columns | named)


def figures(frame, draws=200):
    part = ScoreSlice("all", "all", frame, SCALES["p"], "response")
    return {(row["metric"], row["value_of"]): row for row in against_text(part, Setting(SCALES, "m", draws=draws))}


def test_the_gain_is_the_paired_difference_of_both_agreements():
    frame = scores(1, 0.6, 1.5)
    rows = figures(frame)
    for item, part in frame.groupby("item_id"):
        own, text = (qwk(part["target"], part[name], 0, 4).value for name in ("calibrated", "text_only"))
        assert rows["text_qwk", item]["value"] == pytest.approx(text)
        assert rows["over_text_qwk", item]["value"] == pytest.approx(own - text)
        assert rows["over_text_qwk", item]["low"] > 0
    means = [rows["over_text_qwk", item]["value"] for item in "pq"]
    assert rows["over_text_qwk_item_mean", "all"]["value"] == pytest.approx(np.mean(means))


def test_a_score_that_is_the_texts_gains_exactly_nothing():
    frame = scores(2, 1.0, 1.0)
    rows = figures(frame.assign(calibrated=frame["text_only"]))
    gain = rows["over_text_qwk_item_mean", "all"]
    assert (gain["value"], gain["low"], gain["high"]) == (0, 0, 0)


def test_pairing_narrows_the_interval():
    frame = scores(3, 1.0, 1.0)
    alike = frame.assign(calibrated=frame["text_only"].where(np.arange(300) % 10 > 0, frame["calibrated"]))
    paired, apart = (figures(one)["over_text_qwk_item_mean", "all"] for one in (alike, frame))
    assert paired["high"] - paired["low"] < 0.6 * (apart["high"] - apart["low"])


def test_without_a_baseline_there_is_no_figure():
    frame = scores(4, 1.0, 1.0)
    assert figures(frame.drop(columns="text_only")) == {}
    assert figures(frame.assign(text_only=np.nan)) == {}
