"""What a response repeats of what its author was given, or of what only the rubric's author knows.

A quote repeats where at least `SHARE` of its words stand in runs of `RUN` or more consecutive words that the response
shares with the question, its context, a criterion, a level's or score's description or the rubric's prose; and where it
lies wholly inside the question with `INSIDE` words or more. A run may reach beyond the quote, so that a few words out
of a copied sentence are a repetition too. Words are tokens of the folded text. A quote with more of its author's own
words than that stands.

The numbers are chosen by figures (tests/studies/echo.py): of 11,533 quotes that a real judge gave for short answers
scored 2 or more they refuse 0.02 %, of the 1,408 sentences of good answers in a data set with model answers 0.07 %.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise

from tasks.contracts.bundle import Bundle
from tasks.llm.request import Same
from tasks.text.fold import folded
from tasks.text.quotes import fragments
from tasks.text.tokens import words

RUN, INSIDE, SHARE = 7, 4, 0.8
_REACH = 100
"""Characters beside a quote in which a run may go on."""


@dataclass(frozen=True)
class Wording:
    """The words that prove nothing."""

    question: str
    """The question's words between spaces."""
    runs: frozenset[tuple[str, ...]]
    """Every run of `RUN` consecutive words of a source."""
    pairs: frozenset[tuple[str, str]]
    """Every two consecutive words of a source."""

    def is_in(self, needle: str, text: str = "", span: tuple[int, int] | None = None) -> bool:
        """Whether a quote, unquoted and folded, repeats.

        text, span: the response and where the quote stands in it, where it does.
        """
        quote = words(needle)
        if len(quote) > 2 and self.pairs.isdisjoint(pairwise(quote)) and not fragments(needle):
            return False  # no run takes in more than its first and its last word
        # Most quotes end here: where few words are not copied, and the others stand in long runs, few pairs are new.
        if len(set(pairwise(quote)) - self.pairs) > _most_new(len(quote)):
            return False
        pieces = [words(fragment) for fragment in fragments(needle)] or [quote]
        if len(quote) >= INSIDE and all(f" {' '.join(piece)} " in self.question for piece in pieces):
            return True
        around = _beside(text, *span) if span and len(pieces) == 1 else ([], [])
        return sum(self._copied(piece, *around) for piece in pieces) >= SHARE * sum(map(len, pieces)) > 0

    def _copied(self, quote: list[str], before: list[str], after: list[str]) -> int:
        """How many words of a quote stand in a run that is copied."""
        copied = set[int]()
        for start, run in enumerate(_runs([*before, *quote, *after])):
            if run in self.runs:
                copied.update(range(start, start + RUN))
        return sum(len(before) <= place < len(before) + len(quote) for place in copied)


@lru_cache(maxsize=1024)
def wording(bundle: Same[Bundle], question: str, context: str | None) -> Wording:
    """What may not be repeated: the question, the context where one is given, and the rubric where its protocol refuses
    an echo of it."""
    material = [context] if context else []
    rubric = _rubric(bundle.value) if bundle.value.protocol.echo == "refused" else ()
    sources = [words(folded(text)) for text in (question, *material, *rubric)]
    return Wording(
        question=f" {' '.join(sources[0])} ",
        runs=frozenset(chain.from_iterable(map(_runs, sources))),
        pairs=frozenset(chain.from_iterable(map(pairwise, sources))),
    )


def _runs(source: list[str]) -> Iterator[tuple[str, ...]]:
    """Every run of `RUN` consecutive words, in order."""
    return (tuple(source[start : start + RUN]) for start in range(len(source) - RUN + 1))


def _most_new(count: int) -> int:
    """How many pairs of consecutive words may stand in no source, in a quote of so many words that repeats: two for
    each word that is its author's, one where two copied runs meet."""
    return 2 * int((1 - SHARE) * count + 1e-9) + -(-count // RUN)


def _beside(text: str, start: int, end: int) -> tuple[list[str], list[str]]:
    """The words before and after a span, as many as a run can take in."""
    before, after = text[max(0, start - _REACH) : start], text[end : end + _REACH]
    return words(folded(before))[1 - RUN :], words(folded(after))[: RUN - 1]


def _rubric(bundle: Bundle) -> Iterable[str]:
    yield bundle.text
    for trait in bundle.traits:
        yield from (anchor.text for anchor in trait.anchors)
    for criterion in bundle.criteria:
        yield from (criterion.text, *criterion.levels)
