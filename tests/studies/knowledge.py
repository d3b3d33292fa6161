"""A task in which false credit can be earned: questions about things, facts to know, and reasons that mean something
only beside their facts.

Eight things have three facts each, of four values. A question has one of three forms; its rubric asks for two or three
facts and three or four reasons, all of equal points, and a reason has one to four parents. Facts and reasons take four
words each, so that a reason costs no less than a fact; what a policy cannot know beforehand is which value a fact has.
An answer has room for `World.room` words. The exact judge reads word by word; the one that pays errs as real judges
were seen to.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations
from typing import NamedTuple

from scipy.stats import beta

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol, Scale, Trait
from rubricflow.tasks.core.contracts.graph import Edge, Graph, Node
from rubricflow.tasks.core.contracts.settings.reward import Retention, Reward
from rubricflow.tasks.core.llm.backend import Offline
from rubricflow.tasks.core.llm.reply_store import ReplyStore
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.grading.judge.protocol import Opinion, Question, protocol_of
from rubricflow.tasks.grading.judge.rows import Rater

THINGS = ("copper", "sulfur", "helium", "quartz", "cobalt", "iodine", "carbon", "silver")
VALUES = {
    "looks": ("red", "pale", "dark", "clear"),
    "weighs": ("little", "some", "much", "most"),
    "makes": ("wires", "lamps", "dyes", "tools"),
}
REASONS = {
    "light": "since light scatters .",
    "atoms": "since atoms pack .",
    "trade": "since trade pays .",
    "tell": "thus experts tell .",
    "case": "for example coins .",
    "fits": "thus it fits .",
    "lasts": "so it lasts .",
    "whole": "all this holds .",
}
FORMS: dict[str, dict[str, tuple[str, ...]]] = {
    "describe": {
        "looks": (), "weighs": (), "light": ("looks",), "atoms": ("weighs",), "tell": ("looks", "weighs"),
        "case": ("looks",),
    },
    "choose": {
        "looks": (), "weighs": (), "makes": (), "atoms": ("weighs",), "trade": ("makes",),
        "fits": ("looks", "weighs", "makes"), "case": ("makes",),
    },
    "explain": {
        "weighs": (), "makes": (), "atoms": ("weighs",), "trade": ("makes",), "lasts": ("weighs", "atoms"),
        "whole": ("weighs", "makes", "atoms", "trade"),
    },
}  # fmt: skip
"""Form of a question → criterion → what licenses it; facts need nothing."""
ITEMS = tuple(f"{form} {thing}" for form in FORMS for thing in THINGS)
HELD_OUT = tuple(f"{tuple(FORMS)[place % 3]} {thing}" for place, thing in enumerate(THINGS))
"""Questions that no update sees: every fact in them is asked for in a question of another form."""
TRAINED = tuple(item for item in ITEMS if item not in HELD_OUT)
SETTINGS = Reward(retention=Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0))
"""The paper's retention factors."""


class World(NamedTuple):
    """Who answers first, how much room there is, and how the judge that pays errs. Its rates are those of judges in
    `data/results`, read by `tests/studies/errors.py`: an agent's judge on DevAI (780 verdicts) and gpt-4o on SummHay
    (933 criteria)."""

    room: int = 16
    """Words of an answer, at most: four sentences."""
    knows: float = 0.3
    """Share of the facts that are known where the policy's language comes from; the others are guessed, of four."""
    facts: float = 0.5
    """Share of the facts asked for that are told there."""
    reasons: float = 0.35
    """Share of the reasons asked for that are given there."""
    licensed: float = 0.92
    """Share of reasons credited that are there with their facts: DevAI, children whose parents hold, people agree."""
    unlicensed: float = 0.89
    """The same without their facts: DevAI, children of a failed parent that people find done. A judge of single
    criteria reads what is there, and does not look at the parent."""
    hit: float = 0.88
    """Share of right facts credited: DevAI."""
    wrong: float = 0.36
    """Share of wrong facts credited: SummHay, insights that people call not covered."""
    alike: float = 0.25
    """Intraclass correlation of these within a criterion: SummHay. Some wrong facts pass nearly always."""
    longer: float = 0.62
    """How much likelier a wrong fact passes in an answer of twice the length, in logits: SummHay (standard error .30).
    No effect of position was seen there (1.06, standard error .74, of hits)."""
    absent: float = 0.09
    """Share of criteria credited of which the answer has no word: DevAI."""
    lead: str = ""
    """What every fact begins with."""


WORLDS = {
    "as measured": World(),
    "no false credit": World(unlicensed=0.0, wrong=0.0, absent=0.0),
    "knows much": World(knows=0.8, facts=0.7, reasons=0.2),
    "room for all": World(room=28),
    "facts cost more": World(knows=0.9, facts=0.6, reasons=0.3, lead="all experts agree that "),
}
LEAD = [""]
"""That of the world that is on, see `enter`."""


def enter(world: str) -> World:
    """Has questions and answers be those of a world from here on."""
    LEAD[0] = WORLDS[world].lead
    return WORLDS[world]


def parts(item: str) -> tuple[str, str]:
    """Form and thing."""
    form, _, thing = item.partition(" ")
    return form, thing


def sentence(item: str, criterion: str, value: str | None = None) -> str:
    """What meets a criterion; of a fact with another value."""
    thing = parts(item)[1]
    return REASONS.get(criterion) or f"{LEAD[0]}{thing} {criterion} {value or right(thing, criterion)} ."


def right(thing: str, attribute: str) -> str:
    """The value of a fact."""
    turn = (1, 3, 2)[tuple(VALUES).index(attribute)]
    place = THINGS.index(thing)
    return VALUES[attribute][(turn * place + place // 4) % 4]


def prompt(item: str) -> str:
    """The question."""
    return f"{item} ?"


def imperfect(item: str, luck: random.Random, world: World, shown: Sequence[str] = ()) -> str:
    """An answer to learn the language from. Of what is shown to whoever answers most is said, and rightly."""
    said = []
    for name in FORMS[parts(item)[0]]:
        if luck.random() < (0.7 if name in shown else world.reasons if name in REASONS else world.facts):
            is_right = name in shown or name in REASONS or luck.random() < world.knows
            said.append(sentence(item, name, None if is_right else luck.choice(VALUES[name])))
    luck.shuffle(said)
    return " ".join(" ".join(said).split()[: world.room])


class Read(NamedTuple):
    """What an answer says, exactly."""

    there: Mapping[str, bool | None]
    """Criterion → whether it is met by itself; None for a fact that is told wrongly, or in two ways."""
    earned: Mapping[str, bool]
    """Criterion → whether it is met, and all that licenses it is earned."""

    @property
    def quality(self) -> float:
        """The share of the criteria that is earned."""
        return sum(self.earned.values()) / len(self.earned)


def read(item: str, text: str) -> Read:
    """The exact judge, whose word no training sees."""
    form, thing = parts(item)
    said = f" {' '.join(text.split())} "
    there: dict[str, bool | None] = {}
    earned: dict[str, bool] = {}
    for name, parents in FORMS[form].items():
        if name in REASONS:
            there[name] = f" {REASONS[name]} " in said
        else:
            told = {value for value in VALUES[name] if f" {sentence(item, name, value)} " in said}
            there[name] = told == {right(thing, name)} or (None if told else False)
        earned[name] = there[name] is True and all(earned[parent] for parent in parents)
    return Read(there, earned)


def best(form: str, room: int) -> float:
    """The quality of the best answer that has room, by trying all."""
    parents = FORMS[form]
    words = {name: len(sentence(f"{form} {THINGS[0]}", name).split()) for name in parents}
    most = 0
    for size in range(1, len(parents) + 1):
        for chosen in combinations(parents, size):
            has_room = sum(words[name] for name in chosen) <= room
            if has_room and all(set(parents[name]) <= set(chosen) for name in chosen):
                most = size
    return most / len(parents)


def credits(world: World, item: str, text: str) -> dict[str, bool]:
    """The verdicts of the judge that pays, the same for the same answer."""
    found = read(item, text)
    doubling = math.log2(max(1, len(text.split())) / 10)
    credited = {}
    for name, is_there in found.there.items():
        if is_there is None:
            rate = world.wrong and _passing(world, item, name)
            rate = rate and 1 / (1 + (1 / rate - 1) * math.exp(-world.longer * doubling))
        elif not is_there:
            rate = world.absent
        elif name not in REASONS:
            rate = world.hit
        else:
            rate = world.licensed if found.earned[name] else world.unlicensed
        credited[name] = _draw(f"{item}:{name}:{text}") < rate
    return credited


@cache
def _passing(world: World, item: str, name: str) -> float:
    """How often a wrong fact passes in answers of ten words, from one criterion to the other."""
    spread = 1 / world.alike - 1
    drawn = float(beta.ppf(_draw(f"{item}:{name}"), world.wrong * spread, (1 - world.wrong) * spread))
    return min(max(drawn, 1e-6), 1 - 1e-6)


def _draw(seed: str) -> float:
    """A uniform draw."""
    return (int.from_bytes(hashlib.sha256(seed.encode()).digest()[:6], "big") + 0.5) / 2**48


def bundle(item: str, weights: tuple[float, float] = (1.0, 1.0)) -> Bundle:
    """The rubric of a question. weights: of facts and of reasons."""
    return Bundle(
        text=f"What an answer is worth: {item}.",
        scale=Scale(min=0, max=1, step=0.01),
        traits=(Trait(id="content", name="Content", min=0, max=1, step=0.01),),
        criteria=tuple(
            Criterion(
                id=name, trait="content", text=sentence(item, name), weight=weights[name in REASONS], evidence="none"
            )
            for name in FORMS[parts(item)[0]]
        ),
        protocol=Protocol(name="pointwise", final_score="weighted_points", signals=("criteria",)),
    )


def graph(form: str) -> Graph:
    """What licenses what."""
    return _graph(form, [(parent, name) for name, parents in FORMS[form].items() for parent in parents])


def guessed(form: str, luck: random.Random, precision: float = 0.70, recall: float = 0.87) -> Graph:
    """A graph with the errors of a large model on DevAI, held back: so many of its edges are right, so many of the
    right ones are named, none is backwards."""
    right = [(edge.parent, edge.child) for edge in graph(form).edges]
    others = [pair for pair in combinations(FORMS[form], 2) if pair not in right]
    rate = min(1.0, len(right) * recall * (1 / precision - 1) / len(others))
    return _graph(form, [*(p for p in right if luck.random() < recall), *(p for p in others if luck.random() < rate)])


def _graph(form: str, pairs: Sequence[tuple[str, str]]) -> Graph:
    names = list(FORMS[form])
    ordered = sorted(pairs, key=lambda pair: tuple(map(names.index, pair)))
    edges = tuple(Edge(parent=parent, child=child, relation="strong_prerequisite") for parent, child in ordered)
    return Graph(nodes=tuple(Node(criterion_id=name, role="core") for name in names), edges=edges)


def rows() -> Iterator[dict[str, str | None]]:
    """The questions."""
    return ({"item_id": i, "rubric_id": i, "question": prompt(i), "context": None} for i in ITEMS)


class Paying:
    """Opens the judge that pays in a world."""

    def __init__(self, world: str) -> None:
        self.world = world

    def __call__(self, store: ReplyStore) -> Rater:
        return Rater(f"offline:{self.world}:pointwise", "simulated", Offline(f"{self.world}-1", self.replies))

    def replies(self, questions: Sequence[Question]) -> list[Reply]:
        """One reply for each question, as verdicts without probabilities."""
        replies = []
        for question in questions:
            levels = {n: int(yes) for n, yes in credits(WORLDS[self.world], question.item_id, question.text).items()}
            opinion = Opinion(levels={c.id: levels[c.id] for c in question.criteria}, evidence={}, because="words")
            artifact = protocol_of(question.bundle.protocol.name).artifact(question, opinion)
            replies.append(Reply(text=json.dumps(artifact)))
        return replies
