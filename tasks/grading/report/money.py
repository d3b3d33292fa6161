"""What models cost: in all, a response, a released one, an hour of a person's time saved, a point of agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.display.table import Row
from rubricflow.tasks.core.llm.prices import money
from rubricflow.tasks.grading.report.raters import RankedRater, over_questions

Fact = tuple[str, str]


def cost_facts(
    costs: Sequence[Row], responses: int, released: int, ranking: Sequence[RankedRater], manifest: Mapping[str, Any]
) -> tuple[Fact, ...]:
    """costs: rows by model of the view `costs`; manifest: of a run of today's version or an earlier one, which knew no
    prices. What nobody knows is said."""
    known = {"prices": {}, "minutes": None, "currency": "USD", "usd": 1.0, **manifest.get("costs", {})}
    unknown = sum(row["unknown"] for row in costs)
    if unknown == sum(row["calls"] for row in costs):
        names = ", ".join(say.name(row["model"]) for row in costs)
        return (("Cost", f"not known: nobody says what {names} costs"),)
    total = sum(row["usd"] or 0.0 for row in costs)
    shown = partial(money, currency=known["currency"], rate=known["usd"])
    least = f"at least; {say.plural(unknown, 'call')} of unknown cost; " if unknown else ""
    facts = [
        ("Cost", f"{shown(total)} ({least}{'; '.join(known['prices'].values())})"),
        ("A response", shown(total / responses)),
        ("A released response", shown(total / released) if released else "none was released"),
    ]
    hours = released * (known["minutes"] or 0) / 60
    saved = f"{shown(total / hours)}, at {known['minutes']:g} minutes a response" if hours else "none was released"
    saved = saved if known["minutes"] else "the study names no money.minutes"
    facts.append(("An hour of a person's time saved", saved))
    return (*facts, ("A point of agreement more than the baseline", _point(ranking, total, shown)))


def _point(ranking: Sequence[RankedRater], total: float, shown: Any) -> str:
    """What each hundredth of QWK costs that the calibrated score is ahead of the best that asks no model."""
    by_question = over_questions(ranking)
    values = {rater.name: (rater.mean if by_question else rater.pooled).value for rater in ranking}
    machines = [values[rater.name] for rater in ranking if rater.by == "m"]
    baselines = {
        name: value for name, value in values.items() if value is not None and name.endswith(("no judge", "alone"))
    }
    if not machines or machines[0] is None or not baselines:
        return say.NOT_KNOWN
    best = max(baselines, key=lambda name: baselines[name])
    points = 100 * (machines[0] - baselines[best])
    if points <= 0:
        return f"none: '{best}' agrees as well"
    return f"{shown(total / points)}, {points:.1f} points of QWK more than '{best}'"
