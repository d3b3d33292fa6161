"""The agreement statistics against scikit-learn, scipy and pingouin."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from rubricflow.tasks.core.stats import agreement as ag


@st.composite
def level_pairs(draw):
    """Two integer columns on a scale, often with few levels in use: constants, gaps, a single level."""
    low = draw(st.integers(-2, 2))
    high = low + draw(st.integers(1, 9))
    used = draw(st.lists(st.integers(low, high), min_size=1, max_size=4, unique=True))
    either = st.sampled_from(used) | st.integers(low, high) if draw(st.booleans()) else st.sampled_from(used)
    n = draw(st.integers(2, 30))
    human = draw(st.lists(either, min_size=n, max_size=n))
    machine = draw(st.lists(either, min_size=n, max_size=n))
    return np.array(human), np.array(machine), low, high


def sklearn_kappa(human, machine, low, high):
    labels = np.arange(low, high + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return metrics.cohen_kappa_score(human, machine, weights="quadratic", labels=labels)


def plain(stat):
    return np.nan if stat.value is None else stat.value


@given(level_pairs())
@settings(max_examples=20)
def test_qwk_equals_sklearn_over_the_full_scale(case):
    assert plain(ag.qwk(*case)) == pytest.approx(sklearn_kappa(*case), abs=1e-12, nan_ok=True)


@given(level_pairs(), st.sampled_from([0.5, 0.1, 3.0]))
@settings(max_examples=20)
def test_qwk_does_not_depend_on_the_unit(case, step):
    human, machine, low, high = case
    scaled = ag.qwk(human * step, machine * step, low * step, high * step, step)
    assert plain(scaled) == pytest.approx(plain(ag.qwk(*case)), abs=1e-12, nan_ok=True)


@given(level_pairs())
@settings(max_examples=20)
def test_macro_f1_equals_sklearn_over_the_levels_in_use(case):
    human, machine, _, _ = case
    labels = np.union1d(human, machine)
    theirs = metrics.f1_score(human, machine, labels=labels, average="macro", zero_division=0)
    assert ag.macro_f1(*case).value == pytest.approx(theirs, abs=1e-12)


@given(level_pairs())
@settings(max_examples=20)
def test_confusion_equals_sklearn(case):
    human, machine, low, high = case
    theirs = metrics.confusion_matrix(human, machine, labels=np.arange(low, high + 1))
    np.testing.assert_array_equal(ag.confusion(*case), theirs)


def random_pair(seed):
    rng = np.random.default_rng(seed)
    human = rng.integers(0, 7, 60).astype(float)
    return human, human + rng.normal(0.3, 1.0, 60).round(seed % 3)


LIBRARY = {
    "mae": (ag.mae, metrics.mean_absolute_error),
    "rmse": (ag.rmse, metrics.root_mean_squared_error),
    "pearson": (ag.pearson, lambda h, m: stats.linregress(h, m).rvalue),
    "spearman": (ag.spearman, lambda h, m: np.corrcoef(stats.rankdata(h), stats.rankdata(m))[0, 1]),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", LIBRARY)
def test_against_library(name, seed):
    ours, theirs = LIBRARY[name]
    pair = random_pair(seed)
    assert ours(*pair).value == pytest.approx(theirs(*pair), abs=1e-12)


@pytest.mark.parametrize("seed", range(2))
def test_icc_equals_pingouin(seed):
    import pingouin  # it imports for seconds

    rng = np.random.default_rng(seed)
    n, k = rng.integers(8, 30), 2 + seed
    table = rng.normal(0, 1, (n, 1)) + rng.normal(0, 0.5, k) + rng.normal(0, 1, (n, k))
    row, rater = np.indices(table.shape)
    long = pd.DataFrame({"row": row.ravel(), "rater": rater.ravel(), "score": table.ravel()})
    theirs = pingouin.intraclass_corr(long, targets="row", raters="rater", ratings="score").set_index("Type")
    assert ag.icc_2_1(table).value == pytest.approx(theirs.loc["ICC(A,1)", "ICC"], abs=1e-9)
