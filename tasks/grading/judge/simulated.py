"""The simulated rater: a made-up judge over data whose truth is known, for method studies only.

It knows a human rater's marks and scores and errs as `Truth` says. Its opinion of a response is the truth, as shares in
[0, 1], moved by its severity, by noise, and towards the exemplars that it is shown. Half of the noise's variance is one
draw for the whole response. A criterion with M + 1 levels has its true level j at (j + ½)/(M + 1), and one
that was marked on more levels than the bundle has, in between; the rater states the
level closest to what it sees, with the probability of every level given what it sees, its noise and no preference among
levels: without severity and anchoring its confidence is right on average. What it sees of a response does not depend on
batch, order, protocol or memory, so that configurations are compared in pairs; whether a quote is invented or a reply
broken is drawn for each request. Where a response has no marks, a criterion that earns has the score's share, and one
that costs half of what is missing; where it has marks and no score, the score is what the marks earn.

Its id begins with 'simulated:' and its kind is 'simulated' in every table.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.composite import share_of_points
from rubricflow.tasks.core.contracts.settings.judge import Truth
from rubricflow.tasks.core.llm.request import Reply, Request, cached_by_identity
from rubricflow.tasks.core.text.digest import text_digest
from rubricflow.tasks.core.text.quotes import shortened
from rubricflow.tasks.core.text.tokens import counts, tokens
from rubricflow.tasks.grading.judge.protocol import Opinion, Question, protocol_of
from rubricflow.tasks.grading.judge.schema import MAX_QUOTE
from rubricflow.tasks.grading.judge.score import added, counted, onto, round_half_up, share_of, whole_shares

RIGHT = 0.9
"""Share of its repairs that are neither broken nor invented."""
_EXEMPLAR = "exemplar:"


@dataclass(frozen=True)
class HumanMarks:
    """What a human rater said about one response."""

    levels: Mapping[str, int] = field(default_factory=dict)
    """Criterion → level."""
    tops: Mapping[str, int] = field(default_factory=dict)
    """Criterion → the highest level that the rater gave for it to any response of the item."""
    traits: Mapping[str, float] = field(default_factory=dict)
    """Trait → score in its range."""
    score: float | None = None
    """On the bundle's scale."""


def human_marks(gradings: Iterable[Mapping[str, Any]], judgments: Iterable[Mapping[str, Any]]) -> dict[str, HumanMarks]:
    """Response → what one human rater said about it, from rows of `gradings` (response_id, item_id, score,
    trait_scores) and `judgments` (response_id, criterion_id, decision). A response without a grading is left out."""
    levels: dict[str, dict[str, int]] = defaultdict(dict)
    for row in judgments:
        if row["decision"] is not None:
            levels[row["response_id"]][row["criterion_id"]] = row["decision"]
    scored = {row["response_id"]: row for row in gradings}
    tops: dict[str, dict[str, int]] = defaultdict(dict)
    for name, row in scored.items():
        highest = tops[row["item_id"]]
        for criterion, level in levels[name].items():
            highest[criterion] = max(level, highest.get(criterion, 0))
    return {
        name: HumanMarks(levels[name], tops[row["item_id"]], row["trait_scores"], row["score"])
        for name, row in scored.items()
    }


@dataclass(frozen=True)
class _Perceived:
    """What the rater sees of a response before it reads anything else, in shares; credit counts upwards."""

    levels: Mapping[str, float]
    traits: Mapping[str, float]
    score: float


class Simulated:
    """Backend that answers by the response's id; what it does not know is the error 'not_known'."""

    name = "simulated"
    reads_prose = False
    by_subject = True
    batch_size = 256

    def __init__(self, truth: Truth, marks: Mapping[str, HumanMarks]) -> None:
        """marks: response → what the rater that `truth` names said about it."""
        content = [truth.model_dump(mode="json"), {name: vars(of_response) for name, of_response in marks.items()}]
        digest = text_digest(json.dumps(content, sort_keys=True))
        self.model = f"{truth.rater}-{digest[:12]}"
        self._truth, self._marks = truth, marks

    def answer(self, requests: Sequence[Request]) -> Iterator[tuple[int, Reply]]:
        """Yields in order."""
        return iter([(index, answer(request, self._truth, self._marks)) for index, request in enumerate(requests)])


def answer(request: Request, truth: Truth, marks: Mapping[str, HumanMarks]) -> Reply:
    """The reply to a request, the same whenever and with whatever it is asked. An error where nothing is known."""
    question: Question = request.data
    if request.subject not in marks:
        return Reply(error=f"not_known: rater '{truth.rater}' said nothing about '{request.subject}'")
    # Memory and what a repair shows tell one request about a response from another.
    words = "".join(message.content for message in request.messages) + f":{request.sampling.seed}"
    digest = text_digest(words)
    rng = random.Random(f"{truth.seed}:{request.role}:{question.part}:{request.subject}:{digest}")
    is_repair = request.role.endswith("_repair")
    broken, invented = (1 - RIGHT, 1 - RIGHT) if is_repair else (truth.broken, truth.invented)
    # Rates of 0 mean a rater that never errs, when it repairs neither.
    broken, invented = broken * (truth.broken > 0), invented * (truth.invented > 0)
    opinion, probabilities = _opinion(request, truth, marks, invented, rng)
    text = json.dumps(protocol_of(question.bundle.protocol.name).artifact(question, opinion), ensure_ascii=False)
    if rng.random() < broken:
        text = damaged(text, rng.choice(sorted(WAYS)), rng)
    names = {criterion.id for criterion in question.criteria}
    return Reply(text=text, level_probabilities={name: p for name, p in probabilities.items() if name in names})


def level_probabilities(perceived: float, top: int, noise: float) -> list[float]:
    """Probability of each level 0…top at a place seen in [0, 1] or beyond, for a rater with normal noise and no
    preference among levels: proportional to the density of what is seen. Without noise the closest level has it all,
    the higher one of two."""
    centres = [(level + 0.5) / (top + 1) for level in range(top + 1)]
    if noise == 0:
        closest = min(range(top + 1), key=lambda level: (abs(perceived - centres[level]), -level))
        return [float(level == closest) for level in range(top + 1)]
    exponents = [-0.5 * ((perceived - centre) / noise) ** 2 for centre in centres]
    largest = max(exponents)
    weights = [math.exp(exponent - largest) for exponent in exponents]
    return [weight / sum(weights) for weight in weights]


def _opinion(
    request: Request, truth: Truth, marks: Mapping[str, HumanMarks], invented: float, rng: random.Random
) -> tuple[Opinion, dict[str, list[float]]]:
    """The opinion with its quotes, and the probability of each level of every criterion of the bundle."""
    question: Question = request.data
    bundle, seed = question.bundle, request.sampling.seed
    perceived = _perceived(request.subject, seed, bundle, truth, marks)
    shown = [source.removeprefix(_EXEMPLAR) for source in question.shown if source.startswith(_EXEMPLAR)]
    anchors = [_perceived(name, seed, bundle, truth, marks).score for name in shown if name in marks]
    shift = truth.anchoring * (math.fsum(anchors) / len(anchors) - perceived.score) if anchors else 0.0
    probabilities, levels, evidence = {}, {}, {}
    for criterion in bundle.criteria:
        place = perceived.levels[criterion.id] + _sign(criterion) * shift
        probabilities[criterion.id] = level_probabilities(place, criterion.top, truth.noise)
        likely = probabilities[criterion.id]
        levels[criterion.id] = max(range(len(likely)), key=lambda level: (likely[level], level))
        if levels[criterion.id]:
            evidence[criterion.id] = _quotes(question, criterion, invented, rng)
    traits = {}
    for trait in (*bundle.traits, *question.traits):
        traits[trait.id] = round_half_up(onto(perceived.traits.get(trait.id, perceived.score) + shift, trait), trait)
    met = sum(level > 0 for level in levels.values())
    opinion = Opinion(
        levels=levels,
        evidence=evidence,
        traits=traits,
        score=round_half_up(onto(perceived.score + shift, bundle.scale), bundle.scale),
        because=f"simulated: {met} of {len(levels)} criteria are met",
    )
    return opinion, probabilities


def _perceived(
    response_id: str, sample: int, bundle: Bundle, truth: Truth, marks: Mapping[str, HumanMarks]
) -> _Perceived:
    human = marks[response_id]
    score = share_of(human.score, bundle.scale) if human.score is not None else _earned(bundle, human)
    of_response = _draw(truth, response_id, sample, "") * math.sqrt(0.5)
    levels = {}
    for c in bundle.criteria:
        if c.id in human.levels:
            place = (c.top * _marked(c, human) + 0.5) / (c.top + 1)
        else:
            place = score if c.weight >= 0 else (1 - score) / 2
        shift = _sign(c) * (truth.severity + truth.noise * of_response)
        levels[c.id] = place + shift + truth.noise * _draw(truth, response_id, sample, c.id) * math.sqrt(0.5)
    of_score = _draw(truth, response_id, sample, "score") * math.sqrt(0.5)
    shift = truth.severity + truth.noise * (of_response + of_score)
    traits = {t.id: share_of(human.traits[t.id], t) + shift for t in bundle.traits if t.id in human.traits}
    return _Perceived(levels, traits, score + shift)


def _sign(criterion: Criterion) -> int:
    """Which way credit moves the level."""
    return 1 if criterion.weight >= 0 else -1


def _draw(truth: Truth, *key: object) -> float:
    """A standard normal draw."""
    return random.Random(f"{truth.seed}:{':'.join(map(str, key))}").gauss(0.0, 1.0)


def _earned(bundle: Bundle, human: HumanMarks) -> float:
    """The share that the marks earn; a level that lies between the criterion's counts as the lower where it is
    counted."""
    counting = {}
    for c in bundle.criteria:
        if c.id in human.levels:
            share = _marked(c, human)
            worth = counted(bundle)[c.id]
            is_between = worth == c.shares
            place = share * c.top if is_between else math.floor(share * c.top + 1e-9)
            counting[c.id] = float(np.interp(place, range(c.top + 1), worth))
    shares = whole_shares(bundle, counting)
    adding = [c for c in added(bundle) if c.id in shares and c.weight]
    return share_of_points(adding, shares) if adding else 0.5


def _marked(criterion: Criterion, human: HumanMarks) -> float:
    """The level that people marked as a share of the highest: theirs, where they have more levels."""
    return human.levels[criterion.id] / max(criterion.top, human.tops.get(criterion.id, 0))


def _quotes(question: Question, criterion: Criterion, invented: float, rng: random.Random) -> list[dict[str, str]]:
    """The sentence that shares most with the criterion, or words that it only thinks to have read."""
    sentences = [u for u in question.units if u.kind == "sentence"]
    sentences = [u for u in sentences if counts(question.text[u.start : u.end])] or sentences
    if not sentences:
        return []
    weights = _weights(question.bundle)
    criterion_words = set(tokens(criterion.text))

    def shared(text: str) -> float:
        return math.fsum(sorted(weights[word] for word in criterion_words & set(tokens(text))))

    best = max(sentences, key=lambda u: shared(question.text[u.start : u.end]))
    quote = shortened(question.text[best.start : best.end], MAX_QUOTE)
    if rng.random() < invented:
        quote = " ".join(rng.sample(sorted(criterion_words), len(criterion_words)))
    return [{"unit": best.unit_id, "quote": quote}]


@cached_by_identity
def _weights(bundle: Bundle) -> dict[str, float]:
    """Word of a criterion → how much it tells this criterion from the others: ln((1 + N)/df)."""
    texts = [set(tokens(criterion.text)) for criterion in bundle.criteria]
    frequency = Counter(chain.from_iterable(texts))
    return {word: math.log((1 + len(texts)) / count) for word, count in frequency.items()}


# Replies damaged as real models were seen to damage theirs: for tests of what reading, repair and routing make of it.
# The ways are those that tests/studies/damage.py counts in recorded replies of real judges.

Damage = Callable[[str, random.Random], str]
"""(a reply that is one JSON object, a random generator) → what is left of it."""

_STRING = r'("(?:[^"\\]|\\.)*")'
_NUMBER = re.compile(_STRING + r"|(?<=: )(-?\d+(?:\.\d+)?)")
_CLOSING = re.compile(_STRING + r"|(?<![\[{])(\s*[}\]])")
_INNER_WORD = re.compile(r"(?<=\w )\w{3,}(?= \w)")
_PREFACE = "Sure, I'd be happy to help! Here is my evaluation of the response, based on the rubric you provided:\n\n"
_AFTERWORD = "\n\nHere is a breakdown of my evaluation: the response names the main idea {but not its limits}, and it"

_SECOND = "\n\nResponse 2:\nIt is what it is.\n\nOutput:\n"


def damaged(text: str, way: str, rng: random.Random) -> str:
    """A reply damaged in one way. It stays as it is where there is nothing of the kind to damage: no escaped quotation
    mark, no number, no object."""
    return WAYS[way](text, rng)


def _inserted(text: str, pattern: re.Pattern[str], sign: str, rng: random.Random) -> str:
    """The text with a sign where the pattern matches outside a string, once, or at its end where it does not."""
    places = [match.start() for match in pattern.finditer(text) if not (match.re.groups and match[1])]
    place = rng.choice(places) if places else len(text)
    return f"{text[:place]}{sign}{text[place:]}"


def _rewritten(text: str, write: Callable[[dict[str, object]], str]) -> str:
    """The members of the text's object, written another way."""
    try:
        return write(json.loads(text))
    except ValueError:
        return text


def _numbers(text: str, template: str) -> str:
    """The text with every number that is a member's value put in other words, as recorded judges did theirs."""
    return _NUMBER.sub(lambda match: match[1] or template.format(match[2]), text)


WAYS: Mapping[str, Damage] = MappingProxyType(
    {
        "in_prose": lambda text, rng: _PREFACE + text,
        "followed": lambda text, rng: text + _AFTERWORD,
        "fenced": lambda text, rng: f"```json\n{text}\n```",
        "fenced_in_prose": lambda text, rng: f"{_PREFACE}```\n{text}\n```{_AFTERWORD}",
        "trailing_comma": lambda text, rng: _inserted(text, _CLOSING, ",", rng),
        "unescaped_quotes": lambda text, rng: text.replace('\\"', '"'),
        "single_quotes": lambda text, rng: _rewritten(text, repr),
        "raw_line_breaks": lambda text, rng: _inserted(text, _INNER_WORD, "\n", rng),
        # A base model goes on with an example of its own: the same object with other numbers.
        "second_object": lambda text, rng: text + _SECOND + _numbers(text, "0"),
        "bare_words": lambda text, rng: _numbers(text, "Score Point {}"),
        "unclosed": lambda text, rng: text.rstrip().rstrip("}").rstrip(),
        "cut": lambda text, rng: text[: rng.randrange(1, max(2, len(text)))],
        "fraction": lambda text, rng: _numbers(text, "{}/10"),
        "other_keys": lambda text, rng: _rewritten(
            text, lambda members: json.dumps({f"{name}_list": members[name] for name in members}, ensure_ascii=False)
        ),
        "prose": lambda text, rng: (
            f"{_PREFACE}The response scores a 5 out of 6. It names the main idea and gives reasons for it."
        ),
        "empty": lambda text, rng: rng.choice(["", " \n"]),
    }
)
"""Way → how it is done, from what reading alone can undo to what leaves nothing to read."""
