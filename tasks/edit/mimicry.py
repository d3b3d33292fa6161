"""Whether a revision copies the checklist instead of mending the step (section 2.2 and appendix F).

The paper names a checklist-mimicry detector and does not define it; all of it is ours. Tokens are words, and in Chinese
and Japanese single characters, of which a run has to be twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from tasks.edit.checklist import is_line, point_ids
from tasks.stats.arrays import Bools
from tasks.text.tokens import SIGN, tokens

Mimicry = Literal["copies_checklist", "checklist_form", "lists_points"]
"""Runs of its words are the checklist's alone; it has the checklist's form, or speaks of a checklist; it speaks of
points that the attempt had not come to."""

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


class Copied(NamedTuple):
    """What a revision takes from the checklist alone."""

    longest: int
    """Tokens of the longest run; of signs, half their number, rounded down."""
    share: float
    """Copied tokens among all of the revision, in [0, 1]."""


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
    if any(map(is_line, revision)) and not any(map(is_line, before.split("\n"))):
        return "checklist_form"
    if "checklist" in tokens(text) and not any("checklist" in tokens(source) for source in visible):
        return "checklist_form"
    if checklist is not None:
        runs = copied(text, checklist, visible)
        if runs.longest >= LONGEST or runs.share >= DENSE:
            return "copies_checklist"
    others = _points(text, scheme) - _points(before, scheme)
    return "lists_points" if len(others) >= POINTS else None


def copied(revision: str, checklist: str, visible: Iterable[str]) -> Copied:
    """Runs of at least `RUN` tokens of the revision that stand in the checklist, and nowhere in what is visible.

    A token is taken from what is visible where it is part of `KNOWN` in a row that stand in one such text; it ends a
    run.

    >>> copied("so the wall stops it from bursting", "P1 | covered | so the wall stops it from bursting", ["the cell"])
    Copied(longest=7, share=1.0)
    """
    words = tokens(revision)
    signs = sum(map(bool, map(_SIGN.match, words))) * 2 > len(words)
    times = 2 if signs else 1
    from_checklist = _covered(words, [checklist], RUN * times) & ~_covered(words, visible, KNOWN * times)
    runs = [run for run in _runs(from_checklist) if run >= RUN * times]
    return Copied(max(runs, default=0) // times, sum(runs) / len(words) if words else 0.0)


def _covered(words: Sequence[str], sources: Iterable[str], length: int) -> Bools:
    """(n,) tokens that are part of a run of `length` that stands in one of the sources."""
    source_grams: set[tuple[str, ...]] = set()
    for source in sources:
        source_grams.update(_grams(tokens(source), length))
    mask = np.zeros(len(words), np.bool_)
    for start, gram in enumerate(_grams(words, length)):
        if gram in source_grams:
            mask[start : start + length] = True
    return mask


def _grams(words: Sequence[str], length: int) -> list[tuple[str, ...]]:
    return [tuple(words[start : start + length]) for start in range(len(words) - length + 1)]


def _runs(mask: Bools) -> list[int]:
    """Lengths of the runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return [int(length) for length in edges[1::2] - edges[::2]]


def _points(text: str, scheme: str) -> set[str]:
    """The scheme's points that a text names."""
    words = f" {' '.join(tokens(text))} "
    return {name for name in point_ids(scheme) if f" {' '.join(tokens(name))} " in words}
