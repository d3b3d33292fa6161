"""Quotes that stand in the response, word for word, and are no evidence all the same: on one span lean more criteria
than the bundle allows, or the quote says nothing of its criterion (`tasks.judge.relevance`).

A quote is shared by k criteria where more than half of its characters are quoted by k criteria, itself included, that
are credited: so it is the span that counts, not how much of it a quote takes. No rule could tell which of too many
criteria the words prove, and their order must not: beyond the bound the quote counts for none of them. Each keeps its
level where another quote of its own holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from tasks.contracts.bundle import Criterion, Protocol
from tasks.judge.decision import FAILED, Decision
from tasks.text.fold import folded

Place = tuple[int, int]
"""Index of a decision and of a row of its evidence."""
NOTHING: Mapping[Place, str] = MappingProxyType({})
HELD = frozenset({"verified", "context", "semantic", "shared"})
_VIOLATION = {"shared": "shared_quote", "irrelevant": "irrelevant"}


class Doubted(NamedTuple):
    """Decisions without the quotes in doubt, what that changes in the signals, and the violations."""

    decisions: tuple[Decision, ...]
    signals: Counter[str]
    violations: tuple[str, ...]


def sharers(decisions: Sequence[Decision]) -> dict[Place, int]:
    """Quote that holds → how many credited criteria share it, at least 1."""
    rows = [
        ((i, j), row)
        for i, decision in enumerate(decisions)
        for j, row in enumerate(decision.evidence)
        if row["status"] == "shared" or (decision.level and row["status"] in HELD)
    ]
    spans = [(place, (row["start"], row["end"])) for place, row in rows if row["start"] is not None]
    others = [(place, folded(row["quote"])) for place, row in rows if row["start"] is None]
    said = Counter(words for _, words in {(i, words) for (i, _), words in others})
    return _over_spans(spans) | {place: said[words] for place, words in others}


def most_shared(decisions: Sequence[Decision]) -> dict[str, int]:
    """The signal `shared_quotes`: the most criteria that one quote is shared by; nothing where none is shared."""
    most = max(sharers(decisions).values(), default=0)
    return {"shared_quotes": most} if most > 1 else {}


def beyond(decisions: Sequence[Decision], bound: int | None) -> dict[Place, str]:
    """The quotes that more criteria share than the bound allows, each with its status; none without a bound."""
    if bound is None:
        return {}
    held = sharers(decisions).items()
    return {(i, j): "shared" for (i, j), k in held if k > bound and decisions[i].evidence[j]["status"] != "shared"}


def settled(
    decisions: Sequence[Decision],
    protocol: Protocol,
    criteria: Sequence[Criterion],
    irrelevant: Mapping[Place, str] = NOTHING,
    action_of: Callable[[Criterion], str] | None = None,
) -> Doubted:
    """The decisions by what the protocol says of shared and of irrelevant quotes; settling what is settled changes
    nothing.

    criteria: of the decisions, in their order; irrelevant: the quotes that are, each with its status; action_of: what
    becomes of a level that no quote supports, where that is not for the protocol alone to say.
    """
    counted = Counter[str]()
    if protocol.relevance and protocol.relevance.failed == "count":
        counted, irrelevant = Counter(irrelevant.values()), NOTHING
    doubted = beyond(decisions, protocol.shared_quotes) | dict(irrelevant)
    if not doubted:
        return Doubted(tuple(decisions), counted, ())
    failed = FAILED[protocol.failed_quote]
    kept = without(decisions, criteria, doubted, action_of or (lambda _: failed))
    kept.signals.update(counted)
    return kept


def without(
    decisions: Sequence[Decision],
    criteria: Sequence[Criterion],
    doubted: Mapping[Place, str],
    action_of: Callable[[Criterion], str],
) -> Doubted:
    """The decisions after doubted quotes lost what they proved.

    criteria: of the decisions, in their order; doubted: quote → its status; action_of: what becomes of a level that no
    quote supports. A criterion that is only weakly groundable keeps its level.
    """
    signals, violations, settled = Counter[str](), [], list(decisions)
    of = {i: {j: status for (at, j), status in doubted.items() if at == i} for i, _ in doubted}
    for i, statuses in of.items():
        decision, criterion = decisions[i], criteria[i]
        for j, status in statuses.items():
            signals.update({decision.evidence[j]["status"]: -1, status: 1, "invalid_evidence": 1})
        rows = tuple(
            {**row, "status": statuses[j]} if j in statuses else row for j, row in enumerate(decision.evidence)
        )
        holds = any(row["status"] in HELD - {"shared"} for row in rows)
        settled[i] = decision._replace(evidence=rows)
        if holds or not decision.level or decision.verified is not True:
            continue
        if criterion.evidence == "weakly_groundable":
            settled[i] = settled[i]._replace(verified=False)
            signals["weak"] += 1
            continue
        action = action_of(criterion)
        level = decision.level if action == "counted" else 0
        settled[i] = settled[i]._replace(level=level, verified=False, action=action)
        signals.update(("unsupported", action))
        violations.append(f"{_VIOLATION[max(statuses.values())]}:{criterion.id}")
    return Doubted(tuple(settled), signals, tuple(violations))


def _over_spans(spans: Sequence[tuple[Place, tuple[int, int]]]) -> dict[Place, int]:
    ordered = sorted(spans, key=lambda one: one[1])
    if all(first[1][1] <= second[1][0] for first, second in pairwise(ordered)):
        return {place: 1 for place, _ in spans}
    edges = sorted({edge for _, span in spans for edge in span})
    quoting = [
        (high - low, low, len({i for (i, _), (start, end) in spans if start <= low and high <= end}))
        for low, high in pairwise(edges)
    ]
    return {
        place: _median([(count, width) for width, low, count in quoting if start <= low < end], end - start)
        for place, (start, end) in spans
    }


def _median(counts: Sequence[tuple[int, int]], length: int) -> int:
    """The largest k that more than half of `length` reaches. counts: (k, characters)."""
    reached = 0
    for k, width in sorted(counts, reverse=True):
        reached += width
        if 2 * reached > length:
            return k
    return 1
