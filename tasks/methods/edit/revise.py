"""Atomic revision: a chosen step of a wrong rollout is replaced by sub-steps, and kept where a continuation reaches the
gold mark (section 2.2). The policy is asked once for all checklists, revisions and continuations of a chunk each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from rubricflow.tasks.core.contracts.settings.edit import Revising
from rubricflow.tasks.methods.edit import checklist as checklists
from rubricflow.tasks.methods.edit.belief import Write, closed
from rubricflow.tasks.methods.edit.checklist import Checklist, Unusable
from rubricflow.tasks.methods.edit.locality import Breach, breach
from rubricflow.tasks.methods.edit.policy import Prompts
from rubricflow.tasks.methods.edit.rollout import Sample, Step, cut, read_mark, up_to_mark

Unnamed = Literal["no_step", "several_steps", "out_of_range"]
"""Why a policy that is to name a step names none: no line says one, more than one does, or there is no such step."""
Refusal = Breach | Unusable | Unnamed
"""Why a revision was not tried: the reply, the checklist that it needed, or the step that had to be named first."""
Source = Literal["scheme", "answer", "prefix"]
_ENUMERATED = re.compile(r"^(?:step\s+)?\d{1,2}\s*[.):]\s+", re.IGNORECASE)
UNDIAGNOSED = "none"
"""What stands for the diagnosis where no signal was measured."""


class FailedRollout(NamedTuple):
    """A rollout that did not reach the gold mark."""

    sample: Sample
    number: int
    """Which rollout of the response it is."""
    text: str
    closed: bool = False
    """Whether it stated no mark by itself; its last line then was asked for."""


class ChecklistReply(NamedTuple):
    """What the policy wrote as a checklist."""

    text: str
    checklist: Checklist | Unusable
    """What it holds, or why it holds none."""


class Candidate(NamedTuple):
    """A step to mend."""

    step: int
    """0-based."""
    diagnosis: str = UNDIAGNOSED
    """What the reviser is told of it."""


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


def diagnosis(
    change: float, before: float, after: float, weak: Sequence[Source] = ("scheme", "answer", "prefix")
) -> str:
    """The internal signals of a harmful step in words, in one line.

    change: Δε (delta epsilon, Eq. 2), in marks, negative; before, after: the expected mark at the boundaries around the
    step; weak: what the step hardly rests on. The size of the change is told in three grades only: with the exact
    number the gold mark could be worked out.

    >>> diagnosis(-0.8, 1.0, 1.8, ["answer"])
    'The expected mark went from 1.0 to 1.8, clearly away from what is right; the step hardly rests on the answer.'
    """
    size = "slightly" if change > -0.5 else "clearly"
    if change <= -1:
        size = "far"
    names = {"scheme": "the mark scheme", "answer": "the answer", "prefix": "the steps before it"}
    listed = " or ".join(names[source] for source in weak)
    rests = f"; the step hardly rests on {listed}" if weak else ""
    return f"The expected mark went from {before:.1f} to {after:.1f}, {size} away from what is right{rests}."


def revise(
    attempts: Sequence[FailedRollout],
    candidates: Sequence[Sequence[Candidate]],
    prompts: Prompts,
    write: Write,
    plan: Revising,
    *,
    max_tokens: int,
    seed: int,
    with_checklist: bool = True,
    local: bool = True,
) -> list[Revision]:
    """One revision of every candidate of every attempt, in their order.

    candidates: of each attempt, in rank order. Checklists are written greedily, one for each response; where a reply is
    none, the response's revisions are refused. with_checklist: off for the ablation `no_checklist`. local: off for
    `no_locality`, where the reply takes the place of all that follows, its mark included, by no rule.
    """
    revisions: list[Revision] = []
    diagnoses: list[str] = []
    for attempt, ranked in zip(attempts, candidates, strict=True):
        for rank, candidate in enumerate(ranked):
            revisions.append(Revision(attempt, rank, candidate.step))
            diagnoses.append(candidate.diagnosis)
    if with_checklist:
        samples = [revision.attempt.sample for revision in revisions]
        listed = write_checklists(samples, prompts, write, max_tokens=max_tokens, seed=seed)
        revisions = [_with_checklist(revision, listed[revision.attempt.sample.response_id]) for revision in revisions]
    ask = prompts.revise if local else prompts.rewrite
    prompt_of = {}
    for number, revision in enumerate(revisions):
        if revision.refused is None and revision.step is not None:
            steps = step_texts(revision.attempt.text)
            sample = revision.attempt.sample
            prompt_of[number] = ask(sample, steps, revision.step, diagnoses[number], revision.checklist)
    replies = sampled(write, list(prompt_of.values()), plan, max_tokens=max_tokens, seed=seed + 1)
    for number, reply in zip(prompt_of, replies, strict=True):
        revision = revisions[number]
        revisions[number] = _replaced(revision, reply, plan.sub_steps) if local else _rewritten(revision, reply)
    return continued(revisions, prompts, write, plan, max_tokens=max_tokens, seed=seed + 2)


def write_checklists(
    samples: Sequence[Sample], prompts: Prompts, write: Write, *, max_tokens: int, seed: int
) -> Mapping[str, ChecklistReply]:
    """The checklist of every response, or why there is none, by response_id. Each is asked for once, greedily.

    max_tokens: a rollout's; a checklist of many points may be longer.
    """
    distinct = {sample.response_id: sample for sample in samples}
    prompt_texts = [prompts.checklist(sample) for sample in distinct.values()]
    longest = max((checklists.room(sample.scheme, max_tokens) for sample in distinct.values()), default=max_tokens)
    replies = write(prompt_texts, max_tokens=longest, seed=seed) if prompt_texts else []
    return {
        sample.response_id: ChecklistReply(reply, checklists.read(reply, sample.scheme, sample.answer))
        for sample, reply in zip(distinct.values(), replies, strict=True)
    }


def continued(
    revisions: Sequence[Revision], prompts: Prompts, write: Write, plan: Revising, *, max_tokens: int, seed: int
) -> list[Revision]:
    """The revisions with their outcome: `plan.continuations` are sampled of every one that is begun and has no mark
    yet, by the grading prompt, and closed where they state none. It is kept where one comes to the gold mark."""
    waiting = [number for number, revision in enumerate(revisions) if revision.begun and not revision.marks]
    prompt_texts: list[str] = []
    begun: list[str] = []
    for number in waiting:
        prompt_texts += [prompts.grade(revisions[number].attempt.sample)] * plan.continuations
        begun += [revisions[number].begun] * plan.continuations
    written = sampled(write, prompt_texts, plan, begun=begun, max_tokens=max_tokens, seed=seed)
    replies = [reply.text for reply in closed(write, prompt_texts, written, begun)]
    done = list(revisions)
    for place, number in enumerate(waiting):
        first = place * plan.continuations
        done[number] = _outcome(done[number], replies[first : first + plan.continuations])
    return done


def sampled(
    write: Write,
    prompts: Sequence[str],
    plan: Revising,
    *,
    begun: Sequence[str] | None = None,
    max_tokens: int,
    seed: int,
) -> list[str]:
    """One sampled reply to each prompt; the policy is not asked about nothing."""
    if not prompts:
        return []
    return write(prompts, begun=begun, temperature=plan.temperature, max_tokens=max_tokens, seed=seed)


def opened(text: str, steps: Sequence[Step], chosen: int, lines: Sequence[str]) -> str:
    """The beginning that is continued: all before step `chosen` (0-based), the lines in its place, and what separates
    steps in this attempt, so that the next step can follow."""
    after = text[steps[chosen].end : steps[chosen + 1].start] if chosen + 1 < len(steps) else "\n"
    between = text[steps[chosen - 1].end : steps[chosen].start] if chosen else after
    return text[: steps[chosen].start] + between.join(lines) + after


def step_texts(text: str) -> list[str]:
    """The steps of a rollout as texts."""
    return [text[step.start : step.end] for step in cut(text)]


def _with_checklist(revision: Revision, written: ChecklistReply) -> Revision:
    text, checklist = written
    if isinstance(checklist, Checklist):
        return replace(revision, checklist=checklist.text)
    return replace(revision, refused=checklist, reply=text)


def _replaced(revision: Revision, reply: str, most: int) -> Revision:
    """The reply's lines in the place of the step, where they keep the locality constraint."""
    assert revision.step is not None
    steps, texts = cut(revision.attempt.text), step_texts(revision.attempt.text)
    lines = tuple(_lines(reply))
    broken = breach(lines, texts, revision.step, revision.attempt.sample, revision.checklist, most)
    if broken:
        return replace(revision, sub_steps=lines, refused=broken, reply=reply)
    return replace(revision, sub_steps=lines, begun=opened(revision.attempt.text, steps, revision.step, lines))


def _rewritten(revision: Revision, reply: str) -> Revision:
    """The reply in the place of the step and all after it; with its mark, where it states one."""
    assert revision.step is not None
    lines = tuple(_lines(reply))
    if not lines:
        return replace(revision, refused="empty", reply=reply)
    before, written = revision.attempt.text[: cut(revision.attempt.text)[revision.step].start], "\n".join(lines)
    if read_mark(written, revision.attempt.sample.top).reason == "no_mark":
        return replace(revision, sub_steps=lines, begun=f"{before}{written}\n")
    return replace(_outcome(replace(revision, sub_steps=lines, begun=before), [written]), begun=before + written)


def _outcome(revision: Revision, replies: Sequence[str]) -> Revision:
    """What the replies make of a beginning. A mark counts where the reply states it, not the beginning."""
    sample = revision.attempt.sample
    texts = [revision.begun + reply for reply in replies]
    marks = tuple(
        None if read_mark(reply, sample.top).reason == "no_mark" else read_mark(text, sample.top).mark
        for reply, text in zip(replies, texts, strict=True)
    )
    right = (text for text, mark in zip(texts, marks, strict=True) if mark is not None and mark == sample.gold)
    first_right = next(right, None)
    return replace(revision, marks=marks, repaired=first_right and up_to_mark(first_right, sample.top))


def _lines(reply: str) -> list[str]:
    """The lines of a reply that say something, without the signs that mark the step in the prompt and without numbers
    of their own: with them a step of the attempt that is written again would not be known."""
    stripped = (line.strip().removeprefix(">>").removesuffix("<<").strip() for line in reply.split("\n"))
    bare = (_ENUMERATED.sub("", line) for line in stripped)
    return [line for line in bare if line]
