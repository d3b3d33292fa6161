"""The mask-based grounding audit: what each step of a rollout leans on (Eqs. 3-4).

Whether the grounding audit measures what it should (appendix D).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import mannwhitneyu

from rubricflow.tasks.core.contracts.tables.edit import Signal, Unit
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import cluster_sums
from rubricflow.tasks.methods.edit.belief import pieces
from rubricflow.tasks.methods.edit.policy import Masked, Policy, Prompts
from rubricflow.tasks.methods.edit.rollout import Sample
from rubricflow.tasks.methods.edit.tree import Tree, score

_BINS = 10
_MASKS: tuple[Masked, ...] = ("none", "scheme", "answer")


class Support(NamedTuple):
    """How much harder each of T steps is to predict without a source, in nats; shapes (T,)."""

    scheme: Floats
    """G^ρ (G rho): with the mark scheme masked."""
    answer: Floats
    """G^a: with the student's answer masked."""
    prefix: Floats
    """G^p: without the steps before it; 0 for the first one."""


def supports(policy: Policy, prompts: Prompts, cases: Sequence[tuple[Sample, str]]) -> list[Support]:
    """The support scores of every rollout's steps (Eq. 3): differences of −log p summed over a step's tokens, as
    printed.

    A rollout is one tree: the three prompts share what they begin with, each has all steps below it, and below the full
    prompt each step also stands alone. InputError for a rollout longer than the model reads; BackendError for a model
    that reads no trees.
    """
    audits = [_audit(policy, prompts, *case) for case in cases]
    with policy.reading():
        sums = score(policy.model, [audit.tree for audit in audits])
    measured = []
    for audit, values in zip(audits, sums, strict=True):
        full, scheme, answer, alone = (-values[nodes] for nodes in audit.steps)
        measured.append(Support(scheme - full, answer - full, alone - full))
    return measured


def residual(prefixes: Sequence[Floats]) -> list[Floats]:
    """G̃^p (Eq. 4): prefix support of every rollout, shapes (T_i,), without its mean over the data set at the same
    relative position u = k/T_i.

    Among few rollouts a fraction is nearly alone with its mean, so here positions are the same if they lie in the same
    tenth: (0, 0.1], …, (0.9, 1].
    """
    counts = [len(values) for values in prefixes]
    if not sum(counts):
        return [np.zeros(0) for _ in counts]
    # In whole numbers: the tenth of k/T is ⌈10 k/T⌉ − 1.
    tenths = np.concatenate([(_BINS * np.arange(1, count + 1) - 1) // count for count in counts if count])
    values = np.concatenate(prefixes)
    sizes = np.bincount(tenths, minlength=_BINS)
    means = np.bincount(tenths, values, _BINS) / np.maximum(sizes, 1)
    return np.split(values - means[tenths], np.cumsum(counts)[:-1])


class _Audit(NamedTuple):
    """The contexts of one rollout as a tree."""

    tree: Tree
    steps: tuple[list[int], list[int], list[int], list[int]]
    """The nodes of its steps: in the full context, without scheme, without answer, and alone."""


def _audit(policy: Policy, prompts: Prompts, sample: Sample, text: str) -> _Audit:
    tree = Tree(sample.response_id)
    steps = [policy.ids(piece) for piece in pieces(text)]
    contexts = tree.branch(_prompts(policy, prompts, sample))
    chains = []
    for context in contexts:
        chain, node = [], context
        for ids in steps:
            node = tree.add(ids, node, scored=True)
            chain.append(node)
        chains.append(chain)
    full, scheme, answer = chains
    alone = full[:1] + [tree.add(ids, contexts[0], scored=True) for ids in steps[1:]]
    return _Audit(tree, (full, scheme, answer, alone))


def _prompts(policy: Policy, prompts: Prompts, sample: Sample) -> list[list[int]]:
    """Tokens of the grading prompt as it is, without the scheme, and without the answer."""
    return [policy.prompt_ids(prompts.grade(sample, masked)) for masked in _MASKS]


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
