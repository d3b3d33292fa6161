"""A chunk of a source as rows of the canonical tables, by the study's column mapping.

What a single row can break is refused here; what takes all rows to see is refused in the survey. The first half reads a
chunk (`items`, `answers`, `scored`, `chosen`, `scores`, `marks`, `pairs`), the second half makes tables of what was
read.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import pyarrow as pa

from rubricflow.tasks.core.contracts.schema import Row, schema
from rubricflow.tasks.core.contracts.settings.data import Column, Source
from rubricflow.tasks.core.contracts.tables.data import SPLITS, Responses, Units
from rubricflow.tasks.core.contracts.tables.judging import Gradings, Judgments, Preferences, out_of
from rubricflow.tasks.core.contracts.tables.people import Notes
from rubricflow.tasks.core.store.cells import EssayCell, missing, quoted, text_or_none, with_columns
from rubricflow.tasks.core.text.formulas import unguarded
from rubricflow.tasks.core.text.markup import is_markup, plain
from rubricflow.tasks.core.text.tokens import Mark
from rubricflow.tasks.core.text.traces import trace_text, trace_units
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.ingest.columns import (
    CellPlace,
    Chunk,
    as_ids,
    cell_answers,
    cell_texts,
    cell_weights,
    listed,
    marks_of,
    numbers_of,
    without_blanks,
)

Record = dict[str, Any]
Tables = dict[type[Row], pa.Table]
MARKERS = ("human", "replayed")
"""Kinds of raters whose decisions a source may hold."""
_EMPTY = frozenset({"na", "n/a", "#n/a", "nan", "null", "none", "-"})
"""Words by which programs write an empty cell."""
_LISTS = {
    "reference_answer": cell_answers,
    "key_elements": cell_texts,
    "key_weights": cell_weights,
    "misconceptions": cell_texts,
    "criteria": listed,
}
"""Column of an item that may hold a list → how a cell of it is read."""
_PROSE = ("question", "context", "reference_answer", "rubric_text")
"""Texts of an item that may be HTML."""


class Answers(NamedTuple):
    """Responses of a chunk: one entry of each list per row."""

    response_id: list[str]
    item_id: list[str]
    author_id: list[str | None]
    text: list[str]
    split: list[str | None]
    """That of the source; None where it has none."""
    groups: list[list[tuple[str, str]]]
    author_name: list[str | None]
    made_from: list[str | None]
    """A key of MADE_FROM, where the source held no plain text."""
    handed_in: list[EssayCell | None]
    """What is to be said of the files that a student handed in."""


class Scores(NamedTuple):
    """One rater's gradings of a chunk, in the order of its answers."""

    rater: str
    kind: str
    score: list[float | None]
    traits: list[list[tuple[str, float]]]
    signals: list[list[tuple[str, float]]]
    """As `gradings` has them."""
    notes: list[str | None] | None = None
    """The rater's words to each student; None where the study names no column of it."""


def items(chunk: Chunk) -> list[tuple[int, Record]]:
    """(number of the row, row of `items`) for each row that has its id and its question.

    InputError for a missing column or value, for what should be a list and is none, or a listed criterion that cannot
    be one, see `listed`.
    """
    source, required = chunk.source, ("item_id", "question")
    columns: dict[str, list[Any]] = dict(chunk.mapped_texts(source.items, required, _LISTS))
    for name, read in _LISTS.items():
        columns[name] = chunk.read(source.items.get(name, {"const": None}), read, None)
    numbered = []
    for position, number in enumerate(chunk.rows):
        record = {name: column[position] for name, column in columns.items()}
        if all((record[name] or "").strip() for name in required):
            numbered.append((number, _item(record, source.html)))
    return numbered


def _item(record: Record, is_html: bool) -> Record:
    """A row of `items`; record: what was read by canonical name."""
    texts = {name: text_or_none(record.get(name)) for name in ("context", "type", "rubric_id", "rubric_text")}
    key = record["item_id"].strip()
    model = record["reference_answer"] or []
    item = {
        "item_id": key,
        "question": record["question"],
        "context": texts["context"],
        "reference_answer": "\nor: ".join(model) or None,
        "key_elements": record["key_elements"] or [],
        "type": texts["type"] or "item",
        "rubric_id": (texts["rubric_id"] or key).strip(),
        "key_weights": record["key_weights"],
        "misconceptions": record["misconceptions"],
        "criteria": record["criteria"],
        "reference_answers": model if len(model) > 1 else None,
        "rubric_text": texts["rubric_text"],
    }
    if is_html:
        item |= {name: plain(item[name]) for name in _PROSE if item[name] is not None}
        item["reference_answers"] = item["reference_answers"] and list(map(plain, model))
    return item


def answers(chunk: Chunk) -> Answers:
    """The responses of a chunk; InputError for a missing column or value, or an unknown split. An id that is missing
    is '' once that is reported."""
    source = chunk.source
    nothing = [None] * len(chunk.rows)
    named = chunk.mapped_texts(source.responses, ("response_id", "item_id"), ("text",) if source.traces else ())
    splits, authors, author_names = (
        without_blanks(named.get(name, nothing)) for name in ("split", "author_id", "author_name")
    )
    rule = f"{{}} is no split; use {', '.join(SPLITS)}"
    chunk.refuse_all(source.responses.get("split", ""), splits, lambda split: split not in (None, *SPLITS), rule)
    hint = "leave the cell empty, or name the author otherwise"

    def is_empty(author: str | None) -> bool:
        return (author or "").casefold() in _EMPTY

    rule = "{} reads like an empty cell"
    chunk.refuse_all(source.responses.get("author_id", ""), authors, is_empty, rule, hint)
    groups: list[list[tuple[str, str]]] = [[] for _ in chunk.rows]
    for name, column in source.groups.items():
        for answer, group in zip(groups, without_blanks(chunk.texts(column)), strict=True):
            if group:
                answer.append((name, group))
    text_column = source.responses["text"]
    texts = chunk.read(text_column, _trace, "") if source.traces else [cell or "" for cell in named["text"]]
    cells = chunk.frame.get(text_column, nothing) if isinstance(text_column, str) else nothing
    essays = [cell if isinstance(cell, EssayCell) else None for cell in cells]
    made_from = []
    for essay, text in zip(essays, texts, strict=True):
        marked = "trace" if source.traces else "html" if source.html and is_markup(text) else None
        made_from.append(essay.unread or "file" if essay else marked)
    return Answers(
        response_id=as_ids(named["response_id"]),
        item_id=as_ids(named["item_id"]),
        author_id=authors,
        text=list(map(plain, texts)) if source.html else texts,
        split=splits,
        groups=groups,
        author_name=author_names,
        made_from=made_from,
        handed_in=essays,
    )


def _trace(cell: Any, place: CellPlace) -> str:
    """The text of a trace; '' for an empty cell."""
    if missing(cell) or (isinstance(cell, str) and not cell.strip()):
        return ""
    try:
        return trace_text(cell)
    except ValueError as error:
        raise place.error(str(error), "leave 'traces' out where answers are plain texts") from error


def scored(chunk: Chunk, responses: Container[str]) -> list[str]:
    """The response of each row of a file of scores; InputError for a missing column or value.

    responses: all that are known. An id that `votes --scores` kept from running as a formula is the one that it was
    before.
    """
    named = chunk.mapped_texts({"scored": chunk.source.scored or ""}, ("scored",))
    return [name if name in responses else unguarded(name) for name in as_ids(named["scored"])]


def chosen(chunk: Chunk) -> list[bool]:
    """Whether the labels of each row of a file of scores were chosen rather than drawn; InputError for a missing column
    or what is neither."""
    column = chunk.source.split
    if column is None:
        return [False] * len(chunk.rows)
    words = without_blanks(chunk.texts(column))
    rule = "{} is neither 'chosen' nor empty"
    chunk.refuse_all(column, words, lambda split: split not in (None, "chosen"), rule)
    return [split is not None for split in words]


def scores(chunk: Chunk) -> list[Scores]:
    """The gradings of a chunk, rater by rater; InputError for a missing column, or what is neither a finite number nor
    one of the rater's words."""
    graded = []
    nothing = Mark(None, None)
    for rater in chunk.source.scores:
        read = marks_of(rater.words)
        traits: list[list[tuple[str, float]]] = [[] for _ in chunk.rows]
        signals: list[list[tuple[str, float]]] = [[("averaged", 1.0)] if rater.averaged else [] for _ in chunk.rows]
        score = list[float | None]([None]) * len(chunk.rows)
        for name, column in {**({"": rater.score} if rater.score else {}), **rater.traits}.items():
            for row, mark in enumerate(chunk.read(column, read, nothing)):
                if not name:
                    score[row] = mark.points
                elif mark.points is not None:
                    traits[row].append((name, mark.points))
                if mark.points is not None and mark.most is not None:
                    signals[row].append((out_of(name), mark.most))
        notes = without_blanks(chunk.texts(rater.notes)) if rater.notes else None
        graded.append(Scores(rater.rater, rater.kind, score, traits, signals, notes))
    return graded


def marks(chunk: Chunk) -> pa.Table:
    """The marks of a chunk as rows of `judgments`; InputError for a missing column or value, what is no level, or no
    kind of rater. A level is -1 once it is reported that it is none."""
    source = chunk.source
    number = numbers_of(chunk.source.words)

    def level(cell: Any, place: CellPlace) -> int:
        value = number(cell, place)
        if value is None:
            raise place.error("is empty")
        if value != int(value) or value < 0:
            raise place.error(f"{quoted(cell)} is no level")
        return int(value)

    ids = ("response_id", "rater_id", "criterion_id")
    named = chunk.mapped_texts(source.marks, ids, ("level",))
    levels = chunk.read(source.marks["level"], level, -1)
    kinds = [kind or "human" for kind in without_blanks(named.get("rater_kind", [None] * len(chunk.rows)))]
    rule = f"{{}} is no kind of rater; use {', '.join(MARKERS)}"
    chunk.refuse_all(source.marks.get("rater_kind", ""), kinds, lambda kind: kind not in MARKERS, rule)
    columns: Record = {name: as_ids(named[name]) for name in ids} | {"rater_kind": kinds, "sample": 0}
    columns |= {"decision": levels, "stated": levels, "evidence": [[]] * len(levels), "action": "none"}
    return _table(Judgments, columns)


class ChunkPairs(NamedTuple):
    """Pairs of a chunk, one entry of each list per row, and their answers, two rows a pair."""

    item_id: list[str]
    response_a: list[str]
    response_b: list[str]
    rater_id: list[str]
    winner: list[str | None]
    """a, b or tie; None where nobody says."""
    answers: Chunk


def pairs(chunk: Chunk) -> ChunkPairs:
    """The pairs of a chunk; InputError for a missing column or value, or what names no winner."""
    source = chunk.source
    nothing = [None] * len(chunk.rows)
    mapped = chunk.source.pairs
    named = chunk.mapped_texts(mapped, ("item_id", *(name for name in ("response_a", "response_b") if name in mapped)))
    items = as_ids(named["item_id"])
    winners = without_blanks(named.get("winner", nothing))
    words = {"a": "a", "b": "b", "tie": "tie"} | {word.strip().casefold(): of for word, of in source.winners.items()}
    rule = f"{{}} names no winner; there are {', '.join(source.winners or words)}"
    known: list[str | None] = [None if word is None else words.get(word.strip().casefold(), "") for word in winners]
    chunk.refuse_all(mapped.get("winner", ""), winners, lambda word: known[winners.index(word)] == "", rule)
    ids = as_ids(named["pair_id"]) if "pair_id" in mapped else items
    sides = {side: as_ids(named.get(f"response_{side}", [key and f"{key}:{side}" for key in ids])) for side in "ab"}
    frames = []
    for side in "ab":
        own: dict[str, list[Any]] = {"response_id": sides[side], "text": named[f"text_{side}"], "item_id": items}
        frames.append(with_columns(chunk.frame, own))
    stacked: pd.DataFrame = pd.concat(frames).sort_index(kind="stable")
    columns: dict[str, Column] = {name: name for name in ("response_id", "item_id", "text")}
    columns |= {"split": mapped["split"]} if "split" in mapped else {}
    alone = Source(file=source.file, responses=columns, groups=source.groups, html=source.html)
    raters = [name or "preferences" for name in without_blanks(named.get("rater_id", nothing))]
    return ChunkPairs(items, sides["a"], sides["b"], raters, known, Chunk(alone, stacked, chunk.report))


def preference_table(some: ChunkPairs) -> pa.Table:
    """Rows of `preferences`; none where nobody says."""
    columns = {field.name: pa.array(getattr(some, field.name), field.type) for field in schema(Preferences)}
    table = pa.Table.from_pydict(columns)
    return table.filter(pa.array([winner is not None for winner in some.winner], pa.bool_())).cast(schema(Preferences))


def answer_tables(answers: Answers, graded: Sequence[Scores]) -> Tables:
    """Rows of `responses`, `units`, `gradings` and, where there are any, `notes`; splits are those of the source."""
    return {
        Responses: _table(Responses, answers._asdict()),
        Units: unit_table(answers.response_id, answers.text, answers.made_from),
        **grading_tables(answers.response_id, answers.item_id, graded),
    }


def grading_tables(response_id: Sequence[str], item_id: Sequence[str], graded: Sequence[Scores]) -> Tables:
    """Rows of `gradings` by all raters and, where one of them has a column of notes, of `notes`."""
    gradings = [schema(Gradings).empty_table()]
    notes = []
    for scores in graded:
        columns = {
            "response_id": response_id,
            "item_id": item_id,
            "rater_id": scores.rater,
            "rater_kind": scores.kind,
            "sample": 0,
            "score": scores.score,
            "trait_scores": scores.traits,
            "signals": scores.signals,
            "status": ["unscored" if value is None else "scored" for value in scores.score],
            "unscored_reason": ["traits_only" if value is None else None for value in scores.score],
        }
        rated = [value is not None or bool(traits) for value, traits in zip(scores.score, scores.traits, strict=True)]
        gradings.append(_table(Gradings, columns).filter(pa.array(rated, pa.bool_())))
        if (said := scores.notes) is not None:
            columns = {"response_id": response_id, "rater_id": scores.rater, "note": said}
            has_note = pa.array([note is not None for note in said], pa.bool_())
            notes.append(_table(Notes, columns).filter(has_note))
    return {Gradings: pa.concat_tables(gradings)} | ({Notes: pa.concat_tables(notes)} if notes else {})


def unit_table(ids: Sequence[str], words: Sequence[str], made_from: Sequence[str | None]) -> pa.Table:
    """Rows of `units` for all texts; ids: of their responses; made_from: as `responses` has it."""
    rows = []
    for name, text, source in zip(ids, words, made_from, strict=True):
        rows += [(name, *unit) for unit in (trace_units if source == "trace" else units)(text)]
    columns = zip(*rows, strict=True) if rows else [()] * 5
    return _table(Units, dict(zip(("response_id", "unit_id", "kind", "start", "end"), columns, strict=True)))


def _table(row: type[Row], columns: Mapping[str, Any]) -> pa.Table:
    """A table of the contract's schema. columns: their cells, or a text or number for the same in every row; those that
    are not given are null."""
    count = len(columns["response_id"])
    arrays = []
    for field in schema(row):
        cells = columns.get(field.name)
        if isinstance(cells, str | int):
            arrays.append(pa.repeat(pa.scalar(cells, field.type), count))
        else:
            arrays.append(pa.nulls(count, field.type) if cells is None else pa.array(cells, field.type))
    return pa.Table.from_arrays(arrays, schema=schema(row))
