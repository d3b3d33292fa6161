"""What is asked and what comes back: `Request`, its digest, and `Reply`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, wraps
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, ParamSpec, TypeVar

from rubricflow.tasks.core.contracts.settings.engine import Sampling
from rubricflow.tasks.core.llm.schema import JsonObject, compact
from rubricflow.tasks.core.text.digest import HALF_PAIR, text_digest

_FORM = 1
"""Counts changes of what the digest covers; a new number makes every stored reply a stranger."""
_COMPACT = json.JSONEncoder(separators=(",", ":"))

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, kw_only=True)
class Request:
    """One question to a model. Nothing in it may be changed after it was made: digests of its parts are remembered."""

    messages: tuple[Message, ...]
    """The question as prose; what many requests share comes first."""
    role: str
    """What the call is for, such as 'grade'; not part of the digest."""
    subject: str
    """Id of what is asked about, such as a response's; part of the digest only for a backend that answers by it."""
    keys: frozenset[str] = frozenset()
    """Keys that the JSON artifact in the reply must carry; not part of the digest."""
    schema: JsonObject | None = field(default=None, hash=False)
    """JSON Schema for structured output."""
    sampling: Sampling = field(default_factory=Sampling)
    """How the reply is drawn."""
    data: Any = field(default=None, compare=False)
    """The question once more as plain data, for an answerer that reads no prose; `data_digest` covers it."""
    data_digest: str = ""
    """Digest of `data`, made by who fills it."""
    want_logprobs: bool = False
    """Whether token log-probabilities are wanted with the reply."""
    mends: tuple[str, ...] = field(default=(), compare=False)
    """What a repair is asked to mend; for the record, not part of the digest."""
    memory: tuple[str, ...] = field(default=(), compare=False)
    """Where what memory shows comes from; for the record."""
    until: float = field(default=math.inf, compare=False)
    """From this time of `time.monotonic` on no reply is waited for; not part of the digest."""
    characters: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Characters of the prompt by part; for the record."""

    @property
    def prompt_length(self) -> int:
        """Characters of all messages."""
        return sum(len(message.content) for message in self.messages)

    def content_of(self, role: Literal["system", "user", "assistant"]) -> str | None:
        """What the messages of a role say; None where there is none."""
        return "\n\n".join(message.content for message in self.messages if message.role == role) or None


def contract_request(
    content: str, contract: JsonObject, sampling: Sampling, longest: int, structured: bool, **about: Any
) -> Request:
    """A question in one message, to be answered under a contract, to which a model is held where `structured`.

    longest: tokens for which a reply has room at least; about: role, subject and data of the request.
    """
    room = sampling.model_copy(update={"max_tokens": max(sampling.longest, longest)})
    keys = frozenset(contract["required"])
    held = contract if structured else None
    return Request(messages=(Message("user", content),), keys=keys, schema=held, sampling=room, **about)


class Token(NamedTuple):
    """One token of a reply."""

    token: str
    """Its text."""
    logprob: float
    """Natural log of its probability, ≤ 0."""
    top: tuple[tuple[str, float], ...]
    """Likeliest alternatives with their log-probabilities, likeliest first."""


@dataclass(frozen=True, slots=True)
class ReplySource:
    """Who gave a reply that somebody brought, and in what."""

    provider: str
    """Who was asked; 'plain' where nobody says."""
    model: str | None
    """The model that answered, as the answer names it; None where it does not."""
    batch: str | None
    """The provider's id of the batch."""
    file: str
    """SHA-256 of the file of answers."""
    written: str
    """When that file was written, as ISO 8601."""


ONLY_THOUGHT = "empty: the model only thought"
"""How the error of a reply begins whose tokens all went into thinking."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back: a text, or an error as 'kind: message'. ValueError unless exactly one of the two is set."""

    text: str | None = None
    """The reply as the model gave it."""
    error: str | None = None
    """Why there is none."""
    prompt_tokens: int | None = None
    """Tokens of the request, as the backend counts them."""
    completion_tokens: int | None = None
    """Tokens of the reply."""
    cached_tokens: int | None = None
    """Tokens of the request that the engine's prefix cache held."""
    written_tokens: int | None = None
    """Tokens of the request that the provider put into its cache, where it charges for that."""
    latency_s: float | None = None
    """Seconds the call took."""
    token_logprobs: list[Token] | None = None
    """The reply's tokens in order, where asked for and given."""
    level_probabilities: dict[str, list[float]] | None = None
    """Decision key → probability of each level, from an answerer that knows them."""
    changed: str | None = None
    """How the call differed from the request, as the server refuses some of its parameters; None where it did not."""
    source: ReplySource | None = None
    """Who gave it, where it came in a file; None for a call of a run's own."""

    def __post_init__(self) -> None:
        if (self.text is None) == (self.error is None):
            raise ValueError("a reply has either a text or an error")

    def to_json(self) -> str:
        """One line of JSON without the fields that are None."""
        record = {name: value for name in self.__slots__ if (value := getattr(self, name)) is not None}
        if self.source is not None:
            record["source"] = asdict(self.source)
        line = compact(record)
        # Half a surrogate pair cannot be written as UTF-8, only as an escape.
        return line if line.isascii() or not HALF_PAIR.search(line) else _COMPACT.encode(record)

    @classmethod
    def from_json(cls, line: str) -> Reply:
        """The reply that `to_json` wrote; ValueError or TypeError for anything else."""
        record = json.loads(line)
        if not isinstance(record, dict):
            raise ValueError("a stored reply is no JSON object")
        if (rows := record.get("token_logprobs")) is not None:
            record["token_logprobs"] = [
                Token(text, logprob, tuple((other, likely) for other, likely in top)) for text, logprob, top in rows
            ]
        if (source := record.get("source")) is not None:
            record["source"] = ReplySource(**source)
        return cls(**record)


def together(subjects: Sequence[str]) -> str:
    """The subject of a request about several, in the order shown."""
    return " vs ".join(subjects)


def overdue(trouble: str = "") -> Reply:
    """The error reply to a request whose time is over. trouble: what went wrong until then."""
    return Reply(error=f"deadline: no answer in time{f'; at last: {trouble}' if trouble else ''}")


def digest(request: Request, model: str, by_subject: bool = False) -> str:
    """SHA-256 of everything that can change the reply, 64 hex digits: two equal digests are one call.

    Covers the messages, schema, sampling, `data_digest`, `want_logprobs` and the model; the subject only where the
    backend answers by it; never role and keys.
    """
    parts = [
        _FORM,
        model,
        [(message.role, _text_digest(message.content)) for message in request.messages],
        None if request.schema is None else _schema_digest(request.schema),
        _sampling_record(request.sampling),
        request.data_digest,
        request.want_logprobs,
        *([request.subject] if by_subject else []),
    ]
    return text_digest(_COMPACT.encode(parts))


_text_digest = lru_cache(maxsize=1024)(text_digest)
"""Thousands of requests share one system message; it is hashed once."""


class IdentityKey(Generic[T]):
    """A key for caches that tells values apart by identity: to hash a mapping or a model takes longer than to use what
    is known of it. It keeps the value alive, so that the identity is not given to another one."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.value is other.value


def cached_by_identity(function: Callable[P, T], most: int = 1024) -> Callable[P, T]:
    """Keeps the latest results, at most so many, of a pure function of positional arguments: texts and whole numbers
    are the same where they are equal, other arguments where they are identical, see `IdentityKey`. TypeError for an
    argument that is given by its name."""

    @lru_cache(maxsize=most)
    def results(*keys: Any) -> T:
        return function(*(key.value if isinstance(key, IdentityKey) else key for key in keys))  # type: ignore[call-arg]

    @wraps(function)
    def cached(*arguments: P.args, **named: P.kwargs) -> T:
        if named:
            raise TypeError(f"{function.__name__} takes its arguments by position")
        return results(*(a if a is None or isinstance(a, str | int) else IdentityKey(a) for a in arguments))

    return cached


@cached_by_identity
def _schema_digest(schema: JsonObject) -> str:
    # Order is kept: structured output writes the properties in the order of the schema.
    return _text_digest(_COMPACT.encode(schema))


_sampling_record = cached_by_identity(attrgetter("temperature", "top_p", "top_k", "seed", "longest"))
