"""The command `replies`: what models said to a finished run, as a file of recorded replies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, RunId, WarehouseFolder
from rubricflow.flows.finished_runs import find_run
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.backends import BACKENDS, engine_of
from rubricflow.tasks.core.contracts.errors import StoreError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.reward import Graphs
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.judging import Attempts
from rubricflow.tasks.core.contracts.tables.rubrics import RubricGraphs, Rubrics
from rubricflow.tasks.core.llm.backends.replay import Header, Speaker, as_lines, write_recording
from rubricflow.tasks.core.llm.backends.vllm import weights as weight_files
from rubricflow.tasks.core.llm.opening import model_of
from rubricflow.tasks.core.llm.reply_store import open_replies, shown_place
from rubricflow.tasks.core.store.catalogue import read_manifest
from rubricflow.tasks.core.store.files import digest_of
from rubricflow.tasks.core.store.warehouse import Run

_ASKED = ["response_id", "request_digest", "system", "prompt", "error"]


def replies(
    to: Annotated[Path, typer.Option("--to", help="The file to write, such as replies.parquet.")],
    run: RunId = None,
    name: Annotated[str | None, typer.Option(help="The model's name, where a server calls it otherwise.")] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Folder of the weights that a server served: their digest is recorded.")
    ] = None,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> None:
    """Records the replies of a run and prints what is in the file."""
    header = record_replies(find_run(warehouse, run), to, name, weights)
    size = f"{to.stat().st_size / 1024:,.0f} KiB"
    print(f"{to}: {header.replies:,} {header.in_words}, {header.errors:,} errors, {size}")


def record_replies(run: Run, to: Path, name: str | None, folder: Path | None) -> Header:
    """Write the replies of a run to a file; returns its header.

    name: of the model, in place of the engine's; folder: of its weights, whose digest is recorded. StoreError for a run
    that did not finish or asked no language model itself, or of which the warehouse has lost replies.
    """
    manifest = read_manifest(run)
    study = Study.model_validate(manifest["identity"]["study"])
    base = run.warehouse.root / manifest["study_folder"]
    digest = digest_of(weight_files(folder)) if folder else None
    annotators = study.annotation.annotators if study.annotation else {}
    judges = {name or "judge": judge for name, judge in study.judge.jurors.items()}
    if other := study.evaluation.judge:
        judges |= {f"evaluation {name}".strip(): judge for name, judge in other.jurors.items()}
    choices: dict[str, Judge | Graphs] = {**judges, **annotators, "graph": study.graph}
    asked = {role: choice for role, choice in choices.items() if BACKENDS[choice.backend].needs == "engine"}
    weights = manifest["identity"]["inputs"]
    speakers = [
        _speaker(role, choice, base, name, digest or weights.get(engine_of(choice).model))
        for role, choice in asked.items()
    ]
    calls = list(_asked(run))
    if not (speakers and calls):
        raise StoreError(f"run {run.run_id} asked no language model itself: there is nothing to record")
    place = run.warehouse.replies
    with open_replies(place, read_only=True) as store:
        lines, lost = as_lines(calls, store.get_many(row["request_digest"] for row in calls))
    if lost:
        raise StoreError(f"{shown_place(place)} holds no reply to {len(lost):,} requests of run {run.run_id}")
    header = Header(
        run_id=run.run_id,
        recorded=manifest["written"],
        speakers=tuple(speakers),
        versions=manifest["versions"],
    )
    return write_recording(to, header, lines)


def _speaker(role: str, choice: Judge | Graphs, base: Path, name: str | None, digest: str | None) -> Speaker:
    engine, mender = engine_of(choice), None
    if isinstance(choice, Judge) and choice.repair_engine:
        mender = model_of(choice.model_copy(update={"engine": choice.repair_engine}), base)
    shown = name or engine.model.rstrip("/").rpartition("/")[2]
    return Speaker(
        who=role,
        name=shown,
        weights=digest,
        model=model_of(choice, base),
        mender=mender,
        structured=engine.structured,
        logprobs=engine.logprobs,
        sampling=choice.sampling,
    )


def _asked(run: Run) -> Iterator[Record]:
    """Every request of a run, as `attempts` has it; of those about rubrics and graphs only the digest is known."""
    for stage in run.stages(Attempts):
        rows = run.table(Attempts, stage, _ASKED).to_pylist()
        yield from (row for row in rows if row["prompt"] is not None)
    for table in (Rubrics, RubricGraphs):
        for stage in run.stages(table):
            for calls in run.table(table, stage, ["calls"])["calls"].to_pylist():
                yield from (dict.fromkeys(_ASKED) | {"request_digest": call["request_digest"]} for call in calls)
