"""Local scores: worked examples, and a plain loop over the judgments."""

import numpy as np
import pyarrow as pa
import pytest
from builders import bundles
from builders.rows import judgment as row_of_judgment
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.schema import conform
from rubricflow.tasks.core.contracts.settings.reward import Retention
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.rewards.reward.compiled import compile_graph
from rubricflow.tasks.rewards.reward.local import local_scores

TWO, FOUR = ("no", "yes"), ("none", "some", "most", "all")


def criterion(name, weight=1.0, levels=TWO, parent=None):
    return bundles.criterion(name, weight=weight, levels=levels, parent=parent)


def bundle(*criteria, composites=()):
    return bundles.bundle(
        *criteria, ends=(0, 1), composites=composites, name="pointwise", final_score="weighted_points"
    )


PLAIN = bundle(criterion("a", 5), criterion("b", 3, FOUR), criterion("c", -2))
NESTED = bundle(
    criterion("p1", 2, parent="plan"),
    criterion("a", 1),
    criterion("q1", 1, parent="quotes"),
    criterion("q2", 1, FOUR, parent="quotes"),
    composites=(criterion("plan", 4), criterion("quotes", 2, parent="plan")),
)
FINED = bundle(criterion("a"), criterion("x", -3, parent="fine"), composites=(criterion("fine", -2),))
BUNDLES = {"plain": PLAIN, "nested": NESTED, "fined": FINED}


def compiled(bundles):
    found = {}
    for name, one in bundles.items():
        whole = [criterion.id for criterion in one.whole]
        nodes = tuple(Node(criterion_id=criterion, role="core") for criterion in whole)
        edges = (Edge(parent=whole[0], child=whole[1], relation="activation"),)
        found[name] = compile_graph(
            name,
            one,
            Graph(nodes=nodes, edges=edges),
            Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0),
        )
    return found


def judgment(response, criterion, decision, probabilities=None, action="none", rater="judge", sample=0):
    given = {"level_probabilities": probabilities, "action": action, "sample": sample}
    return row_of_judgment(response, criterion, decision, rater, **given)


def found(rows, local="probability", items=None, rubrics=None, bundles=None):
    table = rows if isinstance(rows, pa.Table) else conform(Judgments, rows)
    bundles = bundles or BUNDLES
    items = items or {"r1": "i1", "r2": "i2", "r3": "i3"}
    rubrics = rubrics or {"i1": "plain", "i2": "nested", "i3": "fined"}
    return local_scores(table, items, rubrics, bundles, compiled(bundles), local)


def of(locals_):
    """(response, rater, sample) → criterion → local score, None where unscored."""
    batch = locals_.batch
    named = {}
    for n, who in enumerate(
        zip(locals_.response_id.to_pylist(), locals_.rater_id.to_pylist(), locals_.sample.to_pylist(), strict=True)
    ):
        cells = slice(batch.start[n], batch.start[n + 1])
        scores = [p if ok else None for p, ok in zip(batch.local[cells], batch.scored[cells], strict=True)]
        named[who] = dict(zip(batch.compiled[batch.rubric_index[n]].criteria, scores, strict=True))
    return named


WHOLE = [
    judgment("r1", "a", 1, [0.3, 0.7]),
    judgment("r1", "b", 2, [0.1, 0.2, 0.3, 0.4]),
    judgment("r1", "c", 0, [0.9, 0.1]),
]


def test_a_probability_is_the_expected_share_of_the_levels():
    scores = of(found(WHOLE))["r1", "judge", 0]
    assert scores == pytest.approx({"a": 0.7, "b": (0.2 + 2 * 0.3 + 3 * 0.4) / 3, "c": 0.1})


def test_what_levels_earn_is_what_they_count_for():
    earns = criterion("b", levels=("no", "a bit", "more", "all")).model_copy(update={"earns": (0.0, 0.6, 0.9, 1.0)})
    told = {"plain": bundle(criterion("a"), earns, criterion("c"))} | {k: v for k, v in BUNDLES.items() if k != "plain"}
    likely = found(WHOLE, bundles=told)
    assert of(likely)["r1", "judge", 0]["b"] == pytest.approx(0.2 * 0.6 + 0.3 * 0.9 + 0.4)
    assert likely.batch.decided.tolist() == [1.0, 0.9, 0.0]
    squares = 0.2 * 0.36 + 0.3 * 0.81 + 0.4
    assert likely.batch.variance[1] == pytest.approx(squares - (0.2 * 0.6 + 0.3 * 0.9 + 0.4) ** 2)


def test_a_decision_is_the_share_of_the_levels_reached():
    assert of(found(WHOLE, "decision"))["r1", "judge", 0] == {"a": 1.0, "b": 2 / 3, "c": 0.0}


def test_what_was_decided_stands_beside_the_probabilities():
    whole = found(WHOLE).batch
    assert whole.decided.tolist() == found(WHOLE, "decision").batch.local.tolist() == [1.0, 2 / 3, 0.0]
    assert whole.local.tolist() != whole.decided.tolist()


def test_a_composite_is_its_sub_points_weighted_shares_over_its_own_weight():
    rows = [
        judgment("r2", "p1", 1, [0.5, 0.5]),
        judgment("r2", "a", 0),
        judgment("r2", "q1", 1),
        judgment("r2", "q2", 1),
    ]
    quotes = (1 * 1 + 1 * (1 / 3)) / 2
    assert of(found(rows))["r2", "judge", 0] == pytest.approx({"plan": (2 * 0.5 + 2 * quotes) / 4, "a": 0.0})


def test_a_composite_stays_within_0_and_1():
    rows = [judgment("r3", "a", 1), judgment("r3", "x", 1)]
    assert of(found(rows))["r3", "judge", 0] == {"a": 1.0, "fine": 1.0}


def test_a_composite_with_an_unscored_sub_point_is_unscored():
    rows = [judgment("r2", "p1", 1), judgment("r2", "a", 1), judgment("r2", "q1", None), judgment("r2", "q2", 3)]
    assert of(found(rows))["r2", "judge", 0] == {"plan": None, "a": 1.0}


def test_raters_and_samples_are_responses_of_their_own():
    rows = [judgment("r1", "a", d, rater=rater, sample=s) for d, rater, s in ((1, "x", 0), (0, "x", 2), (0, "y", 2))]
    scores = of(found(rows))
    assert {who: one["a"] for who, one in scores.items()} == {
        ("r1", "x", 0): 1.0,
        ("r1", "x", 2): 0.0,
        ("r1", "y", 2): 0.0,
    }


def test_it_is_said_what_the_scores_come_from():
    rows = [
        judgment("r1", "a", 1, [0.2, 0.8], rater="likely"),
        judgment("r1", "a", 1, rater="plain"),
        judgment("r1", "a", 1, [0.2, 0.8], rater="both"),
        judgment("r1", "c", 1, rater="both"),
        judgment("r1", "a", None, [0.2, 0.8], rater="silent"),
    ]
    told = found(rows)
    assert dict(zip(told.rater_id.to_pylist(), told.decided_by.to_pylist(), strict=True)) == {
        "likely": "probability",
        "plain": "decision",
        "both": "both",
        "silent": "decision",
    }


def test_items_are_numbered_in_the_order_of_their_ids():
    rows = [judgment(response, "a", 1) for response in ("r3", "r1", "r2")]
    told = found(rows)
    assert told.item_id.to_pylist() == ["i3", "i1", "i2"]
    assert told.item.tolist() == [2, 0, 1]


def test_no_judgments_make_an_empty_batch():
    told = found([])
    assert (len(told.batch.rubric_index), len(told.batch.local), len(told.response_id), len(told.item)) == (0, 0, 0, 0)


def test_only_some_responses_are_kept_with_their_scores():
    told = found([*WHOLE, judgment("r2", "a", 1), judgment("r3", "a", 0), judgment("r3", "x", 1)])
    assert told.only(np.array([True, False, False])).batch.decided.tolist() == [1.0, 2 / 3, 0.0]
    kept = told.only(np.array([True, False, True]))
    assert of(kept) == {who: scores for who, scores in of(told).items() if who[0] != "r2"}
    assert kept.decided_by.to_pylist() == ["probability", "decision"]
    assert kept.item_id.to_pylist() == ["i1", "i3"]


PROBABILITIES = st.integers(0, 10).map(lambda tenths: [1 - tenths / 10, tenths / 10])


@st.composite
def marked(draw):
    """Judgments of some responses by some raters under rubrics of two-level criteria, in any order."""
    rows = []
    for response in range(draw(st.integers(1, 4))):
        for rater in range(draw(st.integers(1, 2))):
            for name in ("a", "b", "c"):
                if draw(st.booleans()):
                    decision = draw(st.sampled_from([None, 0, 1]))
                    chances = draw(st.none() | PROBABILITIES)
                    action = draw(st.sampled_from(["none", "counted", "demoted", "dropped"]))
                    rows.append(
                        judgment(f"r{response}", f"{name}{response % 2}", decision, chances, action, f"j{rater}")
                    )
    return draw(st.permutations(rows))


@given(marked())
@hypothesis_settings(max_examples=15)
def test_local_scores_are_those_of_a_plain_loop(rows):
    bundles = {f"even{n}": bundle(*(criterion(f"{name}{n}") for name in "abc")) for n in (0, 1)}
    items, rubrics = {f"r{n}": f"i{n}" for n in range(4)}, {f"i{n}": f"even{n % 2}" for n in range(4)}
    expected = {}
    for row in rows:
        number = int(row["response_id"][1:]) % 2
        scores = expected.setdefault(
            (row["response_id"], row["rater_id"], 0), dict.fromkeys(f"{name}{number}" for name in "abc")
        )
        if row["decision"] is not None:
            stands = row["level_probabilities"] is not None and row["action"] in ("none", "counted")
            scores[row["criterion_id"]] = row["level_probabilities"][1] if stands else float(row["decision"])
    assert of(found(rows, items=items, rubrics=rubrics, bundles=bundles)) == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([judgment("r9", "a", 1)], "response 'r9' has judgments and no item"),
        ([judgment("r4", "a", 1)], "item 'i4' of response 'r4' has no rubric"),
        ([judgment("r5", "a", 1)], "item 'i5' of response 'r5' has no bundle"),
        ([*WHOLE, judgment("r1", "z", 1)], "response 'r1', criterion 'z' .*: rubric 'plain' decides no such criterion"),
        ([judgment("r1", "p1", 1), judgment("r2", "p1", 1)], "response 'r1', criterion 'p1' .* no such criterion"),
        ([judgment("r2", "plan", 1)], "criterion 'plan' .* decides no such criterion"),
        ([*WHOLE, WHOLE[1]], "response 'r1', criterion 'b' by rater 'judge', sample 0: judged twice"),
        ([judgment("r1", "b", 4)], "criterion 'b' .*: decided at a level that it does not have"),
        ([*WHOLE[:1], judgment("r1", "b", 0, [0.5, 0.5])], "criterion 'b' .* another number of level probabilities"),
        ([*WHOLE[:1], judgment("r1", "b", 0, [])], "criterion 'b' .* another number of level probabilities"),
        ([*WHOLE[:1], judgment("r1", "c", 0, [-0.1, 1.1])], r"criterion 'c' .* NaN or outside \[0, 1\]"),
        ([*WHOLE[:1], judgment("r1", "c", 0, [float("nan"), 1.0])], "criterion 'c' .* NaN"),
        ([*WHOLE[:1], judgment("r1", "c", 0, [None, 1.0])], "criterion 'c' .* NaN"),
        ([*WHOLE[:1], judgment("r1", "c", 0, [0.9, 0.9])], "criterion 'c' .* do not sum to 1"),
    ],
)
def test_what_cannot_be_a_local_score_is_refused_where_it_stands(rows, message):
    items = {"r1": "i1", "r2": "i2", "r4": "i4", "r5": "i5"}
    with pytest.raises(ContractError, match=message):
        found(rows, items=items, rubrics={"i1": "plain", "i2": "nested", "i5": "other"})


def test_a_rubric_without_graph_is_named():
    with pytest.raises(ContractError, match="item 'i1' of response 'r1' has no graph"):
        local_scores(conform(Judgments, WHOLE), {"r1": "i1"}, {"i1": "plain"}, BUNDLES, {}, "probability")


def test_probabilities_that_are_not_used_are_not_looked_at():
    rows = [judgment("r1", "a", 1, [0.5, 9.0])]
    assert of(found(rows, "decision"))["r1", "judge", 0]["a"] == 1.0


def test_a_composite_of_weight_0_has_no_share():
    empty = bundle(criterion("a"), criterion("x", 1, parent="none"), composites=(criterion("none", 0),))
    with pytest.raises(ContractError, match="criterion 'none' is made of its sub-points and has weight 0"):
        found([judgment("r1", "a", 1)], rubrics={"i1": "empty"}, bundles={"empty": empty})
