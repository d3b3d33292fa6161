"""What the arms are worth on the test split, as rows: figures, paired differences, and how far beliefs moved. Pure.

How far a policy's belief has moved from the frozen reference that shapes its reward (appendix C).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import rel_entr

from tasks.contracts.settings.edit import STARTS, TUNED, Arm
from tasks.contracts.tables.edit import TESTED, Part
from tasks.edit.measures import Marks, differences, figures
from tasks.stats.arrays import Floats

PROBED = 200
"""Rollouts on which the beliefs of a policy and of its start are compared (appendix C)."""
Rows = Sequence[Mapping[str, Any]]
Graded = Mapping[tuple[Arm, int], Rows]
"""Arm and seed → its greedy rollouts as rows of `rollouts`."""


def metric_rows(graded: Graded, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of `arm_metrics`; a part without gold marks has none."""
    for (arm, number), rows in graded.items():
        for part in TESTED:
            if marks := marks_of(rows, part):
                for figure in figures(marks, draws, seed):
                    yield {"arm": arm, "seed": number, "part": part, **figure._asdict()}


def difference_rows(graded: Graded, draws: int, seed: int) -> Iterator[dict[str, Any]]:
    """Rows of `arm_differences`, of the arms that `pairs` names."""
    of_base = next((rows for (arm, _), rows in graded.items() if arm == "base"), None)
    for arm, against in pairs(tuple(dict.fromkeys(arm for arm, _ in graded))):
        seeds = [number for name, number in graded if name == arm]
        for number in seeds:
            other = of_base if against == "base" else graded.get((against, number))
            compared = {"arm": arm, "against": against, "seed": number}
            for part in TESTED:
                marks, other_marks = marks_of(graded[arm, number], part), other and marks_of(other, part)
                if marks and other_marks:
                    for difference in differences(marks, other_marks, draws, seed):
                        yield {**compared, "part": part, **difference._asdict()}


def pairs(arms: Sequence[Arm]) -> list[tuple[Arm, Arm]]:
    """(arm, against): each against base and its own start; Edit-RL against all other RL, Edit-SFT against all other
    supervised fine-tuning."""
    compared: list[tuple[Arm, Arm]] = []
    for arm in arms:
        compared += [(arm, other) for other in ("base", STARTS.get(arm)) if other in arms and other != arm]  # type: ignore[misc]
    for arm, others in (("edit_rl", tuple(STARTS)), ("edit_sft", TUNED)):
        compared += [(arm, other) for other in others if {arm, other} <= set(arms) and other != arm]
    return list(dict.fromkeys(compared))


def marks_of(rows: Rows, part: Part) -> Marks | None:
    """The marks of greedy rollouts in one part of the test split that have a gold mark; None where there is none."""
    marked = [row for row in rows if row["part"] == part and row["gold"] is not None]
    if not marked:
        return None
    items = [row["item_id"] for row in marked]
    tops = np.array([row["top"] for row in marked], np.int64)
    gold = np.array([row["gold"] for row in marked], np.int64)
    predicted = np.array([row["mark"] for row in marked], np.float64)
    is_closed = np.array([row["unmarked"] == "closed" for row in marked])
    return Marks(items, tops, gold, predicted, is_closed)


def spaced(rows: Rows, part: Part) -> Rows:
    """Rollouts of a part to probe: all, or `PROBED` evenly spaced ones."""
    of_part = [row for row in rows if row["part"] == part]
    if len(of_part) <= PROBED:
        return of_part
    return [of_part[place] for place in np.linspace(0, len(of_part) - 1, PROBED).round().astype(int)]


def probe_rows(
    arm: Arm, seed: int, part: Part, policy: Sequence[Floats], reference: Sequence[Floats]
) -> Iterator[dict[str, Any]]:
    """Rows of `arm_metrics`: how far an arm's beliefs lie from those of its start on the start's own rollouts."""
    apart = divergence(policy, reference)
    values = {"kl": apart.kl, "jsd": apart.jsd, "jsd_early": apart.early, "jsd_mid": apart.mid, "jsd_late": apart.late}
    for name, value in values.items():
        note = None if value is not None else "no boundary there"
        row = {"arm": arm, "seed": seed, "part": part, "metric": f"probe_{name}", "n": len(policy)}
        yield row | {"value": value, "note": note}


class Divergence(NamedTuple):
    """Means over step boundaries, in nats; None without boundaries, in a part too, or where not finite."""

    kl: float | None
    """KL(policy ‖ reference), ≥ 0."""
    jsd: float | None
    """Jensen-Shannon divergence, 0…ln 2."""
    early: float | None
    """JSD of the boundaries k of T steps up to k/T = 1/3."""
    mid: float | None
    """Of those behind it up to 2/3."""
    late: float | None
    """Of those behind that."""


def divergence(policy: Sequence[Floats], reference: Sequence[Floats]) -> Divergence:
    """Table 7. policy, reference: beliefs at the boundaries of the same rollouts, each (T + 1, M + 1), rows that sum
    to 1. A rollout without steps has no relative position and so no part. ValueError where rollouts or shapes differ.
    """
    if [belief.shape for belief in policy] != [belief.shape for belief in reference]:
        raise ValueError("beliefs must be of the same boundaries and marks")
    kl = _joined([_kl(p, q) for p, q in zip(policy, reference, strict=True)])
    jsd = _joined([_jsd(p, q) for p, q in zip(policy, reference, strict=True)])
    third = _joined([_thirds(len(p) - 1) for p in policy])
    early, mid, late = (_mean(jsd[third == number]) for number in range(3))
    return Divergence(_mean(kl), _mean(jsd), early, mid, late)


def _kl(p: Floats, q: Floats) -> Floats:
    return np.asarray(rel_entr(p, q).sum(axis=1), dtype=np.float64)


def _jsd(p: Floats, q: Floats) -> Floats:
    between = (p + q) / 2
    return (_kl(p, between) + _kl(q, between)) / 2


def _thirds(steps: int) -> Floats:
    """Third of the chain that each boundary lies in, 0…2; whole numbers, so that k/T = 1/3 is exact."""
    if not steps:
        return np.array([np.nan])
    boundary = np.arange(steps + 1)
    return np.where(3 * boundary <= steps, 0.0, np.where(3 * boundary <= 2 * steps, 1.0, 2.0))


def _joined(parts: Sequence[Floats]) -> Floats:
    return np.concatenate([np.empty(0), *parts])


def _mean(values: Floats) -> float | None:
    mean = float(values.mean()) if len(values) else np.nan
    return mean if np.isfinite(mean) else None
