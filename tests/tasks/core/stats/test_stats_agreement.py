"""Worked examples and edge cases of the agreement statistics."""

import numpy as np
import pytest

from rubricflow.tasks.core.stats import agreement as ag

A_H1 = [0, 1, 2, 2, 3, 3, 4, 4]
A_H2 = [0, 2, 2, 1, 3, 4, 4, 3]
A_M = [1, 1, 2, 2, 2, 3, 4, 3]
B_H1 = [1, 2, 3, 3, 4, 5, 6, 2, 4, 5]
B_H2 = [2, None, 3, 4, None, 5, 5, None, 4, None]
B_M = [1.5, 2.2, 2.8, 3.9, 3.6, 5.4, 5.1, 2.9, 4.4, 4.8]
A_SCALE = (0, 4)
B_SCALE = (1, 6)
DOUBLE = [row for row, score in enumerate(B_H2) if score is not None]
B_HH = ([B_H1[row] for row in DOUBLE], [B_H2[row] for row in DOUBLE])
B_M_DOUBLE = [B_M[row] for row in DOUBLE]
GAP = ([1, 1, 2, 4, 4, 2], [1, 2, 2, 4, 2, 1])
LONG = ([1, 4, 2, 2, 5, 2, 5, 4, 5, 3, 1], [3, 4, 4, 4, 4, 4, 6, 7, 8, 9, 10])
SHROUT = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]


def degradation(first, second, machine, scale):
    ours = (ag.qwk(first, machine, *scale).value + ag.qwk(second, machine, *scale).value) / 2
    return ours - ag.qwk(first, second, *scale).value


def disattenuated(human, machine, first, second):
    return ag.pearson(human, machine).value / np.sqrt(ag.pearson(first, second).value)


WORKED = {
    "A qwk continuous": (ag.qwk_continuous(A_H1, A_M).value, 0.860465),
    "A qwk rounded": (ag.qwk(A_H1, A_M, *A_SCALE).value, 0.860465),
    "A qwk of humans": (ag.qwk(A_H1, A_H2, *A_SCALE).value, 0.855856),
    "A degradation": (degradation(A_H1, A_H2, A_M, A_SCALE), -0.041902),
    "A exact": (ag.exact_agreement(A_H1, A_M, *A_SCALE).value, 0.625),
    "A adjacent": (ag.adjacent_agreement(A_H1, A_M, *A_SCALE).value, 1),
    "A smd": (ag.smd(A_H1, A_M).value, -0.088786),
    "A smd pooled": (ag.smd_pooled(A_H1, A_M).value, -0.101163),
    "A disattenuated r": (disattenuated(A_H1, A_M, A_H1, A_H2), 0.980154),
    "A icc": (ag.icc_2_1(np.column_stack([A_H1, A_H2])).value, 0.871560),
    "B qwk continuous": (ag.qwk_continuous(B_H1, B_M).value, 0.913411),
    "B qwk rounded": (ag.qwk(B_H1, B_M, *B_SCALE).value, 0.885714),
    "B qwk of humans": (ag.qwk(*B_HH, *B_SCALE).value, 0.865672),
    "B degradation": (degradation(*B_HH, B_M_DOUBLE, B_SCALE), 0.067164),
    "B exact": (ag.exact_agreement(B_H1, B_M, *B_SCALE).value, 0.6),
    "B adjacent": (ag.adjacent_agreement(B_H1, B_M, *B_SCALE).value, 1),
    "B smd": (ag.smd(B_H1, B_M).value, 0.101193),
    "B smd pooled": (ag.smd_pooled(B_H1, B_M).value, 0.110668),
    "B disattenuated r": (disattenuated(B_H1, B_M, *B_HH), 0.965051),
    "B icc": (ag.icc_2_1(np.column_stack(B_HH)).value, 0.885496),
    "unobserved middle level": (ag.qwk(*GAP, 1, 4).value, 0.625),
    "scale of ten": (ag.qwk(*LONG, 1, 10).value, 0.041026),
    "fisher, equal weights": (ag.fisher_mean_kappa([0.6, 0.8], [1, 1]).value, 0.714286),
    "fisher, perfect kappa": (ag.fisher_mean_kappa([0.5, 0.7, 1], [1, 0.5, 0.5]).value, 0.894005),
    "icc of four judges": (ag.icc_2_1(SHROUT).value, 0.289764),
}


@pytest.mark.parametrize("name", WORKED)
def test_worked_example(name):
    ours, published = WORKED[name]
    assert ours == pytest.approx(published, abs=5.1e-7)


@pytest.mark.parametrize(
    ("score", "scale", "level"),
    [
        (1.5, (0, 4, 1), 2),
        (2.5, (0, 4, 1), 3),
        (0.3, (0, 1, 0.1), 3),
        (0.15, (0, 1, 0.1), 2),
        (1.24, (1, 6, 0.5), 0),
        (1.25, (1, 6, 0.5), 1),
        (2.4999, (1, 6, 1), 1),
        (-3, (-2, 2, 1), 0),
        (-1.5, (-2, 2, 1), 1),
        (9, (0, 4, 1), 4),
    ],
)
def test_levels_round_half_up_then_clip(score, scale, level):
    assert ag.to_levels([score], *scale).tolist() == [level]


@pytest.mark.parametrize("scale", [(0, 4, 0), (4, 0, 1), (0, 4, 3), (0, 0, 1), (0, 4, -1)])
def test_malformed_scale_is_refused(scale):
    with pytest.raises(ValueError, match="step"):
        ag.level_count(*scale)


def test_half_point_scale_counts_steps_not_points():
    assert ag.adjacent_agreement([1, 2], [1.5, 3], 1, 6, 0.5).value == 0.5


def test_within_two():
    assert ag.adjacent_agreement([0, 0, 0, 0], [0, 1, 2, 3], 0, 6, within=2).value == 0.75


def test_adjacent_on_three_levels_is_flagged():
    assert ag.adjacent_agreement([0, 1], [1, 1], 0, 2) == (1.0, "says little: the scale has 3 levels only")


PAIR_FUNCTIONS = {
    "qwk": lambda h, m: ag.qwk(h, m, 0, 4),
    "qwk_continuous": ag.qwk_continuous,
    "exact": lambda h, m: ag.exact_agreement(h, m, 0, 4),
    "adjacent": lambda h, m: ag.adjacent_agreement(h, m, 0, 4),
    "mae": ag.mae,
    "rmse": ag.rmse,
    "bias": ag.bias,
    "smd": ag.smd,
    "smd_pooled": ag.smd_pooled,
    "pearson": ag.pearson,
    "spearman": ag.spearman,
    "macro_f1": lambda h, m: ag.macro_f1(h, m, 0, 4),
}
NEED_TWO = ["qwk", "qwk_continuous", "smd", "smd_pooled", "pearson", "spearman"]


@pytest.mark.parametrize("name", PAIR_FUNCTIONS)
@pytest.mark.parametrize(
    ("human", "machine"), [([1, np.nan], [1, 2]), ([1, 2], [np.inf, 2]), ([1, 2], [1]), ([[1, 2]], [[1, 2]])]
)
def test_bad_columns_are_refused(name, human, machine):
    with pytest.raises(ValueError, match="scores must be"):
        PAIR_FUNCTIONS[name](human, machine)


@pytest.mark.parametrize("name", PAIR_FUNCTIONS)
def test_no_pairs_is_undefined_with_a_reason(name):
    value, note = PAIR_FUNCTIONS[name]([], [])
    assert (value, note.split(":")[0]) == (None, "undefined")


@pytest.mark.parametrize("name", NEED_TWO)
def test_one_pair_is_undefined_with_a_reason(name):
    assert PAIR_FUNCTIONS[name]([1], [2]) == (None, "undefined: fewer than two pairs")


@pytest.mark.parametrize("name", ["qwk", "qwk_continuous"])
@pytest.mark.parametrize(
    ("human", "machine", "value", "note"),
    [
        ([0.1] * 3, [0.1] * 3, None, "undefined: both raters constant at the same score"),
        ([1.1] * 3, [2.2] * 3, 0.0, "both raters constant at different scores"),
        ([0.1] * 3, [0, 1, 2], 0.0, "one rater constant: human"),
        ([0, 1, 2], [0.7] * 3, 0.0, "one rater constant: machine"),
    ],
)
def test_qwk_of_constant_raters(name, human, machine, value, note):
    assert PAIR_FUNCTIONS[name](human, machine) == (value, note)


def test_qwk_judges_constancy_after_rounding():
    assert ag.qwk([2, 2, 2], [1.9, 2.1, 2.4], 0, 4).value is None


@pytest.mark.parametrize("name", ["pearson", "spearman"])
@pytest.mark.parametrize(
    ("human", "machine", "who"),
    [([1, 1], [1, 2], "human"), ([1, 2], [2, 2], "machine"), ([1, 1], [2, 2], "human, machine")],
)
def test_correlation_of_constant_raters(name, human, machine, who):
    assert PAIR_FUNCTIONS[name](human, machine) == (None, f"undefined: constant scores: {who}")


def test_smd_of_constant_humans_is_undefined():
    assert ag.smd([0.1] * 3, [1, 2, 3]) == (None, "undefined: human scores constant")


def test_smd_of_a_constant_machine_is_defined():
    assert ag.smd([1, 2, 3], [3, 3, 3]).value == pytest.approx(1)


def test_pooled_smd_needs_one_rater_that_varies():
    assert ag.smd_pooled([0.1] * 3, [0.3] * 3) == (None, "undefined: both raters constant")


def test_bias_is_machine_minus_human():
    assert ag.bias([1, 2], [2, 4]).value == 1.5


@pytest.mark.parametrize("table", [[[1, 2]], [[1], [2]], np.empty((0, 2))])
def test_icc_needs_two_of_each(table):
    assert ag.icc_2_1(table) == (None, "undefined: fewer than two responses or raters")


@pytest.mark.parametrize("table", [[[0.1, 0.1]] * 3, [[0.1, 0.3], [0.3, 0.1]]])
def test_icc_without_variance_to_share(table):
    assert ag.icc_2_1(table) == (None, "undefined: no variance to share")


@pytest.mark.parametrize("table", [[1, 2, 3], [[1, 2], [np.nan, 3]]])
def test_icc_refuses_an_incomplete_table(table):
    with pytest.raises(ValueError, match="complete"):
        ag.icc_2_1(table)


def test_confusion_spans_the_scale_with_humans_in_rows():
    table = ag.confusion([1, 1, 3], [2, 2, 1.5], 1, 4)
    assert table.tolist() == [[0, 2, 0, 0], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]]


def test_fisher_without_weight():
    assert ag.fisher_mean_kappa([0.5], [0]) == (None, "undefined: no weight")


@pytest.mark.parametrize(("kappas", "weights"), [([1.2], [1]), ([0.5], [-1]), ([np.nan], [1]), ([0.5, 0.6], [1])])
def test_fisher_refuses(kappas, weights):
    with pytest.raises(ValueError, match=r"must (lie|be)"):
        ag.fisher_mean_kappa(kappas, weights)
