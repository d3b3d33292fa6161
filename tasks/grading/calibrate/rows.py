"""The rows that calibration works on: one machine grading per response, with its split and its human score, and of
those the labelled ones that one mapping is decided on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle, Scale
from rubricflow.tasks.core.contracts.errors import ContractError
from rubricflow.tasks.core.contracts.tables.data import CALIBRATES
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats, Ints
from rubricflow.tasks.core.stats.scores import OF_SEVERAL, target_scores
from rubricflow.tasks.grading.calibrate.features import (
    LONE,
    Blocks,
    features,
    floats,
    is_weak,
    matrix,
    shares,
    stacked_blocks,
    taken,
)

GRADING = [
    "response_id",
    "item_id",
    "rater_id",
    "sample",
    "score",
    "trait_scores",
    "signals",
    "status",
    "unscored_reason",
]
"""The columns of gradings that calibration reads."""


class Item(NamedTuple):
    """An item and its graded responses.

    rows: in the order of their ids, the columns of GRADING, `split`, `author_id`, the human score `target`, null
    without one, and `ratings`, how many persons' scores it is the mean of; blocks: what their texts tell, row by row,
    none where no mapping asks for it.
    """

    item_id: str
    bundle: Bundle
    rows: pa.Table
    blocks: Blocks = {}

    def take(self, start: int, length: int) -> Item:
        """Some neighbouring responses."""
        part = slice(start, start + length)
        return self._replace(rows=self.rows.slice(start, length), blocks=taken(self.blocks, part))

    def filter(self, rows: Bools) -> Item:
        """Some responses; rows: (n,)."""
        return self._replace(rows=self.rows.filter(pa.array(rows)), blocks=taken(self.blocks, rows))


def graded_items(
    bundle_of: Mapping[str, Bundle], gradings: pa.Table, responses: pa.Table, people: pa.Table, target: str
) -> list[Item]:
    """All items in the order of their ids, those without a grading too.

    bundle_of: item -> its bundle; gradings: one machine rater's, columns GRADING; responses: `response_id`, `split`,
    `author_id`; people: as `target_scores` reads it; target: a rater or 'mean'.
    """
    rows = one_per_response(gradings)
    human = target_scores(people, target)
    # How many ratings a score is: 1 for a rater's, the number of persons for what is made of theirs.
    ratings = human.select(["response_id"]).append_column("ratings", pa.array([1] * len(human), pa.int64()))
    if target in OF_SEVERAL:
        scores = people.filter(pc.and_(pc.equal(people["rater_kind"], "human"), pc.is_valid(people["score"])))
        ratings = scores.group_by("response_id").aggregate([("score", "count")])
        ratings = ratings.rename_columns(["response_id", "ratings"])
    lookups = (
        ("split", responses, "split"),
        ("author_id", responses, "author_id"),
        ("target", human, "score"),
        ("ratings", ratings, "ratings"),
    )
    for name, table, column in lookups:
        row_of_response = pc.index_in(rows["response_id"], value_set=table["response_id"])
        rows = rows.append_column(name, table[column].take(row_of_response))
    return by_item(bundle_of, rows)


def by_item(bundle_of: Mapping[str, Bundle], rows: pa.Table) -> list[Item]:
    """Rows of responses, one of each, as their items in the order of their ids, those without a row too.

    ContractError for rows of an item that has no bundle.
    """
    rows = rows.sort_by([("item_id", "ascending"), ("response_id", "ascending")]).combine_chunks()
    counts = rows.group_by("item_id").aggregate([("response_id", "count")]).to_pydict()
    sizes = dict(zip(counts["item_id"], counts["response_id_count"], strict=True))
    if unknown := sorted(sizes.keys() - bundle_of.keys()):
        raise ContractError(f"gradings name item '{unknown[0]}', which has no bundle")
    items, start = [], 0
    # Arrow and Python agree on the order of strings: by code point.
    for item_id in sorted(bundle_of):
        items.append(Item(item_id, bundle_of[item_id], rows.slice(start, sizes.get(item_id, 0))))
        start += sizes.get(item_id, 0)
    return items


def whole_responses(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Tables of `rows` rows, the last one of fewer, with all rows of a response in one table.

    batches: in the order of the responses, so that rows of the same one follow each other.
    """
    waiting = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        while count > rows:
            table = pa.Table.from_batches(waiting)
            # The first place from `rows` on at which another response begins.
            others = pc.not_equal(table["response_id"].slice(rows), table["response_id"][rows - 1].as_py())
            first = pc.index(others, True).as_py()
            if first < 0:  # the response may go on in the next batch
                break
            end = rows + first
            yield table.slice(0, end)
            waiting, count = table.slice(end).to_batches(), count - end
    if waiting:
        yield pa.Table.from_batches(waiting)


def only_rater(raters: Iterable[str]) -> str:
    """The rater of all gradings, '' without any; ContractError for several."""
    names = sorted(set(raters))
    if len(names) > 1:
        raise ContractError(f"gradings of one rater are calibrated at a time, not of {', '.join(names)}")
    return names[0] if names else ""


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

    def joined_with(self, others: LabelledRows) -> LabelledRows:
        """These rows, then others of the same items."""
        joined: dict[str, Any] = {
            name: np.concatenate([getattr(self, name), getattr(others, name)]) for name in _COLUMNS
        }
        return replace(self, **joined, blocks=stacked_blocks([self.blocks, others.blocks]))

    @property
    def item_id(self) -> npt.NDArray[np.str_]:
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


class RiskRows(NamedTuple):
    """Labelled rows with cross-fitted scores, (n,) each.

    level: of the score, in steps from 0; by_distribution: risk by the residuals of other folds; risk: as an error
    model of other folds has learned it; wrong: whether the human score differs from the level by more than the
    tolerance; clipped: as cross-fitted.
    """

    level: Floats
    by_distribution: Floats
    risk: Floats
    wrong: Bools
    clipped: Bools


class Collected(NamedTuple):
    """drawn: labels that stand for other responses, of the calibration split, and the ids of these; chosen: those that
    teach and no more."""

    drawn: LabelledRows
    chosen: LabelledRows
    responses: list[str]


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
        # A study that names no signal is no control.
        has_score=all(not LONE.issuperset(item.bundle.protocol.signals or ["score"]) for item in items),
        blocks=stacked_blocks([item.blocks for item in labelled_items]),
    )
    chosen = np.concatenate([np.asarray(pc.equal(item.rows["split"], "chosen").to_numpy()) for item in labelled_items])
    drawn = judged.usable & ~chosen
    ids = rows["response_id"].filter(pa.array(drawn)).to_pylist()
    return Collected(every.take(drawn), every.take(judged.usable & chosen), ids)


def clusters(rows: pa.Table) -> npt.NDArray[np.str_]:
    """Author or response of each row, by `response_id` and `author_id`, (n,); the first letters keep an author apart
    from a response of the same name."""
    author = pc.binary_join_element_wise("author", rows["author_id"], " ")
    response = pc.binary_join_element_wise("response", rows["response_id"], " ")
    return np.array(pc.coalesce(author, response).to_pylist(), dtype=np.str_)


def one_per_response(gradings: pa.Table) -> pa.Table:
    """Gradings of one rater with a response's samples as one row; without repetitions the table is returned as it is.

    gradings: columns `response_id`, `sample`, `status`, `score`, `trait_scores`, `signals` and any others. Scores,
    trait scores and signals are means over the scored samples that give them; the rest is the first such sample's.
    Where none is scored, one sample speaks for all: the first prechecked or, failing that, the first.
    """
    if pc.count_distinct(gradings["response_id"]).as_py() == len(gradings):
        return gradings
    rank = pc.index_in(gradings["status"], value_set=pa.array(["scored", "precheck", "unscored"]))
    by = [(name, "ascending") for name in ("response_id", "rank", "sample")]
    ranked = gradings.append_column("rank", rank).sort_by(by)
    rows = []
    for _, samples in groupby(ranked.to_pylist(maps_as_pydicts="strict"), key=itemgetter("response_id")):
        first, *others = samples
        counted = [first, *(row for row in others if row["status"] == "scored")]
        row = first | {"score": _mean(row["score"] for row in counted)}
        for name in ("trait_scores", "signals"):
            keys = sorted(set[str]().union(*(row[name] for row in counted)))
            row[name] = {key: _mean(row[name].get(key) for row in counted) for key in keys}
        rows.append(row)
    return pa.Table.from_pylist(rows, gradings.schema)


def _mean(values: Iterable[float | None]) -> float | None:
    given = [value for value in values if value is not None]
    return sum(given) / len(given) if given else None
