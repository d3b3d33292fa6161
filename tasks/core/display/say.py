"""Numbers and names as a person reads them. Names and texts are hostile: what cannot be seen is made visible."""

from __future__ import annotations

import re
import unicodedata

from rubricflow.tasks.core.stats.bootstrap import MARK, is_few
from rubricflow.tasks.core.stats.metrics import Unit
from rubricflow.tasks.core.stats.verdict import Estimate

NOT_KNOWN = "not known"
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_OPEN, _CLOSE = "\u2068", "\u2069"
"""First strong isolate, and its end: a name in Arabic does not turn the sentence around it."""
NAME_LENGTH = 64
WORDING_LENGTH = 40
_NUMBERED = re.compile("Q?[0-9]{1,9}|#[0-9a-f]{12}")
"""Ids of questions that have no name, those that are digests included, as studies of earlier times have them."""


def visible(text: str) -> str:
    """The text with control characters, bidirectional overrides, invisible tags and lone surrogates as ⟨U+202E⟩."""
    return _UNSEEN.sub(lambda match: f"⟨U+{ord(match[0]):04X}⟩", text)


def plain(text: str) -> str:
    """A text without these isolates, for terminals, which show them."""
    return text.replace(_OPEN, "").replace(_CLOSE, "")


def name(text: str) -> str:
    """An id or name on one line, cut where it is long, isolated from the direction of the words around it."""
    line = " ".join(visible(text[: 4 * NAME_LENGTH].replace("\n", " ").replace("\t", " ")).split(" "))
    return f"{_OPEN}{cut(line, NAME_LENGTH)}{_CLOSE}"


def question(item_id: str, wording: str | None) -> str:
    """A question as people know it: an id that is a number, as in Q1, with the beginning of its wording."""
    words = " ".join(visible(wording or "").split())
    if not words or not _NUMBERED.fullmatch(item_id):
        return item_id
    begins = cut(words, WORDING_LENGTH)
    return begins if item_id.startswith("#") else f"{item_id} ({begins})"


def in_order(item_id: str) -> list[tuple[int, str]]:
    """A key by which Q2 comes before Q10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split("([0-9]{1,9})", item_id)]


def cut(text: str, length: int) -> str:
    """At most `length` characters, an ellipsis in place of what is left out; no accent is parted from its letter."""
    if len(text) <= length:
        return text
    end = length - 1
    while end and unicodedata.combining(text[end]):
        end -= 1
    return text[:end] + "…"


def count(number: int) -> str:
    """1,198."""
    return f"{number:,}"


def more_labels(number: int) -> str:
    """How many more labels would decide something: +1,492; beyond ten thousand the number is no plan any more."""
    return f"+{number:,}" if number <= 10_000 else "more than 10,000"


def plural(number: int, noun: str, nouns: str = "") -> str:
    """1 score; 1,198 scores."""
    return f"{count(number)} {noun if number == 1 else nouns or noun + 's'}"


def number(value: float, digits: int = 2) -> str:
    """0.82; −0.05; 0 without a sign."""
    text = f"{value:,.{digits}f}"
    if not any(digit in text for digit in "123456789"):
        return text.lstrip("-")
    return text.replace("-", "−")


def share(value: float) -> str:
    """58%, 1.9%, <0.1%; 100% and 0% only where it is all or none."""
    percent = 100 * value
    if 0 < abs(percent) < 0.1:
        return "<0.1%" if percent > 0 else "−<0.1%"
    if 99.5 <= percent < 100:
        return f"{min(percent, 99.9):.1f}%"
    return f"{number(percent, 0 if abs(percent) >= 10 or not percent else 1)}%"


def rate(value: float) -> str:
    """A share that somebody chose, with the digits it was chosen with: 5%, 2.5%."""
    return f"{100 * value:.4g}%"


def signed(value: float) -> str:
    """+0.13, −0.13, 0.00."""
    text = number(value)
    return f"+{text}" if value > 0 and text.strip("0.,") else text


def figure(value: float, unit: Unit) -> str:
    """A figure in its unit."""
    if unit == "signed_share":
        return f"+{share(value)}" if value > 0 else share(value)
    if unit == "count":
        return count(round(value))
    if unit == "share":
        return share(value)
    return signed(value) if unit == "signed" else number(value)


def interval(estimate: Estimate, unit: Unit) -> str:
    """0.79 to 0.84, marked where few clusters were resampled; empty where there is none."""
    if estimate.low is None or estimate.high is None or unit == "count":
        return ""
    low = figure(estimate.low, unit)
    high = figure(estimate.high, unit)
    return f"{low.removesuffix('%')} to {high}{MARK if is_few(estimate.clusters) else ''}"


def duration(seconds: float) -> str:
    """12.3 s; 4.5 min; 2.1 h."""
    unit, size = next(((u, n) for u, n in (("h", 3600), ("min", 60)) if seconds >= 1.5 * n), ("s", 1))
    return f"{number(seconds / size, 1)} {unit}"


def sentence(words: str) -> str:
    """Words as the beginning of a sentence."""
    return f"{words[:1].upper()}{words[1:]}"


def level(value: float) -> str:
    """A score on a scale: 2, 2.5; a zero has no sign."""
    return f"{value + 0.0:g}".replace("-", "−")


def worded(code: str) -> str:
    """An identifier as words: out_of_range, out of range."""
    return code.replace("_", " ")
