"""Whether a quote says anything of its criterion: that it stands in the response proves that somebody wrote it, no
more.

The relevance of a quote is its cosine to what its criterion looks for (text and highest level) less the largest cosine
to what another criterion of the bundle looks for: in [-2, 2], high where it is about its own. The cosine alone tells
less, since criteria differ in how near anything on the topic comes to them; so does the distance to the best span of
the response. The encoder sees neither negation nor who does what, so a quote of the opposite is relevant. It only takes
credit away: what repeats a criterion to please the encoder is an echo before it comes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np

from tasks.contracts.bundle import Bundle, Criterion
from tasks.judge.decision import Decision
from tasks.judge.doubts import HELD, Place
from tasks.llm.encoder import Encoder, minilm, require_encoder
from tasks.llm.request import Same

_MOST_KEPT = 4_096


class Relevance:
    """How relevant quotes are to the criteria of one bundle. A bundle with one criterion has nothing to compare with:
    there every quote is relevant."""

    def __init__(self, criteria: Sequence[Criterion], least: float, encode: Encoder) -> None:
        """least: the relevance below which a quote is irrelevant."""
        self._encode, self._least = encode, least
        self._place = {criterion.id: at for at, criterion in enumerate(criteria)}
        self._wanted = encode([wanted(criterion) for criterion in criteria])
        self._vectors: dict[str, np.ndarray] = {}

    def of(self, quotes: Sequence[tuple[str, str]]) -> list[float]:
        """The relevance of each (criterion, words); infinite where there is nothing to compare with."""
        self._prepare(words for _, words in quotes)
        return [self._beside_others(self._place.get(name), words) for name, words in quotes]

    def irrelevant(self, decisions: Sequence[Decision], text: str) -> dict[Place, str]:
        """The quotes of a response that hold for a level above 0 and are irrelevant, each with its status."""
        held = [
            ((i, j), (decision.criterion_id, _words(row, text)))
            for i, decision in enumerate(decisions)
            for j, row in enumerate(decision.evidence)
            if decision.level and row["status"] in HELD
        ]
        relevant = self.of([quote for _, quote in held])
        return {place: "irrelevant" for (place, _), value in zip(held, relevant, strict=True) if value < self._least}

    def _beside_others(self, at: int | None, words: str) -> float:
        if at is None or len(self._wanted) < 2:
            return float("inf")
        cosine = self._wanted @ self._vectors[words]
        return float(cosine[at] - np.delete(cosine, at).max())

    def _prepare(self, texts: Iterable[str]) -> None:
        distinct = dict.fromkeys(texts)
        if len(self._vectors) > _MOST_KEPT:
            self._vectors.clear()
        missing = [text for text in distinct if text not in self._vectors]
        if missing:
            self._vectors |= zip(missing, self._encode(missing), strict=True)


def wanted(criterion: Criterion) -> str:
    """What a criterion looks for, in words."""
    return f"{criterion.text} {criterion.levels[-1]}"


@lru_cache(maxsize=64)
def relevance_of(bundle: Same[Bundle]) -> Relevance | None:
    """Who judges relevance under a bundle; None where it asks for none. BackendError where the encoder is not there."""
    asked = bundle.value.protocol.relevance
    if asked is None:
        return None
    require_encoder("judge.relevance holds quotes against criteria by the sentence encoder (leave it out)")
    return Relevance(bundle.value.criteria, asked.least, minilm())


def _words(row: Mapping[str, object], text: str) -> str:
    start, end = row["start"], row["end"]
    return text[start:end] if isinstance(start, int) and isinstance(end, int) else str(row["quote"])
