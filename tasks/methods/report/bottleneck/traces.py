"""How single responses came by their grade: which are worth looking at, and all that is known of each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import softmax

Row = Mapping[str, Any]
BIAS = "bias"
"""The criterion id of what is added whatever the response says."""


@dataclass(frozen=True)
class ResponseTrace:
    """One response."""

    response_id: str
    text: str
    names: Mapping[str, str]
    """Concept → what people read, in order; they are numbered from 1."""
    rows: tuple[Row, ...]
    """Its rows of `traces`, in the order of the names, without the bias."""
    bias: float
    score: float
    probability: float
    logit: float
    runner_up: float | None
    human: float | None
    """The score that people gave; None where it is not known."""
    grades: Mapping[float, float]
    """Score → calibrated probability; empty where the grader's head is not known."""

    @property
    def numbers(self) -> dict[str, int]:
        """Concept → its number."""
        return {name: number for number, name in enumerate(self.names, 1)}


def exported(models: pa.Table) -> Row | None:
    """The row of `models` of the grader that was exported."""
    rows = models.filter(pc.is_valid(models["head"])).to_pylist()
    return rows[0] if rows else None


def head_of(models: pa.Table) -> Row | None:
    """What lies behind the bottleneck of that grader, see `Models.head`; None where nothing was exported."""
    best = exported(models)
    return json.loads(best["head"]) if best else None


def chosen(traces: pa.Table, models: pa.Table) -> dict[str, str]:
    """Response → why it is worth looking at: the surest right grade, the surest wrong one, the least decided.

    A response without a human grade is neither right nor wrong. Ties go by response id.
    """
    head = head_of(models)
    firsts: dict[str, Row] = {}
    shares: dict[str, dict[str, float]] = {}
    for row in traces.drop_columns(["attention"]).sort_by("response_id").to_pylist():
        firsts.setdefault(row["response_id"], row)
        if row["share"] is not None:
            shares.setdefault(row["response_id"], {})[row["criterion_id"]] = row["share"]
    margins = {name: _margin(row, grades(shares.get(name, {}), head)) for name, row in firsts.items()}
    sure = sorted(firsts, key=lambda name: -firsts[name]["probability"])
    right = [name for name in sure if is_right(firsts[name]) is True]
    wrong = [name for name in sure if is_right(firsts[name]) is False]
    reasons: dict[str, str] = {}
    for names, why in (
        (right, "the surest of the right grades"),
        (wrong, "the surest of the wrong grades"),
        (sorted(margins, key=lambda name: margins[name]), "the least decided grade"),
    ):
        if names:
            reasons[names[0]] = f"{reasons[names[0]]}, and {why}" if names[0] in reasons else why
    return reasons


def read(
    traces: pa.Table,
    response_id: str,
    text: str,
    names: Mapping[str, str],
    head: Row | None = None,
) -> ResponseTrace:
    """One response's rows of `traces` with its text. head: see `head_of`."""
    rows = {row["criterion_id"]: row for row in traces.filter(pc.field("response_id") == response_id).to_pylist()}
    concepts = tuple(rows[name] for name in names if name in rows)
    first = next(iter(rows.values()))
    shares = {row["criterion_id"]: row["share"] for row in concepts if row["share"] is not None}
    return ResponseTrace(
        response_id=response_id,
        text=text,
        names=names,
        rows=concepts,
        bias=rows[BIAS]["contribution"] if BIAS in rows else 0.0,
        score=first["score"],
        probability=first["probability"],
        logit=first["logit"],
        runner_up=first["runner_up"],
        human=first["human"],
        grades=grades(shares, head),
    )


def grades(shares: Mapping[str, float], head: Row | None) -> dict[float, float]:
    """Score → calibrated probability: softmax of (W·A·s̃ + b)/T (REC-CBM, Eqs. 20 and 22); empty where there is no head
    or a concept's share s̃ is missing."""
    if head is None or not set(head["criteria"]) <= shares.keys():
        return {}
    observed = np.array([shares[name] for name in head["criteria"]])
    logits = np.array(head["weights"]) @ (np.array(head["correction"]) @ observed) + np.array(head["bias"])
    likely: Sequence[float] = softmax(logits / head["temperature"]).tolist()
    return dict(zip(head["scores"], likely, strict=True))


def is_right(row: Row) -> bool | None:
    """Whether the grade of a row is people's; None where there is none."""
    return None if row["human"] is None else abs(row["human"] - row["score"]) < 1e-9


def _margin(row: Row, likely: Mapping[float, float]) -> float:
    """The grade's probability less that of the next; alone where that is not known."""
    ranked = sorted(likely.values(), reverse=True)
    return ranked[0] - ranked[1] if len(ranked) > 1 else row["probability"]
