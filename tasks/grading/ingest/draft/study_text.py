"""A study file that says at each key what it is for and what to change."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from rubricflow.tasks.core.contracts.settings.study import ROW, Split

_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z_](?:[\w./@ -]*[\w./@-])?")
_ABOUT: Mapping[str, str] = {
    "blank": "Cells that mean an empty one.",
    "wide": "A row holds a student's answers to several questions: each becomes a row of its own. On the left the new\n"
    "column, on the right the columns of the file, with {n} for the question's number or id.",
    "numbered": "Questions that have no id of their own: Q1, Q2 and so on in the order of the file.\n"
    "Rows that are added below the last one rename none.",
    "repeats": "What tells second answers apart: nothing in the first row with the same words, 2 in the second.",
    "names": "Names joined of several columns.",
    "labels": "Ids that the file lacks, made of other columns. Rows that are added rename none.",
    "html": "The texts are HTML: what is graded and quoted is the plain text that a reader sees.",
    "items": "Which column says what of a question: its id, its wording, a model answer.",
    "responses": "Which column says what of an answer. author_name is for gradebook and feedback, no judge sees it:\n"
    "take it out to leave names behind.",
    "groups": "Groups that the report compares: is the grading as good for each?",
    "scores": "Marks that people gave; rater is whoever gave them. They stand as these answers' scores, teach the\n"
    "scale and show how far to trust it. `notes: COLUMN` beside `score` names the rater's words to the student.\n"
    "`marks: calibrate` at the end of this file would let marks teach alone, and score every answer anew.",
}
_ROW_IDS = "Nothing in the file tells answers apart but their row: keep its order, or name a column with students here."
_NO_SCORES = (
    "No marks by people yet: scores go to people, none is released. Add a column of marks to the file and\n"
    "name it here, as in\n"
    "scores: [{rater: me, score: mark}]"
)
_NO_SCORES_OF_ESSAYS = (
    "No marks by people yet: scores go to people, none is released. Write a table with a row a student and name it\n"
    "here, as in\n"
    "- {file: marks.xlsx, scored: student, scores: [{rater: me, score: mark}]}"
)

_SPLIT = """\
# Every mark both teaches and tests: the score of a marked answer comes from the marks of others alone. With many
# hundred marks take this out: then half of them, or 200 a question, teach, and the others test.
split: {cross: true}"""
MANY = 2 * Split.model_fields["calibration"].default
"""Marks from which on half of them are as many as a study holds out for testing where it says nothing."""


class StudyParts(NamedTuple):
    """What a study file is written of."""

    name: str
    """Of the study."""
    about: str
    """What file it is, in words."""
    source: Mapping[str, Any]
    """The file of answers as `data.sources` has it."""
    questions: Mapping[str, Any] | None
    """The file of questions, where there is one."""
    rubrics: str
    """File of the rubrics."""
    echo: bool
    """Whether the rubrics were made of model answers, whose words good answers share."""
    fewest_levels: int
    """Levels of the shortest of the questions' scales."""
    essays: bool
    """Whether the answers are a folder of essays."""
    marked: int
    """Answers that people marked."""


def study_text(parts: StudyParts) -> str:
    """The study file (YAML), with comments."""
    split = [_SPLIT] if parts.marked < MANY else []
    sections = (_head(parts), _data(parts), _rubrics(parts), split, _judge(parts.echo), _release(parts.fewest_levels))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _head(parts: StudyParts) -> list[str]:
    return [
        *_comment(f"A study for rubricflow, drafted by `rubricflow init` from {parts.about}. Lines after a # explain."),
        "# Look at it with `rubricflow validate`, then grade with `rubricflow grade`; files are sought beside it.",
        f"name: {_inline(parts.name)}",
    ]


def _data(parts: StudyParts) -> list[str]:
    lines = ["data:", "  sources:"]
    if parts.questions:
        lines += _source(parts.questions)
    lines += _source(parts.source)
    if "scores" not in parts.source:
        lines += _comment(_NO_SCORES_OF_ESSAYS, 4) if parts.essays else _comment(_NO_SCORES, 6)
    return lines


def _rubrics(parts: StudyParts) -> list[str]:
    return [
        "# What answers are graded by: read this file and make it yours before you grade.",
        "rubrics:",
        f"  file: {_inline(parts.rubrics)}",
    ]


def _judge(echo: bool) -> list[str]:
    lines = [
        "# Who judges. `embedded` is a small model that runs on this computer and needs no network; the README",
        "# says how to ask a language model instead, which reads far better.",
        "judge:",
        "  protocol: rulers",
        "  backend: embedded",
    ]
    if echo:
        lines.append("  echo: allowed # the rubric is a model answer, whose words good answers share")
    return lines


def _release(fewest_levels: int) -> list[str]:
    """A tolerance of one step, or of none on a scale that has a level within one step of all others."""
    tolerance = 0 if fewest_levels <= 3 else 1
    why = " # one score for all would be within one step of every mark on the shortest scale" if not tolerance else ""
    return [
        "# Which scores may go out without a person: at most `risk` of them (0.05 is one in twenty) further than",
        "# `tolerance` steps from a person's mark. All others go to people. Nothing is promised that one and the",
        "# same score for every answer would keep.",
        "release:",
        f"  tolerance: {tolerance}{why}",
        "  risk: 0.05",
        "  by: set # `item` promises it for every question by its own marks, and needs more of them",
    ]


def _source(source: Mapping[str, Any]) -> list[str]:
    lines = [f"    - file: {_inline(source['file'])}"]
    for key in _ABOUT:
        if value := source.get(key):
            by_row = key == "labels" and any(ROW in columns for columns in value.values())
            lines += _comment(_ROW_IDS if by_row else _ABOUT[key], 6)
            lines += _entry(key, value)
    return lines


def _entry(key: str, value: Any) -> list[str]:
    """A key of a source: a mapping a line an entry, so that each can be taken out."""
    if isinstance(value, Mapping):
        return [f"      {key}:", *(f"        {_inline(name)}: {_inline(element)}" for name, element in value.items())]
    if key == "scores":
        return [f"      {key}:", *(f"        - {_inline(rater)}" for rater in value)]
    return [f"      {key}: {_inline(value)}"]


def _comment(words: str, indent: int = 0) -> list[str]:
    """Comment lines; a line break in a column's or file's name starts none that is read."""
    return [f"{' ' * indent}# {line}" for line in words.splitlines()]


def _inline(value: Any) -> str:
    """A value as YAML on one line, in quotes where it has to be."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_inline(name)}: {_inline(element)}' for name, element in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    if _NEEDS_NO_QUOTES.fullmatch(text) and text.casefold() not in ("true", "false", "null"):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
