"""How the laboratory's decoder marks: hastily, with slips, or carefully."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from tasks.edit.laboratory.world import REASON, StudentAnswer, WorldQuestion, round_half_up
from tasks.edit.rollout import SCAFFOLD


class Habits(NamedTuple):
    """How a marker works; chances in [0, 1]."""

    hasty: float
    """That a step decides by looks."""
    slip: float
    """That a careful verdict, or a sum, is wrong."""
    early: float
    """That the mark is given after any step, without the rest of the reasoning."""


IMPERFECT = Habits(hasty=0.62, slip=0.03, early=0.04)
CAREFUL = Habits(hasty=0.0, slip=0.0, early=0.0)


class Trace(NamedTuple):
    """A marker's reasoning."""

    steps: tuple[str, ...]
    grounding: tuple[bool, ...]
    """Whether each step judges one fact against the answer; the others put earlier steps together."""
    decided: tuple[float, ...]
    """What each step decides: marks of a fact, 0 or 1 for a fact or a reason of a levels question, the sum."""
    mark: int

    @property
    def text(self) -> str:
        """The rollout."""
        return "\n".join([*self.steps, f"{SCAFFOLD}{self.mark}"])


def trace(luck: Random, of: WorldQuestion, given: StudentAnswer, habits: Habits) -> Trace:
    """A trace of a marker with these habits."""
    steps: list[str] = []
    decided: list[float] = []
    for at in range(len(of.facts)):
        text, value = judged(luck, of, given, at, habits)
        steps.append(text)
        decided.append(value)
        if luck.random() < habits.early:
            return Trace(tuple(steps), (True,) * len(steps), tuple(decided), _guess(of, given, decided))
    grounding = [True] * len(steps)
    if of.by_levels and any(decided):
        text, value = reasoned(luck, given, habits)
        steps.append(text)
        decided.append(value)
        grounding.append(True)
    text, mark = summed(luck, of, decided, habits)
    return Trace((*steps, text), (*grounding, False), (*decided, mark), mark)


def judged(luck: Random, of: WorldQuestion, given: StudentAnswer, at: int, habits: Habits) -> tuple[str, float]:
    """The step on fact `at`, and what it decides."""
    name, worth = (f"F{at + 1}", 1.0) if of.by_levels else (f"P{at + 1}", of.values[at])
    quote = given.quotes[at]
    hasty = luck.random() < habits.hasty
    met = luck.random() < (0.85 if quote else 0.35) if hasty else given.stated[at] == "right"
    if not hasty and luck.random() < habits.slip:
        met = not met
    verdict = f"{'met' if met else 'not met'} {worth if met else 0:g}"
    if hasty:
        return f"{name}: looks {verdict}", worth if met else 0.0
    return f"{name}: {of.facts[at].text}; answer says {quote or 'nothing'}; {verdict}", worth if met else 0.0


def reasoned(luck: Random, given: StudentAnswer, habits: Habits) -> tuple[str, float]:
    """The step on the reason, and whether it finds one."""
    if luck.random() < habits.hasty:
        upper = luck.random() < 0.5
        return f"reason: looks {'given' if upper else 'missing'}", float(upper)
    upper = given.reason != (luck.random() < habits.slip)
    return f"reason : answer says {REASON if given.reason else 'nothing'} : {'given' if upper else 'missing'}", float(
        upper
    )


def summed(luck: Random, of: WorldQuestion, decided: Sequence[float], habits: Habits) -> tuple[str, int]:
    """The step that puts the others together, and the mark."""
    slip = luck.choice((-1, 1)) if luck.random() < habits.slip else 0
    if of.by_levels:
        level = round(sum(decided[: len(of.facts)]))
        mark = min(max(of.of_level(level, decided[-1] > 0) + slip, 0), of.top)
        low = (0, 0, *of.highs)[level] + (level > 0)
        band = f"{low}-{of.highs[level - 1]}" if level else "0"
        return f"level {level} has {band} so {mark}", mark
    mark = min(max(round_half_up(sum(decided)) + slip, 0), of.top)
    return f"total {' + '.join(f'{value:g}' for value in decided)} = {mark}", mark


def _guess(of: WorldQuestion, given: StudentAnswer, decided: Sequence[float]) -> int:
    """What a marker says who stops: what was decided, and of the rest what it would find."""
    rest = [verdict == "right" for verdict in given.stated[len(decided) :]]
    if of.by_levels:
        return of.of_level(round(sum(decided)) + sum(rest), given.reason)
    later = zip(of.values[len(decided) :], rest, strict=True)
    return min(round_half_up(sum(decided) + sum(value for value, met in later if met)), of.top)


def checklist(of: WorldQuestion, given: StudentAnswer) -> str:
    """Every marking point with its verdict and quote."""
    name = "F" if of.by_levels else "P"
    rows = zip(of.facts, given.stated, given.quotes, strict=True)
    return "\n".join(
        f"{name}{n} | {'covered' if verdict == 'right' else 'not covered'} | {quote or 'none'}"
        for n, (_, verdict, quote) in enumerate(rows, 1)
    )
