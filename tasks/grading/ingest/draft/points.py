"""The most points of a question, as headers and wordings say them, and whether graded totals agree with them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

_NUMBER = r"(?P<points>[0-9]{1,4}(?:[.,][0-9]{1,2})?)"
_UNIT = (
    r"(?:p|pt|pts|pkte?|punkte?n?|punktzahl|points?|marks?|ptos?|puntos?|punti|punto|pontos?|punten|poäng|poeng|point|"
    r"pistettä|piste|pkt|punkty|punktów|pkt|be|vp|балл(?:а|ов|ы)?|б|分|点|점)\.?"
)
_MOST = (
    r"(?:max(?:imal|imum|imale?|\.)?\s*(?:punkte?|punktzahl|points?|marks?)?|"
    r"von|out of|of|sur|de|su|av|van|z|из|/|満点)"
)
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (  # the last three are for headers alone: a question may end with 'compute 1 / 2'
        rf"[(\[（]\s*{_MOST}[\s.:]*{_NUMBER}\s*(?:{_UNIT})?\s*[)\]）]",
        rf"[(\[（]\s*{_NUMBER}\s*{_UNIT}\s*[)\]）]",
        rf"[(\[（]?\s*(?<!\w)(?:{_UNIT}|{_MOST})\s*[:=：]\s*{_NUMBER}\s*(?:{_UNIT})?\s*[)\]）]?\s*$",
        rf"(?:^|[,;:?.!)–—-]\s|[0-9][.:)]?\s)\s*{_NUMBER}\s*{_UNIT}\s*$",
        rf"(?<!\w)max(?:imal|imum|\.)?\s*{_NUMBER}\s*(?:{_UNIT})?\s*$",
        rf"(?<![0-9])/\s*{_NUMBER}\s*(?:{_UNIT})?\s*$",
        r"(?<![0-9]{3})/(?P<points>[0-9]{1,4}[.,][0-9]{1,2})\s*$",
    )
)
"""(max. 4 P.), (6 pts), Punkte: 3, / 4,00, "Question 1, 4 P.", max. 5: a number between a question's own number and
'Punkte' is none of points, as in 'Aufgabe 1 Punkte'."""


def place_of_points(text: str, forms: Sequence[re.Pattern[str]] = _FORMS) -> tuple[int, int] | None:
    """Where a text says the most points: (start, end) of the number; None where it says none."""
    for form in forms:
        if (match := form.search(text)) and _number(match["points"]) > 0:
            return match.span("points")
    return None


def points_in(text: str, is_header: bool = True) -> float | None:
    """The most points that a header, or else a wording, says; None where it says none."""
    place = place_of_points(text, _FORMS if is_header else _FORMS[:-3])
    return None if place is None else _number(text[slice(*place)])


def without_points(text: str) -> str:
    """A header without what it says of points."""
    for form in _FORMS:
        if match := form.search(text):
            start = match.start() + (match[0][:1] in "?.!)" or match[0][:1].isdigit())
            return (text[:start] + text[match.end() :]).rstrip(" ,;:–—-")
    return text


def _number(digits: str) -> float:
    return float(digits.replace(",", "."))


def numbers_said(words: str, count: int) -> list[float] | None:
    """The points that a person says of `count` questions: one number for all, or one for each, parted by semicolons,
    blanks or commas; None where that is something else. Of one question '4,5' is four and a half."""
    for separator in (r"\s*;\s*|\s+", r"\s*;\s*|\s*,\s+|\s+", r"\s*[;,]\s*|\s+"):
        parts = [part for part in re.split(separator, words.strip()) if part]
        numbers = [_number(part) for part in parts if re.fullmatch(r"[0-9]{1,4}(?:[.,][0-9]{1,4})?", part)]
        if len(numbers) == len(parts) and len(numbers) in (1, count) and all(number > 0 for number in numbers):
            if len(numbers) == 1 and "," in words and count == 2:
                continue
            return numbers * (count if len(numbers) == 1 else 1)
    return None


def share_of(total: float, count: int) -> float | None:
    """What each of some questions is worth where nothing but their sum is known and it parts into halves."""
    each = total / count
    return each if each > 0 and math.isclose(each * 2, round(each * 2)) else None


def disagreeing_sums(
    marks: Mapping[int, Sequence[float]], totals: Mapping[int, float], scale: float | None
) -> list[tuple[int, float, float]]:
    """(row, the sum of its marks, its total) of the rows where these differ.

    marks, totals: by row; scale: the total's most points over the sum of the questions', where both are known: a
    platform may scale its totals, and all rows that agree then do.
    """
    sums = {row: math.fsum(numbers) for row, numbers in marks.items() if row in totals}
    plain = [(row, value, totals[row]) for row, value in sums.items() if abs(value - totals[row]) > 0.0051]
    if plain and scale and all(abs(value * scale - totals[row]) <= 0.0051 for row, value in sums.items()):
        return []
    return plain
