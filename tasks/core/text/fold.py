"""Folding a text for comparison, with the way back to the stored characters.

Two texts fold alike where they read alike: invisible characters go, a word divided at the end of a line is
one, letters are of one case, and signs that are variants of a letter or digit become it (ligatures, full width,
subscripts). What is raised stays raised: 10² folds to 10^2 and never to 102.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from typing import NamedTuple

import regex

from rubricflow.tasks.core.text.languages import is_known, negations
from rubricflow.tasks.core.text.tokens import figures

BREAK = r"(?>\r\n|[\n\r\x0b\x0c\x85\u2028])"
"""The end of a line, as a pattern."""
_BLANK = r"[^\S\n\r\x0b\x0c\x85\u2028\u2029]*+"
_INVISIBLE = r"\p{Default_Ignorable_Code_Point}\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\ufff9-\ufffb"
DIVIDED = regex.compile(
    rf"(?<=\p{{L}}{{2}})(?:\u00ad[\s{_INVISIBLE}]*+|[-\u2010]{_BLANK}{BREAK}{_BLANK})(?=\p{{Ll}}{{2}})"
)
"""What divides a word at the end of a line: a soft hyphen, or a hyphen and the break."""
_UNSEEN = regex.compile(rf"{DIVIDED.pattern}|[{_INVISIBLE}]")
_UNSEEN_ASCII = re.compile(r"[\x00-\x08\x0e-\x1b\x7f]|-[ \t]*+[\n\r\x0b\x0c]")
"""Where an ASCII text may hold something unseen."""
_RAISED = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿⁱ", "0123456789+-()ni", strict=True))
_LOWERED = regex.compile(r"(?<=[\p{L})\]])(?:[₀-₉]+(?![\d⁰¹²³⁴-⁹])|[₀-₉ₐ-ₜᵢ-ᵥ]+(?![^\W_]))")
_SHIFTED = regex.compile(rf"[{''.join(_RAISED)}]+|{_LOWERED.pattern}")
_LATER = re.compile("[^\x00-\u02ff]")


class _Variants(dict[int, str]):
    """Code point → the letters or digits that it is a variant of; itself where it is none."""

    def __missing__(self, code: int) -> str:
        c = chr(code)
        kind, _, _ = unicodedata.decomposition(c).partition(" ")
        plain = unicodedata.normalize("NFKC", c)
        # 1/2, 2² and ⒈ would join the digits next to them, № would be a no, and … is told from full stops elsewhere.
        is_joined = kind not in ("<wide>", "<narrow>", "<font>") and any(p.isdigit() for p in plain)
        is_kept = kind in ("", "<fraction>", "<super>", "<sub>") or not kind.startswith("<") or c in "№…"
        self[code] = c if is_kept or is_joined or any(p.isspace() for p in plain) else plain
        return self[code]


_VARIANTS = _Variants()


class Folded:
    """A folded text; character i of it came from `source[start[i]:end[i]]` of the stored one.

    Most folded texts are only looked through, so the way back is worked out when it is first asked for.
    """

    def __init__(self, source: str) -> None:
        self.source, self.text = source, folded(source)

    @cached_property
    def bare(self) -> str:
        """The folded text less all that is no letter or digit."""
        return bare_of(self.text)

    @cached_property
    def letters(self) -> Letters:
        return letters(self.text)

    @property
    def start(self) -> Sequence[int]:
        """For each folded character the first stored one that it came from."""
        return self._places[0]

    @property
    def end(self) -> Sequence[int]:
        """For each folded character one past the last stored one that it came from."""
        return self._places[1]

    def span(self, low: int, high: int) -> tuple[int, int]:
        """Stored characters [start, end) that the folded ones [low, high) came from, at least one of them."""
        return (low, high) if self._is_aligned else (self.start[low], self.end[high - 1])

    @cached_property
    def _is_aligned(self) -> bool:
        """Whether every character folds alone, and to one character."""
        text = self.source
        if len(self.text) != len(text):
            return False
        # Nothing of ASCII folds to more than one character, so where the length stays nothing folds to less either.
        if text.isascii():
            return True
        if not unicodedata.is_normalized("NFKC", text) or len(text.casefold()) != len(text):
            return False
        return not any(_joins(c) for c in _LATER.findall(text)) and not _UNSEEN.search(text)

    @cached_property
    def _places(self) -> tuple[Sequence[int], Sequence[int]]:
        """First and one past the last stored character of each folded one."""
        starts, ends = array("L"), array("L")
        is_after_space = False
        for start, end, said in _clusters(self.source):
            if said.isspace():
                is_after_space = bool(ends)
                continue
            if is_after_space:
                starts.append(ends[-1])
                ends.append(start)
                is_after_space = False
            size = len(unicodedata.normalize("NFC", said).casefold())
            starts.extend([start] * size)
            ends.extend([end] * size)
        return starts, ends


def folded(text: str) -> str:
    """The text in one form: nothing invisible in it, variants of letters and digits as these, Unicode NFC, case folded,
    and every run of white space as one space; none at the ends."""
    if text.isascii() and not _UNSEEN_ASCII.search(text):
        return " ".join(text.lower().split())
    seen = _UNSEEN.sub("", text)
    if not unicodedata.is_normalized("NFKC", seen):
        seen = _SHIFTED.sub(lambda run: "".join(_on_the_line(run)), seen).translate(_VARIANTS)
    return " ".join(unicodedata.normalize("NFC", seen).casefold().split())


@lru_cache(maxsize=512)
def fold(text: str) -> Folded:
    """A folded text with the way back, kept for when the same text comes again."""
    return Folded(text)


def _on_the_line(run: regex.Match[str]) -> list[str]:
    """What each of raised or lowered characters is when it is written on the line."""
    characters = run[0]
    if characters[0] not in _RAISED:
        return [unicodedata.normalize("NFKC", c) for c in characters]
    plain = [_RAISED[c] for c in characters]
    before = run.string[run.start() - 1 : run.start()]
    after = run.string[run.end() : run.end() + 1]
    is_charge = before.isalpha() and plain[-1] in "+-"  # Ca²⁺
    is_isotope = not before.strip() and after.isalpha() and characters.isdigit()  # ¹⁴C
    return plain if is_charge or is_isotope else ["^" + plain[0], *plain[1:]]


def _joins(c: str) -> bool:
    """Whether a character may compose onto the one before it: a mark, or a vowel or final jamo."""
    return c > "\u02ff" and (unicodedata.category(c)[0] == "M" or "\u1160" <= c <= "\u11ff")


def _clusters(text: str) -> Iterator[tuple[int, int, str]]:
    """Characters that are seen, each with those behind it that may compose onto it: start and end in the stored text,
    and what is compared, not yet composed. A character of white space is alone."""
    stored: list[int] = []
    low = 0
    for unseen in _UNSEEN.finditer(text):
        stored += range(low, unseen.start())
        low = unseen.end()
    stored += range(low, len(text))
    seen = _UNSEEN.sub("", text)
    said = [_VARIANTS[ord(c)] for c in seen]
    for run in _SHIFTED.finditer(seen):
        said[run.start() : run.end()] = _on_the_line(run)
    first = 0
    for i in range(1, len(said) + 1):
        if i == len(said) or not _joins(said[i][0]) or said[i - 1].isspace():
            if i:
                yield stored[first], stored[i - 1] + 1, "".join(said[first:i])
            first = i


# A folded text less everything that may be written otherwise without meaning something else: spaces, hyphens,
# apostrophes, quotation marks, brackets, commas and invisible characters go; letters with their marks, digits, signs
# that mean something (+ < = % ° $) and the ends of sentences within the text stay.

_STOP = r"""[.!?。！？…]+(?=["'”’»)\]]*\s)|[。！？]"""
_MEANINGFUL = regex.compile(rf"[\p{{L}}\p{{N}}\p{{M}}]+|[\p{{Sm}}\p{{Sc}}\p{{So}}^%‰&@#*/\\--−]|{_STOP}", regex.V1)
_BARE = re.compile(r"[^\W_]+")
_STOPS = frozenset(".!?。！？…")
_APOSTROPHE = re.compile(r" ?['’‘ʼ`´](?=(?:s|t|re|ll|ve|d|m)(?![^\W_]))|(?<=[^\W_])['’‘ʼ`´](?=[^\W_])")
_POSSESSIVE = re.compile(r"(?<=[^\W\d_]{4})'s(?![^\W_])")
_BRACKETS = re.compile(r"(?<=[^\W_])[()\[\]{}]+(?=[^\W_])")
_WORD = re.compile(r"\d+|(?:(?!\d)[^\W_])+(?:'(?:(?!\d)[^\W_])+)*")
_PREFIXES = {
    "en": "a ab an anti counter dis ex il im in ir mal mis non over re un under",
    "de": "ent in miss un ver",
    "es": "a anti contra des im in ir",
    "fr": "a anti contre des dé im in ir mal mé",
    "it": "a anti contro dis im in ir mal",
    "nl": "in mis on ont ver",
    "pt": "a anti contra des im in ir",
    "ru": "а без не",
}
"""Prefixes that make another word, by language; those of English in all."""
_HYPHEN = r"[-‐‑–]"
_PARTED = sorted({"co", "de", "pre", "pro", *" ".join(_PREFIXES.values()).split()} - {"anti", "counter"})
_COMPOUND = re.compile(
    rf"(?<![^\W_])(?!(?:{'|'.join(_PARTED)})"
    rf"{_HYPHEN})([^\W\d_]{{2,}}){_HYPHEN}(?=[^\W\d_])"
)
"""A hyphen after a word that is no prefix: north-east is northeast."""
_SUFFIXES = frozenset(("free", "less", "proof"))
_LEAST_STEM = 4
"""Letters behind a prefix that may be a word: a lot has fewer, a typical more."""


class Letters(NamedTuple):
    """The letters of a folded text, and where they stood."""

    source: str
    """The folded text."""
    text: str
    """What is left of it; the end of a sentence is a full stop."""
    places: tuple[int, ...]
    """Where in `text` each piece begins."""
    origins: tuple[int, ...]
    """Where in `source` it began."""

    def origin(self, index: int) -> int:
        """Where in `source` the character `index` of `text` stood."""
        piece = bisect_right(self.places, index) - 1
        return self.origins[piece] + index - self.places[piece]

    def place(self, origin: int) -> int:
        """Where in `text` a kept character of `source` stands."""
        piece = bisect_right(self.origins, origin) - 1
        return self.places[piece] + origin - self.origins[piece]

    def edges(self) -> frozenset[int]:
        """Where in `text` pieces begin and end."""
        return frozenset((*self.places, len(self.text)))

    def words(self, low: int, high: int) -> tuple[list[str], ...]:
        """The words and numbers of `text[low:high]`, which begins and ends at edges, as they are divided in `source`;
        then those that are left where no bracket divides them, and where no hyphen of a compound does."""
        stored = self.source[self.origin(low) : self.origin(high - 1) + 1]
        stored = _POSSESSIVE.sub("s", _APOSTROPHE.sub("'", stored))
        return tuple(
            _WORD.findall(undivided) for undivided in (stored, _BRACKETS.sub("", stored), _COMPOUND.sub(r"\1", stored))
        )


def bare_of(folded: str) -> str:
    """A folded text less all that is no letter or digit: what does not stand in it bare stands in it nowhere."""
    return "".join(_BARE.findall(folded))


def letters(folded: str) -> Letters:
    """The letters of a folded text."""
    pieces, places, origins, length = [], [], [], 0
    for match in _MEANINGFUL.finditer(folded):
        piece = "." if match[0][0] in _STOPS else match[0]
        pieces.append(piece)
        places.append(length)
        origins.append(match.start())
        length += len(piece)
    return Letters(folded, "".join(pieces), tuple(places), tuple(origins))


def say_the_same(first: Letters, second: Letters, language: str | None) -> bool:
    """Whether two texts of equal letters say the same: they hold the same numbers and words of negation, and none has
    other words by another place of a blank, hyphen or apostrophe.

    language: that of the texts, or None where it is not known: then none may be divided otherwise at all. Where it is
    known one side must hold what is no word (alot, pho tosynthesis), so that it is a slip and no other word (a part and
    apart, were and we're, resent and re-sent), and no prefix may come off (in famus).
    """
    if figures(first.source) != figures(second.source):
        return False
    first_negations, second_negations = _negations(first), _negations(second)
    if len(first_negations) != len(second_negations):
        return False
    first_edges = chain.from_iterable(first_negations)
    second_edges = chain.from_iterable(second_negations)
    if not (second.edges().issuperset(first_edges) and first.edges().issuperset(second_edges)):
        return False
    for low, high in pairwise(sorted(first.edges() & second.edges())):
        if not all(
            any(start <= low and high <= end for start, end in of) for of in (first_negations, second_negations)
        ) and not _are_slips(first.words(low, high), second.words(low, high), language):
            return False
    return True


def _are_slips(first_ways: tuple[list[str], ...], second_ways: tuple[list[str], ...], language: str | None) -> bool:
    """Whether the same letters, in other words in each way to divide them, are a slip."""
    told = 3 if language else 2
    if any(way in second_ways[:told] for way in first_ways[:told]):
        return True
    first, second = first_ways[0], second_ways[0]
    if language is None or all(is_known(word, language) for word in (*first, *second) if not word.isdigit()):
        return False
    prefixes = f"{_PREFIXES[language]} {_PREFIXES['en']}".split()
    for one, other in chain(pairwise(first), pairwise(second)):
        if (one in prefixes and len(other) >= _LEAST_STEM) or other in _SUFFIXES or len(one) == len(other) == 1:
            return False
    return True


def _negations(folded_letters: Letters) -> list[tuple[int, int]]:
    """Where words of negation begin and end among the letters."""
    return [
        (folded_letters.place(low), folded_letters.place(high - 1) + 1)
        for low, high in negations(folded_letters.source)
    ]
