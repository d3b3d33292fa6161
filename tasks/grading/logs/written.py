"""Calibrated scores in the form in which a log's own tool takes scores, or as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.text.formulas import csv_text, guarded
from rubricflow.tasks.grading.logs.files import document_of
from rubricflow.tasks.grading.logs.record import Log
from rubricflow.tasks.grading.logs.study import NEW, response_ids

AUTHOR = "rubricflow"
COLUMNS = ("answer_id", "criterion", "verdict", "score", "low", "high", "risk", "relied_on", "why_not")
"""Of the table: the judge's score as logged, the calibrated one on people's scale with its interval, the probability
that it is wrong, and whether it may be relied on without a person."""


def scored(log: Log, predictions: pd.DataFrame) -> pd.DataFrame:
    """One row an answer and criterion: columns COLUMNS and `reference`, `case_id`, `subject`.

    predictions: columns response_id, score, low, high, risk, route and route_reason of the log's study.
    """
    rows = log.verdicts.drop_duplicates(["answer_id", "criterion"])
    rows = rows.assign(response_id=response_ids(rows, log.verdicts["criterion"].nunique() > 1))
    renamed = predictions["response_id"].str.removeprefix(NEW)
    # Where an earlier calibration has answers of the same names, the new ones bear a prefix.
    is_new = predictions["response_id"].str.startswith(NEW)
    own = (
        predictions.assign(response_id=renamed, new=is_new)
        .sort_values("new")
        .drop_duplicates("response_id", keep="last")
    )
    joined = rows.drop(columns=["score"]).merge(own, on="response_id", how="left")
    joined["verdict"] = rows["score"].to_numpy()
    joined["relied_on"] = joined["route"].eq("release")
    joined["why_not"] = joined["route_reason"].where(~joined["relied_on"])
    return joined[[*COLUMNS, "reference", "case_id", "subject"]]


def written(log: Log, rows: pd.DataFrame, to: Path, written_at: str) -> str:
    """What a file holds: a table where it ends in .csv, else what the tool takes. rows: as `scored` gives them;
    written_at: the time, in ISO 8601.

    InputError where the tool takes no scores by file.
    """
    if to.suffix.lower() == ".csv":
        lines: list[tuple[object, ...]] = [COLUMNS]
        lines += [tuple(_cell(row[name]) for name in COLUMNS) for row in _records(rows)]
        return csv_text(lines)
    write = _TOOLS.get(log.judge.tool)
    if write is None:
        rule = f"{log.judge.tool} takes no scores by file; known are {', '.join(_TOOLS)}"
        raise InputError(rule, file=to, field="--to", hint="name a .csv file")
    return write(log, rows[rows["score"].notna()], written_at)


def _records(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values, null for what is missing."""
    plain = rows.astype(object)
    return [dict(zip(plain.columns, row, strict=True)) for row in plain.where(plain.notna(), None).to_numpy().tolist()]


def _cell(value: Any) -> object:
    return "" if value is None else guarded(value) if isinstance(value, str) else value


def _about(row: Mapping[str, Any]) -> dict[str, Any]:
    """What stands beside a calibrated score."""
    known = {name: row[name] for name in ("low", "high", "risk", "verdict") if row[name] is not None}
    return {name: float(value) for name, value in known.items()} | {"relied_on": bool(row["relied_on"])}


def _inspect(log: Log, rows: pd.DataFrame, written_at: str) -> str:
    """The log as JSON with an edit of every score, its history kept, as inspect_ai's own `edit_score` leaves it. The
    metrics of the log are those before: inspect_ai's `recompute_metrics` makes them anew."""
    if len(log.files) != 1:
        raise InputError("score edits are of one log; calibrate each file by itself", field="--to")
    document = document_of(Path(log.files[0]))
    samples = {sample.get("uuid") or str(sample["id"]): sample for sample in document.get("samples") or ()}
    for row in _records(rows):
        scores = samples[row["reference"] or row["case_id"]].get("scores") or {}
        name = row["criterion"] if row["criterion"] in scores else row["criterion"].partition(": ")[0]
        if name not in scores or isinstance(scores[name].get("value"), dict):
            continue
        score = scores[name]
        kept = ("value", "answer", "explanation", "reason", "metadata")
        before = {key: score.get(key) for key in kept if key in score} | {"metadata": score.get("metadata") or {}}
        edit = {
            "value": float(row["score"]),
            "provenance": {
                "timestamp": written_at,
                "author": AUTHOR,
                "reason": "calibrated to people's scores",
                "metadata": _about(row),
            },
        }
        score["history"] = [*(score.get("history") or [before]), edit]
        score["value"] = float(row["score"])
    return json.dumps(document, ensure_ascii=False)


def _langfuse(log: Log, rows: pd.DataFrame, written_at: str) -> str:
    """A score in every line, as Langfuse's public API takes them (POST /api/public/scores)."""
    lines = []
    for row in _records(rows):
        about = {"observationId": row["reference"]} if row["reference"] and row["reference"] != row["case_id"] else {}
        score = {
            "traceId": row["case_id"],
            **about,
            "name": f"{row['criterion']} (calibrated)",
            "value": float(row["score"]),
        }
        lines.append(json.dumps({**score, "dataType": "NUMERIC", "metadata": _about(row)}, ensure_ascii=False))
    return "\n".join(lines) + "\n"


def _phoenix(log: Log, rows: pd.DataFrame, written_at: str) -> str:
    """The annotations of spans, as Phoenix takes them (POST /v1/span_annotations)."""
    annotations = [
        {
            "span_id": row["reference"] or row["case_id"],
            "name": row["criterion"],
            "annotator_kind": "CODE",
            "identifier": AUTHOR,
            "result": {"score": float(row["score"])},
            "metadata": _about(row),
        }
        for row in _records(rows)
    ]
    return json.dumps({"data": annotations}, ensure_ascii=False, indent=1)


_TOOLS: Mapping[str, Callable[[Log, pd.DataFrame, str], str]] = {
    "inspect_ai": _inspect,
    "langfuse": _langfuse,
    "phoenix": _phoenix,
}
"""Tool → what writes scores in its form."""
