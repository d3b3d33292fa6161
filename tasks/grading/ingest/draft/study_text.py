"""The files that `init` writes: a study whose comments explain each key and what to change, and rubrics for people to
complete, of the model answers or a frame to fill in."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.data import ROW, Split
from rubricflow.tasks.core.llm.schema import JsonObject
from rubricflow.tasks.core.text.tokens import whole
from rubricflow.tasks.core.text.units import units
from rubricflow.tasks.grading.ingest.draft.drafted import UNWRITTEN, DraftedItem

_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z_](?:[\w./@ -]*[\w./@-])?")
_ABOUT: Mapping[str, str] = {
    "without": "Rows that are no student's: what stands in a column in their place.",
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
    "scale and show how far to trust it. `notes: COLUMN` next to `score` names the rater's words to the student,\n"
    "`words` what a cell that is no number stands for: {absent: null} is no mark, {absent: 0} is one of 0.\n"
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
"""Marks from which on half of them are as many as a study holds out for testing by default."""
_RUBRICS = """\
# What answers are graded by: read this file and make it yours before you grade.
rubrics:
  file: {file}"""
_JUDGE = """\
# Who judges. `embedded` is a small model that runs on this computer and needs no network; the README
# says how to ask a language model instead, which reads far better. A large one comes nearer to people with
# `examples: {}`, which shows it answers to the same question that people marked.
judge:
  protocol: rulers
  backend: embedded"""
_RELEASE = """\
# Which scores may go out without a person: at most `risk` of them (0.05 is one in twenty) further than
# `tolerance` steps from a person's mark. All others go to people. Nothing is promised that one and the
# same score for every answer would keep.
release:
  tolerance: {tolerance}
  risk: 0.05
  by: set # `item` promises it for every question by its own marks, and needs more of them"""
_HEAD = """\
# What answers are graded by: one rubric for each question. Each criterion is one thing that an answer should say; a
# judge looks for it and has to quote the answer's own words for it. `weight` is how much it counts next to the others,
# `levels` go from "not there" to "all there". Copy a criterion to add one, and give it an id of its own. What costs
# marks is a criterion with kind: misconception, weight: -1 and levels: [absent, present].
# `points` is what a full answer is worth, in steps of `step`: change it here and nowhere else.
"""
_FRAME = f"{UNWRITTEN} in a few sentences what a full answer says, and what it loses marks for."
_WHOLE = f"{UNWRITTEN} one thing that a full answer says"


def study_text(
    name: str,
    about: str,
    source: JsonObject,
    questions: JsonObject | None,
    rubrics: str,
    *,
    echo: bool,
    fewest_levels: int,
    essays: bool,
    marked: int,
) -> str:
    """The study file (YAML), with comments.

    about: what file it is, in words; source, questions: the files of answers and of questions as `data.sources` has
    them; rubrics: the file of rubrics; echo: whether these were made of model answers, whose words good answers share;
    fewest_levels: of the shortest of the questions' scales; essays: whether the answers are a folder of essays; marked:
    answers that people marked.
    """
    lines = _comment(f"A study for rubricflow, drafted by `rubricflow init` from {about}. Lines after a # explain.")
    lines += [
        "# Look at it with `rubricflow validate`, then grade with `rubricflow grade`; files are sought next to it.",
        f"name: {_inline(name)}",
        "",
        "data:",
        "  sources:",
        *(_source(questions) if questions else ()),
        *_source(source),
    ]
    if "scores" not in source:
        lines += _comment(_NO_SCORES_OF_ESSAYS, 4) if essays else _comment(_NO_SCORES, 6)
    split = [_SPLIT] if marked < MANY else []
    judge = (
        f"{_JUDGE}\n  echo: allowed # the rubric is a model answer, whose words good answers share" if echo else _JUDGE
    )
    # A tolerance of one step, or of none on a scale that has a level within one step of all others.
    why = " # one score for all would be within one step of every mark on the shortest scale"
    release = _RELEASE.format(tolerance=f"0{why}" if fewest_levels <= 3 else "1")
    return "\n\n".join(["\n".join(lines), _RUBRICS.format(file=_inline(rubrics)), *split, judge, release]) + "\n"


def _source(source: JsonObject) -> list[str]:
    """The lines of a source: a mapping and a list of raters a line an entry, so that each can be taken out."""
    lines = [f"    - file: {_inline(source['file'])}"]
    for key, about in _ABOUT.items():
        if value := source.get(key):
            by_row = key == "labels" and any(ROW in columns for columns in value.values())
            lines += _comment(_ROW_IDS if by_row else about, 6)
            if isinstance(value, Mapping):
                entries = [f"        {_inline(name)}: {_inline(element)}" for name, element in value.items()]
                lines += [f"      {key}:", *entries]
            elif key == "scores":
                lines += [f"      {key}:", *(f"        - {_inline(rater)}" for rater in value)]
            else:
                lines.append(f"      {key}: {_inline(value)}")
    return lines


def _comment(words: str, indent: int = 0) -> list[str]:
    """Comment lines; a line break in a column's or file's name starts none that is read."""
    return [f"{' ' * indent}# {line}" for line in words.splitlines()]


def _inline(value: Any) -> str:
    """A value as YAML on one line, in quotes where it has to be."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_inline(name)}: {_inline(element)}' for name, element in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_inline, value))}]"
    if value is None or isinstance(value, bool | float):
        return "null" if value is None else str(value).lower()
    text = str(value)
    if _NEEDS_NO_QUOTES.fullmatch(text) and text.casefold() not in ("true", "false", "null"):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())


class _Quoting(yaml.SafeDumper):
    """Puts quotes around a text that begins like a number: YAML 1.1 and 1.2 do not agree on which of them is one."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if text[:1] in "0123456789+-.~" else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Quoting.add_representer(str, _text)


def rubric_text(items: Sequence[tuple[DraftedItem, Scale]]) -> str:
    """A rubric file (YAML) with a rubric for each question: the sentences of its model answer as criteria or, where
    there is none, the question itself as the only one, with a mark where a person has to write."""
    rubrics = []
    for item, scale in items:
        answer, most = item.reference or "", scale.max
        points = [answer[unit.start : unit.end] for unit in units(answer) if unit.kind == "sentence"]
        points = points or [f"Answers the question: {item.question}" if item.question else _WHOLE]
        levels = ["absent", "in part", "present"]
        rubric = {
            "rubric_id": item.item_id,
            "title": (item.question or "")[:200],
            "points": whole(most),
            **({} if scale.step == 1 else {"step": scale.step}),
            "text": item.reference or _FRAME,
            "criteria": [
                {"id": f"P{place}", "kind": "gold_point", "text": text, "weight": 1}
                | {"evidence": "local_quote", "levels": list(levels)}
                for place, text in enumerate(points, 1)
            ],
        }
        rubrics.append(rubric)
    return _HEAD + yaml.dump({"rubrics": rubrics}, Dumper=_Quoting, sort_keys=False, allow_unicode=True, width=110)
