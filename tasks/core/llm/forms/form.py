"""What the forms of all providers share: their record, the room of a reply, the parameters of drawing it, what an
answer without a reply is called, and what the body of an error says, whatever its form: which parameters it points to,
its words, and whether what was asked does not fit. Servers repeat parts of a prompt in it: what a student wrote says
nothing of the call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.settings.engine import Effort, Engine
from rubricflow.tasks.core.llm.request import ONLY_THOUGHT, Reply, Request, cached_by_identity
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject, plain

_TOO_LONG = re.compile(
    r"context[ _](?:length|window|size|limit)|(?:prompt|inputs?|messages?|request) (?:is |are )?(?:too|longer)\b"
    r"|too (?:many|large)\W+(?:\w+\W+){0,3}?tokens|reduce the length|exceed\w*\W+(?:\w+\W+){0,6}?tokens"
    r"|tokens\W+(?:\w+\W+){0,3}?max_new_tokens|max_tokens must be at least 1, got -",
    re.IGNORECASE,
)
LACKS_MONEY = re.compile(
    r"insufficient[ _]quota|credit balance is too low|billing[ _](?:hard[ _]limit|not[ _]active)", re.I
)
_DEPTH, _READ = 8, 4000
"""How deep errors are looked into, and how many characters of a message are read."""
_SHARED, _PIECE = 40, 24
"""So many characters in a row are in the prompt too where a message repeats it: more than the few that a server's
sentence and a student's share by chance («`seed` is not …»). And so many of a piece within quotes or after a colon."""
_EDGE = re.compile(r"['\"`‘’“”]|: ")
_PYTHON_LOC = re.compile(r"(?P<q>['\"])loc(?P=q): [\[(](?P=q)body(?P=q), (?P<path>[\w.'\"]+(?:, [\w.'\"]+)*)[\])]")
"""What validators that write Python point to."""
_REPEATED = " x x x x x x x "
"""In place of what is the prompt's: more words than a pattern passes over."""


class ErrorBody(NamedTuple):
    """What the body of an error says."""

    places: tuple[str, ...]
    """The parameters that it points to."""
    words: tuple[str, ...]
    """Its messages, the innermost alone where one holds another."""
    own: tuple[str, ...]
    """The same in small letters, as `plainly` has them, without what they repeat of the prompt."""

    @property
    def is_too_long(self) -> bool:
        """Whether prompt and reply do not fit into the model's context."""
        return any(map(_TOO_LONG.search, self.own))

    @property
    def lacks_money(self) -> bool:
        """Whether the account's credit is spent."""
        return any(map(LACKS_MONEY.search, self.own))


def read_error(content: bytes, messages: Sequence[Mapping[str, str]] = ()) -> ErrorBody:
    """What an error's body says, whatever its form: an object, a list, JSON within text, or text alone.

    messages: that were sent.
    """
    text = lenient(content)
    prompt = "\n".join(plainly(message["content"]) for message in messages)
    found = list(_found(_parsed(text, prompt), _DEPTH, prompt))
    words = tuple(dict.fromkeys(said for kind, said in found if kind == "word" and said.strip())) or (text,)
    own = tuple(_without_prompt(plainly(said[:_READ]), prompt) for said in words)
    return ErrorBody(tuple(said for kind, said in found if kind == "place"), words, own)


def kind_of(status: int, said: ErrorBody) -> str:
    """What an error is, live or in a batch: 'too_long' and 'refused' concern one request; 'busy' and 'broken' may pass.

    status: of HTTP.
    """
    if status == 413 or (status in (400, 422, 500) and said.is_too_long):
        return "too_long"
    if status in (429, 529):
        return "busy"
    return "broken" if status >= 500 or status in (408, 409, 425) else "refused"


def plainly(text: str) -> str:
    """A text in small letters with names as ours, whatever its blanks and however JSON escapes it."""
    unescaped = re.sub(r"\\+(?:[nrt]|u[0-9a-f]{4})|\s", " ", text).replace("\\", "")
    return re.sub(r" +", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", unescaped)).lower()


def _without_prompt(text: str, prompt: str) -> str:
    """A plain text without the long runs that stand in the prompt, and without the pieces that do as a whole."""
    if not prompt:
        return text
    kept, start, begin = list[str](), 0, 0
    while start + _SHARED <= len(text):
        end = start + _SHARED
        if text[start:end] not in prompt:
            start += 1
            continue
        while end < len(text) and text[start : end + 1] in prompt:
            end += 1
        kept += [text[begin:start], _REPEATED]
        start = begin = end
    text = "".join([*kept, text[begin:]])
    pieces = {piece for piece in _EDGE.split(text) if len(piece.strip()) >= _PIECE and piece.strip() in prompt}
    for piece in pieces:
        text = text.replace(piece, _REPEATED)
    return text


def _parsed(text: str, prompt: str) -> object:
    """A text as JSON where it is some, or holds some that is not the prompt's; the text otherwise."""
    start = min((at for at in (text.find("{"), text.find("[")) if at >= 0), default=-1)
    if start < 0:
        return text
    try:
        value, end = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text
    own = isinstance(value, (dict, list)) and value and not (prompt and plainly(text[start : start + end]) in prompt)
    return value if own else text


def _found(node: object, depth: int, prompt: str) -> Iterator[tuple[str, str]]:
    """The places and words of an error's body, not too deep; what repeats the request is left out."""
    if not depth:
        return
    if isinstance(node, str):
        inner = _parsed(node, prompt)
        said = [] if isinstance(inner, str) else list(_found(inner, depth - 1, prompt))
        if any(kind == "word" for kind, _ in said):
            yield from said
            return
        for loc in _PYTHON_LOC.finditer(node):
            if plainly(loc[0]) not in prompt:
                yield "place", re.sub(r"[\s'\"]", "", loc["path"]).rstrip(",").replace(",", ".")
        yield "word", node
    elif isinstance(node, list):
        for child in node:
            yield from _found(child, depth - 1, prompt)
    elif isinstance(node, Mapping):
        # what an object points to, as a path of the body
        if isinstance(node.get("loc"), list):
            yield "place", ".".join(str(part) for part in node["loc"] if part != "body")
        elif isinstance(place := node.get("param") or node.get("field"), str):
            yield "place", place.removeprefix("body.")
        raw = node["metadata"].get("raw") if isinstance(node.get("metadata"), Mapping) else None
        if raw:  # a router passes on what another server answered
            yield from _found(raw, depth - 1, prompt)
            return
        for name in ("error", "detail", "message", "msg", "errors", "description"):
            if node.get(name):
                yield from _found(node[name], depth - 1, prompt)
        if isinstance(node.get("type"), str) and node["type"].startswith(("exceed_context", "extra_")):
            yield "word", node["type"]


def lenient(spelled: bytes) -> str:
    """Bytes as text, whatever they are."""
    return spelled.decode("utf-8", "replace")


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
    return failed(reply, f"{ONLY_THOUGHT} and stopped ({shown(reason)}){tokens}; {hint}")


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
