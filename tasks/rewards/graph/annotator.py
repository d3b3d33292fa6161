"""Who annotates, and how it is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

from rubricflow.tasks.core.contracts.bundle import Criterion
from rubricflow.tasks.core.contracts.graph import Role
from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.llm.ask import Attempt, Checked, as_call, ask_amending
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Message, Reply, Request
from rubricflow.tasks.core.llm.schema import compact, record
from rubricflow.tasks.core.text.templates import Templates
from rubricflow.tasks.rewards.graph.subject import GraphSubject, roles_by_sign

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


PROMPTS = Templates(Path(__file__).with_name("prompts"))
_QUERY = (4_000, 1_000)
"""Characters of a question, and of its material, that are shown from the beginning and from the end."""
_CRITERION = (1_200, 300)
"""The same of a criterion."""
_BREAKS = {ord(c): f"\\u{ord(c):04x}" for c in "\x85\u2028\u2029"}
"""What breaks a line and JSON leaves as it is."""


_MOST_PAIRS = 2_000


def silent(line: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class Annotator:
    """A backend with its reply store and the study's plan."""

    backend: Backend
    replies: Replies
    plan: Graphs
    tell: Callable[[str], None] = silent
    """Says to a person how far it is."""

    @property
    def is_planned(self) -> bool:
        """Whether to log the planned cost first."""
        return self.backend.reads_prose and self.tell is not silent

    @property
    def structured(self) -> bool:
        """Whether the model is held to the contract's JSON Schema; rules of thumb keep it anyway."""
        return self.backend.reads_prose and (self.plan.engine is None or self.plan.engine.structured)

    @property
    def pairs_per_call(self) -> int:
        """Pairs of a rubric that one request asks about: who reads no prose does not lose the thread."""
        return self.plan.pairs_per_call if self.backend.reads_prose else _MOST_PAIRS

    def sampling(self, tokens: int) -> Sampling:
        """How replies are drawn: at least so many tokens long."""
        given = self.plan.sampling
        return given.model_copy(update={"max_tokens": max(given.longest, tokens)})

    def data_digest(self, subject: GraphSubject, roles: Mapping[str, Role] | None = None) -> str:
        """Stands for a request's plain data in its digest, where the backend answers by it: its answer about some
        criteria depends on the whole rubric, which the messages do not show."""
        return "" if self.backend.reads_prose else subject.digest({"roles": roles})

    @property
    def settings(self) -> dict[str, Any]:
        """What of it can change a graph."""
        return settings_of(self.plan, self.backend.model, self.backend.reads_prose)


def settings_of(plan: Graphs, model: str, reads_prose: bool) -> dict[str, Any]:
    """What of a plan can change the graphs that a model makes; one that reads no prose is not asked in batches and
    draws nothing."""
    who = {"annotator": model, "profile": plan.profile}
    if not reads_prose:
        return who
    return who | {
        "pairs_per_call": plan.pairs_per_call,
        "sampling": plan.sampling.model_dump(),
        "structured": plan.engine is None or plan.engine.structured,
    }


# Prompts of the annotator: templates in prompts/*.txt. The query and the criteria are data inside fences that they
# cannot close, whatever they say.


def instructions(name: str, profile: str, subject: GraphSubject) -> str:
    """The part that all requests of a kind about one rubric share; name: of the template."""
    query = f"Question:\n{_cut(subject.question, _QUERY)}"
    if subject.context:
        query += f"\n\nMaterial that belongs to it:\n{_cut(subject.context, _QUERY)}"
    return PROMPTS.fill(name, {"profile": PROMPTS.fill(f"profile_{profile}", {}), "query": fenced("QUERY", query)})


def fenced(title: str, text: str) -> str:
    """A text between two lines with a code made of its own content: the same text makes the same prompt, and one that
    held its own fence would have another code."""
    code = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"====={title} {code}=====\n{text}\n=====END {code}====="


def lines(records: Iterable[Mapping[str, Any]]) -> str:
    """Records as fenced lines of JSON: no text in them can begin a line."""
    return fenced("LIST", "\n".join(compact(record).translate(_BREAKS) for record in records))


def wording(criterion: Criterion) -> str:
    """A criterion's text as a prompt shows it."""
    return _cut(criterion.text, _CRITERION)


def _cut(text: str, sizes: tuple[int, int]) -> str:
    """A text without its middle where it is longer than what is shown."""
    head, tail = sizes
    left_out = len(text) - head - tail
    return text if left_out <= 0 else f"{text[:head]}\n[… {left_out} characters left out …]\n{text[-tail:]}"


# Asking for the roles of criteria (GEAR, appendix A.2): one call for a rubric, more for a long one.


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
    roles = dict[str, Role]()
    violations = list[str]()
    for criterion in question.criteria:
        given = stated.get(criterion.id)
        name = given.strip().lower() if isinstance(given, str) else None
        role = next((role for role in roles_by_sign(criterion) if role == name), None)
        if role:
            roles[criterion.id] = role
        else:
            why = f"{given!r:.40} is no role that it can have" if criterion.id in stated else "no role"
            violations.append(f"'{criterion.id[:80]}': {why}")
    violations += [f"'{name[:80]}': no criterion that was asked about" for name in stated if name not in question.ids]
    return Checked(roles, tuple(violations))


def _missing(
    first: Request, history: tuple[Attempt[dict[str, Role]], ...], annotator: Annotator
) -> tuple[str, Request] | None:
    """The demand for the roles still missing; None where there is none."""
    question = cast(RoleQuestion, first.data)
    roles = _given(history)
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
