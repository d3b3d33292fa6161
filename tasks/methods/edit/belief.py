"""What the policy's probabilities say of a rollout: the mark that it believes in, and what each step leans on.

The posterior belief probe (Eqs. 1-2): the scaffold "Final mark: " is put after the prompt and the first k steps, and
the mark read off the next tokens. The marks' tokens are those of the whole line, so that any tokenizer is met: what all
marks' lines begin with is the scaffold, the rest of each is its candidate. Where every candidate is one token, Eq. 1 as
printed. Where some are longer ("12" in digits), the probability of all a candidate's tokens and of the end-of-sequence
token after them, so that "1" does not stand for "12" as well.

The mask-based grounding audit (Eqs. 3-4), and whether it measures what it should (appendix D).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain
from typing import Literal, NamedTuple, Protocol

import numpy as np
from scipy.special import softmax
from scipy.stats import mannwhitneyu

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.contracts.tables.edit import Signal
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.bootstrap import cluster_sums
from rubricflow.tasks.methods.edit.policy import Masked, Policy, Prompts, shared
from rubricflow.tasks.methods.edit.rollout import SCAFFOLD, Sample, cut, states_mark
from rubricflow.tasks.methods.edit.tree import ROOT, Tree, score

LONGEST = 8
"""Tokens in which a mark lies."""
_BRANCHES = 2048
"""Tokens of branches in one tree, or as many as its trunk has: each looks past all others, which costs their square."""
_BINS = 10
_MASKS: tuple[Masked, ...] = ("none", "scheme", "answer")
_SENTENCE_ENDS = re.compile(r"[.!?)\"”。！？]\s*$")
_TO_LINE_END = re.compile(r"\s*\n")
Label = Literal["grounding", "synthesis"]
"""grounding: a judgement read off the answer against the scheme; synthesis: a step that puts earlier ones together."""
HIGHER: Mapping[Signal, Label] = {
    "answer": "grounding",
    "scheme": "grounding",
    "prefix": "synthesis",
    "prefix_residual": "synthesis",
}
"""Which steps are expected to lean more on each source."""


def beliefs(policy: Policy, prompts: Prompts, cases: Sequence[tuple[Sample, str]]) -> list[Floats]:
    """p̂ of every sample's rollout, shape (T + 1, M_q + 1): row k is the belief after k steps (Eq. 1); rows sum to 1.

    All boundaries of a rollout are branches of one tree, read in one pass with those of other rollouts. InputError
    for a rollout longer than the model reads; BackendError for a model that reads no trees, or a tokenizer that does
    not tell marks apart.
    """
    lines = cache(partial(mark_lines, policy))
    probes_of = [_probes(policy, prompts, lines, *case) for case in cases]
    with policy.reading():
        sums = iter(score(policy.model, [tree for tree, _ in chain.from_iterable(probes_of)]))
    believed = []
    for probes in probes_of:
        parts = []
        for tree, ends in probes:
            totals = next(sums).copy()
            for number, node in enumerate(tree.nodes):
                if node.parent != ROOT:
                    totals[number] += totals[node.parent]
            parts.append(softmax(totals[np.array(ends)], axis=-1))
        believed.append(np.concatenate(parts))
    return believed


def expected(p: Floats) -> Floats:
    """m̂ of beliefs (…, M + 1): the mean mark, shape (…), in [0, M]. Eq. 6 writes it m̄."""
    mean: Floats = p @ np.arange(p.shape[-1], dtype=np.float64)
    return mean


def error(p: Floats, gold: int) -> Floats:
    """ε (epsilon) of beliefs (…, M + 1), shape (…): the mean of |m − m*| over the belief, in marks (section 2.1).

    The paper prints the mean mark in m's place, of which no mean could be taken.
    """
    mean: Floats = p @ np.abs(np.arange(p.shape[-1], dtype=np.float64) - gold)
    return mean


def change(errors: Floats) -> Floats:
    """Δε (delta epsilon) of errors (T + 1,), shape (T,): ε_{k−1} − ε_k, positive where step k brought the belief nearer
    to the gold mark (Eq. 2)."""
    return -np.diff(errors)


def pieces(text: str) -> list[str]:
    """The steps as the model reads them, T texts that joined are the reasoning as written.

    A piece ends with the line breaks after its step, and begins with the blanks before it: so most tokenizers cut the
    whole text, so a step reads the same without those before it, and so the scaffold after it begins on a line.

    >>> pieces("P1 is met.\\nP2 is not. So one.\\nFinal mark: 1"), pieces("Met. Not.")
    (['P1 is met.\\n', 'P2 is not. So one.\\n'], ['Met.', ' Not.'])
    """
    texts, begin = [], 0
    for step in cut(text):
        after = _TO_LINE_END.match(text, step.end)
        end = after.end() if after else step.end
        texts.append(text[begin:end])
        begin = end
    return texts


class MarkLines(NamedTuple):
    """The tokens of the lines that state the marks 0…M."""

    scaffold: list[int]
    """What all begin with."""
    candidates: list[list[int]]
    """The rest of each; with the end-of-sequence token where some are several tokens."""


def mark_lines(policy: Policy, top: int, lead: str) -> MarkLines:
    """The lines of the marks 0…top. lead: a line break where the text before them does not end with one."""
    lines = [policy.ids(f"{lead}{SCAFFOLD}{mark}") for mark in range(top + 1)]
    if len(set(map(tuple, lines))) <= top:
        raise BackendError(f"the tokenizer of '{policy.name}' does not tell the marks 0 to {top} apart")
    common = shared(lines)
    candidates = [line[common:] for line in lines]
    if any(len(candidate) != 1 for candidate in candidates):
        candidates = [[*candidate, policy.tokenizer.eos_token_id] for candidate in candidates]
    return MarkLines(lines[0][:common], candidates)


def _probes(
    policy: Policy, prompts: Prompts, lines: Callable[[int, str], MarkLines], sample: Sample, text: str
) -> list[tuple[Tree, list[list[int]]]]:
    """The boundaries of a rollout in trees whose branches together are no longer than they may be, and for each
    boundary the node that every candidate ends in."""
    steps = pieces(text)
    runs = [policy.prompt_ids(prompts.grade(sample)), *map(policy.ids, steps)]
    marks = [lines(sample.top, "" if not step or step.endswith("\n") else "\n") for step in ("", *steps)]
    sizes = [len(scaffold) + sum(map(len, candidates)) for scaffold, candidates in marks]
    tree_of = np.cumsum(sizes) // max(_BRANCHES, sum(map(len, runs)))
    probes = []
    for number in np.unique(tree_of):
        tree = Tree(sample.response_id)
        ends = []
        node = ROOT
        for run, (scaffold, candidates), own in zip(runs, marks, tree_of, strict=True):
            if own <= number:
                node = tree.add(run, node)
            if own == number:
                ends.append(tree.branch(candidates, tree.add(scaffold, node), scored=True))
        probes.append((tree, ends))
    return probes


# A piece of grading that states no mark is closed: the scaffold of the belief probe (section 2.1) is put after its
# last whole line, and the policy adds the mark that it believes in.


class Write(Protocol):
    """How the policy is asked; `Policy.write` is one."""

    def __call__(
        self,
        prompts: Sequence[str],
        *,
        begun: Sequence[str] | None = None,
        temperature: float = 0.0,
        max_tokens: int = 512,
        seed: int = 0,
    ) -> list[str]: ...


class ClosedReply(NamedTuple):
    """What the policy wrote to a grading prompt."""

    text: str
    closed: bool
    """Whether it stated no mark by itself."""


def closed(
    write: Write, prompts: Sequence[str], replies: Sequence[str], begun: Sequence[str] = ()
) -> list[ClosedReply]:
    """The replies in their order, those without a mark closed by what the policy greedily adds.

    begun: what each reply goes on from; nothing where there are none. A reply that states a mark off the scale has
    stated one, and stays. One that is closed may still end without a mark: where the policy adds no number.
    """
    starts = list(begun) or [""] * len(prompts)
    lines = {}
    for place, reply in enumerate(replies):
        if not states_mark(reply):
            lines[place] = up_to_scaffold(starts[place], reply)
    beginnings = [starts[place] + line for place, line in lines.items()]
    marks = write([prompts[place] for place in lines], begun=beginnings, max_tokens=LONGEST) if lines else []
    found = [ClosedReply(reply, False) for reply in replies]
    for (place, line), mark in zip(lines.items(), marks, strict=True):
        found[place] = ClosedReply(line + mark.split("\n", 1)[0], True)
    return found


def up_to_scaffold(begun: str, reply: str) -> str:
    """A reply with the scaffold on a line of its own, without a last line that was broken off.

    >>> up_to_scaffold("", "P1 is met.\\nP2 is no"), up_to_scaffold("P1 is met.\\n", "")
    ('P1 is met.\\nFinal mark:', 'Final mark:')
    """
    before, line_break, _ = reply.rpartition("\n")
    if before.strip() and not _SENTENCE_ENDS.search(reply):
        reply = before + line_break
    text = begun + reply
    lead = "" if not text or text.endswith("\n") else "\n"
    return f"{reply}{lead}{SCAFFOLD.rstrip()}"


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
    trees, chains_of = [], []
    for sample, text in cases:
        tree = Tree(sample.response_id)
        steps = [policy.ids(piece) for piece in pieces(text)]
        contexts = tree.branch([policy.prompt_ids(prompts.grade(sample, masked)) for masked in _MASKS])
        chains = []
        for context in contexts:
            nodes = [context]
            for ids in steps:
                nodes.append(tree.add(ids, nodes[-1], scored=True))
            chains.append(nodes[1:])
        chains.append(chains[0][:1] + [tree.add(ids, contexts[0], scored=True) for ids in steps[1:]])
        trees.append(tree)
        chains_of.append(chains)
    with policy.reading():
        sums = score(policy.model, trees)
    measured = []
    for chains, values in zip(chains_of, sums, strict=True):
        full, scheme, answer, alone = (-values[nodes] for nodes in chains)
        measured.append(Support(scheme - full, answer - full, alone - full))
    return measured


def residual(prefixes: Sequence[Floats]) -> list[Floats]:
    """G̃^p (Eq. 4): prefix support of every rollout, shapes (T_i,), without its mean over the data set at the same
    relative position u = k/T_i.

    Among few rollouts a fraction is nearly alone with its mean, so here positions are the same if they lie in the same
    tenth: (0, 0.1], …, (0.9, 1].
    """
    if not prefixes:
        return []
    counts = [len(values) for values in prefixes]
    # In whole numbers: the tenth of k/T is ⌈10 k/T⌉ − 1.
    tenths = np.concatenate([(_BINS * np.arange(1, count + 1) - 1) // max(count, 1) for count in counts])
    values = np.concatenate(prefixes)
    sizes = np.bincount(tenths, minlength=_BINS)
    means = np.bincount(tenths, values, _BINS) / np.maximum(sizes, 1)
    return np.split(values - means[tenths], np.cumsum(counts)[:-1])


def separations(labels: Sequence[Label], signals: Mapping[Signal, Floats], rollouts: Sequence[str]) -> Iterator[Record]:
    """Table 8: how each signal tells the two kinds of step apart, in the expected direction, by steps and by rollouts'
    means, which are not dependent; rows of `separations` without the seed.

    labels, rollouts: (steps,) of all rollouts together; signals: each (steps,), finite. effect: rank-biserial r, the
    share of pairs in the expected order less the share against it, −1…1; p: one-sided Mann-Whitney U; both None where a
    kind has no steps.
    """
    kinds = np.asarray(labels, dtype=object)
    names = np.asarray(rollouts, dtype=object)
    for signal, values in signals.items():
        high = HIGHER[signal]
        low: Label = "synthesis" if high == "grounding" else "grounding"
        steps = {kind: values[kinds == kind] for kind in (high, low)}
        means = {}
        for kind, own in steps.items():
            total, n = cluster_sums(np.stack([own, np.ones_like(own)], axis=1), names[kinds == kind]).T
            means[kind] = total / n
        for unit, sides in (("step", steps), ("rollout", means)):
            row: Record = {kind: len(values) for kind, values in sides.items()}
            row |= {"effect": None, "p": None}
            if len(sides[high]) and len(sides[low]):
                test = mannwhitneyu(sides[high], sides[low], alternative="greater")
                pairs = len(sides[high]) * len(sides[low])
                row |= {"effect": float(2 * test.statistic / pairs - 1), "p": float(test.pvalue)}
            yield {"signal": signal, "unit": unit, **row}
