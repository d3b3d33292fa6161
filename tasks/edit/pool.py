"""The pool of an arm's supervised fine-tuning: rollouts mended, and rollouts that were right by themselves
(section 2.2)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tasks.contracts.errors import InputError
from tasks.contracts.tables.edit import Origin
from tasks.edit.revise import FailedRollout, Revision
from tasks.edit.rollout import read_mark, up_to_mark


class Demonstration(NamedTuple):
    """A text to train on; its prompt is the grading prompt of the response."""

    response_id: str
    sample: int
    """The rollout that it is or was made from."""
    origin: Origin
    completion: str
    ends: bool
    """Whether the text is whole, so that the policy also learns to stop after it."""


class Pool(NamedTuple):
    """A pool, ordered by response and rollout."""

    demonstrations: tuple[Demonstration, ...]
    note: str | None
    """What to know about it: that nothing was mended."""


def repaired(revisions: Sequence[Revision]) -> list[Demonstration]:
    """The mended rollouts, one for each attempt: that of the best-ranked candidate that was kept."""
    successful = [revision for revision in revisions if revision.repaired is not None]
    best: dict[tuple[str, int], str] = {}
    for revision in sorted(successful, key=lambda revision: revision.rank):
        key = revision.attempt.sample.response_id, revision.attempt.number
        best.setdefault(key, revision.repaired or "")
    return [Demonstration(*key, "repaired", text, True) for key, text in sorted(best.items())]


def interventions(revisions: Sequence[Revision]) -> list[Demonstration]:
    """InT: the kept attempts up to and with the intervention, without what followed, so that they do not end."""
    demonstrations = []
    for revision in revisions:
        if revision.repaired is not None:
            response_id, number = revision.attempt.sample.response_id, revision.attempt.number
            demonstrations.append(Demonstration(response_id, number, "intervention", revision.begun, False))
    return demonstrations


def natural(rollouts: Sequence[FailedRollout]) -> list[Demonstration]:
    """Of all rollouts those that state the gold mark, up to it."""
    demonstrations = []
    for sample, number, text, _ in rollouts:
        if sample.gold is not None and read_mark(text, sample.top).mark == sample.gold:
            completion = up_to_mark(text, sample.top)
            demonstrations.append(Demonstration(sample.response_id, number, "natural", completion, True))
    return demonstrations


def pool(
    mended: Sequence[Demonstration], natural: Sequence[Demonstration], share: float, seed: int, *, lost: str
) -> Pool:
    """The demonstrations that an arm is trained on.

    mended: repaired rollouts or interventions, all of which are in. natural: a seeded choice of these makes up at most
    `share`, in [0, 1], of the pool; where nothing is mended, all of them are the pool, and its note says so. The same
    text of the same response is in once. lost: why no more was mended, as `summary` puts it. InputError for an empty
    pool.
    """
    mended = _distinct(mended)
    mended_texts = {(text.response_id, text.completion) for text in mended}
    others = [text for text in _distinct(natural) if (text.response_id, text.completion) not in mended_texts]
    if not mended and not (others and share):
        raise InputError(
            f"the pool is empty: {lost}; {len(others)} rollouts were right by themselves", field="edit.revising"
        )
    if mended and share < 1:
        # n / (n + mended) ≤ share, with slack for the division's rounding
        count = math.floor(len(mended) * share / (1 - share) + 1e-9)
        drawn = np.random.default_rng(seed).permutation(len(others))[:count]
        others = [others[number] for number in drawn]
    note = None if mended else f"nothing was mended, the pool is naturally correct rollouts alone: {lost}"
    return Pool(tuple(sorted([*mended, *others])), note)


def summary(revisions: Sequence[Revision], wrong: int) -> str:
    """Where the wrong rollouts went, in words: how many there were, had a candidate, were refused, and why, or kept.

    wrong: rollouts without the gold mark.
    """
    if not wrong:
        return "no rollout was wrong"
    if not revisions:
        return f"none of {wrong} wrong rollouts had a step to mend"
    refused = Counter(revision.refused for revision in revisions if revision.refused is not None)
    reasons = ", ".join(f"{reason} {count}" for reason, count in refused.most_common())
    repaired = sum(revision.repaired is not None for revision in revisions)
    return (
        f"{wrong} wrong rollouts, {len(revisions)} revisions, {refused.total()} refused"
        f"{f' ({reasons})' if reasons else ''}, {repaired} reached the gold mark"
    )


def _distinct(rows: Sequence[Demonstration]) -> list[Demonstration]:
    """In order of response and rollout, each text of a response once."""
    distinct: dict[tuple[str, str], Demonstration] = {}
    for row in sorted(rows):
        distinct.setdefault((row.response_id, row.completion), row)
    return list(distinct.values())
