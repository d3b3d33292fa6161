"""Agreement of annotators: two libraries, the statistics room, a plain loop over resamples, and the edges."""

from __future__ import annotations

from typing import Any

import krippendorff
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.tables.people import Agreements
from rubricflow.tasks.core.stats.agreement import exact_agreement, krippendorff_ordinal, qwk
from rubricflow.tasks.core.stats.bootstrap import interval, resample_counts
from rubricflow.tasks.people.annotate.agreement import agreements, levels_of


def levels(n: int, concepts: int, top: int, seed: int, noise: float = 0.3, missing: float = 0.0) -> list[np.ndarray]:
    """Two raters' levels: a common truth, of which each changes a share."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(0, top + 1, (n, concepts))
    found = []
    for _ in range(2):
        other = np.where(rng.random(truth.shape) < noise, rng.integers(0, top + 1, truth.shape), truth)
        found.append(np.where(rng.random(truth.shape) < missing, -1, other))
    return found


def figures(rows: list[dict[str, Any]], raters: str = "a and b") -> dict[tuple[str, str], dict[str, Any]]:
    return {(row["criterion_id"], row["metric"]): row for row in rows if row["raters"] == raters}


def named(*given: np.ndarray) -> list[tuple[str, np.ndarray]]:
    return list(zip("abcdef", given, strict=False))


@settings(max_examples=50)
@given(st.integers(1, 4).flatmap(lambda top: arrays(np.int64, (2, 12, 2), elements=st.integers(-1, top))))
def test_figures_are_those_of_the_statistics_room(both: np.ndarray) -> None:
    rows = agreements(named(*both), {"A": 4, "B": 4}, "before", draws=0)
    assert all(row["low"] is None and row["high"] is None for row in rows)
    found = figures(rows)
    for concept, first, second in (
        ("A", both[0, :, 0], both[1, :, 0]),
        ("B", both[0, :, 1], both[1, :, 1]),
        ("all", both[0].ravel(), both[1].ravel()),
    ):
        given = (first >= 0) & (second >= 0)
        pair = first[given], second[given]
        alpha = krippendorff_ordinal(np.column_stack(pair)).value if given.any() else None
        known = {"krippendorff_alpha": alpha, "kappa_quadratic": qwk(*pair, 0, 4).value}
        known |= {"exact": exact_agreement(*pair, 0, 4).value}
        for metric, value in known.items():
            row = found[concept, metric]
            assert row["n"] == given.sum()
            assert (row["value"] is None) == (value is None) == (row["note"] is not None)
            assert value is None or row["value"] == pytest.approx(value)


@pytest.mark.parametrize("seed", range(5))
def test_figures_are_those_of_the_libraries(seed: int) -> None:
    first, second = levels(80, 1, 4, seed)
    found = figures(agreements(named(first, second), {"A": 4}, "before", draws=0))
    pair = first[:, 0], second[:, 0]
    assert found["A", "kappa"]["value"] == pytest.approx(cohen_kappa_score(*pair))
    quadratic = cohen_kappa_score(*pair, labels=range(5), weights="quadratic")
    assert found["A", "kappa_quadratic"]["value"] == pytest.approx(quadratic)
    alpha = krippendorff.alpha(np.stack(pair), value_domain=range(5), level_of_measurement="ordinal")
    assert found["A", "krippendorff_alpha"]["value"] == pytest.approx(alpha)
    assert found["all", "kappa"]["value"] == found["A", "kappa"]["value"]


def test_alpha_of_three_raters_with_gaps_is_the_librarys() -> None:
    a, b = levels(60, 2, 3, 1, missing=0.2)
    c, _ = levels(60, 2, 3, 1, noise=0.6, missing=0.4)
    rows = agreements(named(a, b, c), {"A": 3, "B": 3}, "after", draws=0)
    assert {row["raters"] for row in rows} == {"a and b", "a and c", "b and c", "a and b and c"}
    found = figures(rows, "a and b and c")
    assert {metric for _, metric in found} == {"krippendorff_alpha"}
    for k, concept in enumerate("AB"):
        given = np.stack([one[:, k] for one in (a, b, c)]).astype(float)
        given[given < 0] = np.nan
        alpha = krippendorff.alpha(given, value_domain=range(4), level_of_measurement="ordinal")
        assert found[concept, "krippendorff_alpha"]["value"] == pytest.approx(alpha)
        assert found[concept, "krippendorff_alpha"]["n"] == ((~np.isnan(given)).sum(axis=0) >= 2).sum()


def test_intervals_are_those_of_a_loop_over_resampled_responses() -> None:
    first, second = levels(40, 2, 2, 3, missing=0.1)
    found = figures(agreements(named(first, second), {"A": 2, "B": 2}, "before", draws=200, seed=5))
    counts = resample_counts(np.random.default_rng(5), 40, 200).astype(int)
    drawn: dict[str, list[float]] = {"kappa": [], "krippendorff_alpha": []}
    for count in counts:
        pair = [np.repeat(one, count, axis=0).ravel() for one in (first, second)]
        given = (pair[0] >= 0) & (pair[1] >= 0)
        drawn["kappa"].append(cohen_kappa_score(pair[0][given], pair[1][given]))
        both = krippendorff_ordinal(np.column_stack([one[given] for one in pair])).value
        drawn["krippendorff_alpha"].append(both if both is not None else np.nan)
    held = int(((first >= 0) & (second >= 0)).any(axis=1).sum())
    for metric, values in drawn.items():
        row = found["all", metric]
        assert (row["low"], row["high"]) == pytest.approx(interval(np.array(values), held)[:2])
        assert row["low"] < row["value"] < row["high"]


def test_an_undefined_figure_says_why() -> None:
    nothing = np.full((5, 1), -1)
    same = np.ones((5, 1), np.int64)
    for other, note in ((nothing, "fewer than two"), (same, "all labels are one level")):
        found = figures(agreements(named(other, same), {"A": 2}, "before", draws=20))
        for metric in ("krippendorff_alpha", "kappa", "kappa_quadratic"):
            row = found["A", metric]
            assert (row["value"], row["low"], row["high"]) == (None, None, None)
            assert note in row["note"]
    assert (found["A", "exact"]["value"], found["A", "exact"]["n"]) == (1, 5)


def test_unlike_scales_are_not_pooled() -> None:
    first, second = levels(30, 2, 1, 0)
    found = figures(agreements(named(first, second), {"A": 1, "B": 2}, "before", draws=0))
    assert found["all", "kappa"]["value"] is None
    assert "unlike" in found["all", "kappa"]["note"]
    assert found["all", "exact"]["value"] == pytest.approx((first == second).mean())


def test_rows_keep_the_contract_and_the_seed() -> None:
    raters = named(*levels(50, 3, 2, 7))
    rows = agreements(raters, {"A": 2, "B": 2, "C": 2}, "before", draws=50, seed=1)
    assert conform(Agreements, pa.Table.from_pylist(rows)).num_rows == 4 * 4
    assert rows == agreements(raters, {"A": 2, "B": 2, "C": 2}, "before", draws=50, seed=1)


def test_levels_come_from_judgments() -> None:
    rows = [
        {"response_id": "r2", "criterion_id": "A", "sample": 0, "decision": 2},
        {"response_id": "r1", "criterion_id": "B", "sample": 0, "decision": None},
        {"response_id": "r1", "criterion_id": "A", "sample": 1, "decision": 1},
        {"response_id": "r9", "criterion_id": "A", "sample": 0, "decision": 1},
        {"response_id": "r1", "criterion_id": "X", "sample": 0, "decision": 1},
        {"response_id": "r1", "criterion_id": "A", "sample": 0, "decision": 0},
    ]
    found = levels_of(pa.Table.from_pylist(rows), ["r1", "r2"], ["A", "B"])
    assert found.tolist() == [[0, -1], [2, -1]]
    assert levels_of(pa.Table.from_pylist(rows)[:0], ["r1"], ["A"]).tolist() == [[-1]]
