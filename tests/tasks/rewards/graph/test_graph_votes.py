"""Votes: read or refused by name, counted, and applied."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.rewards.graph.project import EdgeProposal, Vote, VoteOutcome, ballots, read_votes, with_votes

HEADER = "subject_kind,rubric_id,criterion_id,parent,child,value,rater_id,voted_at,comment"
ROLE = "graph_role,r,c0,,,core,ann,2026-01-02T10:00:00+00:00,"
EDGE = "graph_edge,r,,c0,c1,none,ann,2026-01-02T10:00:00+00:00,no link"


def read(folder: Path, rubric: Any, *rows: str, header: str = HEADER) -> list[Vote]:
    path = folder / "votes.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return read_votes(path, {"r": rubric(1, 1, 1)})


def vote(
    value: str, rater: str = "ann", day: int = 1, on: tuple[str, ...] = ("c0", "c1"), rubric_id: str = "r"
) -> Vote:
    return Vote(rubric_id, on, value, rater, datetime(2026, 1, day, tzinfo=UTC), None)


def outcome(*votes: Vote) -> VoteOutcome:
    return ballots(votes)["r"]["c0", "c1"]


def test_votes_are_rows_of_their_table(tmp_path: Path, rubric: Any) -> None:
    role, edge = (one.row for one in read(tmp_path, rubric, ROLE, EDGE))
    when = "2026-01-02T10:00:00+00:00"
    assert role == {"subject_kind": "graph_role", "subject": "r:c0", "value": "core"} | {
        "rater_id": "ann",
        "voted_at": when,
        "comment": None,
        "role": None,
        "blind": None,
    }
    assert (edge["subject_kind"], edge["subject"], edge["value"], edge["comment"]) == (
        "graph_edge",
        "r:c0→c1",
        "none",
        "no link",
    )


def test_votes_on_roles_alone_need_no_columns_for_edges(tmp_path: Path, rubric: Any) -> None:
    header = "subject_kind,rubric_id,criterion_id,value,rater_id,voted_at"
    (found,) = read(tmp_path, rubric, "graph_role,r,c1,penalty,bob,2026-01-02T10:00:00Z", header=header)
    assert (found.on, found.value) == (("c1",), "penalty")


@pytest.mark.parametrize(
    ("row", "field", "rule"),
    [
        (ROLE.replace("graph_role", "role"), "subject_kind", "'role' is none of graph_role, graph_edge"),
        (ROLE.replace(",r,", ",q,"), "rubric_id", "there is no rubric 'q'"),
        (ROLE.replace("c0", "c9"), "criterion_id", "rubric 'r' has no criterion 'c9'"),
        (ROLE.replace("c0", ""), "criterion_id", "is missing"),
        (ROLE.replace("core", "none"), "value", "'none' is none of core, additional, penalty, applicability"),
        (EDGE.replace("c1", "c9"), "child", "rubric 'r' has no criterion 'c9'"),
        (EDGE.replace("c1", "c0"), "child", "criterion 'c0' cannot license itself"),
        (EDGE.replace("none", "trigger"), "value", "'trigger' is none of weak_prerequisite"),
        (EDGE.replace("ann", " "), "rater_id", "is missing"),
        (EDGE.replace("2026-01-02T10:00:00+00:00", "soon"), "voted_at", "'soon' is no time in ISO 8601"),
        (EDGE.replace("+00:00", ""), "voted_at", "has no time zone"),
        (EDGE + "\n" + EDGE.replace("none", "activation"), "voted_at", "at the same time as in row 2"),
    ],
)
def test_a_vote_that_cannot_be_is_refused_with_its_place(
    row: str, field: str, rule: str, tmp_path: Path, rubric: Any
) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, rubric, ROLE, row)
    assert rule in str(error.value)
    assert (error.value.field, error.value.row) == (field, 3 if "\n" in row else 2)
    assert "votes.csv" in str(error.value)


def test_a_missing_column_is_named(tmp_path: Path, rubric: Any) -> None:
    with pytest.raises(InputError, match="field 'voted_at': no such column"):
        read(tmp_path, rubric, "graph_role,r,c0,core,ann", header="subject_kind,rubric_id,criterion_id,value,rater_id")


def test_the_latest_vote_of_each_rater_counts_by_its_instant_and_not_its_place() -> None:
    assert outcome(vote("none", day=3), vote("activation", day=2)).value == "none"
    assert outcome(vote("activation", day=2), vote("none", day=3)).value == "none"


def test_most_votes_win() -> None:
    votes = [vote("activation", "ann"), vote("activation", "bob"), vote("none", "cid")]
    assert outcome(*votes) == VoteOutcome("activation", "voted activation by 2 of 3")


def test_a_tie_decides_nothing_and_is_told() -> None:
    found = outcome(vote("activation", "ann"), vote("none", "bob"))
    assert found == VoteOutcome(None, "tied votes: activation 1, none 1")


def test_votes_are_told_apart_by_rubric_and_kind() -> None:
    found = ballots([vote("core", on=("c0",)), vote("none"), vote("none", rubric_id="s")])
    assert (set(found["r"]), set(found["s"])) == ({("c0",), ("c0", "c1")}, {("c0", "c1")})


WEAK = EdgeProposal("c0", "c1", "weak_prerequisite", 0.4)


def applied(proposals: list[EdgeProposal], *votes: Vote) -> list[tuple[Any, ...]]:
    found = with_votes(proposals, ballots(votes)["r"])
    return [(one.relation, one.confidence, one.source, one.dropped, one.detail) for one in found]


def test_a_vote_adds_an_edge_that_nobody_proposed() -> None:
    assert applied([], vote("activation")) == [
        ("activation", 1.0, "vote", None, "voted activation by 1 of 1"),
    ]


def test_a_vote_changes_the_relation_and_tells_what_the_annotator_said() -> None:
    assert applied([WEAK], vote("activation")) == [
        ("activation", 1.0, "vote", None, "voted activation by 1 of 1; annotator: weak_prerequisite"),
    ]


def test_a_vote_against_an_edge_drops_it() -> None:
    assert applied([WEAK], vote("none")) == [
        ("weak_prerequisite", 0.4, "annotator", "voted_out", "voted none by 1 of 1"),
    ]


def test_a_vote_against_what_nobody_proposed_changes_nothing() -> None:
    assert applied([], vote("none")) == []


def test_a_tie_leaves_what_there_is() -> None:
    tie = vote("activation", "ann"), vote("none", "bob")
    assert applied([WEAK], *tie) == [
        ("weak_prerequisite", 0.4, "annotator", None, "tied votes: activation 1, none 1"),
    ]
    assert applied([], *tie) == [
        (None, None, "vote", "voted_out", "tied votes: activation 1, none 1; nobody else proposes it"),
    ]


def test_a_vote_settles_a_pair_that_one_order_alone_names() -> None:
    failed = EdgeProposal("c0", "c1", None, dropped="one_order", detail="timeout")
    assert applied([failed], vote("strong_prerequisite"))[0][:4] == ("strong_prerequisite", 1.0, "vote", None)
    assert applied([failed], vote("none"))[0][3] == "voted_out"


def test_a_vote_leaves_other_edges_alone() -> None:
    other = EdgeProposal("c1", "c2", "strong_prerequisite", 0.9)
    assert with_votes([WEAK, other], ballots([vote("none")])["r"])[1] == other
