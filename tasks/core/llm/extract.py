"""Finds the artifact in a reply: the one JSON object with the expected keys that is the model's own, whatever is
around it. Reasoning is no part of a reply, and what a student wrote is no verdict."""

from __future__ import annotations

import html
import json
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any, NamedTuple

import regex

from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.llm.tolerant import DEPTH, OPENING, Broken, Cut, Damaged, ObjectReader, RefusedObject
from rubricflow.tasks.core.text.digest import HALF_PAIR

_NAMES = "(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflect(?:ion)?|analysis|scratchpad|monologue)"
_REASONING = re.compile(
    rf"""(?P<begin>(?i:<\s*(?:\w{{1,20}}[:_])?{_NAMES}\b[^<>/]{{0,80}}>|<\|(?:(?:begin|start)_(?:of_)?)?{_NAMES}\|>)
    |\[THINK\]|◁think▷|<unused94>|<\|channel\|?>\s*(?!final\b)\w+)
    |(?P<end>(?i:<\s*/\s*(?:\w{{1,20}}[:_])?{_NAMES}\s*>|<\|(?:end_(?:of_)?|/){_NAMES}\|>)
    |\[/THINK\]|◁/think▷|<unused95>|<\|channel\|>\s*final\b[^<{{]*(?:<\|message\|>)?|<channel\|>|assistantfinal)""",
    re.VERBOSE,
)
"""Where reasoning begins and ends: tags of DeepSeek, Qwen, Phi, Nemotron and their kin, Seed, Command, OpenThoughts,
Magistral, Kimi, MedGemma, Gemma, and the channels of gpt-oss, also as they are left without their control tokens."""
_TAG_OR_OBJECT = re.compile(rf"{_REASONING.pattern}|{OPENING.pattern}", re.VERBOSE)
_TRIES = 64
"""Objects that cannot be read before a tag, after which none is looked for: the time stays linear."""
_FENCE = re.compile(r"```[\w-]*\s*\Z")
_BRACE = re.compile(r"[{}]")
_MEMBER = re.compile(r"""["']\s*:""")
_ESCAPED_HALF_PAIR = re.compile(r"\\u[dD][89a-fA-F]")
_BRACED = re.compile("[{｛﹛︷]")
_MOST_LAYERS = 6
"""Of escapes, HTML's and those of programs, that a response is looked at under."""
_ESCAPE = re.compile(r"\\u\{?([0-9a-fA-F]{4,5})\}?|\\x([0-9a-fA-F]{2})|%([0-7][0-9a-fA-F])|\\([\s\S])")
_BLOCK_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/|(?://|#)[^\n]*", re.DOTALL)
_UNSEEN = regex.compile(r"[\p{Mn}\p{Me}\p{Cf}]")
_NUMBER = re.compile(r"\d{1,300}(?:\.\d{1,300})?(?:e[+-]?\d{1,3})?")
_TOKEN = re.compile(rf"(?<![^\W_]){_NUMBER.pattern}(?![^\W_])|[^\W_]+")

Serves = Callable[[JsonDict], bool]
"""Whether an object is one that was asked for."""
Serving = Callable[[object], list[JsonDict]]
"""What of a value that was read serves, itself or objects inside it; where they differ, none is taken."""


class Found(NamedTuple):
    """What a reply holds."""

    artifact: JsonDict | None
    how: str | None
    """How it was found, or why there is none, see `find`."""
    start: int = 0
    """Character of the reply at which the object begins, or the one that holds it."""


def extract(
    text: str | None, keys: frozenset[str], itemised: frozenset[str] = frozenset(), response: str = ""
) -> tuple[JsonDict | None, str | None]:
    """(object that carries all `keys`, how it was found), or (None, why there is none), see `find`."""

    def serves(candidate: JsonDict) -> bool:
        return keys <= candidate.keys()

    return find(text, serves, itemised, response, partial(_serving, serves, keys), keys)[:2]


def find(
    text: str | None,
    serves: Serves,
    itemised: frozenset[str] = frozenset(),
    response: str = "",
    serving: Serving | None = None,
    asked: frozenset[str] = frozenset(),
) -> Found:
    """The object that serves and how it was found, or why there is none.

    How: None for a reply that is JSON and nothing else; otherwise the tolerances, joined by '+': fenced, embedded (in
    prose or a list), nested (in another object), trailing_comma, single_quotes, python_literals, unescaped_quotes,
    control_characters, unknown_escape, comments, bare_words, truncated (complete members kept, the last one dropped),
    damaged (the same, see below).
    Why: empty, no_object, damaged, truncated, missing_keys, duplicate_key, not_finite; ambiguous (several objects serve
    and differ, or it is in doubt where one ends); quoted (the response holds it, see `stands_in`).

    Reasoning is passed over (`without_reasoning`). Of several objects that serve, one in another too, none is taken
    unless they are the same; what is left of one that is cut off is the same where it is a part. What is inside a
    damaged object, or inside a string, is never taken: that may be a student's text. Every value returned is in the
    text. Linear in its length.

    itemised: keys whose objects hold items that stand each for itself. Where reading breaks off inside one, its
    complete items are kept, unless quotes were left unescaped or one of the items is begun twice: then a quote may have
    passed itself off as an item. response: what the student wrote, whose objects are never the model's. serving: which
    objects of a value that was read do, all where not given. asked: the names of what was asked for.
    """
    text = without_reasoning(text or "")
    if not text or text.isspace():
        return Found(None, "empty")
    try:
        found = _search(text, serves, itemised, serving or partial(_serving, serves, itemised))
    except RefusedObject as refused:
        return Found(None, str(refused))
    # Members that nobody asked for make no other object of one that the response holds.
    known = {name: value for name, value in (found.artifact or {}).items() if name in asked}
    if (found.artifact is not None and stands_in(found.artifact, response)) or (known and stands_in(known, response)):
        return Found(None, "quoted")
    return found


def without_reasoning(text: str) -> str:
    """A reply with blanks in place of its reasoning, so that all else keeps its place.

    Reasoning that was never ended goes to the end; an end without a beginning, as of a template that opens it in the
    prompt, takes all before it. A tag inside a string of an object that can be read whole is the string's.
    """
    if _REASONING.search(text) is None:
        return text
    reader = ObjectReader(text, lambda _: False)
    hidden = list[tuple[int, int]]()
    begun: int | None = None
    position = tries = 0
    while match := _TAG_OR_OBJECT.search(text, position):
        position = match.end()
        if match["begin"]:
            begun = match.start() if begun is None else begun
        elif match["end"]:
            hidden = [(0, position)] if begun is None else [*hidden, (begun, position)]
            begun = None
        elif begun is None and tries < _TRIES:
            try:
                _, end = reader.read(match.start())
            except (Broken, RefusedObject):
                tries += 1
            else:
                position = position if "unescaped_quotes" in reader.notes else end
    if begun is not None:
        hidden.append((begun, len(text)))
    pieces, shown = list[str](), 0
    for start, end in hidden:
        pieces += (text[shown:start], " " * (end - start))
        shown = end
    return "".join([*pieces, text[shown:]])


def said(text: str | None) -> str:
    """What a reply says once its reasoning is over; the reply itself where it has none."""
    answer = without_reasoning(text or "")
    return answer if answer == text else answer.strip()


def stands_in(value: object, response: str) -> bool:
    """Whether a response holds this object, or these words: names and values in order, or those of each of its members.

    Case, white space, marks, accents and Unicode's compatibility forms do not count, nor in which form numbers are
    written, comments, members without content, or how often it was escaped. A response without a brace, however
    written, holds no object.
    """
    readings, has_brace = _readings(response)
    return (has_brace or not isinstance(value, dict)) and _stands("", value, readings)


def _search(text: str, serves: Serves, itemised: frozenset[str], serving: Serving) -> Found:
    """The one object that serves, else what is left of the one that breaks off; RefusedObject where an object must not
    be used."""
    value = _strict(text)
    if isinstance(value, dict) and serves(value):
        return _only([Found(node, None) for node in serving(value)], [])
    reader = ObjectReader(text, serves, itemised)
    closings = dict[int, int]()
    whole = []
    remains = []
    reason, position = "no_object", 0
    while match := OPENING.search(text, position):
        start = match.start()
        try:
            value, position = reader.read(start)
        except Broken as broken:
            is_cut = isinstance(broken, Cut)
            end = broken.position if isinstance(broken, Damaged) else len(text)
            reason = "truncated" if is_cut else "damaged"
            artifact = _trusted(broken, text, start, reader.notes) if is_cut or broken.named else None
            if artifact is not None:
                # What follows may have been taken for a value of the one that breaks off.
                inner = [node for node in serving(artifact) if node is not artifact]
                how = _how(text, start, end, [*reader.notes, reason])
                remains += [Found(node, how, start) for node in (artifact, *inner)]
            if artifact is not None and reader.swallows:
                return Found(None, "ambiguous")
            if is_cut:
                break
            closings = closings or _closings(text)
            if start not in closings:
                break
            position = max(end, closings[start])
            continue
        nodes = serving(value)
        following = text.find("{", position)
        between = text[position : following if following >= 0 else len(text)]
        # More members and another closing brace follow: the object ended inside a string with unescaped quotes.
        is_torn = "}" in between and _MEMBER.search(between, 0, between.rfind("}")) is not None
        if nodes and (reader.swallows or is_torn):
            return Found(None, "ambiguous")
        for node in nodes:
            nested = [] if node is value else ["nested"]
            whole.append(Found(node, _how(text, start, position, [*nested, *reader.notes]), start))
        reason = "missing_keys" if reason == "no_object" else reason
    return _only(whole, remains) if whole or remains else Found(None, reason)


def _only(whole: Sequence[Found], remains: Sequence[Found]) -> Found:
    """The object that all of these are; what is left of one that breaks off may be a part of it."""
    first = whole[0] if whole else max(remains, key=lambda found: len(str(found.artifact)))
    is_one = len(whole) < 2 or len({_canonical(found.artifact) for found in whole}) == 1
    if is_one and all(_is_part(found.artifact, first.artifact) for found in remains):
        return first
    return Found(None, "ambiguous")


def _canonical(value: object) -> str:
    return json.dumps(json.loads(json.dumps(value, sort_keys=True), parse_int=float))


def _is_part(part: Any, whole: Any) -> bool:
    """Whether an object has these members, and those the same values."""
    if isinstance(part, dict) and isinstance(whole, dict):
        return all(name in whole and _is_part(value, whole[name]) for name, value in part.items())
    if isinstance(part, list) and isinstance(whole, list):
        return len(part) == len(whole) and all(map(_is_part, part, whole))
    return _canonical(part) == _canonical(whole)


@lru_cache(maxsize=256)
def _readings(text: str) -> tuple[str, bool]:
    """The words of a text as it is and with one layer of escapes after the other taken off, with comments and without,
    a line each; and whether it has a brace."""

    def unescaped(match: re.Match[str]) -> str:
        """What an escape of JSON, of a program or of a URL stands for."""
        if code := match[1] or match[2] or match[3]:
            return chr(int(code, 16))
        return " " if match[4] in "nrtbf" else match[4]

    layers: dict[str, None] = {}
    while text not in layers and len(layers) < _MOST_LAYERS:
        layers[text] = None
        text = _ESCAPE.sub(unescaped, html.unescape(text))
    texts = chain.from_iterable((text, _BLOCK_COMMENT.sub(" ", text), _COMMENT.sub(" ", text)) for text in layers)
    readings = dict.fromkeys(f" {_words(text)} " for text in dict.fromkeys(texts))
    return "\n".join(readings), any(map(_BRACED.search, layers))


def _stands(name: str, value: object, shown: str) -> bool:
    if f" {f'{name} {_words(value)}'.strip()} " in shown:
        return True
    if isinstance(value, dict) and value:
        members = {key: member for key, member in value.items() if member not in ("", [], {})} or value
        return all(_stands(_words(key), member, shown) for key, member in members.items())
    is_nested = isinstance(value, list) and bool(value) and all(isinstance(item, dict | list) for item in value)
    return is_nested and all(_stands("", item, shown) for item in value)  # type: ignore[attr-defined]  # a list


def _words(value: object) -> str:
    """The words and numbers of a value, in order, folded."""
    if isinstance(value, dict):
        return " ".join(f"{_words(name)} {_words(member)}".strip() for name, member in value.items())
    if isinstance(value, list):
        return " ".join(map(_words, value))
    text = value if isinstance(value, str) else json.dumps(value)
    if not text.isascii():
        text = _UNSEEN.sub("", unicodedata.normalize("NFKD", text))
    words = []
    for token in _TOKEN.findall(text.casefold()):
        number = float(token) if _NUMBER.fullmatch(token) else math.inf
        # A number as it is written most plainly; what Python calls none is null.
        words.append(f"{number:.12g}" if math.isfinite(number) else "null" if token == "none" else token)
    return " ".join(words)


def _trusted(broken: Broken, text: str, start: int, notes: Iterable[str]) -> JsonDict | None:
    """What is left of the artifact that begins at `start`; None for items in doubt, see `find`."""
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
    if ("\\u" in text and _ESCAPED_HALF_PAIR.search(text)) or (not text.isascii() and HALF_PAIR.search(text)):
        return None  # half a pair can be written nowhere; the tolerant reader puts a replacement character
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    if text.count("{") + text.count("[") > DEPTH:
        level = [value]
        for _ in range(DEPTH):
            level = inside(level)
        return None if level else value
    return value


def _members(pairs: list[tuple[str, Any]]) -> JsonDict:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise RefusedObject("duplicate_key")
    return members


def _finite(written: str) -> float:
    """A number, or what JSON has no place for: NaN and infinities, or digits beyond them."""
    if not math.isfinite(number := float(written)):
        raise RefusedObject("not_finite")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_finite, parse_float=_finite)


def inside(level: Iterable[object]) -> list[Any]:
    """What the objects and lists among these values hold."""
    members = (node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list))
    return list(chain.from_iterable(members))


def _serving(serves: Serves, own: frozenset[str], value: object) -> list[JsonDict]:
    """All objects that serve, this one and those inside it, the outermost first.

    own: keys under which an object that serves has its items. They are part of it and no other verdict, even where an
    item's id is the name of such a key.
    """
    level, found = [value], []
    parts = set()
    while level:
        serving = [node for node in level if isinstance(node, dict) and id(node) not in parts and serves(node)]
        parts |= {id(node[key]) for node in serving for key in own & node.keys()}
        found += serving
        level = inside(level)
    return found


def _closings(text: str) -> dict[int, int]:
    """Opening brace → one past its closing one, by counting braces alone; an unclosed one is absent."""
    opened = []
    closed = {}
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif opened:
            closed[opened.pop()] = match.end()
    return closed


def _how(text: str, start: int, end: int, notes: list[str]) -> str | None:
    if _FENCE.search(text, max(0, start - 40), start):
        return "+".join(["fenced", *notes])
    alone = not text[:start].strip() and not text[end:].strip()
    return "+".join(notes if alone else ["embedded", *notes]) or None
