"""Quotes that stand in the response, word for word, and are no evidence all the same: on one span lean more criteria
than the bundle allows.

A quote is shared by k criteria where more than half of its characters are quoted by k criteria, itself included, that
are credited: so it is the span that counts, not how much of it a quote takes. No rule could tell which of too many
criteria the words prove, and their order must not: beyond the bound the quote counts for none of them. Each keeps its
level where another quote of its own holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Protocol
from rubricflow.tasks.core.llm.request import cached_by_identity
from rubricflow.tasks.core.text.fold import folded
from rubricflow.tasks.core.text.quotes import fragments
from rubricflow.tasks.core.text.tokens import words
from rubricflow.tasks.grading.judge.rows import FAILED, Decision

RUN, INSIDE, SHARE = 7, 4, 0.8
_REACH = 100
"""Characters next to a quote in which a run may go on."""


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
            return False  # as most do: no run takes in more than its first and its last word
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


Place = tuple[int, int]
"""Index of a decision and of a row of its evidence."""
SUPPORTING = frozenset({"verified", "context", "semantic", "shared"})
"""Statuses of quotes that stand in the response, whether or not they count."""


class Doubted(NamedTuple):
    """Decisions without the quotes in doubt, what that changes in the signals, and the violations."""

    decisions: tuple[Decision, ...]
    signals: Counter[str]
    violations: tuple[str, ...]


def sharers(decisions: Sequence[Decision]) -> dict[Place, int]:
    """Quote that holds → how many credited criteria share it, at least 1."""
    spans = {}
    unplaced = {}
    for i, decision in enumerate(decisions):
        for j, row in enumerate(decision.evidence):
            # Those too that count for none because too many share them.
            if row["status"] == "shared" or (decision.level and row["status"] in SUPPORTING):
                if row["start"] == row["end"]:  # both None, or a span without any character
                    unplaced[i, j] = folded(row["quote"])
                else:
                    spans[i, j] = (row["start"], row["end"])
    # (criteria, characters) whether a criterion quotes a character.
    quoted = np.zeros((len(decisions), max((end for _, end in spans.values()), default=0)), dtype=bool)
    for (i, _), (start, end) in spans.items():
        quoted[i, start:end] = True
    quoting = quoted.sum(axis=0)
    of_words = Counter(words for _, words in {(i, words) for (i, _), words in unplaced.items()})
    shared = {place: of_words[words] for place, words in unplaced.items()}
    for place, (start, end) in spans.items():  # the most that more than half of the characters reach
        shared[place] = int(np.sort(quoting[start:end])[::-1][(end - start) // 2])
    return shared


def most_shared(decisions: Sequence[Decision]) -> dict[str, int]:
    """The signal `shared_quotes`: the most criteria that one quote is shared by; nothing where none is shared."""
    most = max(sharers(decisions).values(), default=0)
    return {"shared_quotes": most} if most > 1 else {}


def beyond(decisions: Sequence[Decision], bound: int | None) -> dict[Place, str]:
    """The quotes that more criteria share than the bound allows, each with its status; none without a bound."""
    if bound is None:
        return {}
    beyond_bound = [place for place, count in sharers(decisions).items() if count > bound]
    return {(i, j): "shared" for i, j in beyond_bound if decisions[i].evidence[j]["status"] != "shared"}


def settled(
    decisions: Sequence[Decision],
    protocol: Protocol,
    criteria: Sequence[Criterion],
    action_of: Callable[[Criterion], str] | None = None,
) -> Doubted:
    """The decisions by what the protocol says of shared quotes, which lose what they proved; settling what is settled
    changes nothing. A criterion that is only weakly groundable keeps its level.

    criteria: of the decisions, in their order; action_of: what becomes of a level that no quote supports, where that is
    not for the protocol alone to say.
    """
    signals = Counter[str]()
    violations = []
    kept = list(decisions)
    doubted: dict[int, dict[int, str]] = {}
    for (i, j), status in beyond(decisions, protocol.shared_quotes).items():
        doubted.setdefault(i, {})[j] = status
    for i, statuses in doubted.items():
        decision = decisions[i]
        criterion = criteria[i]
        for j, status in statuses.items():
            signals.update({decision.evidence[j]["status"]: -1, status: 1, "invalid_evidence": 1})
        rows = tuple({**row, "status": statuses.get(j, row["status"])} for j, row in enumerate(decision.evidence))
        kept[i] = decision._replace(evidence=rows)
        holds = any(row["status"] in SUPPORTING - {"shared"} for row in rows)
        if holds or not decision.level or decision.verified is not True:
            continue
        if criterion.evidence == "weakly_groundable":
            kept[i] = kept[i]._replace(verified=False)
            signals["weak"] += 1
            continue
        action = action_of(criterion) if action_of else FAILED[protocol.failed_quote]
        level = decision.level if action == "counted" else 0
        kept[i] = kept[i]._replace(level=level, verified=False, action=action)
        signals.update(("unsupported", action))
        violations.append(f"shared_quote:{criterion.id}")
    return Doubted(tuple(kept), signals, tuple(violations))


# What a response repeats of what its author was given, or of what only the rubric's author knows.


@cached_by_identity
def wording(bundle: Bundle, question: str, context: str | None) -> Wording:
    """What may not be repeated: the question, the context where one is given, and the rubric where its protocol refuses
    an echo of it."""
    material = [context] if context else []
    if bundle.protocol.echo == "refused":
        material.append(bundle.text)
        for trait in bundle.traits:
            material += [anchor.text for anchor in trait.anchors]
        for criterion in bundle.criteria:
            material += [criterion.text, *criterion.levels]
    sources = [words(folded(text)) for text in (question, *material)]
    return Wording(
        question=f" {' '.join(sources[0])} ",
        runs=frozenset(chain.from_iterable(map(_runs, sources))),
        pairs=frozenset(chain.from_iterable(map(pairwise, sources))),
    )


def _runs(source: list[str]) -> Iterator[tuple[str, ...]]:
    """Every run of `RUN` consecutive words, in order."""
    return (tuple(source[start : start + RUN]) for start in range(len(source) - RUN + 1))


def _beside(text: str, start: int, end: int) -> tuple[list[str], list[str]]:
    """The words before and after a span, as many as a run can take in."""
    before = text[max(0, start - _REACH) : start]
    after = text[end : end + _REACH]
    return words(folded(before))[1 - RUN :], words(folded(after))[: RUN - 1]
