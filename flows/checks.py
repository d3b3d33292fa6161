"""What a study's work needs installed, and the trained grader that it names: both before a judge is paid. Loads no
Prefect, so that trainers can use it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

from rubricflow.tasks.core.contracts.backends import LIBRARIES, Grader, Work, install, needs, require
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.llm.mailbox import open_outbox
from rubricflow.tasks.core.llm.reply_store import is_database


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
