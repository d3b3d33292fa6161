"""Which edges pay: factors by people's marks, against a simulation whose shares are known, and by hand."""

import numpy as np
import pytest
from reward_scene import locals_of, rubric, study

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.reward import Learn
from rubricflow.tasks.rewards.reward.factors import marks_on, taught_by_marks
from rubricflow.tasks.rewards.reward.learn import PRIOR, paying

EDGES = [(0, 1, "strong_prerequisite"), (0, 2, "strong_prerequisite")]


def judged_and_marked(cases, right, seed=1):
    """Responses in which c0 fails and c1 and c2 are credited; how often the credit of each is right by the marks."""
    rng = np.random.default_rng(seed)
    one = rubric([1.0, 1.0, 1.0], EDGES)
    judged = locals_of([one], [0] * cases, [[0.0, 1.0, 1.0]] * cases)
    marks = [[0.0, float(rng.random() < right[0]), float(rng.random() < right[1])] for _ in range(cases)]
    return one, judged, locals_of([one], [0] * cases, marks)


@pytest.mark.parametrize("seed", range(5))
def test_factors_come_to_the_share_of_credit_that_is_right_and_edges_that_do_not_pay_go(seed):
    _, judged, people = judged_and_marked(2_000, (0.3, 0.8), seed)
    ((factors, cases),) = paying(judged.batch, marks_on(judged, people), 0.5)
    assert factors[0] == pytest.approx(0.3, abs=0.04)
    assert factors[1] == 1.0
    assert cases.tolist() == [2_000, 2_000]


def test_few_marks_leave_an_edge_near_its_relation_and_none_leave_it_there():
    _, judged, people = judged_and_marked(1, (1.0, 0.0))
    marks = marks_on(judged, people)
    marks[2] = np.nan
    ((factors, cases),) = paying(judged.batch, marks, 0.5)
    pooled = (1 + PRIOR * 0.2) / (1 + PRIOR)
    assert factors == pytest.approx([(1 + PRIOR * pooled) / (1 + PRIOR), pooled])
    assert cases.tolist() == [1, 0]
    ((factors, cases),) = paying(judged.batch, np.full(3, np.nan), 0.5)
    assert (factors.tolist(), cases.tolist()) == ([0.2, 0.2], [0, 0])


def test_a_relation_is_pooled_over_rubrics_and_no_other():
    with_edge, without = rubric([1.0, 1.0], [(0, 1, "weak_prerequisite")], "a"), rubric([1.0, 1.0], EDGES[:1], "b")
    other = rubric([1.0, 1.0], [(0, 1, "weak_prerequisite")], "c")
    judged = locals_of([with_edge, without, other], [0] * 50 + [1], [[0.0, 1.0]] * 51)
    people = locals_of([with_edge, without, other], [0] * 50 + [1], [[0.0, 0.0]] * 50 + [[1.0, 0.0]])
    (_, cases), (strong, _), (weak, none) = paying(judged.batch, marks_on(judged, people), 0.5)
    assert weak[0] == pytest.approx(PRIOR * 0.6 / (50 + PRIOR))
    assert strong[0] == pytest.approx(PRIOR * (PRIOR * 0.2 / (1 + PRIOR)) / (1 + PRIOR))
    assert (cases.tolist(), none.tolist()) == ([50], [0])


def test_only_credit_without_its_parent_is_a_case():
    one = rubric([1.0, 1.0, 1.0], EDGES)
    scores = [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 1.0], [None, 1.0, 1.0]]
    judged = locals_of([one], [0] * 4, scores)
    people = locals_of([one], [0] * 4, [[0.0, 1.0, 1.0], [0.0, 1.0, 0.0], [1.0, 1.0, None], [0.0, 1.0, 1.0]])
    ((_, cases),) = paying(judged.batch, marks_on(judged, people), 0.5)
    assert cases.tolist() == [1, 1]


def test_marks_are_taken_by_response_and_criterion():
    one = rubric([1.0, 1.0, 1.0], EDGES)
    judged = locals_of([one], [0] * 3, [[0.0, 1.0, 1.0]] * 3)
    people = locals_of([one], [0] * 2, [[0.0, 0.25, None], [1.0, 0.5, 0.75]])
    found = marks_on(judged, people).reshape(3, 3)
    assert np.array_equal(found[:2], [[0.0, 0.25, np.nan], [1.0, 0.5, 0.75]], equal_nan=True)
    assert np.isnan(found[2]).all()


def test_what_is_learned_gains_on_responses_that_it_did_not_see():
    one, judged, people = judged_and_marked(400, (0.1, 0.9))
    split = np.array(["calibration", "test"] * 200)
    plan = study(learn=Learn(by="marks", target="h"))
    lesson = taught_by_marks(judged, {"rubric": one}, people, split, plan)
    assert [(row["parent"], row["child"], row["n"]) for row in lesson.retentions] == [
        ("c0", "c1", 200),
        ("c0", "c2", 200),
    ]
    assert lesson.retentions[0]["retention"] == pytest.approx(0.1, abs=0.06)
    assert lesson.retentions[1]["retention"] == 1.0
    errors = {row["aggregation"]: row for row in lesson.diagnostics}
    assert errors["learned"]["value"] < min(errors["flat"]["value"], errors["typed"]["value"])
    assert {row["n"] for row in errors.values()} == {400}
    with pytest.raises(InputError, match="'h' marked no credited criterion"):
        taught_by_marks(judged, {"rubric": one}, people, np.array(["test"] * 400), plan)


def test_marks_are_of_a_rater_who_is_named():
    with pytest.raises(ValueError, match=r"needs learn\.target"):
        Learn(by="marks")
