"""A log with labels as a study that the ordinary stages grade: each criterion is an item, each answer a response; and
the calibrated scores back in the form in which the log's own tool takes scores, or as a table."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject
from rubricflow.tasks.core.stats.agreement import SLACK, level_count
from rubricflow.tasks.core.text.formulas import csv_text, guarded
from rubricflow.tasks.core.text.traces import STEPS, turns
from rubricflow.tasks.grading.logs.files import document_of
from rubricflow.tasks.grading.logs.record import Log, LogScale

WHOLE = "verdict"
"""The item of verdicts on the whole."""
NO_ANSWER = "(no words in the log)"
"""What stands for an answer that the log does not hold, or that holds no word: its verdict counts all the same."""
FEWEST = 40
"""Labels of a criterion below which one promise is made for all criteria together."""
_STEPS = (1.0, 0.5, 0.25, 0.2, 0.1, 0.05, 0.04, 0.02, 0.01, 0.005, 0.001)
_FEW_LEVELS = 3
_PARTS = 1_000_000
_RISK = 0.1
"""Share of wrong verdicts that the promise allows."""
_LONGEST = 4_000
"""Characters of a rubric or question that a study keeps."""


class LogStudy(NamedTuple):
    """The files of a study."""

    study: JsonDict
    """study.yaml."""
    rubrics: JsonDict
    """rubrics.yaml."""
    answers: pd.DataFrame
    """answers.parquet: response_id, item_id, question, author, text, groups, and traces: whether the texts are
    conversations as JSON."""
    verdicts: pd.DataFrame
    """verdicts.parquet: response_id, sample, score, explanation, and as the reply the score's place on its scale."""
    labels: pd.DataFrame
    """labels.parquet: response_id, split and a column for each rater; no row without labels."""
    marks: pd.DataFrame
    """marks.parquet: response_id, rater, criterion_id and level, whether the person credits it."""
    remarks: list[str]
    """What was decided of scales, in words."""


def item_of(criterion: str) -> str:
    """The item that stands for a criterion."""
    return criterion or WHOLE


def response_ids(rows: pd.DataFrame, several: bool) -> pd.Series[str]:
    """The responses of rows with answer_id and criterion. several: whether there are several criteria."""
    return rows["answer_id"] + "|" + rows["criterion"].map(item_of) if several else rows["answer_id"]


def study_of(log: Log, labels: pd.DataFrame, name: str) -> LogStudy:
    """The study of a log and people's labels of it (columns LABELS). Criteria without any score are left out.

    Scores are calibrated to the scale that people used. Where it is not the judge's, the judge's is stretched to it.
    """
    several = len(log.scales) > 1
    told = log.judge.told
    middle = {}
    rubrics = []
    remarks = []
    is_exact = False
    for criterion, seen in log.scales.items():
        given = labels.loc[labels["criterion"] == criterion, "score"]
        item = item_of(criterion)
        low, high, step = people_scale(seen, [*given])
        middle[criterion] = (low + high) / 2
        is_exact |= level_count(low, high, step) <= _FEW_LEVELS or _says_nothing(given, step)
        if (low, high) != (seen.lowest, seen.highest) and len(given):
            judge = f"{seen.lowest:g} to {seen.highest:g}"
            remarks.append(f"{item}: people score {low:g} to {high:g} and the judge {judge}, stretched to it")
        text = (told.get(f"{criterion}: rubric") or told.get("rubric") or item)[:_LONGEST]
        bounds = {"min": low, "max": high, "step": step}
        rubric: JsonDict = {"rubric_id": item, "title": item, "text": text, "scale": bounds}
        rubric["traits"] = [{"id": "score", "name": item, **bounds, "source": "judged"}]
        credit = {"id": "credit", "trait": "score", "text": item, "levels": ["not credited", "credited"]}
        rubrics.append({**rubric, "criteria": [credit]})
    verdicts = log.verdicts[log.verdicts["criterion"].isin([*log.scales])]
    rows = verdicts.assign(response_id=response_ids(verdicts, several), item_id=verdicts["criterion"].map(item_of))
    first = rows.drop_duplicates("response_id")
    has_answer = first["answer"].fillna("").str.contains(r"\w")
    traces = conversations(first)
    if not (has_texts := traces is not None or bool(has_answer.any())):
        remarks.append("the log holds no answers: nothing is known of their words, and quotes cannot be looked for")
    questions = first["question"].dropna().unique()
    own = first["item_id"] + " (the log's cases have questions of their own)"
    question = str(questions[0])[:_LONGEST] if len(questions) == 1 and questions[0] else own
    answers = first[["response_id", "item_id"]].assign(question=question, author=first["case_id"])
    answers["text"] = first["answer"].where(has_answer, NO_ANSWER) if traces is None else traces
    answers["traces"] = traces is not None
    grouped = [name for name in ("subject", "group") if first[name].notna().all() and 1 < first[name].nunique() <= 20]
    answers[grouped] = first[grouped]
    labels = labels.assign(response_id=response_ids(labels, several))
    columns = {rater: f"rater {number}" for number, rater in enumerate(sorted(labels["rater"].unique()), 1)}
    wide = labels.pivot(index="response_id", columns="rater", values="score").rename(columns=columns)
    chosen = labels.groupby("response_id")["split"].first() if len(labels) else pd.Series(dtype=object)
    wide = wide.reset_index().assign(split=lambda frame: frame["response_id"].map(chosen).astype(object))
    level = (labels["score"] >= labels["criterion"].map(middle) - SLACK).astype("int64")
    marks = labels[["response_id", "rater"]].assign(criterion_id="credit", level=level)
    counted = labels.groupby("criterion")["response_id"].nunique().reindex([*log.scales]).fillna(0)
    by = "item" if not several or counted.min() >= FEWEST else "set"
    items = {"item_id": "item_id", "question": "question", "rubric_id": "item_id"}
    responses = {"response_id": "response_id", "item_id": "item_id", "author_id": "author", "text": "text"}
    source: JsonDict = {"file": "answers.parquet", "items": items, "responses": responses}
    source |= {"groups": {group: group for group in grouped}} if grouped else {}
    source |= {"traces": True} if traces is not None else {}
    sources = [source]
    if len(labels):
        scored = [{"rater": rater, "score": column} for rater, column in columns.items()]
        sources.append({"file": "labels.parquet", "scored": "response_id", "split": "split", "scores": scored})
        marked = {"response_id": "response_id", "rater_id": "rater", "criterion_id": "criterion_id", "level": "level"}
        sources.append({"file": "marks.parquet", "marks": marked})
    samples = int(rows["sample"].max()) + 1
    foreign: JsonDict = {"file": "verdicts.parquet", "response_id": "response_id", "reply": "reply"}
    foreign |= {"explanation": "explanation"} if has_texts else {}
    foreign |= {"sample": "sample"} if samples > 1 else {}
    foreign |= {"reader": {"pattern": "^([0-9]+)$"}, "scale": {"min": 0, "max": _PARTS, "step": _PARTS}}
    asked: JsonDict = {"protocol": "dhs", "backend": "replay", "failed_quote": "count", "foreign": foreign}
    asked |= {"samples": samples} if samples > 1 else {}
    asked["signals"] = ["score", "length", "invalid_evidence"] if has_texts else ["score"]
    facts = {"tool": log.judge.tool, "version": log.judge.version, "files": [*log.files], "told": {**told}}
    study: JsonDict = {
        "name": name,
        "marks": "calibrate",
        "data": {"sources": sources},
        "rubrics": {"file": "rubrics.yaml"},
        "split": {"by": "author", "cross": True},
        "judge": asked,
        **({} if has_texts else {"calibration": {"features": ["judge"]}}),
        "release": {"tolerance": 0 if is_exact else 1, "risk": _RISK, "by": by},
        "log": {**facts, "digest": log.judge.digest, "remarks": [*log.remarks, *remarks]},
    }
    written = rows[["response_id", "sample", "score"]].copy()
    written["reply"] = [
        None if math.isnan(score) else _parts(score, log.scales[criterion])
        for score, criterion in zip(rows["score"], rows["criterion"], strict=True)
    ]
    written["explanation"] = rows["explanation"]
    return LogStudy(study, {"rubrics": rubrics}, answers, written, wide, marks, remarks)


def _parts(score: float, scale: LogScale) -> str:
    """A score as so many of _PARTS on its scale: one word, which cannot be taken for words of the answer."""
    width = scale.highest - scale.lowest
    return str(round((score - scale.lowest) / width * _PARTS) if width else _PARTS)


def _says_nothing(scores: pd.Series[float], step: float) -> bool:
    """Whether one and the same score for all answers would be within a step of nearly all that people gave."""
    within = [float((abs(scores - score) <= step + SLACK).mean()) for score in scores.unique()]
    return max(within, default=0.0) >= 1 - _RISK


def conversations(answers: pd.DataFrame) -> list[str] | None:
    """The conversation of each answer as the log has it, ending with the answer, as JSON; None where none is more than
    a question and an answer, or one has a form that is not known. answers: columns turns and answer."""
    found, is_more = list[str](), False
    for told, answer in zip(answers["turns"], answers["answer"], strict=True):
        messages = json.loads(told) if isinstance(told, str) else []
        try:
            said = turns(messages)
            if isinstance(answer, str) and (not said or answer.strip() not in said[-1].text):
                said += turns([{"role": "assistant", "content": answer}])
                messages.append({"role": "assistant", "content": answer})
        except ValueError:
            return None
        kinds = [turn.kind for turn in said]
        is_more |= kinds.count("assistant") > 1 or not {*kinds}.isdisjoint(STEPS)
        found.append(json.dumps(messages or [{"role": "assistant", "content": NO_ANSWER}], ensure_ascii=False))
    return found if is_more else None


def _as_conversation(answers: pd.DataFrame) -> pd.DataFrame:
    """Answers with the text of each as a conversation of one turn; those that are conversations as they are."""
    if answers["traces"].all():
        return answers
    alone = [json.dumps([{"role": "assistant", "content": text}], ensure_ascii=False) for text in answers["text"]]
    return answers.assign(text=alone, traces=True)


def people_scale(seen: LogScale, scores: list[float]) -> tuple[float, float, float]:
    """(lowest, highest, step) of a criterion as people score it: the judge's scale where their scores lie on it, what
    they used themselves where they do not, or where ten of them or more say yes or no on a scale of the judge's own."""
    low, high = seen.lowest, seen.highest
    if scores and (min(scores) < low or max(scores) > high or (len(scores) >= 10 and {*scores} == {0.0, 1.0})):
        low, high = min(scores), max(scores)
    if high <= low:
        low, high = (0.0, 1.0) if 0 <= low <= 1 else (low - 1, low + 1)
    span = high - low
    used = [*scores] or [low, high]
    for step in _STEPS:
        steps = [span / step, *((score - low) / step for score in used)]
        if all(abs(number - round(number)) < SLACK for number in steps) and span / step <= 100:
            return low, high, step
    return low, high, span / 100


NEW = "new|"
"""Before the ids of a new log's answers and cases that an earlier calibration has, too."""


def appended(new: LogStudy, earlier: Mapping[str, pd.DataFrame]) -> LogStudy:
    """The study of a new log with the labelled answers, verdicts, labels and marks of an earlier one before its own:
    what they taught is applied, and the new answers are scored by it. The earlier ones keep their ids, by which folds
    are drawn, so that the same mapping is fitted again."""
    items = {*new.answers["item_id"]}
    asked = earlier["answers"].loc[earlier["answers"]["item_id"].isin(items), "response_id"]
    labelled = {*earlier["labels"]["response_id"]} & {*asked}
    kept = {name: frame[frame["response_id"].isin(labelled)] for name, frame in earlier.items()}

    def apart(frame: pd.DataFrame, column: str, taken: set[str]) -> pd.DataFrame:
        renamed = [NEW + name if name in taken else name for name in frame[column]]
        return frame.assign(**{column: renamed})

    answers = apart(apart(new.answers, "response_id", labelled), "author", {*kept["answers"]["author"]})
    before = kept["answers"] if "traces" in kept["answers"] else kept["answers"].assign(traces=False)
    source, *others = new.study["data"]["sources"]
    if before["traces"].any() or answers["traces"].any():
        before, answers, source = _as_conversation(before), _as_conversation(answers), {**source, "traces": True}
    study = {**new.study, "data": {"sources": [source, *others]}}
    answers = pd.concat([before, answers])[[*new.answers.columns]]
    verdicts = pd.concat([kept["verdicts"], apart(new.verdicts, "response_id", labelled)])
    return new._replace(study=study, answers=answers, verdicts=verdicts, labels=kept["labels"], marks=kept["marks"])


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


def _records(rows: pd.DataFrame) -> list[JsonDict]:
    """Rows as plain values, null for what is missing."""
    plain = rows.astype(object)
    return [dict(zip(plain.columns, row, strict=True)) for row in plain.where(plain.notna(), None).to_numpy().tolist()]


def _cell(value: Any) -> object:
    return "" if value is None else guarded(value) if isinstance(value, str) else value


def _about(row: JsonObject) -> JsonDict:
    """What stands next to a calibrated score."""
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
