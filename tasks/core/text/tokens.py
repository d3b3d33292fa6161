"""Tokens of a text, where a word or a number begins and ends, so that a quote cuts none, and numbers written as text.

Tokens are runs of letters and digits, lower case; in Chinese and Japanese, written without spaces, every character. A
number is one piece with its sign, its decimals and its unit (−3.5 %, 50 kg, $1,000, 2/3), a word with the negation that
hangs on it (can't, non-toxic, sugar-free). In scripts written without spaces every character may be an edge.
"""

from __future__ import annotations

import math
import re
import unicodedata
from itertools import pairwise
from typing import NamedTuple

import regex

SIGN = "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
"""Kana and Han: a pattern for one character."""
_WORD = re.compile(r"[^\W_]+")
_SIGN = re.compile(SIGN)
_WORD_OR_SIGN = re.compile(rf"{SIGN}|(?:(?!{SIGN})[^\W_])+")


def tokens(text: str) -> list[str]:
    """Lower-case alphanumeric tokens in order; punctuation and underscores separate, an accent does not."""
    return words(composed(text))


def words(text: str) -> list[str]:
    """The tokens of a text that is already in lower case and composed."""
    return (_WORD if text.isascii() or not _SIGN.search(text) else _WORD_OR_SIGN).findall(text)


def composed(text: str) -> str:
    """The text in which tokens are looked for: lower case, accents composed with their letters."""
    return (text if text.isascii() else unicodedata.normalize("NFC", text)).lower()


# Numbers that are written as text: in the cells of files, in replies, in votes.

_PLAIN_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


_WITH_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")


def number_of(text: str) -> float | None:
    """The finite number that a text is, blanks around it left out: digits 0 to 9 with an optional sign, decimal point
    and exponent. None for all else that Python's `float` would read: digits of other scripts, 1_0, inf, nan."""
    bare = text.strip()
    number = float(bare) if _PLAIN_NUMBER.fullmatch(bare) else math.inf
    return number if math.isfinite(number) else None


def whole(number: float) -> float:
    """A number as people write it: 1 for 1.0."""
    return int(number) if number.is_integer() else number


def decimal_of(text: str) -> float | None:
    """`number_of` a text whose decimal sign may be a comma; None for `1,000`, which may be one or a thousand."""
    bare = text.strip()
    is_decimal = _WITH_COMMA.fullmatch(bare) and not _THOUSANDS.fullmatch(bare)
    return number_of(bare.replace(",", ".")) if is_decimal else number_of(text)


_SCORE = re.compile(r"(?<![\w.,])-?\d+(?:[.,]\d+)?(?![\w])")


def names_scores(prose: str, low: float, high: float, step: float) -> bool:
    """Whether a text names two scores of the scale from `low` to `high`, or more."""
    numbers = {float(number.replace(",", ".")) for number in _SCORE.findall(prose)}
    steps = [(number - low) / step for number in numbers if low <= number <= high]
    return sum(abs(number - round(number)) < 1e-6 for number in steps) >= 2


UNIT_OF_POINTS = (
    r"(?:p|pt|pts|pkte?|punkte?n?|punktzahl|points?|marks?|ptos?|puntos?|punti|punto|pontos?|punten|poäng|poeng|point|"
    r"pistettä|piste|pkt|punkty|punktów|pkt|be|vp|балл(?:а|ов|ы)?|б|分|点|점)\.?"
)
"""What points are called behind their number."""
_POINTS = r"[+-]?(?:\d+(?:[.,]\d*)?|[.,]\d+)"
_SHARE = r"(?:\(\s*[\d.,]+\s*%\s*\))"
_MARK = re.compile(
    rf"(?P<points>{_POINTS}|[-–—]{{0,2}})\s*(?:/|out of|of|von|sur|de|su|av|van|z|из)\s*(?P<most>\d+(?:[.,]\d+)?)\s*"
    rf"(?:{UNIT_OF_POINTS})?\s*{_SHARE}?|(?P<percent>{_POINTS})\s*%|(?P<bare>{_POINTS})\s*(?:{UNIT_OF_POINTS})?\s*{_SHARE}?",
    re.IGNORECASE | re.ASCII,
)


class Mark(NamedTuple):
    """What a cell of marks says."""

    points: float | None
    """None where it gives none: "-- / 3"."""
    most: float | None
    """The most points, where it says out of how many; 100 of a percentage."""


def mark_of(text: str) -> Mark | None:
    """The mark that a text is: "3", "2,5", "3.00 / 3", "4 von 5", "7 / 10 pts (70%)", "85 %", "2 Punkte", "-- / 3";
    None for all else. A question that is worth nothing ("0 / 0") has no mark."""
    match = _MARK.fullmatch(" ".join(text.split()))
    if match is None:
        return None
    written = next(match[name] for name in ("points", "percent", "bare") if match[name] is not None)
    points = decimal_of(written)
    most = 100.0 if match["percent"] else decimal_of(match["most"]) if match["most"] else None
    if (points is None and written.strip("-–—")) or (most is None and (match["most"] or points is None)):
        return None
    return Mark(points, most) if most != 0 else Mark(None, None)


# Edges of words and numbers.

_UNSPACED = SIGN[:-1] + "\u3005\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]"
"""Han and kana, Thai, Lao, Burmese and Khmer."""
_LETTER, _RUN = rf"(?:(?!{_UNSPACED})[^\W\d_])", rf"(?:(?!{_UNSPACED})[^\W_])+"
_UNIT = (
    r"[%‰°]|km/h|mph|m/s|kwh|(?:k|c|d|m|µ|μ|n)?(?:m|g|l|s|w|j|v|n|hz|pa|mol)(?:\^?[23])?|k?cal|t|k|h|min|ppm|"
    r"lbs?|oz|ft|mi|eur|usd|per ?cent|degrees?|hundred|thousand|[mb]illion|[ap]\.?m"
)
_SIGNED = r"(?:(?:(?<![^\W_][^\W_])[+\-−–]|[<>≤≥±≈~] ?)(?=[\d$€£¥₹₽₩]))?(?:[$€£¥₹₽₩] ?(?=\d))?"
_GROUPED = r"(?<![^\W_])\d{1,3}(?:(?: \d{3})+(?!\d)| (?=\d{1,2}[/⁄∕]\d))"
"""12 500 and 1 2/3."""
_NUMBER = (
    rf"{_SIGNED}(?:{_GROUPED}|{_LETTER}*\d)(?:{_RUN})?"
    rf"(?:(?:(?<=\d)(?:[.,:/⁄∕^'’·×*+÷\-−–]|\^[+\-−])|(?<=\de)[+\-−])\d(?:{_RUN})?)*"
    rf"(?:(?<=\d) ?(?:[$€£¥₹₽₩]|°[cfk]?|(?:{_UNIT}))(?![^\W_]))?"
)
_PREFIX = (
    r"(?:(?:non|un|anti|counter|dis|in|im|il|ir|mis|pseudo)(?:[-‐‑] ?|[()\[\]*~·•\"'’]+)|(?:not|no)[-‐‑()\[\]*~·•]+)"
)
_WHOLE_WORD = (
    rf"(?:[(\[]?{_PREFIX})?{_RUN}"
    rf"(?:['’](?:t|s|re|ll|ve|d|m)(?![^\W_])|(?<=\bn)['’]{_RUN}|[-‐‑](?:free|less|proof|deficient)(?![^\W_]))?"
)
_PIECE = re.compile(rf"{_NUMBER}|{_WHOLE_WORD}|(?<!\d)\.\d+")
_INDEX = re.compile(r"(?<=[^\W_])(?:_|\^(?=[+\-−({\d])|(?<![^\W_]{3})\^)[+\-−({]*(?=[^\W_])")
"""What binds an exponent, an index or the next part of a name to what stands before it."""
_FIGURE = re.compile(r"(?:(?<![^\W_][^\W_])(?<![\d])[+\-−–])?\d+(?:[.,:/^'’·×\-−–]\d+)*")
_DASHES = str.maketrans("−–", "--")
_TWO_WORDS = re.compile("[a-zà-öø-ÿ] [a-zà-öø-ÿ]")
_LONG = re.compile(rf"{_LETTER}{{5}}|{_UNSPACED}{{5}}|{SIGN}(?:[\W_]*{SIGN}){{2}}")
_ALNUM = re.compile(r"[^\W_]")
_REACH = 32
"""Characters to either side that are looked at: longer tokens are not matched."""
_SEAM = regex.compile(r"(?<=\p{Ll}{3})(?=\p{Lu})|(?<=\p{Lu}{3})(?=\p{Ll}\p{Lu})|(?<=\p{L}{3})(?=\d{1,2}[.)](?!\d))")
_BOUND = frozenset("0123456789$€£¥₹₽₩<>≤≥±≈~-‐‑")
"""What a unit or a number may be bound to across a blank."""
_CLOSING = frozenset(".,;:!?)")


def is_edge(text: str, position: int) -> bool:
    """Whether a folded text may be cut before the character at `position` without cutting a word or a number."""
    if position <= 0 or position >= len(text):
        return True
    before = text[position - 1]
    after = text[position]
    if before == " " and text[position - 2] not in _BOUND:
        return True
    if not (before.isdigit() or after.isdigit()):
        if after == " " and not text[position + 1 : position + 2].isdigit():
            return True
        if after in _CLOSING and text[position + 1 : position + 2] in ("", " "):
            return True
    if before.isascii() and after.isascii() and before.isalnum() and after.isalnum():
        return False
    if unicodedata.category(after)[0] == "M":
        return False
    low = max(0, position - _REACH)
    if any(index.start() <= position <= index.end() for index in _INDEX.finditer(text, low, position + _REACH)):
        return False
    return not any(piece.start() < position < piece.end() for piece in _PIECE.finditer(text, low, position + _REACH))


def is_seam(text: str, position: int) -> bool:
    """Whether a lost line break glued two words together before the character at `position` of a stored text:
    membraneActive, cellrRNA, ribosome3. (the number of a list)."""
    return _SEAM.match(text, position) is not None


def figures(folded: str) -> list[str]:
    """The numbers of a folded text in order, with sign and decimals, dashes made alike."""
    return [figure.translate(_DASHES) for figure in _FIGURE.findall(folded)]


def has_two_words(fragment: str) -> bool:
    """Whether two plain words follow each other in a folded fragment: a quick look, which may miss some."""
    return _TWO_WORDS.search(fragment) is not None


def counts(fragment: str) -> bool:
    """Whether a fragment is long enough to prove anything: two whole words, a number being one, a word of at least five
    letters, or three characters of Chinese or Japanese, of which a word takes one or two."""
    text = composed(fragment)
    if has_two_words(text) or _LONG.search(text) is not None:
        return True
    neighbours = pairwise(_PIECE.finditer(text))
    return any(not _ALNUM.search(text, piece.end(), following.start()) for piece, following in neighbours)


def is_single_word(fragment: str) -> bool:
    """Whether a fragment has one whole word or number and nothing else that says anything."""
    text = composed(fragment)
    return not has_two_words(text) and len(_PIECE.findall(text)) == 1 and re.search(_UNSPACED, text) is None
