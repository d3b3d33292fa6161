"""A study turned into a run: the data and settings that name it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from rubricflow.tasks.core.contracts.backends import BACKENDS
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.reference import TableRef
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.llm.backends.replay import read_recording
from rubricflow.tasks.core.llm.backends.vllm import weights
from rubricflow.tasks.core.store.catalogue import write_database
from rubricflow.tasks.core.store.essays import essay_files
from rubricflow.tasks.core.store.files import digest_of, file_digest
from rubricflow.tasks.core.store.manifest import code_digest, graded_by, write_manifest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.calibrate.calibration import FORMAT as CALIBRATION_VERSION
from rubricflow.tasks.grading.ingest.sources import read_as, sources
from rubricflow.tasks.grading.judge.grade import PROTOCOL_VERSION

_LOGPROBS = 20
"""The most that servers give: a score of many levels needs them all."""


@dataclass(frozen=True)
class Plan:
    """A study with its run. `identity` is what the run's id is made from."""

    study: Study
    base: Path
    run: Run
    limit: int | None
    identity: dict[str, Any]
    read_as: dict[str, str]
    """File of the study → how it was read, in words for people."""
    beside: dict[str, Plan] = field(default_factory=dict)
    """What its scores stand beside, by what that is called."""


def plan(
    study_file: str | Path,
    warehouse: str | Path,
    limit: int | None = None,
    model: str | None = None,
    url: str | None = None,
    beside: str | Path | None = None,
    options: Mapping[str, JsonValue] | None = None,
) -> Plan:
    """Read a study and find its run: the same study, inputs and code make the same run id, and so resume.

    model: a language model in place of the study's judge, by name or folder; url: of the server that has it, none where
    it is to be loaded in this process; beside: a further study file that its scores stand beside; options: see
    `Engine.options`.
    """
    path = Path(study_file)
    study = load_study(path)
    if model is not None:
        study = study.model_copy(update={"judge": asking_model(study.judge, model, url, options)})
    elif url is not None or options:
        rule, field = ("a server is named", "--url") if url is not None else ("options are given", "--option")
        raise InputError(f"{rule} and no model of it", field=field, hint="name the model: --model NAME")
    if beside is not None:
        more = os.path.relpath(beside, path.parent), *study.evaluation.beside
        study = study.model_copy(update={"evaluation": study.evaluation.model_copy(update={"beside": more})})
    return planned(study, path.parent, warehouse, limit)


def asking_model(judge: Judge, model: str, url: str | None, options: Mapping[str, JsonValue] | None = None) -> Judge:
    """The same judge with a language model as its backend; InputError where its protocol takes none."""
    # A model of one's own may be slow: what it has begun to answer is waited for.
    own_engine = judge.engine or Engine(model=model, logprobs=_LOGPROBS, timeout_s=3600)
    name = str(Path(model).resolve()) if url is None and Path(model).is_dir() else model
    engine = own_engine.model_copy(update={"model": name} | ({"urls": (url,)} if url else {}))
    engine = engine.model_copy(update={"options": {**engine.options, **(options or {})}})
    others = dict.fromkeys(("model", "replies", "foreign", "truth", "grader"))
    try:
        return Judge.model_validate(
            judge.model_dump() | others | {"backend": "openai" if url else "vllm", "engine": engine}
        )
    except ValidationError as error:
        raise InputError(f"no language model can take this judge's place: {error.errors()[0]['msg']}") from error


def planned(
    study: Study, base: Path, warehouse: str | Path, limit: int | None = None, votes: dict[str, str] | None = None
) -> Plan:
    """The run of a study whose paths are relative to `base`. votes: digest of what people said of it until now, where
    the run rests on that."""
    beside = dict(_beside(study, base, warehouse, limit))
    identity = {
        "study": study.model_dump(mode="json"),
        "inputs": inputs(study, base) | (votes or {}),
        "limit": limit,
        "code": code_digest(),
    }
    if recordings := dict(_recordings(study, base)):
        identity["recordings"] = recordings
    if beside:
        identity["beside"] = {name: other.run.run_id for name, other in beside.items()}
    run_id = f"{study.name}-{digest_of(identity)[:10]}"
    return Plan(study, base, Warehouse.open(warehouse).run(run_id), limit, identity, read_as(study.data, base), beside)


def _recordings(study: Study, base: Path) -> Iterator[tuple[str, str]]:
    """File of recorded replies → where they come from; what cannot be read is left to the stage that needs it."""
    annotators = study.annotation.annotators.values() if study.annotation else ()
    for name in {choice.replies: None for choice in (study.judge, *annotators, study.graph) if choice.replies}:
        with suppress(InputError):
            yield name, read_recording(base / name).header.in_words


def _beside(study: Study, base: Path, warehouse: str | Path, limit: int | None) -> Iterator[tuple[str, Plan]]:
    """What the study's scores stand beside: name and backend of each such study, and its run. What stands beside that
    in turn is left out."""
    for name in study.evaluation.beside:
        other = load_study(base / name)
        alone = other.evaluation.model_copy(update={"beside": ()})
        job = planned(other.model_copy(update={"evaluation": alone}), (base / name).parent, warehouse, limit)
        yield f"{other.name} ({other.judge.backend})", job


def inputs(study: Study, base: Path) -> dict[str, str]:
    """File or folder of weights, as the study names it → SHA-256 of its content; what is missing is left to the stage
    that reads it."""
    annotators = study.annotation.annotators.values() if study.annotation else ()
    judges = [study.judge, *annotators]
    data = [Path(study.data.folder) / source.file for source in sources(study.data)]
    files = [str(place / file.relative_to(base / place)) for place in data for file in essay_files(base / place)]
    files += [judge.foreign.file for judge in judges if judge.foreign]
    files += [choice.replies or "" for choice in (*judges, study.graph)]
    files += [study.rubrics.file or "", study.judge.grader or "", study.graph.file or "", study.graph.votes or ""]
    files += [study.reward.edge_retention or ""] if study.reward else []
    engines = [(choice_of_model.backend, choice_of_model.engine) for choice_of_model in (*judges, study.graph)]
    engines += [(judge.backend, judge.repair_engine) for judge in judges]
    folders = [engine.model for name, engine in engines if engine and BACKENDS[name].local_weights]
    folders += [study.bottleneck.backbone] if study.bottleneck else []
    folders += [study.edit.policy] if study.edit else []
    digests = {name: digest_of(weights(base / name)) for name in folders if (base / name).is_dir()}
    names = sorted(set(filter(None, files)))
    return digests | {name: file_digest(base / name) for name in names if (base / name).is_file()}


def record(plan: Plan, tables: list[TableRef]) -> Path:
    """Write the manifest of a finished run, from when on the warehouse's database shows it; returns its path."""
    settings = {
        "calibration": plan.study.calibration.model_dump(mode="json"),
        "release": plan.study.release.model_dump(mode="json"),
        "target": plan.study.evaluation.target,
        "protocol_version": PROTOCOL_VERSION,
        "calibration_version": CALIBRATION_VERSION,
    }
    graded = graded_by(plan.run, plan.study.evaluation.target, settings)
    path = write_manifest(plan.run, plan.identity, graded, tables, plan.base, plan.read_as)
    write_database(plan.run.warehouse)
    return path
