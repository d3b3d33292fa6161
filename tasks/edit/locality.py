"""The locality constraint on a revision: it mends one step, and gives away neither the gold mark nor the checklist
(section 2.2 and appendix F). The paper states the aim; the rules and their numbers are ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from tasks.edit.mimicry import Mimicry, mimicry
from tasks.edit.rollout import SCAFFOLD, Sample
from tasks.text.fold import folded
from tasks.text.tokens import tokens

Breach = Literal["empty", "too_many", "mark_line", "unchanged", "repeats_step", "too_long", "states_gold"] | Mimicry
"""No line; more lines than sub-steps are allowed; a line that states the mark; the step as it was; another step of the
attempt word for word; longer than the step allows; the gold mark as the answer's; or mimicry of the checklist."""

LONGER = 3
"""Times the tokens of the replaced step that a revision may have."""
WORDS = 60
"""Tokens that it may always have."""

_ENGLISH = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_CHINESE = "〇零一二两三四五六七八九十"
_FREE, _WHOLE = r"(?<![A-Za-z0-9_.])", r"(?![A-Za-z0-9_]|\.\d)"
"""Around a whole number that is part of no name and no fraction."""
_MARK_LINE = SCAFFOLD.strip(" :").casefold()
_CLAUSE = re.compile(r"[;；。\n]|\.(?!\d)")
_TOTAL = re.compile(
    r"\b(?:total(?:s|l?ing|l?ed)?|altogether|in all|sums?|add(?:s|ed|ing)? up)\b"
    r"|\b(?:final|overall|correct|right|true|actual|awarded)\s+(?:mark|score|grade)s?\b"
    r"|\b(?:mark|score|grade|point)s?\s+overall\b"
    r"|总分|总计|合计|总共|共计|最终得分|最终分数|最后得分|得分为",
    re.IGNORECASE,
)
_PRIVATE = re.compile(r"\b(?:gold(?:en)?|reference|official|human|target)[\s-]+(?:mark|score|grade)s?\b", re.IGNORECASE)
_OF_TOP = re.compile(rf"{_FREE}(?P<mark>\d{{1,6}})\s*(?:/|out of)\s*(?P<top>\d{{1,6}}){_WHOLE}", re.IGNORECASE)
_NUMBER = re.compile(rf"{_FREE}\d{{1,6}}{_WHOLE}|(?<=[为是共：:])[{_CHINESE}](?=分)|\b[a-z]+\b", re.IGNORECASE)
_WORDS = {word: value for value, word in enumerate(_ENGLISH.split())} | dict(
    zip(_CHINESE, (0, 0, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10), strict=True)
)


def breach(
    revision: Sequence[str], attempt: Sequence[str], chosen: int, sample: Sample, checklist: str | None, most: int
) -> Breach | None:
    """What a revision of step `chosen` (0-based) breaks first; None where it keeps the constraint.

    revision: its lines. most: sub-steps allowed. checklist: as the reviser was shown it.
    """
    step, text = attempt[chosen], "\n".join(revision)
    others = {folded(other) for other in attempt} - {folded(step)}
    if not revision:
        return "empty"
    if len(revision) > most:
        return "too_many"
    if any(is_mark_line(line) for line in revision):
        return "mark_line"
    if folded(text) == folded(step):
        return "unchanged"
    if any(folded(line) in others for line in revision):
        return "repeats_step"
    if len(tokens(text)) > max(LONGER * len(tokens(step)), WORDS):
        return "too_long"
    if gives_away(text, step, sample):
        return "states_gold"
    visible = (sample.question, sample.scheme, sample.answer, "\n".join(attempt))
    return mimicry(revision, checklist, sample.scheme, visible, "\n".join(attempt[: chosen + 1]))


def is_mark_line(line: str) -> bool:
    """Whether a line states the mark, or sets out to."""
    return folded(line).lstrip("*#>-• ").startswith(_MARK_LINE)


def gives_away(revision: str, step: str, sample: Sample) -> bool:
    """Whether a revision tells the gold mark as the answer's mark.

    It does where it speaks of a gold or reference mark, whatever the number, or states the gold mark as the total. A
    step that stated a total itself may be mended into one with the right total: adding up is its work.
    """
    if _PRIVATE.search(revision):
        return True
    return sample.gold in totals(revision, sample.top) and not totals(step, sample.top)


def totals(text: str, top: int) -> set[int]:
    """The numbers that a text may state as the whole mark: `2 / top`, `2 out of top`, and every whole number in a
    clause that speaks of a total, a sum, a final, overall or correct mark.

    Digits of any script, English words up to twenty and Chinese ones up to ten are read; cues are English and Chinese.

    >>> totals("P1 earns 1. That makes a total of three.", 4), totals("P1 earns 1 of its 2 marks.", 4)
    ({3}, set())
    """
    numbers = {int(match["mark"]) for match in _OF_TOP.finditer(text) if int(match["top"]) == top}
    for clause in _CLAUSE.split(text):
        if _TOTAL.search(clause):
            numbers |= _whole_numbers(clause)
    return numbers


def _whole_numbers(clause: str) -> set[int]:
    """The whole numbers of a clause, in digits or words."""
    words = [match[0].casefold() for match in _NUMBER.finditer(clause)]
    numbers = {_WORDS[word] for word in words if word in _WORDS}
    return numbers | {int(word) for word in words if word not in _WORDS and word.isdecimal()}
