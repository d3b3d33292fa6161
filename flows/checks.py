"""What can be checked of settings before a judge is paid: each function raises a UserError."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeGuard, cast, get_args

from rubricflow.tasks.core.contracts.backends import LIBRARIES, Grader, Work, install, needs, require
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.core.llm.mailbox import open_outbox
from rubricflow.tasks.core.llm.reply_store import is_database
from rubricflow.tasks.core.store.warehouse import Run

_NEEDED = ("item_id", "rubric_id", "question")


def check_name(value: object, names: Iterable[str], field: str) -> None:
    """The value is one of the names."""
    known = list(names)
    if value not in known:
        raise InputError(f"{value!r} is none of {', '.join(known)}", field=field, hint=meant(value, known))


def meant(value: object, known: Iterable[str]) -> str | None:
    """The names that somebody may have meant, as a question."""
    names = {name.casefold(): name for name in known}
    text = str(value).casefold()
    alike = [name for name in names if text and text in name][:3] or get_close_matches(text, names, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(names[name]) for name in alike)}?" if alike else None


def check_aggregation(value: object) -> Aggregation:
    """The value, which names an aggregation."""
    check_name(value, get_args(Aggregation), "aggregation")
    return cast(Aggregation, value)


def check_number(value: object, field: str, high: float = math.inf, whole_number: bool = False) -> None:
    """The value is a finite number above 0 and at most `high`."""
    if not (_is_finite(value) and 0 < value <= high and (isinstance(value, int) or not whole_number)):
        kind = "whole number" if whole_number else "number"
        most = f" and at most {high:g}" if high < math.inf else ""
        raise InputError(f"{value!r} is no {kind} above 0{most}", field=field)


def _is_finite(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_share(value: object, field: str) -> None:
    """The value is a number in [0, 1]."""
    if not (_is_finite(value) and 0 <= value <= 1):
        raise InputError(f"{value!r} is no share from 0 to 1", field=field)


def check_record(record: object) -> None:
    """The value is a run that can be written into, or None; StoreError where the disk says no."""
    if record is None:
        return
    if not isinstance(record, Run):
        hint = "record=Warehouse.open('data/warehouse').run('my-training'), from rubricflow.tasks.core.store.warehouse"
        raise InputError(f"{record!r} is no run to write into", field="record", hint=hint)
    with record.alone():
        pass


def check_unscored(value: object) -> None:
    """The value is a number that verl can train on."""
    if not _is_finite(value):
        raise InputError(f"{value!r} is no finite number to train on in place of a reward", field="unscored")


def checked_items(items: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Item → its row; every one has an id of its own, a rubric and a question."""
    items_by_id: dict[str, Mapping[str, Any]] = {}
    for number, row in enumerate(items, 1):
        for field in _NEEDED:
            if not isinstance(row.get(field), str):
                raise InputError(f"an item needs '{field}', as a text", row=number, field=f"items.{field}")
        if row["item_id"] in items_by_id:
            raise InputError(f"item '{row['item_id']}' is given twice", row=number, field="items.item_id")
        items_by_id[row["item_id"]] = row
    if not items_by_id:
        raise InputError("there is no item that a rollout could answer")
    return items_by_id


def check_extras(
    work: Work,
    study_file: str | Path,
    engine: str | None = None,
    model: str | None = None,
    url: str | None = None,
    beside: str | Path | None = None,
) -> None:
    """Everything optional that a study's work needs is installed, on what the study says and the command's options in
    place of it; BackendError names what is not, before anything is read or paid for."""
    path = Path(study_file)
    study = load_study(path)
    needed = [(extra, why) for extra, why in needs(study, work) if not (engine and why.startswith("engine: "))]
    if engine and engine in LIBRARIES:
        needed.append((engine, f"--engine {engine}"))
    if model is not None:
        needed = [(extra, why) for extra, why in needed if not why.startswith("judge.backend")]
        needed += [] if url is not None else [("vllm", "--model without --url")]
    if open_outbox() is not None:  # who notes requests needs nothing that asks them
        asking = {"vllm", *get_args(Engine.model_fields["provider"].annotation)}
        needed = [(extra, why) for extra, why in needed if extra not in asking]
    if is_database(os.environ.get("RUBRICFLOW_REPLIES", "")):
        needed.append(("postgres", "replies in a database"))
    if work == "grade":
        others = [path.parent / name for name in study.evaluation.beside]
        for other in (*others, *([Path(beside)] if beside else [])):
            needed += needs(load_study(other), work)
    require(needed)


def grader_of(judge: Judge, base: Path) -> Grader | None:
    """The trained grader of a judge, relative to `base`; None for a judge that is none. Its module needs torch, an
    extra.

    InputError for a file that is no whole grader, BackendError where the extra is missing.
    """
    if judge.backend != "trained" or judge.grader is None:
        return None
    try:
        from rubricflow.tasks.methods.bottleneck.grader import load
    except ImportError as error:
        raise BackendError(f"trained graders need the extra: {install('embedded')}") from error
    return load(base / judge.grader, base)
