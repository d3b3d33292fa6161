"""Prose that was cut short, made fit for people."""

from __future__ import annotations

from rubricflow.tasks.core.text.units import units

MARK = "[…]"
"""Stands where words were cut."""
_ENDS = (".", "!", "?", "…", "。", "！", "？", ".)", '."', ".”", "!”", "?”")


def whole_sentences(text: str, longest: int) -> str:
    """A text without blanks around it or, where it was cut, its whole sentences and `MARK`; where not even one is
    whole, its whole words.

    longest: characters at which it is cut, or was by the contract that its writer was held to; a text that fills them
    and ends a sentence there was not. What is returned is left as it is when it is put in again.
    """
    text = text.strip()
    if len(text) < longest or (len(text) == longest and text.endswith(_ENDS)):
        return text
    head = text[: max(0, longest - len(MARK) - 2)]
    sentences = [unit for unit in units(head) if unit.kind == "sentence"]
    ends = [unit.end for unit in sentences if head[: unit.end].endswith(_ENDS)]
    whole = head[: ends[-1]] if ends else head.rpartition(" ")[0] or head
    return f"{whole.rstrip()} {MARK}"
