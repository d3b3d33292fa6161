"""Recorded judges with people's scores as labels that a calibration can be fitted on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
from recorded_sets import Recorded

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.grading.calibrate.rows import LabelledRows

RESOLVED = {1: (2, 12), 2: (1, 6), 3: (0, 3), 4: (0, 3), 6: (0, 4), 7: (0, 24)}
FEWEST = 60
"""Responses that an item needs."""
FEWEST_CLUSTERS = 15
"""Documents, students or themes that it needs."""


class Task(NamedTuple):
    """One judge on one item: labelled responses with every signal the judge gives."""

    judge: str
    item: str
    labels: LabelledRows


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
        step = {"summeval": 1 / 3, "topical_chat": 1 / 3}.get(name, 1.0)
        scale = Scale(min=ends[0], max=ends[1], step=step)
        raw = ends[0] + (part["ours"] - low) / (high - low) * (ends[1] - ends[0])
        signals = np.column_stack([raw, np.log1p(part["text"].str.len())])
        yield Task(str(judge), str(item), _labels(raw, part["target"], signals, scale, cluster, str(item)))


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


def split(labels: LabelledRows, most: int, seed: int) -> np.ndarray:
    """Rows to calibrate on: whole clusters at random until `most` rows or half of all are reached."""
    names = np.unique(labels.cluster)
    np.random.default_rng(seed).shuffle(names)
    sizes = pd.Series(labels.cluster).value_counts()[names].cumsum()
    wanted = set(sizes.index[sizes <= min(most, len(labels) // 2)])
    return np.array([name in wanted for name in labels.cluster])
