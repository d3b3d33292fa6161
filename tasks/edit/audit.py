"""Whether the grounding audit measures what it should (appendix D)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import mannwhitneyu

from tasks.contracts.tables.edit import Signal, Unit
from tasks.stats.arrays import Floats
from tasks.stats.bootstrap import cluster_sums

Label = Literal["grounding", "synthesis"]
"""grounding: a judgement read off the answer against the scheme; synthesis: a step that puts earlier ones together."""
HIGHER: Mapping[Signal, Label] = {
    "answer": "grounding",
    "scheme": "grounding",
    "prefix": "synthesis",
    "prefix_residual": "synthesis",
}
"""Which steps are expected to lean more on each source."""


class Separation(NamedTuple):
    """How a signal tells the two kinds of step apart, in the expected direction."""

    signal: Signal
    unit: Unit
    """What is compared: steps, or each rollout's mean over its steps of a kind, which are not dependent."""
    effect: float | None
    """Rank-biserial r: the share of pairs in the expected order less the share against it, −1…1."""
    p: float | None
    """One-sided Mann-Whitney U; None, as the effect, where a kind has no steps."""
    grounding: int
    """Steps or means of this kind."""
    synthesis: int


def separations(
    labels: Sequence[Label], signals: Mapping[Signal, Floats], rollouts: Sequence[str]
) -> Iterator[Separation]:
    """Table 8, for each signal by steps and by rollouts' means. labels, rollouts: (steps,) of all rollouts together;
    signals: each (steps,), finite. ValueError on other lengths or values that are not finite."""
    kinds = np.asarray(labels, dtype=object)
    for signal, values in signals.items():
        if values.shape != kinds.shape or len(rollouts) != len(kinds) or not np.isfinite(values).all():
            raise ValueError(f"signal '{signal}' needs one finite value for each of {len(kinds)} labelled steps")
        steps = {kind: values[kinds == kind] for kind in ("grounding", "synthesis")}
        yield _separation(signal, "step", steps["grounding"], steps["synthesis"])
        names = np.asarray(rollouts, dtype=object)
        means = {kind: _means(values[kinds == kind], names[kinds == kind]) for kind in ("grounding", "synthesis")}
        yield _separation(signal, "rollout", means["grounding"], means["synthesis"])


def _means(values: Floats, rollouts: npt.NDArray[np.object_]) -> Floats:
    if not len(values):
        return values
    total, n = cluster_sums(np.stack([values, np.ones_like(values)], axis=1), rollouts).T
    return np.asarray(total / n)


def _separation(signal: Signal, unit: Unit, grounding: Floats, synthesis: Floats) -> Separation:
    sizes = len(grounding), len(synthesis)
    if not all(sizes):
        return Separation(signal, unit, None, None, *sizes)
    high, low = (grounding, synthesis) if HIGHER[signal] == "grounding" else (synthesis, grounding)
    test = mannwhitneyu(high, low, alternative="greater")
    return Separation(signal, unit, float(2 * test.statistic / (sizes[0] * sizes[1]) - 1), float(test.pvalue), *sizes)
