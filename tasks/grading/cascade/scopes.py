"""The labelled answers that limits are chosen by, for every item or for all together; what was chosen, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.stats.promise import UNLIKELY, fewest_without_error, missed_by_constant
from rubricflow.tasks.grading.cascade.limits import NEVER, Limits, StepRisks, least_cost, stopping

ALL = "all"
PEOPLE = 20.0
"""What an answer that is left to people counts, in answers of the dearest step: a step is worth asking where it spares
people more than one in so many of the answers that reach it."""
_IDLE = ("asks_nothing", "question_means")
"""Why a step of its own may let out nothing, whatever its risks: then nothing stops there in a cascade either."""


class CascadeLabels(NamedTuple):
    """Labelled answers of a scope at each of K steps; level: (n, K) of each step's score, in steps of the scale; human,
    top: (n,); response, item: (n,)."""

    response: Sequence[str]
    item: Sequence[str]
    human: Floats
    top: Floats
    level: Floats
    rows: StepRisks
    missed: Bools

    def at(self, limits: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
        """The step whose score each answer has, the last one asked where it stops nowhere, and whether it stops."""
        place = stopping(self.rows.risk, self.rows.open, limits)
        asked = [step for step, limit in enumerate(limits) if step == 0 or limit > NEVER]
        return np.where(place < len(limits), place, asked[-1]), place < len(limits)


def cascade_labels(steps: Sequence[pd.DataFrame]) -> tuple[dict[str, CascadeLabels], dict[str, str]]:
    """Item → its labelled answers; item → why no step lets anything of it out, for items that are left out of promises.

    steps: rows of `label_risks` of each step. An answer that a step could not use is closed there.
    """
    every = pd.concat(steps).drop_duplicates("response_id").set_index("response_id").sort_index()
    of_step = [step.set_index("response_id").reindex(every.index) for step in steps]
    labels, idle = dict[str, CascadeLabels](), dict[str, str]()
    for item, rows in every.groupby("item_id"):
        own = [step.loc[rows.index] for step in of_step]
        # Without a row of its own a step's score is as wrong as can be, and never goes out.
        wrong = np.column_stack([step["wrong"].fillna(True).astype(bool) for step in own])
        risk = np.column_stack([step["risk"].fillna(1.0).astype(float) for step in own])
        level = np.column_stack([step["level"].astype(float) for step in own])
        is_open = np.column_stack(
            [step["open"].fillna(False).astype(bool) & ~step["refused"].isin(_IDLE) for step in own]
        )
        refusals = {word for step in own for word in step["refused"].dropna()}
        if not is_open.any() and refusals & {*_IDLE}:
            idle[str(item)] = min(refusals & {*_IDLE})
        human, top = rows["human"].to_numpy(float), rows["top"].to_numpy(float)
        risks = StepRisks(risk, wrong, is_open, rows["cluster"].to_numpy(str))
        labels[str(item)] = CascadeLabels(
            rows.index.tolist(), rows["item_id"].tolist(), human, top, level, risks, np.empty(0, np.bool_)
        )
    return labels, idle


def joined(parts: Sequence[CascadeLabels], tolerance: float) -> CascadeLabels:
    """Those of several items, with what the best constant score of each item misses."""
    missed = [missed_by_constant(part.human, part.top[0], tolerance) for part in parts]
    constant = np.concatenate([np.full(len(one), one.mean()) for one in missed])
    rows = StepRisks(
        *(np.concatenate([part.rows[field] for part in parts]) for field in range(4)),
        constant=constant,
    )
    return CascadeLabels(
        [name for part in parts for name in part.response],
        [name for part in parts for name in part.item],
        *(np.concatenate([part[field] for part in parts]) for field in range(2, 5)),
        rows,
        np.concatenate(missed),
    )


class ScopeLimits(NamedTuple):
    """Limits of a scope, None where none are shown to keep the promise; labels: None without any."""

    scope: str
    items: tuple[str, ...]
    labels: CascadeLabels | None
    made: Limits | None
    refused: str | None
    note: str | None


def scope_limits(
    labels: dict[str, CascadeLabels], idle: dict[str, str], costs: Sequence[float], release: Release, most: float
) -> Iterator[ScopeLimits]:
    """The limits of every item by its own labels or, where the study promises for the set, of all by all labels.

    costs: of an answer at each step; most: what the steps may cost an answer in the mean.
    """
    items = sorted(labels)
    asking = [item for item in items if item not in idle]
    members = ({ALL: asking} if asking or not items else {}) if release.by == "set" else {item: [item] for item in asking}
    fewest = fewest_without_error(release.risk, release.confidence)
    tested = sum(sum(len(labels[item].human) for item in own) >= fewest for own in members.values())
    for scope, own in members.items():
        if not own:
            yield ScopeLimits(scope, (), None, None, "no_promise", "no answer is marked by people")
            continue
        rows = joined([labels[item] for item in own], release.tolerance)
        by_people = PEOPLE * (max(costs) or 1.0)
        unlikely = UNLIKELY / max(1, tested)
        made = least_cost(rows.rows, costs, by_people, release.risk, release.confidence, unlikely, most)
        note = None
        if made is None:
            n = len(rows.human)
            note = (
                f"too few marked answers to promise anything: {say.count(fewest)} needed, {say.count(n)} here"
                if n < fewest
                else f"the {say.count(n)} marked answers do not show, even for the surest scores of any step, "
                f"that at most {say.rate(release.risk)} are wrong"
            )
        yield ScopeLimits(scope, tuple(own), rows, made, None if made else "no_promise", note)
    for item, why in sorted(idle.items()):
        words = "the scores of every step agree with people by question means alone"
        note = words if why == "question_means" else "one and the same score for every answer would keep the promise"
        yield ScopeLimits(item, (item,), joined([labels[item]], release.tolerance), None, why, note)


def limit_rows(found: ScopeLimits, raters: Sequence[str], costs: Sequence[float], unit: str) -> Iterator[dict[str, Any]]:
    """Rows of `cascade_limits` of a scope. raters: who judges at each step."""
    limits = found.made.limits if found.made else (NEVER,) * len(raters)
    n = 0 if found.labels is None else len(found.labels.human)
    place, stops = found.labels.at(limits) if found.labels else (np.empty(0, int), np.empty(0, bool))
    for step, (rater, cost) in enumerate(zip(raters, costs, strict=True)):
        here = stops & (place == step)
        wrong = found.labels.rows.wrong[:, step] if found.labels else np.empty(0, bool)
        yield {
            "scope": found.scope,
            "step": step + 1,
            "rater_id": rater,
            "limit": limits[step] if limits[step] > NEVER else None,
            "cost": cost,
            "unit": unit,
            "n": n,
            "stopped": int(here.sum()),
            "wrong": int((here & wrong).sum()),
            "alone": int(wrong.sum()),
            "note": found.note,
        }


def rule_row(found: ScopeLimits, release: Release, levels: Sequence[float]) -> dict[str, Any]:
    """The row of `release_rules` of a scope: of all that the cascade lets out. levels: human scores seen."""
    made, labels = found.made, found.labels
    row: dict[str, Any] = {
        "scope": found.scope,
        "tolerance": release.tolerance,
        "target": release.risk,
        "confidence": release.confidence,
        "n": 0 if labels is None else len(labels.human),
        "threshold": max(made.limits) if made else None,
        "released": made.released if made else 0,
        "wrong": made.wrong if made else 0,
        "worth": made.worth if made else 0.0,
        "upper": made.upper if made else None,
        "levels": list(levels),
        "refused": found.refused,
        "note": found.note,
    }
    if labels is not None:
        place, stops = labels.at(made.limits if made else (NEVER,) * labels.level.shape[1])
        exact = np.floor(labels.human + 0.5) == labels.level[np.arange(len(place)), place]
        row |= {"constant": float(labels.missed.mean()), "exact": float(exact.mean())}
        if stops.any():
            row |= {"constant_released": float(labels.missed[stops].mean()), "exact_released": float(exact[stops].mean())}
    return row


def label_rows(found: ScopeLimits, rater_id: str) -> Iterator[dict[str, Any]]:
    """Rows of `label_risks` of the cascade as one rater: each labelled answer at the step whose score it has."""
    labels = found.labels
    if labels is None:
        return
    limits = found.made.limits if found.made else (NEVER,) * labels.level.shape[1]
    places, stops = labels.at(limits)
    for at, place in enumerate(places):
        if not np.isnan(labels.level[at, place]):
            yield {
                "response_id": labels.response[at],
                "item_id": labels.item[at],
                "rater_id": rater_id,
                "cluster": str(labels.rows.cluster[at]),
                "human": float(labels.human[at]),
                "level": float(labels.level[at, place]),
                "top": int(labels.top[at]),
                "risk": float(labels.rows.risk[at, place]),
                "wrong": bool(labels.rows.wrong[at, place]),
                "open": bool(stops[at] or (found.made is None and labels.rows.open[at, place])),
                "refused": found.refused,
            }
