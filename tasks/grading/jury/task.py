"""Stage entry point of the jury: what jurors said in; one rater's judgments and gradings out, shard by shard."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Bundle, unlocked
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments, JuryRules
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import MEAN
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Run, pairs
from rubricflow.tasks.grading.jury.combine import Rule, disagreement, grading, judgment, plain, shares_of

RULES = "rules"
"""The shard that holds the rules; the others are those of the jurors."""


class Juror(NamedTuple):
    """What was written of a juror."""

    bundles: TableRef
    judgments: TableRef
    gradings: TableRef
    attempts: TableRef


class JuryTables(NamedTuple):
    """What the jury writes; of calls it makes none."""

    judgments: TableRef
    gradings: TableRef
    attempts: TableRef


@task(task_run_name=named("jury"))
def combine(
    run: Run,
    plan: Judge,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    people: TableRef,
    jurors: Mapping[str, Juror],
    target: str = MEAN,
    stage: str = "judge",
    rules_of: str | None = None,
) -> JuryTables:
    """Choose a rule for every item or for all, then make the jury's judgments and gradings, shard by shard; what is
    done is passed over.

    bundles: of the jury; people: human gradings, of which those of the calibration split alone are looked at; target:
    see `Evaluation.target`; stage: under which name the tables are written; rules_of: the stage whose rules
    hold for these responses, too, where they were chosen for others of this jury; None to choose them here.
    """
    sizes = {name: run.shards(juror.gradings.stage) for name, juror in jurors.items()}
    names = [sorted(shards) for shards in sizes.values()]
    if any(other != names[0] for other in names):
        raise ContractError(f"jurors {', '.join(jurors)} judged in different shards: {run.mend()}")
    rater_id = rater_of(run, plan, jurors)
    rubric_of = dict(pairs(run.read(items, ["item_id", "rubric_id"])))
    rows = run.read(bundles).to_pylist()
    bundle_of, id_of = unlocked(rows), {row["rubric_id"]: row["bundle_id"] for row in rows}
    locked = {item: (bundle_of[rubric], id_of[rubric]) for item, rubric in rubric_of.items()}
    rule = plain("mean", [1.0] * len(jurors))
    if rules_of is None and not run.done(stage, RULES):
        weights = dict(zip(jurors, rule.weights.tolist(), strict=True))
        figures: dict[str, object] = {"n": 0, "agreement": None, "ahead": None, "ahead_se": None}
        made: dict[str, object] = {
            "scope": "pooled",
            "rule": rule.name,
            "weights": weights,
            "chosen": True,
            "reason": "equal weights",
        }
        run.commit(stage, RULES, {JuryRules: [made | figures | {"rater_id": rater_id["rater_id"]}]})
    for name in names[0]:
        if not run.done(stage, name):
            of_jurors = {juror: _shard(run, own, name) for juror, own in jurors.items()}
            judged, graded = _together(of_jurors, locked, rule)
            run.commit(
                stage,
                name,
                {
                    Judgments: [row | rater_id for row in judged],
                    Gradings: [row | rater_id for row in graded],
                    Attempts: [],
                },
            )
    return JuryTables(*(run.ref(row, stage) for row in (Judgments, Gradings, Attempts)))


def rater_of(run: Run, plan: Judge, jurors: Mapping[str, Juror]) -> dict[str, str]:
    """Id and kind of the jury: the jurors by name, and a digest of who they are and how they are combined. A jury with
    a simulated juror is simulated."""
    first = [next(run.batches(of.gradings, ["rater_id", "rater_kind"], 1)).to_pylist()[0] for of in jurors.values()]
    content = "\n".join([plan.combine, *(row["rater_id"] for row in first)])
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    kind = "simulated" if any(row["rater_kind"] == "simulated" for row in first) else "jury"
    return {"rater_id": f"jury:{'+'.join(jurors)}-{digest}", "rater_kind": kind}


Shard = tuple[dict[str, list[dict[str, Any]]], dict[tuple[str, str], list[dict[str, Any]]]]
"""A juror's gradings by response, and its judgments by response and criterion."""


def _shard(run: Run, juror: Juror, name: str) -> Shard:
    gradings, judgments = defaultdict(list), defaultdict(list)
    for row in run.shard(Gradings, juror.gradings.stage, name).to_pylist(maps_as_pydicts="strict"):
        gradings[row["response_id"]].append(row)
    for row in run.shard(Judgments, juror.judgments.stage, name).to_pylist():
        judgments[row["response_id"], row["criterion_id"]].append(row)
    return gradings, judgments


def _together(
    of_jurors: Mapping[str, Shard], locked: Mapping[str, tuple[Bundle, str]], rule: Rule
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of judgments and gradings of a shard."""
    judged, graded = [], []
    first = next(iter(of_jurors.values()))[0]
    for response_id, rows in first.items():
        bundle, bundle_id = locked[rows[0]["item_id"]]
        gradings = {name: shard[0][response_id] for name, shard in of_jurors.items()}
        shares = np.array([shares_of(list(gradings.values()), bundle)])
        (share,), (apart,) = rule.scores(shares), disagreement(shares, rule.weights)
        graded.append(grading(gradings, bundle, bundle_id, float(share), float(apart)))
        for criterion in bundle.criteria:
            about = [shard[1].get((response_id, criterion.id), []) for shard in of_jurors.values()]
            if any(about):
                judged.append(judgment(criterion, bundle, bundle_id, about, rule))
    return judged, graded
