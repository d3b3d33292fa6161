"""What one reviewer may see of a case and do to it, from all that people did so far. Pure but for its memory.

Whoever acts first on a case sees the machine's work. Everybody after that is blind: no votes, no evidence, no grader
and no reason for the doubt until they have submitted the case themselves. A board that shows less (`Board.shows`) hides
the verdict, or all of it, from the first, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple
from uuid import UUID, uuid5

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.people.review.board import Board, QueuedCase
from rubricflow.tasks.people.review.ledger import CANNOT_BE_JUDGED, Act, Stored
from rubricflow.tasks.people.review.settle import live_acts, outcomes, valid_acts

_SUBMITTED = "you have submitted this case: take the submission back first"


class NotAllowed(Exception):
    """An act or a request that is not allowed now, with the HTTP status for it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class ReviewerCase:
    votes: Mapping[str | None, Stored]
    """Criterion → the vote that stands, if what was voted on is unchanged."""
    submission: Stored | None
    """The submission that stands: of a vote for everything that needs one, none of them later."""


@dataclass(frozen=True)
class CaseState:
    """What people have come to on a case; the criterion None stands for its score."""

    reviewers: Mapping[str, ReviewerCase]
    """Rater → their part."""
    counted: Mapping[str, Mapping[str | None, Stored]]
    """Rater → criterion → the vote that counts, see `valid_acts`."""
    settled: Mapping[str | None, Stored]
    """Criterion → the adjudication that stands."""
    apart: tuple[str | None, ...]
    """The criteria on which the votes that count differ with no majority, and which nobody adjudicated; of a score
    only itself: levels behind it stay open where people differ on them."""
    notes: tuple[Stored, ...]
    """Words to the student that stand, in their order; the last one counts."""


class Visibility(NamedTuple):
    """What a reviewer may see of a case."""

    machine: bool
    """Levels, evidence, grader, and why the case waits."""
    people: bool
    """The votes of others who submitted."""


class Reviews:
    """The acts on a board's cases, and who was shown what since the start."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.number = 0
        """Of the last act added."""
        self._by_case: dict[str, list[Stored]] = defaultdict(list)
        self._by_id: dict[str, Stored] = {}
        self._ballots: dict[str, list[Record]] = {}
        self._states: dict[str, CaseState] = {}
        self._shown: set[tuple[str, str]] = set()

    def add(self, acts: Iterable[Stored]) -> None:
        """Acts in their order; those already known are passed over."""
        for stored in acts:
            if stored.number > self.number:
                self.number = stored.number
                self._by_id[stored.act_id] = stored
                self._by_case[stored.response_id].append(stored)
                self._states.pop(stored.response_id, None)

    def by_id(self, act_id: str) -> Stored | None:
        return self._by_id.get(act_id)

    def ballots(self, case: QueuedCase) -> list[Record]:
        """What is voted on in a case, see `Board.ballots`."""
        if case.response_id not in self._ballots:
            self._ballots[case.response_id] = self.board.ballots(case)
        return self._ballots[case.response_id]

    def needed(self, case: QueuedCase) -> list[str | None]:
        """The criteria of a case that everybody votes on."""
        return [ballot["criterion_id"] for ballot in self.ballots(case) if ballot["needed"]]

    def live(self, response_id: str) -> list[Stored]:
        """The acts on a case that were not taken back, in order; undos themselves are not among them."""
        return live_acts(self._by_case.get(response_id, []))[0]

    def state(self, case: QueuedCase) -> CaseState:
        """What people have come to on a case, by the acts so far."""
        if case.response_id in self._states:
            return self._states[case.response_id]
        name = case.response_id
        needed = self.needed(case)
        current = {(name, ballot["criterion_id"]): ballot["digest"] for ballot in self.ballots(case)}
        valid = valid_acts(self._by_case.get(name, []), current, {name: case.marked_at})
        counted: dict[str, dict[str | None, Stored]] = defaultdict(dict)
        for vote in valid.votes:
            counted[vote.rater_id][vote.criterion_id] = vote
        votes: dict[str, dict[str | None, Stored]] = defaultdict(dict)
        submissions = {}
        for act in self.live(name):
            # What was submitted before the last mark decides nothing any more: it can be voted on and submitted again.
            if act.kind == "submit" and act.number > case.marked_at:
                submissions[act.rater_id] = act
            elif act.kind == "vote":
                submissions.pop(act.rater_id, None)
                if current.get(act.subject) == act.digest:
                    votes[act.rater_id][act.criterion_id] = act
        reviewers = {}
        for rater, cast in votes.items():
            is_complete = cast.keys() >= set(needed)
            reviewers[rater] = ReviewerCase(cast, submissions.get(rater) if is_complete else None)
        settled = {act.criterion_id: act for act in valid.adjudications}
        left_open = {subject for subject, outcome in outcomes(valid).items() if outcome.settled_by == "open"}
        apart = tuple(criterion for criterion in needed if (name, criterion) in left_open)
        self._states[name] = CaseState(reviewers, counted, settled, apart, valid.notes)
        return self._states[name]

    def unanswered(self) -> list[QueuedCase]:
        """The cases that people are still asked about: something is not voted on by anybody who submitted, or the votes
        differ with no majority."""
        left = []
        for case in self.board.cases:
            state = self.state(case)
            said = state.settled.keys() | {criterion for votes in state.counted.values() for criterion in votes}
            if not case.marked and (state.apart or not said >= set(self.needed(case))):
                left.append(case)
        return left

    def part(self, case: QueuedCase, rater: str) -> ReviewerCase:
        return self.state(case).reviewers.get(rater, ReviewerCase({}, None))

    def is_second(self, case: QueuedCase, rater: str) -> bool:
        """Whether somebody else was first; what was taken back counts, so that this never changes later."""
        acts = self._by_case.get(case.response_id, [])
        raters = (act.rater_id for act in acts if act.kind not in ("adjudicate", "note"))
        return next(raters, rater) != rater

    def may_adjudicate(self, case: QueuedCase, rater: str) -> bool:
        """Whoever submitted, or has no vote of their own in the case."""
        part = self.part(case, rater)
        return part.submission is not None or not part.votes

    def visibility(self, case: QueuedCase, rater: str, adjudicating: bool = False) -> Visibility:
        """What the rater may see; NotAllowed where they ask to adjudicate and may not."""
        if adjudicating:
            if not self.may_adjudicate(case, rater):
                raise NotAllowed(403, "you have votes here: submit them first")
            state = self.state(case)
            if state.apart or state.settled:
                return Visibility(True, True)
        submitted = self.part(case, rater).submission is not None
        is_first = self.board.shows == "verdict" and not self.is_second(case, rater)
        return Visibility(submitted or is_first, submitted)

    def show(self, case: QueuedCase, rater: str) -> None:
        """Remembers that the rater was shown more than the response: later votes are not blind."""
        self._shown.add((rater, case.response_id))

    def was_shown(self, case: QueuedCase, rater: str) -> bool:
        """Whether the rater has seen machine or votes: as far as shown since the start, and by their acts."""
        pair = (rater, case.response_id)
        return pair in self._shown or pair in informed(self._by_case.get(case.response_id, []))

    def is_blind(self, case: QueuedCase, rater: str) -> bool:
        """Whether a vote of the rater's is blind now: to an explanation, too."""
        hides = self.board.shows == "nothing" or (self.board.shows == "verdict" and self.is_second(case, rater))
        return hides and not self.was_shown(case, rater)

    def conflicts(self, case: QueuedCase, rater: str, adjudicating: bool) -> int:
        """How many criteria wait for an adjudicator, as far as the rater may know; 0 for who votes blind.

        Who asks in order to adjudicate sees it of every case without votes of their own, and is not blind after that
        where several others' votes count.
        """
        if not self.may_adjudicate(case, rater):
            return 0
        state = self.state(case)
        if adjudicating and len(state.counted) > 1:
            self.show(case, rater)
        return len(state.apart) if self.was_shown(case, rater) else 0

    def case(self, act: Act) -> QueuedCase:
        """What an act is about; NotAllowed where it is not on the board."""
        place = self.board.places.get(act.response_id)
        if place is not None:
            case = self.board.cases[place]
            # Levels of criteria are a part of a score.
            is_level = act.criterion_id is not None and act.subject_kind == "label"
            if act.subject_kind == case.subject_kind or (is_level and case.subject_kind == "score"):
                return case
        raise NotAllowed(404, "this case is not on the board")

    def alike(self, case: QueuedCase) -> list[QueuedCase]:
        """The cases that a submission of this one decides, too: those that say the same, and of which nobody has said
        anything yet."""
        others = self.board.alike.get(case.response_id, ())
        return [other for other in others if other is not case and not self.state(other).reviewers]

    def copies(self, case: QueuedCase, submission: Act) -> list[Act]:
        """A reviewer's votes and note on a case, submitted, for the cases that are alike; levels only of the same
        question. Their ids follow from the submission's."""
        part = self.part(case, submission.rater_id)
        copies = []
        notes = [note for note in self.state(case).notes if note.rater_id == submission.rater_id]
        for other in self.alike(case):
            digests = {ballot["criterion_id"]: ballot["digest"] for ballot in self.ballots(other)}
            levels = other.item_id == case.item_id
            votes = [vote for criterion, vote in part.votes.items() if criterion is None or levels]
            for act in (*votes, *notes[-1:], submission):
                given = {one.name: getattr(act, one.name) for one in fields(Act)}
                given |= {"response_id": other.response_id, "act_id": copy_id(submission.act_id, other, act)}
                if act.kind != "submit":
                    given["digest"] = digests[act.criterion_id]
                copies.append(Act(**given))
        return copies

    def undone_copies(self, case: QueuedCase, undo: Act) -> list[Act]:
        """Where an undo takes a submission back: the same for what was submitted with it and still stands."""
        undos = []
        for other in self.board.alike.get(case.response_id, ()):
            for act in self.live(other.response_id) if other is not case else ():
                if act.act_id == copy_id(str(undo.undoes), other, act):
                    name = copy_id(undo.act_id, other, act)
                    undos.append(replace(undo, act_id=name, response_id=other.response_id, undoes=act.act_id))
        return undos[::-1]  # the submission before its votes

    def check(self, case: QueuedCase, act: Act) -> None:
        """NotAllowed for an act on a case that must not be stored."""
        part = self.part(case, act.rater_id)
        if act.kind in ("vote", "adjudicate", "note"):
            ballot = next((one for one in self.ballots(case) if one["criterion_id"] == act.criterion_id), None)
            if ballot is None:
                raise NotAllowed(404, "this criterion is not asked")
            if ballot["digest"] != act.digest:
                raise NotAllowed(409, "the response or the criterion has changed since you opened it")
            options = {CANNOT_BE_JUDGED, *(option["value"] for option in ballot["options"])}
            if act.kind != "note" and act.value not in options:
                raise NotAllowed(422, "there is no such level")
        if act.kind == "vote" and part.submission:
            raise NotAllowed(409, _SUBMITTED)
        if act.kind == "undo":
            gone = self.by_id(act.undoes or "")
            if gone is None or gone.rater_id != act.rater_id or gone.response_id != case.response_id:
                raise NotAllowed(404, "this is no act of yours on this case")
            if gone not in self.live(case.response_id):
                raise NotAllowed(409, "this was taken back already")
            if gone.kind == "vote" and part.submission:
                raise NotAllowed(409, _SUBMITTED)
        elif act.kind == "submit":
            if part.submission:
                raise NotAllowed(409, "you have submitted this case")
            missing = [criterion or "the score" for criterion in self.needed(case) if criterion not in part.votes]
            if missing:
                raise NotAllowed(409, f"no vote yet on {', '.join(missing)}")
            unjudged = [(name, vote) for name, vote in part.votes.items() if vote.value == CANNOT_BE_JUDGED]
            silent = [name or "the score" for name, vote in unjudged if not (vote.comment or "").strip()]
            if silent:
                raise NotAllowed(409, f"a comment must say why it cannot be judged: {', '.join(silent)}")
        elif act.kind == "adjudicate":
            if not self.may_adjudicate(case, act.rater_id):
                raise NotAllowed(403, "you have votes here: submit them first")
            if not self.was_shown(case, act.rater_id):
                raise NotAllowed(403, "open this case to adjudicate it")
            if act.criterion_id not in self.state(case).apart:
                raise NotAllowed(409, "there is nothing to adjudicate")
            if not (act.comment or "").strip():
                raise NotAllowed(422, "a comment must say how it was settled")


def copy_id(of: str, case: QueuedCase, act: Act) -> str:
    """The id of what an act comes to on another case: always the same, so that it is stored once."""
    return str(uuid5(UUID(of), "\n".join([case.response_id, act.kind, act.criterion_id or ""])))


def informed(acts: Iterable[Stored]) -> set[tuple[str, str]]:
    """(rater, response) where somebody has seen machine or votes, by their acts: whoever submits is shown both."""
    telling = [act for act in acts if act.blind is False or act.kind in ("submit", "adjudicate")]
    return {(act.rater_id, act.response_id) for act in telling}


def with_blindness(acts: Iterable[Act], stored: Sequence[Stored]) -> list[Act]:
    """Acts from outside the page, of which none is blind where the page has shown its rater more, by the acts that are
    stored."""
    shown = informed(stored)
    blind = {act.act_id: act.blind for act in stored}
    fresh = ((act, False if (act.rater_id, act.response_id) in shown else act.blind) for act in acts)
    return [replace(act, blind=blind.get(act.act_id, is_blind)) for act, is_blind in fresh]
