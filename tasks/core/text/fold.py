"""Folding a text for comparison, with the way back to the stored characters.

Two texts fold alike where they read alike: invisible characters go, a word divided at the end of a line is
one, letters are of one case, and signs that are variants of a letter or digit become it (ligatures, full width,
subscripts). What is raised stays raised: 10² folds to 10^2 and never to 102.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache

import regex

from rubricflow.tasks.core.text.letters import Letters, bare_of, letters

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

    __slots__ = ("_bare", "_is_aligned", "_letters", "_places", "source", "text")

    def __init__(self, source: str) -> None:
        self.source = source
        self.text = folded(source)
        self._is_aligned: bool | None = None if len(self.text) == len(source) else False
        self._places: tuple[Sequence[int], Sequence[int]] | None = None
        self._letters: Letters | None = None
        self._bare: str | None = None

    @property
    def bare(self) -> str:
        """The folded text less all that is no letter or digit."""
        if self._bare is None:
            self._bare = bare_of(self.text)
        return self._bare

    @property
    def letters(self) -> Letters:
        """The letters of the folded text."""
        if self._letters is None:
            self._letters = letters(self.text)
        return self._letters

    @property
    def start(self) -> Sequence[int]:
        """For each folded character the first stored one that it came from."""
        return self._back()[0]

    @property
    def end(self) -> Sequence[int]:
        """For each folded character one past the last stored one that it came from."""
        return self._back()[1]

    def span(self, low: int, high: int) -> tuple[int, int]:
        """Stored characters [start, end) that the folded ones [low, high) came from, at least one of them."""
        if self._is_aligned is None:
            self._is_aligned = _is_single(self.source)
        if self._is_aligned:
            return low, high
        starts, ends = self._back()
        return starts[low], ends[high - 1]

    def _back(self) -> tuple[Sequence[int], Sequence[int]]:
        if self._places is None:
            self._places = _places(self.source)
        return self._places


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
    before, after = run.string[run.start() - 1 : run.start()], run.string[run.end() : run.end() + 1]
    is_charge = before.isalpha() and plain[-1] in "+-"  # Ca²⁺
    is_isotope = not before.strip() and after.isalpha() and characters.isdigit()  # ¹⁴C
    return plain if is_charge or is_isotope else ["^" + plain[0], *plain[1:]]


def _places(text: str) -> tuple[Sequence[int], Sequence[int]]:
    """First and one past the last stored character of each folded one."""
    starts, ends = array("L"), array("L")
    is_after_space = False
    for start, end, said in _clusters(text):
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


def _is_single(text: str) -> bool:
    """Whether every character folds alone, and to one character."""
    if text.isascii():
        return not _UNSEEN_ASCII.search(text)
    # Nothing folds to less than one character, so where the length stays nothing folds to more either.
    return (
        unicodedata.is_normalized("NFKC", text)
        and len(text.casefold()) == len(text)
        and not any(_joins(c) for c in _LATER.findall(text))
        and not _UNSEEN.search(text)
    )


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
