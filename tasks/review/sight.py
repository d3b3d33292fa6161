"""What one reviewer may see of a case and do to it, from all that people did so far. Pure but for its memory.

Whoever acts first on a case sees the machine's work. Everybody after that is blind: no votes, no evidence, no grader
and no reason for the doubt until they have submitted the case themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tasks.review.board import Ballot, Board, Case, Key
from tasks.review.ledger import CANNOT_BE_JUDGED, Act, Stored


class Refused(Exception):
    """An act or a look that is not allowed now; status is the HTTP status that says so."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass(frozen=True)
class Hand:
    """One reviewer's part in a case."""

    votes: Mapping[str | None, Stored]
    """Criterion → the vote that stands, if what was voted on is unchanged."""
    submission: Stored | None
    """The submission that stands: of a vote for everything, none of them later."""


@dataclass(frozen=True)
class State:
    """What people have come to on a case; the criterion None stands for its score."""

    hands: Mapping[str, Hand]
    """Rater → their part."""
    settled: Mapping[str | None, Stored]
    """Criterion → the adjudication that stands."""
    apart: tuple[str | None, ...]
    """The criteria on which submitted votes differ with no majority, and which nobody adjudicated."""


_NOTHING = Hand({}, None)


class Sight(NamedTuple):
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
        """Of the last act taken."""
        self._by_case: dict[Key, list[Stored]] = defaultdict(list)
        self._by_id: dict[str, Stored] = {}
        self._undone: set[str] = set()
        self._ballots: dict[Key, tuple[Ballot, ...]] = {}
        self._states: dict[Key, State] = {}
        self._shown: set[tuple[str, Key]] = set()

    def take(self, acts: Iterable[Stored]) -> None:
        """Acts in their order; those already known are passed over."""
        for stored in acts:
            if stored.number <= self.number:
                continue
            self.number = stored.number
            self._by_id[stored.act_id] = stored
            self._by_case[key_of(stored)].append(stored)
            self._states.pop(key_of(stored), None)
            if stored.kind == "undo" and stored.undoes:
                self._undone.add(stored.undoes)

    def known(self, act_id: str) -> Stored | None:
        """The act of that id, if there is one."""
        return self._by_id.get(act_id)

    def ballots(self, case: Case) -> tuple[Ballot, ...]:
        """What is voted on in a case."""
        if case.key not in self._ballots:
            self._ballots[case.key] = self.board.ballots(case)
        return self._ballots[case.key]

    def live(self, key: Key) -> list[Stored]:
        """The acts on a case that were not taken back, in order; undoings themselves are not among them."""
        acts = self._by_case.get(key, [])
        return [stored for stored in acts if stored.kind != "undo" and stored.act_id not in self._undone]

    def state(self, case: Case) -> State:
        """What people have come to on a case, by the acts so far."""
        if case.key not in self._states:
            self._states[case.key] = _state(self.live(case.key), self.ballots(case))
        return self._states[case.key]

    def hand(self, case: Case, rater: str) -> Hand:
        """One reviewer's part."""
        return self.state(case).hands.get(rater, _NOTHING)

    def is_second(self, case: Case, rater: str) -> bool:
        """Whether somebody else was first; what was taken back counts, so that nothing turns round later."""
        first = next((s.rater_id for s in self._by_case.get(case.key, []) if s.kind != "adjudicate"), rater)
        return case.second or first != rater

    def may_adjudicate(self, case: Case, rater: str) -> bool:
        """Whoever submitted, or has no vote of their own in the case."""
        hand = self.hand(case, rater)
        return hand.submission is not None or not hand.votes

    def sight(self, case: Case, rater: str, adjudicating: bool = False) -> Sight:
        """What the rater may see; Refused where they ask to adjudicate and may not."""
        if adjudicating:
            if not self.may_adjudicate(case, rater):
                raise Refused(403, "you have votes here: submit them first")
            state = self.state(case)
            if state.apart or state.settled:
                return Sight(True, True)
        submitted = self.hand(case, rater).submission is not None
        return Sight(submitted or not self.is_second(case, rater), submitted)

    def show(self, case: Case, rater: str, sight: Sight) -> None:
        """Remembers that more than the response was shown: later votes are not blind."""
        if any(sight):
            self._shown.add((rater, case.key))

    def is_blind(self, case: Case, rater: str) -> bool:
        """Whether the rater has seen neither machine nor votes: as far as shown since the start, and as acts tell."""
        told = any(
            s.blind is False or s.kind in ("submit", "adjudicate")
            for s in self._by_case.get(case.key, [])
            if s.rater_id == rater
        )
        return not told and (rater, case.key) not in self._shown and self.is_second(case, rater)

    def check(self, act: Act) -> None:
        """Refused for an act that must not be stored."""
        place = self.board.places.get(key_of(act))
        if place is None:
            raise Refused(404, "this case is not on the board")
        case = self.board.cases[place]
        {"vote": self._vote, "undo": self._undo, "submit": self._submit, "adjudicate": self._adjudicate}[act.kind](
            case, act
        )

    def _vote(self, case: Case, act: Act) -> None:
        self._answers(case, act)
        if self.hand(case, act.rater_id).submission:
            raise Refused(409, "you have submitted this case: take the submission back first")

    def _answers(self, case: Case, act: Act) -> None:
        one = next((one for one in self.ballots(case) if one.criterion_id == act.criterion_id), None)
        if one is None:
            raise Refused(404, "this criterion is not asked")
        if one.digest != act.digest:
            raise Refused(409, "the response or the criterion has changed since you opened it")
        if act.value not in {CANNOT_BE_JUDGED, *(option.value for option in one.options)}:
            raise Refused(422, "there is no such level")

    def _undo(self, case: Case, act: Act) -> None:
        gone = self.known(act.undoes or "")
        if gone is None or gone.rater_id != act.rater_id or key_of(gone) != case.key:
            raise Refused(404, "this is no act of yours on this case")
        if gone.kind == "undo" or gone.act_id in self._undone:
            raise Refused(409, "this was taken back already")
        if gone.kind == "vote" and self.hand(case, act.rater_id).submission:
            raise Refused(409, "you have submitted this case: take the submission back first")

    def _submit(self, case: Case, act: Act) -> None:
        hand = self.hand(case, act.rater_id)
        if hand.submission:
            raise Refused(409, "you have submitted this case")
        missing = [one.criterion_id or "the score" for one in self.ballots(case) if one.criterion_id not in hand.votes]
        if missing:
            raise Refused(409, f"no vote yet on {', '.join(missing)}")
        silent = [
            criterion or "the score"
            for criterion, stored in hand.votes.items()
            if stored.value == CANNOT_BE_JUDGED and not (stored.comment or "").strip()
        ]
        if silent:
            raise Refused(409, f"a comment must say why it cannot be judged: {', '.join(silent)}")

    def _adjudicate(self, case: Case, act: Act) -> None:
        self._answers(case, act)
        if not self.may_adjudicate(case, act.rater_id):
            raise Refused(403, "you have votes here: submit them first")
        if act.criterion_id not in self.state(case).apart:
            raise Refused(409, "there is nothing to adjudicate")
        if not (act.comment or "").strip():
            raise Refused(422, "a comment must say how it was settled")


def _state(live: list[Stored], ballots: tuple[Ballot, ...]) -> State:
    """live: the acts on a case that were not taken back, in their order."""
    current = {ballot.criterion_id: ballot.digest for ballot in ballots}
    votes: dict[str, dict[str | None, Stored]] = defaultdict(dict)
    submissions: dict[str, Stored] = {}
    settled: dict[str | None, Stored] = {}
    for act in live:
        holds = current.get(act.criterion_id) == act.digest
        if act.kind == "submit":
            submissions[act.rater_id] = act
        elif act.kind == "adjudicate" and holds:
            settled[act.criterion_id] = act
        elif act.kind == "vote":
            submissions.pop(act.rater_id, None)
            if holds:
                votes[act.rater_id][act.criterion_id] = act
    hands = {
        rater: Hand(cast, submissions.get(rater) if len(cast) == len(ballots) else None)
        for rater, cast in votes.items()
    }
    return State(hands, settled, tuple(c for c in _apart(hands, ballots) if c not in settled))


def _apart(hands: Mapping[str, Hand], ballots: tuple[Ballot, ...]) -> list[str | None]:
    """What submitted votes differ on, none of them with more than half."""
    done = [hand for hand in hands.values() if hand.submission]
    if len(done) < 2:
        return []
    values = {b.criterion_id: Counter(hand.votes[b.criterion_id].value for hand in done) for b in ballots}
    return [criterion for criterion, counted in values.items() if 2 * max(counted.values()) <= len(done)]


def key_of(act: Act) -> Key:
    """The case that an act is about."""
    return Key(act.subject_kind, act.response_id)
