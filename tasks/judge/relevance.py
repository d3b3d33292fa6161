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
from tasks.judge.doubted_quotes import SUPPORTING, Place
from tasks.llm.encoder import Encoder, minilm, require_encoder
from tasks.llm.request import Same

_MOST_KEPT = 4_096


class Relevance:
    """How relevant quotes are to the criteria of one bundle. A bundle with one criterion has nothing to compare with:
    there every quote is relevant."""

    def __init__(self, criteria: Sequence[Criterion], least: float, encode: Encoder) -> None:
        """least: the relevance below which a quote is irrelevant."""
        self._encode, self._least = encode, least
        self._rows = {criterion.id: row for row, criterion in enumerate(criteria)}
        self._criteria = encode([looked_for(criterion) for criterion in criteria])
        self._vectors: dict[str, np.ndarray] = {}

    def relevances(self, quotes: Sequence[tuple[str, str]]) -> list[float]:
        """The relevance of each (criterion, words); infinite where there is nothing to compare with."""
        self._prepare(words for _, words in quotes)
        return [self._beside_others(self._rows.get(name), words) for name, words in quotes]

    def irrelevant(self, decisions: Sequence[Decision], text: str) -> dict[Place, str]:
        """The quotes of a response that hold for a level above 0 and are irrelevant, each with its status."""
        quotes: dict[Place, tuple[str, str]] = {}
        for i, decision in enumerate(decisions):
            supporting = [(j, row) for j, row in enumerate(decision.evidence) if row["status"] in SUPPORTING]
            for j, row in supporting if decision.level else ():
                quotes[i, j] = (decision.criterion_id, _words(row, text))
        by_quote = zip(quotes, self.relevances(list(quotes.values())), strict=True)
        return {place: "irrelevant" for place, relevance in by_quote if relevance < self._least}

    def _beside_others(self, row: int | None, words: str) -> float:
        if row is None or len(self._criteria) < 2:
            return float("inf")
        cosine = self._criteria @ self._vectors[words]
        return float(cosine[row] - np.delete(cosine, row).max())

    def _prepare(self, texts: Iterable[str]) -> None:
        distinct = dict.fromkeys(texts)
        if len(self._vectors) > _MOST_KEPT:
            self._vectors.clear()
        missing = [text for text in distinct if text not in self._vectors]
        if missing:
            self._vectors |= zip(missing, self._encode(missing), strict=True)


def looked_for(criterion: Criterion) -> str:
    """What a criterion looks for, in words."""
    return f"{criterion.text} {criterion.levels[-1]}"


@lru_cache(maxsize=64)
def relevance_of(bundle: Same[Bundle]) -> Relevance | None:
    """Who judges relevance under a bundle; None where it asks for none. BackendError where the encoder is not there."""
    rule = bundle.value.protocol.relevance
    if rule is None:
        return None
    require_encoder("judge.relevance holds quotes against criteria by the sentence encoder (leave it out)")
    return Relevance(bundle.value.criteria, rule.least, minilm())


def _words(row: Mapping[str, object], text: str) -> str:
    start, end = row["start"], row["end"]
    return text[start:end] if isinstance(start, int) and isinstance(end, int) else str(row["quote"])
