"""Finding a quote in a text: whole words and numbers, in order, with the spans in the stored text.

A quote stands as it is, or with other case, marks or spaces; what it leaves out by an ellipsis is short and holds no
negation. How it differs from what is stored is told (`Spelling`), so that nothing is forgiven in silence.
"""

from __future__ import annotations

import itertools
import re
import string
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from rubricflow.tasks.core.text.fold import Folded, bare_of, fold, folded, letters, say_the_same
from rubricflow.tasks.core.text.languages import is_without_negation, language_of
from rubricflow.tasks.core.text.tokens import counts, is_edge, is_seam, tokens

_ELLIPSIS = re.compile(r"(?:(?<!\s)\s++)?(?:[\[(]\s*+)?(?:…|\.\s?\.\s?\.[.\s]*)(?:\s*[\])])?\s*")
_EDGES = string.whitespace + "\u00a0\"'“”‘’«»`"
_STOPS = ".,;:!?"
_SENTENCE_END = re.compile(r"[.!?。！？]+[\"'”’)\]]*(?:\s|$)")
_DROPPED = re.compile(r"['’‘ʼ`´\-‐‑‒–—]")
_APART = re.compile(r"[^\W_]+")
MAX_GAP = 200
"""Characters that an ellipsis may leave out."""
MAX_FRAGMENTS = 8
_MOST_PLACES = 1_000
"""Places of a fragment that are tried: more occur in no text that says anything."""

Spelling = Literal["exact", "case", "marks", "spacing"]
"""How a quote differs from what is stored: alike; with other case; with other apostrophes, hyphens or commas; with
words split or joined."""


class Span(NamedTuple):
    """Characters [start, end) of the stored text."""

    start: int
    end: int


class Match(NamedTuple):
    """Where a quote stands."""

    pieces: tuple[Span, ...]
    """The spans of what ellipses leave of it, in order; of the whole quote where none splits it."""
    spelling: Spelling

    @property
    def span(self) -> Span:
        """From the first character to the last, with what an ellipsis leaves out."""
        return self.pieces[0] if len(self.pieces) == 1 else Span(self.pieces[0].start, self.pieces[-1].end)


class _Place(NamedTuple):
    """A fragment found in a folded region: its characters [low, high) there."""

    low: int
    high: int
    spelling: Spelling


def is_whole(quote: str, text: str) -> bool:
    """Whether the quote is all there is of the text, which makes any length count."""
    words = tokens(folded(quote))
    return bool(words) and words == tokens(folded(text))


def find(quote: str, text: str, start: int = 0, end: int | None = None) -> Span | None:
    """The span of a quote within `text[start:end]`, or None; surrounding quotation marks are not part of a quote.

    Fragments never come from outside the region.
    """
    match = find_folded(folded(unquoted(quote)), fold(text[start:end]), start)
    return match.span if match else None


def unquoted(quote: str) -> str:
    """A quote without surrounding quotation marks."""
    return quote.strip(_EDGES)


def shortened(text: str, limit: int) -> str:
    """The whole words of a text within so many characters; in a text without blanks, its characters."""
    if len(text) <= limit:
        return text
    words = text[: limit + 1].rsplit(maxsplit=1)
    return words[0] if len(words) > 1 else text[:limit]


def find_folded(needle: str, region: Folded, offset: int = 0) -> Match | None:
    """Where a quote, unquoted and folded, stands in a region that begins at character `offset` of the stored text.

    It must begin and end at the edges of words and numbers. Where an ellipsis splits it, every fragment must stand
    there, in order; between two of them lie at most `MAX_GAP` characters, one end of a sentence and no negation, in a
    language whose negations are known; and one fragment must be long enough to count. Case is folded and not told
    apart here (`tells_case`).
    """
    if not needle:
        return None
    low = region.text.find(needle)
    if low >= 0 and _cuts_nothing(region, low, low + len(needle)):
        start, end = region.span(low, low + len(needle))
        return Match((Span(offset + start, offset + end),), "exact")
    pieces = fragments(needle)
    places = _standing(needle, region)
    if not pieces:
        places = itertools.chain(places, _respelled(needle, region))
    place = next(places, None)
    if place is not None:
        return _match([place], region, offset)
    if len(pieces) > MAX_FRAGMENTS or not any(map(counts, pieces)):
        return None
    chain = _in_order(pieces, region)
    return _match(chain, region, offset) if chain else None


def spelled(quote: str, match: Match, text: str) -> Spelling:
    """How a quote, unquoted, differs from the stored text that it was found in, case included."""
    start, end = match.pieces[0]
    if match.spelling != "exact" or text[start:end] == quote:
        return match.spelling
    pieces = fragments(quote) if len(match.pieces) > 1 else [quote]
    quoted = " ".join(" ".join(pieces).split())
    stored = " ".join(" ".join(text[span.start : span.end] for span in match.pieces).split())
    return "exact" if quoted == stored or quoted.casefold() != stored.casefold() else "case"


def fragments(needle: str) -> list[str]:
    """What ellipses leave of an unquoted quote; nothing where there is none."""
    if needle.count(".") < len("...") and "…" not in needle:
        return []
    pieces = _ELLIPSIS.split(needle)
    if len(pieces) == 1:
        return []
    stripped = (piece.strip(_EDGES + _STOPS) for piece in pieces)
    return [piece for piece in stripped if piece]


def _cuts_nothing(region: Folded, low: int, high: int) -> bool:
    """Whether the folded characters [low, high) of a region cut no word and no number."""
    return all(
        is_edge(region.text, place) or is_seam(region.source, region.span(place, place + 1)[0]) for place in (low, high)
    )


def _match(places: Iterable[_Place], region: Folded, offset: int) -> Match:
    spans = []
    spelling: Spelling = "exact"
    for place in places:
        start, end = region.span(place.low, place.high)
        spans.append(Span(offset + start, offset + end))
        spelling = place.spelling if place.spelling != "exact" else spelling
    return Match(tuple(spans), spelling)


def _in_order(pieces: list[str], region: Folded) -> list[_Place] | None:
    """A place for every fragment, each behind the one before and near it; None where there is none."""
    chains = [[place] for place in _places(pieces[0], region)]
    for piece in pieces[1:]:
        ends = [chain[-1].high for chain in chains]
        longer = []
        for place in _places(piece, region):
            # The nearest one before leaves out least: where it is too much, it is for every other.
            before = bisect_right(ends, place.low) - 1
            if before >= 0 and _may_be_left_out(region.text, chains[before][-1], place):
                longer.append([*chains[before], place])
        chains = longer
    return chains[0] if chains else None


def _may_be_left_out(text: str, before: _Place, after: _Place) -> bool:
    """Whether an ellipsis may leave out of one statement what stands between two places of a folded text."""
    gap = text[before.high : after.low]
    if len(gap) > MAX_GAP or len(_SENTENCE_END.findall(gap)) > 1:
        return False
    return is_without_negation(gap, text[before.low : after.high], _language_near(text, before.high, after.low))


def _language_near(text: str, low: int, high: int) -> str | None:
    """The language of a passage of a folded text, with so much around it that it can be told."""
    return language_of(text[max(0, low - MAX_GAP) : high + MAX_GAP])


def _places(fragment: str, region: Folded) -> Iterator[_Place]:
    """Where a fragment stands between edges, in order: as it is, or else with other marks or spaces."""
    standing = list(_standing(fragment, region))
    yield from standing or _respelled(fragment, region)


def _standing(needle: str, region: Folded) -> Iterator[_Place]:
    """Where a needle stands as it is between edges, in order."""
    for low in _occurrences(needle, region.text):
        if _cuts_nothing(region, low, low + len(needle)):
            yield _Place(low, low + len(needle), "exact")


def _occurrences(needle: str, text: str) -> Iterator[int]:
    """Where a needle begins in a text; behind the first only where no letter stands before it."""
    low = text.find(needle)
    if low < 0:
        return
    yield low
    not_inside_word = r"(?<![a-z0-9])" if needle[0].isascii() and needle[0].isalnum() else ""
    behind = re.compile(not_inside_word + re.escape(needle))
    for _ in range(_MOST_PLACES):
        match = behind.search(text, low + 1)
        if match is None:
            return
        low = match.start()
        yield low


def _respelled(needle: str, region: Folded) -> Iterator[_Place]:
    """Where the letters of a needle stand between edges, in order, with other marks or spaces."""
    bare = bare_of(needle)
    if not bare or bare not in region.bare:
        return
    quoted = letters(needle.strip(_EDGES + _STOPS))
    stored = region.letters
    index = -1
    for _ in range(_MOST_PLACES):
        index = stored.text.find(quoted.text, index + 1)
        if index < 0:
            return
        low = stored.origin(index)
        high = stored.origin(index + len(quoted.text) - 1) + 1
        if _cuts_nothing(region, low, high):
            found = letters(region.text[low:high])
            if say_the_same(quoted, found, _language_near(region.text, low, high)):
                sides = [
                    [_APART.findall(_DROPPED.sub(hyphen, side.source)) for side in (quoted, found)]
                    for hyphen in ("", " ")
                ]
                yield _Place(low, high, "marks" if any(one == other for one, other in sides) else "spacing")
