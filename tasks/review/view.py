"""What the page is told, as plain values for JSON: the list of cases, and one case as one reviewer may see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tasks.contracts.tables.judging import ACTIONS, QUOTES, STANDING, UNSCORED_REASONS
from tasks.review.board import Ballot, Board, MachineLabel, QueuedCase
from tasks.review.ledger import Stored
from tasks.review.predicted import as_words
from tasks.review.sight import Hand, Reviews
from tasks.text.highlight import Highlight, joined, pieces

_LATEST = 200
"""Acts of a reviewer that can be taken back one after the other."""


def listed(reviews: Reviews, rater: str, adjudicating: bool = False) -> dict[str, Any]:
    """Every case with the reviewer's own state, what waits for an adjudicator, and what they may take back.

    Why a case waits, and whether others differ on it, tells something of both: it is in the list only of whom was shown
    the case's machine or votes already, or who asks what there is to adjudicate.
    """
    cases = [_row(reviews, case, rater, adjudicating) for case in reviews.board.cases]
    mine = sorted(
        (s for case in reviews.board.cases for s in reviews.live(case.response_id) if s.rater_id == rater),
        key=lambda stored: stored.number,
    )
    return {
        "title": reviews.board.title,
        "study": reviews.board.study,
        "reviewer": rater,
        "adjudicating": adjudicating,
        "grader": reviews.board.grader is not None,
        "cases": cases,
        "questions": {case.item_id: case.question for case in reviews.board.cases},
        "coverage": reviews.board.coverage,
        "latest": [_taken(reviews.board, stored) for stored in mine[-_LATEST:]],
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
        "why": case.why if shown else None,
        "second": reviews.is_second(case, rater),
        "asked": len(needed),
        "voted": sum(criterion in hand.votes for criterion in needed),
        "submitted": hand.submission is not None,
        "conflicts": reviews.conflicts(case, rater, adjudicating),
    }


def _taken(board: Board, stored: Stored) -> dict[str, Any]:
    return {
        "act_id": stored.act_id,
        "kind": stored.kind,
        "case": board.places[stored.response_id],
        "criterion_id": stored.criterion_id,
        "value": stored.value,
    }


def opened(reviews: Reviews, case: QueuedCase, rater: str, adjudicating: bool = False) -> dict[str, Any]:
    """One case, with no more than the reviewer may see; Refused where they may not adjudicate."""
    sight = reviews.sight(case, rater, adjudicating)
    if any(sight):
        reviews.show(case, rater)
    hand = reviews.hand(case, rater)
    machine = _machine(reviews.board, case) if sight.machine else {}
    return {
        "subject_kind": case.subject_kind,
        "response_id": case.response_id,
        "student": case.student,
        "question": case.question,
        "rubric": reviews.board.rubric_texts.get(case.rubric_id, ""),
        "reference": case.reference,
        "context": case.context,
        "why": case.why if sight.machine else None,
        "sees_machine": sight.machine,
        "sees_people": sight.people,
        "second": reviews.is_second(case, rater),
        "submission": hand.submission.act_id if hand.submission else None,
        "pieces": _pieces(case.text, machine),
        "asked": [_ballot(one, case, hand, machine) for one in reviews.ballots(case)],
        "predicted": _predicted(reviews.board, case) if sight.machine else None,
        "notes": _notes(reviews, case, rater, sight.people),
        "grader": _grader(reviews.board, case) if sight.machine else None,
        **(_people(reviews, case, rater) if sight.people else {"others": [], "apart": [], "settled": {}}),
    }


def _people(reviews: Reviews, case: QueuedCase, rater: str) -> dict[str, Any]:
    """Votes of others that count, what they differ on and what is settled; the key '' stands for the score."""
    state = reviews.state(case)
    return {
        "others": [
            {"rater": name, "votes": {criterion or "": _said(vote) for criterion, vote in votes.items()}}
            for name, votes in state.counted.items()
            if name != rater
        ],
        "apart": [criterion or "" for criterion in state.apart],
        "settled": {
            criterion or "": {"rater": stored.rater_id, **_said(stored)} for criterion, stored in state.settled.items()
        },
    }


def _said(stored: Stored) -> dict[str, Any]:
    return {"act_id": stored.act_id, "value": stored.value, "comment": stored.comment}


Machine = Mapping[str | None, tuple[MachineLabel, ...]]


def _machine(board: Board, case: QueuedCase) -> Machine:
    """What machines say of the response's criteria, and of its score."""
    wanted = [*(criterion.id for criterion in board.criteria.get(case.rubric_id, ())), None]
    found = {criterion: board.machine.get((case.response_id, criterion), ()) for criterion in wanted}
    return {criterion: labels for criterion, labels in found.items() if labels}


def _ballot(one: Ballot, case: QueuedCase, hand: Hand, machine: Machine) -> dict[str, Any]:
    mine = hand.votes.get(one.criterion_id)
    return {
        "criterion_id": one.criterion_id,
        "text": one.text,
        "options": [option._asdict() for option in one.options],
        "digest": one.digest,
        "doubtful": bool(machine) and one.criterion_id in case.doubtful,
        "needed": one.is_needed,
        "weight": one.weight,
        "part_of": one.part_of,
        "mine": _said(mine) if mine else None,
        "machine": [_label(label, [o.value for o in one.options]) for label in machine.get(one.criterion_id, ())],
    }


def _predicted(board: Board, case: QueuedCase) -> dict[str, Any] | None:
    """The calibrated score in words; None for a case without one."""
    predicted = board.predictions.get(case.response_id)
    return as_words(predicted, board.scales[case.rubric_id]) if predicted else None


def _notes(reviews: Reviews, case: QueuedCase, rater: str, sees_people: bool) -> list[dict[str, Any]]:
    """Words to the student that stand, in their order: the reviewer's own, and those of others where these are seen."""
    notes = reviews.state(case).notes
    return [
        {"act_id": note.act_id, "rater": note.rater_id, "text": note.comment}
        for note in notes
        if sees_people or note.rater_id == rater
    ]


def _label(label: MachineLabel, values: list[str]) -> dict[str, Any]:
    return {
        "rater": label.rater,
        "value": None if label.level is None else values[label.level],
        "probability": label.probability,
        "reason": UNSCORED_REASONS[label.reason] if label.reason else None,
        "stated": None if label.stated is None or label.stated >= len(values) else values[label.stated],
        "action": None if label.action == "none" else ACTIONS[label.action],
        "quotes": [
            {
                "text": quote.text,
                "note": None if quote.status == "verified" else QUOTES.get(quote.status),
                "holds": quote.status in STANDING,
            }
            for quote in label.quotes
        ],
    }


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
    evidence = [
        Highlight(quote.start, quote.end, criterion)
        for criterion, labels in machine.items()
        for label in labels
        for quote in label.quotes
        if criterion is not None and quote.status in STANDING and quote.start is not None and quote.end is not None
    ]
    inside = joined(one for one in evidence if 0 <= one.start < one.end <= len(text))
    return [
        {"text": piece.text, "of": piece.labels, "starts": piece.starts, "ends": piece.ends}
        for piece in pieces(text, inside)
    ]
