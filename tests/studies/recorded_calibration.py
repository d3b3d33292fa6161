"""Recorded judges on the human scale: QWK before and after calibration, beside people; and by the number of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from recorded_sets import Recorded

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.contracts.tables.calibration import CalibrationMethod
from rubricflow.tasks.core.stats.agreement import qwk
from rubricflow.tasks.core.stats.bootstrap import cluster_codes, draw_totals, pair_sums, statistics_of_totals
from rubricflow.tasks.grading.calibrate.alignment import Refusal
from rubricflow.tasks.grading.calibrate.choose import decide
from rubricflow.tasks.grading.calibrate.methods import apply_to_labels, fit_method
from rubricflow.tasks.grading.calibrate.rows import LabelledRows

Table = Callable[[str, list[dict[str, object]]], None]
RESOLVED = {1: (2, 12), 2: (1, 6), 3: (0, 3), 4: (0, 3), 6: (0, 4), 7: (0, 24)}
LABELS = 200
SIZES = (50, 100, 150, 200)
REPEATS = 5
DRAWS = 500
FEWEST = 60
"""Responses that an item needs."""
FEWEST_CLUSTERS = 15
"""Documents, students or themes that it needs."""
METHODS = ("rulers, all signals", "rulers, score", "ridge, all signals", "linear", "isotonic", "linking", "identity")


class Task(NamedTuple):
    """One judge on one item: labelled responses with every signal the judge gives, and the two persons."""

    judge: str
    item: str
    labels: LabelledRows
    people: pd.DataFrame


def tasks(name: str, one: Recorded) -> Iterator[Task]:
    """Every judge on every item with people's scores and enough responses; of repeated samples the first."""
    frame = one.frame
    if name == "physics":
        frame = frame.assign(item="total")  # each problem alone has some twenty students
    if name in ("summeval", "topical_chat"):
        frame = frame.assign(target=frame["mean"])
    else:
        frame = frame.assign(target=frame["resolved"] if name == "asap_aes" else frame["human"])
    first = frame.groupby(["judge", "item", "response_id"])["sample"].transform("min") == frame["sample"]
    frame = frame[first & frame["ours"].notna() & frame["target"].notna()]
    for (judge, item), part in frame.groupby(["judge", "item"]):
        low, high, _ = one.scale(item)
        part = part[part["ours"].between(low, high)].drop_duplicates("response_id")
        cluster = part["cluster"] if "cluster" in part else part["response_id"]
        if len(part) < FEWEST or cluster.nunique() < FEWEST_CLUSTERS:
            continue
        ends = RESOLVED[int(item)] if name == "asap_aes" else (low, high)
        step = {"summeval": 1 / 3, "topical_chat": 1 / 3, "enem": 40.0}.get(name, 1.0)
        scale = Scale(min=ends[0], max=ends[1], step=step)
        raw = ends[0] + (part["ours"] - low) / (high - low) * (ends[1] - ends[0])
        signals = np.column_stack([raw, np.log1p(part["text"].str.len())])
        yield Task(str(judge), str(item), _labels(raw, part["target"], signals, scale, cluster, str(item)), part)


def _labels(
    raw: pd.Series, human: pd.Series, matrix: np.ndarray, scale: Scale, cluster: pd.Series, item: str
) -> LabelledRows:
    n, varies = len(raw), matrix.std(axis=0) > 0
    return LabelledRows(
        names=tuple(np.array(["score", "length"])[varies]),
        left_out=(),
        items=(item,),
        scales=(scale,),
        low=scale.min,
        high=scale.max,
        item=np.zeros(n, dtype=np.int64),
        raw=raw.to_numpy(float),
        human=human.to_numpy(float),
        matrix=matrix[:, varies],
        weight=np.ones(n),
        cluster=cluster.astype(str).to_numpy(dtype=np.str_),
        weak=np.zeros(n, dtype=np.bool_),
    )


def split(labels: LabelledRows, most: int = LABELS, seed: int = 0) -> np.ndarray:
    """Rows to calibrate on: whole clusters at random until `most` rows or half of all are reached."""
    names = np.unique(labels.cluster)
    np.random.default_rng(seed).shuffle(names)
    sizes = pd.Series(labels.cluster).value_counts()[names].cumsum()
    wanted = set(sizes.index[sizes <= min(most, len(labels) // 2)])
    return np.array([name in wanted for name in labels.cluster])


def drawn_qwk(labels: LabelledRows, machine: np.ndarray) -> tuple[float | None, np.ndarray]:
    """QWK with the target, and in every bootstrap draw of whole clusters."""
    bounds = labels.scales[0].bounds
    sums = pair_sums(labels.human, machine, *cluster_codes(labels.cluster), bounds)
    (totals,) = draw_totals([sums], DRAWS, 0)
    return qwk(labels.human, machine, *bounds).value, statistics_of_totals(totals)["qwk"]


def agreement(sets: Iterable[tuple[str, Recorded]], table: Table) -> None:
    """QWK of every judge on every item before and after calibration, on held-out responses, with bootstrap SE."""
    rows, means = [], []
    drawn: dict[tuple[str, str], list[np.ndarray]] = {}
    for name, one in sets:
        for task in tasks(name, one) if one.has_people else ():
            labels = task.labels
            chosen = split(labels)
            decision = decide(labels.take(chosen), Calibration())
            held = labels.take(~chosen)
            mapping = decision.tried.mapping if decision.tried else None
            after = apply_to_labels(mapping, held).aligned
            (raw, raw_draws), (own, own_draws) = drawn_qwk(held, held.raw), drawn_qwk(held, after)
            length = None
            if "length" in labels.names:
                only = replace(
                    labels, names=("length",), matrix=labels.matrix[:, labels.names.index("length")][:, None]
                )
                length = drawn_qwk(held, _mapped("rulers", only.take(chosen), only.take(~chosen)))[0]
            drawn.setdefault((name, task.judge), []).append(np.stack([raw_draws, own_draws, own_draws - raw_draws]))
            both = task.people[~chosen].dropna(subset=["human", "human2"])
            human = None
            if len(both) >= FEWEST // 2:
                human = qwk(both["human"], both["human2"], *one.scale(task.item)).value
            rows.append(
                {
                    "set": name,
                    "judge": task.judge,
                    "item": task.item,
                    "labels": int(chosen.sum()),
                    "n": len(held),
                    "raw": raw,
                    "raw se": np.nanstd(raw_draws),
                    "calibrated": own,
                    "cal se": np.nanstd(own_draws),
                    "gain": (own or 0) - (raw or 0),
                    "gain se": np.nanstd(own_draws - raw_draws),
                    "length alone": length,
                    "two people": human,
                    "method": decision.method,
                }
            )
    table("QWK with people on held-out responses, before and after calibration (method chosen inside folds)", rows)
    for (name, judge), part in pd.DataFrame(rows).groupby(["set", "judge"], sort=False):
        figures = part[["raw", "calibrated", "length alone", "two people"]].astype(float).mean()
        counts = {"set": name, "judge": judge, "items": len(part), "n": int(part["n"].sum())}
        # Items of one set of documents share their draws, so that the mean has the error of whole documents.
        spread = np.nanstd(np.nanmean(drawn[str(name), str(judge)], axis=0), axis=1)
        errors = dict(zip(("raw se", "cal se", "gain se"), spread, strict=True))
        means.append(counts | figures.to_dict() | errors)
    table("The same, mean over items", means)


def labels(sets: Iterable[tuple[str, Recorded]], table: Table) -> None:
    """QWK on one held-out set by the number of labels and by method (the counterpart of Rulers, Table 11).

    Of each item a pool of 200 labels; of it 5 random samples of each size; mean over samples, then over items.
    """
    rows = []
    for name, one in sets:
        found: dict[str, list[Task]] = {}
        for task in tasks(name, one) if one.has_people else ():
            if split(task.labels).sum() >= 0.95 * LABELS and (~split(task.labels)).sum() >= 100:
                found.setdefault(task.judge, []).append(task)
        for judge, mine in found.items():
            held = sum(int((~split(task.labels)).sum()) for task in mine)
            for method in METHODS:
                row: dict[str, object] = {"set": name, "judge": judge, "items": len(mine), "n": held, "method": method}
                for size in SIZES:
                    parts = [_by_size(task.labels, method, size) for task in mine]
                    draws = np.nanmean([drawn for _, drawn, _ in parts], axis=0)
                    row[f"N={size}"] = float(np.mean([value for value, _, _ in parts]))
                    row[f"se {size}"] = float(np.nanstd(draws))
                    if size in (SIZES[0], SIZES[-1]):
                        row[f"sd {size}"] = float(np.mean([spread for _, _, spread in parts]))
                rows.append(row)
    table("QWK on held-out responses by number of labels; se: bootstrap, sd: between samples of labels", rows)


def _by_size(labels: LabelledRows, method: str, size: int) -> tuple[float, np.ndarray, float]:
    """(mean QWK over samples of labels, bootstrap draws of the first sample's, SD between samples)."""
    pool, held = labels.take(split(labels)), labels.take(~split(labels))
    kind, _, signals = method.partition(", ")
    if signals == "score":
        pool, held = _score_only(pool), _score_only(held)
    values, drawn = [], np.empty(0)
    for repeat in range(1 if kind == "identity" else REPEATS):
        rows = np.zeros(len(pool), dtype=bool)
        rows[np.random.default_rng(repeat).permutation(len(pool))[:size]] = True
        machine = _mapped(kind, pool.take(rows), held)
        if repeat == 0:
            drawn = drawn_qwk(held, machine)[1]
        values.append(qwk(held.human, machine, *held.scales[0].bounds).value or 0.0)
    return float(np.mean(values)), drawn, float(np.std(values))


def _score_only(labels: LabelledRows) -> LabelledRows:
    return replace(labels, names=("score",), matrix=labels.raw[:, None])


def _mapped(kind: CalibrationMethod, fitted: LabelledRows, held: LabelledRows) -> np.ndarray:
    """Scores of the held-out rows; the raw ones where the labels allow no fit."""
    try:
        return apply_to_labels(fit_method(kind, fitted, Calibration().alpha), held).aligned
    except Refusal:
        return held.raw
