"""Wrong rollouts, step by step: what the policy believed, what selection did with each step, and what mended it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tasks.contracts.tables.edit import FATES
from tasks.display import say
from tasks.display.section import Drawing
from tasks.display.table import Cell, Cells, Table
from tasks.report.edit.charts import Belief, beliefs
from tasks.report.edit.figures import EditView, Key

MENDED, LOST = 3, 1
"""Rollouts shown: of those that were mended, and of those whose revision came to nothing."""
STEPS, LENGTH = 40, 600
"""Steps of a rollout in a table at most, and characters of a step."""
Record = Mapping[str, Any]


class RevisedCase(NamedTuple):
    """A wrong rollout with its revision."""

    rollout: Record
    steps: list[Record]
    """Boundaries 0…T."""
    revision: Record
    mended: list[Record]
    """Boundaries of the mended rollout; empty where there is none."""


def needs_texts(revisions: pa.Table) -> list[Key]:
    """The rollouts whose text the page shows: those of Edit-SFT's first seed that were mended, and one that was not,
    each by its best revision that was kept, else taken."""
    order = [(name, "ascending") for name in ("seed", "response_id", "sample", "rank")]
    rows = revisions.filter(pc.equal(revisions["arm"], "edit_sft")).sort_by(order).to_pylist()
    keys = dict.fromkeys(_key(row) for row in rows if row["sub_steps"])
    mended_keys = {_key(row) for row in rows if row["kept"]}
    mended = [key for key in keys if key in mended_keys]
    lost = [key for key in keys if key not in mended_keys]
    return [*mended[:MENDED], *lost[:LOST]]


def drawings(view: EditView) -> Iterator[Drawing]:
    """The belief along each rollout shown, and along what it was mended to."""
    for case in _cases(view):
        row = case.rollout
        stated = "no mark" if row["mark"] is None else f"mark {row['mark']}"
        label = f"as written: {stated}"
        mended = Belief("mended", tuple(step["expected"] for step in case.mended)) if case.mended else None
        written = Belief(label, tuple(step["expected"] for step in case.steps))
        chosen = [step["step"] for step in case.steps if step["fate"] == "chosen"]
        title = f"{_rollout_title(row)}: {stated}, gold {row['gold']}, {_outcome(case)}"
        yield Drawing(title, beliefs(title, written, mended, row["gold"], row["top"], chosen))


def tables(view: EditView) -> Iterator[Table]:
    """The steps of each rollout shown."""
    header = ("Step", "expected mark", "Δε", "scheme G", "answer G", "prefix G̃", "selection")
    for index, case in enumerate(_cases(view)):
        text = view.texts[_key(case.rollout)]
        rows: list[Cells] = []
        for step in case.steps[1 : STEPS + 1]:
            rows += _rows(step, text, case.revision)
        unshown = len(case.steps) - 1 - STEPS
        notes = (f"{say.plural(unshown, 'more step')} in the table `steps`.",) if unshown > 0 else ()
        yield Table(f"case-{index}", f"{_rollout_title(case.rollout)}, {_outcome(case)}", header, tuple(rows), notes)


def _cases(view: EditView) -> Iterator[RevisedCase]:
    keys = needs_texts(view.revisions)
    names = pa.array([key[1] for key in keys], pa.string())

    def of_shown(table: pa.Table) -> list[Record]:
        return [row for row in table.filter(pc.is_in(table["response_id"], names)).to_pylist() if _key(row) in keys]

    steps = sorted(of_shown(view.steps), key=lambda row: row["step"])
    revisions = [row for row in of_shown(view.revisions) if row["arm"] == "edit_sft" and row["sub_steps"]]
    rollouts = {_key(row): row for row in of_shown(view.rollouts) if (row["arm"], row["part"]) == ("base", "train")}
    for key in keys:
        boundaries = [row for row in steps if (_key(row), row["arm"]) == (key, "base")]
        mended = [row for row in steps if (_key(row), row["arm"]) == (key, "edit_sft")]
        if key in rollouts and key in view.texts and boundaries:
            of_rollout = [row for row in revisions if _key(row) == key]
            best = min(of_rollout, key=lambda row: (not row["kept"], row["rank"]))
            yield RevisedCase(rollouts[key], boundaries, best, mended)


def _rows(step: Record, text: str, revision: Record) -> Iterator[Cells]:
    """A step, and below it what replaced it."""
    values = ("expected", "change", "grounding_scheme", "grounding_answer", "prefix_residual")
    fate = FATES.get(step["fate"], "not looked at")
    words = _shown(text[step["start"] : step["end"]])
    yield f"{step['step']}. {words}", *(Cell(step[name], digits=2) for name in values), fate
    if step["step"] == revision["step"]:
        for sub in revision["sub_steps"]:
            yield f"→ {_shown(sub)}", *(Cell(None) for _ in values), "in its place"


def _outcome(case: RevisedCase) -> str:
    reached = sum(mark == case.rollout["gold"] for mark in case.revision["marks"])
    return f"{reached} of {say.plural(len(case.revision['marks']), 'continuation')} of the revision reach it"


def _rollout_title(row: Record) -> str:
    return f"{say.name(row['response_id'])}, rollout {row['sample']}, seed {row['seed']}"


def _shown(text: str) -> str:
    return say.cut(say.visible(text), LENGTH)


def _key(row: Record) -> Key:
    return row["seed"], row["response_id"], row["sample"]
