"""Stage entry points of a cascade: who is labelled, limits, who goes on to a step, and the one rater in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from rubricflow.tasks.core.contracts.backends import is_free
from rubricflow.tasks.core.contracts.schema import Row, TableRef
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import (
    Calibrations,
    Candidates,
    CascadeLimits,
    Escalations,
    LabelRisks,
    Predictions,
    ReleaseRules,
)
from rubricflow.tasks.core.contracts.tables.data import StepResponses
from rubricflow.tasks.core.contracts.tables.judging import Attempts, Gradings, Judgments
from rubricflow.tasks.core.llm.budget import unpriced
from rubricflow.tasks.core.llm.prices import Price, TokenCounts, cost_of
from rubricflow.tasks.core.monitor.runs import task
from rubricflow.tasks.core.stats.scores import GIVEN, target_scores
from rubricflow.tasks.core.store.files import named
from rubricflow.tasks.core.store.warehouse import Rows, Run, pairs
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.grading.cascade.scopes import (
    ALL,
    ScopeLimits,
    label_rows,
    limit_rows,
    rule_row,
    scope_limits,
)

STAGE = "cascade"
RULES = "rules"
"""The shard that holds what may be released."""
_TEACHES = pa.array(["calibration", "crossed", "chosen"])
_CLOSED = ("unscored", "precheck", "weak_evidence", "uncalibrated", "out_of_range", "level_unseen")
"""Reasons to look at a score that no limit of risk touches."""
DOLLARS = {"limit": "judge.cost_limit, in US dollars,", "instead": "leave cost_limit out"}
"""How `unpriced` speaks of it."""
_BATCH = 20_000


class StepTables(NamedTuple):
    """What was written of a step: of all answers by the first, by others of the labelled ones and then of the rest."""

    judgments: tuple[TableRef, ...]
    gradings: tuple[TableRef, ...]
    attempts: tuple[TableRef, ...]
    """Of a jury those of its jurors."""
    predictions: tuple[TableRef, ...]
    calibrations: TableRef
    label_risks: TableRef

    def after(self, before: StepTables) -> StepTables:
        """Together with what the step made of other answers before; mappings are the same."""
        return self._replace(
            judgments=before.judgments + self.judgments,
            gradings=before.gradings + self.gradings,
            attempts=before.attempts + self.attempts,
            predictions=before.predictions + self.predictions,
        )


class CascadeTables(NamedTuple):
    """What a cascade writes as one rater."""

    judgments: TableRef
    gradings: TableRef
    attempts: TableRef
    calibrations: TableRef
    candidates: TableRef
    release_rules: TableRef
    label_risks: TableRef
    predictions: TableRef
    escalations: TableRef


@task(task_run_name=named(STAGE))
def labelled(run: Run, responses: TableRef, people: TableRef, target: str, stage: str) -> TableRef:
    """The answers that calibrate, which every step judges: those of the calibration's splits with a score that counts.
    stage: under which name they are written."""

    def make() -> dict[type[Row], Rows]:
        known = target_scores(run.read(people, GIVEN), target)["response_id"]
        taught = pc.field("split").isin(_TEACHES) & pc.field("response_id").isin(known.combine_chunks())
        rows = run.read(responses, where=taught)
        return {StepResponses: rows.append_column("step", pa.array([0] * len(rows), pa.int64()))}

    run.once(stage, make)
    return run.ref(StepResponses, stage)


@task(task_run_name=named(STAGE))
def choose_limits(
    run: Run, study: Study, steps: Sequence[StepTables], items: TableRef, prices: Mapping[str, Price], stage: str
) -> TableRef:
    """Limits of every scope, chosen by the labelled answers of all steps; without any, only the first step is asked.

    steps: those that judged labelled answers, from the first on; prices: model → its price, where it is known.
    """

    def make() -> dict[type[Row], Rows]:
        plan = study.judge
        costs, unit = step_costs(run, plan, steps, prices)
        raters = [*_raters(run, steps), *[None] * (len(plan.steps) - len(steps))]
        rows = list[dict[str, object]]()
        for found in _scopes(run, study, steps, costs, run.read(items, ["item_id"])["item_id"].to_pylist()):
            rows += limit_rows(found, raters, costs, unit)
        return {CascadeLimits: rows}

    run.once(stage, make)
    return run.ref(CascadeLimits, stage)


@task(task_run_name=named(STAGE))
def going_on(
    run: Run, steps: Sequence[StepTables], limits: TableRef, responses: TableRef, marked: TableRef, stage: str
) -> TableRef:
    """The answers that the next step judges besides the labelled ones: those that none of the steps before stops, and
    that it may stop. steps: those before it; stage: under which name they are written."""
    if not run.done(stage, "all"):
        of_scope = read_limits(run, limits)
        number = len(steps)
        was_asked = run.read(marked, ["response_id"])["response_id"].to_pylist()
        for shard, batch in enumerate(run.batches(responses, rows=_BATCH)):
            table = pa.Table.from_batches([batch])
            told = _told(run, steps, table["response_id"])
            place = _places(told, of_scope)
            asked = np.array([_limit(of_scope, item)[number] is not None for item in place["item_id"]], dtype=np.bool_)
            # What a rule settled without the judge is settled for every step.
            is_open = asked & ~place["stopped"] & (told["route_reason"][1] != "precheck")
            goes = place.index[is_open].difference(was_asked)
            rows = table.filter(pc.is_in(table["response_id"], value_set=pa.array(goes, pa.string())))
            step = pa.array([number + 1] * len(rows), pa.int64())
            run.commit(stage, f"{shard:05d}", {StepResponses: rows.append_column("step", step)})
        run.commit(stage, "all", {StepResponses: []})
    return run.ref(StepResponses, stage)


@task(task_run_name=named(STAGE))
def one_rater(
    run: Run,
    study: Study,
    steps: Sequence[StepTables],
    limits: TableRef,
    items: TableRef,
    responses: TableRef,
    bundles: TableRef,
    stages: tuple[str, str],
) -> CascadeTables:
    """One rater's tables: every answer as the step judged it at which it stopped or, where it stopped nowhere, the last
    one that scored it; what may be released by the limits of all steps.

    steps: those that judged anything; stages: under which names judgments and predictions are written.
    """
    judged, scored = stages
    if not run.done(scored, "all"):
        of_scope = read_limits(run, limits)
        rater = rater_of(run, study.judge, steps)
        of_items = dict(pairs(run.read(items, ["item_id", "rubric_id"])))
        bundle_of = dict(pairs(run.read(bundles, ["rubric_id", "bundle_id"])))
        bundle_of = {item: bundle_of[rubric] for item, rubric in of_items.items()}
        costs = {row["step"]: row["cost"] for row in run.read(limits).to_pylist()}
        scopes = list(_scopes(run, study, steps, [costs[step] for step in sorted(costs)], [*of_items]))
        mappings = pa.concat_tables([run.read(step.calibrations) for step in steps]).to_pylist()
        rules: dict[type[Row], Rows] = {
            Calibrations: {row["calibration_id"]: row for row in mappings}.values(),
            Candidates: [],
            ReleaseRules: [rule_row(found, study.release) for found in scopes],
            LabelRisks: [row for found in scopes for row in label_rows(found, rater["rater_id"])],
        }
        run.commit(scored, RULES, rules)
        refused = {one.scope: one.refused for one in scopes if one.refused}
        for shard, batch in enumerate(run.batches(responses, ["response_id"], _BATCH)):
            name = f"{shard:05d}"
            if run.done(scored, name):
                continue
            place = _places(_told(run, steps, batch["response_id"]), of_scope)
            parts = [(step, place[place["step"] == at]) for at, step in enumerate(steps)]
            made: dict[type[Row], Rows] = {Attempts: []}
            for row, table in ((Judgments, "judgments"), (Gradings, "gradings")):
                of_steps = [_of_places(run, getattr(step, table), part) for step, part in parts]
                made[row] = pa.concat_tables(
                    _with_texts(rows, {**rater, "bundle_id": own["item_id"].map(bundle_of)}) for rows, own in of_steps
                )
            run.commit(judged, name, made)
            routed = [_routed(run, step, part, rater["rater_id"], refused) for step, part in parts]
            run.commit(scored, name, {Predictions: pa.concat_tables(routed), Escalations: _escalations(place)})
        run.commit(scored, "all", {Predictions: []})
    tables = (Calibrations, Candidates, ReleaseRules, LabelRisks, Predictions, Escalations)
    own = (run.ref(row, judged) for row in (Judgments, Gradings, Attempts))
    return CascadeTables(*own, *(run.ref(row, scored) for row in tables))


def step_costs(
    run: Run, plan: Judge, steps: Sequence[StepTables], prices: Mapping[str, Price]
) -> tuple[list[float], str]:
    """What judging an answer costs in the mean at each step, and in what: US dollars where the price of every model is
    known, else tokens, else answers. Replies that were stored count as what they once cost, calls without a reply
    nothing; of a step that was never asked nothing is known, and it counts as the dearest of the others.

    InputError where dollars are limited, and those of a step are not known.
    """
    usd = []
    tokens = []
    used = ["prompt_tokens", "completion_tokens"]
    for number, (own, step) in enumerate(zip(plan.steps, steps, strict=False), 1):
        calls = _read(run, step.attempts, ["response_id", "model", *used, "error"]).to_pandas()
        calls = calls[calls["error"].isna()]
        answers = len(pc.unique(_read(run, step.gradings, ["response_id"])["response_id"]))
        if not answers or all(map(is_free, own.jurors.values())):
            usd.append(0.0)
            tokens.append(0.0)
            continue
        is_known = len(calls) > 0 and calls[used].notna().to_numpy().all()
        tokens.append(float(calls[used].to_numpy().sum()) / answers if is_known else np.nan)
        counts = calls[used].astype(int).to_numpy().tolist() if is_known else []
        paid = [cost_of(TokenCounts(*of), prices.get(model)) for model, of in zip(calls["model"], counts, strict=False)]
        usd.append(sum(filter(None, paid)) / answers if paid and None not in paid else np.nan)
        if plan.cost_limit is not None and np.isnan(usd[-1]):
            models = sorted(set(calls["model"]) - prices.keys())
            said = ", ".join(models) if models else "some of whose replies come without their tokens,"
            raise unpriced(f"step {number} ({said})", **DOLLARS)
    asked = [float(len(own.jurors)) for own in plan.steps[: len(steps)]]
    ways = (("usd", usd), ("tokens", tokens), ("answers", asked))
    unit, costs = next((unit, costs) for unit, costs in ways if not np.isnan(costs).any())
    return [*costs, *[max(costs, default=0.0)] * (len(plan.steps) - len(steps))], unit


def rater_of(run: Run, plan: Judge, steps: Sequence[StepTables]) -> dict[str, str]:
    """Id and kind of the cascade as one rater: a digest of who its steps are. With a simulated step it is simulated."""
    raters = _raters(run, steps)
    kinds = {
        row["rater_kind"]
        for step in steps
        for row in next(run.batches(step.gradings[0], ["rater_kind"], 1)).to_pylist()
    }
    digest = text_digest("\n".join([str(len(plan.steps)), *raters]))[:12]
    return {"rater_id": f"cascade-{digest}", "rater_kind": "simulated" if "simulated" in kinds else "cascade"}


def read_limits(run: Run, limits: TableRef) -> dict[str, list[float | None]]:
    """Scope → the limit of each step."""
    found: dict[str, list[float | None]] = {}
    for row in sorted(run.read(limits).to_pylist(), key=lambda row: row["step"]):
        found.setdefault(row["scope"], []).append(row["most_risk"])
    return found


def _read(
    run: Run, refs: Sequence[TableRef], columns: list[str] | None = None, where: ds.Expression | None = None
) -> pa.Table:
    return pa.concat_tables([run.read(ref, columns, where) for ref in refs])


def _raters(run: Run, steps: Sequence[StepTables]) -> list[str]:
    return [next(run.batches(step.gradings[0], ["rater_id"], 1))["rater_id"][0].as_py() for step in steps]


def _scopes(
    run: Run, study: Study, steps: Sequence[StepTables], costs: Sequence[float], items: Sequence[str]
) -> Iterator[ScopeLimits]:
    risks = [run.read(step.label_risks).to_pandas() for step in steps]
    most = study.judge.cost_limit or np.inf
    yield from scope_limits(risks, items, costs[: len(steps)], study.release, most)


def _limit(of_scope: Mapping[str, list[float | None]], item: str) -> list[float | None]:
    """The limits of an item: its own, else those of all, else none."""
    none: list[float | None] = [None] * max(map(len, of_scope.values()), default=1)
    return of_scope.get(item) or of_scope.get(ALL) or none


def _told(run: Run, steps: Sequence[StepTables], responses: pa.Array | pa.ChunkedArray) -> dict[str, pd.DataFrame]:
    """item_id, risk, route_reason and score → by response, a column for each step from 1 on, null where it did not
    judge it; without responses that no step judged."""
    ids = responses.combine_chunks() if isinstance(responses, pa.ChunkedArray) else responses
    names = ["item_id", "risk", "route_reason", "score"]
    mine = pc.field("response_id").isin(ids)
    tables = [_read(run, step.predictions, ["response_id", *names], mine).to_pandas() for step in steps]
    by_step = {number: table.set_index("response_id") for number, table in enumerate(tables, 1)}
    told = {name: pd.DataFrame({number: of[name] for number, of in by_step.items()}) for name in names}
    known = pd.Index(ids.to_pylist(), name="response_id").intersection(told["item_id"].index, sort=False)
    return {name: of_steps.reindex(known) for name, of_steps in told.items()}


def _places(told: Mapping[str, pd.DataFrame], of_scope: Mapping[str, list[float | None]]) -> pd.DataFrame:
    """By response: `step`, from 0, whose score it has, and whether it `stopped` there; item_id; `asked`, as a list."""
    items = told["item_id"].bfill(axis=1).iloc[:, 0]
    asked, has = (told[name].notna().to_numpy() for name in ("item_id", "score"))
    count = asked.shape[1]
    limits = np.array([_limit(of_scope, item)[:count] for item in items], dtype=float).reshape(asked.shape)
    is_open = asked & ~told["route_reason"].isin(_CLOSED).to_numpy()
    stops = is_open & (told["risk"].to_numpy(float) <= limits)
    stopped = stops.any(axis=1)
    # A labelled answer was judged by steps, too, that it does not reach: the last of those that its limits ask.
    scored = asked & has & (~np.isnan(limits) | (np.arange(count) == 0))
    last = np.where(scored.any(axis=1), count - 1 - scored[:, ::-1].argmax(axis=1), 0)
    step = np.where(stopped, stops.argmax(axis=1), last)
    numbers = [np.flatnonzero(row) + 1 for row in asked]
    return pd.DataFrame({"item_id": items, "step": step, "stopped": stopped, "asked": numbers}, index=items.index)


def _of_places(run: Run, refs: Sequence[TableRef], place: pd.DataFrame) -> tuple[pa.Table, pd.DataFrame]:
    """Rows of the responses of these places, and the place of each."""
    rows = _read(run, refs, where=pc.field("response_id").isin(pa.array(place.index, pa.string())))
    return rows, place.reindex(rows["response_id"].to_pylist())


def _with_texts(rows: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """The rows with other texts in some columns: one in every row, or one each."""
    for name, texts in columns.items():
        array = pa.repeat(pa.scalar(texts), len(rows)) if isinstance(texts, str) else pa.array(texts, pa.string())
        rows = rows.set_column(rows.column_names.index(name), name, array)
    return rows


def _routed(run: Run, step: StepTables, place: pd.DataFrame, rater_id: str, refused: Mapping[str, str]) -> pa.Table:
    """Predictions of the responses of these places, as the one rater's: what stopped goes out."""
    rows, own = _of_places(run, step.predictions, place)
    reasons = []
    for out, reason, item in zip(own["stopped"], rows["route_reason"].to_pylist(), own["item_id"], strict=True):
        why = reason if reason in _CLOSED else refused.get(item) or refused.get(ALL) or "risk"
        reasons.append(None if out else why)
    route = ["release" if out else "review" for out in own["stopped"]]
    return _with_texts(rows, {"rater_id": rater_id, "route": route, "route_reason": reasons})


def _escalations(place: pd.DataFrame) -> list[dict[str, object]]:
    columns = place.assign(response_id=place.index, step=place["step"] + 1)
    return [{str(name): value for name, value in row.items()} for row in columns.to_dict("records")]
