"""What the arms are worth on the test split, as rows: figures, paired differences, and how far beliefs moved. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tasks.contracts.settings.edit import STARTS, TUNED, Arm
from tasks.contracts.tables.edit import TESTED, Part
from tasks.edit.divergence import divergence
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
