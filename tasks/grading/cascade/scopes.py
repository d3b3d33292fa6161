"""The labelled answers that limits are chosen by, for every item or for all together; what was chosen, as rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.settings.study import Release
from rubricflow.tasks.core.display import say
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.promise import UNLIKELY, fewest_without_error, missed_by_constant
from rubricflow.tasks.grading.cascade.limits import NEVER, CascadeTerms, ChosenLimits, StepRisks, least_cost, stopping

ALL = "all"
PEOPLE = 20.0
"""What an answer that is left to people counts, in answers of the dearest step: a step is worth asking where it spares
people more than one in so many of the answers that reach it."""
_IDLE = ("asks_nothing", "question_means")
"""Why a step of its own may let out nothing, whatever its risks: then nothing stops there in a cascade either."""


class CascadeLabels(NamedTuple):
    """Labelled answers of a scope at each of K steps.

    told: rows of `label_risks`, of any step; human: (n,) and score: (n, K), NaN where a step gave none, in steps above
    the lowest level; missed: (n,), whether the best constant score of the item is wrong.
    """

    told: pd.DataFrame
    human: Floats
    score: Floats
    rows: StepRisks
    missed: Bools

    def at(self, limits: Sequence[float]) -> tuple[Ints, Bools]:
        """The step whose score each answer has, the last one asked where it stops nowhere, and whether it stops."""
        place = stopping(self.rows.risk, self.rows.open, limits)
        asked = [step for step, limit in enumerate(limits) if step == 0 or limit > NEVER]
        return np.where(place < len(limits), place, asked[-1]), place < len(limits)


def cascade_labels(steps: Sequence[pd.DataFrame], tolerance: float) -> tuple[dict[str, CascadeLabels], dict[str, str]]:
    """Item → its labelled answers; item → why no step lets anything of it out, for items that are left out of promises.

    steps: rows of `label_risks` of each step. An answer that a step could not use is closed there.
    """
    if not any(map(len, steps)):
        return {}, {}
    every = pd.concat(steps).drop_duplicates("response_id").set_index("response_id").sort_index()
    of_step = [step.set_index("response_id").reindex(every.index) for step in steps]
    labels = {}
    idle = {}
    for item, rows in every.groupby("item_id"):
        own = [step.loc[rows.index] for step in of_step]
        # Without a row of its own a step's score is as wrong as can be, and never goes out.
        wrong = np.column_stack([step["wrong"].fillna(True).astype(bool) for step in own])
        risk = np.column_stack([step["risk"].fillna(1.0).astype(float) for step in own])
        lowest = rows["lowest"].to_numpy(float)
        size = rows["step"].to_numpy(float)
        human = (rows["human"].to_numpy(float) - lowest) / size
        score = np.column_stack([(step["score"].to_numpy(float) - lowest) / size for step in own])
        is_open = np.column_stack(
            [step["open"].fillna(False).astype(bool) & ~step["refused"].isin(_IDLE) for step in own]
        )
        refusals = {word for step in own for word in step["refused"].dropna()}
        if not is_open.any() and refusals & {*_IDLE}:
            idle[str(item)] = min(refusals & {*_IDLE})
        top = round((rows["highest"].iloc[0] - lowest[0]) / size[0])
        missed = missed_by_constant(human, top, tolerance)
        constant = np.full(len(rows), missed.mean())
        of_item = StepRisks(risk, wrong, is_open, rows["cluster"].to_numpy(str), constant)
        labels[str(item)] = CascadeLabels(rows, human, score, of_item, missed)
    return labels, idle


def joined(parts: Sequence[CascadeLabels]) -> CascadeLabels:
    """Those of several items."""
    told = pd.concat([part.told for part in parts])
    human, score, missed = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("human", "score", "missed")
    )
    rows = StepRisks(*(np.concatenate(column) for column in zip(*(part.rows for part in parts), strict=True)))
    return CascadeLabels(told, human, score, rows, missed)


def cascade_terms(costs: Sequence[float], release: Release, **also: float) -> CascadeTerms:
    """What a study promises of a cascade with these costs, of which people's are `PEOPLE` times the dearest."""
    return CascadeTerms(costs, PEOPLE * (max(costs) or 1.0), release.risk, release.confidence, **also)


class ScopeLimits(NamedTuple):
    """Limits of a scope, None where none are shown to keep the promise; labels: None without any."""

    scope: str
    labels: CascadeLabels | None
    made: ChosenLimits | None
    refused: str | None
    note: str | None


def scope_limits(
    risks: Sequence[pd.DataFrame], items: Sequence[str], costs: Sequence[float], release: Release, most: float
) -> Iterator[ScopeLimits]:
    """The limits of every item by its own labels or, where the study promises for the set, of all by all labels.

    risks: rows of `label_risks` of each step; costs: of an answer there; most: what the steps may cost an answer in the
    mean.
    """
    labels, idle = cascade_labels(risks, release.tolerance)
    asking = {item: [item] * (item in labels) for item in sorted(items) if item not in idle}
    members = asking
    if release.by == "set":
        members = {ALL: [item for own in asking.values() for item in own]} if asking else {}
    fewest = fewest_without_error(release.risk, release.confidence)
    tested = sum(sum(len(labels[item].human) for item in own) >= fewest for own in members.values())
    for scope, own in members.items():
        if not own:
            unmarked = "no answer is marked by people"
            if scope == ALL and idle:
                marked = say.plural(len(idle), "question")
                unmarked = (
                    f"marked are answers to {marked} alone, of which no promise can be made: the reason stands there"
                )
            yield ScopeLimits(scope, None, None, "no_promise", unmarked)
            continue
        rows = joined([labels[item] for item in own])
        unlikely = UNLIKELY / max(1, tested)
        made = least_cost(rows.rows, cascade_terms(costs, release, unlikely=unlikely, most=most))
        note = None
        if made is None:
            n = len(rows.human)
            note = (
                f"too few marked answers to promise anything: {say.count(fewest)} needed, {say.count(n)} here"
                if n < fewest
                else f"the first step alone costs {costs[0]:.3g} for an answer, more than cost_limit, {most:g}"
                if costs[0] > most
                else f"the {say.count(n)} marked answers do not show, even for the surest scores of any step, "
                f"that at most {say.rate(release.risk)} are wrong"
            )
        yield ScopeLimits(scope, rows, made, None if made else "no_promise", note)
    for item, why in sorted(idle.items()):
        words = "the scores of every step agree with people by question means alone"
        note = words if why == "question_means" else "one and the same score for every answer would keep the promise"
        yield ScopeLimits(item, labels[item], None, why, note)


def limit_rows(found: ScopeLimits, raters: Sequence[str | None], costs: Sequence[float], unit: str) -> Iterator[Record]:
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
            "most_risk": limits[step] if limits[step] > NEVER else None,
            "cost": cost,
            "unit": unit,
            "n": n,
            "stopped": int(here.sum()),
            "wrong": int((here & wrong).sum()),
            "alone": int(wrong.sum()),
            "note": found.note,
        }


def rule_row(found: ScopeLimits, release: Release) -> Record:
    """The row of `release_rules` of a scope: of all that the cascade lets out."""
    made, labels = found.made, found.labels
    row: Record = {
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
        "levels": [],
        "refused": found.refused,
        "note": found.note,
    }
    if labels is not None:
        place, stops = labels.at(made.limits if made else (NEVER,) * labels.score.shape[1])
        level = np.floor(labels.human + 0.5 + SLACK)
        exact = level == labels.score[np.arange(len(place)), place]
        seen = labels.told["lowest"] + level * labels.told["step"]
        row |= {
            "constant": float(labels.missed.mean()),
            "exact": float(exact.mean()),
            "levels": sorted({*seen.round(9)}),
        }
        if stops.any():
            row |= {
                "constant_released": float(labels.missed[stops].mean()),
                "exact_released": float(exact[stops].mean()),
            }
    return row


def label_rows(found: ScopeLimits, rater_id: str) -> Iterator[Record]:
    """Rows of `label_risks` of the cascade as one rater: each labelled answer at the step whose score it has."""
    labels = found.labels
    if labels is None:
        return
    place, stops = labels.at(found.made.limits if found.made else (NEVER,) * labels.score.shape[1])
    kept = ["response_id", "item_id", "cluster", "human", "lowest", "highest", "step"]
    for at, told in enumerate(labels.told.reset_index()[kept].to_dict("records")):
        step = place[at]
        if not np.isnan(labels.score[at, step]):
            yield {
                **{str(name): value for name, value in told.items()},
                "rater_id": rater_id,
                "score": float(told["lowest"] + told["step"] * labels.score[at, step]),
                "risk": float(labels.rows.risk[at, step]),
                "wrong": bool(labels.rows.wrong[at, step]),
                "open": bool(stops[at] or (found.made is None and labels.rows.open[at, step])),
                "refused": found.refused,
            }
