"""Votes by Label Studio: tasks and a labelling configuration out, its JSON export back in."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, tostring

from pydantic import BaseModel, BeforeValidator, Field, StrictInt, ValidationError

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
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


def config(questions: Iterable[ReviewQuestion]) -> str:
    """The labelling configuration of a project, as XML: the question, the response, the model answer, and choices for
    every concept. InputError where the cases do not all ask the same: a project has one configuration."""
    cases = [list(case.values()) for case in cases_of(questions).values()]
    asks = ([(asked.criterion_id, asked.ballot["text"], asked.choices) for asked in case] for case in cases)
    if len(set(map(repr, asks))) != 1:
        raise InputError("a Label Studio project is about one rubric; take the cases of each rubric apart")
    view = Element("View")
    for name, title in (("question", "Question"), (_SHOWN, "Response"), ("reference", "Model answer")):
        SubElement(view, "Header", value=title)
        SubElement(view, "Text", name=name, value=f"${name}")
    for asked in cases[0]:
        title = "Score" if asked.criterion_id is None else f"{asked.criterion_id}: {asked.ballot['text']}"
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
        answer = first.case
        digests = {_control(question.criterion_id): question.ballot["digest"] for question in case}
        meta = {"response_id": answer.response_id, "subject_kind": answer.subject_kind, "rank": first.rank}
        meta["digests"] = digests
        data = {"question": answer.question, "response": answer.text, "reference": answer.reference or "–"}
        tasks.append({"data": data, "meta": meta})
    return tasks


def _control(criterion_id: str | None) -> str:
    """The name of a concept's choices, in letters that any configuration can hold."""
    return "score" if criterion_id is None else f"level-{quote(criterion_id, safe='')}"


def _plain(text: str) -> str:
    """A text that stands for itself: without characters that XML cannot hold, and with an invisible joiner after $, as
    Label Studio would put a field of the task where it reads $name."""
    return _NOT_XML.sub("\ufffd", text).replace("$", "$\u2060")


class _Person(BaseModel):
    id: StrictInt | None = None
    email: str | None = None


class _Value(BaseModel):
    choices: list[str] = []
    text: list[str] | str | None = None


class _Entry(BaseModel):
    from_name: str
    value: _Value = _Value()


class _Annotation(BaseModel):
    id: str | int | None = None
    completed_by: StrictInt | _Person | None = None
    result: list[_Entry]
    created_at: str | None = None
    updated_at: str | None = None

    @property
    def changed(self) -> str:
        """When it was last changed; in ISO 8601, so that the latest sorts last."""
        return self.updated_at or self.created_at or ""

    @property
    def rater(self) -> str:
        """Whose it is; '' where it does not say."""
        person = self.completed_by if isinstance(self.completed_by, _Person) else _Person(id=self.completed_by)
        return text_or_none(person.email) or ("" if person.id is None else f"label-studio-{person.id}")


class _Meta(BaseModel):
    """What `project` wrote of a task."""

    response_id: str
    digests: dict[str, Annotated[str, Field(pattern=DIGEST)]]


def _unless_skipped(annotation: Any) -> Any:
    """What is in a skipped one is nobody's answer, whatever it looks like."""
    return None if isinstance(annotation, dict) and annotation.get("was_cancelled") else annotation


class _Task(BaseModel):
    meta: _Meta
    annotations: list[Annotated[_Annotation | None, BeforeValidator(_unless_skipped)]]
    predictions: list[object] | None = None


def read_export(path: Path, study: str, questions: Iterable[ReviewQuestion]) -> list[Act]:
    """The acts of a project's JSON export: each annotator's votes and submit of each task. Annotations that were
    skipped are passed over.

    An annotator is known by the e-mail address, or as label-studio-<number>. InputError names file, row (the task, from
    1), field and rule: no such export, an unknown response or concept, a level off the scale, 'x' without a comment,
    a task with levels for some of its concepts only.
    """
    cases = {response: of_case for (response, _), of_case in cases_of(questions).items()}
    acts = []
    try:
        tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", file=path) from error
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise InputError("is not a list of tasks, as Label Studio exports them", file=path)
    for row, content in enumerate(tasks, 1):

        def wrong(field: str, rule: str, row: int = row) -> InputError:
            return InputError(rule, file=path, row=row, field=field)

        try:
            task = _Task.model_validate(content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise wrong(
                ".".join(map(str, first["loc"])), f"is not as Label Studio exports JSON: {first['msg']}"
            ) from error
        case = cases.get(task.meta.response_id)
        if case is None:
            raise wrong("meta", f"{quoted(task.meta.response_id)} is not asked about")
        for annotation in sorted(filter(None, task.annotations), key=lambda annotation: annotation.changed):
            if not annotation.rater:
                raise wrong("completed_by", "does not say who annotated")
            answers = _answers(wrong, annotation.result, case, task.meta.digests)
            origin = str(annotation.id), annotation.changed
            blind = False if task.predictions else None
            acts += acts_of_answers(study, annotation.rater, answers, blind=blind, origin=origin)
    return acts


def _answers(
    wrong: Callable[[str, str], InputError],
    result: Sequence[_Entry],
    questions: Mapping[Subject, ReviewQuestion],
    digests: Mapping[str, str],
) -> dict[Subject, ReviewAnswer]:
    """An annotation's answers to the questions of its task. wrong: a field and what is wrong with it, to the error."""
    lines = []
    for entry in result:
        if entry.from_name == _COMMENT:
            lines += [entry.value.text] if isinstance(entry.value.text, str) else entry.value.text or []
    comment = text_or_none("\n".join(lines))
    by_control = {_control(criterion): question for (_, criterion), question in questions.items()}
    answers = {}
    for entry in result:
        name, choices = entry.from_name, entry.value.choices
        if name == _COMMENT:
            continue
        if name not in by_control:
            raise wrong("from_name", f"{quoted(name)} is not asked about")
        if len(choices) != 1:
            raise wrong("choices", "is not one choice")
        question = by_control[name]
        # A project without aliases exports the words of a choice.
        value = {_plain(shown): choice for choice, shown in question.choices.items()}.get(choices[0], choices[0])
        broken = fault(question, value, comment)
        if broken:
            raise wrong(name, broken)
        if question.subject in answers:
            raise wrong(name, "is answered twice")
        if name not in digests:
            raise wrong("meta", "is not as it was written")
        answers[question.subject] = ReviewAnswer(value, comment, digests[name])
    missing = unanswered(questions, answers)
    if missing:
        raise wrong("result", f"says nothing of {missing}")
    return answers
