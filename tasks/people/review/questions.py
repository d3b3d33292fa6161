"""What people are asked outside the page, and their answers as acts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from rubricflow.tasks.core.store.cells import quoted
from rubricflow.tasks.people.review.ledger import CANNOT_BE_JUDGED, Act
from rubricflow.tasks.people.review.subject import Subject, digest

Case = tuple[str, Literal["label", "score"]]
"""A response, and what is asked of it: levels of its concepts, or its score."""
_ACTS = uuid.UUID("6f0b1c58-6a53-4f0e-9d0c-0d2f6a7b9e41")


@dataclass(frozen=True)
class ReviewQuestion:
    """One question to a person: the level of one concept of a queued response, or its score."""

    response_id: str
    """The response."""
    criterion_id: str | None
    """The concept; None for the score."""
    rank: int
    """The response's place in the queue."""
    question: str
    """The question that the response answers."""
    response: str
    """Its text."""
    reference: str | None
    """A model answer."""
    concept: str
    """What is looked for; '' for the score."""
    levels: tuple[str, ...]
    """The anchors, level 0 first; the scale's scores as text for the score."""

    @property
    def subject(self) -> Subject:
        """What a vote is on."""
        return self.response_id, self.criterion_id

    @property
    def subject_kind(self) -> Literal["label", "score"]:
        """What a vote says."""
        return "score" if self.criterion_id is None else "label"

    @property
    def case(self) -> Case:
        """What it is a part of: people answer all or nothing of a case."""
        return self.response_id, self.subject_kind

    @property
    def choices(self) -> dict[str, str]:
        """What a vote may say, but for 'x' → in words."""
        if self.criterion_id is None:
            return {score: score for score in self.levels}
        return {str(level): f"{level} = {anchor}" for level, anchor in enumerate(self.levels)}

    @cached_property
    def digest(self) -> str:
        """Of what is voted on."""
        return digest(self.response, self.concept, self.levels)


@dataclass(frozen=True)
class ReviewAnswer:
    """What a person said to one question."""

    value: str
    """A choice, or 'x'."""
    comment: str | None
    digest: str
    """Of what they were shown, which may have changed since."""


def cases_of(questions: Iterable[ReviewQuestion]) -> dict[Case, dict[Subject, ReviewQuestion]]:
    """Case → its questions by subject."""
    cases: dict[Case, dict[Subject, ReviewQuestion]] = {}
    for question in questions:
        cases.setdefault(question.case, {})[question.subject] = question
    return cases


def unanswered(case: Mapping[Subject, ReviewQuestion], answers: Mapping[Subject, ReviewAnswer]) -> str:
    """The concepts of a case without an answer, in words; '' for none."""
    return ", ".join(quoted(criterion) for response, criterion in case if (response, criterion) not in answers)


def fault(question: ReviewQuestion, value: str, comment: str | None) -> str | None:
    """The rule that an answer breaks; None where it is fine."""
    if value not in (*question.choices, CANNOT_BE_JUDGED):
        return f"{quoted(value)} is none of {', '.join(question.choices)} and {CANNOT_BE_JUDGED}"
    if value == CANNOT_BE_JUDGED and not (comment or "").strip():
        return f"{CANNOT_BE_JUDGED} needs a comment that says why it cannot be judged"
    return None


def acts_of(
    study: str,
    rater_id: str,
    answers: Mapping[Subject, ReviewAnswer],
    *,
    blind: bool | None,
    origin: Sequence[str] = (),
) -> list[Act]:
    """The answers of a person on one response as votes and their submit.

    The acts' ids come from their content and from `origin`, whatever else tells one answer from the next: the same
    answers are the same acts however often they are read, so that the ledger adds nothing.
    """

    def vote(subject: Subject, answer: ReviewAnswer) -> Act:
        response_id, criterion_id = subject
        content = [study, rater_id, *subject, answer.value, answer.comment, answer.digest, *origin]
        return Act(
            act_id=_id(content),
            study=study,
            kind="vote",
            subject_kind="score" if criterion_id is None else "label",
            response_id=response_id,
            criterion_id=criterion_id,
            value=answer.value,
            rater_id=rater_id,
            comment=answer.comment,
            blind=blind,
            digest=answer.digest,
        )

    votes = [vote(subject, answer) for subject, answer in answers.items()]
    submit = Act(
        act_id=_id(sorted(vote.act_id for vote in votes)),
        study=study,
        kind="submit",
        subject_kind=votes[0].subject_kind,
        response_id=votes[0].response_id,
        criterion_id=None,
        value=None,
        rater_id=rater_id,
        blind=blind,
    )
    return [*votes, submit]


def _id(content: Sequence[str | None]) -> str:
    return str(uuid.uuid5(_ACTS, json.dumps(content)))
