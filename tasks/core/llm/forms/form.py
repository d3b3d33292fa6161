"""What the forms of all providers share: their record, the room of a reply, the parameters of drawing it, and what an
error, or an answer without a reply, is called."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rubricflow.tasks.core.contracts.settings.engine import Effort, Engine
from rubricflow.tasks.core.llm.error_body import kind_of, read_error
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject, plain

THINKING: Mapping[Effort | None, int] = {"none": 0, "low": 4096, "medium": 8192, "high": 16_384, None: 16_384}
"""Tokens of thinking by effort; where none is named a model thinks as it likes."""
PASSING = ("busy", "broken", "expired", "canceled")
"""Kinds of errors that another try may not bring; all others come again."""
_SHOWN = 300


@dataclass(frozen=True)
class Form:
    """How a provider is asked and how it answers, as its own interface has it; the same live and in a batch."""

    requests: int
    """Requests that a batch file holds at most."""
    bytes: int
    """Its size at most."""
    body: Callable[[Request, Engine], JsonDict]
    """What asks. Nothing is in it that current models refuse, as a batch cannot learn by refusal."""
    line: Callable[[str, JsonObject], JsonDict]
    """(Digest, body) → a line of a batch's input file; the digest is its custom id."""
    read_answer: Callable[[JsonObject, Request], Reply]
    """See `read`; raises LookupError, TypeError, ValueError or AttributeError for what is no answer."""
    read_result: Callable[[JsonObject], tuple[str, JsonObject | Reply]]
    """See `result`; raises as `read_answer` does."""
    takes: Callable[[Engine], frozenset[str]]
    """Which of a request's ways of drawing a reply (temperature, top_p, top_k, seed, logprobs) its models take."""
    thinking: Callable[[Engine], int]
    """Tokens that a model may think before a reply; 0 for one that does not think, whose replies may be no longer."""

    def room(self, request: Request, engine: Engine) -> int:
        """Tokens that a reply and the thinking before it may take."""
        return request.sampling.longest + self.thinking(engine)

    def read(self, answer: JsonObject, request: Request, engine: Engine | None = None) -> Reply:
        """The reply in an answer; an error where there is none. engine: who was asked, so that the reply says what of
        the request its provider does not take."""
        try:
            reply = self.read_answer(answer, request)
            return reply if engine is None else replace(reply, changed=self.changed(request, engine))
        except (LookupError, TypeError, ValueError, AttributeError):
            return Reply(error=f"broken: an answer without a reply: {shown(answer)}")

    def changed(self, request: Request, engine: Engine) -> str | None:
        """Which of the request's ways of drawing a reply its provider does not take, in words; None where it does."""
        missing = sorted(_wanted(request, engine).keys() - self.takes(engine) - engine.options.keys())
        return "; ".join(f"without {name}" for name in missing) or None

    def result(self, line: JsonObject) -> tuple[str, JsonObject | Reply]:
        """A line of a batch's output file → custom id, and the answer or an error reply; ValueError for a line that is
        no result of this provider."""
        try:
            custom_id, answer = self.read_result(line)
        except (LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"no line of a batch's results: {shown(line)}") from error
        if not isinstance(custom_id, str) or not isinstance(answer, Mapping | Reply):
            raise ValueError(f"no line of a batch's results: {shown(line)}")
        return custom_id, answer


@cached_by_identity
def plainest(schema: JsonObject) -> Any:
    """A schema within what the strictest servers take; made once for many requests."""
    return plain(schema)


def drawn(request: Request, engine: Engine, takes: frozenset[str]) -> JsonDict:
    """Those parameters of drawing a reply that say something and are taken, by their names here."""
    return {name: value for name, value in _wanted(request, engine).items() if name in takes}


def _wanted(request: Request, engine: Engine) -> JsonDict:
    how = request.sampling
    wanted = {"temperature": how.temperature, "seed": how.seed}
    wanted |= {"top_p": how.top_p} if how.top_p < 1 else {}
    wanted |= {"top_k": how.top_k} if how.top_k is not None else {}
    return wanted | ({"logprobs": engine.logprobs} if request.want_logprobs and engine.logprobs else {})


def with_options(body: JsonDict, options: JsonObject) -> JsonDict:
    """A body with the study's own fields; what is an object in both is joined."""
    objects = {name for name, value in options.items() if isinstance(value, dict) and isinstance(body.get(name), dict)}
    return {**body, **options, **{name: {**body[name], **options[name]} for name in objects}}


def error_reply(status: object, error: object) -> Reply:
    """The error of one request, as a line of a batch's results has it. status: as HTTP has it, where it is given."""
    said = read_error(json.dumps(error).encode())
    kind = kind_of(status if isinstance(status, int) else 400, said)
    return Reply(error=f"{kind}: {shown('; '.join(said.words))}")


def failed(reply: Reply, error: str) -> Reply:
    """A reply's counts with an error in place of its text."""
    return replace(reply, text=None, error=error, token_logprobs=None)


def without_text(reply: Reply, reason: object, thought: object) -> Reply:
    """An answer without a text. reply: what was counted; reason: why the model stopped, in the provider's word;
    thought: what it thought, or how much."""
    if not thought:
        return failed(reply, f"empty: the model gave no text: {shown(reason or 'no reason given')}")
    tokens = "" if reply.completion_tokens is None else f" after {reply.completion_tokens:,} tokens"
    hint = "allow it more by sampling.max_tokens, or less effort"
    return failed(reply, f"empty: the model only thought and stopped ({shown(reason)}){tokens}; {hint}")


def shown(value: object) -> str:
    """A text of a provider, or JSON of it, on one line and cut short."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:_SHOWN]


def mapping(value: object) -> JsonObject:
    """An object of JSON; an empty one where there is something else."""
    return value if isinstance(value, Mapping) else {}


def count(value: object) -> int | None:
    """A number of tokens; None where there is something else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
