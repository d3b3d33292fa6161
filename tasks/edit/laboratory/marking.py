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


def trace(rng: Random, item: WorldQuestion, response: StudentAnswer, habits: Habits) -> Trace:
    """A trace of a marker with these habits."""
    steps: list[str] = []
    decided: list[float] = []
    for fact in range(len(item.facts)):
        text, value = judged(rng, item, response, fact, habits)
        steps.append(text)
        decided.append(value)
        if rng.random() < habits.early:
            return Trace(tuple(steps), (True,) * len(steps), tuple(decided), _guess(item, response, decided))
    grounding = [True] * len(steps)
    if item.by_levels and any(decided):
        text, value = reasoned(rng, response, habits)
        steps.append(text)
        decided.append(value)
        grounding.append(True)
    text, mark = summed(rng, item, decided, habits)
    return Trace((*steps, text), (*grounding, False), (*decided, mark), mark)


def judged(rng: Random, item: WorldQuestion, response: StudentAnswer, fact: int, habits: Habits) -> tuple[str, float]:
    """The step on fact `fact`, and what it decides."""
    name, worth = (f"F{fact + 1}", 1.0) if item.by_levels else (f"P{fact + 1}", item.values[fact])
    quote = response.quotes[fact]
    hasty = rng.random() < habits.hasty
    if hasty:
        met = rng.random() < (0.85 if quote else 0.35)
    else:
        met = response.stated[fact] == "right"
        if rng.random() < habits.slip:
            met = not met
    verdict = f"{'met' if met else 'not met'} {worth if met else 0:g}"
    if hasty:
        return f"{name}: looks {verdict}", worth if met else 0.0
    return f"{name}: {item.facts[fact].text}; answer says {quote or 'nothing'}; {verdict}", worth if met else 0.0


def reasoned(rng: Random, response: StudentAnswer, habits: Habits) -> tuple[str, float]:
    """The step on the reason, and whether it finds one."""
    if rng.random() < habits.hasty:
        upper = rng.random() < 0.5
        return f"reason: looks {'given' if upper else 'missing'}", float(upper)
    upper = response.reason != (rng.random() < habits.slip)
    quote, verdict = REASON if response.reason else "nothing", "given" if upper else "missing"
    return f"reason : answer says {quote} : {verdict}", float(upper)


def summed(rng: Random, item: WorldQuestion, decided: Sequence[float], habits: Habits) -> tuple[str, int]:
    """The step that puts the others together, and the mark."""
    slip = rng.choice((-1, 1)) if rng.random() < habits.slip else 0
    if item.by_levels:
        level = round(sum(decided[: len(item.facts)]))
        mark = min(max(item.of_level(level, decided[-1] > 0) + slip, 0), item.top)
        low = (0, 0, *item.highs)[level] + (level > 0)
        band = f"{low}-{item.highs[level - 1]}" if level else "0"
        return f"level {level} has {band} so {mark}", mark
    mark = min(max(round_half_up(sum(decided)) + slip, 0), item.top)
    return f"total {' + '.join(f'{value:g}' for value in decided)} = {mark}", mark


def _guess(item: WorldQuestion, response: StudentAnswer, decided: Sequence[float]) -> int:
    """What a marker says who stops: what was decided, and of the rest what it would find."""
    expected = [verdict == "right" for verdict in response.stated[len(decided) :]]
    if item.by_levels:
        return item.of_level(round(sum(decided)) + sum(expected), response.reason)
    later = zip(item.values[len(decided) :], expected, strict=True)
    return min(round_half_up(sum(decided) + sum(value for value, met in later if met)), item.top)


def checklist(item: WorldQuestion, response: StudentAnswer) -> str:
    """Every marking point with its verdict and quote."""
    name = "F" if item.by_levels else "P"
    lines = []
    for number, (verdict, quote) in enumerate(zip(response.stated, response.quotes, strict=True), 1):
        covered = "covered" if verdict == "right" else "not covered"
        lines.append(f"{name}{number} | {covered} | {quote or 'none'}")
    return "\n".join(lines)
