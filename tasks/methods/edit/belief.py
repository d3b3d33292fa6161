"""The posterior belief probe: what the policy believes the mark to be at every boundary between steps (Eqs. 1-2).

The scaffold "Final mark: " is put after the prompt and the first k steps, and the mark read off the next tokens. The
marks' tokens are those of the whole line, so that any tokenizer is met: what all marks' lines begin with is the
scaffold, the rest of each is its candidate. Where every candidate is one token, Eq. 1 as printed. Where some are
longer ("12" in digits), the probability of all a candidate's tokens and of the end-of-sequence token after them, so
that "1" does not stand for "12" as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from rubricflow.tasks.core.contracts.errors import BackendError
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.methods.edit.policy import Policy, Prompts
from rubricflow.tasks.methods.edit.rollout import SCAFFOLD, Sample, cut, states_mark
from rubricflow.tasks.methods.edit.tree import ROOT, Tree, score, shared

LONGEST = 8
"""Tokens in which a mark lies."""
_SENTENCE_ENDS = re.compile(r"[.!?)\"”。！？]\s*$")


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


_BRANCHES = 2048
"""Tokens of branches in one tree, or as many as its trunk has: each looks past all others, which costs their square."""
_TO_LINE_END = re.compile(r"\s*\n")


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


def beliefs(policy: Policy, prompts: Prompts, cases: Sequence[tuple[Sample, str]]) -> list[Floats]:
    """p̂ of every sample's rollout, shape (T + 1, M_q + 1): row k is the belief after k steps (Eq. 1); rows sum to 1.

    All boundaries of a rollout are branches of one tree, read in one pass beside those of other rollouts. InputError
    for a rollout longer than the model reads; BackendError for a model that reads no trees, or a tokenizer that does
    not tell marks apart.
    """
    lines = _Lines(policy)
    probes_of = [_probes(_reading(policy, prompts, lines, *case), case[0]) for case in cases]
    with policy.reading():
        sums = iter(score(policy.model, [probe.tree for probe in chain.from_iterable(probes_of)]))
    believed = []
    for probes in probes_of:
        parts = [_weighed(probe, next(sums)) for probe in probes]
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


class _MarkLines(NamedTuple):
    """The tokens of the lines that state the marks 0…M."""

    scaffold: list[int]
    """What all begin with."""
    candidates: list[list[int]]
    """The rest of each; with the end-of-sequence token where some are several tokens."""


class _Lines:
    """Tokens of the mark lines by highest mark, made once."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._cache: dict[tuple[int, str], _MarkLines] = {}

    def after(self, text: str, top: int) -> _MarkLines:
        """The lines that go on after this text, on a line of their own; after nothing at the start of the reply."""
        lead = "\n" if text and not text.endswith("\n") else ""
        if (top, lead) not in self._cache:
            lines = [self._policy.ids(f"{lead}{SCAFFOLD}{mark}") for mark in range(top + 1)]
            if len(set(map(tuple, lines))) <= top:
                raise BackendError(f"the tokenizer of '{self._policy.name}' does not tell the marks 0 to {top} apart")
            common = shared(lines)
            candidates = [line[common:] for line in lines]
            if any(len(candidate) != 1 for candidate in candidates):
                candidates = [[*candidate, self._policy.tokenizer.eos_token_id] for candidate in candidates]
            self._cache[top, lead] = _MarkLines(lines[0][:common], candidates)
        return self._cache[top, lead]


class _Reading(NamedTuple):
    """A rollout as the probe reads it."""

    pieces: list[list[int]]
    """T + 1 runs of tokens: the prompt, then each step."""
    marks: list[_MarkLines]
    """The mark lines after each."""


class _Probe(NamedTuple):
    """Some boundaries of a rollout as one tree."""

    tree: Tree
    ends: list[list[int]]
    """For each boundary the node that each candidate ends in."""


def _reading(policy: Policy, prompts: Prompts, lines: _Lines, sample: Sample, text: str) -> _Reading:
    steps = pieces(text)
    return _Reading(
        [policy.prompt_ids(prompts.grade(sample)), *map(policy.ids, steps)],
        [lines.after(piece, sample.top) for piece in ["", *steps]],
    )


def _probes(reading: _Reading, sample: Sample) -> list[_Probe]:
    """The boundaries of a rollout in trees whose branches are no longer together than they may be."""
    sizes = [len(marks.scaffold) + sum(map(len, marks.candidates)) for marks in reading.marks]
    tree_of = np.cumsum(sizes) // max(_BRANCHES, sum(map(len, reading.pieces)))
    starts = [*np.flatnonzero(np.diff(tree_of, prepend=-1)).tolist(), len(sizes)]
    return [_probe(reading, sample, begin, end) for begin, end in pairwise(starts)]


def _probe(reading: _Reading, sample: Sample, begin: int, end: int) -> _Probe:
    """The boundaries from begin to before end."""
    tree, ends, node = Tree(sample.response_id), [], ROOT
    for k, (piece, marks) in enumerate(zip(reading.pieces[:end], reading.marks, strict=False)):
        node = tree.add(piece, node)
        if k >= begin:
            ends.append(tree.branch(marks.candidates, tree.add(marks.scaffold, node), scored=True))
    return _Probe(tree, ends)


def _weighed(probe: _Probe, sums: Floats) -> Floats:
    """(boundaries, M + 1) beliefs: what lies on the way to each candidate, normalised."""
    totals = sums.copy()
    for number, node in enumerate(probe.tree.nodes):
        if node.parent != ROOT:
            totals[number] += totals[node.parent]
    return _normalised(totals[np.array(probe.ends)])


def _normalised(weights: Floats) -> Floats:
    """exp(weights) that sum to 1 over the last axis."""
    likely = np.exp(weights - weights.max(axis=-1, keepdims=True))
    shares: Floats = likely / likely.sum(axis=-1, keepdims=True)
    return shares


# A piece of grading that states no mark is closed: the scaffold of the belief probe (section 2.1) is put after its
# last whole line, and the policy says the mark that it believes in.


def closed(
    write: Write, prompts: Sequence[str], replies: Sequence[str], begun: Sequence[str] = ()
) -> list[ClosedReply]:
    """The replies in their order, those without a mark closed by the policy's greedy word.

    begun: what each reply goes on from; nothing where there are none. A reply that states a mark off the scale has
    stated one, and stays. One that is closed may still end without a mark: where the policy says no number there.
    """
    starts = list(begun) or [""] * len(prompts)
    bare = [place for place, reply in enumerate(replies) if not states_mark(reply)]
    lines = [up_to_scaffold(starts[place], replies[place]) for place in bare]
    bare_prompts = [prompts[place] for place in bare]
    beginnings = [starts[place] + line for place, line in zip(bare, lines, strict=True)]
    marks = write(bare_prompts, begun=beginnings, max_tokens=LONGEST) if bare else []
    ends = {place: line + mark.split("\n", 1)[0] for place, line, mark in zip(bare, lines, marks, strict=True)}
    return [ClosedReply(ends.get(place, reply), place in ends) for place, reply in enumerate(replies)]


def up_to_scaffold(begun: str, reply: str) -> str:
    """A reply with the scaffold on a line of its own, without a last line that was broken off.

    >>> up_to_scaffold("", "P1 is met.\\nP2 is no"), up_to_scaffold("P1 is met.\\n", "")
    ('P1 is met.\\nFinal mark:', 'Final mark:')
    """
    unbroken = reply if _SENTENCE_ENDS.search(reply) else _without_last_line(reply)
    text = begun + unbroken
    lead = "" if not text or text.endswith("\n") else "\n"
    return f"{unbroken}{lead}{SCAFFOLD.rstrip()}"


def _without_last_line(reply: str) -> str:
    """All but the last line; that line where there is no other."""
    before, line_break, _ = reply.rpartition("\n")
    return before + line_break if before.strip() else reply
