"""A request's messages as engines take them: nothing that a student wrote is a control token of the model."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tasks.llm.request import Request

_BREAK = "\u200b"
_BROKEN = re.compile(f"([<[]){_BREAK}")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
WELL_KNOWN = re.compile(
    r"<(?=[|｜])|<(?=/?s>)|<(?=(?:bos|eos|pad|unk|mask|start_of_turn|end_of_turn|begin_of_text|end_of_text)>)"
    r"|<(?=<?/?SYS>)|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|IMG)\])"
)
"""How control tokens of the usual chat templates begin, for servers whose tokenizer is not known here."""


def messages(request: Request, controls: re.Pattern[str] = WELL_KNOWN) -> list[dict[str, str]]:
    """The messages as role and content.

    Templates join the messages to one text, in which a control token is one whoever wrote it: `<|im_start|>system` in
    a response would open a turn of its own. Each match of `controls` gets an invisible character (U+200B) after its
    first one, so that it stays text; `restored` takes it out of what the model quotes. Half a surrogate pair, which no
    engine reads, becomes U+FFFD.
    """
    return [{"role": message.role, "content": plain(message.content, controls)} for message in request.messages]


def pattern(tokens: Iterable[str]) -> re.Pattern[str]:
    """The control tokens of a known tokenizer, as `messages` takes them: the first character of each."""
    spelled = sorted({token for token in tokens if len(token.strip()) > 2}, key=len, reverse=True)
    known = "|".join(f"{re.escape(token[0])}(?={re.escape(token[1:])})" for token in spelled)
    return re.compile(f"{known}|{WELL_KNOWN.pattern}" if known else WELL_KNOWN.pattern)


def restored(reply: str) -> str:
    """A reply with control tokens as the student wrote them, so that quotes match."""
    return _BROKEN.sub(r"\1", reply) if _BREAK in reply else reply


def plain(text: str, controls: re.Pattern[str]) -> str:
    """A text in which no control token is one, see `messages`."""
    return controls.sub(lambda match: match.group() + _BREAK, _LONE_SURROGATE.sub("\ufffd", text))
