"""What the review page shows, as plain values for JSON, and what reviewers store: the list of cases, one case as one
reviewer may see it, and acts for the ledger, for several reviewers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Literal

from pydantic import Field, StrictInt

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.tables.data import UNSCORED_REASONS
from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, QUOTES, STANDING
from rubricflow.tasks.core.display.table import Row
from rubricflow.tasks.core.text.highlight import Highlight, joined, pieces
from rubricflow.tasks.core.text.languages import language_of
from rubricflow.tasks.core.text.traces import heading_at, headings
from rubricflow.tasks.people.review.board import (
    Board,
    Follow,
    PredictedScore,
    QueuedCase,
    Vouching,
    as_words,
    chance_of,
    without_score,
)
from rubricflow.tasks.people.review.ledger import Act, Ledger, Stored, SubjectKind
from rubricflow.tasks.people.review.reviews import NotAllowed, ReviewerCase, Reviews

_LATEST = 200
"""Acts of a reviewer that can be taken back one after the other."""
_Machine = Mapping[str | None, list[tuple[str, Row]]]


class Sent(Frozen):
    """An act as the page sends it."""

    act_id: str = Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    kind: Literal["vote", "undo", "submit", "adjudicate", "note"]
    subject_kind: SubjectKind
    response_id: str
    criterion_id: str | None = None
    value: str | None = None
    comment: str | None = Field(default=None, max_length=4000)
    undoes: str | None = None
    digest: str = ""
    rater: str
    """Whom the page was opened by: an act that waited is never stored under the name of somebody else."""
    shown: bool = False
    """Whether the page has shown more than the response, in a visit that the server may have forgotten."""

    def act(self, study: str) -> Act:
        """What the ledger takes, but for `blind`."""
        content = self.model_dump(exclude={"rater", "shown", "comment"})
        return Act(**content, study=study, rater_id=self.rater, comment=(self.comment or "").strip() or None)


class Levels(Frozen):
    """The levels that a reviewer set, by criterion."""

    levels: dict[str, StrictInt] = Field(max_length=1000)


class ReviewService:
    """The board with its ledger; safe for several threads."""

    def __init__(
        self, board: Board, ledger: Ledger, follow: Follow | None = None, on_stored: Callable[[], object] | None = None
    ) -> None:
        """on_stored: called after every act that was stored."""
        self._on_stored = on_stored
        self._reviews, self._ledger, self._lock = Reviews(board), ledger, threading.Lock()
        self._board, self._follow = board, follow

    def list_cases(self, rater: str, adjudicating: bool) -> Record:
        with self._lock:
            self._catch_up()
            return list_cases(self._reviews, rater, adjudicating)

    def show_case(self, number: int, rater: str, adjudicating: bool) -> Record:
        with self._lock:
            self._catch_up()
            return show_case(self._reviews, self._case(number), rater, adjudicating)

    def following(self, number: int, rater: str, levels: Mapping[str, int]) -> Record:
        """The score that follows from a reviewer's levels, in words; nothing of it is stored. NotAllowed for whoever
        may not see the machine's work, which goes into it."""
        with self._lock:
            self._catch_up()
            case = self._case(number)
            if case.subject_kind != "score" or self._follow is None:
                raise NotAllowed(404, "no score follows here")
            if not self._reviews.visibility(case, rater).machine:
                raise NotAllowed(403, "the machine's work stays hidden until you submit")
            self._reviews.show(case, rater)
            counts = {ballot["criterion_id"]: len(ballot["options"]) for ballot in self._reviews.ballots(case)}
            if not all(0 <= level < counts.get(criterion, 0) for criterion, level in levels.items()):
                raise NotAllowed(422, "there is no such level")
        following = self._follow(case.response_id, levels)
        if isinstance(following, PredictedScore):
            return as_words(following, self._board.scales[case.rubric_id])
        return without_score(following)

    def store(self, sent: Sent) -> Stored:
        """The stored act; the same one sent again is answered alike. NotAllowed where it must not be stored."""
        act = sent.act(self._board.study)
        with self._lock:
            self._catch_up()
            earlier = self._reviews.by_id(act.act_id)
            if earlier is not None:
                # `blind` was added here when the act came.
                if any(getattr(earlier, name) != value for name, value in vars(act).items() if name != "blind"):
                    raise NotAllowed(409, "another act has this id")
                return earlier
            case = self._reviews.case(act)
            if sent.shown:
                self._reviews.show(case, act.rater_id)
            self._reviews.check(case, act)
            if act.kind == "vote":
                act = replace(act, blind=self._reviews.is_blind(case, act.rater_id))
            also = []
            if act.kind == "submit":
                also = self._reviews.copies(case, act)
            elif act.kind == "undo":
                also = self._reviews.undone_copies(case, act)
            *_, stored = self._ledger.add_all([*also, act])
            self._catch_up()  # with what others stored a moment before
            if self._on_stored:
                self._on_stored()
            return stored

    def _case(self, number: int) -> QueuedCase:
        if not 0 <= number < len(self._board.cases):
            raise NotAllowed(404, "there is no such case")
        return self._board.cases[number]

    def _catch_up(self) -> None:
        """Others write into the ledger, too."""
        self._reviews.add(self._ledger.acts(self._board.study, after=self._reviews.number))


def list_cases(reviews: Reviews, rater: str, adjudicating: bool = False) -> Record:
    """Every case with the reviewer's own state, what waits for an adjudicator, and what they may take back.

    Why a case waits, and whether others differ on it, tells something of both: it is in the list only of whom was shown
    the case's machine or votes already, or who asks what there is to adjudicate.
    """
    board = reviews.board
    live = chain.from_iterable(reviews.live(case.response_id) for case in board.cases)
    mine = sorted((act for act in live if act.rater_id == rater), key=lambda act: act.number)
    named = ("act_id", "kind", "criterion_id", "value")
    latest = [
        {"case": board.places[act.response_id], **{name: getattr(act, name) for name in named}}
        for act in mine[-_LATEST:]
    ]
    rows = []
    for case in board.cases:
        part = reviews.part(case, rater)
        needed = reviews.needed(case)
        shown = reviews.visibility(case, rater).machine and reviews.was_shown(case, rater)
        row = {
            "subject_kind": case.subject_kind,
            "response_id": case.response_id,
            "item_id": case.item_id,
            "student": case.student,
            "why": case.why if shown or case.history or board.vouching else None,
            "marked": case.marked,
            "second": reviews.is_second(case, rater),
            "asked": 0 if case.marked else len(needed),
            "voted": sum(criterion in part.votes for criterion in needed),
            "submitted": part.submission is not None,
            "conflicts": reviews.conflicts(case, rater, adjudicating),
        }
        rows.append(row)
    return {
        "title": board.title,
        "study": board.study,
        "reviewer": rater,
        "adjudicating": adjudicating,
        "grader": board.grader is not None,
        "cases": rows,
        "questions": {case.item_id: case.question for case in board.cases},
        "coverage": board.coverage,
        "latest": latest,
        "vouching": board.vouching and _vouching(reviews, board.vouching),
    }


def _vouching(reviews: Reviews, vouching: Vouching) -> Record:
    """How many labels there are of those that a promise takes."""
    board = reviews.board
    states = [reviews.state(case) for case in board.cases if case.response_id in vouching.drawn]
    voted = sum(any(None in votes for votes in state.counted.values()) for state in states)
    return {"here": vouching.here + voted, "needed": vouching.needed, "promise": vouching.promise}


def show_case(reviews: Reviews, case: QueuedCase, rater: str, adjudicating: bool = False) -> Record:
    """One case, with no more than the reviewer may see; NotAllowed where they may not adjudicate."""
    sees = reviews.visibility(case, rater, adjudicating)
    if any(sees):
        reviews.show(case, rater)
    part = reviews.part(case, rater)
    board = reviews.board
    machine: _Machine = {}
    is_told = sees.machine or board.shows == "explanation"
    from_machine: Record = {"predicted": None, "grader": None, "history": ()}
    if is_told:
        criteria = [*(criterion.id for criterion in board.criteria.get(case.rubric_id, ())), None]
        labels = {criterion: board.machine.get((case.response_id, criterion)) for criterion in criteria}
        machine = {criterion: given for criterion, given in labels.items() if given}
    if sees.machine:
        predicted = board.predictions.get(case.response_id)
        words = as_words(predicted, board.scales[case.rubric_id]) if predicted else None
        from_machine = {"predicted": words, "grader": _grader(board, case), "history": case.history}
    state = reviews.state(case)
    notes = [note for note in state.notes if sees.people or note.rater_id == rater]
    # Votes of others that count, what they differ on and what is settled; the key '' stands for the score.
    from_people: Record = {"others": [], "apart": [], "settled": {}}
    if sees.people:
        others = [(name, votes) for name, votes in state.counted.items() if name != rater]
        from_people["others"] = [
            {"rater": name, "votes": {key or "": _content(vote) for key, vote in votes.items()}}
            for name, votes in others
        ]
        from_people["apart"] = [criterion or "" for criterion in state.apart]
        from_people["settled"] = {
            key or "": {"rater": act.rater_id, **_content(act)} for key, act in state.settled.items()
        }
    return {
        "subject_kind": case.subject_kind,
        "response_id": case.response_id,
        "student": case.student,
        "question": case.question,
        "rubric": board.rubric_texts.get(case.rubric_id, ""),
        "reference": case.reference,
        "context": case.context,
        # Marks in the data are for all who may look at the answer.
        "why": case.why if sees.machine or case.history or board.vouching else None,
        "explanation": _explained(board.explanations.get(case.response_id, ""), machine) if is_told else [],
        "hides": None if sees.machine else "verdict" if is_told else "all",
        "marked": case.marked,
        **from_machine,
        "sees_machine": sees.machine,
        "sees_people": sees.people,
        "second": reviews.is_second(case, rater),
        "submission": part.submission.act_id if part.submission else None,
        "alike": [other.response_id for other in reviews.alike(case)],
        "lang": language_of(case.text.casefold()) or language_of(case.question.casefold()),
        "pieces": _pieces(case, machine),
        "asked": [_ballot(ballot, case, part, machine, sees.machine) for ballot in reviews.ballots(case)],
        "notes": [{"act_id": note.act_id, "rater": note.rater_id, "text": note.comment} for note in notes],
        **from_people,
    }


def _content(act: Stored) -> Record:
    return {"act_id": act.act_id, "value": act.value, "comment": act.comment}


def _explained(explanation: str, machine: _Machine) -> list[Record]:
    """What the machine said for its score, cut at the words that it quotes; holds: whether these stand in the response,
    None for its own words."""
    rows = [row for labels in machine.values() for _, row in labels]
    spans = []
    for quote in chain.from_iterable(row["evidence"] for row in rows):
        start = explanation.find(quote["quote"])
        if start >= 0:
            spans.append(Highlight(start, start + len(quote["quote"]), quote["status"] in STANDING))
    return [
        {"text": piece.text, "holds": all(piece.labels) if piece.labels else None}
        for piece in pieces(explanation, spans)
        if piece.text
    ]


def _ballot(ballot: Record, case: QueuedCase, part: ReviewerCase, machine: _Machine, sees_verdict: bool) -> Record:
    criterion = ballot["criterion_id"]
    mine = part.votes.get(ballot["criterion_id"])
    values = [option["value"] for option in ballot["options"]]
    labels = [_label(rater, row, values, case, sees_verdict) for rater, row in machine.get(criterion, ())]
    return {
        **ballot,
        "doubtful": sees_verdict and bool(machine) and criterion in case.doubtful,
        "mine": _content(mine) if mine else None,
        "machine": labels,
    }


def _label(rater: str, row: Row, values: list[str], case: QueuedCase, sees_verdict: bool = True) -> Record:
    """What a row of `judgments` says, the level before its quotes were checked (stated) with it; of who does not see
    the verdict its quotes alone."""
    quotes = []
    for quote in row["evidence"]:
        note = None if quote["status"] == "verified" else QUOTES.get(quote["status"])
        at = heading_at(case.text, quote["start"]) if case.is_trace and quote["start"] is not None else None
        quotes.append({"text": quote["quote"], "at": at, "note": note, "holds": quote["status"] in STANDING})
    if not sees_verdict:
        told = {"rater": rater, "hidden": True, "quotes": quotes}
        return told | dict.fromkeys(("value", "probability", "reason", "stated", "action"))
    level = row["decision"]
    stated = row["stated"]
    reason = row["unscored_reason"]
    return {
        "rater": rater,
        "value": None if level is None else values[level],
        "probability": chance_of(level, row["level_probabilities"]),
        "reason": UNSCORED_REASONS[reason] if reason else None,
        "stated": values[stated] if stated is not None and stated < len(values) else None,
        "action": None if row["action"] == "none" else ACTIONS[row["action"]],
        "quotes": quotes,
        "look": _look(row.get("look"), case),
    }


def _look(look: Row | None, case: QueuedCase) -> str | None:
    """Where a second look found something to look at, in words that say nothing of the verdict."""
    if look is None:
        return None
    if look["kind"] == "credit":
        lacks = f" (another judge: it lacks {look['lacks']})" if look["lacks"] else ""
        return f"look whether the quote says it{lacks}"
    place = heading_at(case.text, look["start"]) if case.is_trace else f"sentence {look['unit_id'].removeprefix('s')}"
    return f"look at {place}"


def _grader(board: Board, case: QueuedCase) -> Record | None:
    """The head with the shares of this response; None where there is no grader or no estimate."""
    shares = board.shares(case)
    if board.grader is None or shares is None:
        return None
    names = {criterion.id: criterion.text for criterion in board.criteria.get(case.rubric_id, ())}
    texts = [names.get(criterion, "") for criterion in board.grader.criteria]
    return {**board.grader.model_dump(), "texts": texts, "shares": shares}


def _pieces(case: QueuedCase, machine: _Machine) -> list[Record]:
    """The response cut at the quotes that hold for a criterion; those that do not lie in it are left out.

    Characters are counted here, because the browser counts them otherwise.
    """
    spans = []
    for criterion, labels in machine.items():
        for quote in chain.from_iterable(row["evidence"] for _, row in labels):
            start, end = quote["start"], quote["end"]
            if criterion is None or start is None or end is None or quote["status"] not in STANDING:
                continue
            if 0 <= start < end <= len(case.text):
                spans.append(Highlight(start, end, criterion))
    titles = headings(case.text) if case.is_trace else ()
    return [
        {"text": piece.text, "of": piece.labels, "starts": piece.starts, "ends": piece.ends, "title": piece.is_heading}
        for piece in pieces(case.text, joined(spans), titles)
    ]
