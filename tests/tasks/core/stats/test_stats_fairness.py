"""Group differences: worked examples, statsmodels, a loop over resamples, and what noise alone shows."""

import numpy as np
import pytest

from rubricflow.tasks.core.stats import bootstrap as bs
from rubricflow.tasks.core.stats import true_score as fr

A = ([0, 1, 2, 2, 3, 3, 4, 4], [1, 1, 2, 2, 2, 3, 4, 3], list("abbabaab"))
B = ([1, 2, 3, 3, 4, 5, 6, 2, 4, 5], [1.5, 2.2, 2.8, 3.9, 3.6, 5.4, 5.1, 2.9, 4.4, 4.8], list("ababa") + list("baaba"))


def sample(seed, n=120, groups="abcd"):
    rng = np.random.default_rng(seed)
    human = rng.integers(1, 6, n).astype(float)
    member = np.array(list(groups))[rng.integers(0, len(groups), n)]
    return human, human + 0.3 * (member == "b") + rng.normal(0, 0.8, n), member


@pytest.mark.parametrize(
    ("case", "published"),
    [(A, (0.330309, -0.330309)), (B, (-0.161997, 0.242996))],
)
def test_worked_dsm(case, published):
    found = fr.dsm(*case)
    assert (found["a"].value, found["b"].value) == pytest.approx(published, abs=5.1e-7)


@pytest.mark.parametrize(
    ("case", "shares", "coefficient"),
    [
        (A, (-0.088889, 0.289855, 0.405797), -0.666667),
        (B, (-0.115881, 0.121094, 0.066964), 0.45),
    ],
)
def test_worked_overall_differences(case, shares, coefficient):
    found = fr.overall_differences(*case)
    assert [stat.value for stat in (found.osa, found.osd, found.csd)] == pytest.approx(shares, abs=5.1e-7)
    assert found.csd_coefficients == {"b": pytest.approx(coefficient, abs=5.1e-7)}


@pytest.mark.parametrize("seed", range(3))
def test_overall_differences_equal_statsmodels(seed):
    formula = pytest.importorskip("statsmodels.formula.api")
    pandas = pytest.importorskip("pandas")
    human, machine, member = sample(seed)
    error = machine - human
    table = pandas.DataFrame({"h": human, "e": error, "square": error**2, "g": member})
    fits = {
        name: formula.ols(text, table).fit()
        for name, text in {"osa": "square ~ g", "osd": "e ~ g", "full": "e ~ C(h) + g", "h": "e ~ C(h)"}.items()
    }
    found = fr.overall_differences(human, machine, member)
    assert found.osa.value == pytest.approx(fits["osa"].rsquared_adj)
    assert found.osd.value == pytest.approx(fits["osd"].rsquared_adj)
    assert found.csd.value == pytest.approx(fits["full"].rsquared_adj - fits["h"].rsquared_adj)
    assert found.csd_coefficients == {group: pytest.approx(fits["full"].params[f"g[T.{group}]"]) for group in "bcd"}


@pytest.mark.parametrize("seed", range(3))
def test_coefficients_solve_the_normal_equations(seed):
    human, machine, member = sample(seed)
    columns = [human == level for level in np.unique(human)] + [member == group for group in "bcd"]
    design = np.stack(columns, axis=1).astype(float)
    solution = np.linalg.solve(design.T @ design, design.T @ (machine - human))
    ours = fr.overall_differences(human, machine, member).csd_coefficients
    assert list(ours.values()) == pytest.approx(solution[-3:])


def test_human_scores_that_tell_the_group_leave_no_coefficients():
    found = fr.overall_differences([1, 1, 1, 2, 2, 2], [1, 2, 1.5, 2, 2.5, 2], list("aaabbb"))
    assert found.csd_coefficients == {}
    assert found.csd.value == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(
    ("human", "machine", "groups", "note"),
    [
        ([], [], [], "undefined: fewer than two groups"),
        ([1, 2, 3], [1, 3, 2], "aaa", "undefined: fewer than two groups"),
        ([0.1, 0.2, 0.3], [0.4, 0.5, 0.6], "aba", "undefined: the errors do not vary"),
        ([1, 2], [2, 4], "ab", "undefined: no more rows than coefficients"),
    ],
)
def test_undefined_with_a_reason(human, machine, groups, note):
    assert fr.overall_differences(human, machine, list(groups)).osd == (None, note)


def test_more_human_scores_than_rows_can_bear_leave_only_csd_undefined():
    found = fr.overall_differences([1, 2, 3, 4], [1, 3, 3, 5], list("abab"))
    assert (found.osd.note, found.csd.note) == (None, "undefined: no more rows than coefficients")


def test_dsm_does_not_see_a_shift_or_a_stretch_of_all_scores():
    human, machine, member = sample(0)
    plain, moved = fr.dsm(human, machine, member), fr.dsm(human, 3 * machine - 7, member)
    assert [stat.value for stat in moved.values()] == pytest.approx([stat.value for stat in plain.values()])


def test_dsm_equals_the_definition():
    human, machine, member = sample(1)
    z = [(scores - scores.mean()) / scores.std(ddof=1) for scores in (machine, human)]
    for group, stat in fr.dsm(human, machine, member).items():
        assert stat.value == pytest.approx((z[0] - z[1])[member == group].mean())


@pytest.mark.parametrize(
    ("human", "machine", "note"),
    [
        ([1], [2], "undefined: fewer than two pairs"),
        ([0.1] * 3, [1, 2, 3], "undefined: constant scores: human"),
        ([0.1] * 3, [0.3] * 3, "undefined: constant scores: human, machine"),
    ],
)
def test_dsm_undefined_with_a_reason(human, machine, note):
    assert fr.dsm(human, machine, ["a"] * len(human)) == {"a": (None, note)}


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match="groups must have shape"):
        fr.dsm([1, 2], [1, 2], ["a"])


def test_intervals_equal_a_loop_over_resampled_rows():
    human, machine, member = sample(2, n=60)
    member[:3] = "e"
    clusters = np.arange(60) // 3
    counts = bs.resample_counts(np.random.default_rng(11), 20, 60).astype(int)
    drawn = {group: [] for group in "abcde"}
    for row in counts:
        times = row[clusters]
        found = fr.dsm(*(np.repeat(column, times) for column in (human, machine, member)))
        for group in drawn:
            drawn[group].append(found[group].value if group in found else np.nan)
    intervals = fr.dsm_intervals(human, machine, member, clusters, 60, 11)
    # The only author of group e is missing from a third of the draws, and tells nothing of others.
    assert drawn.keys() == intervals.keys()
    assert intervals["e"] == (None, None, np.isnan(drawn.pop("e")).sum(), 1)
    assert intervals["e"].undefined > 10
    for group, values in drawn.items():
        held = len(np.unique(clusters[member == group]))
        assert intervals[group] == pytest.approx(bs.interval(np.array(values), held), rel=1e-9)


def test_draws_of_one_score_are_undefined():
    human, machine = np.array([0.1] * 3 + [0.4, 0.8, 0.5]), np.array([0.2, 0.4, 0.3, 0.2, 0.4, 0.7])
    found = fr.dsm_intervals(human, machine, list("abaaba"), [1, 1, 1, 2, 2, 2], 400, 0)
    # Twice the author whose human scores are all one: a quarter of the draws.
    assert found["a"].undefined == pytest.approx(100, abs=3 * np.sqrt(75))


@pytest.mark.parametrize("gap", [0.0, 0.6])
def test_a_fair_machine_shows_the_noise_line(gap):
    rng = np.random.default_rng(0)
    member = rng.integers(0, 2, 200_000)
    true = rng.normal(0, 1, 200_000) + gap * member
    human = np.round(true + rng.normal(0, 0.7, 200_000), 1)
    found = fr.overall_differences(human, true, member.astype(str)).csd_coefficients["1"]
    assert found == pytest.approx(fr.noise_line(1 / 1.49, gap), abs=0.01)
