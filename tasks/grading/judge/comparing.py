"""Answers that are judged together: which are compared with which, and what verdicts on them are worth as scores.

A comparison is a case that holds several answers in the order in which they are shown; it is asked and mended like any
other. Its call belongs to the answer shown first, and its part names the others.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.protocols import PROTOCOLS, Compare
from rubricflow.tasks.core.llm.ask import RequestOutcome
from rubricflow.tasks.core.stats.preferences import strengths, win_shares
from rubricflow.tasks.core.text.digest import digest_bytes
from rubricflow.tasks.grading.judge.mend import reason_of
from rubricflow.tasks.grading.judge.rows import Case, Grading
from rubricflow.tasks.grading.judge.score import Scored, onto

TIE = "tie"
MOST_JOINED = 5_000
"""Answers to an item that are compared in pairs: their strengths take half a minute at 4,000, and time as the cube."""
_BEHIND = "behind: "
"""What stands in a comparison's part before the answers that are shown after the first."""


class Compared(NamedTuple):
    """What became of answers that were compared."""

    gradings: list[Grading]
    """In their order."""
    verdicts: list[dict[str, Any]]
    """Rows of `comparisons`, but for the rater."""


def is_compared(case: Case) -> bool:
    """Whether the protocol judges the response together with others."""
    return PROTOCOLS[case.bundle.protocol.name].compares is not None


def comparisons(cases: Iterable[Case], sample: int = 0) -> list[Case]:
    """What is asked about cases that are compared, item by item: every pair in both orders, or groups in an order drawn
    for the sample. An item with a single response is not asked about. InputError, before anything is asked, for an item
    with more than MOST_JOINED responses to compare in pairs."""
    of_item: dict[str, dict[str, Case]] = defaultdict(dict)
    for case in cases:
        of_item[case.item_id][case.response_id] = case
    asked = []
    for item_id in sorted(of_item):
        by_id = of_item[item_id]
        protocol = next(iter(by_id.values())).bundle.protocol
        plan = protocol.compare or Compare()
        orders: list[tuple[str, ...]] = []
        if PROTOCOLS[protocol.name].compares == "pairs":
            if len(by_id) > MOST_JOINED:
                rule = f"item '{item_id}' has {len(by_id):,} answers; at most {MOST_JOINED:,} are compared in pairs"
                raise InputError(rule, field="judge.protocol", hint="protocol: groupwise has no such limit")
            for pair in pairs_of(list(by_id), plan):
                orders += [pair, pair[::-1]]
        else:
            orders = groups_of(list(by_id), plan, sample)
        asked += [_together([by_id[name] for name in order]) for order in orders]
    return asked


def pairs_of(ids: Sequence[str], plan: Compare) -> list[tuple[str, str]]:
    """The pairs of an item's responses that are asked, each with the smaller id first: all, or where there are more
    than `plan.opponents` others those of a circle, see `Compare`: a cyclic design (David 1963). Distances grow by a
    constant factor, so that a chain of few comparisons joins any two."""
    circle = _drawn(ids, str(plan.seed))
    count = len(ids)
    half = plan.opponents // 2
    distances = list(range(1, count // 2 + 1))
    if count - 1 > plan.opponents:
        distances = [round((count / 2) ** (k / half)) for k in range(half)]
        for k in range(1, half):
            distances[k] = max(distances[k], distances[k - 1] + 1)
    return sorted({_sorted(circle[at], circle[(at + d) % count]) for at in range(count) for d in distances})


def groups_of(ids: Sequence[str], plan: Compare, sample: int) -> list[tuple[str, ...]]:
    """The groups of an item's responses in a sample, each in the order in which it is shown; none for one response."""
    if len(ids) < 2:
        return []
    parts = np.array_split(_drawn(ids, f"{plan.seed}:{sample}"), -(-len(ids) // plan.at_once))
    return [tuple(map(str, part)) for part in parts]


def _drawn(ids: Sequence[str], seed: str) -> list[str]:
    """In an order that the seed draws, whatever order they came in."""
    return sorted(ids, key=lambda name: digest_bytes(f"{seed}:{name}"))


def _sorted(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


def _together(shown: Sequence[Case]) -> Case:
    """The comparison of answers in the order in which they are shown."""
    return replace(shown[0], text="\n\n".join(case.text for case in shown), units=(), answers=tuple(shown))


def part_of(comparison: Case) -> str:
    """The part under which a comparison's calls are kept, next to the response shown first."""
    return _BEHIND + ", ".join(case.response_id for case in comparison.answers[1:])


def compared(cases: Sequence[Case], asked: Sequence[Case], calls: Sequence[RequestOutcome[Any]]) -> Compared:
    """Scores of cases from the comparisons that were asked about them, and the verdicts on pairs.

    A call's value is the number of the answer that won, from 0, or `TIE`, of a pair; of a group the scores of its
    answers in the order shown.
    """
    if PROTOCOLS[cases[0].bundle.protocol.name].compares == "groups":
        return Compared(_listwise(cases, asked, calls), [])
    return _pairwise(cases, asked, calls)


def _pairwise(cases: Sequence[Case], asked: Sequence[Case], calls: Sequence[RequestOutcome[Any]]) -> Compared:
    """By the strengths of all cases together, which share the effect of order. A score is the share of the item's other
    answers that it is expected to beat, on the bundle's scale. The scores of one item are of one scale only where a
    chain of verdicts joins its answers: those of the set that holds more than half of them are scored, if there is
    one."""
    place = {case.response_id: number for number, case in enumerate(cases)}
    first = []
    second = []
    won = []
    verdicts = []
    lost: dict[str, Counter[str]] = defaultdict(Counter)
    for comparison, call in zip(asked, calls, strict=True):
        shown = [case.response_id for case in comparison.answers]
        pair, reason, winner = _sorted(*shown), None, None
        if call.value is None:
            reason = reason_of(call)
            for name in shown:
                lost[name][reason] += 1
        else:
            first.append(place[shown[0]])
            second.append(place[shown[1]])
            won.append(0.5 if call.value == TIE else 1.0 - call.value)
            winner = TIE if call.value == TIE else "ab"[pair.index(shown[call.value])]
        row = {"item_id": comparison.item_id, "response_a": pair[0], "response_b": pair[1], "winner": winner}
        row |= {"shown_first": "ab"[pair.index(shown[0])], "bundle_id": comparison.bundle_id}
        verdicts.append(row | {"unscored_reason": reason})
    found = strengths(first, second, won, len(cases))
    met = np.bincount([*first, *second], minlength=len(cases))
    of_item: dict[str, list[int]] = defaultdict(list)
    for number, case in enumerate(cases):
        of_item[case.item_id].append(number)
    gradings = {}
    for members in of_item.values():
        sets = Counter(found.connected[members].tolist())
        (largest, size) = sets.most_common(1)[0]
        joined = [n for n in members if found.connected[n] == largest] if 2 * size > len(members) and size > 1 else []
        shares = dict(zip(joined, win_shares(found.strength[joined]).tolist(), strict=True))
        for number in members:
            case = cases[number]
            if number in shares:
                signals = {"strength": float(found.strength[number]), "strength_error": float(found.error[number])}
                signals |= {"verdicts": float(met[number]), "order_effect": found.order}
                gradings[number] = Grading(case, Scored(onto(shares[number], case.bundle.scale)), signals)
            else:
                why = lost[case.response_id] if not met[number] else None
                reason = why.most_common(1)[0][0] if why else "not_compared"
                gradings[number] = Grading(case, Scored(None), {"verdicts": float(met[number])}, reason=reason)
    return Compared([gradings[number] for number in range(len(cases))], verdicts)


def _listwise(cases: Sequence[Case], asked: Sequence[Case], calls: Sequence[RequestOutcome[Any]]) -> list[Grading]:
    """By the scores that were stated. `place` is how far behind an answer was shown, from 0 to 1."""
    stated = {}
    for comparison, call in zip(asked, calls, strict=True):
        last = len(comparison.answers) - 1
        for number, case in enumerate(comparison.answers):
            signals = {"place": number / last, "together": last + 1.0}
            score = None if call.value is None else float(call.value[number])
            reason = reason_of(call) if score is None else None
            stated[case.response_id] = Grading(case, Scored(score), signals, reason=reason)
    return [stated.get(case.response_id) or Grading(case, Scored(None), {}, reason="not_compared") for case in cases]
