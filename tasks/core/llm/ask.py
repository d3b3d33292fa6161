"""The one asking engine: requests → the reply store, then the backend → check → bounded repair, in waves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import length_hint
from typing import Generic, TypeVar

import jsonschema

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.llm.backend import Backend
from rubricflow.tasks.core.llm.extract import extract
from rubricflow.tasks.core.llm.mailbox import WaitingForReplies
from rubricflow.tasks.core.llm.reply_store import Replies
from rubricflow.tasks.core.llm.request import Message, Reply, Request, digest, overdue
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject
from rubricflow.tasks.core.text.templates import Templates

T = TypeVar("T")
AMENDMENTS = 2
"""Calls that may mend one artifact."""
LONGEST = 20_000
"""Characters of a broken reply that its amendment is shown."""
_TOGETHER = 500
"""Replies that are kept together at most, however many more are there."""


@dataclass(frozen=True)
class Checked(Generic[T]):
    """What a check made of a reply."""

    value: T | None
    """The value read; None where there is none to use."""
    violations: tuple[str, ...]
    """What is wrong with the reply; a value may come with some."""


@dataclass(frozen=True)
class Attempt(Generic[T]):
    """One request, the reply to it and the result of its check."""

    request: Request
    model: str
    """Who was asked."""
    digest: str
    """The request's key in the reply store."""
    reply: Reply
    checked: Checked[T]
    stored: bool
    """Whether it took no call: known to the reply store, or shared with an identical request of its wave."""

    @property
    def has_failed(self) -> bool:
        """Whether it brought no value, or one with violations."""
        return self.checked.value is None or bool(self.checked.violations)


@dataclass
class RequestOutcome(Generic[T]):
    """All that happened to one request."""

    request: Request
    """As it was first asked."""
    attempts: tuple[Attempt[T], ...] = ()
    """At least one when it is done; the first asks `request`, each other one a repair."""
    value: T | None = None
    """Of the last attempt that has one."""


@dataclass(frozen=True, slots=True)
class Wave:
    """What one wave did."""

    asked: int
    """Calls to the backend."""
    prompt_tokens: int
    """Of the calls, as far as the backend counts them."""
    completion_tokens: int


History = tuple[Attempt[T], ...]


def ignore_wave(wave: Wave) -> None:
    """The progress report that does nothing."""


def ask(
    requests: Sequence[Request],
    backend: Backend,
    replies: Replies,
    check: Callable[[Request, Reply], Checked[T]],
    repair: Callable[[Request, History[T]], Request | None] = lambda request, history: None,
    on_wave: Callable[[Wave], None] = ignore_wave,
    mender: Backend | None = None,
) -> list[RequestOutcome[T]]:
    """Asks everything once, then again whatever `repair` wants to ask of what failed, and so on. Keeps the order.

    check: pure; sees only replies with a text. An error reply has no value and the violation 'no_reply'.
    repair: pure; gets the first request and all attempts, returns the next request, or None when the budgets are spent.
        A request whose reply is already in the history ends it too: it would bring the same reply.
    mender: answers the repairs; the same backend where not given. on_wave: called after each wave.
    What another run of this reply store is asking for meanwhile is waited for, not asked again.
    Every reply is in the store before the backend is waited for again: replies that are there at once are kept
    together, some hundreds at most. BackendError and StoreError end the run, as WaitingForReplies does when all that
    can be asked was; asking the same again continues it.
    """
    outcomes = [RequestOutcome[T](request) for request in requests]
    waiting: WaitingForReplies | None = None
    pending = [(outcome, outcome.request) for outcome in outcomes]
    while pending:
        asked = [request for _, request in pending]
        digests = [digest(request, backend.model, backend.by_subject) for request in asked]
        stored = replies.get_many(digests)
        missing = {key: request for key, request in zip(digests, asked, strict=True) if key not in stored}
        try:
            fresh = _answered(missing, backend, replies, stored)
        except WaitingForReplies as error:  # what is answered goes on: its repairs wait for replies together with these
            waiting = waiting or error
            pending = [pair for key, pair in zip(digests, pending, strict=True) if key not in error.digests]
            continue
        unpaid = set(fresh)
        for key, (outcome, request) in zip(digests, pending, strict=True):
            reply = fresh[key] if key in fresh else stored[key]
            checked = Checked[T](None, ("no_reply",)) if reply.error is not None else check(request, reply)
            attempt = Attempt(request, backend.model, key, reply, checked, key not in unpaid)
            outcome.attempts = (*outcome.attempts, attempt)
            outcome.value = outcome.value if checked.value is None else checked.value
            unpaid.discard(key)
        failed = [outcome for outcome, _ in pending if outcome.attempts[-1].has_failed]
        wave = Wave(
            asked=len(fresh),
            prompt_tokens=sum(reply.prompt_tokens or 0 for reply in fresh.values()),
            completion_tokens=sum(reply.completion_tokens or 0 for reply in fresh.values()),
        )
        on_wave(wave)
        backend, pending = mender or backend, []
        for outcome in failed:
            following = repair(outcome.request, outcome.attempts)
            if following is not None:
                key = digest(following, backend.model, backend.by_subject)
                if all(attempt.digest != key or attempt.reply.error is not None for attempt in outcome.attempts):
                    pending.append((outcome, following))
    if waiting:
        raise waiting
    return outcomes


def _answered(
    missing: dict[str, Request], backend: Backend, replies: Replies, stored: dict[str, Reply]
) -> dict[str, Reply]:
    """The replies to what was asked here, in batches; `stored` gets those that another run was asking for already."""
    mine = dict[str, Reply]()
    size = max(1, backend.batch_size)
    while open_ := [key for key in missing if key not in mine and key not in stored]:
        for start in range(0, len(open_), size):
            batch = open_[start : start + size]
            time_s = time.monotonic()
            mine |= {key: overdue() for key in batch if missing[key].until <= time_s}
            with replies.claim(key for key in batch if missing[key].until > time_s) as claimed:
                mine.update(_answers([(key, missing[key]) for key in claimed], backend, replies))
        waiting = [key for key in open_ if key not in mine]
        stored |= replies.awaited(waiting, min((missing[key].until for key in waiting), default=math.inf))
    return mine


def _answers(batch: Sequence[tuple[str, Request]], backend: Backend, replies: Replies) -> Iterator[tuple[str, Reply]]:
    """One reply per request of a batch, each kept before the backend is waited for again."""
    if not batch:
        return
    open_ = set(range(len(batch)))
    strays = 0
    arrived = []
    answers = backend.answer([request for _, request in batch])
    try:
        for index, reply in answers:
            if index in open_:
                open_.remove(index)
                arrived.append((batch[index][0], reply))
            else:
                strays += 1
            if not length_hint(answers) or len(arrived) >= _TOGETHER:
                together, arrived = arrived, []
                yield from _kept(together, backend, replies)
    except BaseException:
        _kept(arrived, backend, replies)  # they are paid
        raise
    yield from _kept(arrived, backend, replies)
    also = f", but {strays} that belong to no open request" if strays else ""
    for index in sorted(open_):
        yield batch[index][0], Reply(error=f"no_reply: the backend gave no reply{also}")


def _kept(arrived: Sequence[tuple[str, Reply]], backend: Backend, replies: Replies) -> list[tuple[str, Reply]]:
    """The replies as the store has them: another run may have kept its own to the same request first."""
    earlier = replies.put_many([(key, backend.model, reply) for key, reply in arrived])
    return [(key, earlier.get(key, reply)) for key, reply in arrived]


# Asking for an artifact until it keeps its contract: what is wrong with a reply is named, and it is asked for again.


def ask_amending(
    requests: Sequence[Request],
    backend: Backend,
    replies: Replies,
    check: Callable[[Request, Reply], Checked[T]],
    demand: Callable[[Request, History[T]], tuple[str, Request] | None],
) -> list[RequestOutcome[T]]:
    """Asks as `ask` does; an amendment is the next turn of the same chat, after the reply that failed.

    demand: gets a first request and all attempts, and returns what is said of the last one, with the first request as
    far as it is still open; None where nothing is. After AMENDMENTS, or an error in place of a reply, it is over.
    """

    def amended(first: Request, history: History[T]) -> Request | None:
        last = history[-1]
        if len(history) > AMENDMENTS or last.reply.text is None or (demanded := demand(first, history)) is None:
            return None
        words, narrowed = demanded
        turns = (*first.messages, Message("assistant", last.reply.text[:LONGEST]), Message("user", words))
        return replace(narrowed, messages=turns, role="contract_repair", mends=last.checked.violations)

    return ask(requests, backend, replies, check, amended)


def all_again(prompts: Templates) -> Callable[[Request, History[T]], tuple[str, Request]]:
    """The demand for the whole artifact with its problems mended, in the words of the template `amend`."""

    def demand(first: Request, history: History[T]) -> tuple[str, Request]:
        problems = "\n".join(f"- {violation}" for violation in history[-1].checked.violations)
        return prompts.fill("amend", {"problems": problems}), first

    return demand


def artifact_in(reply: Reply, contract: JsonObject) -> Checked[JsonDict]:
    """The artifact in a reply, where it keeps a contract but for texts that are too long and members that it does not
    name; a blank text is none. Violations: `unreadable:` with why, or at most five of `malformed:` with where."""
    artifact, note = extract(reply.text, frozenset(contract["required"]))
    if artifact is None:
        return Checked(None, (f"unreadable:{note}",))
    wrong = []
    for error in _Lenient(contract).iter_errors(artifact):
        wrong.append(f"malformed: {'.'.join(map(str, error.absolute_path)) or 'all of it'}: {error.message[-200:]}")
    return Checked(None if wrong else artifact, tuple(wrong[:5]))


def _says(validator: object, least: int, text: object, contract: object) -> Iterator[jsonschema.ValidationError]:
    if isinstance(text, str) and len(text.strip()) < least:
        yield jsonschema.ValidationError(f"{text!r:.40} is no text")


_Lenient = jsonschema.validators.extend(
    jsonschema.Draft202012Validator,
    {"minLength": _says} | dict.fromkeys(("maxLength", "additionalProperties"), lambda *_: ()),
)


def usable(call: RequestOutcome[T], name: str, hint: str, field: str | None = None) -> T:
    """The artifact about a rubric; where there is none, InputError with what was wrong with the last reply.

    name: what the artifact is called; hint: what a person can do; field: of the study, where it was demanded.
    """
    if call.value is not None:
        return call.value
    last = call.attempts[-1]
    wrong = last.reply.error or "; ".join(last.checked.violations)
    rule = f"rubric '{call.request.subject}': no usable {name} by '{last.model}': {wrong}"
    raise InputError(rule, field=field, hint=f"{len(call.attempts)} calls; {hint}")


def as_call(attempt: Attempt[T]) -> JsonDict:
    """An attempt at something about a rubric as a row of `Call`."""
    return {
        "role": attempt.request.role,
        "model": attempt.model,
        "request_digest": attempt.digest,
        "reply": attempt.reply.text,
        "violations": list(attempt.checked.violations),
    }
