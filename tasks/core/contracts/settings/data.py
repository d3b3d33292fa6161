"""What a study says of its data: its files, how their columns map to the canonical tables, and who calibrates and
tests."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, FiniteFloat, NonNegativeInt, model_validator

from rubricflow.tasks.core.contracts.schema import Frozen, Natural, Share, left_out

PLACEHOLDER = re.compile(r"\{(\w+)\}")
"""A part of a column's name that differs from question to question."""
QUESTION = "n"
"""The placeholder, and the new column, of what tells the questions apart."""
ROW = "{row}"
"""In place of a column: the number of the row in its file."""

Pattern = str | tuple[str, ...] | dict[Literal["right_of"], str]
"""Columns of one kind: their name with {n} in place of the question's number or id; a list of them, where each is named
by its question (`n` is then that name); or `{right_of: NAME}`, the column that stands to the right of that one."""


class Reshaping(Frozen):
    """What is done to the rows of a file before its columns map. Each step may use what the steps above it made."""

    without: dict[str, tuple[str, ...]] = left_out({})
    """Rows that are no student's: column → what stands there in their place, such as the "Points Possible" of a Canvas
    gradebook. Case and blanks around do not count."""
    blank: tuple[str, ...] = ()
    """Cells that mean an empty one, such as the "-" that Moodle writes where nothing was handed in."""
    wide: dict[str, Pattern] = {}
    """For a file with a row for each student and several columns for each question: new column → the columns that it
    takes the place of, as in {answer: "Response {n}", question: "Question {n}"}. Each row becomes one row for each
    question. Every placeholder becomes a column, too: `n` holds the question's number or id. A question whose several
    columns are all empty was not put to that student and is left out."""
    ids: dict[str, tuple[str, ...]] = {}
    """Ids that the file lacks: new column → the columns that it is made of, joined by colons; what is long or holds a
    colon is represented by its digest. "{row}" is the row's number, for a file without any id. A row that lacks a part
    of its id and has no answer (a line of averages, say) is no submission and is left out."""
    numbered: dict[str, tuple[str, ...]] = left_out({})
    """Questions that have no id: new column → the columns that say which question it is; none where there is only one.
    They become Q1, Q2 and so on in the order of the columns of `wide` or else of the rows, so that rows added below
    rename none. What is a number already keeps it: 7 is Q7. Sources of a study share the numbers of a column."""
    repeats: dict[str, tuple[str, ...]] = left_out({})
    """What tells namesakes and second attempts apart: new column → columns. It is empty in the first row of the file
    with their words, 2 in the second row, and so on."""
    names: dict[str, tuple[str, ...]] = {}
    """New column → the columns whose words it joins by a blank, such as first and last name."""
    labels: dict[str, tuple[str, ...]] = left_out({})
    """As `ids`, for people to read: joined by hyphens, every part as it stands, the row's number with three digits at
    least. An empty part that `repeats` made is left out."""
    html: bool = False
    """Whether questions, answers and model answers may be HTML: such cells become plain text, which is what is graded
    and quoted; others stay as they are."""

    @model_validator(mode="after")
    def _can_be_made(self) -> Reshaping:
        for name, pattern in self.wide.items():
            passed, place = {name}, pattern
            while isinstance(place, dict):
                neighbour = place["right_of"]
                if neighbour in passed or neighbour not in self.wide:
                    raise ValueError(
                        f"wide: '{name}' stands right of '{neighbour}', which has no place of its own there"
                    )
                passed.add(neighbour)
                place = self.wide[neighbour]
            if isinstance(pattern, str) and QUESTION not in PLACEHOLDER.findall(pattern):
                raise ValueError(f"wide: '{pattern}' has no {{{QUESTION}}} in place of the question's number")
        for name, columns in (self.ids | self.repeats | self.labels | self.names).items():
            if not columns:
                raise ValueError(f"'{name}' is made of no column")
        return self


Word = str | int | float | bool
Where = dict[str, Word | tuple[Word, ...]]
Column = str | dict[Literal["const"], Any]
"""A column of the source by name, or `{const: value}` for every row."""


Number = TypeVar("Number")


def _distinct(words: dict[str, Number]) -> dict[str, Number]:
    """Words that a cell can be told to be one of; ValueError for a blank one, or two that differ in case alone."""
    by_folded: dict[str, str] = {}
    for word in words:
        folded = word.strip().casefold()
        if not folded:
            raise ValueError("a word is blank; an empty cell is no score")
        if folded in by_folded:
            raise ValueError(f"the words '{by_folded[folded]}' and '{word}' read the same")
        by_folded[folded] = word
    return words


Words = Annotated[dict[str, Number], AfterValidator(_distinct)]


def _mapping(*required: str, optional: tuple[str, ...]) -> AfterValidator:
    """Marks a mapping of canonical columns."""

    def check(mapped: dict[str, Column]) -> dict[str, Column]:
        for name in sorted(mapped.keys() - {*required, *optional}):
            raise ValueError(f"'{name}' is no canonical column; there are {', '.join(sorted({*required, *optional}))}")
        for name in required:
            if mapped and name not in mapped:
                raise ValueError(f"the mapping names no column for '{name}'")
        return mapped

    return AfterValidator(check)


_OF_PAIR = ("pair_id", "response_a", "response_b")
_OF_ITEM = ("context", "type", "rubric_id", "rubric_text")
_LISTS = ("reference_answer", "key_elements", "key_weights", "misconceptions", "criteria")


class ScoreColumns(Frozen):
    """The columns of one human rater's grading."""

    rater: str
    """Rater id."""
    kind: Literal["human", "adjudication", "replayed"] = "human"
    """A person; a score resolved from those of persons, which is no second opinion; or what a machine
    recorded, on a scale of its own."""
    score: str | None = None
    """Column of the score; empty cells are no grading. A rater may have marked traits only."""
    averaged: bool = False
    """Whether the score is a mean of several persons', and so may lie between the steps of the scale."""
    traits: dict[str, str] = {}
    """Trait → column."""
    notes: str | None = None
    """Column of what the rater says to the student, who reads it with the score."""
    words: Words[FiniteFloat | None] = {}
    """What these columns may say in place of a number, and the number that it stands for: {correct: 2, incorrect: 0},
    {A: 5, B: 4}; null for none, as in {absent: null}. Case and blanks around a word do not count."""


class Source(Reshaping):
    """One file and how its columns map to the canonical tables. One file may feed several tables."""

    file: str
    """CSV, TSV, Excel (.xlsx), JSONL, JSON (a list of objects) or Parquet, by its ending; or a folder of essays, or a
    .zip of one, with the columns student, name, text, files and folder."""
    encoding: str | None = None
    """Of a CSV file that has no byte order mark and is no UTF-8, such as cp1252; otherwise it is guessed, and that is
    said."""
    sheet: str | None = None
    """Of an Excel file; null for the first one that is not hidden."""
    where: Where = {}
    """Only rows in which each of these columns has this value, or one of these."""
    items: Annotated[dict[str, Column], _mapping("item_id", "question", optional=(*_OF_ITEM, *_LISTS))] = {}
    """Canonical column of `items` → column. Repeated rows must agree. key_elements, key_weights, misconceptions and
    criteria are lists, of JSON in a CSV cell; reference_answer may be one, of several answers each as good;
    rubric_text is the scoring guide that people had, which follows on the rubric's own prose."""
    responses: Annotated[
        dict[str, Column],
        _mapping("response_id", "item_id", "text", optional=("author_id", "author_name", "split")),
    ] = {}
    """Canonical column of `responses` (response_id, item_id, author_id, author_name, text, split) → column."""
    groups: dict[str, str] = {}
    """Group variable → column."""
    traces: bool = left_out(False)
    """Whether the text of the responses is a conversation or an agent's trajectory: OpenAI's messages, a transcript of
    inspect, or OpenTelemetry's spans of generative AI, as JSON, told by their content. Their turns and steps are then
    what judges cite."""
    scores: tuple[ScoreColumns, ...] = ()
    """Human raters' gradings, in the file of the responses."""
    scored: Column | None = None
    """In a file of scores without the responses: the column of the response's id."""
    split: Column | None = None
    """In such a file: the column that says 'chosen' where a response was labelled because it teaches a mapping most, as
    `next` has it, and nothing where it was drawn by chance."""
    marks: Annotated[
        dict[str, Column], _mapping("response_id", "rater_id", "criterion_id", "level", optional=("rater_kind",))
    ] = {}
    """Decisions per criterion: response_id, rater_id, criterion_id, level and, for what a machine recorded rather than
    a person, rater_kind ('replayed') → column."""
    words: Words[NonNegativeInt] = {}
    """What the level's column of `marks` may say in place of a number, and the level that it stands for."""
    pairs: Annotated[
        dict[str, Column],
        _mapping("item_id", "text_a", "text_b", optional=(*_OF_PAIR, "winner", "rater_id", "split")),
    ] = {}
    """Two answers to a question in a row: item_id, text_a, text_b, which one a person prefers (`winner`), who
    (`rater_id`; 'preferences' where no column says) → column. The answers become responses: of the ids in response_a
    and response_b, under which an answer may occur in several pairs, or else of the pair's id (pair_id, or else the
    item's) with :a and :b behind it."""
    winners: Words[Literal["a", "b", "tie"]] = {}
    """What the column of `winner` says for a, b and tie, where it does not say that; an empty cell is no preference."""

    @model_validator(mode="after")
    def _is_sound(self) -> Source:
        raters = [columns.rater for columns in self.scores]
        if len(set(raters)) < len(raters):
            raise ValueError(f"a rater is given twice: {', '.join(raters)}")
        if self.traces and (self.html or "text" not in self.responses):
            raise ValueError("'traces' is for a file that has responses, which are no HTML then")
        if self.scored and (self.responses or not self.scores):
            raise ValueError("'scored' is for a file that has scores and no responses")
        if self.split and not self.scored:
            raise ValueError("'split' is for a file of scores that names 'scored'; responses have a split of their own")
        columns = (
            *self.items.values(),
            *self.responses.values(),
            *self.marks.values(),
            *self.pairs.values(),
            self.scored,
        )
        constants = [column["const"] for column in columns if isinstance(column, dict)]
        odd = [constant for constant in constants if isinstance(constant, bool | float)]
        if odd:
            raise ValueError(f"the const {odd[0]} is no text; quote it as it is meant")
        if self.pairs and (self.responses or self.scores or self.marks or self.scored):
            raise ValueError("a source of 'pairs' has no responses, scores or marks besides")
        if self.winners and "winner" not in self.pairs:
            raise ValueError("'winners' belong to the column of 'pairs' that 'winner' names")
        if self.words and not self.marks:
            raise ValueError("'words' next to the columns are for 'marks'; those of scores stand with their rater")
        return self


class Data(Frozen):
    """Where the data is."""

    layout: str | None = None
    """A layout shipped in tasks/grading/ingest/layouts."""
    folder: str = "."
    """The folder that the sources' files are in."""
    sources: tuple[Source, ...] = ()
    """The files; with a layout further ones, such as responses to its items."""

    @model_validator(mode="after")
    def _at_least_one(self) -> Data:
        if not (self.layout or self.sources):
            raise ValueError("give a layout, sources, or both")
        if len({source.traces for source in self.sources if source.responses or source.pairs}) > 1:
            raise ValueError("some sources of answers are 'traces' and others are not: a rubric is judged one way")
        return self


class Split(Frozen):
    """Which responses calibrate and which test. A split column in the source wins over this."""

    by: Literal["response", "author", "item"] = "response"
    """What is kept whole, so that nothing of it is on both sides."""
    per: Literal["item", "set"] = "item"
    """Whether `calibration` counts labelled responses of each item or of the whole set."""
    calibration: Natural = 200
    """Labelled responses to calibrate on; never more than half of the labelled ones."""
    shares: tuple[Share, Share, Share] | None = None
    """In place of `calibration`: shares of the whole set, labelled or not, for train, calibration and test, such as
    [0.7, 0.2, 0.1]; they add up to 1."""
    cross: bool = False
    """In place of both: every marked answer calibrates and is measured on, its own score by fits that have not seen its
    author. So no mark of a small class is spent on measuring alone."""
    seed: int = 0
    """Another seed is another split."""

    @model_validator(mode="after")
    def _add_up(self) -> Split:
        if self.cross and (self.shares or self.calibration != Split.model_fields["calibration"].default):
            raise ValueError("'cross' calibrates on every marked answer; leave 'calibration' and 'shares' out")
        if self.cross and self.by == "item":
            raise ValueError("'cross' leaves out authors, not items; split by response or author")
        if self.shares and abs(sum(self.shares) - 1) > 1e-9:
            raise ValueError(f"the shares add up to {sum(self.shares):g}, not to 1")
        return self
