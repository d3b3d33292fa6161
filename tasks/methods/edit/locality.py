"""What the reviser is given and what it may write (section 2.2 and appendix F).

The rubric checklist: every marking point with a verdict and a quote, written by the policy with the gold mark at hand.
It is shown to nobody but the reviser. The paper has the points listed verbatim (`revising.checklist: verbatim`); ours
go by their ids, since their words stand in the scheme that is shown with them.

The locality constraint on a revision: it mends one step, and gives away neither the gold mark nor the checklist. The
paper states the aim, and names a detector of checklist mimicry without defining it; the rules and their numbers are
ours. Tokens are words, and in Chinese and Japanese single characters, of which a run has to be twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np

from rubricflow.tasks.core.stats.arrays import Bools
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.quotes import find, unquoted
from rubricflow.tasks.core.text.tokens import SIGN, tokens
from rubricflow.tasks.methods.edit.rollout import SCAFFOLD, Sample, line_ids, point_ids

Unusable = Literal["checklist_empty", "checklist_unreadable", "checklist_contradictory"]
"""Why a reply is no checklist: it decides no point of the scheme, a line with bars breaks the form, or it decides a
point both ways."""

LINE = 40
"""Tokens in which a line with a quote lies."""
_VERDICTS = {"covered": True, "not covered": False}
_DRESS = " \t\r*`•-"
_NOTHING = frozenset({"–", "—", "none", "nothing", "n/a"})


def checklist_tokens(scheme: str, least: int, verbatim: bool = False) -> int:
    """Tokens that a checklist may take: what rollouts may, or more where the scheme has more lines than that holds;
    verbatim, with twice the scheme's words besides."""
    return max(least, LINE * len(line_ids(scheme)) + (2 * len(tokens(scheme)) if verbatim else 0))


def read_checklist(reply: str, scheme: str, answer: str, verbatim: bool = False) -> tuple[str | None, Unusable | None]:
    """The checklist that a reply holds, one line for each point: `P1 | covered | quote`, or why it holds none.
    verbatim: in place of the id stands the scheme's line, which alone names a point.

    Verdicts are `covered` and `not covered` in any case; the quote and its marks are optional, and a point whose quote
    does not stand in the answer is not covered. Lines without a bar and lines on points that the scheme does not have
    are left out. A point decided twice in the same way counts once. Where the scheme names no points, any are taken.

    >>> read_checklist("P1 | covered | 'in water'", "P1: roots absorb water (1 mark)", "It takes in water.")
    ('P1 | covered | in water', None)
    """
    ids = {name.casefold(): name for name in point_ids(scheme)}
    if verbatim and ids:
        ids = {folded(line): line for line in scheme.split("\n") if line.partition(":")[0].casefold() in ids}
    covered_of: dict[str, bool] = {}
    lines: dict[str, str] = {}
    for line in reply.split("\n"):
        if "|" not in line:
            continue
        point = _point(line)
        if point is None:
            return None, "checklist_unreadable"
        name, covered, quote = point
        if ids:
            name = ids.get(folded(name) if verbatim else name.casefold(), "")
        if not name:
            continue
        if quote and find(quote, answer) is None:
            covered, quote = False, ""
        if covered_of.setdefault(name, covered) != covered:
            return None, "checklist_contradictory"
        lines.setdefault(name, f"{name} | {'covered' if covered else 'not covered'} | {quote or 'none'}")
    return ("\n".join(lines.values()), None) if lines else (None, "checklist_empty")


def _point(line: str) -> tuple[str, bool, str] | None:
    """A checklist line's id, verdict and quote, without bullets, bold and quotation marks; None where it has another
    form."""
    name, *rest = (part.strip(_DRESS) for part in line.strip().strip("|").split("|", 2))
    verdict = " ".join(rest[0].casefold().split()) if rest else ""
    if not name or verdict not in _VERDICTS:
        return None
    quote = unquoted(rest[1]) if len(rest) > 1 else ""
    return name, _VERDICTS[verdict], "" if quote.casefold() in _NOTHING else quote


Mimicry = Literal["copies_checklist", "checklist_form", "lists_points"]
"""Runs of its words are the checklist's alone; it has the checklist's form, or speaks of a checklist; it speaks of
points that the attempt had not come to."""

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
    step = attempt[chosen]
    text = "\n".join(revision)
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
            words = [match[0].casefold() for match in _NUMBER.finditer(clause)]
            numbers |= {_WORDS[word] for word in words if word in _WORDS}
            numbers |= {int(word) for word in words if word not in _WORDS and word.isdecimal()}
    return numbers


RUN = 6
"""Tokens in a row that count as copied."""
KNOWN = 3
"""Tokens in a row that show that a word is taken from what the grader sees anyway."""
LONGEST = 12
"""From this run on the revision is refused, however long it is."""
DENSE = 0.5
"""From this share of copied tokens on it is refused."""
POINTS = 2
"""From so many points on that the attempt had not come to it is refused."""

_SIGN = re.compile(SIGN)


def mimicry(
    revision: Sequence[str], checklist: str | None, scheme: str, visible: Sequence[str], before: str
) -> Mimicry | None:
    """How a revision, given as its lines, imitates the checklist; None where it does not.

    checklist: None where the reviser was shown none; its words cannot be copied then. scheme: ρ (rho). visible: what
    the grader sees in any case: question, scheme, answer, attempt. before: the attempt up to and with the replaced
    step; points named there may be named again, so that a step that adds up can be mended, and a form used there may
    be kept.
    """
    text = "\n".join(revision)
    if any(map(_point, revision)) and not any(map(_point, before.split("\n"))):
        return "checklist_form"
    if "checklist" in tokens(text) and not any("checklist" in tokens(source) for source in visible):
        return "checklist_form"
    if checklist is not None:
        longest, share = copied(text, checklist, visible)
        if longest >= LONGEST or share >= DENSE:
            return "copies_checklist"
    others = _points(text, scheme) - _points(before, scheme)
    return "lists_points" if len(others) >= POINTS else None


def copied(revision: str, checklist: str, visible: Iterable[str]) -> tuple[int, float]:
    """What a revision takes from the checklist alone: tokens of the longest run (of signs, half their number, rounded
    down), and the share of copied tokens among all of the revision, in [0, 1].

    Counted are runs of at least `RUN` tokens of the revision that stand in the checklist, and nowhere in what is
    visible. A token is taken from what is visible where it is part of `KNOWN` in a row that stand in one such text; it
    ends a run.

    >>> copied("so the wall stops it from bursting", "P1 | covered | so the wall stops it from bursting", ["the cell"])
    (7, 1.0)
    """
    words = tokens(revision)
    times = 2 if sum(map(bool, map(_SIGN.match, words))) * 2 > len(words) else 1
    mask = _covered(words, [checklist], RUN * times) & ~_covered(words, visible, KNOWN * times)
    edges = np.flatnonzero(np.diff(mask, prepend=False, append=False))
    lengths = edges[1::2] - edges[::2]
    runs = lengths[lengths >= RUN * times]
    return int(runs.max(initial=0)) // times, float(runs.sum() / max(len(words), 1))


def _covered(words: Sequence[str], sources: Iterable[str], length: int) -> Bools:
    """(n,) tokens that are part of a run of `length` that stands in one of the sources."""
    known: set[tuple[str, ...]] = set()
    for source in sources:
        known.update(_grams(tokens(source), length))
    mask = np.zeros(len(words), np.bool_)
    for start, gram in enumerate(_grams(words, length)):
        if gram in known:
            mask[start : start + length] = True
    return mask


def _grams(words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + length]) for start in range(len(words) - length + 1)]


def _points(text: str, scheme: str) -> set[str]:
    """The scheme's points that a text names."""
    words = f" {' '.join(tokens(text))} "
    return {name for name in point_ids(scheme) if f" {' '.join(tokens(name))} " in words}
