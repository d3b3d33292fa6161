"""What judges are worth: counted by hand on a few marked answers, and costs as a cascade asks its steps."""

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.metrics import cohen_kappa_score

from rubricflow.tasks.core.display.worth import QUERIES, compared, rater_costs, worth_section, worths

RELEASE = {"risk": 0.1, "confidence": 0.9, "tolerance": 0.0, "by": "set"}


def marked(rater, errors, n=100, risk=0.01):
    """n answers on 0 to 4, of which the first `errors` are scored one step off and the others rightly."""
    human = np.arange(n) % 5
    wrong = np.arange(n) < errors
    rows = pd.DataFrame({"response_id": [f"r{at}" for at in range(n)], "human": human * 1.0})
    score = np.where(wrong, np.where(human < 4, human + 1, 3), human) * 1.0
    scale = {"item_id": "q", "lowest": 0.0, "highest": 4.0, "step": 1.0}
    told = {"risk": np.where(wrong, 0.9, risk), "wrong": wrong, "open": True, "refused": None}
    return rows.assign(rater_id=rater, score=score, cluster=rows["response_id"], **scale, **told)


def limits(*steps, n=100):
    """(rater, cost, stopped, wrong, whether it is asked) of each step."""
    names = ("rater_id", "cost", "stopped", "wrong", "asked")
    frame = pd.DataFrame([dict(zip(names, step, strict=True)) for step in steps])
    frame["most_risk"] = np.where(frame.pop("asked"), 0.5, np.nan)
    return frame.assign(scope="all", step=range(1, len(steps) + 1), unit="tokens", n=n)


def found(*raters, of_cascade=None, jurors=None):
    empty = {name: pd.DataFrame() for name in QUERIES}
    nothing = marked("x", 0).iloc[:0]
    return empty | {
        "label_risks": pd.concat(raters),
        "jurors": nothing if jurors is None else jurors,
        "cascade_limits": limits(("x", 1.0, 0, 0, True)).iloc[:0] if of_cascade is None else of_cascade,
        "lines": pd.DataFrame(columns=["name", "value"]),
    }


def test_a_judge_is_worth_what_its_own_promise_lets_out():
    (one,), unit = worths(found(marked("m", 20)), RELEASE)
    assert unit == "answers"
    assert one.cost is None
    assert (one.released, one.n, one.error.value) == (80, 100, 0.0)
    human, score = marked("m", 20)[["human", "score"]].to_numpy().T
    assert one.agreement.value == pytest.approx(cohen_kappa_score(human, score, weights="quadratic"))
    assert one.agreement.low < one.agreement.value < one.agreement.high


def test_a_cascade_costs_each_step_as_often_as_answers_reach_it():
    steps = limits(("cheap", 2.0, 60, 3, True), ("dear", 10.0, 30, 1, True))
    costs, unit = rater_costs(["cheap", "dear", "cascade-1"], pd.DataFrame(), steps)
    assert unit == "tokens"
    assert costs == pytest.approx({"cheap": 2.0, "dear": 10.0, "cascade-1": 2.0 + 0.4 * 10})
    idle = limits(("cheap", 2.0, 60, 3, True), ("dear", 10.0, 0, 0, False))
    assert rater_costs(["cascade-1"], pd.DataFrame(), idle)[0]["cascade-1"] == 2.0
    judged, _ = worths(found(marked("cheap", 30), marked("dear", 5), marked("cascade-1", 6), of_cascade=steps), RELEASE)
    whole = next(one for one in judged if one.name == "the cascade")
    assert (whole.released, whole.error.value) == (90, pytest.approx(4 / 90))


def test_a_jury_costs_what_its_jurors_do_and_these_are_shown_before_calibration():
    calls = pd.DataFrame({"rater_id": ["a", "b"], "answers": [100, 100], "tokens": [500.0, 1500.0]})
    calls = calls.assign(usd=[0.0, 0.0], unpriced=[100, 100], uncounted=[0, 0])
    given = found(marked("jury:a+b-1", 5), jurors=pd.concat([marked("a", 10), marked("b", 20)]))
    judged, unit = worths(given | {"cost_of_rater": calls}, RELEASE)
    assert unit == "tokens"
    assert {one.name: one.cost for one in judged} == {"a": 5.0, "b": 15.0, "jury:a+b-1": 20.0}
    assert [one.calibrated for one in judged] == [False, False, True]


def test_a_call_that_was_cut_off_leaves_the_cost_of_all_others_known():
    calls = pa.Table.from_pylist(
        [
            {"rater_id": "a", "response_id": "r1", "usd": None},
            {"rater_id": "a", "response_id": "r1", "usd": 0.5, "prompt_tokens": 90, "completion_tokens": 10},
            {"rater_id": "a", "response_id": "r2", "usd": 0.3, "prompt_tokens": 50, "completion_tokens": 10},
            {"rater_id": "b", "response_id": "r1", "usd": 4.0, "prompt_tokens": 300, "completion_tokens": 100},
        ],
        pa.schema([("rater_id", "string"), ("response_id", "string"), ("usd", "double")])
        .append(pa.field("prompt_tokens", pa.int64()))
        .append(pa.field("completion_tokens", pa.int64())),
    )

    def counted(costs: pa.Table) -> pd.DataFrame:
        return duckdb.connect().register("costs", costs).sql(QUERIES["cost_of_rater"]).df()

    given = found(marked("jury:a+b-1", 5), jurors=pd.concat([marked("a", 10), marked("b", 20)]))
    judged, unit = worths(given | {"cost_of_rater": counted(calls)}, RELEASE)
    assert unit == "usd"
    assert {one.name: (one.cost, one.uncounted) for one in judged} == {
        "a": (0.4, 1),
        "b": (4.0, 0),
        "jury:a+b-1": (4.4, 1),
    }
    section = worth_section(given | {"cost_of_rater": counted(calls)}, RELEASE)
    assert section is not None
    assert sum("1 call" in note for note in section.notes) == 2
    prices_unknown = calls.set_column(2, "usd", pa.nulls(4, pa.float64()))
    assert worths(given | {"cost_of_rater": counted(prices_unknown)}, RELEASE)[1] == "tokens"
    nothing = prices_unknown.set_column(3, "prompt_tokens", pa.nulls(4, pa.int64()))
    assert worths(given | {"cost_of_rater": counted(nothing)}, RELEASE)[1] == "answers"


def test_one_judge_alone_is_no_section_and_two_runs_are():
    alone = found(marked("m", 20))
    assert worth_section(alone, RELEASE) is None
    section = compared({"A": (alone, RELEASE), "B": (found(marked("m", 0)), RELEASE)})
    assert section is not None
    assert len(section.tables[0].rows) == 2
    assert compared({"A": (found(marked("m", 0).iloc[:0]), RELEASE)}) is None


def test_costs_are_shown_for_as_many_answers_as_make_them_readable():
    steps = limits(("cheap", 0.00008, 60, 3, True), ("dear", 0.0022, 30, 1, True)).assign(unit="usd")
    section = worth_section(found(marked("cheap", 30), marked("dear", 5), of_cascade=steps), RELEASE)
    assert "1,000 answers" in section.tables[0].header[2]
    assert [row[2] for row in section.tables[0].rows] == ["0.08", "2.20"]
