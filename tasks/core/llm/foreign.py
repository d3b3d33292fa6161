"""A foreign table of raw replies: its rows, the score that each is read for, and that score on the bundle's scale."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import regex

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Foreign, Reader
from rubricflow.tasks.core.llm.extract import find, inside, said, stands_in
from rubricflow.tasks.core.llm.request import together
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.store.cells import as_number, as_text, missing, need, quoted, select, text_or_none
from rubricflow.tasks.core.store.source import read
from rubricflow.tasks.core.text.patterns import compiled, matches

_LONGEST = 20_000
"""Characters that a pattern is tried on."""
_FIELD = "pattern"
_NOTHING = object()
_PIECE = regex.compile(r"\w+")
_NO_VALUES: Mapping[str, float] = MappingProxyType({})
_LEADING = regex.compile(
    r"\s*(?:(?:score|points?|level|mark|grade|band)\b[\s:=#]*)*([-+]?[0-9]+(?:\.[0-9]+)?)(?![,.]?\p{N}|_|[ex][+-]?\p{N})",
    regex.IGNORECASE,
)


def foreign_rows(foreign: Foreign, base: Path) -> list[JsonDict]:
    """The rows of a foreign table that the study selects: response_id, reply, recorded score and explanation, if any;
    repeated replies about a response follow one another as their column has them. Where the replies compare the answers
    of pairs, response_id is the subject of such a request, see `together`, and `sample` the number that the value of
    the repetition's columns has among all.

    Several columns of the response's id are joined by colons, several of the reply become one JSON object. A cell
    without a value is None, and so is a reply of which a column has none. InputError for a missing column or id, a
    response with two replies, or two of one repetition, a recorded score that is no finite number, or a selection that
    leaves nothing.
    """
    path = base / foreign.file
    ids = _names(foreign.response_id)
    replies = _names(foreign.reply)
    frame = read(path)
    repetition = _names(foreign.sample)
    order = foreign.order
    used = dict.fromkeys(
        (
            *ids,
            *replies,
            *_names(foreign.recorded),
            *_names(foreign.explanation),
            *repetition,
            *([order.column] if order else []),
        )
    )
    for name in used:
        need(frame, name, path)
    frame = select(frame, foreign.where, path)
    if foreign.sample:
        frame = frame.sort_values([*repetition], kind="stable")
    first_by_word = {word.casefold(): answer for word, answer in order.first.items()} if order else {}
    numbers: dict[tuple[str, ...], int] = {}
    rows: dict[tuple[str, ...], JsonDict] = {}
    for number, cells in zip((frame.index + 1).tolist(), frame[[*used]].to_dict("records"), strict=True):
        for name in (*ids, *repetition):
            if text_or_none(cells[name]) is None:
                raise InputError("is empty", file=path, row=number, field=name)
        response_id = ":".join(as_text(cells[name]) for name in ids)
        if order:
            word = as_text(cells[order.column])
            if (answer := first_by_word.get(word.casefold())) is None:
                rule = f"{quoted(word)} is no order; there are {', '.join(order.first)}"
                raise InputError(rule, file=path, row=number, field=order.column, hint="judge.foreign.order.first")
            response_id = together([f"{response_id}:{one}" for one in (answer, "ba"["ab".index(answer)])])
        repeated = tuple(as_text(cells[name]) for name in repetition)
        key = response_id, *repeated
        if key in rows:
            problem = f"response '{response_id}' has several replies; select one with 'where', or name their 'sample'"
            raise InputError(problem, file=path, field=", ".join(ids))
        reply = {name: cells[name] for name in replies}
        text = None
        if not any(map(missing, reply.values())):
            text = (
                as_text(cells[replies[0]])
                if len(reply) == 1
                else json.dumps(reply, ensure_ascii=False, default=as_text)
            )
        recorded = as_number(cells[foreign.recorded], path, number, foreign.recorded) if foreign.recorded else None
        rows[key] = {"response_id": response_id, "reply": text, "recorded": recorded}
        rows[key]["explanation"] = text_or_none(cells[foreign.explanation]) if foreign.explanation else None
        if order:
            rows[key]["sample"] = numbers.setdefault(repeated, len(numbers))
    if not rows:
        raise InputError("no reply is left; look at 'where'", file=path)
    return list(rows.values())


def _names(columns: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else columns or ()


def foreign_score(foreign: Foreign, item_id: str, response_id: str, reply: str, response: str = "") -> float | None:
    """The score that a reply is read for, on the scale that its judge used; None where none can be read. response: the
    text that was judged, whose own objects are no verdict.

    InputError for a pattern that cannot be used.
    """
    special = foreign.items.get(item_id)
    try:
        return read_score(reply, (special and special.reader) or foreign.reader, response)
    except InputError as error:
        rule = f"reply about response '{response_id}': {error.rule}"
        raise InputError(rule, file=foreign.file, field=f"reader.{error.field}", hint=error.hint) from error


def is_off_scale(value: float, foreign: Foreign, item_id: str) -> bool:
    """Whether a score lies off the scale that the study says its judge used; False where it says none."""
    scale = _scale(foreign, item_id)
    return scale is not None and not scale.min <= value <= scale.max


def rescale(value: float, foreign: Foreign, item_id: str, scale: Scale) -> float:
    """A score of the foreign judge's scale, linearly on the bundle's."""
    used = _scale(foreign, item_id) or scale
    return scale.min + (value - used.min) / (used.max - used.min) * (scale.max - scale.min)


def _scale(foreign: Foreign, item_id: str) -> Scale | None:
    special = foreign.items.get(item_id)
    return (special and special.scale) or foreign.scale


def foreign_scores(foreign: Foreign, base: Path) -> dict[str, float]:
    """Response → the score that the foreign system itself read from the reply, on the scale that its judge used; the
    mean of its repeated replies."""
    scores: dict[str, list[float]] = {}
    for row in foreign_rows(foreign, base):
        if row["recorded"] is not None:
            scores.setdefault(row["response_id"], []).append(row["recorded"])
    return {response_id: math.fsum(values) / len(values) for response_id, values in scores.items()}


# Reads one number out of a foreign judge's raw reply.


def read_score(text: str, reader: Reader, response: str = "") -> float | None:
    """The score as the study's reader finds it: by its JSON keys, or by the first of its patterns that reads one.
    response: what was judged; see `tasks.core.llm.extract.find`."""
    if reader.pattern is None:
        return json_keys(text, reader.json_keys, response)
    values = {name.casefold(): value for name, value in reader.values.items()}
    for expression in (reader.pattern, *reader.otherwise):
        if (score := pattern(said(text), expression, reader.take, values, response)) is not None:
            return score
    return None


def json_keys(text: str, keys: Sequence[str | Sequence[str]], response: str = "") -> float | None:
    """Sum of the numbers under the keys of the artifact in the text; None unless each of them holds one.

    In place of a key may stand alternatives, of which the first that is there counts; 'a.b' is a key of that name or
    else b in the object under a, and 'a.0' the first of a list.
    A number may be written as a string that begins with it ('4', '4/6', '4 points', 'Score 4'), but not as '4,5',
    which some read as 4.5 and some as a list; true and false are none.
    """
    alternatives = [(key,) if isinstance(key, str) else tuple(key) for key in keys]

    def serving(value: object) -> list[JsonDict]:
        """The outermost objects that serve; of several as deep those with the first of the alternatives."""
        level = [value]
        while level:
            objects = [node for node in level if isinstance(node, dict)]
            placed = [(places, node) for node in objects if (places := _places(node, alternatives)) is not None]
            if placed:
                best = min(places for places, _ in placed)
                return [node for places, node in placed if places == best]
            level = inside(level)
        return []

    names = frozenset(chain.from_iterable((name, name.partition(".")[0]) for names in alternatives for name in names))
    artifact = find(
        text, lambda node: _places(node, alternatives) is not None, frozenset(), response, serving, names
    ).artifact
    places = _places(artifact or {}, alternatives)
    if places is None:
        return None
    return _sum([_number(_under(artifact, names[place])) for names, place in zip(alternatives, places, strict=True)])


def _places(artifact: object, alternatives: Iterable[Sequence[str]]) -> tuple[int, ...] | None:
    """The place of the first of each key's alternatives that is there; None where one has none."""
    places = []
    for names in alternatives:
        present = (place for place, name in enumerate(names) if _under(artifact, name) is not _NOTHING)
        place = next(present, None)
        if place is None:
            return None
        places.append(place)
    return tuple(places)


def _under(node: object, path: str) -> object:
    """The value of an object's key, or of a path of keys and places in lists; _NOTHING where there is none."""
    if isinstance(node, dict) and path in node:
        return node[path]
    head, dot, tail = path.partition(".")
    if isinstance(node, list):
        inner = node[int(head)] if head.isdecimal() and int(head) < len(node) else _NOTHING
        return _under(inner, tail) if dot else inner
    return _under(node[head], tail) if dot and isinstance(node, dict) and head in node else _NOTHING


def pattern(
    text: str,
    expression: str,
    take: Literal["first", "last"],
    values: Mapping[str, float] = _NO_VALUES,
    response: str = "",
) -> float | None:
    """Sum of the numbers that the groups of the first or last match begin with; None without a match, or where a group
    holds no number. A group that took no part in the match is passed over, and so is a match of several words that
    stands in the response: it may be the student's.

    values: lower-case words, letters or signs → the number that a group stands for which is one of them.
    Only the first 20,000 characters are searched. InputError for an expression that does not compile, has no group or
    takes seconds.
    """
    if compiled(expression, _FIELD).groups < 1:
        raise InputError(f"'{expression}' has no group", field=_FIELD, hint="put the number in parentheses: (\\d+)")
    matching = [
        match
        for match in matches(expression, text[:_LONGEST], _FIELD)
        if len(_PIECE.findall(match[0])) < 2 or not stands_in(match[0], response)
    ]
    if not matching:
        return None
    match = matching[0] if take == "first" else matching[-1]
    groups = [group for group in match.groups() if group is not None]
    return _sum([values.get(group.casefold(), _number(group)) for group in groups])


def _sum(numbers: Sequence[float | None]) -> float | None:
    """Their sum; None for none at all, or where one is missing."""
    present = [number for number in numbers if number is not None]
    return math.fsum(present) if present and len(present) == len(numbers) else None


def _number(value: object) -> float | None:
    """A finite number, or the one that a string begins with."""
    if isinstance(value, str):
        match = _LEADING.match(value)
        value = match[1] if match else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
