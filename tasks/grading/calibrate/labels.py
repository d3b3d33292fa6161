"""The labelled rows that one mapping is decided on: those of an item, or of all items that are pooled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Scale
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.grading.calibrate.features import LONE, features, floats, is_weak, matrix, shares
from rubricflow.tasks.grading.calibrate.rows import Item
from rubricflow.tasks.grading.calibrate.texts import Blocks, stacked_blocks, taken

UNIT = Scale(min=0, max=1)
TAUGHT = pa.array([*CALIBRATES, "chosen"])
"""The splits whose labels mappings are fitted on."""
_COLUMNS = ("item", "raw", "human", "matrix", "weight", "cluster", "weak")
RAW = ("score",)
"""What the methods of one input take: the raw score."""


@dataclass(frozen=True)
class LabelledRows:
    """Labelled, judged and scored rows with every feature, in the order of items and responses; arrays are (n,).

    names, left_out: as in `Features`; items, scales: the items and their scales; low, high: ends of the scale fitted
    on, the item's or, pooled, 0 and 1; item: each row's index in `items`; raw, human: scores on that scale; matrix:
    (n, d) features; weight: ratings behind each human score; cluster: the author or, where not known, the response;
    weak: as `is_weak` has it; has_score: whether the signals hold a score, or what one is made of; blocks: what the
    texts tell, a row each.
    """

    names: tuple[str, ...]
    left_out: tuple[str, ...]
    items: tuple[str, ...]
    scales: tuple[Scale, ...]
    low: float
    high: float
    item: Ints
    raw: Floats
    human: Floats
    matrix: Floats
    weight: Floats
    cluster: npt.NDArray[np.str_]
    weak: Bools
    has_score: bool = True
    blocks: Blocks = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.raw)

    def take(self, rows: Bools) -> LabelledRows:
        """Some of the rows."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS}, blocks=taken(self.blocks, rows))

    def beside(self, others: LabelledRows) -> LabelledRows:
        """These rows, then others of the same items."""
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in _COLUMNS
        }
        return replace(self, **joined, blocks=stacked_blocks([self.blocks, others.blocks]))

    @property
    def item_id(self) -> npt.NDArray[np.str_]:
        """Each row's item."""
        return np.array(self.items, dtype=np.str_)[self.item]

    @property
    def top(self) -> Floats:
        """The highest level of each row's scale, counted in steps from 0."""
        return np.array([scale.levels - 1 for scale in self.scales], dtype=np.float64)[self.item]

    @property
    def span(self) -> float:
        """Score units in the range fitted on; 1, a share of the scale, where items of different scales are pooled."""
        return self.scales[0].max - self.scales[0].min if len(set(self.scales)) == 1 else 1.0

    def shares(self, scores: Floats) -> Floats:
        """Scores on the scale fitted on as shares of it, 0 .. 1."""
        return (scores - self.low) / (self.high - self.low)

    def steps(self, scores: Floats) -> Floats:
        """Scores on the scale fitted on as steps above the lowest level of each row's own scale."""
        return self.shares(scores) * self.top

    def levels(self, scores: Floats) -> Floats:
        """The same, rounded to the nearest level as `to_levels` does: halves up, clipped to the scale."""
        return np.clip(np.floor(self.steps(scores) + 0.5 + SLACK), 0, self.top)


class Collected(NamedTuple):
    """drawn: labels that stand for other responses, of the calibration split; chosen: those that teach and no more."""

    drawn: LabelledRows
    chosen: LabelledRows


def labelled(item: Item) -> Item:
    """The responses that a fit may look at: those with a human score that are drawn for calibration, or chosen to
    teach."""
    may_teach = pc.and_(pc.is_in(item.rows["split"], value_set=TAUGHT), pc.is_valid(item.rows["target"]))
    rows = np.asarray(pc.fill_null(may_teach, False).to_numpy(), dtype=np.bool_)
    return item.filter(rows)


def collect(items: Sequence[Item], pooled: bool) -> Collected:
    """The usable rows of some items, given in the order of their ids; exactly one item where not pooled.

    Usable is a row of the calibration split, or a chosen one, with a human score, judged, scored and with every feature
    that the judge gives for any. Pooled scores are shares of each item's scale.
    """
    labelled_items = [labelled(item) for item in items]
    judged = features([(item.rows, item.bundle) for item in labelled_items], pooled)
    unit = UNIT if pooled else items[0].bundle.scale
    sizes = [len(item.rows) for item in labelled_items]
    rows = pa.concat_tables([item.rows.select(["response_id", "author_id", "ratings"]) for item in labelled_items])
    raw = [matrix(item.rows, item.bundle, RAW, pooled)[:, 0] for item in labelled_items]
    human = [floats(item.rows["target"]) for item in labelled_items]
    if pooled:
        human = [shares(scores, item.bundle.scale) for scores, item in zip(human, labelled_items, strict=True)]
    every = LabelledRows(
        names=judged.names,
        left_out=judged.left_out,
        items=tuple(item.item_id for item in labelled_items),
        scales=tuple(item.bundle.scale for item in labelled_items),
        low=unit.min,
        high=unit.max,
        item=np.repeat(np.arange(len(labelled_items)), sizes),
        raw=np.concatenate(raw),
        human=np.concatenate(human),
        matrix=judged.matrix,
        weight=floats(rows["ratings"]),
        cluster=clusters(rows),
        weak=np.concatenate([is_weak(item.rows) for item in labelled_items]),
        has_score=all(_has_score(item.bundle.protocol.signals) for item in items),
        blocks=stacked_blocks([item.blocks for item in labelled_items]),
    )
    chosen = np.concatenate([np.asarray(pc.equal(item.rows["split"], "chosen").to_numpy()) for item in labelled_items])
    return Collected(every.take(judged.usable & ~chosen), every.take(judged.usable & chosen))


def clusters(rows: pa.Table) -> npt.NDArray[np.str_]:
    """Author or response of each row, by `response_id` and `author_id`, (n,); the first letters keep an author apart
    from a response of the same name."""
    author = pc.binary_join_element_wise("author", rows["author_id"], " ")
    response = pc.binary_join_element_wise("response", rows["response_id"], " ")
    return np.array(pc.coalesce(author, response).to_pylist(), dtype=np.str_)


def _has_score(signals: Sequence[str]) -> bool:
    """Whether signals hold a score or what one is made of; a study that names none is no control."""
    return not signals or any(signal not in LONE for signal in signals)
