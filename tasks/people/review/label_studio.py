"""Votes by Label Studio: tasks and a labelling configuration out, its JSON export back in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import quoted, text_or_none
from rubricflow.tasks.people.review.ledger import CANNOT_BE_JUDGED, Act
from rubricflow.tasks.people.review.questions import (
    Case,
    ReviewAnswer,
    ReviewQuestion,
    acts_of,
    cases_of,
    fault,
    unanswered,
)
from rubricflow.tasks.people.review.subject import DIGEST, Subject

_COMMENT = "comment"
_SCORE = "score"
_SHOWN = "response"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def config(questions: Iterable[ReviewQuestion]) -> str:
    """The labelling configuration of a project, as XML: the question, the response, the model answer, and choices for
    every concept. InputError where the cases do not all ask the same: a project has one configuration."""
    projects = {_layout(case.values()) for case in cases_of(questions).values()}
    if len(projects) != 1:
        raise InputError("a Label Studio project is about one rubric; take the cases of each rubric apart")
    view = ElementTree.Element("View")
    for name, title in (("question", "Question"), (_SHOWN, "Response"), ("reference", "Model answer")):
        ElementTree.SubElement(view, "Header", value=title)
        ElementTree.SubElement(view, "Text", name=name, value=f"${name}")
    for criterion_id, concept, levels in projects.pop():
        question = ReviewQuestion(
            response_id="",
            criterion_id=criterion_id,
            rank=1,
            question="",
            response="",
            reference=None,
            concept=concept,
            levels=levels,
        )
        _add_choices(view, question)
    ElementTree.SubElement(view, "Header", value=f"Comment (needed for {CANNOT_BE_JUDGED})")
    ElementTree.SubElement(view, "TextArea", name=_COMMENT, toName=_SHOWN, maxSubmissions="1", editable="true")
    return ElementTree.tostring(view, encoding="unicode")


def _layout(questions: Iterable[ReviewQuestion]) -> tuple[tuple[str | None, str, tuple[str, ...]], ...]:
    """What a project asks of a response: (criterion, concept, levels) of each question."""
    return tuple((question.criterion_id, question.concept, question.levels) for question in questions)


def project(
    questions: Iterable[ReviewQuestion], predicted: Mapping[str, Mapping[Subject, str]] | None = None
) -> list[dict[str, Any]]:
    """The cases as Label Studio imports them, a task each, in the order of the queue.

    predicted: annotator → subject → level, shown to people as predictions. Without it whoever votes is blind to the
    machine, as a second rater must be.
    """
    cases = sorted(cases_of(questions).items(), key=lambda case: next(iter(case[1].values())).rank)
    return [_task(case, of_case, predicted or {}) for case, of_case in cases]


def read_export(path: Path, study: str, questions: Iterable[ReviewQuestion]) -> list[Act]:
    """The acts of a project's JSON export: each annotator's votes and submit of each task. Annotations that were
    skipped are passed over.

    An annotator is known by the e-mail address, or as label-studio-<number>. InputError names file, row (the task, from
    1), field and rule: no such export, an unknown response or concept, a level off the scale, 'x' without a comment,
    a task with levels for some of its concepts only.
    """
    cases = cases_of(questions)
    acts: list[Act] = []
    try:
        tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", file=path) from error
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise InputError("is not a list of tasks, as Label Studio exports them", file=path)
    for row, task in enumerate(tasks, 1):
        place = _TaskPlace(path, row)
        meta, annotations = task.get("meta"), task.get("annotations")
        if not isinstance(annotations, list):
            raise place.error("annotations", "is missing; export as JSON, which says who annotated")
        if not isinstance(meta, dict) or not isinstance(meta.get("digests"), dict):
            raise place.error("meta", "is not as it was written")
        of_case = _case_questions(meta, cases)
        if of_case is None:
            raise place.error("meta", f"{quoted(meta.get('response_id'))} is not asked about")
        blind = False if task.get("predictions") else None
        if not all(isinstance(annotation, dict) for annotation in annotations):
            raise place.error("annotations", "is not a list of objects")
        submitted = [annotation for annotation in annotations if not annotation.get("was_cancelled")]
        for annotation in sorted(submitted, key=_changed):
            answers = _answers(place, annotation, of_case, meta["digests"])
            origin = (str(annotation.get("id")), _changed(annotation))
            acts += acts_of(study, _rater(place, annotation), answers, blind=blind, origin=origin)
    return acts


class _TaskPlace(NamedTuple):
    """Where a task stands in the file."""

    path: Path
    row: int

    def error(self, field: str, rule: str) -> InputError:
        """What is wrong with a field of it."""
        return InputError(rule, file=self.path, row=self.row, field=field)


def _add_choices(view: ElementTree.Element, question: ReviewQuestion) -> None:
    title = "Score" if question.criterion_id is None else f"{question.criterion_id}: {question.concept}"
    ElementTree.SubElement(view, "Header", value=_plain(title))
    control = {"name": _control(question.criterion_id), "toName": _SHOWN, "choice": "single-radio", "required": "true"}
    choices = ElementTree.SubElement(view, "Choices", control)
    for value, words in (*question.choices.items(), (CANNOT_BE_JUDGED, "cannot be judged")):
        ElementTree.SubElement(choices, "Choice", alias=value, value=_plain(words))


def _task(
    case: Case, questions: Mapping[Subject, ReviewQuestion], predicted: Mapping[str, Mapping[Subject, str]]
) -> dict[str, Any]:
    first = next(iter(questions.values()))
    response_id, kind = case
    digests = {_control(criterion): question.digest for (_, criterion), question in questions.items()}
    meta = {"response_id": response_id, "subject_kind": kind, "rank": first.rank, "digests": digests}
    data = {"question": first.question, "response": first.response, "reference": first.reference or "–"}
    task: dict[str, Any] = {"data": data, "meta": meta}
    predictions = []
    for name, levels in predicted.items():
        result = [_choice(subject, levels[subject]) for subject in questions if subject in levels]
        predictions.append({"model_version": name, "result": result})
    if any(prediction["result"] for prediction in predictions):
        task["predictions"] = predictions
    return task


def _choice(subject: Subject, value: str) -> dict[str, Any]:
    _, criterion = subject
    return {"from_name": _control(criterion), "to_name": _SHOWN, "type": "choices", "value": {"choices": [value]}}


def _control(criterion_id: str | None) -> str:
    """The name of a concept's choices, in letters that any configuration can hold."""
    return _SCORE if criterion_id is None else f"level-{quote(criterion_id, safe='')}"


def _plain(text: str) -> str:
    """A text that stands for itself: without characters that XML cannot hold, and with an invisible joiner after $, as
    Label Studio would put a field of the task where it reads $name."""
    return _NOT_XML.sub("\ufffd", text).replace("$", "$\u2060")


def _case_questions(
    meta: Mapping[str, Any], cases: Mapping[Case, Mapping[Subject, ReviewQuestion]]
) -> Mapping[Subject, ReviewQuestion] | None:
    """The questions of the case that a task names; None where nobody is asked about it."""
    response, kind = meta.get("response_id"), meta.get("subject_kind")
    if not isinstance(response, str) or kind not in ("label", "score"):
        return None
    return cases.get((response, kind))


def _changed(annotation: Mapping[str, Any]) -> str:
    """When it was last changed; in ISO 8601, so that the latest sorts last."""
    return str(annotation.get("updated_at") or annotation.get("created_at") or "")


def _rater(place: _TaskPlace, annotation: Mapping[str, Any]) -> str:
    person = annotation.get("completed_by")
    email, number = (person.get("email"), person.get("id")) if isinstance(person, dict) else (None, person)
    if isinstance(email, str) and email.strip():
        return text_or_none(email) or ""
    if isinstance(number, int) and not isinstance(number, bool):
        return f"label-studio-{number}"
    raise place.error("completed_by", "does not say who annotated")


def _answers(
    place: _TaskPlace,
    annotation: Mapping[str, Any],
    questions: Mapping[Subject, ReviewQuestion],
    digests: Mapping[str, Any],
) -> dict[Subject, ReviewAnswer]:
    """An annotation's answers to the questions of its task."""
    result = annotation.get("result")
    if not isinstance(result, list) or not all(isinstance(entry, dict) for entry in result):
        raise place.error("result", "is not a list of objects")
    comment = _comment(place, result)
    by_control = {_control(criterion): question for (_, criterion), question in questions.items()}
    answers: dict[Subject, ReviewAnswer] = {}
    for entry in result:
        name = entry.get("from_name")
        if name == _COMMENT:
            continue
        if not isinstance(name, str) or name not in by_control:
            raise place.error("from_name", f"{quoted(name)} is not asked about")
        question, value = by_control[name], _chosen(place, entry, by_control[name])
        broken = fault(question, value, comment)
        if broken:
            raise place.error(name, broken)
        if question.subject in answers:
            raise place.error(name, "is answered twice")
        if not DIGEST.fullmatch(str(digests.get(name))):
            raise place.error("meta", "is not as it was written")
        answers[question.subject] = ReviewAnswer(value, comment, digests[name])
    missing = unanswered(questions, answers)
    if missing:
        raise place.error("result", f"says nothing of {missing}")
    return answers


def _chosen(place: _TaskPlace, entry: Mapping[str, Any], question: ReviewQuestion) -> str:
    """The one choice of an entry; a project without aliases exports its words."""
    value = entry.get("value")
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], str):
        raise place.error("choices", "is not one choice")
    words = {_plain(shown): choice for choice, shown in question.choices.items()}
    return words.get(choices[0], choices[0])


def _comment(place: _TaskPlace, result: Sequence[Mapping[str, Any]]) -> str | None:
    lines: list[str] = []
    for entry in result:
        value = entry.get("value")
        if entry.get("from_name") == _COMMENT and isinstance(value, dict):
            text = value.get("text")
            if isinstance(text, str):
                lines.append(text)
            elif isinstance(text, list):
                lines += text
    if not all(isinstance(line, str) for line in lines):
        raise place.error(_COMMENT, "is not text")
    return text_or_none("\n".join(lines))
