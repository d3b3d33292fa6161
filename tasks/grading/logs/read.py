"""Files as documents, whatever they are called, and documents as verdicts."""

from __future__ import annotations

import io
import json
import math
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.store.cells import as_text, missing, quoted, text_or_none
from rubricflow.tasks.core.store.delimited import encoding_of
from rubricflow.tasks.core.store.sheets import open_sheet
from rubricflow.tasks.core.text.tokens import decimal_of
from rubricflow.tasks.grading.logs import prepared
from rubricflow.tasks.grading.logs.forms import PLAIN, WORDS, Form, forms
from rubricflow.tasks.grading.logs.record import LABELS, VERDICTS, JudgeFacts, Log, LogScale

LARGEST = 2 << 30
"""Bytes to which a compressed log may unpack."""
_FIRST = 50
"""Cases by which a form is told."""
_ZSTD = 93
_PART = re.compile(r"([-+]?[0-9][0-9.,]*)\s*(?:%|/\s*[0-9][0-9.,]*)")
_LONG_ENOUGH = 8
"""Characters of a question or answer that are taken for it wherever they stand in a prompt."""
_PROSE = ("text", "content", "output", "answer", "response", "completion", "value", "messages", "choices", "message")
"""Keys under which tools keep the text of an answer or question."""


def read_log(files: Sequence[Path]) -> Log:
    """The log in these files, which are parts of one; a folder stands for the files in it that are logs.

    InputError names the file, what was seen in it and the rule: a form that is not known, a log without verdicts, one
    of several tools, a verdict twice, or verdicts of which most cannot be read.
    """
    documents = list(_documents(files))
    if not documents:
        raise InputError("holds no log that can be read", file=", ".join(map(str, files)))
    forms = {form.tool for _, _, form in documents}
    if len(forms) > 1:
        raise InputError(
            f"the files are logs of several tools: {', '.join(sorted(forms))}; give one tool's", file=files[0]
        )
    rows: list[dict[str, Any]] = []
    people: list[dict[str, Any]] = []
    told, versions = defaultdict[tuple[str, str], Counter[str]](Counter), set()
    beside = {path.parent: document for path, document, form in documents if not form.cases}
    logs = [log for log in documents if log[2].cases]
    for path, document, form in logs:
        if form.prepare:
            document = getattr(prepared, form.prepare)(document, beside.get(path.parent))
        versions |= {version for version in [_first(form.version, {"log": document})] if version is not None}
        for number, case in enumerate(_cases(form, document), 1):
            for found in _verdicts(form, document, case, number):
                found["file"] = str(path)
                found["group"] = found["group"] or (path.stem if len(logs) > 1 else None)
                is_person = str(found.pop("person", "")).casefold() in form.people if form.people else False
                for name, fact in found.pop("told").items():
                    if not is_person:
                        told[found["criterion"], name][fact] += 1
                (people if is_person else rows).append(found)
    form = documents[0][2]
    if not rows:
        raise InputError(f"this log of {form.tool} holds no verdict of a judge", file=documents[0][0])
    remarks = [
        f"written by {form.tool} {version}; looked at were versions {', '.join(form.known)}*"
        for version in sorted(map(str, versions))
        if form.known and not version.startswith(form.known)
    ]
    remarks += _named(rows, people)
    remarks += _numbered(rows)
    judge, unbound = _judge(form, versions, told)
    remarks += unbound
    frame = pd.DataFrame(rows, columns=[*VERDICTS]).astype({"sample": "int64", "score": "float64"})
    labels = pd.DataFrame([{**one, "split": None} for one in people], columns=[*LABELS])
    names = tuple(dict.fromkeys(str(path) for path, _, _ in documents))
    return Log(names, frame, labels, judge, _scales(frame, form), tuple(remarks))


# Files as documents.


def _documents(files: Sequence[Path]) -> Iterator[tuple[Path, Any, Form]]:
    """Every log among the files with its form; InputError for a file given by name that is none."""
    for given in files:
        if not given.exists():
            raise InputError("no such file", file=given)
        for path in sorted(given.rglob("*")) if given.is_dir() else [given]:
            if path.is_file():
                try:
                    yield path, *_told(document_of(path), path)
                except (InputError, UnicodeDecodeError):
                    if not given.is_dir():
                        raise


def document_of(path: Path) -> Any:
    """What a file holds, by its first bytes: JSON, JSON lines, Parquet, an archive of inspect_ai or a sheet; a list of
    rows or an object."""
    with path.open("rb") as file:
        start = file.read(4096)
    if start.startswith(b"PAR1"):
        return pq.ParquetFile(path).read().to_pylist()
    if start.startswith(b"PK\x03\x04") and "header.json" in zipfile.ZipFile(path).namelist():
        return _archive(path)
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text[:1] in (b"{", b"["):
        return _json(path)
    if start.startswith(b"PK\x03\x04") and path.suffix.lower() not in (".xlsx", ".xlsm"):
        raise InputError("an archive without header.json is no log that is known", file=path)
    sheet = open_sheet(path)
    return [dict(zip(sheet.columns, row.cells, strict=True)) for row in sheet.rows()]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a table; InputError for a file that is none."""
    if not path.is_file():
        raise InputError("no such file", file=path)
    rows = document_of(path)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError("is no table of rows with names", file=path)
    return rows


def _json(path: Path) -> Any:
    """One JSON value, or one in every line."""
    text = path.read_text(encoding=encoding_of(path, None)[0])
    try:
        document = json.loads(text)
    except ValueError as error:
        whole = error
    else:
        if isinstance(document, dict) and document.keys() >= {"columns", "data"}:  # a table as pandas splits it
            return [dict(zip(document["columns"], row, strict=True)) for row in document["data"]]
        return document
    records = []
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except ValueError as error:
                problem = whole if not records else error
                raise InputError(f"is not JSON: {problem}", file=path, row=number) from error
    return records


def _archive(path: Path) -> dict[str, Any]:
    """inspect_ai's archive: its header with its samples. Members may be packed by zstd, which Python's own reader of
    archives does not know yet."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        if sum(member.file_size for member in archive.infolist()) > LARGEST:
            raise InputError(f"unpacks to more than {LARGEST >> 30} GiB", file=path)

        def member(info: zipfile.ZipInfo) -> Any:
            if info.compress_type != _ZSTD:
                return json.loads(archive.read(info))
            file.seek(info.header_offset)
            head = file.read(30)
            file.seek(int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little"), io.SEEK_CUR)
            packed = pa.BufferReader(file.read(info.compress_size))
            return json.loads(pa.CompressedInputStream(packed, "zstd").read(info.file_size))

        infos = archive.infolist()
        header = member(next(info for info in infos if info.filename == "header.json"))
        header["samples"] = [member(info) for info in infos if re.fullmatch(r"samples/[^/]+\.json", info.filename)]
        return dict(header)


# Which form a document has.


def _told(document: Any, path: Path) -> tuple[Any, Form]:
    """A document and its form: the first that tells it, or a plain table where its columns say enough. One object that
    no form tells is a list of one; InputError where that is none either."""
    lists = [document] if isinstance(document, list) else [document, [document]]
    for given in lists:
        for form in forms():
            if all(_stands(paths, form, given) for paths in form.told_by):
                return given, form
    if document in ({}, []) or not all(isinstance(row, dict) for row in lists[-1]):
        raise InputError("no form that is known: it is no table of objects", file=path)
    return lists[-1], _plain(document, lists[-1], path)


def _plain(document: Any, rows: list[dict[str, Any]], path: Path) -> Form:
    """The form of a plain table; InputError where no column of verdicts is among its own."""
    names = {str(name).strip().casefold().replace(" ", "_"): str(name) for row in rows[:_FIRST] for name in row}
    columns = {
        column: tuple(f"case.{names[name]}" for name in likely if name in names) for column, likely in PLAIN.items()
    }
    columns = {column: paths for column, paths in columns.items() if paths}
    if not columns.keys() & {"score", "verdict"}:
        known = ", ".join(dict.fromkeys(form.tool for form in forms()))
        seen = f"{'an object' if isinstance(document, dict) else 'a table'} with {', '.join([*names.values()][:12])}"
        hint = f"known are {known}, and tables with a column {', '.join((*PLAIN['verdict'][:4], *PLAIN['score'][:1]))}"
        raise InputError(f"no form that is known: it is {seen}", file=path, hint=hint)
    judge = {name.removeprefix("judge "): columns.pop(name) for name in [*columns] if name.startswith("judge ")}
    return Form(tool="table", told_by=(), columns=columns, judge=judge)


def _stands(path: str, form: Form, document: Any) -> bool:
    """Whether a path, or one of its alternatives, holds something in the document or in one of its first cases."""
    named = next((found for cases in form.cases if isinstance(found := _at(cases, {"log": document}), list)), [])
    cases = [case for case in named[:_FIRST] if isinstance(case, dict)]
    if path.startswith("like:"):
        return any(re.fullmatch(path.removeprefix("like:"), str(name)) for case in cases for name in case)
    alternatives = path.split("|")
    roots = [{"log": document, "case": case} for case in cases] or [{"log": document}]
    return any(_at(one, root) is not None for one in alternatives for root in roots)


def _cases(form: Form, document: Any) -> list[Any]:
    """The list of a prepared document's cases."""
    paths = (form.read_cases,) if form.read_cases else form.cases
    return next((found for path in paths if isinstance(found := _at(path, {"log": document}), list)), [])


def _at(path: str, roots: Mapping[str, Any]) -> Any:
    """What stands at a path, None for nothing. Keys may hold dots themselves: the longest key that is there counts."""
    root, _, rest = path.partition(".")
    node, names = roots.get(root), rest.split(".") if rest else []
    while names:
        if isinstance(node, list):
            node, names = node[int(names[0])] if names[0].isdecimal() and int(names[0]) < len(node) else None, names[1:]
        elif isinstance(node, dict):
            length = next((n for n in range(len(names), 0, -1) if ".".join(names[:n]) in node), 0)
            node, names = (node[".".join(names[:length])], names[length:]) if length else (None, [])
        else:
            return None
    return node


def _first(paths: Iterable[str], roots: Mapping[str, Any]) -> Any:
    """The first of several paths that holds something."""
    return next((value for path in paths if not _blank(value := _at(path, roots))), None)


def _blank(value: Any) -> bool:
    return missing(value) or value in ("", [], {})


# Documents as verdicts.


def _verdicts(form: Form, document: Any, case: Any, number: int) -> Iterator[dict[str, Any]]:
    """The verdicts on a case: the columns, with `told`, what is said of the judge, beside them."""
    roots = {"log": document, "case": case}
    if form.verdicts.startswith("like:"):
        pattern = re.compile(form.verdicts.removeprefix("like:"))
        found = [(match[1], case[name]) for name in case if (match := pattern.fullmatch(name))]
    else:
        node = next((one for path in form.verdicts.split("|") if (one := _at(path, roots)) is not None), None)
        found = (
            list(node.items())
            if isinstance(node, dict) and form.verdicts != "case"
            else [(None, one) for one in (node if isinstance(node, list) else [node] if node is not None else [])]
        )
    for key, verdict in found:
        roots |= {"verdict": verdict, "key": key}
        row = {
            name: _first([path.replace("{key}", str(key)) for path in paths], roots)
            for name, paths in form.columns.items()
        }
        row["number"] = number
        for name in ("case_id", "subject", "group", "criterion", "draw"):
            value = row.get(name)
            row[name] = (
                None if _blank(value) else as_text(value) if isinstance(value, str | int | float) else prose(value)
            )
        row["criterion"] = row["criterion"] or ""
        for name in ("question", "answer", "explanation"):
            row[name] = prose(row.get(name))
        row["told"] = {
            name: _fact(name, value, row)
            for name, paths in form.judge.items()
            if not _blank(value := _first(paths, roots))
        }
        row["turns"] = _turns(row.get("turns"))
        for name in ("input_tokens", "output_tokens"):
            row[name] = number_of_verdict(row.get(name))
        row["reference"] = text_or_none(row.get("reference"))
        values = row["verdict"] if row.get("score") is None else row["score"]
        parts = values if isinstance(values, dict) else {None: values}
        for part, value in parts.items():  # a score of several parts is as many criteria
            name = (
                row["criterion"] if part is None else f"{row['criterion']}: {part}" if row["criterion"] else str(part)
            )
            yield {
                **row,
                "criterion": name,
                "score": value,
                "verdict": value if part is not None else row.get("verdict"),
            }


def prose(value: Any) -> str | None:
    """The text of an answer or question, which tools write as a text, as messages, or as an object around it: of
    messages that of the last; None for nothing."""
    if _blank(value):
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
        named = next((value[name] for name in _PROSE if not _blank(value.get(name))), None)
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


def _fact(name: str, value: Any, row: Mapping[str, Any]) -> str:
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
        part = _PART.fullmatch(value.strip())
        number = decimal_of(part[1] if part else value.strip())
        return WORDS.get(value.strip().casefold()) if number is None else number
    if isinstance(value, bool | int | float):
        return float(value) if math.isfinite(value) else None
    return None


def _named(rows: list[dict[str, Any]], people: list[dict[str, Any]]) -> list[str]:
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
        given, key = row.get("sample"), (row["answer_id"], row["criterion"])
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


def _numbered(rows: list[dict[str, Any]]) -> list[str]:
    """Gives every row its score and status; what was read of words, in words.

    InputError where most verdicts of a criterion cannot be read.
    """
    read, lost = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for row in rows:
        value, verdict = row["score"], row["verdict"]
        if _blank(value):
            value = verdict
        score = number_of_verdict(value)
        if isinstance(value, str) and score is not None and value.strip().casefold() in WORDS:
            read[value.strip()] += 1
        if score is None and not _blank(value):
            lost[row["criterion"]][value if isinstance(value, str) else json.dumps(value, default=str)] += 1
        is_error = not _blank(row.get("error"))
        row["status"] = "scored" if score is not None else "failed" if is_error or not _blank(value) else "unscored"
        if row["status"] != "scored" and "refus" in str(row.get("error") or "").casefold():
            row["status"] = "refused"
        row["score"] = score
        row["verdict"] = None if _blank(verdict) and _blank(value) else as_text(value if _blank(verdict) else verdict)
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
    form: Form, versions: Iterable[Any], told: Mapping[tuple[str, str], Counter[str]]
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


def _scales(verdicts: pd.DataFrame, form: Form) -> dict[str, LogScale]:
    """Criterion → its scale: the tool's where all scores lie on it, 0 to 1 where they lie there, else what was seen."""
    scales = {}
    for criterion, scores in verdicts.dropna(subset="score").groupby("criterion", sort=False)["score"]:
        lowest, highest = float(scores.min()), float(scores.max())
        if form.scale and form.scale[0] <= lowest and highest <= form.scale[1]:
            scales[str(criterion)] = LogScale(*form.scale, told=True)
        elif lowest >= 0 and highest <= 1:
            scales[str(criterion)] = LogScale(0.0, 1.0, told=False)
        else:
            scales[str(criterion)] = LogScale(lowest, highest, told=False)
    return scales
