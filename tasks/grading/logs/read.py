"""A log read: its documents as verdicts, each with its answer, and what is told of the judge."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.llm.schema import JsonDict, JsonObject
from rubricflow.tasks.core.store.cells import as_text, quoted, text_or_none
from rubricflow.tasks.core.text.tokens import mark_of
from rubricflow.tasks.grading.logs import forms
from rubricflow.tasks.grading.logs.files import at, cases_of, documents, first_of, is_blank
from rubricflow.tasks.grading.logs.forms import WORDS, LogForm
from rubricflow.tasks.grading.logs.record import LABELS, VERDICTS, JudgeFacts, Log, LogScale

_TEXTS = ("question", "answer", "turns", "subject", "input_tokens", "output_tokens")
"""Columns that a file of traces, spans or runs fills where the file of verdicts next to it has nothing."""
_LONG_ENOUGH = 8
"""Characters of a question or answer that are taken for it wherever they stand in a prompt."""
_PROSE = ("text", "content", "output", "answer", "response", "completion", "value", "messages", "choices", "message")
"""Keys under which tools keep the text of an answer or question."""


def read_log(files: Sequence[Path]) -> Log:
    """The log in these files, which are parts of one; a folder stands for the files in it that are logs.

    InputError names the file, what was seen in it and the rule: a form that is not known, a log without verdicts, one
    of several tools, a verdict twice, or verdicts of which most cannot be read.
    """
    found_files, passed = documents(files)
    if not found_files:
        raise InputError("holds no log that can be read", file=", ".join(map(str, files)))
    tools = {form.tool for _, _, form in found_files}
    if len(tools) > 1:
        raise InputError(
            f"the files are logs of several tools: {', '.join(sorted(tools))}; give one tool's", file=files[0]
        )
    rows: list[JsonDict] = []
    people: list[JsonDict] = []
    told = defaultdict[tuple[str, str], Counter[str]](Counter)
    versions = set()
    beside = {path.parent: document for path, document, form in found_files if not form.cases}
    texts: dict[str, JsonDict] = {}
    for _, document, form in found_files:
        if form.texts:
            document = getattr(forms, form.prepare)(document, None) if form.prepare else document
            found_texts = (row for case in cases_of(form, document) for row in _verdicts(form, document, case, 0))
            texts |= {str(row["reference"]): row for row in found_texts}
    logs = [log for log in found_files if log[2].cases and not log[2].texts]
    for path, document, form in logs:
        if form.prepare:
            document = getattr(forms, form.prepare)(document, beside.get(path.parent))
        versions |= {version for version in [first_of(form.version, {"log": document})] if version is not None}
        for number, case in enumerate(cases_of(form, document), 1):
            for found in _verdicts(form, document, case, number):
                found["file"] = str(path)
                found["group"] = found["group"] or (path.stem if len(logs) > 1 else None)
                is_person = str(found.pop("person", "")).casefold() in form.people if form.people else False
                for name, fact in found.pop("told").items():
                    if not is_person:
                        told[found["criterion"], name][fact] += 1
                (people if is_person else rows).append(found)
    if not rows:
        raise InputError(f"this log of {found_files[0][2].tool} holds no verdict of a judge", file=found_files[0][0])
    form = logs[0][2]
    for row in (*rows, *people):
        for source in (row["reference"], row["case_id"]):
            for name in _TEXTS if source in texts else ():
                row[name] = row[name] if row[name] is not None else texts[source][name]
    unknown = [version for version in sorted(map(str, versions)) if form.known and not version.startswith(form.known)]
    known = ", ".join(form.known)
    remarks = [f"written by {form.tool} {version}; looked at were versions {known}*" for version in unknown]
    remarks += [f"passed over, no part of the log: {', '.join(passed)}"] if passed else []
    remarks += _named(rows, people)
    remarks += _numbered(rows)
    judge, unbound = _judge(form, versions, told)
    remarks += unbound
    frame = pd.DataFrame(rows, columns=[*VERDICTS]).astype({"sample": "int64", "score": "float64"})
    labels = pd.DataFrame([{**one, "split": None} for one in people], columns=[*LABELS])
    names = tuple(dict.fromkeys(str(path) for path, _, _ in found_files))
    return Log(names, frame, labels, judge, _scales(frame, form), tuple(remarks))


def _verdicts(form: LogForm, document: Any, case: Any, number: int) -> Iterator[JsonDict]:
    """The verdicts on a case: the columns, with `told`, what is said of the judge, next to them."""
    roots = {"log": document, "case": case}
    if form.verdicts.startswith("like:"):
        pattern = re.compile(form.verdicts.removeprefix("like:"))
        found = [(match[1], case[name]) for name in case if (match := pattern.fullmatch(name))]
    else:
        node = next((one for path in form.verdicts.split("|") if (one := at(path, roots)) is not None), None)
        if isinstance(node, dict) and form.verdicts != "case":
            found = [*node.items()]
        else:
            alone = [] if node is None else [node]
            found = [(None, one) for one in (node if isinstance(node, list) else alone)]
    for key, verdict in found:
        roots |= {"verdict": verdict, "key": key}
        row = {
            name: first_of([path.replace("{key}", str(key)) for path in paths], roots)
            for name, paths in form.columns.items()
        }
        row["number"] = number
        for name in ("case_id", "subject", "group", "criterion", "draw"):
            value = row.get(name)
            plain = as_text if isinstance(value, str | int | float) else prose
            row[name] = None if is_blank(value) else plain(value)
        row["criterion"] = row["criterion"] or ""
        for name in ("question", "answer", "explanation"):
            row[name] = prose(row.get(name))
        row["told"] = {
            name: _fact(name, value, row)
            for name, paths in form.judge.items()
            if not is_blank(value := first_of(paths, roots))
        }
        row["turns"] = _turns(row.get("turns"))
        for name in ("input_tokens", "output_tokens"):
            row[name] = number_of_verdict(row.get(name))
        row["reference"] = text_or_none(row.get("reference"))
        values = row.get("verdict") if row.get("score") is None else row["score"]
        parts = values if isinstance(values, dict) else {None: values}
        for part, value in parts.items():  # a score of several parts is as many criteria
            of_part = {"criterion": ": ".join(filter(None, (row["criterion"], str(part)))), "verdict": value}
            yield {"verdict": None, **row, "score": value} | (of_part if part is not None else {})


def prose(value: Any) -> str | None:
    """The text of an answer or question, which tools write as a text, as messages, or as an object around it: of
    messages that of the last; None for nothing."""
    if is_blank(value):
        return None
    if isinstance(value, str):
        return as_text(value)
    if isinstance(value, list):
        if all(isinstance(one, dict) and "role" in one for one in value):
            said = [one for one in value if one.get("role") != "system"]
            return prose(said[-1].get("content")) if said else None
        parts = [part for one in value if (part := prose(one)) is not None]
        return "\n".join(parts) if parts else None
    if isinstance(value, dict):
        named = next((value[name] for name in _PROSE if not is_blank(value.get(name))), None)
        return prose(named) if named is not None else json.dumps(value, ensure_ascii=False, default=str)
    return as_text(value)


def _turns(value: Any) -> str | None:
    """A list of messages, as such or as JSON; None for anything else."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    is_list = isinstance(value, list) and value and all(isinstance(one, dict) and "role" in one for one in value)
    return json.dumps(value, ensure_ascii=False, default=str) if is_list else None


def _fact(name: str, value: Any, row: JsonObject) -> str:
    """A fact of the judge as text: settings as JSON, a prompt as prose without the question and the answer."""
    if name == "settings" and not isinstance(value, str):
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    if isinstance(value, str) and value.lstrip().startswith('[{"role"'):
        value = json.loads(value)
    text = "\n".join(filter(None, map(prose, value))) if isinstance(value, list) else prose(value) or ""
    for part in ("question", "answer") if name == "prompt" else ():
        if row[part] and len(row[part]) >= _LONG_ENOUGH:
            text = text.replace(row[part], f"{{{part}}}")
    return text


def number_of_verdict(value: Any) -> float | None:
    """A verdict as a number: true is 1, a word as `WORDS` has it, of 4/5 and 80% the first; None where it is none."""
    if isinstance(value, str):
        mark = mark_of(value)
        return mark.points if mark else WORDS.get(value.strip().casefold())
    if isinstance(value, bool | int | float):
        return float(value) if math.isfinite(value) else None
    return None


def _named(rows: list[JsonDict], people: list[JsonDict]) -> list[str]:
    """Gives every row its answer's id and, where a judgment is repeated, its sample; what was not told, in words.

    InputError where one answer has two verdicts on a criterion with the same number of repetition.
    """
    remarks = []
    if any(row["case_id"] is None for row in rows):
        remarks.append("cases have no id in the log; their number in it stands in its place")
    groups = defaultdict[str, set[Any]](set)
    for row in (*rows, *people):
        row["case_id"] = row["case_id"] or str(row["number"])
        groups[row["case_id"]].add(row["group"])
    if any(len(names - {None}) > 1 for names in groups.values()):  # tasks that number their cases alike
        for row in (*rows, *people):
            row["case_id"] = f"{row['group']}/{row['case_id']}" if row["group"] else row["case_id"]
    subjects = defaultdict[str, set[Any]](set)
    for row in rows:
        subjects[row["case_id"]].add(row["subject"])
    with_subject = any(len(one) > 1 for one in subjects.values())
    draws = defaultdict[tuple[Any, Any], dict[Any, int]](dict)  # by what tells them apart, or else by their text
    for row in rows:
        seen = draws[row["case_id"], row["subject"]]
        seen.setdefault(row["draw"] if row.get("draw") is not None else row["answer"], len(seen) + 1)
    taken = Counter[tuple[Any, ...]]()
    for row in (*rows, *people):
        seen = draws[row["case_id"], row["subject"]]
        draw = seen.get(row["draw"] if row.get("draw") is not None else row["answer"], 1)
        parts = [row["case_id"], row["subject"] if with_subject else None, str(draw) if len(seen) > 1 else None]
        row["answer_id"] = ":".join(part for part in parts if part)
    for row in rows:
        given = row.get("sample")
        key = (row["answer_id"], row["criterion"])
        row["sample"] = taken[key] if given is None else int(number_of_verdict(given) or 0)
        if given is not None and taken[*key, row["sample"]]:
            what = f"a second verdict on '{row['criterion']}'" if row["criterion"] else "a second verdict"
            raise InputError(
                f"answer '{row['answer_id']}' has {what} as repetition {given}", file=row["file"], row=row["number"]
            )
        taken[key] += 1
        taken[*key, row["sample"]] += 1
    for person in people:
        person["score"] = number_of_verdict(person["verdict"] if person.get("score") is None else person["score"])
        person["rater"] = text_or_none(person.get("rater")) or "person"
    return remarks


def _numbered(rows: list[JsonDict]) -> list[str]:
    """Gives every row its score and status; what was read of words, in words.

    InputError where most verdicts of a criterion cannot be read.
    """
    read = Counter[str]()
    lost = defaultdict[str, Counter[str]](Counter)
    for row in rows:
        value, verdict = row["score"], row["verdict"]
        if is_blank(value):
            value = verdict
        score = number_of_verdict(value)
        if isinstance(value, str) and score is not None and value.strip().casefold() in WORDS:
            read[value.strip()] += 1
        if score is None and not is_blank(value):
            lost[row["criterion"]][value if isinstance(value, str) else json.dumps(value, default=str)] += 1
        is_error = not is_blank(row.get("error"))
        row["status"] = "scored" if score is not None else "failed" if is_error or not is_blank(value) else "unscored"
        if row["status"] != "scored" and "refus" in str(row.get("error") or "").casefold():
            row["status"] = "refused"
        row["score"] = score
        row["verdict"] = (
            None if is_blank(verdict) and is_blank(value) else as_text(value if is_blank(verdict) else verdict)
        )
    for criterion, words in lost.items():
        of = [row for row in rows if row["criterion"] == criterion]
        if sum(words.values()) * 2 > len(of):
            seen = ", ".join(quoted(word) for word, _ in words.most_common(6))
            rule = f"{sum(words.values())} of {len(of)} verdicts are no number and no word that is known: {seen}"
            field = criterion or "verdict"
            raise InputError(rule, file=of[0]["file"], row=of[0]["number"], field=field, hint="give a column of scores")
    remarks = (
        [f"verdicts that cannot be read count as failed: {sum(map(Counter.total, lost.values()))}"] if lost else []
    )
    if read:
        told = ", ".join(f"{word} as {WORDS[word.casefold()]:g}" for word, _ in read.most_common(8))
        remarks.append(f"verdicts in words were read as numbers: {told}")
    return remarks


def _judge(
    form: LogForm, versions: Iterable[Any], told: Mapping[tuple[str, str], Counter[str]]
) -> tuple[JudgeFacts, list[str]]:
    """What binds a calibration to the judge: facts that are the same in all cases, of a prompt the lines that all have;
    and what is not told, or differs from case to case, in words."""
    facts: dict[str, dict[str, str]] = defaultdict(dict)
    varying = set()
    for (criterion, name), values in told.items():
        if len(values) == 1:
            facts[name][criterion] = next(iter(values))
            continue
        lines = [value.splitlines() for value in values] if name == "prompt" else []
        shared = set(lines[0]).intersection(*lines[1:]) if lines else set()
        if any(line.strip() for line in shared):
            facts[name][criterion] = "\n".join(line for line in lines[0] if line in shared)
        else:
            varying.add(name)
    flat = {}
    for name, by_criterion in facts.items():
        if len({*by_criterion.values()}) == 1:
            flat[name] = next(iter(by_criterion.values()))
        else:
            flat |= {f"{criterion}: {name}" if criterion else name: fact for criterion, fact in by_criterion.items()}
    remarks = []
    if untold := [name for name in ("model", "prompt", "rubric") if name not in facts and name not in varying]:
        remarks.append(f"the log does not tell the judge's {', '.join(untold)}: a change of it would not be noticed")
    if varying:
        remarks.append(f"differs from case to case, and so binds nothing: the judge's {', '.join(sorted(varying))}")
    version = next(iter(sorted(map(str, versions))), None)
    return JudgeFacts(form.tool, version, flat), remarks


def _scales(verdicts: pd.DataFrame, form: LogForm) -> dict[str, LogScale]:
    """Criterion → its scale: the tool's where all scores lie on it, 0 to 1 where they lie there, else what was seen."""
    scales = {}
    for criterion, scores in verdicts.dropna(subset="score").groupby("criterion", sort=False)["score"]:
        lowest = float(scores.min())
        highest = float(scores.max())
        if form.scale and form.scale[0] <= lowest and highest <= form.scale[1]:
            scales[str(criterion)] = LogScale(*form.scale, told=True)
        elif lowest >= 0 and highest <= 1:
            scales[str(criterion)] = LogScale(0.0, 1.0, told=False)
        else:
            scales[str(criterion)] = LogScale(lowest, highest, told=False)
    return scales
