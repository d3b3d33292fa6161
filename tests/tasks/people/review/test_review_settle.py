"""Which votes stand, and what annotators and people come to."""

import uuid
from collections import Counter
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from builders.rows import judgment
from hypothesis import given, settings
from hypothesis import strategies as st

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import conform, schema
from rubricflow.tasks.core.contracts.tables.judging import Judgments
from rubricflow.tasks.core.contracts.tables.people import Labels, Votes
from rubricflow.tasks.people.review.ledger import Stored, digest
from rubricflow.tasks.people.review.settle import SettledOutcome, outcomes, settle, valid_acts, vote_rows
from rubricflow.tasks.people.review.task import cell_labels, cells_of

START = datetime(2026, 1, 1, tzinfo=UTC)


class Acts(list):
    """Acts in order, numbered as a ledger would."""

    def add(self, kind, rater, on=("r1", "c1"), value=None, **more):
        number = len(self) + 1
        response, criterion = on
        if kind in ("vote", "adjudicate"):
            more.setdefault("digest", "now")
        self.append(
            Stored(
                str(uuid.UUID(int=number)),
                "study",
                kind,
                more.pop("subject_kind", "score" if kind in ("vote", "adjudicate") and criterion is None else "label"),
                response,
                criterion,
                value,
                rater,
                number=number,
                stored_at=START + timedelta(microseconds=number),
                **more,
            )
        )
        return self[-1]

    def submit(self, rater, response="r1", **more):
        return self.add("submit", rater, (response, None), **more)

    def undo(self, rater, act):
        return self.add("undo", rater, undoes=act.act_id)

    def standing(self, current=None):
        return valid_acts(self, current or {(a.response_id, a.criterion_id): "now" for a in self})


def concept(name, top=2):
    return Criterion(id=name, trait="t", text=f"looks for {name}", levels=tuple(map(str, range(top + 1))))


CELLS = cells_of({"r2": "R", "r1": "R"}, {"R": [concept("c1"), concept("c2")]})


def annotators(**levels):
    """The labels of annotators by name, -1 for none."""
    given_ = {name: np.array(own, float) for name, own in levels.items()}
    return {name: pd.DataFrame({"level": np.where(own < 0, np.nan, own)}) for name, own in given_.items()}


def test_a_digest_tells_every_part_from_the_others():
    parts = [("a", "b", ["c"]), ("ab", "", ["c"]), ("a", "b", ["c", ""]), ("a", "bc", []), ("a\0b", "", ["c"])]
    assert len({digest(*part) for part in parts}) == len(parts)
    assert digest("a", "b", ("c",)) == digest("a", "b", ["c"])
    assert len(digest("\ud800", "", [])) == 64


def test_a_vote_counts_from_its_submit_on():
    acts = Acts()
    first = acts.add("vote", "Ann", value="1")
    assert acts.standing().votes == ()
    acts.submit("Bob")
    acts.submit("Ann", "r2")
    assert acts.standing().votes == ()
    submitted = acts.submit("Ann")
    assert acts.standing().votes == (first,)
    second = acts.add("vote", "Ann", value="2")
    assert acts.standing().votes == (first,)
    acts.submit("Ann")
    assert acts.standing().votes == (second,)
    acts.undo("Ann", acts[-1])
    assert acts.standing().votes == (first,)
    acts.undo("Ann", submitted)
    assert acts.standing().votes == ()


def test_people_take_back_their_own_acts_only_and_may_take_that_back():
    acts = Acts()
    first = acts.add("vote", "Ann", value="1")
    second = acts.add("vote", "Ann", value="2")
    acts.submit("Ann")
    acts.undo("Bob", second)
    assert acts.standing().votes == (second,)
    undo = acts.undo("Ann", second)
    assert acts.standing().votes == (first,)
    acts.undo("Ann", undo)
    assert acts.standing().votes == (second,)
    acts.undo("Ann", acts[-1])
    assert acts.standing().votes == (first,)


def test_what_was_voted_on_must_be_what_is_there():
    acts = Acts()
    old = acts.add("vote", "Ann", value="1", digest="old")
    gone = acts.add("vote", "Ann", ("r1", "c9"), value="1")
    settled = acts.add("adjudicate", "Bob", value="2", comment="talked", digest="old")
    acts.submit("Ann")
    current = {("r1", "c1"): "now"}
    found = acts.standing(current)
    assert (found.votes, found.adjudications, found.stale) == ((), (), (old, gone, settled))
    new = acts.add("vote", "Ann", value="0")
    acts.submit("Ann")
    found = acts.standing(current)
    assert (found.votes, found.stale) == ((new,), (gone, settled))
    again = acts.standing({("r1", "c1"): "old", ("r1", "c9"): "now"})
    assert (again.votes, again.adjudications) == ((old, gone), (settled,))


def test_the_last_adjudication_settles_everything():
    acts = Acts()
    for rater, value in (("Ann", "0"), ("Bob", "2")):
        acts.add("vote", rater, value=value)
        acts.submit(rater)
    assert outcomes(acts.standing())["r1", "c1"].settled_by == "open"
    acts.add("adjudicate", "Eve", value="1", comment="midway")
    last = acts.add("adjudicate", "Ann", value="x", comment="illegible")
    found = acts.standing()
    assert outcomes(found) == {("r1", "c1"): SettledOutcome(None, "cannot_be_judged")}
    acts.undo("Ann", last)
    assert outcomes(acts.standing()) == {("r1", "c1"): SettledOutcome(1, "discussion")}


def test_scores_are_numbers_however_they_are_written():
    acts = Acts()
    for rater, value in (("Ann", "2"), ("Bob", "2.0")):
        acts.add("vote", rater, ("r1", None), value)
        acts.submit(rater, subject_kind="score")
    found = acts.standing()
    assert outcomes(found) == {("r1", None): SettledOutcome(2, "agreed_votes")}
    labels = settle(CELLS, annotators(a=[0, 0, 0, 0], b=[0, 0, 0, 0]), found)
    assert set(labels["settled_by"].to_pylist()) == {"annotators"}
    assert [(row["subject_kind"], row["subject"]) for row in vote_rows(found)] == [("score", "r1")] * 2


def test_labels_say_how_they_came_about():
    acts = Acts()
    acts.add("vote", "Ann", ("r1", "c2"), "0", comment="vague")
    acts.add("vote", "Ann", ("r2", "c2"), "x", blind=True)
    for response in ("r1", "r2"):
        acts.submit("Ann", response)
    acts.add("vote", "Bob", ("r1", "c2"), "1")
    acts.submit("Bob")
    acts.add("adjudicate", "Eve", ("r1", "c2"), "2", comment="=discussed")
    found = acts.standing()
    labels = settle(CELLS, annotators(a=[1, 1, 2, -1], b=[1, 2, 0, 1]), found)
    assert labels.schema.equals(schema(Labels))
    rows = {(row["response_id"], row["criterion_id"]): row for row in labels.to_pylist()}
    assert list(rows) == [("r1", "c1"), ("r1", "c2"), ("r2", "c1"), ("r2", "c2")]
    assert {on: (row["level"], row["settled_by"]) for on, row in rows.items()} == {
        ("r1", "c1"): (1, "annotators"),
        ("r1", "c2"): (2, "discussion"),
        ("r2", "c1"): (None, "open"),
        ("r2", "c2"): (None, "cannot_be_judged"),
    }
    steps = [(step["who"], step["kind"], step["level"], step["comment"]) for step in rows["r1", "c2"]["history"]]
    assert steps == [
        ("a", "annotator", 1, None),
        ("b", "annotator", 2, None),
        ("Ann", "vote", 0, "vague"),
        ("Bob", "vote", 1, None),
        ("Eve", "adjudication", 2, "=discussed"),
    ]
    assert rows["r1", "c2"]["history"][2]["at"] == "2026-01-01T00:00:00.000001+00:00"
    assert [step["level"] for step in rows["r2", "c2"]["history"]] == [None, 1, None]
    votes = conform(Votes, vote_rows(found)).to_pylist()
    assert [(v["subject"], v["rater_id"], v["value"], v["role"], v["blind"]) for v in votes] == [
        ("r1:c2", "Ann", "0", "vote", None),
        ("r2:c2", "Ann", "x", "vote", True),
        ("r1:c2", "Bob", "1", "vote", None),
        ("r1:c2", "Eve", "2", "adjudication", None),
    ]


def test_a_level_off_the_scale_is_named():
    acts = Acts()
    acts.add("vote", "Ann", value="3")
    acts.submit("Ann")
    nothing = annotators(a=[0, 0, 0, 0], b=[0, 0, 0, 0])
    with pytest.raises(ContractError, match="Ann says 3 of c1 of response r1"):
        settle(CELLS, nothing, acts.standing())
    empty = settle(cells_of({}, {}), annotators(a=[], b=[]), Acts().standing())
    assert empty.num_rows == 0


def rows_of(name, *rows):
    """Rows of table `judgments`: (response, criterion, level, probabilities, verified)."""
    return conform(
        Judgments,
        [
            judgment(response, criterion, level, name, level_probabilities=probabilities, verified=verified)
            for response, criterion, level, probabilities, verified in rows
        ],
    )


def test_reads_what_an_annotator_says():
    table = rows_of(
        "a",
        ("r2", "c1", 2, [0.1, 0.2, 0.7], False),
        ("r1", "c2", 1, None, None),
        ("r2", "c2", None, [1.0, 0.0, 0.0], False),
        ("r9", "c1", 9, None, True),
    )
    again = conform(Judgments, [{**rows_of("a", ("r1", "c1", 0, None, None)).to_pylist()[0], "sample": 1}])
    found = cell_labels(CELLS, pa.concat_tables([again, table.slice(0, 2), table.slice(2)]), "a")
    assert found["level"].fillna(-1).tolist() == [-1, 1, 2, -1]
    assert np.array_equal(found["probability"], [np.nan, np.nan, 0.7, np.nan], equal_nan=True)
    assert found["ungrounded"].tolist() == [False, False, True, False]
    with pytest.raises(ContractError, match="level 3 of c1 of response r1 is above"):
        cell_labels(CELLS, rows_of("a", ("r1", "c1", 3, None, None)), "a")
    with pytest.raises(ContractError, match="annotator a: c1 of response r2 is judged twice"):
        cell_labels(CELLS, pa.concat_tables([table, table.slice(0, 1)]), "a")
    with pytest.raises(ContractError, match=r"annotator a: .* one rater were wanted, not of \['a', 'b'\]"):
        cell_labels(CELLS, pa.concat_tables([table, rows_of("b", ("r1", "c1", 1, None, None))]), "a")
    with pytest.raises(ContractError, match=r"annotator a: .* not of \[\]"):
        cell_labels(CELLS, table.slice(0, 0), "a")


def test_rubrics_may_share_a_concept_with_scales_of_their_own():
    rubrics = {"R": [concept("c1", 1), concept("c2")], "S": [concept("c3"), concept("c1", 4)], "none": []}
    cells = cells_of({"b": "R", "a": "S", "c": "none"}, rubrics)
    rows = [("a", "c3", 2), ("a", "c1", 4), ("b", "c1", 1), ("b", "c2", 2)]
    assert list(cells[["response_id", "criterion_id", "top"]].itertuples(index=False, name=None)) == rows


LEVELS = st.integers(-1, 2)
SAYS = st.tuples(st.sampled_from("ABCD"), st.sampled_from(["vote", "adjudicate"]), st.sampled_from("012x"))


@settings(max_examples=50)
@given(LEVELS, LEVELS, st.lists(SAYS, max_size=8))
def test_settling_follows_its_rules_in_their_order(a, b, said_):
    acts = Acts()
    for rater, kind, value in said_:
        acts.add(kind, rater, value=value, comment="why")
        acts.submit(rater)
    cells = cells_of({"r1": "R"}, {"R": [concept("c1")]})
    row = settle(cells, annotators(a=[a], b=[b]), acts.standing()).to_pylist()[0]
    last = {rater: value for rater, kind, value in said_ if kind == "vote"}
    counted = Counter(last.values())
    wins = [value for value, count in counted.items() if count > len(last) / 2]
    settling = [value for _, kind, value in said_ if kind == "adjudicate"][-1:] or wins
    if settling:
        assert row["level"] == (None if settling[0] == "x" else int(settling[0]))
        assert (row["settled_by"] == "cannot_be_judged") == (settling[0] == "x")
    elif last or a != b or a < 0:
        assert (row["level"], row["settled_by"]) == (None, "open")
    else:
        assert (row["level"], row["settled_by"]) == (a, "annotators")
    assert [step["who"] for step in row["history"]][:2] == ["a", "b"]
