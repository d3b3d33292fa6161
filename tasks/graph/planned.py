"""What annotating takes, said before the first call; asks no model."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

from tasks.graph.annotator import Annotator
from tasks.llm.request import Request, digest

_CHARACTERS_PER_TOKEN = 4
_REPLY_TOKENS = {"roles": 12, "pairs": 20}
"""Of a reply, for each role or pair."""
_TOGETHER = 1_000


class PlannedCalls(NamedTuple):
    """First calls; those that mend a reply come on top and are not known before."""

    calls: int
    kept: int
    """Of these, those whose reply is in the reply store: they cost nothing."""
    prompt_tokens: int
    """Of the others, roughly, as the reply tokens."""
    reply_tokens: int

    def __str__(self) -> str:
        stored = f", {self.kept:,} of them answered before" if self.kept else ""
        tokens = f"about {self.prompt_tokens:,} prompt tokens and {self.reply_tokens:,} reply tokens"
        return f"{self.calls:,} calls{stored}; {tokens}"


def planned_calls(requests: Iterable[Request], annotator: Annotator) -> PlannedCalls:
    """What these requests for roles or pairs take."""
    calls = kept = characters = replies = 0
    left = iter(requests)
    while together := list(islice(left, _TOGETHER)):
        keys = [digest(request, annotator.backend.model, annotator.backend.by_subject) for request in together]
        known = annotator.replies.get_many(keys)
        calls, kept = calls + len(together), kept + sum(key in known for key in keys)
        for request in (request for request, key in zip(together, keys, strict=True) if key not in known):
            characters += sum(len(message.content) for message in request.messages)
            replies += _reply_tokens(request)
    return PlannedCalls(calls, kept, characters // _CHARACTERS_PER_TOKEN, replies)


def _reply_tokens(request: Request) -> int:
    (key,) = request.keys
    return _REPLY_TOKENS[key] * len(request.data.ids if key == "roles" else request.data.pairs)
