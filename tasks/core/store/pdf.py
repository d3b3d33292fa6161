"""The text of a PDF in the order in which it is read: columns one after the other, lines joined to paragraphs, words
that the end of a line divides made whole, and without what stands at the edge of every page.

A PDF has the place of each letter and nothing else; pdfminer finds the letters, this module puts them in order.
"""

from __future__ import annotations

import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise, takewhile
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from pdfminer.converter import PDFPageAggregator
from pdfminer.layout import LTChar, LTContainer, LTImage, LTPage
from pdfminer.pdfdocument import PDFPasswordIncorrect
from pdfminer.pdfinterp import PDFPageInterpreter, PDFResourceManager
from pdfminer.pdfpage import PDFPage
from pdfminer.pdfparser import PDFSyntaxError
from pdfminer.pdftypes import resolve1
from pdfminer.psparser import LIT

from rubricflow.tasks.core.text.languages import is_known, language_of

MOST_PAGES = 500
_GUTTER = 7.0
"""Points of white between two columns, at least."""
FEW = 100
"""Characters: a page or document of pictures with fewer of them is a scan, with its title or the scanner's stamp."""
_EDGE_LINES = 3
"""Lines at the top and at the bottom of a page that may be running ones."""
_LIGATURES = str.maketrans(
    {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st", "\u00a0": " "}
)
_PAGE_NUMBER = re.compile(
    r"\W*(?:(?:page|seite|página|pagina|strona|sida|side|p\.|s\.)\s*)?(\d{1,3})(?:\s*\D{1,5}\s*\d{1,3})?\W*", re.I
)
_NOTE_MARK = re.compile(r"""(?:(?<=[^\W\d_]{3})|(?<=[.,;:!?)"”]))\^[\d*†]{1,3}(?!\w)""")
"""A raised number that is no power: after a word, or the end of one."""
_DIVIDED = re.compile(r"([^\W\d_]{2,})[-\u2010\u00ad]$")
_OF_NUMBERS = re.compile(r"\d[-\u2010–]$")
_WORD = re.compile(r"[^\W\d_]+(?:[-\u2010][^\W\d_]+)*")
_OPENS_A_LINE = re.compile(r"(?:[•◦▪‣●○■–*-]|\(?(?:\d{1,3}|[a-z])[.)])\s")
_CLOSED = re.compile(r"""[.!?:;…。！？]["'”’»)\]]*$""")
_BEFORE_ANOTHER = frozenset(["and", "or", "und", "oder", "bzw", "sowie", "et", "ou", "y", "o", "e", "ed", "en", "of"])
"""What follows a hyphen that stands for the rest of a word: Vor- und Nachteile."""


class UnreadableDocument(Exception):
    """Why a document has no text that could be read."""

    def __init__(self, reason: str, words: str) -> None:
        """reason: a key of UNREAD; words: the rest of what people are told."""
        super().__init__(words)
        self.reason, self.words = reason, words


class PdfLine(NamedTuple):
    """A line of a column. Points from the page's lower left corner."""

    text: str
    x0: float
    x1: float
    y: float
    """Of its middle."""
    size: float
    """Height of its letters."""
    page: int
    """From 0."""
    column: int
    """Number of the column, or of the part of a page across all columns, in the order of reading; of all pages."""
    of_cells: bool
    """Whether it has white in it that parts the cells of a table."""

    @property
    def first_word(self) -> float:
        """Points that its first word and a blank take."""
        return (self.x1 - self.x0) * (len(self.text.split(" ", 1)[0]) + 1) / max(1, len(self.text))


def pdf_text(content: bytes) -> str:
    """The text of a PDF; '' where no page has any.

    `UnreadableDocument` for one that asks for a password, is damaged or too long, has a page with a picture and no text
    (a scan), text in a form or in notes, or letters that stand for no character or do not stand upright.
    """
    lines: list[PdfLine] = []
    pictures = []
    pages = columns = 0
    try:
        for pages, sheet in enumerate(_pages(content), 1):
            if pages > MOST_PAGES:
                raise UnreadableDocument("file_too_large", f"it has more than {MOST_PAGES} pages")
            parts = list(_parts(sheet))
            most = 0.5 * sheet.width * sheet.height
            if any(isinstance(part, LTImage) and part.width * part.height >= most for part in parts):
                pictures.append(pages - 1)
            letters = _legible([part for part in parts if isinstance(part, LTChar) and part.height > 0])
            for column in _columns(letters):
                lines += _lines(column, pages - 1, columns)
                columns += 1
    except PDFPasswordIncorrect as error:
        raise UnreadableDocument("file_locked", "it asks for a password") from error
    except PDFSyntaxError as error:
        raise UnreadableDocument("file_damaged", "it is no PDF, or a part of it is missing") from error
    if not pages:
        raise UnreadableDocument("file_damaged", "it has no page")
    body = _without_running_lines(lines)
    for page in pictures:
        if sum(len(line.text) for line in body if line.page == page) < FEW:
            raise UnreadableDocument("file_without_text", f"page {page + 1} of {pages} is a picture: was it scanned?")
    return _joined(_notes_last(body))


def _pages(content: bytes) -> Iterator[LTPage]:
    resources = PDFResourceManager()
    device = PDFPageAggregator(resources, laparams=None)
    interpreter = PDFPageInterpreter(resources, device)
    for page in PDFPage.get_pages(io.BytesIO(content)):
        for note in map(resolve1, resolve1(page.annots) or []):
            typed = note.get("V") if note.get("FT") is LIT("Tx") else None
            typed = note.get("Contents") if note.get("Subtype") is LIT("FreeText") else typed
            if resolve1(typed):
                words = "text was typed into a form or a note, which is not read: print it into a new PDF"
                raise UnreadableDocument("file_without_text", words)
        interpreter.process_page(page)
        yield device.get_result()


def _parts(container: LTContainer[Any]) -> Iterator[object]:
    for part in container:
        yield part
        if isinstance(part, LTContainer):
            yield from _parts(part)


def _legible(letters: Sequence[LTChar]) -> list[LTChar]:
    """The letters of a page that can be read, each once: bold ones may be drawn twice."""
    legible: dict[tuple[str, int, int], LTChar] = {}
    lost = 0
    for letter in letters:
        if letter.upright and not letter.get_text().startswith("(cid:"):
            legible[letter.get_text(), round(letter.x0), round(letter.y0)] = letter
        else:
            lost += 1
    if lost > 0.1 * len(letters):
        words = "its letters stand for no characters, or do not stand upright; save it as PDF once more"
        raise UnreadableDocument("file_without_text", words)
    return list(legible.values())


def _middle(letter: LTChar) -> float:
    return (letter.y0 + letter.y1) / 2


def _rows(letters: Iterable[LTChar]) -> list[list[LTChar]]:
    """Letters side by side, from the top down, each row from left to right."""
    rows: list[list[LTChar]] = []
    tallest: LTChar | None = None
    for letter in sorted(letters, key=_middle, reverse=True):
        if tallest is None or _middle(tallest) - _middle(letter) >= 0.5 * max(tallest.height, letter.height):
            rows.append([])
            tallest = letter
        rows[-1].append(letter)
        tallest = max(tallest, letter, key=lambda one: float(one.height))
    return [sorted(row, key=lambda letter: letter.x0) for row in rows]


def _columns(letters: Sequence[LTChar]) -> Iterator[list[LTChar]]:
    """The letters of a page by columns, in the order of reading; a line across all of them parts what is above it from
    what is below."""
    rows = [(row, _runs(row)) for row in _rows(letters)]
    gutter = _gutter([runs for _, runs in rows if runs])
    if gutter is None:
        yield list(letters)
        return
    across = []
    sides: tuple[list[LTChar], list[LTChar]] = ([], [])
    for row, runs in rows:
        if any(low < gutter < high for low, high in runs):
            for side in sides:
                yield from _columns(side)
            sides = ([], [])
            across += row
            continue
        yield across
        across = []
        for letter in row:
            sides[letter.x0 > gutter].append(letter)
    yield across
    for side in sides:
        yield from _columns(side)


def _runs(row: Sequence[LTChar]) -> list[tuple[float, float]]:
    """From where to where a row has letters without a gap that is wider than one between words."""
    runs: list[tuple[float, float]] = []
    for letter in row:
        if letter.get_text().isspace():
            continue
        if runs and letter.x0 - runs[-1][1] < max(_GUTTER, 0.7 * letter.size):
            runs[-1] = (runs[-1][0], max(runs[-1][1], letter.x1))
        else:
            runs.append((letter.x0, letter.x1))
    return runs


def _gutter(rows: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """The middle of the white between two columns; None where a page has one column. rows: their runs.

    Hardly a line crosses it, there is text on both sides, and the lines on its left are as long as the column allows:
    the cells of a table or a list of short lines are not.
    """
    limit = 0.2 * len(rows)
    if len(rows) < 6:
        return None
    low = min(runs[0][0] for runs in rows)
    high = max(runs[-1][1] for runs in rows)
    width = int(high - low) + 1
    crossed = np.zeros(width + 1, int)
    for start, end in chain.from_iterable(rows):
        crossed[int(start - low) : int(end - low) + 1] += 1
    white, gutter = 0, 0.0
    for is_free, places in groupby(range(int(0.25 * width), int(0.75 * width) + 1), lambda at: crossed[at] <= limit):
        first, *others = places
        if is_free and len(others) + 1 >= white:
            white = len(others) + 1
            gutter = low + first + white / 2
    if white < _GUTTER - 2:
        return None
    ends = (max((end for _, end in runs if end < gutter), default=None) for runs in rows)
    left = [end for end in ends if end is not None]
    right = sum(runs[-1][0] > gutter for runs in rows)
    if min(len(left), right) < max(3, 0.3 * len(rows)):
        return None
    full = sum(end > max(left) - 0.15 * (max(left) - low) for end in left)
    return gutter if full >= 0.5 * len(left) else None


def _lines(letters: Iterable[LTChar], page: int, column: int) -> Iterator[PdfLine]:
    """The lines of a column, from the top down."""
    for row in _rows(letters):
        inked = [letter for letter in row if not letter.get_text().isspace()]
        if not inked:
            continue
        size = median(letter.size for letter in inked)
        foot = median(letter.y0 for letter in inked)
        text, end, was_raised = "", row[0].x0, False
        for letter in row:
            if letter.x0 - end > 0.18 * letter.size and not text.endswith(" "):
                text += " "
            is_raised = letter.size < 0.85 * size and letter.y0 - foot > 0.2 * size
            text += "^" * (is_raised and not was_raised) + letter.get_text()
            end, was_raised = max(end, letter.x1), is_raised
        text = _NOTE_MARK.sub("", re.sub(r"\s+", " ", text.translate(_LIGATURES))).strip()
        if text:
            of_cells = any(after.x0 - before.x1 > 2.5 * size for before, after in pairwise(inked))
            right = max(letter.x1 for letter in inked)
            middle = median(map(_middle, inked))
            yield PdfLine(text, inked[0].x0, right, middle, size, page, column, of_cells)


def _grouped(lines: Iterable[PdfLine], place: str) -> dict[int, list[PdfLine]]:
    """The lines of each page or column."""
    groups: dict[int, list[PdfLine]] = defaultdict(list)
    for line in lines:
        groups[getattr(line, place)].append(line)
    return groups


def _without_running_lines(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """The lines without those that stand in one place of at least two pages and of half of them, but for numbers, and
    without the numbers of pages."""
    by_page = _grouped(sorted(lines, key=lambda line: -line.y), "page")
    edges = {line for on_page in by_page.values() for line in (*on_page[:_EDGE_LINES], *on_page[-_EDGE_LINES:])}
    places: dict[tuple[str, int], set[int]] = defaultdict(set)
    for line in edges:
        for near in (-1, 0, 1):
            places[_words_and_height(line, near)].add(line.page)
    running = {line for line in edges if len(places[_words_and_height(line)]) >= max(2, len(by_page) / 2)}
    outer = {line for on_page in by_page.values() for line in (on_page[0], on_page[-1]) if len(on_page) > 1}
    numbers = {line: int(match[1]) - line.page for line in outer if (match := _PAGE_NUMBER.fullmatch(line.text))}
    counts = Counter(numbers.values())
    running |= {line for line, first in numbers.items() if first == 1 or counts[first] > 1}
    return [line for line in lines if line not in running]


def _words_and_height(line: PdfLine, near: int = 0) -> tuple[str, int]:
    return re.sub(r"\d+", "#", line.text.casefold()), round(line.y / 6) + near


def _notes_last(lines: Sequence[PdfLine]) -> list[PdfLine]:
    """The lines with the footnotes behind all others: they stand in smaller letters at the end of a page, and would
    part a sentence that goes on on the next one."""
    letters = Counter[float]()
    for line in lines:
        letters[round(line.size, 1)] += len(line.text)
    largest = 0.92 * max(letters, key=lambda size: letters[size], default=0.0)
    notes = []
    for on_page in _grouped(lines, "page").values():
        at_end = list(takewhile(lambda line: line.size <= largest, reversed(on_page)))[::-1]
        if at_end and re.match(r"[\d*†]", at_end[0].text):
            notes += at_end
    return [*(line for line in lines if line not in notes), *notes]


def _joined(lines: Sequence[PdfLine]) -> str:
    """The lines as paragraphs."""
    if not lines:
        return ""
    words = frozenset(word.casefold() for line in lines for word in _WORD.findall(line.text))
    language = language_of(" ".join(line.text for line in lines).casefold())
    of_column, of_page = _grouped(lines, "column"), _grouped(lines, "page")
    steps = [before.y - line.y for before, line in pairwise(lines) if before.column == line.column]
    step = median([size for size in steps if size > 0] or [1e9])
    text = lines[0].text
    for before, line in pairwise(lines):
        # A title across all columns may be as wide as they are together.
        same = of_column[before.column] if len(of_column[before.column]) > 1 else of_page[before.page]
        full = max(one.x1 for one in same) - before.x1 < line.first_word
        if _goes_on(before, line, full, step, min(one.x0 for one in of_column[line.column])):
            text = _with_next(text, line.text, words, language)
        else:
            is_near = before.column == line.column and before.y - line.y <= 1.5 * step
            text += ("\n" if is_near else "\n\n") + line.text
    return text.replace("\u00ad", "")


def _goes_on(before: PdfLine, line: PdfLine, full: bool, step: float, left: float) -> bool:
    """Whether a line goes on with the paragraph of the line before; full: whether its first word had no place there;
    step: points between lines; left: where the lines of its column begin."""
    is_other = abs(before.size - line.size) > 0.15 * before.size or before.of_cells or line.of_cells
    if is_other or _OPENS_A_LINE.match(line.text):
        return False
    is_closed = bool(_CLOSED.search(before.text))
    goes_on = line.text[0].islower() and not is_closed
    if before.column != line.column:
        return goes_on or (full and not is_closed)
    is_indented = line.x0 - left > 0.8 * line.size and before.x0 - left < 0.4 * line.size
    is_apart = before.y - line.y > 1.5 * step or (is_indented and is_closed)
    return not is_apart and (full or goes_on)


def _with_next(text: str, following: str, words: frozenset[str], language: str | None) -> str:
    """A text with the line that goes on with it; a word that the end of the line divided is whole again.

    A hyphen stays where it belongs to the word: where the text has the word so in another place, a capital or digit
    follows, or both halves are words and both together are none. words: of the text, in small letters.
    """
    end = _DIVIDED.search(text)
    start = _WORD.match(following)
    if _OF_NUMBERS.search(text) and following[0].isdigit():
        return f"{text}{following}"
    if end is None or (start and start[0].casefold() in _BEFORE_ANOTHER):
        return f"{text} {following}"
    if start is None or text.endswith("\u00ad"):
        return text.removesuffix("\u00ad") + following
    first = end[1].casefold()
    second = start[0].casefold()
    is_whole, first_is_word, second_is_word = (
        language is not None and is_known(word, language) for word in (first + second, first, second)
    )
    is_compound = f"{first}-{second}" in words or start[0][0].isupper()
    is_word = is_whole or first + second in words
    keeps_hyphen = is_compound or (first_is_word and second_is_word and not is_word)
    return f"{text if keeps_hyphen else text[:-1]}{following}"
