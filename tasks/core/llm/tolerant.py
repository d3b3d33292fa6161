"""Reads one JSON object out of damaged text: what models do to JSON is undone, and nothing is made up."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.text.digest import HALF_PAIR

DEPTH = 64
"""Deepest nesting that is read."""

OPENING = re.compile(r"""\{\s*["'}/#]""")
"""How an object begins."""
_BEGUN = re.compile(r"""\{\s*["'“”„‟«‘’‚]""")
_SPACE = re.compile(r"\s*")
_INLINE = re.compile(r"(?://|#)[^\n]*")
_CHUNK = {quote: re.compile(rf"[^{quote}\\]*(?:\\.[^{quote}\\]*)*", re.DOTALL) for quote in "\"'"}
_AFTER_KEY = re.compile(r"\s*(?::|\Z)")
_AFTER_VALUE = re.compile(r"""\s*(?:[}\]#]|//|/\*|\Z|,\s*(?:["'}#]|//|/\*|\Z))""")
_AFTER_ITEM = re.compile(r"""\s*(?:[}\]#]|//|/\*|\Z|,\s*(?:["'\[{}\]#\d-]|//|/\*|[Tt]rue|[Ff]alse|None|null|\Z))""")
_WHOLE = re.compile(r"""\s*(?:[,}"'#]|//|/\*|\Z)""")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?(?=[\s,}\]#]|//|/\*|\Z)")
_WORD = re.compile(r"-?[A-Za-z]+(?=[\s,}\]#]|//|/\*|\Z)")
_STUB = re.compile(r"[\w.-]{1,10}\Z")
_BARE = re.compile(r"[A-Za-z]+(?: [A-Za-z]+){0,3} \d+(?:\.\d+)?(?=\s*[,}\n])")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LITERALS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_NOT_FINITE = {"nan", "inf", "infinity"}


class RefusedObject(Exception):
    """An object that must not be used: its reason is 'duplicate_key' or 'not_finite'."""


class Broken(Exception):
    """An object that cannot be read to its end."""

    artifact: JsonDict | None = None
    """The outermost open object whose wanted keys are complete, or hold items that are."""
    members: JsonDict | None = None
    """On its way out of an object: the complete members of the one within."""
    began: str = ""
    """On its way out of an object: the member in which reading broke off."""
    named: frozenset[str] = frozenset()
    """The items that were begun."""


class Damaged(Broken):
    """Text that is no object even with tolerance; `position` is how far it was read."""

    def __init__(self, position: int) -> None:
        self.position = position


class Cut(Broken):
    """The text ends inside the object."""


class ObjectReader:
    """Reads objects of one text. `notes` names the tolerances that the last one needed; `swallows`: whether a string of
    it that holds unescaped quotes holds the beginning of an object, too, so that it is in doubt whose they are."""

    def __init__(self, text: str, carries: Callable[[JsonDict], bool], itemised: frozenset[str] = frozenset()) -> None:
        """carries: whether an object is complete enough to be used where reading breaks off inside it; itemised: keys
        whose objects hold items that stand each for itself, so that the complete ones are kept."""
        self.text, self.carries, self.itemised = text, carries, itemised
        self.notes: dict[str, None] = {}
        self.swallows = False

    def read(self, start: int) -> tuple[JsonDict, int]:
        """(object that opens at `start`, one past its end); raises Refused, Damaged or Cut."""
        self.notes, self.swallows = {}, False
        return self._object(start, 1)

    def _object(self, start: int, depth: int) -> tuple[JsonDict, int]:
        members: JsonDict = {}
        key = ""
        try:
            position = self._skip(start + 1)
            while self._char(position) != "}":
                key, position = self._string(position, _AFTER_KEY)
                position = self._skip(position)
                self._expect(position, ":")
                if key in members:
                    raise RefusedObject("duplicate_key")
                value, position = self._value(self._skip(position + 1), depth, _AFTER_VALUE)
                if not _WHOLE.match(self.text, position):
                    raise Damaged(position)  # as in '1 or 2', copied from a form: neither was decided
                members[key] = value
                position = self._next(position, "}")
        except Broken as broken:
            if broken.members and key in self.itemised:
                members[key], broken.named = broken.members, frozenset({*broken.members, broken.began})
            broken.members, broken.began = members, key
            if members and self.carries(members):
                broken.artifact = members
            raise
        return members, position + 1

    def _array(self, start: int, depth: int) -> tuple[list[Any], int]:
        items = []
        position = self._skip(start + 1)
        try:
            while self._char(position) != "]":
                value, position = self._value(position, depth, _AFTER_ITEM)
                items.append(value)
                position = self._next(position, "]")
        except Broken as broken:
            broken.members = None  # an object in a list is no item of an object
            raise
        return items, position + 1

    def _next(self, position: int, closing: str) -> int:
        """From the end of a member to the start of the next one, or to the closing bracket."""
        position = self._skip(position)
        if self._char(position) == closing:
            return position
        self._expect(position, ",")
        position = self._skip(position + 1)
        if self._char(position) == closing:
            self.notes["trailing_comma"] = None
        return position

    def _value(self, position: int, depth: int, after: re.Pattern[str]) -> tuple[Any, int]:
        char = self._char(position)
        if char in "{[":
            if depth >= DEPTH:
                raise Damaged(position)
            return self._object(position, depth + 1) if char == "{" else self._array(position, depth + 1)
        if char in "\"'":
            return self._string(position, after)
        if match := _NUMBER.match(self.text, position):
            if match.end() == len(self.text):
                raise Cut  # more digits may have followed
            is_whole = match.lastindex is None
            if is_whole and len(match[0]) > 300:
                raise Damaged(match.end())
            number = int(match[0]) if is_whole else float(match[0])
            if not math.isfinite(number):
                raise RefusedObject("not_finite")
            return number, match.end()
        if match := _WORD.match(self.text, position):
            if match[0].lstrip("-").lower() in _NOT_FINITE:
                raise RefusedObject("not_finite")
            if match[0] in _LITERALS:
                if match[0][0] in "TFN":
                    self.notes["python_literals"] = None
                return _LITERALS[match[0]], match.end()
        if match := _BARE.match(self.text, position):
            self.notes["bare_words"] = None
            return match[0], match.end()
        if _STUB.match(self.text, position):
            raise Cut
        raise Damaged(position)

    def _string(self, start: int, after: re.Pattern[str]) -> tuple[str, int]:
        """A quote ends a value only where what follows can follow; else it belongs to the text, left unescaped."""
        quote = self._char(start)
        if quote not in _CHUNK:
            raise Damaged(start)
        position, is_open = start + 1, False
        while True:
            position = _CHUNK[quote].match(self.text, position).end()  # type: ignore[union-attr]  # it also matches nothing
            self.swallows = self.swallows or (is_open and self.text.find("{", start + 1, position) > 0)
            if position >= len(self.text) or self.text[position] != quote:
                raise Cut
            if after.match(self.text, position + 1):
                break
            if after is _AFTER_KEY or self._char(self._space(position + 1)) in "\"'":
                raise Damaged(position)  # no colon; or two strings in a row, with nothing between
            self.notes["unescaped_quotes"], is_open = None, True
            position += 1
        if after is _AFTER_KEY and _BEGUN.search(self.text, start, position):
            self.swallows = True  # the name broke off, and what followed was taken for its end
        if quote == "'":
            self.notes["single_quotes"] = None
        return self._unescaped(self.text[start + 1 : position], quote), position + 1

    def _unescaped(self, body: str, quote: str) -> str:
        if _CONTROL.search(body):
            self.notes["control_characters"] = None
        text = _ESCAPE.sub(lambda match: self._escape(match[1], quote), body)
        if HALF_PAIR.search(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def _escape(self, code: str, quote: str) -> str:
        """Unknown escapes: the backslash stays before a letter (TeX) and goes before a sign (Markdown)."""
        if code in _ESCAPES:
            return _ESCAPES[code]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        if code not in ("\\", "/", quote):
            self.notes["unknown_escape"] = None
        return f"\\{code}" if code.isalnum() else code

    def _skip(self, position: int) -> int:
        """Past white space and comments."""
        while True:
            position = self._space(position)
            if self.text.startswith("/*", position):
                end = self.text.find("*/", position + 2)
                if end < 0:
                    raise Cut
                position = end + 2
            elif comment := _INLINE.match(self.text, position):
                position = comment.end()
            else:
                return position
            self.notes["comments"] = None

    def _space(self, position: int) -> int:
        return _SPACE.match(self.text, position).end()  # type: ignore[union-attr]  # it also matches nothing

    def _char(self, position: int) -> str:
        if position >= len(self.text):
            raise Cut
        return self.text[position]

    def _expect(self, position: int, char: str) -> None:
        if self._char(position) != char:
            raise Damaged(position)
