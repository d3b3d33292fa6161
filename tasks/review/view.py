"""What the page is told, as plain values for JSON: the list of cases, and one case as one reviewer may see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from tasks.contracts.tables.judging import ACTIONS, QUOTES, STANDING, UNSCORED_REASONS
from tasks.review.board import Ballot, Board, MachineLabel, QueuedCase, Quote
from tasks.review.ledger import Stored
from tasks.review.predicted import as_words
from tasks.review.reviews import Hand, Reviews
from tasks.text.highlight import Highlight, joined, pieces

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
        "why": case.why if shown else None,
        "second": reviews.is_second(case, rater),
        "asked": len(needed),
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
    from_machine: dict[str, Any] = {"why": None, "predicted": None, "grader": None}
    if sight.machine:
        from_machine = {"why": case.why, "predicted": _predicted(board, case), "grader": _grader(board, case)}
    return {
        **_material(board, case),
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


def _material(board: Board, case: QueuedCase) -> dict[str, Any]:
    """What everybody may see of a case beside the response itself."""
    return {
        "subject_kind": case.subject_kind,
        "response_id": case.response_id,
        "student": case.student,
        "question": case.question,
        "rubric": board.rubric_texts.get(case.rubric_id, ""),
        "reference": case.reference,
        "context": case.context,
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
