"""Correlations and partial correlations against pandas, residuals of regressions and a graphical lasso."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.covariance import GraphicalLasso

from rubricflow.tasks.core.contracts.tables.bottleneck import ConceptLinks
from rubricflow.tasks.methods.bottleneck.arm import label_correlations, link_rows, partial_correlations
from rubricflow.tasks.methods.bottleneck.data import MISSING, Concepts, LabelledData
from rubricflow.tasks.methods.bottleneck.model import Head

K = 4


def some_levels(n: int = 300) -> np.ndarray:
    rng = np.random.default_rng(0)
    common = rng.normal(size=(n, 1))
    levels = np.digitize(common + rng.normal(size=(n, K)), [-0.7, 0.7])
    levels[rng.random((n, K)) < 0.2] = MISSING
    return levels


def test_label_correlations_are_those_of_the_common_responses() -> None:
    levels = some_levels()
    r, n = label_correlations(levels)
    frame = pd.DataFrame(np.where(levels == MISSING, np.nan, levels))
    assert r == pytest.approx(frame.corr().to_numpy())
    given = (levels != MISSING).astype(int)
    assert (n == given.T @ given).all()


def test_a_constant_concept_has_no_correlation() -> None:
    levels = some_levels()
    levels[:, 1] = 2
    r, _ = label_correlations(levels)
    assert np.isnan(r[1]).all()
    assert not np.isnan(r[0, 2])


def test_partial_correlations_are_those_of_what_regressions_leave() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, K)) @ rng.normal(size=(K, K))
    x -= x.mean(axis=0)
    found = partial_correlations(np.linalg.inv(x.T @ x / len(x)))
    for a in range(K):
        for b in range(a):
            others = np.delete(x, [a, b], axis=1)
            left = x[:, [a, b]] - others @ np.linalg.lstsq(others, x[:, [a, b]], rcond=None)[0]
            assert found[a, b] == pytest.approx(np.corrcoef(left.T)[0, 1])


def test_a_chain_has_links_between_neighbours_alone() -> None:
    """Known precision → sample → graphical lasso: the same links come back, and are sparser than the correlations."""
    precision = np.eye(K) * 2 - 0.9 * (np.eye(K, k=1) + np.eye(K, k=-1))
    drawn = np.random.default_rng(2).multivariate_normal(np.zeros(K), np.linalg.inv(precision), size=4000)
    known = partial_correlations(precision)
    learned = partial_correlations(GraphicalLasso(alpha=0.01).fit(drawn).precision_)
    assert known[0, 1] == pytest.approx(0.45)
    assert learned == pytest.approx(known, abs=0.06)
    assert np.abs(np.corrcoef(drawn.T)).min() > 0.1


def test_rows_keep_the_contract_and_come_from_the_train_split() -> None:
    levels = some_levels(200)
    levels[:100, 3] = 1
    concepts = Concepts(tuple("abcd"), tuple("abcd"), tuple("abcd"), (("0", "1", "2"),) * K)
    split = np.array(["train"] * 100 + ["test"] * 100)
    ids = tuple(f"r{i:03}" for i in range(200))
    data = LabelledData(ids, concepts, levels, np.ones((200, K)), np.zeros(200, np.int64), np.arange(2.0), split)
    precision = np.eye(K) + 0.3
    rows = link_rows(data, Head(np.ones((2, K)), np.zeros(2), precision, np.ones(K)), "rec_cbm", 1)
    assert [(row["a"], row["b"]) for row in rows] == [
        ("a", "b"),
        ("a", "c"),
        ("a", "d"),
        ("b", "c"),
        ("b", "d"),
        ("c", "d"),
    ]
    assert all(set(row) == set(ConceptLinks.model_fields) for row in rows)
    r, n = label_correlations(levels[:100])
    assert rows[0]["label_correlation"] == r[0, 1]
    assert rows[0]["n"] == n[0, 1]
    assert rows[2]["label_correlation"] is None
    assert rows[0]["partial_correlation"] == pytest.approx(-0.3 / 1.3)
    assert link_rows(data, Head(np.ones((2, K)), np.zeros(2)), "no_lcec", 1) == []
