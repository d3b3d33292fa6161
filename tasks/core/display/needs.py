"""What a promise about released scores wants of marked answers, in the same words and numbers wherever it is said."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rubricflow.tasks.core.contracts.settings.study import Release, Split, Study
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.promise import (
    SECONDS_TO_MARK,
    WORDS_A_MINUTE,
    MarkedAnswers,
    PromiseNeeds,
    promise_needs,
)

Finding = tuple[str, str, str]
"""(kind, what, message), as `validate` prints it."""


def release_needs(study: Study, items: Sequence[MarkedAnswers]) -> Iterator[Finding]:
    """What the promise about released scores needs, beside what there is; and which marks the split sets aside."""
    needs = needs_of(study.release, items)
    too_small = too_small_words(needs)
    if any(item.marked for item in items):
        short = any(need.counting < need.needed for need in needs)
        yield "warning" if short else "ok", "release", wanted_words(study.release.risk, study.release.confidence, needs)
    else:
        yield "warning", "release", "no answer is marked by people: nothing is calibrated, and no score is released"
    if too_small:
        yield "warning", "release", too_small
    elif short_by_split := _set_aside(study.split, items, needs):
        yield "warning", "split", short_by_split


def needs_of(release: Release, items: Sequence[MarkedAnswers]) -> list[PromiseNeeds]:
    """What each promise of a study wants: one of the whole set, or one an item."""
    return promise_needs(items, release.risk, release.confidence, release.by == "item")


def wanted_words(risk: float, confidence: float, needs: Sequence[PromiseNeeds]) -> str:
    """How many marked answers would do for a promise of this risk, and how many there are that count."""
    needed = needs[0].needed
    promised = f"at most {say.rate(risk)} wrong at {say.rate(confidence)} confidence"
    start = f"a promise of {promised} takes {say.plural(needed, 'marked answer')} without an error"
    fewest = min(needs, key=lambda need: need.counting)
    if len(needs) == 1:
        return f"{start}: {say.count(needed)} needed, {say.count(fewest.counting)} here"
    short = sum(need.counting < needed for need in needs)
    here = f"at least {say.count(fewest.counting)} here"
    if short:
        here = (
            f"{short} of {len(needs)} questions have fewer, '{say.visible(fewest.scope)}' {say.count(fewest.counting)}"
        )
    return f"{start}, for every question by itself: {say.count(needed)} needed, {here}"


def too_small_words(needs: Sequence[PromiseNeeds]) -> str:
    """That all answers together cannot suffice, and how long people take to mark them where some are not marked, in
    sentences; '' where they can, of any promise."""
    small = [need for need in needs if need.answers < need.needed]
    if not small:
        return ""
    answers, needed = sum(need.answers for need in small), say.count(small[0].needed)
    minutes = say.count(max(1, round(sum(need.minutes for need in small))))
    every = "it" if answers == 1 else f"all {say.count(answers)}"
    work = (
        f" To read and mark {every} takes a person about {minutes} min, at {WORDS_A_MINUTE} words a minute and "
        f"{SECONDS_TO_MARK} s for each mark."
        if any(need.marked < need.answers for need in small)
        else ""
    )
    if sum(need.answers for need in needs) < small[0].needed:
        return (
            f"This class is too small for any promise: it takes {needed} marked answers, and all answers together are "
            f"{say.count(answers)}.{work}"
        )
    some = "Every question has" if len(small) == len(needs) else f"{len(small)} of {len(needs)} questions have"
    together = "release.by: set promises for all questions together."
    return f"{some} fewer than {needed} answers in all, too few for a promise of its own. {together}{work}"


def _set_aside(plan: Split, items: Sequence[MarkedAnswers], needs: Sequence[PromiseNeeds]) -> str:
    """How many marks a split keeps for measuring where the promise wants them; '' where it does not."""
    marked, counting = sum(item.marked for item in items), sum(item.counting for item in items)
    if plan.cross or counting == marked or all(need.counting >= need.needed for need in needs):
        return ""
    wished = plan.calibration * (len(items) if plan.per == "item" else 1)
    each = " for each question" if plan.per == "item" else ""
    wish = f"split.calibration wishes for {plan.calibration} marked answers{each}; " if counting < wished else ""
    others = say.count(marked - counting)
    return (
        f"{wish}{say.count(counting)} of {say.count(marked)} marked answers count, {others} are held out to test the "
        f"scores: with split: {{cross: true}} all {say.count(marked)} would count, and test the scores, too"
    )
