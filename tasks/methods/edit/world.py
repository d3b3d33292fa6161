"""A laboratory: marking questions whose gold marks are known by construction, and traces that mark them imperfectly.

Facts are short ("roots absorb water"). An answer states some, in other words; it states others wrongly (another
object, or a denial) and leaves the rest out. A points question pays for each fact that the answer states rightly; a
levels question gives a level by how many of its facts are stated and, within the level, the upper mark where the answer
gives a reason. Nothing else decides a mark, so gold is exact.

Traces have two kinds of step. A careful step repeats the fact, quotes the answer and then decides. A hasty one decides
by looks: whether the subject is mentioned at all, and by luck. That is the fault which Edit is to find and mend.

How the laboratory's decoder marks: hastily, with slips, or carefully.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

from rubricflow.tasks.core.contracts.bundle import Anchor, Criterion, Rubric, Scale, Trait
from rubricflow.tasks.methods.edit.rollout import SCAFFOLD

_NOUNS = (
    "roots leaves stems flowers seeds water sugar light heat air soil salt iron acid enzymes cells blood "
    "lungs heart muscles bones nerves hormones bacteria viruses fungi plants animals birds fish insects "
    "rocks rivers oceans clouds rain wind waves metals gases liquids crystals magnets currents wires "
    "lamps springs levers wheels pumps"
)
NOUNS = tuple(_NOUNS.split())
VERBS = {
    "absorb": "soak",
    "release": "emit",
    "carry": "transport",
    "need": "require",
    "make": "produce",
    "break": "split",
    "store": "keep",
    "warm": "heat",
    "move": "shift",
    "join": "link",
    "slow": "delay",
    "attract": "pull",
    "cover": "coat",
    "feed": "nourish",
    "filter": "clean",
    "guard": "protect",
}
"""Verb → the other word for it."""
TOPICS = ("growth", "energy", "transport", "weather", "motion", "health", "cycles", "change", "balance", "supply")
FILLERS = ("it is important", "this was in class", "everyone knows it", "that is all", "it can vary")
REASON = "because it is known"
Verdict = Literal["right", "wrong", "denied", "absent"]


class Fact(NamedTuple):
    """A subject, a verb and an object."""

    subject: str
    verb: str
    object: str

    @property
    def text(self) -> str:
        """As the scheme words it."""
        return " ".join(self)


@dataclass(frozen=True, slots=True)
class WorldQuestion:
    """A question with its facts, and what it pays: `values`, the marks of each fact, or `highs`, the upper mark of the
    levels 1, 2, … that so many facts reach."""

    item_id: str
    topic: str
    facts: tuple[Fact, ...]
    values: tuple[float, ...] = ()
    highs: tuple[int, ...] = ()

    @property
    def by_levels(self) -> bool:
        """Whether it is marked by levels of response."""
        return bool(self.highs)

    @property
    def top(self) -> int:
        """M_q."""
        return self.highs[-1] if self.by_levels else round_half_up(sum(self.values))

    @property
    def text(self) -> str:
        """As the student reads it; a levels question names its facts, since its scheme counts them."""
        if not self.by_levels:
            return f"explain {self.topic}"
        return f"discuss {self.topic} with F" + "; F".join(f"{n}: {fact.text}" for n, fact in enumerate(self.facts, 1))

    def gold(self, stated: Sequence[Verdict], reason: bool) -> int:
        """m* of an answer that states the facts so, and gives a reason or not."""
        right = [verdict == "right" for verdict in stated]
        if self.by_levels:
            return self.of_level(sum(right), reason)
        return round_half_up(sum(value for value, met in zip(self.values, right, strict=True) if met))

    def of_level(self, level: int, reason: bool) -> int:
        """The mark of a level: its highest with a reason, one less without."""
        return self.highs[level - 1] - (not reason) if level else 0

    def rubric(self) -> Rubric:
        """The authored rubric."""
        trait, criteria = self._levels() if self.by_levels else self._points()
        scale = Scale(min=0, max=self.top)
        return Rubric(rubric_id=self.item_id, scale=scale, traits=(trait,), criteria=tuple(criteria))

    def _levels(self) -> tuple[Trait, list[Criterion]]:
        anchors = [Anchor(score=high, text=_level(number)) for number, high in enumerate((0, *self.highs))]
        trait = Trait(id="quality", name="Quality", min=0, max=self.top, anchors=tuple(anchors))
        criterion = Criterion(
            id="level",
            trait="quality",
            text="How many of the facts the answer states.",
            kind="concept",
            levels=tuple(_level(number) for number in range(len(self.facts) + 1)),
            weight=self.top,
        )
        return trait, [criterion]

    def _points(self) -> tuple[Trait, list[Criterion]]:
        trait = Trait(id="content", name="Content", min=0, max=self.top)
        criteria = []
        for number, (fact, value) in enumerate(zip(self.facts, self.values, strict=True), 1):
            criteria.append(Criterion(id=f"P{number}", trait="content", text=fact.text, weight=value))
        return trait, criteria


def _level(facts: int) -> str:
    return ("no fact", "one fact", "two facts", "three facts", "four facts")[facts]


@dataclass(frozen=True, slots=True)
class StudentAnswer:
    """A student's answer: what it says of each fact, the words, and whether it gives a reason."""

    text: str
    stated: tuple[Verdict, ...]
    quotes: tuple[str, ...]
    """The sentence on each fact's subject; '' where there is none."""
    reason: bool


def question(rng: Random, item_id: str, unusual: float = 0.1) -> WorldQuestion:
    """A question drawn at random. unusual: chance that its points are worth other marks than the same 1, 2 or 3 each,
    or its levels other bands than two marks each."""
    if rng.random() < 0.3:
        count = rng.choice((2, 3))
        width, extra = rng.choice(((2, 1), (2, 2), (4, 0), (3, 0))) if rng.random() < unusual else (2, 0)
        highs = tuple(width * level + extra for level in range(1, count + 1))
        return WorldQuestion(item_id, rng.choice(TOPICS), _facts(rng, count), highs=highs)
    count = rng.choice((2, 3, 3, 4))
    usual = rng.choice((1, 1, 1, 1, 2, 3))
    values = tuple(float(usual) for _ in range(count))
    if rng.random() < unusual:
        mixed = tuple(rng.choice((1.0, 2.0)) for _ in values)
        values = rng.choice(((0.5,) * count, (1.5,) * count, mixed))
    return WorldQuestion(item_id, rng.choice(TOPICS), _facts(rng, count), values)


def _facts(rng: Random, count: int) -> tuple[Fact, ...]:
    subjects = rng.sample(NOUNS, count)
    others = [noun for noun in NOUNS if noun not in subjects]
    return tuple(Fact(subject, rng.choice(tuple(VERBS)), rng.choice(others)) for subject in subjects)


def answer(rng: Random, item: WorldQuestion) -> StudentAnswer:
    """An answer drawn at random: each fact right, wrong, denied or absent; the sentences in any order."""
    skill = rng.random()
    stated = []
    quotes = []
    for fact in item.facts:
        drawn = rng.random()
        verdict: Verdict = "right" if drawn < 0.2 + 0.6 * skill else rng.choice(("wrong", "wrong", "denied", "absent"))
        stated.append(verdict)
        quotes.append(_sentence(rng, fact, verdict))
    reason = item.by_levels and rng.random() < 0.5
    sentences = [quote for quote in quotes if quote]
    if reason:
        sentences.append(REASON)
    sentences += rng.sample(FILLERS, rng.choice((0, 0, 1)))
    rng.shuffle(sentences)
    return StudentAnswer(" . ".join(sentences or ["it can vary"]) + " .", tuple(stated), tuple(quotes), reason)


def _sentence(rng: Random, fact: Fact, verdict: Verdict) -> str:
    if verdict == "absent":
        return ""
    verb = rng.choice((fact.verb, VERBS[fact.verb]))
    thing = fact.object
    if verdict == "wrong":
        thing = rng.choice([noun for noun in NOUNS if noun not in (fact.object, fact.subject)])
    return f"{fact.subject} {'never ' if verdict == 'denied' else ''}{verb} {thing}"


def round_half_up(value: float) -> int:
    """The nearest whole mark, halves up."""
    return int(value + 0.5)


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
    steps = []
    decided = []
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
