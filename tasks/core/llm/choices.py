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
_REACH = 12
"""A token that begins further before a value does not reach into it."""
_DEEPEST = 8
"""Levels at which values are looked for: a reply may nest as deeply as it likes."""
_GOES_ON = re.compile(r"[0-9.eE+-]")
_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str)  # an integer of thousands of digits is no error
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
    pieces = []
    if start is not None:
        for token in tokens:
            pieces.append(TokenPlace(start, token))
            start += len(token.token)
    return pieces


def offsets(text: str, start: int = 0) -> dict[Path, int]:
    """Path → character offset of every value, up to 8 levels deep, of the JSON object at `start`, without the last one
    where the text ends first; empty where there is no object. A path holds the keys and, in arrays, the positions; of a
    key that is given twice the last one counts, as it does for `json.loads`."""
    starts: dict[Path, int] = {}
    if not text.startswith("{", start):
        return starts
    try:
        _place(text, start, (), starts)
    except (IndexError, RecursionError, json.JSONDecodeError) as error:
        is_wrong = isinstance(error, json.JSONDecodeError) and not error.msg.startswith("Unterminated string")
        if is_wrong and error.pos < len(text):  # type: ignore[union-attr]  # it has a place
            return {}
        starts.pop(next(reversed(starts), ()), None)
    return starts


def _place(text: str, i: int, path: Path, starts: dict[Path, int]) -> int:
    """Notes where the value at `i` begins, and those in it; the position after it. IndexError where the text ends
    first, JSONDecodeError where there is no value."""
    i = _skip(text, i)
    starts[path] = i
    if text[i] not in "{[" or len(path) == _DEEPEST:
        if _STUB.match(text, i):
            raise IndexError
        return _DECODER.raw_decode(text, i)[1]
    closing, number, i = "}" if text[i] == "{" else "]", 0, _skip(text, i + 1)
    while text[i] != closing:
        if number:
            i = _skip(text, _expect(text, i, ","))
        name: str | int = number
        if closing == "}":
            name, i = scanstring(text, _expect(text, i, '"'), True)
            i = _expect(text, _skip(text, i), ":")
        i = _skip(text, _place(text, i, (*path, name), starts))
        number += 1
    return i + 1


def _expect(text: str, i: int, sign: str) -> int:
    if text[i] != sign:
        raise json.JSONDecodeError(f"{sign} is expected", text, i)
    return i + 1


def _skip(text: str, i: int) -> int:
    space = _SPACE.match(text, i)
    return space.end() if space else i
