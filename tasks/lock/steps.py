"""Human scores held against the steps of their scales, and the tolerance of release against the width of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tasks.contracts.bundle import Scale
from tasks.lock.people import Offence
from tasks.stats.arrays import Bools, Floats

DUST = 2e-4
"""Share of a step that a score may be off: what a short float or four decimals leave of a third."""
MOST_STEPS = 200
"""Steps of the finest scale that is proposed; scores that need more look continuous."""
SHOWN = 3


@dataclass
class Marked:
    """The human scores under one rubric, gathered over batches."""

    rubric_id: str
    scale: Scale
    count: int = 0
    between: int = 0
    """How many of them lie between steps."""
    values: set[float] = field(default_factory=set)
    first: list[Offence] = field(default_factory=list)

    def add(self, rows: pd.DataFrame) -> None:
        """rows: response_id, rater_id, score and averaged, all scored."""
        scores, single = rows["score"].to_numpy(float), ~rows["averaged"].to_numpy(bool)
        off = single & between_steps(scores, self.scale)
        self.count, self.between = self.count + len(rows), self.between + int(off.sum())
        self.values.update(np.unique(scores[single]).tolist())
        for row in rows[off].head(SHOWN - len(self.first)).itertuples():
            rule = f"rater '{row.rater_id}' gave response '{row.response_id}' {row.score:g}"
            self.first.append(Offence(str(row.response_id), str(row.rater_id), None, rule))


def marked(batches: Iterable[pd.DataFrame], rubric_of: Mapping[str, str], scales: Mapping[str, Scale]) -> list[Marked]:
    """The human scores of every rubric that has any.

    batches: response_id, item_id, rater_id, score and averaged, whether it is a recorded mean of several persons, which
    may lie between steps; rubric_of: item → its rubric; scales: of the rubrics.
    """
    gathered = {name: Marked(name, scale) for name, scale in scales.items()}
    for batch in batches:
        scored = batch[batch["score"].notna()]
        for name, rows in scored.groupby(scored["item_id"].map(rubric_of), sort=False):
            gathered[str(name)].add(rows)
    return [marks for marks in gathered.values() if marks.count]


def between_steps(scores: Floats, scale: Scale) -> Bools:
    """Which scores lie on no step of a scale."""
    steps = (scores - scale.min) / scale.step
    return np.asarray(np.abs(steps - np.rint(steps)) > DUST)


def widest_step(values: Floats, scale: Scale) -> float | None:
    """The widest step of a scale with these ends that holds all values; None where that takes more than MOST_STEPS."""
    for count in range(1, MOST_STEPS + 1):
        finer = Scale(min=scale.min, max=scale.max, step=(scale.max - scale.min) / count)
        if not between_steps(values, finer).any():
            return finer.step
    return None


def off_step(gathered: Sequence[Marked]) -> tuple[Offence, str] | None:
    """The first score between steps, its rule with the count and further ones, and what to do; None where all fit.

    What a person gave between steps is another score on the scale's grid, and a tolerance in steps takes both for the
    same.
    """
    marks = next((marks for marks in gathered if marks.first), None)
    if marks is None:
        return None
    scale = marks.scale
    shown = ", ".join(offence.rule for offence in marks.first) + (", …" if marks.between > SHOWN else "")
    rule = (
        f"{marks.between:,} of {marks.count:,} human scores lie between the steps of rubric '{marks.rubric_id}', "
        f"{scale.min:g} to {scale.max:g} in steps of {scale.step:g}: {shown}"
    )
    values = set().union(*(same.values for same in gathered if same.scale == scale))
    step = widest_step(np.array(sorted(values)), scale)
    fits = f"scale {{min: {scale.min:g}, max: {scale.max:g}, step: {step or 0:.12g}}} holds them all"
    none_fits = f"they look continuous, no scale of up to {MOST_STEPS} steps holds them: round them to steps"
    hint = f"{fits if step else none_fits}; of a column that is a mean of several persons, say 'averaged: true'"
    return marks.first[0]._replace(rule=rule), hint


def too_tolerant(tolerance: float, marks: Marked) -> tuple[str, str] | None:
    """The rule that a tolerance in steps breaks under which no score could be wrong, and what to do."""
    scale, steps = marks.scale, marks.scale.levels - 1
    if tolerance < steps:
        return None
    rule = (
        f"a tolerance of {tolerance:g} steps is as wide as the scale of rubric '{marks.rubric_id}', "
        f"{scale.min:g} to {scale.max:g} in steps of {scale.step:g}: no score could be wrong"
    )
    return rule, f"give at most {steps - 1}, or give the scale finer steps"
