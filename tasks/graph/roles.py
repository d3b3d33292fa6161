"""Asking for the roles of criteria (GEAR, appendix A.2): one call for a rubric, more for a long one.

Contract: `{"roles": {criterion id: role}}`. Roles that are missing or no roles are asked for again, and they alone;
what is there stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, cast

from tasks.contracts.bundle import Criterion
from tasks.contracts.graph import Role
from tasks.graph.annotator import Annotator
from tasks.graph.prompt import PROMPTS, instructions, lines, wording
from tasks.graph.subject import GraphSubject, roles_by_sign
from tasks.llm.amend import ask_amending
from tasks.llm.ask import Attempt, Checked, as_call
from tasks.llm.extract import extract
from tasks.llm.request import Message, Reply, Request
from tasks.llm.schema import record

PER_CALL = 40
"""Criteria in one call."""
_TOKENS, _TOKENS_PER_ROLE = 128, 48


@dataclass(frozen=True)
class RoleQuestion:
    """The criteria whose roles one request asks for; its `data`."""

    subject: GraphSubject
    ids: tuple[str, ...]

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """They themselves."""
        return tuple(self.subject.by_id[name] for name in self.ids)


@dataclass
class Roled:
    """The roles that a rubric's annotator gave, and its calls as rows of `Call`."""

    roles: dict[str, Role] = field(default_factory=dict)
    calls: list[dict[str, Any]] = field(default_factory=list)


def ask_roles(subjects: Sequence[GraphSubject], annotator: Annotator) -> dict[str, Roled]:
    """Rubric → the roles of its criteria, as far as there is a usable one within the budget."""
    roles_of_rubric = {subject.rubric_id: Roled() for subject in subjects}
    requests = role_requests(subjects, annotator)

    def demand(first: Request, history: tuple[Attempt[dict[str, Role]], ...]) -> tuple[str, Request] | None:
        return _missing(first, history, annotator)

    for answered in ask_amending(requests, annotator.backend, annotator.replies, check, demand):
        mine = roles_of_rubric[answered.request.subject]
        mine.roles |= _given(answered.attempts)
        mine.calls += map(as_call, answered.attempts)
    annotator.tell(f"role: {len(requests):,} of {len(requests):,} calls")
    return roles_of_rubric


def role_requests(subjects: Sequence[GraphSubject], annotator: Annotator) -> list[Request]:
    """The first requests for the roles of rubrics."""
    questions = chain.from_iterable(map(_parts, subjects))
    return [request(question, annotator) for question in questions]


def request(question: RoleQuestion, annotator: Annotator) -> Request:
    """The first request for some criteria of a rubric."""
    listed = lines({"id": c.id, "points": c.weight, "text": wording(c)} for c in question.criteria)
    messages = (
        Message("system", instructions("role", annotator.plan.profile, question.subject)),
        Message("user", PROMPTS.fill("role_list", {"criteria": listed})),
    )
    return _as_request(messages, question, annotator)


def check(request: Request, reply: Reply) -> Checked[dict[str, Role]]:
    """The roles of a reply that can be used, with a violation for each one that cannot."""
    question: RoleQuestion = request.data
    artifact, note = extract(reply.text, request.keys)
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    stated = artifact["roles"]
    if not isinstance(stated, dict):
        return Checked(None, ("malformed: 'roles' is no object",))
    roles = {criterion.id: _as_role(stated.get(criterion.id), criterion) for criterion in question.criteria}
    missing = [f"'{name[:80]}': {_said(stated, name)}" for name, role in roles.items() if role is None]
    unknown = [f"'{name[:80]}': no criterion that was asked about" for name in stated if name not in roles]
    return Checked({name: role for name, role in roles.items() if role}, (*missing, *unknown))


def _missing(
    first: Request, history: tuple[Attempt[dict[str, Role]], ...], annotator: Annotator
) -> tuple[str, Request] | None:
    """The demand for the roles still missing; None where there is none."""
    question, roles = cast(RoleQuestion, first.data), _given(history)
    missing = tuple(name for name in question.ids if name not in roles)
    if not missing:
        return None
    words = PROMPTS.fill("role_amend", {"criteria": lines({"id": name} for name in missing)})
    return words, _as_request(first.messages, RoleQuestion(question.subject, missing), annotator)


def _parts(subject: GraphSubject) -> Iterator[RoleQuestion]:
    """The criteria in parts of even size."""
    count = -(-len(subject.ids) // PER_CALL)
    size = -(-len(subject.ids) // count)
    for start in range(0, len(subject.ids), size):
        yield RoleQuestion(subject, subject.ids[start : start + size])


def _as_request(messages: tuple[Message, ...], question: RoleQuestion, annotator: Annotator) -> Request:
    roles = {
        criterion.id: {"type": "string", "enum": list(roles_by_sign(criterion))} for criterion in question.criteria
    }
    return Request(
        messages=messages,
        role="role",
        subject=question.subject.rubric_id,
        keys=frozenset({"roles"}),
        schema=record({"roles": record(roles)}) if annotator.structured else None,
        sampling=annotator.sampling(_TOKENS + _TOKENS_PER_ROLE * len(question.ids)),
        data=question,
        data_digest=annotator.data_digest(question.subject),
    )


def _given(attempts: Iterable[Attempt[dict[str, Role]]]) -> dict[str, Role]:
    """What the attempts gave together."""
    roles = dict[str, Role]()
    for attempt in attempts:
        roles |= attempt.checked.value or {}
    return roles


def _as_role(stated: Any, criterion: Criterion) -> Role | None:
    name = stated.strip().lower() if isinstance(stated, str) else None
    return next((role for role in roles_by_sign(criterion) if role == name), None)


def _said(stated: Mapping[str, Any], name: str) -> str:
    return f"{stated[name]!r:.40} is no role that it can have" if name in stated else "no role"
