"""From a wrong rollout to a mended one (section 2.2): which steps are worth mending, and what takes their place.

Worth mending are the steps that moved the belief away from the gold mark and rest on nothing. A chosen step is replaced
by sub-steps, and kept where a continuation reaches the gold mark. The policy is asked once for all checklists,
revisions and continuations of a chunk each.

InT, the baseline of self-proposed interventions (Yang et al. 2026, arXiv 2601.14209). Theirs: the policy, with a
reference at hand, names the first wrong step of its own attempt and proposes one step in its place, in one reply; one
that gives the final answer away is dropped; it is kept where any continuation is right; the policy is fine-tuned on the
steps before and the proposal, not on what follows; then plain RL. Ours: the reference is the gold mark, the reply's
form, the study's number of continuations (theirs is 32), one proposal for a wrong rollout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.settings.methods import Revising
from rubricflow.tasks.core.contracts.tables.edit import Fate
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.methods.edit.belief import Write, closed
from rubricflow.tasks.methods.edit.locality import (
    Breach,
    Unusable,
    breach,
    checklist_tokens,
    gives_away,
    is_mark_line,
    read_checklist,
)
from rubricflow.tasks.methods.edit.policy import Prompts
from rubricflow.tasks.methods.edit.rollout import Sample, cut, read_mark, states_mark, up_to_mark

Key = tuple[str, int]
"""A rollout of a seed: response_id and sample."""
Unnamed = Literal["no_step", "several_steps", "out_of_range"]
"""Why a policy that is to name a step names none: no line does, more than one does, or there is no such step."""
Refusal = Breach | Unusable | Unnamed
"""Why a revision was not tried: the reply, the checklist that it needed, or the step that had to be named first."""
_ENUMERATED = re.compile(r"^(?:step\s+)?\d{1,2}\s*[.):]\s+", re.IGNORECASE)
_STEP = re.compile(
    r"^[\s>*#-]*step\s*(?P<number>\d{1,6})[\s*]*[:：.][ \t*]*(?P<text>\S.*)$", re.IGNORECASE | re.MULTILINE
)


class FailedRollout(NamedTuple):
    """A rollout that did not reach the gold mark."""

    sample: Sample
    number: int
    """Which rollout of the response it is."""
    text: str
    closed: bool = False
    """Whether it stated no mark by itself; its last line then was asked for."""

    @property
    def key(self) -> Key:
        """The rollout's key among those of its seed."""
        return self.sample.response_id, self.number


class Candidate(NamedTuple):
    """A step to mend."""

    step: int
    """0-based."""
    diagnosis: str = "none"
    """What the reviser is told of it; the default where no signal was measured."""


@dataclass(frozen=True, slots=True)
class Revision:
    """A step, what was to take its place, and what came of it."""

    attempt: FailedRollout
    rank: int
    """Place among the candidates of its attempt, from 0."""
    step: int | None
    """The step replaced, 0-based; None where the policy was to name one and did not."""
    checklist: str | None = None
    """As the reviser was shown it; None where it was shown none."""
    sub_steps: tuple[str, ...] = ()
    """What the reply puts in the step's place, also where that was refused."""
    refused: Refusal | None = None
    """Why no continuation was sampled."""
    reply: str | None = None
    """What the policy wrote where that was refused: the checklist's reply, else the reviser's."""
    begun: str = ""
    """The attempt up to the step, with the sub-steps after it; '' where they were refused."""
    marks: tuple[int | None, ...] = ()
    """Marks of the continuations in order, None for one without."""
    repaired: str | None = None
    """The first rollout so continued that reached the gold mark; None where none did."""


def thresholds(grounding: Floats, below: float) -> Floats:
    """(3,) the value under which each kind of grounding counts as weak: its quantile over all steps of the data set.

    grounding: (n, 3) G^ρ, G^a and G̃^p (rho: scheme, a: answer, p: prefix, residualised; Eqs. 3-4) of every step of
    every rollout, right and wrong ones. below: in [0, 1]; the paper takes the 25th percentile. NaN without any step,
    and nothing is weak then. ValueError where a value is not finite.
    """
    if not np.isfinite(grounding).all():
        raise ValueError("grounding values are finite")
    return np.quantile(grounding, below, axis=0) if len(grounding) else np.full(3, np.nan)


def fates(change: Floats, unsupported: Bools, count: int, near_tie: float) -> list[Fate]:
    """What becomes of the T steps of one wrong rollout, in order.

    change: (T,) Δε (delta epsilon, Eq. 2) in marks, negative where the step did harm; unsupported: (T,) whether a step
    is under all three thresholds. Steps with Δε ≥ −near_tie leave first; of the others the `count` most negative stay,
    the earlier one of equals; of these the weak ones are chosen. ValueError where a change is not finite.
    """
    if not np.isfinite(change).all():
        raise ValueError("changes of belief are finite")
    found: list[Fate] = ["helped" if gain > 0 else "near_tie" for gain in change]
    order = np.argsort(change, kind="stable")
    for rank, step in enumerate(order[change[order] < -near_tie]):
        found[step] = "not_top_k" if rank >= count else "chosen" if unsupported[step] else "grounded"
    return found


def diagnosis(change: float, before: float, after: float) -> str:
    """The internal signals of a chosen step in words, in one line.

    change: Δε (delta epsilon, Eq. 2), in marks, negative; before, after: the expected mark at the boundaries around the
    step. The size of the change is told in three grades only: with the exact number the gold mark could be worked out.
    """
    size = "slightly" if change > -0.5 else "clearly" if change > -1 else "far"
    rests = "the step hardly rests on the mark scheme or the answer or the steps before it"
    return f"The expected mark went from {before:.1f} to {after:.1f}, {size} away from what is right; {rests}."


def read_proposal(reply: str, steps: int) -> tuple[int | None, str, Unnamed | None]:
    """The step that a reply names, 0-based, what it puts in its place, and why it names none. steps: of the attempt,
    numbered from 1 in the prompt.

    >>> read_proposal("Step 2: P2 is not met.", 3), read_proposal("Step 4: P2 is not met.", 3)
    ((1, 'P2 is not met.', None), (None, '', 'out_of_range'))
    """
    lines = list(_STEP.finditer(reply))
    if len(lines) != 1:
        return None, "", "several_steps" if lines else "no_step"
    step = int(lines[0]["number"]) - 1
    return (step, lines[0]["text"].strip(), None) if 0 <= step < steps else (None, "", "out_of_range")


class Reviser(NamedTuple):
    """The policy as it mends its own rollouts, or another model that mends them; each call samples from `seed` on."""

    prompts: Prompts
    write: Write
    """The policy, which goes on from every revision."""
    plan: Revising
    max_tokens: int
    """Of a rollout; a checklist of many points may be longer."""
    seed: int
    by: Write | None = None
    """Who writes checklists, revisions and interventions in the policy's place."""

    def revise(
        self,
        attempts: Sequence[FailedRollout],
        candidates: Sequence[Sequence[Candidate]],
        *,
        with_checklist: bool = True,
        local: bool = True,
    ) -> list[Revision]:
        """One revision of every candidate of every attempt, in their order.

        candidates: of each attempt, in rank order. Checklists are written greedily, one for each response; where a
        reply is none, the response's revisions are refused. with_checklist: off for the ablation `no_checklist`. local:
        off for `no_locality`, where the reply takes the place of all that follows, its mark included, by no rule.
        """
        revisions = []
        diagnoses = []
        for attempt, ranked in zip(attempts, candidates, strict=True):
            for rank, candidate in enumerate(ranked):
                revisions.append(Revision(attempt, rank, candidate.step))
                diagnoses.append(candidate.diagnosis)
        if with_checklist:
            written = self.write_checklists([revision.attempt.sample for revision in revisions])
            for number, revision in enumerate(revisions):
                sample = revision.attempt.sample
                reply = written[sample.response_id]
                verbatim = self.plan.checklist == "verbatim"
                text, refused = read_checklist(reply, sample.scheme, sample.answer, verbatim)
                revisions[number] = replace(revision, checklist=text, refused=refused, reply=reply if refused else None)
        prompt_of = {}
        for number, revision in enumerate(revisions):
            if revision.refused is None and revision.step is not None:
                attempt = revision.attempt
                steps = step_texts(revision.attempt.text)
                shown = diagnoses[number], revision.checklist
                prompt_of[number] = self.prompts.revise(attempt.sample, steps, revision.step, *shown, local)
        replies = self._sampled(list(prompt_of.values()), self.seed + 1)
        for number, reply in zip(prompt_of, replies, strict=True):
            mended = self._with_sub_steps if local else _with_new_rest
            revisions[number] = mended(revisions[number], reply)
        return self._continued(revisions, self.seed + 2)

    def intervene(self, attempts: Sequence[FailedRollout]) -> list[Revision]:
        """One intervention of InT in every attempt, in their order, with its outcome.

        `Revision.begun` is what InT trains on: the attempt before the step and the proposal. A proposal that states
        the mark or leaves the step as it is is refused; no other rule of locality is InT's.
        """
        revisions = []
        for attempt, reply in zip(attempts, self.name_steps(attempts), strict=True):
            steps, begun = step_texts(attempt.text), ""
            refused: Refusal | None
            step, text, refused = read_proposal(reply, len(steps))
            if step is not None:
                if is_mark_line(text):
                    refused = "mark_line"
                elif folded(text) == folded(steps[step]):
                    refused = "unchanged"
                elif gives_away(text, steps[step], attempt.sample):
                    refused = "states_gold"
                else:
                    begun = beginning(attempt.text, step, [text])
            sub_steps = () if step is None else (text,)
            kept_reply = reply if refused else None
            revision = Revision(attempt, 0, step, sub_steps=sub_steps, refused=refused, reply=kept_reply, begun=begun)
            revisions.append(revision)
        return self._continued(revisions, self.seed + 1)

    def name_steps(self, attempts: Sequence[FailedRollout]) -> list[str]:
        """The policy's reply on the first wrong step of every attempt, for `read_proposal`; '' for one without steps,
        which is not asked about.

        InT uses all of it; the ablation without internal signals, a prompted self-audit, the step that it names.
        """
        prompt_of = {}
        for number, attempt in enumerate(attempts):
            if steps := step_texts(attempt.text):
                prompt_of[number] = self.prompts.intervene(attempt.sample, steps)
        replies = self._sampled(list(prompt_of.values()), self.seed)
        reply_of = dict(zip(prompt_of, replies, strict=True))
        return [reply_of.get(number, "") for number in range(len(attempts))]

    def write_checklists(self, samples: Sequence[Sample]) -> dict[str, str]:
        """The policy's checklist of every response, by response_id; each is asked for once, greedily."""
        distinct = {sample.response_id: sample for sample in samples}
        if not distinct:
            return {}
        verbatim = self.plan.checklist == "verbatim"
        prompts = [self.prompts.checklist(sample, verbatim) for sample in distinct.values()]
        longest = max(checklist_tokens(sample.scheme, self.max_tokens, verbatim) for sample in distinct.values())
        write = self.by or self.write
        return dict(zip(distinct, write(prompts, max_tokens=longest, seed=self.seed), strict=True))

    def _with_sub_steps(self, revision: Revision, reply: str) -> Revision:
        """The reply's lines in the place of the step, where they keep the locality constraint."""
        assert revision.step is not None
        attempt = revision.attempt
        lines = tuple(_lines(reply))
        steps = step_texts(attempt.text)
        broken = breach(lines, steps, revision.step, attempt.sample, revision.checklist, self.plan.sub_steps)
        if broken:
            return replace(revision, sub_steps=lines, refused=broken, reply=reply)
        return replace(revision, sub_steps=lines, begun=beginning(attempt.text, revision.step, lines))

    def _continued(self, revisions: Sequence[Revision], seed: int) -> list[Revision]:
        """The revisions with their outcome: `plan.continuations` are sampled of every one that is begun and has no mark
        yet, by the grading prompt, and closed where they state none. It is kept where one comes to the gold mark."""
        count = self.plan.continuations
        waiting = [number for number, revision in enumerate(revisions) if revision.begun and not revision.marks]
        prompts = []
        begun = []
        for number in waiting:
            prompts += [self.prompts.grade(revisions[number].attempt.sample)] * count
            begun += [revisions[number].begun] * count
        replies = closed(self.write, prompts, self._sampled(prompts, seed, begun), begun)
        done = list(revisions)
        for place, number in enumerate(waiting):
            texts = [reply.text for reply in replies[place * count : (place + 1) * count]]
            done[number] = _with_outcome(done[number], texts)
        return done

    def _sampled(self, prompts: Sequence[str], seed: int, begun: Sequence[str] | None = None) -> list[str]:
        """One sampled reply to each prompt; nobody is asked about nothing, and only the policy goes on from a text."""
        if not prompts:
            return []
        temperature, longest = self.plan.temperature, self.max_tokens
        write = self.write if begun or self.by is None else self.by
        return write(prompts, begun=begun, temperature=temperature, max_tokens=longest, seed=seed)


def beginning(text: str, chosen: int, lines: Sequence[str]) -> str:
    """What is continued: all before step `chosen` (0-based), the lines in its place, and what separates steps in this
    attempt, so that the next step can follow."""
    steps = cut(text)
    after = text[steps[chosen].end : steps[chosen + 1].start] if chosen + 1 < len(steps) else "\n"
    between = text[steps[chosen - 1].end : steps[chosen].start] if chosen else after
    return text[: steps[chosen].start] + between.join(lines) + after


def step_texts(text: str) -> list[str]:
    """The steps of a rollout as texts."""
    return [text[step.start : step.end] for step in cut(text)]


def _with_new_rest(revision: Revision, reply: str) -> Revision:
    """The reply in the place of the step and all after it; with its mark, where it states one."""
    assert revision.step is not None
    lines = tuple(_lines(reply))
    if not lines:
        return replace(revision, refused="empty", reply=reply)
    text = revision.attempt.text
    written = "\n".join(lines)
    before = text[: cut(text)[revision.step].start]
    if not states_mark(written):
        return replace(revision, sub_steps=lines, begun=f"{before}{written}\n")
    return replace(_with_outcome(replace(revision, sub_steps=lines, begun=before), [written]), begun=before + written)


def _with_outcome(revision: Revision, replies: Sequence[str]) -> Revision:
    """What the replies make of a beginning. A mark counts where the reply states it, not the beginning."""
    sample = revision.attempt.sample
    marks = []
    repaired = None
    for reply in replies:
        text = revision.begun + reply
        mark = read_mark(text, sample.top).mark if states_mark(reply) else None
        marks.append(mark)
        if repaired is None and mark is not None and mark == sample.gold:
            repaired = up_to_mark(text, sample.top)
    return replace(revision, marks=tuple(marks), repaired=repaired)


def _lines(reply: str) -> list[str]:
    """The lines of a reply that hold text, without the signs that mark the step in the prompt and without numbers of
    their own: with them a step of the attempt that is written again would not be known."""
    stripped = (line.strip().removeprefix(">>").removesuffix("<<").strip() for line in reply.split("\n"))
    return list(filter(None, (_ENUMERATED.sub("", line) for line in stripped)))
