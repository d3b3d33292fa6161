"""Finds the artifact in a reply: the JSON object with the expected keys, whatever stands around it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from tasks.llm.tolerant import DEPTH, Broken, Cut, Damaged, ObjectReader, RefusedObject

_START = re.compile(r"""\{\s*["'}/#]""")
_FENCE = re.compile(r"```[\w-]*\s*\Z")
_BRACE = re.compile(r"[{}]")
_MEMBER = re.compile(r"""["']\s*:""")
_HALF_PAIR = re.compile("[\ud800-\udfff]")
_ESCAPED_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


Rank = Callable[[dict[str, Any]], tuple[int, ...] | None]
"""How well an object serves, least first; None for one that does not."""


def extract(
    text: str | None, keys: frozenset[str], itemised: frozenset[str] = frozenset()
) -> tuple[dict[str, Any] | None, str | None]:
    """(object that carries all `keys`, how it was found), or (None, why there is none), see `extract_ranked`."""
    return extract_ranked(text, lambda candidate: () if keys <= candidate.keys() else None, itemised)


def extract_ranked(
    text: str | None, rank: Rank, itemised: frozenset[str] = frozenset()
) -> tuple[dict[str, Any] | None, str | None]:
    """(object that serves, how it was found), or (None, why there is none).

    How: None for a reply that is JSON and nothing else; otherwise the tolerances, joined by '+': fenced, embedded (in
    prose or a list), nested (in another object), trailing_comma, single_quotes, python_literals, unescaped_quotes,
    control_characters, unknown_escape, comments, bare_words, truncated (complete members kept, the last one dropped),
    damaged (the same, see below).
    Why: empty, no_object, damaged, truncated, missing_keys, duplicate_key, not_finite, ambiguous (what follows the
    object belongs to it, so that its end is in doubt).

    Of several objects the first fenced one is taken, else the first; where objects in an object serve, the outermost,
    of several as deep the best, of several as good the first. What stands inside a damaged object, or inside a string,
    is never taken: that may be a student's text. Every value returned is in the text. Linear in its length.

    itemised: keys whose objects hold items that stand each for itself. Where reading breaks off inside one, its
    complete items are kept, unless quotes were left unescaped or one of the items is begun twice: then a quote may have
    passed itself off as an item.
    """
    if not text or text.isspace():
        return None, "empty"
    try:
        value = _strict(text)
        if isinstance(value, dict) and rank(value) is not None:
            return value, None
        return _search(text, rank, itemised)
    except RefusedObject as refused:
        return None, str(refused)


def _search(text: str, rank: Rank, itemised: frozenset[str]) -> tuple[dict[str, Any] | None, str | None]:
    """The first fenced artifact, else the first one, else what is left of the first damaged one; Refused where an
    object before it must not be used."""
    reader, closings = ObjectReader(text, lambda members: rank(members) is not None, itemised), dict[int, int]()
    first: tuple[dict[str, Any], str | None] | None = None
    remains: tuple[dict[str, Any], str | None] | None = None
    reason, position = "no_object", 0
    while match := _START.search(text, position):
        start = match.start()
        try:
            value, position = reader.read(start)
        except RefusedObject:
            if first is None:
                raise
            break
        except Cut as cut:
            artifact = None if first else _trusted(cut, text, start, reader.notes)
            if artifact is None:
                reason = "truncated"
                break
            return artifact, _how(text, start, len(text), [*reader.notes, "truncated"])
        except Damaged as damaged:
            reason = "damaged"
            if remains is None and damaged.named and (artifact := _trusted(damaged, text, start, reader.notes)):
                remains = artifact, _how(text, start, damaged.position, [*reader.notes, "damaged"])
            closings = closings or _closings(text)
            if start not in closings:
                break
            position = max(damaged.position, closings[start])
            continue
        artifact = _serving(value, rank)
        if artifact is None:
            reason = "missing_keys" if reason == "no_object" else reason
            continue
        if _is_torn(text, position):
            return first or (None, "ambiguous")
        nested = [] if artifact is value else ["nested"]
        candidate = artifact, _how(text, start, position, [*nested, *reader.notes])
        if _is_fenced(text, start):
            return candidate
        first = first or candidate
        if text.find("```", position) < 0:
            break
    return first or remains or (None, reason)


def _trusted(broken: Broken, text: str, start: int, notes: Iterable[str]) -> dict[str, Any] | None:
    """What is left of the artifact that begins at `start`; None for items in doubt, see `extract_ranked`."""
    if not broken.named:
        return broken.artifact
    marks = "\"'" if "single_quotes" in notes else '"'
    names = "|".join(map(re.escape, broken.named))
    begun = re.findall(rf"[{marks}](?:{names})[{marks}]\s*:", text[start:])
    return broken.artifact if len(begun) <= len(broken.named) and "unescaped_quotes" not in notes else None


def _strict(text: str) -> object:
    """The whole text as a JSON object, or None; Refused for a repeated key or a number that is not finite."""
    if not text.lstrip().startswith("{"):
        return None
    if ("\\u" in text and _ESCAPED_HALF_PAIR.search(text)) or (not text.isascii() and _HALF_PAIR.search(text)):
        return None  # half a pair can be written nowhere; the tolerant reader puts a replacement character
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return None if text.count("{") + text.count("[") > DEPTH and _is_too_deep(value) else value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise RefusedObject("duplicate_key")
    return members


def _refuse(constant: str) -> float:
    raise RefusedObject("not_finite")


def _finite(digits: str) -> float:
    return number if math.isfinite(number := float(digits)) else _refuse(digits)


_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refuse, parse_float=_finite)


def _is_too_deep(value: object) -> bool:
    level = [value]
    for _ in range(DEPTH + 1):
        if not level:
            return False
        level = list(chain.from_iterable(map(_children, level)))
    return True


def _children(node: object) -> list[Any]:
    if isinstance(node, dict):
        return list(node.values())
    return node if isinstance(node, list) else []


def _serving(value: object, rank: Rank) -> dict[str, Any] | None:
    """The object itself, or the outermost inside it that serves: of several as deep the best, then the first."""
    level = [value]
    while level:
        ranked = [(place, node) for node in level if isinstance(node, dict) and (place := rank(node)) is not None]
        if ranked:
            return min(ranked, key=lambda pair: pair[0])[1]
        level = list(chain.from_iterable(map(_children, level)))
    return None


def _closings(text: str) -> dict[int, int]:
    """Opening brace → one past its closing one, by counting braces alone; an unclosed one is absent."""
    opened: list[int] = []
    closed: dict[int, int] = {}
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            closed[opened.pop()] = match.end()
    return closed


def _is_torn(text: str, end: int) -> bool:
    """Whether more members and another closing brace follow: the object ended inside a string with unescaped quotes."""
    following = text.find("{", end)
    between = text[end : following if following >= 0 else len(text)]
    return "}" in between and _MEMBER.search(between, 0, between.rfind("}")) is not None


def _is_fenced(text: str, start: int) -> bool:
    return _FENCE.search(text, max(0, start - 40), start) is not None


def _how(text: str, start: int, end: int, notes: list[str]) -> str | None:
    if _is_fenced(text, start):
        return "+".join(["fenced", *notes])
    alone = not text[:start].strip() and not text[end:].strip()
    return "+".join(notes if alone else ["embedded", *notes]) or None
