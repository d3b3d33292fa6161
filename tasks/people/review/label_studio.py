"""Votes by Label Studio: tasks and a labelling configuration out, its JSON export back in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, tostring

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.display.table import Record, Row, Rows
from rubricflow.tasks.core.store.cells import quoted, text_or_none
from rubricflow.tasks.people.review.ledger import CANNOT_BE_JUDGED, DIGEST, Act, Subject
from rubricflow.tasks.people.review.sheet import (
    ReviewAnswer,
    ReviewQuestion,
    acts_of_answers,
    cases_of,
    fault,
    unanswered,
)

_COMMENT = "comment"
_SHOWN = "response"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_Fault = Callable[[str, str], InputError]
"""A field of a task in an export and what is wrong with it, to the error."""


def config(questions: Iterable[ReviewQuestion]) -> str:
    """The labelling configuration of a project, as XML: the question, the response, the model answer, and choices for
    every concept. InputError where the cases do not all ask the same: a project has one configuration."""
    cases = [list(case.values()) for case in cases_of(questions).values()]
    if len({tuple((asked.criterion_id, asked.concept, asked.levels) for asked in case) for case in cases}) != 1:
        raise InputError("a Label Studio project is about one rubric; take the cases of each rubric apart")
    view = Element("View")
    for name, title in (("question", "Question"), (_SHOWN, "Response"), ("reference", "Model answer")):
        SubElement(view, "Header", value=title)
        SubElement(view, "Text", name=name, value=f"${name}")
    for asked in cases[0]:
        title = "Score" if asked.criterion_id is None else f"{asked.criterion_id}: {asked.concept}"
        SubElement(view, "Header", value=_plain(title))
        control = {"name": _control(asked.criterion_id), "toName": _SHOWN, "choice": "single-radio", "required": "true"}
        choices = SubElement(view, "Choices", control)
        for value, words in (*asked.choices.items(), (CANNOT_BE_JUDGED, "cannot be judged")):
            SubElement(choices, "Choice", alias=value, value=_plain(words))
    SubElement(view, "Header", value=f"Comment (needed for {CANNOT_BE_JUDGED})")
    SubElement(view, "TextArea", name=_COMMENT, toName=_SHOWN, maxSubmissions="1", editable="true")
    return tostring(view, encoding="unicode")


def project(questions: Iterable[ReviewQuestion]) -> list[Record]:
    """The cases as Label Studio imports them, a task each, in the order of the queue; without any machine's levels."""
    tasks = []
    cases = [list(case.values()) for case in cases_of(questions).values()]
    for case in sorted(cases, key=lambda case: case[0].rank):
        first = case[0]
        response_id, kind = first.case
        digests = {_control(question.criterion_id): question.digest for question in case}
        meta = {"response_id": response_id, "subject_kind": kind, "rank": first.rank, "digests": digests}
        data = {"question": first.question, "response": first.response, "reference": first.reference or "–"}
        tasks.append({"data": data, "meta": meta})
    return tasks


def _control(criterion_id: str | None) -> str:
    """The name of a concept's choices, in letters that any configuration can hold."""
    return "score" if criterion_id is None else f"level-{quote(criterion_id, safe='')}"


def _plain(text: str) -> str:
    """A text that stands for itself: without characters that XML cannot hold, and with an invisible joiner after $, as
    Label Studio would put a field of the task where it reads $name."""
    return _NOT_XML.sub("\ufffd", text).replace("$", "$\u2060")


def read_export(path: Path, study: str, questions: Iterable[ReviewQuestion]) -> list[Act]:
    """The acts of a project's JSON export: each annotator's votes and submit of each task. Annotations that were
    skipped are passed over.

    An annotator is known by the e-mail address, or as label-studio-<number>. InputError names file, row (the task, from
    1), field and rule: no such export, an unknown response or concept, a level off the scale, 'x' without a comment,
    a task with levels for some of its concepts only.
    """
    cases = {tuple(case): of_case for case, of_case in cases_of(questions).items()}
    acts = []
    try:
        tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", file=path) from error
    if not _are_objects(tasks):
        raise InputError("is not a list of tasks, as Label Studio exports them", file=path)
    for row, task in enumerate(tasks, 1):

        def wrong(field: str, rule: str, row: int = row) -> InputError:
            return InputError(rule, file=path, row=row, field=field)

        meta, annotations = task.get("meta"), task.get("annotations")
        if not isinstance(annotations, list):
            raise wrong("annotations", "is missing; export as JSON, which says who annotated")
        if not isinstance(meta, dict) or not isinstance(meta.get("digests"), dict):
            raise wrong("meta", "is not as it was written")
        response, kind = meta.get("response_id"), meta.get("subject_kind")
        of_case = cases.get((response, kind)) if isinstance(response, str) and isinstance(kind, str) else None
        if of_case is None:
            raise wrong("meta", f"{quoted(response)} is not asked about")
        if not _are_objects(annotations):
            raise wrong("annotations", "is not a list of objects")
        submitted = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
        for annotation in sorted(submitted, key=_changed):
            answers = _answers(wrong, annotation, of_case, meta["digests"])
            origin = str(annotation.get("id")), _changed(annotation)
            blind = False if task.get("predictions") else None
            acts += acts_of_answers(study, _rater(wrong, annotation), answers, blind=blind, origin=origin)
    return acts


def _are_objects(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, dict) for value in values)


def _changed(annotation: Row) -> str:
    """When it was last changed; in ISO 8601, so that the latest sorts last."""
    return str(annotation.get("updated_at") or annotation.get("created_at") or "")


def _rater(wrong: _Fault, annotation: Row) -> str:
    person = annotation.get("completed_by")
    email, number = (person.get("email"), person.get("id")) if isinstance(person, dict) else (None, person)
    if isinstance(email, str) and email.strip():
        return text_or_none(email) or ""
    if isinstance(number, int) and not isinstance(number, bool):
        return f"label-studio-{number}"
    raise wrong("completed_by", "does not say who annotated")


def _answers(
    wrong: _Fault,
    annotation: Row,
    questions: Mapping[Subject, ReviewQuestion],
    digests: Row,
) -> dict[Subject, ReviewAnswer]:
    """An annotation's answers to the questions of its task."""
    result = annotation.get("result")
    if not isinstance(result, list) or not _are_objects(result):
        raise wrong("result", "is not a list of objects")
    comment = _comment(wrong, result)
    by_control = {_control(criterion): question for (_, criterion), question in questions.items()}
    answers: dict[Subject, ReviewAnswer] = {}
    for entry in result:
        name = entry.get("from_name")
        if name == _COMMENT:
            continue
        if not isinstance(name, str) or name not in by_control:
            raise wrong("from_name", f"{quoted(name)} is not asked about")
        question = by_control[name]
        given = entry.get("value")
        choices = given.get("choices") if isinstance(given, dict) else None
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], str):
            raise wrong("choices", "is not one choice")
        # A project without aliases exports the words of a choice.
        value = {_plain(shown): choice for choice, shown in question.choices.items()}.get(choices[0], choices[0])
        broken = fault(question, value, comment)
        if broken:
            raise wrong(name, broken)
        if question.subject in answers:
            raise wrong(name, "is answered twice")
        if not DIGEST.fullmatch(str(digests.get(name))):
            raise wrong("meta", "is not as it was written")
        answers[question.subject] = ReviewAnswer(value, comment, digests[name])
    missing = unanswered(questions, answers)
    if missing:
        raise wrong("result", f"says nothing of {missing}")
    return answers


def _comment(wrong: _Fault, result: Rows) -> str | None:
    lines: list[Any] = []
    for entry in result:
        value = entry.get("value")
        if entry.get("from_name") == _COMMENT and isinstance(value, dict):
            text = value.get("text")
            lines += text if isinstance(text, list) else [text] if isinstance(text, str) else []
    if not all(isinstance(line, str) for line in lines):
        raise wrong(_COMMENT, "is not text")
    return text_or_none("\n".join(lines))
