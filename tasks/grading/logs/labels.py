"""People's labels from a table, joined to the answers of a log."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.llm.schema import JsonDict
from rubricflow.tasks.core.store.cells import likely_id, quoted
from rubricflow.tasks.grading.logs.files import named_columns, rows_of
from rubricflow.tasks.grading.logs.forms import PLAIN
from rubricflow.tasks.grading.logs.read import number_of_verdict
from rubricflow.tasks.grading.logs.record import LABELS, Log

_COLUMNS = {
    "answer_id": PLAIN["case_id"],
    "subject": PLAIN["subject"],
    "criterion": PLAIN["criterion"],
    "rater": ("rater", "rater_id", "annotator", "annotator_id", "person", "labeller", "labeler", "grader", "by"),
    "score": (
        "human_score",
        "human",
        "person_score",
        "human_label",
        "gold",
        "gold_score",
        "score",
        "label",
        "verdict",
        "rating",
        "grade",
        "points",
        "value",
        "passed",
        "pass",
    ),
    "split": ("split",),
    "probability": ("probability", "sampling_probability", "inclusion_probability"),
}
"""Column → names that it may have, the likelier ones first."""


def read_labels(path: Path, log: Log) -> pd.DataFrame:
    """People's labels, columns `LABELS` and perhaps `probability`, with which an answer was drawn. An answer is named
    by its answer_id, by its case's id where the case has one answer, or by case and subject; a row without a score is
    no label.

    InputError names file, row and field: no column of ids or scores, an id or a criterion that the log does not have,
    a case of several answers, a score that is no number and no known word, or two of one rater that differ.
    """
    rows = _long(rows_of(path), log)
    found = named_columns(rows[:1], _COLUMNS)
    for column in {"answer_id", "score"} - found.keys():
        rule = f"no such column among {', '.join(map(str, rows[0] if rows else ()))}"
        raise InputError(rule, file=path, field=column, hint=f"call it one of {', '.join(_COLUMNS[column])}")
    by_case = log.verdicts.groupby("case_id")["answer_id"].agg(lambda ids: [*dict.fromkeys(ids)]).to_dict()
    answers = set(log.verdicts["answer_id"])
    criteria = set(log.verdicts["criterion"])
    labels: dict[tuple[str, str, str], dict[str, object]] = {}

    def wrong(number: int, column: str, rule: str, hint: str | None = None) -> InputError:
        return InputError(rule, file=path, row=number, field=found.get(column, column), hint=hint)

    for number, row in enumerate(rows, 1):
        told = dict.fromkeys(_COLUMNS, "")
        told |= {column: str(row[name]).strip() for column, name in found.items() if row.get(name) is not None}
        answer_id, criterion = told["answer_id"], told["criterion"]
        if not told["score"]:
            continue
        if answer_id not in answers:
            joined = f"{answer_id}:{told['subject']}"
            several = by_case.get(answer_id, [])
            if joined not in answers and len(several) > 1:
                hint = f"name one: {', '.join(several[:3])}"
                raise wrong(number, "answer_id", f"case {quoted(answer_id)} has {len(several)} answers", hint)
            if joined not in answers and not several:
                raise wrong(
                    number, "answer_id", f"{quoted(answer_id)} is not in the log", likely_id(answer_id, answers)
                )
            answer_id = joined if joined in answers else several[0]
        if criterion not in criteria:
            if criterion or len(criteria) > 1:
                hint = f"there are {', '.join(sorted(filter(None, criteria)))}; --criterion NAME takes one"
                is_named = f"{quoted(criterion)} is no criterion of the log"
                raise wrong(number, "criterion", is_named if criterion else "the label names no criterion", hint)
            (criterion,) = criteria
        score = number_of_verdict(told["score"])
        if score is None:
            raise wrong(number, "score", f"{quoted(told['score'])} is no number and no word that is known")
        key = answer_id, criterion, told["rater"] or "person"
        if key in labels and labels[key]["score"] != score:
            raise wrong(number, "score", f"{key[2]} labelled this answer before, as {labels[key]['score']:g}")
        chance = number_of_verdict(told["probability"]) if told["probability"] else None
        if told["probability"] and not (chance and 0 < chance <= 1):
            raise wrong(number, "probability", f"{quoted(told['probability'])} is no probability above 0 and at most 1")
        said = {"score": score, "split": told["split"] or None, "probability": chance}
        labels[key] = {**dict(zip(LABELS, key, strict=False)), **said}
    if not labels:
        raise InputError("holds no label", file=path)
    columns = [*LABELS, *(["probability"] if "probability" in found else [])]
    return pd.DataFrame(labels.values(), columns=columns).astype({"score": "float64"})


def _long(rows: list[JsonDict], log: Log) -> list[JsonDict]:
    """Rows with a column for each criterion as rows with one score; others as they are."""
    if not rows or not (wide := [name for name in rows[0] if name and name in log.scales]):
        return rows
    return [
        {**{key: value for key, value in row.items() if key not in wide}, "criterion": name, "score": row[name]}
        for row in rows
        for name in wide
    ]
