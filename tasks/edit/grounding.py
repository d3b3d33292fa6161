"""The mask-based grounding audit: what each step of a rollout leans on (Eqs. 3-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tasks.edit.belief import pieces
from tasks.edit.policy import Policy
from tasks.edit.prompt import Masked, Prompts
from tasks.edit.rollout import Sample
from tasks.edit.tree import Tree, score
from tasks.stats.arrays import Floats

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
