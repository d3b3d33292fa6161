"""InT, the baseline of self-proposed interventions (Yang et al. 2026, arXiv 2601.14209).

Theirs: the policy, with a reference at hand, names the first wrong step of its own attempt and proposes one step in its
place, in one reply; one that gives the final answer away is dropped; it is kept where any continuation is right; the
policy is fine-tuned on the steps before and the proposal, not on what follows; then plain RL. Ours: the reference is
the gold mark, the reply's form, the study's number of continuations (theirs is 32), one proposal for a wrong rollout.

Which steps of a wrong rollout are worth mending: those that moved the belief away from the gold mark and rest on
nothing (section 2.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.settings.edit import Revising
from rubricflow.tasks.core.contracts.tables.edit import Fate
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.methods.edit.belief import Write
from rubricflow.tasks.methods.edit.locality import Breach, gives_away, is_mark_line
from rubricflow.tasks.methods.edit.policy import Prompts
from rubricflow.tasks.methods.edit.revise import (
    FailedRollout,
    Revision,
    Unnamed,
    continued,
    opened,
    sampled,
    step_texts,
)
from rubricflow.tasks.methods.edit.rollout import Sample, cut

_STEP = re.compile(
    r"^[\s>*#-]*step\s*(?P<number>\d{1,6})[\s*]*[:：.][ \t*]*(?P<text>\S.*)$", re.IGNORECASE | re.MULTILINE
)


class Proposal(NamedTuple):
    """What a reply proposes."""

    step: int | None
    """The step named, 0-based; None with a reason."""
    text: str
    """What is to take its place; '' without a step."""
    reason: Unnamed | None


def read(reply: str, steps: int) -> Proposal:
    """The step that a reply names, counted from 1 as the prompt numbers them, and what it puts in its place.

    >>> read("Step 2: P2 is not met.", 3)
    Proposal(step=1, text='P2 is not met.', reason=None)
    """
    lines = list(_STEP.finditer(reply))
    if len(lines) != 1:
        return Proposal(None, "", "several_steps" if lines else "no_step")
    step = int(lines[0]["number"]) - 1
    if not 0 <= step < steps:
        return Proposal(None, "", "out_of_range")
    return Proposal(step, lines[0]["text"].strip(), None)


def ask(
    attempts: Sequence[FailedRollout], prompts: Prompts, write: Write, plan: Revising, *, max_tokens: int, seed: int
) -> list[str]:
    """The policy's reply on the first wrong step of every attempt; '' for one without steps, which is not asked about.

    `read` reads it for InT, `tasks.methods.edit.intervene.named_step` for the ablation without internal signals.
    """
    texts = [step_texts(attempt.text) for attempt in attempts]
    prompt_of = {
        number: prompts.intervene(attempts[number].sample, steps) for number, steps in enumerate(texts) if steps
    }
    replies = sampled(write, list(prompt_of.values()), plan, max_tokens=max_tokens, seed=seed)
    reply_of = dict(zip(prompt_of, replies, strict=True))
    return [reply_of.get(number, "") for number in range(len(attempts))]


def intervene(
    attempts: Sequence[FailedRollout], prompts: Prompts, write: Write, plan: Revising, *, max_tokens: int, seed: int
) -> list[Revision]:
    """One intervention in every attempt, in their order, with its outcome.

    `Revision.begun` is what InT trains on: the attempt before the step and the proposal. A proposal that states
    the mark or leaves the step as it is is refused; no other rule of locality is InT's.
    """
    replies = ask(attempts, prompts, write, plan, max_tokens=max_tokens, seed=seed)
    revisions = [_proposed(attempt, reply) for attempt, reply in zip(attempts, replies, strict=True)]
    return continued(revisions, prompts, write, plan, max_tokens=max_tokens, seed=seed + 1)


def _proposed(attempt: FailedRollout, reply: str) -> Revision:
    """What a reply puts in a step's place; a refused one is kept as it was written."""
    texts = step_texts(attempt.text)
    step, text, reason = read(reply, len(texts))
    revision = Revision(attempt, 0, step)
    if step is None:
        return replace(revision, refused=reason, reply=reply)
    revision = replace(revision, sub_steps=(text,))
    if broken := _breach(text, texts[step], attempt.sample):
        return replace(revision, refused=broken, reply=reply)
    return replace(revision, begun=opened(attempt.text, cut(attempt.text), step, [text]))


def _breach(text: str, step: str, sample: Sample) -> Breach | None:
    """What a proposal breaks of InT's own rules."""
    if is_mark_line(text):
        return "mark_line"
    if folded(text) == folded(step):
        return "unchanged"
    return "states_gold" if gives_away(text, step, sample) else None


class Selection(NamedTuple):
    """What became of the T steps of a rollout."""

    chosen: tuple[int, ...]
    """Steps to mend, 0-based, the most harmful first."""
    fates: tuple[Fate, ...]
    """Of every step in order."""


def thresholds(grounding: Floats, below: float = 0.25) -> Floats:
    """(3,) the value under which each kind of grounding counts as weak: its quantile over all steps of the data set.

    grounding: (n, 3) G^ρ, G^a and G̃^p (rho: scheme, a: answer, p: prefix, residualised; Eqs. 3-4) of every step of
    every rollout, right and wrong ones. below: in [0, 1]; the paper takes the 25th percentile. NaN without any step,
    and nothing is weak then. ValueError where a value is not finite.
    """
    if not np.isfinite(grounding).all():
        raise ValueError("grounding values are finite")
    return np.quantile(grounding, below, axis=0) if len(grounding) else np.full(3, np.nan)


def weak(grounding: Floats, limits: Floats) -> Bools:
    """(T,) whether a step is under all three thresholds; (T, 3) and (3,) as in `thresholds`."""
    return np.asarray((grounding < limits).all(axis=1))


def candidates(change: Floats, unsupported: Bools, count: int, near_tie: float) -> Selection:
    """The steps of one wrong rollout that are to be mended.

    change: (T,) Δε (delta epsilon, Eq. 2) in marks, negative where the step did harm; unsupported: (T,), as `weak`
    says. Steps with Δε ≥ −near_tie leave first; of the others the `count` most negative stay, the earlier one of
    equals; of these the weak ones are chosen. ValueError where a change is not finite.
    """
    if not np.isfinite(change).all():
        raise ValueError("changes of belief are finite")
    harmful = change < -near_tie
    ranked = [int(step) for step in np.argsort(change, kind="stable") if harmful[step]][:count]
    fates: list[Fate] = ["helped" if gain > 0 else "near_tie" for gain in change]
    for step in np.flatnonzero(harmful).tolist():
        fates[step] = "not_top_k"
    for step in ranked:
        fates[step] = "chosen" if unsupported[step] else "grounded"
    return Selection(tuple(step for step in ranked if unsupported[step]), tuple(fates))


def named_step(reply: str, steps: int) -> tuple[int, ...]:
    """The step that the policy names itself, 0-based; none where it names none of the rollout's `steps`.

    The ablation without internal signals: a prompted self-audit, by the reply to `Prompts.intervene`. What that reply
    puts in the step's place is not used.
    """
    step = read(reply, steps).step
    return () if step is None else (step,)
