"""A piece of grading that states no mark is closed: the scaffold of the belief probe (section 2.1) is put after its
last whole line, and the policy says the mark that it believes in.

The paper counts such a rollout as a failure (2.3), and so does RL here. Ours: elsewhere its mark is the policy's belief
behind its last step, which is known as well as that behind any other, and stands marked as closed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tasks.edit.rollout import SCAFFOLD, states_mark

LONGEST = 8
"""Tokens in which a mark lies."""
_SENTENCE_ENDS = re.compile(r"[.!?)\"”。！？]\s*$")


class Write(Protocol):
    """How the policy is asked; `Policy.write` is one."""

    def __call__(
        self,
        prompts: Sequence[str],
        *,
        begun: Sequence[str] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        seed: int = 0,
    ) -> list[str]: ...


class ClosedReply(NamedTuple):
    """What the policy wrote to a grading prompt."""

    text: str
    closed: bool
    """Whether it stated no mark by itself."""


def closed(
    write: Write, prompts: Sequence[str], replies: Sequence[str], begun: Sequence[str] = ()
) -> list[ClosedReply]:
    """The replies in their order, those without a mark closed by the policy's greedy word.

    begun: what each reply goes on from; nothing where there are none. A reply that states a mark off the scale has
    stated one, and stays. One that is closed may still end without a mark: where the policy says no number there.
    """
    starts = list(begun) or [""] * len(prompts)
    bare = [place for place, reply in enumerate(replies) if not states_mark(reply)]
    lines = [up_to_scaffold(starts[place], replies[place]) for place in bare]
    bare_prompts = [prompts[place] for place in bare]
    beginnings = [starts[place] + line for place, line in zip(bare, lines, strict=True)]
    marks = write(bare_prompts, begun=beginnings, max_tokens=LONGEST) if bare else []
    ends = {place: line + mark.split("\n", 1)[0] for place, line, mark in zip(bare, lines, marks, strict=True)}
    return [ClosedReply(ends.get(place, reply), place in ends) for place, reply in enumerate(replies)]


def up_to_scaffold(begun: str, reply: str) -> str:
    """A reply with the scaffold on a line of its own, without a last line that was broken off.

    >>> up_to_scaffold("", "P1 is met.\\nP2 is no"), up_to_scaffold("P1 is met.\\n", "")
    ('P1 is met.\\nFinal mark:', 'Final mark:')
    """
    unbroken = reply if _SENTENCE_ENDS.search(reply) else _without_last_line(reply)
    text = begun + unbroken
    lead = "" if not text or text.endswith("\n") else "\n"
    return f"{unbroken}{lead}{SCAFFOLD.rstrip()}"


def _without_last_line(reply: str) -> str:
    """All but the last line; that line where there is no other."""
    before, line_break, _ = reply.rpartition("\n")
    return before + line_break if before.strip() else reply
