"""From token log-probabilities to the probability of each value that a reply could have had in a place.

Where the reply was held to a grammar these are probabilities after the grammar's mask: of what the model would choose
among the admitted values, not of what it would have written freely.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]  # not in the stubs
from typing import NamedTuple

from rubricflow.tasks.core.llm.request import Reply, Token

Path = tuple[str | int, ...]
Place = tuple[int, Sequence[str]]
"""Character offset of a value in a reply's text, and the spellings that it could have had."""
_Container = tuple[Path | None, bool, int]
"""An open container: its path, whether it is an object, and the position that comes next."""

_REACH = 12
"""A token that begins further before a value does not reach into it."""
_DEEPEST = 8
"""Levels at which values are looked for: a reply may nest as deeply as it likes."""
_GOES_ON = re.compile(r"[0-9.eE+-]")
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_STUB = re.compile(r"[\w.+-]*\Z")
"""A number or word that the text ends with: more of it may have followed."""


class TokenPlace(NamedTuple):
    """A token in its place: `start` counts characters of the reply's text, below 0 for tokens before it."""

    start: int
    token: Token


def level_probabilities(reply: Reply, places: Mapping[str, Place]) -> dict[str, list[float]]:
    """Key → probability of each of its values, in their order, sum 1; keys whose value is not known are left out."""
    if reply.text is None or not reply.token_logprobs:
        return {}
    pieces = aligned(reply.text, reply.token_logprobs)
    known_probabilities = {}
    for key, (start, values) in places.items():
        probabilities = distribution(reply.text, pieces, start, values)
        if probabilities is not None:
            known_probabilities[key] = probabilities
    return known_probabilities


def distribution(text: str, pieces: Sequence[TokenPlace], start: int, values: Sequence[str]) -> list[float] | None:
    """Probability of each of `values` at character `start` of the text, in their order, sum 1.

    pieces: the text's, as `aligned` gives them; values: as they are spelled in JSON, strings with their quotes; the
    text holds one of them there, else None.
    A value's probability is the sum over the alternatives that spell it: one token, also one that begins before the
    value; or several, as far as the reply itself went that way, since only there the next alternatives are known. A
    value that is the beginning of another one (1 of 10) counts with what ends it. What is not among the alternatives
    gets 0, and the known ones are rescaled to 1. None where the tokens do not make up the text, or the chosen value's
    own probability is not known.
    """
    chosen = max((value for value in values if text.startswith(value, start)), key=len, default=None)
    if chosen is None or (chosen[-1].isdigit() and _GOES_ON.match(text, start + len(chosen))):
        return None
    reach = start - _REACH  # a token that ends before it holds no part of the value
    far = (i for i, (at, token) in enumerate(pieces) if at >= 0 and at + len(token.token) > reach)
    first = next(far, None)
    if first is None or pieces[first].start > start:
        return None
    spellings = [text[pieces[first].start : start] + value for value in values]
    masses = [_mass(pieces, first, spelling, spellings) for spelling in spellings]
    total = math.fsum(masses)
    return [mass / total for mass in masses] if masses[values.index(chosen)] > 0 else None


def _mass(pieces: Sequence[TokenPlace], i: int, value: str, others: Sequence[str]) -> float:
    """Probability, given the pieces before the i-th, of the ways known in which the reply goes on with `value`, or what
    is still to come of it.

    others: what it could go on with, `value` among them.
    """
    if i == len(pieces):
        return 0.0
    drawn, mass = pieces[i].token, 0.0
    longer = [other for other in others if other != value and other.startswith(value)]
    for spelled, logprob in _alternatives(drawn):
        probability = math.exp(min(logprob, 0.0))
        if spelled == "" and drawn.token != "":
            continue
        if spelled == value:
            if not longer:
                mass += probability
            elif spelled == drawn.token:
                mass += probability * _ends(pieces, i + 1)
        elif spelled.startswith(value):
            mass += probability if not _GOES_ON.match(spelled, len(value)) or not value[-1].isdigit() else 0.0
        elif value.startswith(spelled) and spelled == drawn.token:
            cut = len(spelled)
            still_open = [other[cut:] for other in others if other.startswith(spelled)]
            mass += probability * _mass(pieces, i + 1, value[cut:], still_open)
        elif value.startswith(spelled) and sum(other.startswith(spelled) for other in others) == 1:
            mass += probability  # nothing else begins so
    return mass


def _ends(pieces: Sequence[TokenPlace], i: int) -> float:
    """Probability that the number before the i-th piece is complete."""
    if i == len(pieces):
        return 1.0
    alternatives = [(spelled, math.exp(min(logprob, 0.0))) for spelled, logprob in _alternatives(pieces[i].token)]
    total = math.fsum(probability for _, probability in alternatives)
    ended = math.fsum(p for spelled, p in alternatives if spelled and not _GOES_ON.match(spelled))
    return ended / total if total else 0.0


def _alternatives(token: Token) -> list[tuple[str, float]]:
    """What could stand in a token's place: the likeliest ones, and the one drawn."""
    if any(spelled == token.token for spelled, _ in token.top):
        return list(token.top)
    return [*token.top, (token.token, token.logprob)]


def aligned(text: str, tokens: Sequence[Token]) -> list[TokenPlace]:
    """The tokens with their places in the text; none where they do not make it up. Tokens before the text (what a model
    thought aloud) and after it (the end of its turn) may be there."""
    spoken = "".join(token.token for token in tokens)
    start = -spoken.rfind(text) if text in spoken else None
    pieces: list[TokenPlace] = []
    if start is not None:
        for token in tokens:
            pieces.append(TokenPlace(start, token))
            start += len(token.token)
    return pieces


def offsets(text: str, start: int = 0) -> dict[Path, int]:
    """Path → character offset of every value, up to 8 levels deep, of the JSON object at `start`, without the last one
    where the text ends first; empty where there is no object. A path holds the keys and, in arrays, the positions; of a
    key that is given twice the last one counts, as it does for `json.loads`.

    Without recursion: a reply may nest as deeply as it likes.
    """
    if not text.startswith("{", start):
        return {}
    starts: dict[Path, int] = {}
    inside: list[_Container] = []
    path: Path | None = ()
    i = start
    try:
        while True:
            i = _skip(text, i)
            if path is not None:
                starts[path] = i
            if text[i] in "{[":
                opened, i = text[i] == "{", _skip(text, i + 1)
                if text[i] != ("}" if opened else "]"):
                    inside.append((path, opened, 0))
                    path, i = _child(text, i, path, opened, 0)
                    continue
                i += 1
            elif text[i] == '"':
                _, i = scanstring(text, i + 1, True)
            elif _STUB.match(text, i):
                raise IndexError
            elif scalar := _SCALAR.match(text, i):
                i = scalar.end()
            else:
                return {}
            while inside:
                i = _skip(text, i)
                above, opened, position = inside.pop()
                if text[i] == ",":
                    inside.append((above, opened, position + 1))
                    path, i = _child(text, _skip(text, i + 1), above, opened, position + 1)
                    break
                if text[i] != ("}" if opened else "]"):
                    return {}
                i += 1
            else:
                return starts
    except (IndexError, json.JSONDecodeError) as error:
        is_cut = isinstance(error, IndexError) or error.msg.startswith("Unterminated string")
        starts.pop(next(reversed(starts), ()), None)
        return starts if is_cut else {}


def _child(text: str, i: int, above: Path | None, opened: bool, position: int) -> tuple[Path | None, int]:
    """Path, None where it is too long, and place of the next value in a container; JSONDecodeError where its key cannot
    be read."""
    name: str | int = position
    if opened:
        if text[i] != '"':
            raise json.JSONDecodeError("a key is expected", text, i)
        name, i = scanstring(text, i + 1, True)
        i = _skip(text, i)
        if text[i] != ":":
            raise json.JSONDecodeError("a colon is expected", text, i)
        i += 1
    return (*above, name) if above is not None and len(above) < _DEEPEST else None, i


def _skip(text: str, i: int) -> int:
    space = _SPACE.match(text, i)
    return space.end() if space else i
