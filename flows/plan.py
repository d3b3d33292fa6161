"""A study turned into a run: the data and settings that name it, where it is worked, and its manifest at the end."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from pydantic import JsonValue, ValidationError

from rubricflow.flows.command_line import arguments
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.backends import BACKENDS, Choice
from rubricflow.tasks.core.contracts.errors import BackendError, InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOL_VERSION
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.engine import Engine, Placement
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study, load_study
from rubricflow.tasks.core.contracts.tables.calibration import CALIBRATION_FORMAT
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Prices
from rubricflow.tasks.core.llm.backends.openai import unreachable
from rubricflow.tasks.core.llm.backends.replay import read_recording
from rubricflow.tasks.core.llm.backends.vllm import weights
from rubricflow.tasks.core.llm.calls import in_words, serve_meters
from rubricflow.tasks.core.llm.mailbox import open_outbox
from rubricflow.tasks.core.llm.opening import model_of
from rubricflow.tasks.core.llm.prices import Price, price_of, price_rows, table_in_words
from rubricflow.tasks.core.llm.reply_store import are_there, is_database, open_replies
from rubricflow.tasks.core.monitor.engines import require_cluster
from rubricflow.tasks.core.monitor.runs import log
from rubricflow.tasks.core.store.catalogue import MANIFEST, write_database
from rubricflow.tasks.core.store.essays import essay_files
from rubricflow.tasks.core.store.files import digest_of, file_digest
from rubricflow.tasks.core.store.manifest import code_digest, graded_by, write_manifest
from rubricflow.tasks.core.store.warehouse import Run, Warehouse
from rubricflow.tasks.grading.ingest.sources import read_as, sources
from rubricflow.tasks.people.review.ledger import ActSnapshot, act_snapshot

_LOGPROBS = 20
"""The most that servers give: a score of many levels needs them all."""


@dataclass(frozen=True)
class Plan:
    """A study with its run. `identity` is what the run's id is made from."""

    study: Study
    base: Path
    run: Run
    limit: int | None
    identity: Record
    read_as: dict[str, str]
    """File of the study → how it was read, in words for people."""
    beside: dict[str, Plan] = field(default_factory=dict)
    """What its scores are compared with, by what that is called."""
    only: tuple[str, ...] = ()
    """Ids of the responses that are graded; empty for all."""


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
    it is to be loaded in this process; beside: a further study file that its scores are compared with; options: see
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


def asking_model(judge: Judge, model: str, url: str | None, options: Mapping[str, JsonValue] | None) -> Judge:
    """The same judge with a language model as its backend; InputError where its protocol takes none."""
    if judge.jury or judge.escalate:
        rule = f"a model takes the place of one judge, and the study has a {'jury' if judge.jury else 'cascade'}"
        raise InputError(
            rule, field="--model", hint="name it as one of its judges, or take its place in a study of its own"
        )
    # A model of one's own may be slow: what it has begun to answer is waited for.
    engine = judge.engine or Engine(model=model, logprobs=_LOGPROBS, timeout_s=3600)
    name = str(Path(model).resolve()) if url is None and Path(model).is_dir() else model
    changes = {"model": name, "options": {**engine.options, **(options or {})}}
    changes |= {"urls": (url,)} if url else {}
    others = dict.fromkeys(("model", "replies", "foreign", "truth", "grader"))
    backend = {"backend": "openai" if url else "vllm", "engine": engine.model_copy(update=changes)}
    try:
        return Judge.model_validate(judge.model_dump() | others | backend)
    except ValidationError as error:
        raise InputError(f"no language model can take this judge's place: {error.errors()[0]['msg']}") from error


def planned(
    study: Study,
    base: Path,
    warehouse: str | Path,
    limit: int | None = None,
    votes: dict[str, str] | None = None,
    only: tuple[str, ...] = (),
) -> Plan:
    """The run of a study whose paths are relative to `base`. votes: digest of what people said of it until now, where
    the run rests on that; only: ids of the responses that are graded, empty for all."""
    beside = {}
    for name in study.evaluation.beside:  # what these are compared with in turn is left out
        other = load_study(base / name)
        alone = other.model_copy(update={"evaluation": other.evaluation.model_copy(update={"beside": ()})})
        label = f"{other.name} ({other.judge.backend})"
        beside[label] = planned(alone, (base / name).parent, warehouse, limit)
    identity: Record = {
        "study": study.model_dump(mode="json"),
        "inputs": inputs(study, base) | (votes or {}),
        "limit": limit,
        "code": code_digest(),
    }
    if only:
        identity["only"] = list(only)
    recordings = {}
    for name in filter(None, (choice.replies for choice in _models(study))):
        with suppress(InputError):  # what cannot be read is left to the stage that needs it
            recordings[name] = read_recording(base / name).header.in_words
    if recordings:
        identity["recordings"] = recordings
    if beside:
        identity["beside"] = {name: other.run.run_id for name, other in beside.items()}
    run = Warehouse.open(warehouse).run(f"{study.name}-{digest_of(identity)[:10]}")
    return Plan(study, base, run, limit, identity, read_as(study.data, base), beside, only)


def graded_plan(study_file: str | Path, warehouse: str | Path, limit: int | None) -> Plan:
    """The finished run of a study; InputError where it is not graded as study, data and code are now."""
    job = plan(study_file, warehouse, limit)
    if not (job.run.done("evaluate", "all") and job.run.fetched("manifest.json").exists()):
        place = job.run.warehouse.place
        rule = f"{job.study.name} is not graded in {place}, as study, data and code are now"
        raise InputError(rule, file=study_file, hint=f"rubricflow grade {arguments(study_file, place, limit)}")
    return job


def _judges(study: Study) -> list[Judge]:
    """All who judge, jurors one by one, and the study's annotators."""
    judges = filter(None, (study.judge, study.evaluation.judge))
    return [
        *chain.from_iterable(judge.jurors.values() for judge in judges),
        *(study.annotation.annotators.values() if study.annotation else ()),
    ]


def _models(study: Study) -> list[Choice]:
    """All whom a model may answer for."""
    judges = _judges(study)
    further: list[Choice | None] = [judge.support_by for judge in judges]
    further += [study.edit.revising.by] if study.edit else []
    further += [study.bottleneck.prompted] if study.bottleneck else []
    return [*judges, *filter(None, further), study.graph]


def inputs(study: Study, base: Path) -> dict[str, str]:
    """File or folder of weights, as the study names it → SHA-256 of its content; what is missing is left to the stage
    that reads it."""
    judges, models = _judges(study), _models(study)
    files = [study.rubrics.file, study.graph.file, study.graph.votes, *(judge.grader for judge in judges)]
    files += [study.reward.edge_retention] if study.reward else []
    files += [judge.foreign.file for judge in judges if judge.foreign]
    files += [choice.replies for choice in models]
    for source in sources(study.data):
        place = Path(study.data.folder) / source.file
        files += [str(place / file.relative_to(base / place)) for file in essay_files(base / place)]
    engines = [(choice.backend, choice.engine) for choice in models]
    engines += [(judge.backend, judge.repair_engine) for judge in judges]
    folders = [engine.model for name, engine in engines if engine and BACKENDS[name].local_weights]
    folders += [study.bottleneck.backbone] if study.bottleneck else []
    folders += [study.edit.policy] if study.edit else []
    digests = {name: digest_of(weights(base / name)) for name in folders if (base / name).is_dir()}
    names = sorted({name for name in files if name})
    return digests | {name: file_digest(base / name) for name in names if (base / name).is_file()}


def with_placement(job: Plan, engine: str | None, address: str | None) -> Plan:
    """The same run, worked by this engine at this address, with what it is compared with; as the study says where
    neither is given. InputError for an engine or an address that there cannot be."""
    if engine is None and address is None:
        return job
    same_engine = engine in (None, job.study.run.engine)  # the settings of another engine are not its own
    given = {name: value for name, value in (("engine", engine), ("address", address)) if value}
    try:
        run = Placement.model_validate((job.study.run.model_dump() if same_engine else {}) | given)
    except ValidationError as error:
        field = "--engine" if address is None else "--address"
        raise InputError(error.errors()[0]["msg"].removeprefix("Value error, "), field=field) from error
    others = {name: with_placement(other, engine, address) for name, other in job.beside.items()}
    return replace(job, study=job.study.model_copy(update={"run": run}), beside=others)


def check_places(job: Plan, asked: Sequence[Choice] | None = None) -> None:
    """Opens what `RUBRICFLOW_METERS` names; and where the run is not finished, BackendError or StoreError for a
    cluster, a database or a model's server that is not there, before anything is read.

    asked: who is, judges by default. A server that may only be starting, or whose replies are stored, is no error.
    """
    serve_meters()
    if job.run.fetched(MANIFEST).is_file():
        return
    if not job.study.run.is_local:
        require_cluster(job.study.run)
    if is_database(job.run.warehouse.replies_named):
        open_replies(job.run.warehouse.replies).close()
    judges = _judges(job.study)
    for choice in asked or [*judges, *(judge.support_by for judge in judges if judge.support_by)]:
        if choice.engine is None or choice.backend != "openai" or open_outbox() is not None:
            continue
        for url, error in unreachable(choice.engine):
            why = f"no server of '{choice.engine.model}' can be reached at {url} ({error.strerror or error})"
            why = f"{why}: start it, or mend engine.urls or --url"
            place = job.run.warehouse.replies
            with open_replies(place if are_there(place) else ":memory:") as replies:
                is_new = replies.latency(model_of(choice, job.base)) is None
            if is_new and isinstance(error, socket.gaierror) and not job.study.run.is_elsewhere:
                raise BackendError(why)
            log(f"{why}; it is waited for when it is asked, {in_words(choice.engine.patience_s)} at most")


def annotating(study_file: str | Path, warehouse: str | Path, limit: int | None = None) -> Plan:
    """The run in which a study is annotated: it depends on data, rubrics and annotators alone, so that reviewers find
    it whatever will be trained. InputError where the study has no section `annotation`."""
    study, base = _of_concepts(study_file)
    return planned(study.model_copy(update={"bottleneck": None}), base, warehouse, limit)


def settling(study_file: str | Path, warehouse: str | Path, limit: int | None = None) -> tuple[Plan, ActSnapshot]:
    """The run that rests on what people have said of a study until now, and that."""
    study, base = _of_concepts(study_file)
    votes = act_snapshot(Path(warehouse), study.name)
    return planned(study, base, warehouse, limit, {"votes": votes.digest}), votes


def _of_concepts(study_file: str | Path) -> tuple[Study, Path]:
    """The study as annotators are asked, under the protocol that labels concepts, and its folder."""
    path = Path(study_file)
    study = load_study(path)
    if study.annotation is None:
        hint = "annotation: {annotators: {first: {backend: …}, second: {backend: …}}}"
        raise InputError("there is no section 'annotation', which names two annotators", file=path, hint=hint)
    return study.model_copy(update={"judge": study.annotation.asked, "reward": None}), path.parent


def prices_of(plan: Plan) -> dict[str, Price]:
    """Model → its price, of the study's models those of which one is known now."""
    study, run = plan.study, plan.run
    judges = _judges(study)
    choices: list[Choice] = [*judges, study.graph]
    choices += [judge.model_copy(update={"engine": judge.repair_engine}) for judge in judges if judge.repair_engine]
    # Model → who answered for it, where its replies came in files that say so.
    providers: dict[str, str] = {}
    for stage in run.stages(Attempts):
        answered = run.table(Attempts, stage, ["model", "provider"]).group_by(["model", "provider"]).aggregate([])
        named = [row for row in answered.to_pylist() if row["provider"] not in (None, "plain")]
        providers |= {row["model"]: row["provider"] for row in named}
    found: dict[str, Price] = {}
    for choice in choices:
        if BACKENDS[choice.backend].needs == "engine" and (providers or price_of(choice.engine) is not None):
            model = model_of(choice, plan.base)
            price = price_of(choice.engine) or price_of(choice.engine, providers.get(model))
            found |= {model: price} if price else {}
    return found


def _keep_prices(plan: Plan) -> dict[str, str]:
    """Writes what the study's models cost as it is known now; model → that in words. Those of a run that finished
    before stay, but where the study says them itself."""
    run, found = plan.run, prices_of(plan)
    is_own = any(choice.engine and choice.engine.price for choice in [*_judges(plan.study), plan.study.graph])
    if is_own or not run.done("prices", "all"):
        rows = [row for model, price in found.items() for row in price_rows(model, price)]
        run.commit("prices", "all", {Prices: rows})
    return {model: price.in_words for model, price in found.items()}


def record(plan: Plan, tables: list[TableRef]) -> Path:
    """Write the manifest of a finished run, from when on the warehouse's database shows it; returns its path."""
    settings = {
        "calibration": plan.study.calibration.model_dump(mode="json"),
        "release": plan.study.release.model_dump(mode="json"),
        "target": plan.study.evaluation.target,
        "protocol_version": PROTOCOL_VERSION,
        "calibration_version": CALIBRATION_FORMAT,
    }
    graded = graded_by(plan.run, plan.study.evaluation.target, settings)
    costs = {"table": table_in_words(), "prices": _keep_prices(plan), **plan.study.money.model_dump()}
    path = write_manifest(plan.run, plan.identity, graded, tables, plan.base, plan.read_as, costs)
    write_database(plan.run.warehouse)
    return path
