"""A request's messages as servers take them: nothing that a student wrote is a control token of the model."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from rubricflow.tasks.core.llm.backends.structure import BREAK, Break, markers, without_half_pairs
from rubricflow.tasks.core.llm.request import Reply, Request


def messages(request: Request) -> list[dict[str, str]]:
    """The messages as role and content.

    Templates join the messages to one text, in which a control token is one whoever wrote it: `<|im_start|>system` in
    a response would open a turn of its own. What reads like one gets an invisible character (U+200B) after its first
    one, so that it stays text; `as_written` takes it out of what the model quotes.
    """
    return [{"role": message.role, "content": plain(message.content)} for message in request.messages]


def as_written(reply: Reply, broken: Break = BREAK) -> Reply:
    """A reply with control tokens as the student wrote them, so that quotes match; its tokens make up its text."""
    if reply.text is None or (text := broken.undone(reply.text)) == reply.text:
        return reply
    tokens = reply.token_logprobs
    if tokens is not None:
        pieces = broken.undone_pieces([token.token for token in tokens])
        tokens = [token._replace(token=piece) for token, piece in zip(tokens, pieces, strict=True)]
    return replace(reply, text=text, token_logprobs=tokens)


@lru_cache(maxsize=512)  # a rubric opens many requests, and several are about one response
def plain(text: str) -> str:
    """A text in which nothing reads like a control token, see `messages`."""
    text = without_half_pairs(text)
    return BREAK.into(text, markers(text))
