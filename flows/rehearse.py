"""The command `rehearse`: how many criteria to ask for in a call, tried on a few labelled answers.

Every way of asking is an ordinary run of the warehouse, over answers of the calibration split alone: what it asked is
kept, so that another rehearsal, or the whole study, pays for it no more.
"""

from __future__ import annotations

import hashlib
from typing import Annotated

import pandas as pd
import pyarrow.dataset as ds
import typer

from rubricflow.flows.command_line import (
    DEFAULT_WAREHOUSE,
    DollarLimit,
    Limit,
    StudyFile,
    TokenLimit,
    WarehouseFolder,
)
from rubricflow.flows.finished_runs import is_finished, keep_arms, read_finished
from rubricflow.flows.grade import stages
from rubricflow.flows.plan import Plan, plan, planned, record
from rubricflow.flows.stage import staged
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS
from rubricflow.tasks.core.contracts.settings.experiment import run_name
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Calibration, Study
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.display.table import show, show_sentences
from rubricflow.tasks.core.llm.budget import kept_budget
from rubricflow.tasks.core.llm.mailbox import asking_together
from rubricflow.tasks.core.monitor.runs import flow, introduce, log
from rubricflow.tasks.core.stats.scores import score_frame, target_scores
from rubricflow.tasks.core.store.catalogue import ask
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.evaluate.experiment.arm import BootstrapPlan, RehearsedArm, on_shares, rehearsal
from rubricflow.tasks.grading.ingest.task import ingest
from rubricflow.tasks.grading.judge.evidence import HOLDS
from rubricflow.tasks.grading.judge.mend import SEMANTIC

SIZES = {1: "1 criterion a call", 4: "4 criteria a call", None: "all in one call"}
PLAIN = "plain score"
UNSHOWN = "no worked examples"
_STANDS = tuple(sorted(HOLDS))
_EVIDENCE = tuple(sorted(SEMANTIC))
_TOOK = f"""
    WITH used AS (
        SELECT count(*) AS calls, if(count(prompt_tokens + completion_tokens) = count(*),
            sum(prompt_tokens + completion_tokens), NULL)::BIGINT AS tokens,
            if(count(usd) = count(*), sum(usd), NULL) AS usd
        FROM costs
    ),
    broken AS (
        SELECT count(*) AS violations FROM attempts
        WHERE len(list_filter(violations, lambda violation: split_part(violation, ':', 1) NOT IN {_EVIDENCE})) > 0
    ),
    quoted AS (
        SELECT count(*) AS quotes, count(*) FILTER (quote.status IN {_STANDS}) AS standing
        FROM (SELECT unnest(evidence) AS quote FROM judgments WHERE rater_kind <> 'human')
    )
    SELECT * FROM used, broken, quoted
"""


@flow(name="rehearse")
def rehearse(
    study: StudyFile,
    answers: Annotated[int, typer.Option("--answers", min=2, help="How many labelled answers, over all items.")] = 20,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
    limit: Limit = None,
    token_budget: TokenLimit = None,
    budget_usd: DollarLimit = None,
    model: Annotated[str | None, typer.Option(help="A language model in place of the study's judge.")] = None,
    url: Annotated[str | None, typer.Option(help="The OpenAI-compatible server that has it.")] = None,
) -> str:
    """Judge a few labelled answers in several ways and print what to use, and a table; returns what to use.

    The ways are the plain score, and the checklist of the study's protocol (of checked_score, where that has no
    checklist in parts) by 1, by 4 and by all criteria a call; and the study's own where it is none of these. A study
    that shows worked examples shows here only such as are among the answers, and is tried without them, too. Arms that
    finished are passed over. InputError where the calibration split has no label. Parameters as of `grade`.
    """
    job = plan(study, warehouse, limit, model, url)
    introduce(job.study.name, flow="rehearse", backend=job.study.judge.backend)
    chosen = drawn(job, answers)
    root = job.run.warehouse.root
    arms = {name: planned(arm, job.base, root, only=chosen) for name, arm in ways(job.study).items()}
    runs = {name: arm.run for name, arm in arms.items()}
    keep_arms(job.run.warehouse, run_name("rehearse", job.study.name), runs)
    budget = kept_budget(job.run.warehouse, f"rehearsal {job.run.run_id}", token_budget, budget_usd)
    with budget, asking_together() as piece:
        for name, arm in arms.items():
            with piece():
                if not is_finished(arm.run):
                    record(arm, stages(arm))
                log(f"{name}: {arm.run.run_id}")
    evaluation = job.study.evaluation
    rehearsed = [_read(name, run) for name, run in runs.items()]
    sentence, table = rehearsal(rehearsed, BootstrapPlan(evaluation.draws, evaluation.seed))
    show_sentences([sentence])
    show([table])
    return sentence


def ways(study: Study) -> dict[str, Study]:
    """Arm → the study as it is asked there, without what is neither judged nor measured; of a jury each juror alone."""
    judge = study.judge.model_copy(update={"keep": None})
    taken = PROTOCOLS[judge.protocol]
    has_parts = "criteria_per_call" in taken.options and taken.criteria_per_call is None
    checklist = judge.protocol if has_parts else "checked_score"
    if judge.jury:
        judges = {f"juror {name}": juror.model_copy(update={"keep": None}) for name, juror in judge.jury.items()}
    else:
        judges = {PLAIN: _asked(judge, "dhs", None)}
        judges |= {f"{checklist}, {words}": _asked(judge, checklist, size) for size, words in SIZES.items()}
        if judge.examples:
            unshown = judge.model_copy(update={"examples": None})
            judges |= {f"{PLAIN}, {UNSHOWN}": _asked(unshown, "dhs", None)}
            judges |= {f"{checklist}, {UNSHOWN}": _asked(unshown, checklist, None)}
    if judge not in judges.values():
        judges["as the study says"] = judge
    evaluation = study.evaluation.model_copy(update={"beside": ()})
    changes = {"evaluation": evaluation, "calibration": Calibration(method="identity", features=("judge",))}
    names = {name: run_name(f"rehearse-{study.name}", name) for name in judges}
    return {name: study.model_copy(update={**changes, "name": names[name], "judge": judges[name]}) for name in judges}


def _asked(judge: Judge, protocol: str, size: int | None) -> Judge:
    """The judge under a protocol; what belongs to its own one alone is left out under another."""
    changes = {"protocol": protocol, "criteria_per_call": size}
    if protocol != judge.protocol:
        own = ("final_score", "signals", "min_tokens", "rubric_memory", "consistency_memory")
        changes |= dict.fromkeys(own)
    return Judge.model_validate({**dict(judge), **changes})


def drawn(job: Plan, answers: int) -> tuple[str, ...]:
    """Ids of so many labelled responses of the calibration split, or all there are: drawn by the SHA-256 of seed and
    id, from one item after the other. More answers hold those of fewer."""
    run, study = job.run, job.study
    data = staged(run, ingest, study=study, base=job.base, limit=job.limit)
    calibrates = ds.field("split").isin(list(CALIBRATES))
    responses = run.read(data.responses, ["response_id", "item_id"], calibrates).to_pandas()
    people = run.read(data.gradings, ["response_id", "rater_id", "rater_kind", "score"])
    labelled = target_scores(people, study.evaluation.target)["response_id"].to_pandas()
    frame = responses[responses["response_id"].isin(labelled)]
    if frame.empty:
        hint = "labels of people calibrate where split.calibration, or the data's own split, says so"
        raise InputError("no response of the calibration split has a human score", field="split", hint=hint)
    keys = [f"{study.split.seed}:{name}".encode("utf-8", "surrogatepass") for name in frame["response_id"]]
    frame = frame.assign(place=[hashlib.sha256(key).hexdigest() for key in keys]).sort_values("place")
    turns = frame.assign(turn=frame.groupby("item_id").cumcount()).sort_values(["turn", "place"])
    return tuple(sorted(turns["response_id"][:answers]))


def _read(name: str, run: Run) -> RehearsedArm:
    study, parts, scales = read_finished(run)
    scores: pd.DataFrame = score_frame(parts, study.evaluation.target, ("train", *CALIBRATES, "test")).frame
    answer = ask(run, _TOOK)
    (took,) = answer.fetchall()
    return RehearsedArm(name, on_shares(scores, scales), **dict(zip(answer.columns, took, strict=True)))
