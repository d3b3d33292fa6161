"""What stands of the earlier run that a study keeps of."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow.compute as pc
import pyarrow.dataset as ds

from tasks.contracts.errors import InputError
from tasks.contracts.protocols import PROTOCOLS, protocols_where
from tasks.contracts.reference import TableRef
from tasks.contracts.settings.judge import Judge
from tasks.contracts.tables.data import Items, Responses
from tasks.contracts.tables.judging import Judgments
from tasks.contracts.tables.rubrics import Bundles
from tasks.judge import keep
from tasks.judge.rows import Case
from tasks.judge.tables import sheets_of
from tasks.store.recorded import read_manifest
from tasks.store.warehouse import Run

_KEPT_OF = ((Judgments, "judge"), (Responses, "ingest"), (Items, "ingest"), (Bundles, "lock"))


def keeping_of(run: Run, plan: Judge, rater_id: str) -> Callable[[list[Case]], list[Case]]:
    """Gives cases what stands of the run that the study keeps of; the same cases where it keeps of none.

    InputError for a protocol of which single decisions cannot stand, a run that is not there, and another rater.
    """
    if plan.keep is None:
        return lambda cases: cases
    earlier = _earlier(run, plan, plan.keep)
    judgments, responses, items, bundles = (earlier.ref(row, stage) for row, stage in _KEPT_OF)
    _same_rater(earlier, judgments, plan, rater_id)
    sheets = sheets_of(earlier, items, bundles)
    earlier_items = {}
    for name, (row, bundle, _) in sheets.items():
        earlier_items[name] = keep.Earlier(bundle, row["question"], row["context"])

    def keeping(cases: list[Case]) -> list[Case]:
        mine = ds.field("response_id").isin([case.response_id for case in cases])
        rows = earlier.read(responses, ["response_id", "text"], mine)
        texts = dict(zip(rows["response_id"].to_pylist(), rows["text"].to_pylist(), strict=True))
        return keep.with_kept(cases, earlier_items, texts, earlier.read(judgments, where=mine).to_pylist())

    return keeping


def _earlier(run: Run, plan: Judge, run_id: str) -> Run:
    """The run that is kept of."""
    if not PROTOCOLS[plan.protocol].keeps_decisions:
        rule = f"protocol '{plan.protocol}' decides no single criteria"
        names = protocols_where(lambda protocol: protocol.keeps_decisions)
        raise InputError(rule, field="judge.keep", hint=f"use {names}")
    if run_id not in run.warehouse.runs():
        there = f"there are {', '.join(run.warehouse.runs()) or 'none'}"
        raise InputError(f"the warehouse holds no finished run '{run_id}'", field="judge.keep", hint=there)
    return run.warehouse.run(run_id)


def _same_rater(earlier: Run, judgments: TableRef, plan: Judge, rater_id: str) -> None:
    differing = keep.differing(read_manifest(earlier)["identity"]["study"]["judge"], plan)
    raters = pc.unique(earlier.read(judgments, ["rater_id"])["rater_id"]).to_pylist()
    others = [name for name in raters if name != rater_id]
    if differing or others:
        settings = f"it differs in {', '.join(differing)}"
        hint = settings if differing else f"that was '{others[0]}', this is '{rater_id}'"
        raise InputError(f"run '{plan.keep}' was judged by another rater", field="judge.keep", hint=hint)
