"""What the page is told, as plain values for JSON: the list of cases, and one case as one reviewer may see it.

What reviewers ask of a board and store in its ledger, several of them at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import chain
from typing import Any, Literal

from pydantic import Field, StrictInt

from rubricflow.tasks.core.contracts.schema import Frozen
from rubricflow.tasks.core.contracts.tables.judging import ACTIONS, QUOTES, STANDING, UNSCORED_REASONS
from rubricflow.tasks.core.text.highlight import Highlight, joined, pieces
from rubricflow.tasks.people.review.board import Ballot, Board, MachineLabel, QueuedCase, Quote
from rubricflow.tasks.people.review.ledger import Act, Ledger, Stored
from rubricflow.tasks.people.review.predicted import Follow, as_words, without_score
from rubricflow.tasks.people.review.reviews import Hand, NotAllowed, Reviews


class Sent(Frozen):
    """An act as the page sends it."""

    act_id: str = Field(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    kind: Literal["vote", "undo", "submit", "adjudicate", "note"]
    subject_kind: Literal["label", "score"]
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


class Desk:
    """The board with its ledger; safe for several threads."""

    def __init__(self, board: Board, ledger: Ledger, follow: Follow | None = None) -> None:
        self._reviews, self._ledger, self._lock = Reviews(board), ledger, threading.Lock()
        self._study, self._follow = board.study, follow

    def listed(self, rater: str, adjudicating: bool) -> dict[str, Any]:
        with self._lock:
            self._catch_up()
            return listed(self._reviews, rater, adjudicating)

    def opened(self, number: int, rater: str, adjudicating: bool) -> dict[str, Any]:
        with self._lock:
            self._catch_up()
            return opened(self._reviews, self._case(number), rater, adjudicating)

    def following(self, number: int, rater: str, levels: Mapping[str, int]) -> dict[str, Any]:
        """The score that follows from a reviewer's levels, in words; nothing of it is stored. NotAllowed for whoever
        may not see the machine's work, which goes into it."""
        with self._lock:
            self._catch_up()
            case = self._case(number)
            if case.subject_kind != "score" or self._follow is None:
                raise NotAllowed(404, "no score follows here")
            if not self._reviews.sight(case, rater).machine:
                raise NotAllowed(403, "the machine's work stays hidden until you submit")
            self._reviews.show(case, rater)
            ballots = self._reviews.ballots(case)
            tops = {
                ballot.criterion_id: len(ballot.options) - 1 for ballot in ballots if ballot.criterion_id is not None
            }
            for criterion, level in levels.items():
                if not 0 <= level <= tops.get(criterion, -1):
                    raise NotAllowed(422, "there is no such level")
        following = self._follow(case.response_id, levels)
        if following.predicted is None:
            return without_score(following.problem or "")
        return as_words(following.predicted, self._reviews.board.scales[case.rubric_id])

    def _case(self, number: int) -> QueuedCase:
        cases = self._reviews.board.cases
        if not 0 <= number < len(cases):
            raise NotAllowed(404, "there is no such case")
        return cases[number]

    def store(self, sent: Sent) -> Stored:
        """The stored act; the same one sent again is answered alike. NotAllowed where it must not be stored."""
        act = sent.act(self._study)
        with self._lock:
            self._catch_up()
            earlier = self._reviews.by_id(act.act_id)
            if earlier is not None:
                # Whether a stored act is this one; what was added here when it came does not count.
                names = [field.name for field in fields(Act) if field.name != "blind"]
                is_same = all(getattr(earlier, name) == getattr(act, name) for name in names)
                if not is_same:
                    raise NotAllowed(409, "another act has this id")
                return earlier
            case = self._reviews.case(act)
            if sent.shown:
                self._reviews.show(case, act.rater_id)
            self._reviews.check(case, act)
            if act.kind == "vote":
                act = replace(act, blind=self._reviews.is_blind(case, act.rater_id))
            stored = self._ledger.add(act)
            self._catch_up()  # with what others stored a moment before
            return stored

    def _catch_up(self) -> None:
        """Others write into the ledger, too."""
        self._reviews.take(self._ledger.acts(self._study, after=self._reviews.number))


_LATEST = 200
"""Acts of a reviewer that can be taken back one after the other."""


def listed(reviews: Reviews, rater: str, adjudicating: bool = False) -> dict[str, Any]:
    """Every case with the reviewer's own state, what waits for an adjudicator, and what they may take back.

    Why a case waits, and whether others differ on it, tells something of both: it is in the list only of whom was shown
    the case's machine or votes already, or who asks what there is to adjudicate.
    """
    board = reviews.board
    live = chain.from_iterable(reviews.live(case.response_id) for case in board.cases)
    mine = sorted((act for act in live if act.rater_id == rater), key=lambda act: act.number)
    cases = [_row(reviews, case, rater, adjudicating) for case in board.cases]
    return {
        "title": board.title,
        "study": board.study,
        "reviewer": rater,
        "adjudicating": adjudicating,
        "grader": board.grader is not None,
        "cases": cases,
        "questions": {case.item_id: case.question for case in board.cases},
        "coverage": board.coverage,
        "latest": [_act(board, act) for act in mine[-_LATEST:]],
    }


def _row(reviews: Reviews, case: QueuedCase, rater: str, adjudicating: bool) -> dict[str, Any]:
    hand = reviews.hand(case, rater)
    shown = reviews.sight(case, rater).machine and reviews.was_shown(case, rater)
    needed = [ballot.criterion_id for ballot in reviews.ballots(case) if ballot.is_needed]
    return {
        "subject_kind": case.subject_kind,
        "response_id": case.response_id,
        "item_id": case.item_id,
        "student": case.student,
        "why": case.why if shown or case.history else None,
        "marked": case.marked,
        "second": reviews.is_second(case, rater),
        "asked": 0 if case.marked else len(needed),
        "voted": sum(criterion in hand.votes for criterion in needed),
        "submitted": hand.submission is not None,
        "conflicts": reviews.conflicts(case, rater, adjudicating),
    }


def _act(board: Board, act: Stored) -> dict[str, Any]:
    return {
        "act_id": act.act_id,
        "kind": act.kind,
        "case": board.places[act.response_id],
        "criterion_id": act.criterion_id,
        "value": act.value,
    }


def opened(reviews: Reviews, case: QueuedCase, rater: str, adjudicating: bool = False) -> dict[str, Any]:
    """One case, with no more than the reviewer may see; NotAllowed where they may not adjudicate."""
    sight = reviews.sight(case, rater, adjudicating)
    if any(sight):
        reviews.show(case, rater)
    hand = reviews.hand(case, rater)
    board = reviews.board
    machine = _machine(board, case) if sight.machine else {}
    people = _people(reviews, case, rater) if sight.people else {"others": [], "apart": [], "settled": {}}
    # Marks in the data are for all who may look at the answer.
    why = case.why if sight.machine or case.history else None
    from_machine: dict[str, Any] = {"predicted": None, "grader": None, "history": ()}
    if sight.machine:
        from_machine = {"predicted": _predicted(board, case), "grader": _grader(board, case), "history": case.history}
    # What everybody may see of a case beside the response itself
    material = {
        "subject_kind": case.subject_kind,
        "response_id": case.response_id,
        "student": case.student,
        "question": case.question,
        "rubric": board.rubric_texts.get(case.rubric_id, ""),
        "reference": case.reference,
        "context": case.context,
    }
    return {
        **material,
        "why": why,
        "marked": case.marked,
        **from_machine,
        "sees_machine": sight.machine,
        "sees_people": sight.people,
        "second": reviews.is_second(case, rater),
        "submission": hand.submission.act_id if hand.submission else None,
        "pieces": _pieces(case.text, machine),
        "asked": [_ballot(ballot, case, hand, machine) for ballot in reviews.ballots(case)],
        "notes": _notes(reviews, case, rater, sight.people),
        **people,
    }


def _people(reviews: Reviews, case: QueuedCase, rater: str) -> dict[str, Any]:
    """Votes of others that count, what they differ on and what is settled; the key '' stands for the score."""
    state = reviews.state(case)
    others = []
    for name, votes in state.counted.items():
        if name != rater:
            others.append({"rater": name, "votes": {key or "": _content(vote) for key, vote in votes.items()}})
    settled = {key or "": {"rater": act.rater_id, **_content(act)} for key, act in state.settled.items()}
    return {"others": others, "apart": [criterion or "" for criterion in state.apart], "settled": settled}


def _content(act: Stored) -> dict[str, Any]:
    return {"act_id": act.act_id, "value": act.value, "comment": act.comment}


Machine = Mapping[str | None, tuple[MachineLabel, ...]]


def _machine(board: Board, case: QueuedCase) -> Machine:
    """What machines say of the response's criteria, and of its score."""
    criteria = [*(criterion.id for criterion in board.criteria.get(case.rubric_id, ())), None]
    labels = {criterion: board.machine.get((case.response_id, criterion), ()) for criterion in criteria}
    return {criterion: of_criterion for criterion, of_criterion in labels.items() if of_criterion}


def _ballot(ballot: Ballot, case: QueuedCase, hand: Hand, machine: Machine) -> dict[str, Any]:
    mine = hand.votes.get(ballot.criterion_id)
    values = [option.value for option in ballot.options]
    labels = [_label(label, values) for label in machine.get(ballot.criterion_id, ())]
    return {
        "criterion_id": ballot.criterion_id,
        "text": ballot.text,
        "options": [option._asdict() for option in ballot.options],
        "digest": ballot.digest,
        "doubtful": bool(machine) and ballot.criterion_id in case.doubtful,
        "needed": ballot.is_needed,
        "weight": ballot.weight,
        "part_of": ballot.part_of,
        "mine": _content(mine) if mine else None,
        "machine": labels,
    }


def _predicted(board: Board, case: QueuedCase) -> dict[str, Any] | None:
    """The calibrated score in words; None for a case without one."""
    predicted = board.predictions.get(case.response_id)
    return as_words(predicted, board.scales[case.rubric_id]) if predicted else None


def _notes(reviews: Reviews, case: QueuedCase, rater: str, sees_people: bool) -> list[dict[str, Any]]:
    """Words to the student that stand, in their order: the reviewer's own, and those of others where these are seen."""
    notes = [note for note in reviews.state(case).notes if sees_people or note.rater_id == rater]
    return [{"act_id": note.act_id, "rater": note.rater_id, "text": note.comment} for note in notes]


def _label(label: MachineLabel, values: list[str]) -> dict[str, Any]:
    stated = None
    if label.stated is not None and label.stated < len(values):
        stated = values[label.stated]
    reason = UNSCORED_REASONS[label.reason] if label.reason else None
    action = None if label.action == "none" else ACTIONS[label.action]
    return {
        "rater": label.rater,
        "value": None if label.level is None else values[label.level],
        "probability": label.probability,
        "reason": reason,
        "stated": stated,
        "action": action,
        "quotes": list(map(_quote, label.quotes)),
    }


def _quote(quote: Quote) -> dict[str, Any]:
    note = None if quote.status == "verified" else QUOTES.get(quote.status)
    return {"text": quote.text, "note": note, "holds": quote.status in STANDING}


def _grader(board: Board, case: QueuedCase) -> dict[str, Any] | None:
    """The head with the shares of this response; None where there is no grader or no estimate."""
    shares = board.shares(case)
    if board.grader is None or shares is None:
        return None
    names = {criterion.id: criterion.text for criterion in board.criteria.get(case.rubric_id, ())}
    texts = [names.get(criterion, "") for criterion in board.grader.criteria]
    return {**board.grader.model_dump(), "texts": texts, "shares": shares}


def _pieces(text: str, machine: Machine) -> list[dict[str, Any]]:
    """The response cut at its evidence; evidence that does not lie in it is left out.

    Characters are counted here, because the browser counts them otherwise.
    """
    inside = joined(span for span in _evidence(machine) if 0 <= span.start < span.end <= len(text))
    return [
        {"text": piece.text, "of": piece.labels, "starts": piece.starts, "ends": piece.ends}
        for piece in pieces(text, inside)
    ]


def _evidence(machine: Machine) -> Iterator[Highlight[str]]:
    """Where the quotes that hold for a criterion stand."""
    for criterion, labels in machine.items():
        for quote in chain.from_iterable(label.quotes for label in labels):
            if criterion is None or quote.start is None or quote.end is None:
                continue
            if quote.status in STANDING:
                yield Highlight(quote.start, quote.end, criterion)
