"""The embedded rater: decides each criterion by semantic similarity. It needs no GPU and no server; it is a baseline.

A criterion's similarity is the largest cosine between its text and any sentence of the response (long sentences in
windows) or the whole response. Where points and misconceptions are asked for together, a sentence counts for one less
by as much as it is closer to one of the other kind. Ordered thresholds turn the similarity into a probability for every
level; the most probable level is decided, and the most similar sentence is its quote. It knows meaning only as
closeness: it does not see negation, and it is the verifier that refuses a response that repeats the criterion.
Misspelled words are read as the closest word of the question or the criteria; quotes keep the response's own spelling.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from tasks.contracts.bundle import Criterion, Scale
from tasks.judge.protocol import Opinion, how
from tasks.judge.question import Question
from tasks.judge.schema import MAX_QUOTE
from tasks.judge.score import Shares, counted, round_half_up, share_of_points, whole, whole_shares
from tasks.judge.spelling import reader
from tasks.llm.encoder import NAME, Encoder
from tasks.llm.request import Reply, Same
from tasks.text.quotes import shortened

MODEL = f"{NAME}-thresholds-2"
CENTRE, SPREAD, SOFTNESS = 0.4, 0.2, 0.1
PENALTY_CENTRE = 0.6
"""What costs marks must be met more closely: any answer on the topic is already near to the misconceptions about it."""
WINDOW = 30
"""Sentences of more words than this are also compared piece by piece."""


def answer(questions: Sequence[Question], encode: Encoder, knows: Callable[[str], bool]) -> list[Reply]:
    """One reply in the contract for each question, with the probability of every level.

    knows: whether a lower-case word is a whole word to the encoder.
    """
    reading = lru_cache(maxsize=64)(lambda *sources: reader(sources, knows))
    pieces = [_pieces(q, reading(q.question, *(c.text for c in _criteria(q)))) for q in questions]
    texts = [text for question in pieces for _, text in question]
    statements = [criterion.text for question in questions for criterion in _criteria(question)]
    distinct = list(dict.fromkeys([*texts, *statements]))
    row = {text: i for i, text in enumerate(distinct)}
    vectors = encode(distinct)
    replies = []
    for question, found in zip(questions, pieces, strict=True):
        criteria = _criteria(question)
        cosine = vectors[[row[c.text] for c in criteria]] @ vectors[[row[text] for _, text in found]].T
        similarity = compete(cosine, np.array([c.weight >= 0 for c in criteria]))
        replies.append(_reply(question, criteria, found, similarity))
    return replies


def compete(cosine: np.ndarray, earns: np.ndarray) -> np.ndarray:
    """Cosines (criteria, pieces), each lowered by as much as its piece is closer to a criterion of the other sign.

    earns: (criteria,) whether a criterion earns marks. Where all have one sign nothing changes.
    """
    lowered = cosine.copy()
    for sign in (True, False):
        if (earns == sign).any() and (earns != sign).any():
            lowered[earns == sign] += np.minimum(0, cosine[earns == sign] - cosine[earns != sign].max(axis=0))
    return lowered


def level_probabilities(similarity: float, top: int, centre: float) -> np.ndarray:
    """Probability of each level 0…top at a cosine similarity, shape (top + 1,): an ordered logit with thresholds spread
    evenly around `centre`. The expected level rises with the similarity."""
    thresholds = centre + SPREAD * (np.arange(1, top + 1) - (top + 1) / 2) / max(top - 1, 1)
    reached = 1 / (1 + np.exp(-(similarity - thresholds) / SOFTNESS))
    probabilities: np.ndarray = np.concatenate([[1.0], reached]) - np.concatenate([reached, [0.0]])
    return probabilities


def _criteria(question: Question) -> tuple[Criterion, ...]:
    return question.criteria or question.bundle.criteria


def _pieces(question: Question, read: Callable[[str], str]) -> list[tuple[int, str]]:
    """(index of the sentence or -1 for the whole response, text as it is read)."""
    found = [(-1, read(question.text))]
    sentences = [u for u in question.units if u.kind == "sentence"]
    for i, unit in enumerate(sentences):
        words = read(question.text[unit.start : unit.end]).split()
        count = -(-len(words) // WINDOW)
        size = -(-len(words) // count)
        found += [(i, " ".join(words[at : at + size])) for at in range(0, len(words), size)]
    return found


def _reply(
    question: Question, criteria: Sequence[Criterion], pieces: list[tuple[int, str]], similarity: np.ndarray
) -> Reply:
    bundle = question.bundle
    probabilities = {
        c.id: level_probabilities(float(row.max()), c.top, CENTRE if c.weight >= 0 else PENALTY_CENTRE)
        for c, row in zip(criteria, similarity, strict=True)
    }
    worth = counted(bundle)
    shares = {c.id: float(probabilities[c.id] @ np.array(worth[c.id])) / c.top for c in criteria}
    levels = {c.id: int(probabilities[c.id].argmax()) for c in criteria}
    # A call may ask for a part of a criterion's sub-points, or of what excludes each other.
    reached = {**shares, **whole_shares(bundle, shares)}
    adding = [c for c in whole(Same(bundle)) if c.id in reached] or criteria
    opinion = Opinion(
        levels=levels,
        evidence={
            c.id: _quotes(question, pieces, row) if levels[c.id] else []
            for c, row in zip(criteria, similarity, strict=True)
        },
        traits={t.id: _reached(t, [c for c in adding if c.trait == t.id] or adding, reached) for t in bundle.traits},
        score=_reached(bundle.scale, adding, reached),
        because=f"similarity {similarity.max():.2f}",
    )
    artifact = how(bundle.protocol.name).artifact(question, opinion)
    return _as_reply(artifact, {name: p.tolist() for name, p in probabilities.items()} if question.criteria else None)


def _reached(scale: Scale, criteria: Sequence[Criterion], shares: Shares) -> float:
    """The score that the weighted share of the criteria stands for."""
    return round_half_up(scale.min + share_of_points(criteria, shares) * (scale.max - scale.min), scale)


def _quotes(question: Question, pieces: list[tuple[int, str]], similarity: np.ndarray) -> list[dict[str, str]]:
    """The most similar sentence, cut at a word's end; nothing from a response without sentences."""
    if len(pieces) == 1:
        return []
    best = max(range(1, len(pieces)), key=lambda i: similarity[i])
    unit = [u for u in question.units if u.kind == "sentence"][pieces[best][0]]
    quote = shortened(question.text[unit.start : unit.end], MAX_QUOTE)
    return [{"unit": unit.unit_id, "quote": quote}]


def _as_reply(artifact: dict[str, Any], probabilities: dict[str, list[float]] | None) -> Reply:
    return Reply(text=json.dumps(artifact, ensure_ascii=False), level_probabilities=probabilities)
