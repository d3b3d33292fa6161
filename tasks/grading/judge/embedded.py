"""The embedded rater: decides each criterion by how much of it a response says. It needs no GPU, no server, no labels.

Every token of a criterion looks for the token of the response that is closest to it, by spelling and by meaning in its
sentence (long sentences in windows). The criterion's similarity is the mean of these cosines; rare words of the
language count more, and words of the question a quarter. Where points and misconceptions are asked for together, a
criterion loses as much as its closest sentence is closer to one of the other kind. Ordered thresholds turn the
similarity into a probability for every level; the most probable level is decided, and the sentence that says most
of the criterion is its quote. It sees neither negation nor who does what, and it is the verifier that refuses what
repeats the criterion. Misspelled words are read as the closest word of the question or the criteria; quotes keep the
response's own spelling.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, lru_cache
from itertools import chain

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Criterion, Scale
from rubricflow.tasks.core.contracts.composite import share_of_points
from rubricflow.tasks.core.llm.encoder import NAME, TokenEncoder, Tokens
from rubricflow.tasks.core.llm.request import Reply
from rubricflow.tasks.core.text.quotes import shortened
from rubricflow.tasks.core.text.units import Unit
from rubricflow.tasks.grading.judge.protocol import Opinion, Question, protocol_of
from rubricflow.tasks.grading.judge.schema import MAX_QUOTE
from rubricflow.tasks.grading.judge.score import Shares, added, counted, onto, round_half_up, whole_shares

MODEL = f"{NAME}-tokens-1"
CENTRE, SPREAD, SOFTNESS = 0.46, 0.2, 0.1
"""Chosen on portions of three sets with human scores (tests/studies/embedded.py): the mean raw QWK over eight ASAP-SAS
prompts, scored by their official counts, is highest at this centre and spread (0.42; with the centre that the seven
other prompts choose 0.40). On Mohler and SemEval, looked at afterwards, it is within 0.03 of what any centre reaches;
on SAF, whose points are long, raw scores come out too low with it.
"""
PENALTY_CENTRE = 0.66
"""What costs marks must be met more closely: any answer on the topic is already near to the misconceptions about it. In
the demo a tenth are met, and with this centre a tenth are seen."""
POSED = 0.25
"""The weight of a word that the question has, as a share of what it would weigh. Chosen by the correlation within items
on five sets, where 1 and 0.5 are behind it by 0.03 and 0.01 at most."""
WINDOW = 30
"""Sentences of more words than this are compared piece by piece."""
_PACK = 16
"""Responses whose tokens are in memory at once."""


def answer(questions: Sequence[Question], encoder: TokenEncoder) -> list[Reply]:
    """One reply in the contract for each question, with the probability of every level."""
    spelling_of = lru_cache(maxsize=64)(lambda *sources: reader(sources, encoder.knows))
    ids = lru_cache(maxsize=64)(encoder.ids)
    criteria = _read(list(chain.from_iterable(map(_criterion_texts, questions))), encoder)
    places: dict[str, list[int]] = {}
    for place, question in enumerate(questions):
        places.setdefault(question.text, []).append(place)
    replies = {}
    for first in range(0, len(places), _PACK):
        pack = list(places.values())[first : first + _PACK]
        pieces = {}
        for place in chain.from_iterable(pack):
            question = questions[place]
            pieces[place] = _pieces(question, spelling_of(question.question, *_criterion_texts(question)))
        piece_texts = [text for _, text in chain.from_iterable(pieces.values())]
        tokens = criteria | _read(piece_texts, encoder)
        for place, of_response in pieces.items():
            question = questions[place]
            replies[place] = _reply(question, of_response, tokens, ids(question.question))
    return [replies[place] for place in range(len(questions))]


def _criterion_texts(question: Question) -> list[str]:
    return [criterion.text for criterion in _criteria(question)]


def _read(texts: Sequence[str], encoder: TokenEncoder) -> dict[str, Tokens]:
    return dict(zip(texts, encoder.tokens(texts), strict=True))


def similarity(criterion: Tokens, pieces: Sequence[Tokens], posed: Collection[int] = ()) -> tuple[float, np.ndarray]:
    """How much of a criterion a response says, in [-1, 1], and each piece of it alone, (pieces,).

    The mean over the criterion's tokens of the cosine to the closest token, weighted: of the whole response, or of the
    piece. posed: tokens of the question. 0 where a criterion, a response or a piece has no token that says anything.
    """
    weights = criterion.weights * np.where(np.isin(criterion.ids, list(posed)), POSED, 1)
    if not weights.any() or not pieces:
        return 0.0, np.zeros(len(pieces))
    # 0 where a piece has no token.
    cosines = [
        criterion.vectors @ piece.vectors.T if len(piece.ids) else np.zeros((len(weights), 1)) for piece in pieces
    ]
    closest = np.stack([cosine.max(axis=1, initial=-1.0) for cosine in cosines], axis=1)
    return float(weights @ closest.max(axis=1) / weights.sum()), weights @ closest / weights.sum()


def compete(cosine: np.ndarray, earns: np.ndarray) -> np.ndarray:
    """Cosines (criteria, pieces), each lowered by as much as its piece is closer to a criterion of the other sign.

    earns: (criteria,) whether a criterion earns marks. Where all have one sign nothing changes.
    """
    lowered = cosine.copy()
    for sign in (True, False):
        if (earns == sign).any() and (earns != sign).any():
            lowered[earns == sign] += np.minimum(0, cosine[earns == sign] - cosine[earns != sign].max(axis=0))
    return lowered


def level_probabilities(cosine: float, top: int, centre: float) -> np.ndarray:
    """Probability of each level 0…top at a cosine similarity, shape (top + 1,): an ordered logit with thresholds spread
    evenly around `centre`. The expected level rises with the similarity."""
    thresholds = centre + SPREAD * (np.arange(1, top + 1) - (top + 1) / 2) / max(top - 1, 1)
    reached = 1 / (1 + np.exp(-(cosine - thresholds) / SOFTNESS))
    probabilities: np.ndarray = np.concatenate([[1.0], reached]) - np.concatenate([reached, [0.0]])
    return probabilities


def _criteria(question: Question) -> tuple[Criterion, ...]:
    return question.criteria or question.bundle.criteria


def _pieces(question: Question, read: Callable[[str], str]) -> list[tuple[Unit, str]]:
    """(sentence, a piece of it as it is read)."""
    read_as = []
    for unit in question.units:
        if unit.kind == "sentence":
            words = read(question.text[unit.start : unit.end]).split()
            size = -(-len(words) // -(-len(words) // WINDOW))
            read_as += [(unit, " ".join(words[start : start + size])) for start in range(0, len(words), size)]
    return read_as


def _reply(
    question: Question, pieces: list[tuple[Unit, str]], tokens: Mapping[str, Tokens], posed: frozenset[int]
) -> Reply:
    bundle, criteria = question.bundle, _criteria(question)
    of_pieces = [tokens[text] for _, text in pieces]
    similarities = [similarity(tokens[criterion.text], of_pieces, posed) for criterion in criteria]
    cosines, of_piece = map(np.array, zip(*similarities, strict=True))
    if pieces:
        competed = compete(of_piece, np.array([c.weight >= 0 for c in criteria]))
        cosines, of_piece = cosines - (of_piece.max(axis=1) - competed.max(axis=1)), competed
    probabilities = {}
    for criterion, cosine in zip(criteria, cosines, strict=True):
        centre = CENTRE if criterion.weight >= 0 else PENALTY_CENTRE
        probabilities[criterion.id] = level_probabilities(float(cosine), criterion.top, centre)
    worth = counted(bundle)
    shares = {c.id: float(probabilities[c.id] @ np.array(worth[c.id])) for c in criteria}
    levels = {c.id: int(probabilities[c.id].argmax()) for c in criteria}
    # A call may ask for a part of a criterion's sub-points, or of what excludes each other.
    reached = {**shares, **whole_shares(bundle, shares)}
    adding = [c for c in added(bundle) if c.id in reached] or criteria
    evidence = {}
    for criterion, row in zip(criteria, of_piece, strict=True):
        if levels[criterion.id] and pieces:
            unit, _ = pieces[int(row.argmax())]
            quote = shortened(question.text[unit.start : unit.end], MAX_QUOTE)
            evidence[criterion.id] = [{"unit": unit.unit_id, "quote": quote}]
    traits = {}
    for trait in bundle.traits:
        of_trait = [criterion for criterion in adding if criterion.trait == trait.id]
        traits[trait.id] = _reached(trait, of_trait or adding, reached)
    opinion = Opinion(
        levels=levels,
        evidence=evidence,
        traits=traits,
        score=_reached(bundle.scale, adding, reached),
        because=f"similarity {cosines.max():.2f}",
    )
    artifact = protocol_of(bundle.protocol.name).artifact(question, opinion)
    likely = {name: p.tolist() for name, p in probabilities.items()} if question.criteria else None
    return Reply(text=json.dumps(artifact, ensure_ascii=False), level_probabilities=likely)


def _reached(scale: Scale, criteria: Sequence[Criterion], shares: Shares) -> float:
    """The score that the weighted share of the criteria stands for."""
    return round_half_up(onto(share_of_points(criteria, shares), scale), scale)


# Misspelled words: one that the encoder does not know is read as the closest word of the question or the rubric.


WORD = re.compile(r"\b[^\W\d_]{4,}\b")
CLOSENESS = 0.75


def reader(sources: Iterable[str], knows: Callable[[str], bool]) -> Callable[[str], str]:
    """A function that replaces unknown words (of four letters or more) by the closest word of the sources.

    knows: whether a lower-case word is a whole word to the encoder. Words further away than `CLOSENESS` (the share of
    letters in common, in order) stay as they are, and so do all words of the sources.
    """
    from rapidfuzz import process
    from rapidfuzz.distance import Indel

    words = sorted(set(map(str.lower, chain.from_iterable(map(WORD.findall, sources)))))
    source_words = frozenset(words)

    @cache
    def closest(word: str) -> str:
        if word in source_words or knows(word):
            return word
        best = process.extractOne(word, words, scorer=Indel.normalized_similarity, score_cutoff=CLOSENESS)
        return best[0] if best else word

    def read(match: re.Match[str]) -> str:
        word = match[0].lower()
        replacement = closest(word)
        return match[0] if replacement == word else replacement

    return lambda text: WORD.sub(read, text)
