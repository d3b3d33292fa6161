"""A request's messages as servers take them: nothing that a student wrote is a control token of the model."""

from __future__ import annotations

from tasks.llm.backends.markers import BREAK, markers, whole
from tasks.llm.request import Request


def messages(request: Request) -> list[dict[str, str]]:
    """The messages as role and content.

    Templates join the messages to one text, in which a control token is one whoever wrote it: `<|im_start|>system` in
    a response would open a turn of its own. What reads like one gets an invisible character (U+200B) after its first
    one, so that it stays text; `restored` takes it out of what the model quotes.
    """
    return [{"role": message.role, "content": plain(message.content)} for message in request.messages]


def restored(reply: str) -> str:
    """A reply with control tokens as the student wrote them, so that quotes match."""
    return BREAK.undone(reply)


def plain(text: str) -> str:
    """A text in which nothing reads like a control token, see `messages`."""
    text = whole(text)
    return BREAK.into(text, markers(text))
