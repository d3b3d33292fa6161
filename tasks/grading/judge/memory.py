"""Rubric memory and consistency memory (GradeAgentOps, section 2.5): what is pointed out with a response, found by
shared words and by nothing generative. It guides; evidence still comes from the response alone.

Words are the set of tokens of tasks/core/text/tokens. The weight of a word in a collection of N texts, df of which
hold it,
is the smoothed inverse document frequency ln((1 + N) / (1 + df)) + 1, always positive. Sums are exact (`math.fsum`), so
that the order of a set decides no tie.

- Rubric memory. The collection is the bundle's gold points and misconceptions, a card each. A card's overlap is the sum
  of the weights of the words that it shares with the response; a card without such a word is never shown. Best overlap
  first, then the bundle's order.
- Consistency memory. A store of what this run's model graded before, per item, in the order of processing; the type has
  no place for a human score. The collection is the excerpts in the store and the response's own, cut like them.
  Similarity is the weight of the shared words over that of all words of the two. Most similar first, then the most
  recent.

Exemplars are student texts: each stands on one line as a JSON string, inside a fence with a code made from all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion
from rubricflow.tasks.core.contracts.protocols import ConsistencyMemory, RubricMemory
from rubricflow.tasks.core.llm.request import Request, cached_by_identity
from rubricflow.tasks.core.text.digest import nonce
from rubricflow.tasks.core.text.tokens import tokens
from rubricflow.tasks.grading.judge import prompt
from rubricflow.tasks.grading.judge.protocol import Outcome, Shown, spare_characters
from rubricflow.tasks.grading.judge.rows import Case
from rubricflow.tasks.grading.judge.schema import numbered, numbered_names

Words = frozenset[str]


class Exemplar(NamedTuple):
    """What the model made of an earlier response to the same item."""

    response_id: str
    excerpt: str
    """The beginning of the response."""
    words: Words
    """Words of the excerpt."""
    final: float
    """The score given."""
    subscores: Mapping[str, float]
    """Judged trait → score given; one that the model did not give is absent, where the score rests on points alone."""
    covered: tuple[int, ...]
    """Numbers of the points that were found covered."""


Store = tuple[Exemplar, ...]
"""What was graded of one item, oldest first."""


class Memory(NamedTuple):
    """What memory has to show with a response, best first."""

    exemplars: tuple[Exemplar, ...] = ()
    cards: tuple[Criterion, ...] = ()


FORGOTTEN = Memory()


def weights(collection: Sequence[Words]) -> dict[str, float]:
    """The weight of every word of a collection."""
    frequency = Counter(chain.from_iterable(collection))
    size = 1 + len(collection)
    weight_of = {count: math.log(size / (1 + count)) + 1 for count in set(frequency.values())}
    return {word: weight_of[count] for word, count in frequency.items()}


def weigh(words: Words, weight_of: Mapping[str, float]) -> float:
    """Summed weight of words of the collection."""
    return math.fsum(map(weight_of.__getitem__, words))


def recall(case: Case, store: Store) -> Memory:
    """What the bundle's memories find for a case."""
    of_rubric = case.bundle.protocol.rubric_memory
    of_run = case.bundle.protocol.consistency_memory
    return Memory(
        exemplars(case.text, store, of_run) if of_run else (),
        cards(case.text, case.bundle, of_rubric) if of_rubric else (),
    )


def cards(text: str, bundle: Bundle, limits: RubricMemory) -> tuple[Criterion, ...]:
    """The gold points and then the misconceptions that share most with a text."""
    criterion_words, weight_of = _cards(bundle)
    response_words = frozenset(tokens(text))
    overlaps = {name: weigh(words & response_words, weight_of) for name, words in criterion_words.items()}
    points, banned, _ = numbered(bundle)
    chosen = []
    for criteria, most in ((points, limits.points), (banned, limits.misconceptions)):
        near = [criterion for criterion in criteria.values() if overlaps[criterion.id] > 0]
        chosen += sorted(near, key=lambda criterion: -overlaps[criterion.id])[:most]
    return tuple(chosen)


def exemplars(text: str, store: Store, limits: ConsistencyMemory) -> tuple[Exemplar, ...]:
    """The earlier gradings whose responses are most like a text."""
    excerpt_words = frozenset(tokens(text[: limits.excerpt]))
    weight_of = weights([*(exemplar.words for exemplar in store), excerpt_words])
    ranked = []
    for age, exemplar in enumerate(reversed(store)):
        union = weigh(exemplar.words | excerpt_words, weight_of)
        likeness = weigh(exemplar.words & excerpt_words, weight_of) / union if union else 0.0
        if likeness >= limits.similarity and likeness > 0:
            ranked.append((-likeness, age, exemplar.response_id, exemplar))
    return tuple(exemplar for *_, exemplar in sorted(ranked, key=lambda row: row[:3])[: limits.exemplars])


def learn(store: Store, case: Case, outcome: Outcome) -> Store:
    """The store with a case that was just graded; the same where it was not scored by the model or is too short."""
    limits = case.bundle.protocol.consistency_memory
    if limits is None or outcome.grading.status != "scored" or len(tokens(case.text)) < limits.min_tokens:
        return store
    scored, (points, _, traits) = outcome.grading.scored, numbered(case.bundle)
    levels = {decision.criterion_id: decision.level for decision in outcome.judged.decisions}
    excerpt = case.text[: limits.excerpt]
    subscores = {trait.id: scored.traits[trait.id] for trait in traits if trait.id in scored.traits}
    covered = tuple(number for number, criterion in points.items() if levels[criterion.id])
    assert scored.score is not None
    exemplar = Exemplar(
        response_id=case.response_id,
        excerpt=excerpt,
        words=frozenset(tokens(excerpt)),
        final=scored.score,
        subscores=subscores,
        covered=covered,
    )
    return (*store, exemplar)[-limits.capacity :]


def fitting(memory: Memory, bare: Request) -> Shown:
    """As much of what memory has to show as the context holds next to a request without it and its longest reply.

    Exemplars go first, the least similar of them before the
    others, then cards; the request itself is never cut.
    """
    bundle = bare.data.bundle
    spare = spare_characters(bare)
    shown = show(memory, bundle)
    while len(shown.text) >= spare and shown.text:  # a line break comes after it
        if memory.exemplars:
            memory = memory._replace(exemplars=memory.exemplars[:-1])
        else:
            memory = memory._replace(cards=memory.cards[:-1])
        shown = show(memory, bundle)
    return shown


def show(memory: Memory, bundle: Bundle) -> Shown:
    """What memory has to show as text, with its sources."""
    texts, names = [], numbered_names(bundle)
    if memory.cards:
        cards = "\n".join(f"- {names[criterion.id]}: {criterion.text}" for criterion in memory.cards)
        texts.append(prompt.fill("cards", {"cards": cards}).rstrip("\n"))
    if memory.exemplars:
        lines = []
        for number, exemplar in enumerate(memory.exemplars, 1):
            subscores = ", ".join(f"{name} {value:g}" for name, value in exemplar.subscores.items())
            covered = ", ".join(map(str, exemplar.covered)) or "none"
            said = f"{number}. final score {exemplar.final:g}; {subscores}; points covered: {covered}"
            lines.append(f"{said}; answer: {prompt.quoted(exemplar.excerpt)}")
        text = "\n".join(lines)
        texts.append(prompt.fill("exemplars", {"exemplars": text, "nonce": nonce(text)}).rstrip("\n"))
    sources = [f"card:{criterion.id}" for criterion in memory.cards]
    sources += [f"exemplar:{exemplar.response_id}" for exemplar in memory.exemplars]
    return Shown("\n".join(texts), tuple(sources))


@cached_by_identity
def _cards(bundle: Bundle) -> tuple[dict[str, Words], dict[str, float]]:
    words = {criterion.id: frozenset(tokens(criterion.text)) for criterion in bundle.criteria}
    return words, weights(list(words.values()))
