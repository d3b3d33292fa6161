"""What reviewers ask of a board and store in its ledger, several of them at once."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Literal

from pydantic import Field, StrictInt

from tasks.contracts.schema import Frozen
from tasks.review.board import Board, QueuedCase
from tasks.review.ledger import Act, Ledger, Stored
from tasks.review.predicted import Follow, as_words, without_score
from tasks.review.reviews import NotAllowed, Reviews
from tasks.review.view import listed, opened


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
            self._refuse_levels(case, levels)
        following = self._follow(case.response_id, levels)
        if following.predicted is None:
            return without_score(following.problem or "")
        return as_words(following.predicted, self._reviews.board.scales[case.rubric_id])

    def _refuse_levels(self, case: QueuedCase, levels: Mapping[str, int]) -> None:
        ballots = self._reviews.ballots(case)
        tops = {ballot.criterion_id: len(ballot.options) - 1 for ballot in ballots if ballot.criterion_id is not None}
        for criterion, level in levels.items():
            if not 0 <= level <= tops.get(criterion, -1):
                raise NotAllowed(422, "there is no such level")

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
                if not _is_same(earlier, act):
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


def _is_same(stored: Stored, act: Act) -> bool:
    """Whether a stored act is this one; what was added here when it came does not count."""
    names = [field.name for field in fields(Act) if field.name != "blind"]
    return all(getattr(stored, name) == getattr(act, name) for name in names)
