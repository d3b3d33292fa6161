"""The command `init`: a first study from a spreadsheet. The columns are looked at, a few questions asked, and the files
written."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import pandas as pd
import typer

from rubricflow.flows.validate import prove
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError, UserError
from rubricflow.tasks.core.stats.agreement import level_count
from rubricflow.tasks.core.store.cells import EssayCell, text_or_none
from rubricflow.tasks.core.store.essays import is_essays
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.core.store.source import chunks
from rubricflow.tasks.grading.ingest.draft.asking import (
    QUESTION_COLUMNS,
    QUESTIONS,
    Ask,
    Asking,
    confirmed_roles,
    known_questions,
    listed_questions,
    question_table,
    scales,
    seen,
    students_apart,
    to_write,
    worded,
)
from rubricflow.tasks.grading.ingest.draft.drafted import NOTHING, drafted
from rubricflow.tasks.grading.ingest.draft.guess import Column, guessed, with_people
from rubricflow.tasks.grading.ingest.draft.roles import recognised
from rubricflow.tasks.grading.ingest.draft.study_text import rubric_text, study_text
from rubricflow.tasks.grading.lock.rubric import authored


def command(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A table of answers, as you have it or as a learning platform exports it; questions; rubrics."
        ),
    ],
    to: Annotated[
        Path | None,
        typer.Option("--to", help="The study file to write, or the folder for it; the answers' folder if not given."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: take what is guessed.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")] = False,
) -> None:
    """Writes a study and prints what was seen, what is left to do, and the commands to type next."""

    def ask(question: str, guess: str) -> str:
        return guess if yes else str(typer.prompt(question, default=guess, show_default=bool(guess)))

    target = to or files[0].parent
    study = target if target.suffix in (".yaml", ".yml") else target / "study.yaml"
    started = init(files, study, ask, overwrite)
    print(*started.lines, *(f"written: {path}" for path in started.files), sep="\n")
    try:
        wrong = [message for kind, _, message in prove(study) if kind == "wrong"]
    except UserError as error:
        wrong = [str(error)]
    for line in (*started.to_do, *(f"mend: {message}" for message in wrong)):
        print(f"to do: {line}")
    if wrong:
        raise UserError(f"{study} is written, but `rubricflow validate` refuses it until that is mended")
    print(f"then: rubricflow validate {study}, rubricflow grade {study}")


class Started(NamedTuple):
    """What was written, and what a person has to do next."""

    files: tuple[Path, ...]
    """The study first."""
    lines: tuple[str, ...]
    """What was seen and guessed."""
    to_do: tuple[str, ...]
    """What has to be written by a person before grading means anything."""


def init(files: Sequence[Path], to: Path, ask: Ask, overwrite: bool = False) -> Started:
    """Writes a study file and, where none are given, rubrics and questions next to it.

    files: a table of answers, or a folder or .zip of essays; with it, where there are any, a table of questions and a
    rubric file (YAML). InputError where a file to write is there already and may not be overwritten or would be one of
    the essays, no column of answers is found or named, or a column that is named is not there.
    """
    rubric_files = [path for path in files if path.suffix.lower() in (".yaml", ".yml")]
    tables = [(path, read_table(path)) for path in files if path not in rubric_files]
    if not 1 <= len(tables) <= 2 or len(rubric_files) > 1:
        raise InputError("give a table of answers and, if you have them, one of questions and a rubric file (YAML)")
    # Of two tables the platform's export, or the longer one, has the answers.
    tables.sort(key=lambda table: (recognised(list(table[1].columns)) is None, -len(table[1])))
    (path, frame), questions = tables[0], next(iter(tables[1:]), None)
    rubrics = next(iter(rubric_files), None)
    if path.is_dir() and to.resolve().is_relative_to(path.resolve()):
        hint = f"--to {path.parent / 'study.yaml'}"
        raise InputError("is a folder of essays: what is written into it would be one of them", file=path, hint=hint)
    asking, columns = Asking(ask), _columns(frame)
    of_platform = recognised(list(frame.columns))
    roles = (
        with_people(of_platform, columns) if of_platform else confirmed_roles(guessed(columns), columns, path, asking)
    )
    asked = _columns(questions[1]) if questions else []
    known = known_questions(asked) if asked else NOTHING
    if rubrics is not None:
        known = replace(known, ids=known.ids | authored(rubrics, induced=True).keys())
    draft = drafted(_named_from(to, path), roles, frame, known)
    if not draft.answers:
        raise InputError("has no row with an answer", file=path)
    told = students_apart(draft, roles, asking)
    if told != roles:
        roles = told
        draft = drafted(_named_from(to, path), told, frame, known)
    source = dict(draft.source)
    items = draft.items
    listed: Record | None = None
    if questions:
        numbered = next(iter(source.get("numbered", {})), "question_id")
        listed, items = listed_questions(questions[0], asked, items, numbered)
        listed["file"] = _named_from(to, questions[0])
    items = worded(items, asking)
    texts = {}
    if not questions and (draft.asks_wording or "items" not in source):
        listed = {"file": QUESTIONS, "items": QUESTION_COLUMNS}
        texts[to.with_name(QUESTIONS)] = question_table(items)
    if listed:
        source.pop("items", None)
    scaled = scales(draft, items, asking)
    if rubrics is None:
        rubrics = to.with_name("rubrics.yaml")
        texts[rubrics] = rubric_text(scaled)
    echo = rubrics in texts and any(item.reference for item in items)
    about = f"{roles.title} ({path.name})" if roles.title else path.name
    fewest = min(level_count(*scale.bounds) for _, scale in scaled)
    name = re.sub(r"[^A-Za-z0-9]+", "-", path.stem).strip("-")[:40].strip("-") or "study"
    text = study_text(
        name,
        " ".join(about.split()),
        source,
        listed,
        _named_from(to, rubrics),
        echo=echo,
        fewest_levels=fewest,
        essays=is_essays(path),
        marked=draft.marked,
    )
    texts = {to: text, **texts}
    for file in texts if not overwrite else ():
        if file.exists():
            hint = "another place: --to FOLDER/study.yaml; in its place: --overwrite"
            raise InputError("is there already, and somebody may have edited it", file=file, hint=hint)
    for file, text in texts.items():
        write_atomically(file, text.encode())
    return Started(tuple(texts), tuple(seen(about, draft, roles, scaled)), tuple(to_write(items, texts, to, rubrics)))


def read_table(path: Path) -> pd.DataFrame:
    """All rows of a table as texts, columns of one name told apart; InputError where it cannot be read.

    Of a workbook the first sheet that is not hidden is read.
    """
    frame = pd.concat(chunks(path, repeats=True))
    return frame.map(lambda cell: cell if isinstance(cell, EssayCell) else text_or_none(cell) or "")


def _columns(frame: pd.DataFrame) -> list[Column]:
    return [Column(name, tuple(map(str, frame[name]))) for name in frame.columns]


def _named_from(study: Path, path: Path) -> str:
    """A file as a study names it: relative to itself."""
    return Path(os.path.relpath(path.resolve(), study.resolve().parent)).as_posix()
