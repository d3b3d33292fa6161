"""What a blind rater is served before their vote is the same to the byte, whatever machines and others said; and every
vote that a rater leaves standing counts, whatever they looked at in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from review_scene import HEAD, PLAIN, PORT, case, machine_label, quote, scene, span

from rubricflow.tasks.people.review.app import Access, create_app
from rubricflow.tasks.people.review.board import Board, PredictedScore
from rubricflow.tasks.people.review.label_studio import config, project
from rubricflow.tasks.people.review.ledger import Act, Ledger, Stored
from rubricflow.tasks.people.review.reviews import NotAllowed, Reviews, with_blindness
from rubricflow.tasks.people.review.settle import SettledOutcome, outcomes, valid_acts
from rubricflow.tasks.people.review.sheet import as_csv, questions_of, read_sheet

LABELS = st.builds(
    machine_label,
    st.sampled_from(("annotator-a", "annotator-b")),
    st.none() | st.integers(0, 2),
    st.none() | st.floats(0, 1),
    st.sampled_from(((), (span(PLAIN, "osmosis"),), (quote("membrane", "fabricated"),))),
    st.none() | st.just("invalid_reply"),
)
VALUES = st.sampled_from(("0", "1", "2", "x"))
HIDDEN = st.fixed_dictionaries(
    {
        "why": st.sampled_from(("Annotators 2 levels apart on C3", "No level from one annotator for C1", "Drawn")),
        "doubtful": st.sampled_from(((), ("C1",), ("C3", "C2"))),
        "labels": st.tuples(LABELS, LABELS, LABELS),
        "shares": st.lists(st.floats(0, 1), min_size=3, max_size=3),
        "ada": st.tuples(VALUES, VALUES, VALUES),
        "bo": st.tuples(VALUES, VALUES, VALUES),
        "comment": st.sampled_from(("I see it", "no trace of a membrane")),
        "predicted": st.builds(
            PredictedScore,
            score=st.none() | st.integers(0, 4).map(float),
            points=st.none() | st.floats(0, 4),
            low=st.none() | st.floats(0, 2),
            high=st.none() | st.floats(2, 4),
            probability=st.none() | st.floats(0, 1),
            reason=st.just("no_reply"),
        ),
    }
)


def world(hidden: dict[str, Any]) -> Board:
    """Two cases about labels and one about a score, with what machines say of them."""
    one, other = (replace(case(name, hidden["why"]), doubtful=hidden["doubtful"]) for name in ("R-0412", "R-0276"))
    board = scene((one, other, replace(case("R-0618", hidden["why"]), subject_kind="score")))
    labels = dict(zip(("C1", "C2", "C3"), ((label,) for label in hidden["labels"]), strict=True))
    machine = {(name, criterion): said for name in ("R-0412", "R-0276", "R-0618") for criterion, said in labels.items()}
    machine["R-0618", None] = hidden["labels"][:1]
    shares = dict(zip(HEAD.criteria, hidden["shares"], strict=True))
    predictions = {"R-0618": hidden["predicted"]}
    return replace(board, machine=machine, estimates={"R-0412": shares, "R-0276": shares}, predictions=predictions)


def acts_of(board: Board, hidden: dict[str, Any]) -> Iterator[Act]:
    """Ada and Bo rate the first case; Ada votes on the others, submits neither, and writes to a student."""
    ids = (f"00000000-0000-4000-8000-{number:012d}" for number in count())
    for rater, number in (("Ada", 0), ("Bo", 0), ("Ada", 1), ("Ada", 2)):
        at = board.cases[number]
        about = {"study": board.study, "subject_kind": at.subject_kind, "response_id": at.response_id}
        for ballot, value in zip(board.ballots(at), hidden[rater.lower()], strict=False):
            said = {"criterion_id": ballot["criterion_id"], "value": value, "digest": ballot["digest"]}
            said["subject_kind"] = "score" if ballot["criterion_id"] is None else "label"
            yield Act(next(ids), kind="vote", rater_id=rater, comment=hidden["comment"], **about | said)
        if number == 0:
            yield Act(next(ids), kind="submit", rater_id=rater, criterion_id=None, value=None, **about)
        if at.subject_kind == "score":
            note = {"criterion_id": None, "value": None, "digest": board.ballots(at)[0]["digest"]}
            yield Act(next(ids), kind="note", rater_id=rater, comment=hidden["comment"], **about, **note)


def served(board: Board, hidden: dict[str, Any], folder: Path) -> list[Any]:
    """All that Cyd is served before she votes: pages, lists, cases, refusals, exports."""
    path = folder / f"{next(NUMBERS)}.sqlite"
    with Ledger(path) as ledger:
        ledger.add_all(acts_of(board, hidden))
    client = TestClient(
        create_app(board, path, Access("127.0.0.1", PORT), lambda *_: hidden["predicted"]),
        base_url=f"http://127.0.0.1:{PORT}",
    )
    answers = [client.post("/api/me", json={"name": "Cyd"})]
    answers += [client.get(place) for place in ("/", "/page/review.js", "/api/me", "/api/cases")]
    for number, at in enumerate(board.cases):
        answers.append(client.get(f"/api/cases/{number}"))
        act = {"subject_kind": at.subject_kind, "response_id": at.response_id, "rater": "Cyd", "kind": "adjudicate"}
        act["act_id"] = "10000000-0000-4000-8000-000000000000"  # each is refused, so none is the same act again
        for ballot in board.ballots(at):
            about = {
                "criterion_id": ballot["criterion_id"],
                "value": "1",
                "digest": ballot["digest"],
                "comment": "settled",
            }
            about |= {"subject_kind": "score"} if ballot["criterion_id"] is None else {"subject_kind": "label"}
            answers.append(client.post("/api/acts", json=act | about))
        answers.append(client.post(f"/api/cases/{number}/following", json={"levels": {"C1": 2}}))
        answers.append(client.post("/api/acts", json=act | {"kind": "submit"}))
    answers += [client.get("/api/cases"), client.get("/api/cases/99")]
    labels = questions_of(board)[:6]
    return [
        *((answer.status_code, dict(answer.headers), answer.content) for answer in answers),
        as_csv(questions_of(board)),
        project(labels),
        config(labels),
    ]


NUMBERS = count()


@settings(max_examples=6)
@given(HIDDEN, HIDDEN)
def test_a_blind_rater_is_served_the_same_whatever_others_said(
    tmp_path_factory: pytest.TempPathFactory, one: dict[str, Any], other: dict[str, Any]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    assert served(world(one), one, folder) == served(world(other), other, folder)


# ---- what counts, held against a plain account of it

SCORE = replace(case("R-0618"), subject_kind="score")
BOARD = scene((SCORE,))
BALLOT = BOARD.ballots(SCORE)[0]
MOVES = ("0", "1", "submit", "undo", "look")


class Part(NamedTuple):
    """One rater's part in a case, as they would tell it."""

    votes: tuple[tuple[str, bool], ...] = ()
    """Those not taken back: value, and whether it was blind."""
    is_submitted: bool = False
    since: int | None = None
    """How many votes stood when the submission was taken back; None where none was."""
    has_seen: bool = False

    @property
    def last_word(self) -> tuple[str, bool] | None:
        """What counts of it."""
        again = self.since is not None and len(self.votes) > self.since
        return self.votes[-1] if self.votes and (self.is_submitted or again) else None


def after(part: Part, move: str, is_second: bool) -> Part | None:
    """The part after a move; None for a move that is not allowed."""
    if move == "look":
        return part._replace(has_seen=part.has_seen or part.is_submitted or not is_second)
    if move == "submit":
        return part._replace(is_submitted=True, has_seen=True) if part.votes and not part.is_submitted else None
    if move != "undo":
        vote = move, is_second and not part.has_seen
        return None if part.is_submitted else part._replace(votes=(*part.votes, vote), has_seen=not vote[1])
    if part.is_submitted:
        return part._replace(is_submitted=False, since=len(part.votes))
    since = None if part.since is None else min(part.since, len(part.votes) - 1)
    return part._replace(votes=part.votes[:-1], since=since) if part.votes else None


class Page:
    """The page and its ledger, without either's files."""

    def __init__(self, acts: tuple[Stored, ...] = (), looks: frozenset[str] = frozenset()) -> None:
        self.acts, self.looks = acts, looks
        self.reviews = Reviews(BOARD)
        self.reviews.add(acts)
        for rater in looks:
            self.reviews.show(SCORE, rater)

    def move(self, rater: str, move: str) -> Page | None:
        """What it is after a move; None where it refuses that."""
        if move == "look":
            sees = any(self.reviews.visibility(SCORE, rater))
            return Page(self.acts, self.looks | {rater} if sees else self.looks)
        undone = next((act for act in reversed(self.reviews.live(SCORE.response_id)) if act.rater_id == rater), None)
        kind = move if move in ("submit", "undo") else "vote"
        if kind == "undo" and undone is None:
            return None
        number = len(self.acts) + 1
        act = Stored(
            f"00000000-0000-4000-8000-{number:012d}",
            "science",
            kind,  # type: ignore[arg-type]
            "score",
            SCORE.response_id,
            None,
            move if kind == "vote" else None,
            rater,
            digest=BALLOT["digest"] if kind == "vote" else "",
            undoes=undone.act_id if kind == "undo" and undone else None,
            number=number,
            stored_at=datetime.now(UTC),
        )
        try:
            self.reviews.check(SCORE, act)
        except NotAllowed:
            return None
        if kind == "vote":
            act = replace(act, blind=self.reviews.is_blind(SCORE, rater))
        return Page((*self.acts, act), self.looks)


def settled(words: list[str]) -> dict[Any, SettledOutcome]:
    """What last words come to."""
    if not words:
        return {}
    (value, most), *others = Counter(words).most_common()
    if 2 * most <= len(words):
        return {(SCORE.response_id, None): SettledOutcome(None, "open")}
    how = "majority" if others else "agreed_votes" if most > 1 else "one_vote"
    return {(SCORE.response_id, None): SettledOutcome(float(value), how)}


def compare(page: Page, parts: dict[str, Part]) -> None:
    found = valid_acts(page.acts, {(SCORE.response_id, None): BALLOT["digest"]})
    words = {rater: part.last_word for rater, part in parts.items() if part.last_word}
    assert {vote.rater_id: (vote.value, vote.blind) for vote in found.votes} == words
    assert len(found.votes) == len(words)
    assert outcomes(found) == settled([value for value, _ in words.values()])
    apart = page.reviews.state(SCORE).apart
    assert (apart == (None,)) == (outcomes(found).get((SCORE.response_id, None)) == SettledOutcome(None, "open"))


def explore(page: Page, parts: dict[str, Part], raters: tuple[str, ...], first: str | None, steps: int) -> int:
    """Every sequence of so many moves, each move held against the plain account; how many there were."""
    compare(page, parts)
    if not steps:
        return 1
    seen = 0
    for rater in raters:
        for move in MOVES:
            then = page.move(rater, move)
            part = after(parts[rater], move, is_second=first not in (None, rater))
            assert (then is None) == (part is None), (page.acts, rater, move)
            if then and part:
                begins = first or (rater if move in ("0", "1") else None)
                seen += explore(then, parts | {rater: part}, raters, begins, steps - 1)
    return seen


def test_in_every_short_history_each_last_word_counts_once_and_says_whether_it_was_blind() -> None:
    assert explore(Page(), {"Ada": Part(), "Bo": Part()}, ("Ada", "Bo"), None, 4) > 1_000


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(("Ada", "Bo", "Cyd")), st.sampled_from(MOVES)), max_size=25))
def test_so_it_does_in_long_histories_of_three(moves: list[tuple[str, str]]) -> None:
    page, parts, first = Page(), {name: Part() for name in ("Ada", "Bo", "Cyd")}, None
    for rater, move in moves:
        then, part = page.move(rater, move), after(parts[rater], move, is_second=first not in (None, rater))
        assert (then is None) == (part is None)
        if then and part:
            page, parts, first = then, parts | {rater: part}, first or (rater if move in ("0", "1") else None)
            compare(page, parts)


def test_a_sheet_of_somebody_who_has_seen_more_is_not_blind(tmp_path: Path) -> None:
    board = scene((SCORE,))
    asked = questions_of(board)

    def sheet(level: str) -> list[Act]:
        path, digest = tmp_path / "s.csv", asked[0].ballot["digest"]
        text = as_csv(asked).decode("utf-8-sig")
        path.write_text(text.replace(f'"","","","{digest}', f'"{level}","","","{digest}'))
        return read_sheet(path, board.study, asked, "Ada")

    with Ledger(tmp_path / "votes.sqlite") as ledger:
        for level, blind in (("1", True), ("2", False), ("2", False), ("1", True)):
            stored = ledger.add_all(with_blindness(sheet(level), ledger.acts(board.study)))
            assert stored[0].blind is blind, level
