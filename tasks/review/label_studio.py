"""Votes by Label Studio: tasks and a labelling configuration out, its JSON export back in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree

from tasks.contracts.errors import InputError
from tasks.review.asked import Case, ReviewAnswer, ReviewQuestion, acts_of, cases_of, fault, unanswered
from tasks.review.ledger import CANNOT_BE_JUDGED, Act
from tasks.review.subject import DIGEST, Subject
from tasks.store.cells import quoted, text_or_none

_COMMENT = "comment"
_SCORE = "score"
_SHOWN = "response"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def config(asked: Iterable[ReviewQuestion]) -> str:
    """The labelling configuration of a project, as XML: the question, the response, the model answer, and choices for
    every concept. InputError where the cases do not all ask the same: a project has one configuration."""
    projects = {
        tuple((q.criterion_id, q.concept, q.levels) for q in case.values()) for case in cases_of(asked).values()
    }
    if len(projects) != 1:
        raise InputError("a Label Studio project is about one rubric; take the cases of each rubric apart")
    view = ElementTree.Element("View")
    for name, title in (("question", "Question"), (_SHOWN, "Response"), ("reference", "Model answer")):
        ElementTree.SubElement(view, "Header", value=title)
        ElementTree.SubElement(view, "Text", name=name, value=f"${name}")
    for criterion, concept, levels in projects.pop():
        question = ReviewQuestion("", criterion, 1, "", "", None, concept, levels)
        _add_choices(view, question)
    ElementTree.SubElement(view, "Header", value=f"Comment (needed for {CANNOT_BE_JUDGED})")
    ElementTree.SubElement(view, "TextArea", name=_COMMENT, toName=_SHOWN, maxSubmissions="1", editable="true")
    return ElementTree.tostring(view, encoding="unicode")


def project(
    asked: Iterable[ReviewQuestion], predicted: Mapping[str, Mapping[Subject, str]] | None = None
) -> list[dict[str, Any]]:
    """The cases as Label Studio imports them, a task each, in the order of the queue.

    predicted: annotator → subject → level, shown to people as predictions. Without it whoever votes is blind to the
    machine, as a second rater must be.
    """
    cases = sorted(cases_of(asked).items(), key=lambda case: next(iter(case[1].values())).rank)
    return [_task(case, questions, predicted or {}) for case, questions in cases]


def read_export(path: Path, study: str, asked: Iterable[ReviewQuestion]) -> list[Act]:
    """The acts of a project's JSON export: each annotator's votes and submit of each task. Annotations that were
    skipped are passed over.

    An annotator is known by the e-mail address, or as label-studio-<number>. InputError names file, row (the task, from
    1), field and rule: no such export, an unknown response or concept, a level off the scale, 'x' without a comment,
    a task with levels for some of its concepts only.
    """
    cases = cases_of(asked)
    acts: list[Act] = []
    for row, task in enumerate(_exported(path), 1):
        at = _At(path, row)
        meta, annotations = task.get("meta"), task.get("annotations")
        if not isinstance(annotations, list):
            raise at.error("annotations", "is missing; export as JSON, which says who annotated")
        if not isinstance(meta, dict) or not isinstance(meta.get("digests"), dict):
            raise at.error("meta", "is not as it was written")
        response, kind = meta.get("response_id"), meta.get("subject_kind")
        questions = cases.get((response, kind)) if isinstance(response, str) and kind in ("label", "score") else None
        if questions is None:
            raise at.error("meta", f"{quoted(response)} is not asked about")
        blind = False if task.get("predictions") else None
        for annotation in sorted(_submitted(at, annotations), key=_changed):
            answers = _answers(at, annotation, questions, meta["digests"])
            origin = (str(annotation.get("id")), _changed(annotation))
            acts += acts_of(study, _rater(at, annotation), answers, blind=blind, origin=origin)
    return acts


class _At(NamedTuple):
    """A task of the file."""

    path: Path
    row: int

    def error(self, field: str, rule: str) -> InputError:
        """What is wrong with a field of it."""
        return InputError(rule, file=self.path, row=self.row, field=field)


def _add_choices(view: ElementTree.Element, question: ReviewQuestion) -> None:
    title = "Score" if question.criterion_id is None else f"{question.criterion_id}: {question.concept}"
    ElementTree.SubElement(view, "Header", value=_plain(title))
    named = {"name": _control(question.criterion_id), "toName": _SHOWN, "choice": "single-radio", "required": "true"}
    choices = ElementTree.SubElement(view, "Choices", named)
    for value, words in (*question.choices.items(), (CANNOT_BE_JUDGED, "cannot be judged")):
        ElementTree.SubElement(choices, "Choice", alias=value, value=_plain(words))


def _task(
    case: Case, questions: Mapping[Subject, ReviewQuestion], predicted: Mapping[str, Mapping[Subject, str]]
) -> dict[str, Any]:
    first = next(iter(questions.values()))
    response_id, kind = case
    found: dict[str, Any] = {
        "data": {"question": first.question, "response": first.response, "reference": first.reference or "–"},
        "meta": {
            "response_id": response_id,
            "subject_kind": kind,
            "rank": first.rank,
            "digests": {_control(criterion): one.digest for (_, criterion), one in questions.items()},
        },
    }
    shown = {name: [_choice(on, levels[on]) for on in questions if on in levels] for name, levels in predicted.items()}
    if any(shown.values()):
        found["predictions"] = [{"model_version": name, "result": result} for name, result in shown.items()]
    return found


def _choice(on: Subject, value: str) -> dict[str, Any]:
    return {"from_name": _control(on[1]), "to_name": _SHOWN, "type": "choices", "value": {"choices": [value]}}


def _control(criterion_id: str | None) -> str:
    """The name of a concept's choices, in letters that any configuration can hold."""
    return _SCORE if criterion_id is None else f"level-{quote(criterion_id, safe='')}"


def _plain(text: str) -> str:
    """A text that stands for itself: without characters that XML cannot hold, and with an invisible joiner after $, as
    Label Studio would put a field of the task where it reads $name."""
    return _NOT_XML.sub("\ufffd", text).replace("$", "$\u2060")


def _exported(path: Path) -> list[dict[str, Any]]:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"is not JSON: {getattr(error, 'msg', error)}", file=path) from error
    if not isinstance(found, list) or not all(isinstance(task, dict) for task in found):
        raise InputError("is not a list of tasks, as Label Studio exports them", file=path)
    return found


def _submitted(at: _At, annotations: Sequence[Any]) -> list[dict[str, Any]]:
    if not all(isinstance(one, dict) for one in annotations):
        raise at.error("annotations", "is not a list of objects")
    return [one for one in annotations if not one.get("was_cancelled")]


def _changed(annotation: Mapping[str, Any]) -> str:
    """When it was last changed; in ISO 8601, so that the latest sorts last."""
    return str(annotation.get("updated_at") or annotation.get("created_at") or "")


def _rater(at: _At, annotation: Mapping[str, Any]) -> str:
    who = annotation.get("completed_by")
    email, number = (who.get("email"), who.get("id")) if isinstance(who, dict) else (None, who)
    if isinstance(email, str) and email.strip():
        return text_or_none(email) or ""
    if isinstance(number, int) and not isinstance(number, bool):
        return f"label-studio-{number}"
    raise at.error("completed_by", "does not say who annotated")


def _answers(
    at: _At, annotation: Mapping[str, Any], questions: Mapping[Subject, ReviewQuestion], digests: Mapping[str, Any]
) -> dict[Subject, ReviewAnswer]:
    """An annotation's answers to the questions of its task."""
    result = annotation.get("result")
    if not isinstance(result, list) or not all(isinstance(one, dict) for one in result):
        raise at.error("result", "is not a list of objects")
    comment = _comment(at, result)
    names = {_control(criterion): one for (_, criterion), one in questions.items()}
    found: dict[Subject, ReviewAnswer] = {}
    for one in result:
        name = one.get("from_name")
        if name == _COMMENT:
            continue
        if not isinstance(name, str) or name not in names:
            raise at.error("from_name", f"{quoted(name)} is not asked about")
        question, value = names[name], _said(at, one, names[name])
        broken = fault(question, value, comment)
        if broken:
            raise at.error(name, broken)
        if question.subject in found:
            raise at.error(name, "is answered twice")
        if not DIGEST.fullmatch(str(digests.get(name))):
            raise at.error("meta", "is not as it was written")
        found[question.subject] = ReviewAnswer(value, comment, digests[name])
    left = unanswered(questions, found)
    if left:
        raise at.error("result", f"says nothing of {left}")
    return found


def _said(at: _At, one: Mapping[str, Any], question: ReviewQuestion) -> str:
    """The one choice made; a project without aliases exports its words."""
    value = one.get("value")
    choices = value.get("choices") if isinstance(value, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], str):
        raise at.error("choices", "is not one choice")
    words = {_plain(shown): choice for choice, shown in question.choices.items()}
    return words.get(choices[0], choices[0])


def _comment(at: _At, result: Sequence[Mapping[str, Any]]) -> str | None:
    texts: list[str] = []
    for one in result:
        if one.get("from_name") == _COMMENT:
            value = one.get("value")
            said = value.get("text") if isinstance(value, dict) else None
            texts += [said] if isinstance(said, str) else said if isinstance(said, list) else []
    if not all(isinstance(text, str) for text in texts):
        raise at.error(_COMMENT, "is not text")
    return text_or_none("\n".join(texts))
