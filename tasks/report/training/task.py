"""The door of the training report: what a trainer's rewards were recorded as, in; a page, out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from tasks.contracts.tables.data import Responses
from tasks.contracts.tables.reward import EdgeCases, Rewards
from tasks.report.training.view import TrainingView, page
from tasks.store.warehouse import Run


def write_training(run: Run) -> Path:
    """Write `<run>/training.html` from what was recorded until now; StoreError where nothing was."""
    columns = ["response_id", "item_id", "aggregation", "reward"]
    responses = run.read(run.ref(Responses, "trainer"), ["response_id", "item_id", "text", "groups"])
    view = TrainingView(
        run_id=run.run_id,
        rewards=run.read(run.ref(Rewards, "curves"), columns).to_pandas(),
        responses=_with_steps(responses.to_pylist(maps_as_pydicts="strict")),
        cases=run.read(run.ref(EdgeCases, "curves"), ["response_id", "relation", "leaked"]).to_pandas(),
    )
    path = run.folder / "training.html"
    run.warehouse.write(path, page(view).encode())
    return path


def _with_steps(rows: list[dict[str, object]]) -> pd.DataFrame:
    """Rollouts with the step of the training that each was made in, None where it is not known."""
    texts = [{name: row[name] for name in ("response_id", "item_id", "text")} for row in rows]
    steps = [dict(row["groups"]).get("step") for row in rows]  # type: ignore[call-overload]
    return pd.DataFrame(texts).assign(step=pd.to_numeric(pd.Series(steps, dtype=object), errors="coerce"))
