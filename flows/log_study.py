"""A log of another tool with people's labels as a study: its folder and files, by itself or with what an earlier
calibration of the same judge has learned."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
import yaml

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.store.files import write_atomically
from rubricflow.tasks.grading.logs.files import STUDY
from rubricflow.tasks.grading.logs.labels import read_labels
from rubricflow.tasks.grading.logs.read import read_log
from rubricflow.tasks.grading.logs.record import JudgeFacts, Log
from rubricflow.tasks.grading.logs.study import LogStudy, appended
from rubricflow.tasks.grading.trends.moved import CHANNELS, drifted, observed

_TABLES = ("answers", "verdicts", "labels", "marks")
_VERDICTS = "log.parquet"
_FEWEST = 50
"""Answers of a new log from which on a drift test says something."""


def labelled_log(logs: Sequence[Path], labels: Path | None, criterion: str | None) -> tuple[Log, pd.DataFrame]:
    """The log, or one criterion of it, and all labels that there are: its own and those of the file."""
    log = read_log(logs) if criterion is None else read_log(logs).of(criterion)
    return log, labels_of([log], labels, log)


def labels_of(logs: Iterable[Log], labels: Path | None, whole: Log) -> pd.DataFrame:
    """The labels that logs hold themselves, and those of a file on answers of any of them. whole: all logs as one."""
    given = [*(log.labels for log in logs), *([read_labels(labels, whole)] if labels else [])]
    return pd.concat([frame for frame in given if len(frame)] or [whole.labels], ignore_index=True)


def study_place(logs: Sequence[Path], folder: Path | None) -> tuple[Path, str]:
    """The folder of a log's study, the one given or LOG.calibration next to the log, and the study's name."""
    folder = folder or logs[0].parent / f"{logs[0].stem}{STUDY}"
    return folder, re.sub(r"[^A-Za-z0-9_-]+", "_", folder.name.removesuffix(STUDY)).strip("_-")[:60] or "log"


def write_study(made: LogStudy, folder: Path, log: Log) -> Path:
    """Writes the files of a study of a log, and the log's verdicts; returns the study's. InputError where another study
    lies there."""
    file = folder / "study.yaml"
    if file.exists() and load_study(file).log is None:
        raise InputError("is a study of no log; name another folder", file=file, hint="--study FOLDER")
    folder.mkdir(parents=True, exist_ok=True)
    for name in _TABLES:
        frame: pd.DataFrame = getattr(made, name)
        write_atomically(folder / f"{name}.parquet", frame.to_parquet(index=False))
    write_atomically(folder / _VERDICTS, log.verdicts.to_parquet(index=False))
    for path, content in ((folder / "rubrics.yaml", made.rubrics), (file, made.study)):
        text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)
        write_atomically(path, text.encode())
    return file


def applied(made: LogStudy, log: Log, folder: Path, accept_shift: bool) -> LogStudy:
    """The study of a new log with what an earlier calibration has learned.

    InputError where that is none, or is stale: the log has criteria that were not calibrated, or its judge is another
    one. accept_shift: another judge will do where the drift test finds no difference between the two logs.
    """
    file = (folder if folder.is_dir() else folder.parent) / "study.yaml"
    if not file.exists() or (known := load_study(file).log) is None:
        raise InputError(
            "holds no calibration of a log", file=folder, hint="the folder that `calibrate --labels` wrote"
        )
    rubrics: Record = yaml.safe_load((file.parent / "rubrics.yaml").read_text(encoding="utf-8"))
    before = {rubric["rubric_id"]: rubric for rubric in rubrics["rubrics"]}
    now = [rubric["rubric_id"] for rubric in made.rubrics["rubrics"]]
    if unknown := [name for name in now if name not in before]:
        rule = f"was not calibrated in {folder}: {', '.join(unknown)}"
        raise InputError(rule, file=log.files[0], field="criterion", hint="label some of its answers: --labels FILE")
    changes = JudgeFacts(known.tool, known.version, known.told).changes(log.judge)
    if changes:
        stale = f"the calibration in {folder} is stale, its judge was another one: {'; '.join(changes)}"
        if not accept_shift:
            hint = "label some of its answers: --labels FILE; or test whether scores moved: --accept-shift"
            raise InputError(stale, file=log.files[0], hint=hint)
        said = _shift(pd.read_parquet(file.parent / _VERDICTS), log.verdicts, stale, log.files[0])
        made.study["log"]["remarks"] += [stale, said]
        print(stale, said, sep="\n")
    tables = {name: pd.read_parquet(file.parent / f"{name}.parquet") for name in _TABLES}
    whole = appended(made, tables)
    earlier_study: Record = yaml.safe_load(file.read_text(encoding="utf-8"))
    sources = earlier_study["data"]["sources"]
    study = {
        **made.study,
        "data": {"sources": [whole.study["data"]["sources"][0], *sources[1:]]},
        "release": earlier_study["release"],
    }
    return whole._replace(study=study, rubrics={"rubrics": [before[name] for name in now]})


def _shift(old: pd.DataFrame, new: pd.DataFrame, stale: str, file: str) -> str:
    """That no drift is found between a calibrated log and that of another judge; InputError that names what moved."""
    answers = new["answer_id"].nunique()
    hint = "label some of its answers: --labels FILE"
    if answers < _FEWEST:
        raise InputError(f"{stale}; {answers} answers are too few to test for a shift", file=file, hint=hint)
    drift = drifted([observed(old)], [observed(new)])
    if drift.found:
        moved = []
        for row in drift.found[:3]:
            part = "" if row.slice == "all" else f" of {row.value_of}"
            moved.append(f"{CHANNELS[row.channel]}{part} {row.change.old:.3g} to {row.change.new:.3g}")
        raise InputError(f"{stale}; and what it says moved: {'; '.join(moved)}", file=file, hint=hint)
    return f"no drift was found in {answers:,} answers, which does not prove that there is none"
