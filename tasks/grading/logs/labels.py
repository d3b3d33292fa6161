"""People's labels from a table, joined to the answers of a log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import likely_id, quoted
from rubricflow.tasks.grading.logs.files import rows_of
from rubricflow.tasks.grading.logs.read import number_of_verdict
from rubricflow.tasks.grading.logs.record import LABELS, Log

_COLUMNS = {
    "answer_id": (
        "answer_id",
        "case_id",
        "id",
        "response_id",
        "sample_id",
        "example_id",
        "item_id",
        "doc_id",
        "key",
        "case",
    ),
    "subject": ("subject", "model", "system", "policy"),
    "criterion": ("criterion", "criterion_id", "metric", "dimension", "aspect"),
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
    names = {str(name).strip().casefold().replace(" ", "_"): name for name in (rows[0] if rows else {})}
    found = {
        column: next((names[name] for name in likely if name in names), None) for column, likely in _COLUMNS.items()
    }
    for column in ("answer_id", "score"):
        if found[column] is None:
            rule = f"no such column among {', '.join(map(str, names.values()))}"
            raise InputError(rule, file=path, field=column, hint=f"call it one of {', '.join(_COLUMNS[column])}")
    by_case = log.verdicts.groupby("case_id")["answer_id"].agg(lambda ids: [*dict.fromkeys(ids)]).to_dict()
    answers, criteria = set(log.verdicts["answer_id"]), set(log.verdicts["criterion"])
    labels: dict[tuple[str, str, str], dict[str, object]] = {}
    for number, row in enumerate(rows, 1):
        told = {
            column: "" if name is None or row.get(name) is None else str(row[name]).strip()
            for column, name in found.items()
        }
        answer_id, criterion = told["answer_id"], told["criterion"]
        if not told["score"]:
            continue
        if answer_id not in answers:
            joined = f"{answer_id}:{told['subject']}"
            several = by_case.get(answer_id, [])
            if joined in answers:
                answer_id = joined
            elif len(several) == 1:
                answer_id = several[0]
            else:
                rule = (
                    f"case {quoted(answer_id)} has {len(several)} answers"
                    if several
                    else f"{quoted(answer_id)} is not in the log"
                )
                hint = f"name one: {', '.join(several[:3])}" if several else likely_id(answer_id, answers)
                raise InputError(rule, file=path, row=number, field=str(found["answer_id"]), hint=hint)
        if criterion not in criteria:
            only = next(iter(criteria)) if len(criteria) == 1 else None
            if criterion or only is None:
                rule = (
                    f"{quoted(criterion)} is no criterion of the log" if criterion else "the label names no criterion"
                )
                raise InputError(
                    rule,
                    file=path,
                    row=number,
                    field=str(found["criterion"] or "criterion"),
                    hint=f"there are {', '.join(sorted(filter(None, criteria)))}; --criterion NAME takes one",
                )
            criterion = only
        score = number_of_verdict(told["score"])
        if score is None:
            raise InputError(
                f"{quoted(told['score'])} is no number and no word that is known",
                file=path,
                row=number,
                field=str(found["score"]),
            )
        key = answer_id, criterion, told["rater"] or "person"
        if key in labels and labels[key]["score"] != score:
            raise InputError(
                f"{key[2]} labelled this answer before, as {labels[key]['score']:g}",
                file=path,
                row=number,
                field=str(found["score"]),
            )
        chance = number_of_verdict(told["probability"]) if told["probability"] else None
        if told["probability"] and not (chance and 0 < chance <= 1):
            rule = f"{quoted(told['probability'])} is no probability above 0 and at most 1"
            raise InputError(rule, file=path, row=number, field=str(found["probability"]))
        labels[key] = {**dict(zip(LABELS, key, strict=False)), "score": score, "split": told["split"] or None}
        labels[key]["probability"] = chance
    if not labels:
        raise InputError("holds no label", file=path)
    columns = [*LABELS, *(["probability"] if found["probability"] else [])]
    return pd.DataFrame(labels.values(), columns=columns).astype({"score": "float64"})


def _long(rows: list[dict[str, Any]], log: Log) -> list[dict[str, Any]]:
    """Rows with a column for each criterion as rows with one score; others as they are."""
    if not rows or not (wide := [name for name in rows[0] if name and name in log.scales]):
        return rows
    return [
        {**{key: value for key, value in row.items() if key not in wide}, "criterion": name, "score": row[name]}
        for row in rows
        for name in wide
    ]
