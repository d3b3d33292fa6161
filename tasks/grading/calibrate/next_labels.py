"""Table `next_labels`: which responses of a graded run people should score next, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import unlocked
from rubricflow.tasks.core.contracts.settings.study import Study
from rubricflow.tasks.core.contracts.tables.calibration import Predictions, Refusal
from rubricflow.tasks.core.contracts.tables.data import MEASURED, Items, Responses
from rubricflow.tasks.core.contracts.tables.judging import Gradings
from rubricflow.tasks.core.contracts.tables.rubrics import Bundles
from rubricflow.tasks.core.stats.agreement import SLACK
from rubricflow.tasks.core.stats.arrays import Bools, Floats
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.features import features
from rubricflow.tasks.grading.calibrate.labels import TAUGHT
from rubricflow.tasks.grading.calibrate.planner import LabelProposal, by_chance, design, proposals
from rubricflow.tasks.grading.calibrate.rows import GRADING, Item, graded_items

FEW = 10
"""Labels of an item below which it is said how many there are."""


class HeldOut(NamedTuple):
    """Held-out scores that nothing but their risk keeps from being released, (n,) each."""

    risk: Floats
    wrong: Bools


def read_items(run: Run, study: Study) -> list[Item]:
    """The graded items of a run that have any grading, with the human scores of all splits."""
    locked = unlocked(run.read(run.ref(Bundles, "lock")).to_pylist())
    named = run.read(run.ref(Items, "ingest"), ["item_id", "rubric_id"]).to_pylist()
    items = graded_items(
        {row["item_id"]: locked[row["rubric_id"]] for row in named},
        run.read(run.ref(Gradings, "judge"), GRADING),
        run.read(run.ref(Responses, "ingest"), ["response_id", "split", "author_id"]),
        run.read(run.ref(Gradings, "ingest"), ["response_id", "rater_id", "rater_kind", "score"]),
        study.evaluation.target,
    )
    return [item for item in items if len(item.rows)]


def read_predictions(run: Run) -> pa.Table:
    """Of the run's predictions what the next labels go by."""
    return run.read(run.ref(Predictions, "calibrate"), ["response_id", "score", "risk", "route_reason"])


def next_labels(items: Sequence[Item], predictions: pa.Table, study: Study, count: int) -> list[dict[str, object]]:
    """Rows of `next_labels`, the first to be marked first; fewer than asked for where no more can be asked about.

    Asked about is what was graded with every feature that the judge gives and has no human score that counts. Chosen is
    only a response whose author, where authors are kept on one side of the split, wrote no other one; and none where
    items are: a label that was chosen would take theirs with it.
    """
    if not items:
        return []
    judged = features([(item.rows, item.bundle) for item in items], pooled=len(items) > 1)
    names = ["response_id", "item_id", "author_id", "split", "target"]
    rows = pa.concat_tables([item.rows.select(names) for item in items]).filter(pa.array(judged.usable))
    if not len(rows):
        return []
    taught = _bools(pc.and_(pc.is_valid(rows["target"]), pc.is_in(rows["split"], value_set=TAUGHT)))
    askable = _bools(pc.is_null(rows["target"]))
    item = rows["item_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    order = by_chance(rows["response_id"].to_pylist(), study.split.seed)
    ridge, choosable = design(judged.matrix[judged.usable], item), askable & _alone(rows, study)
    proposed = proposals(ridge, taught, askable, choosable, order, count)
    label_counts = Counter(rows["item_id"].filter(pa.array(taught)).to_pylist())
    unseen = predictions.filter(pc.equal(predictions["route_reason"], "level_unseen"))
    level_of = dict(zip(unseen["response_id"].to_pylist(), unseen["score"].to_pylist(), strict=True))
    places = pa.array([proposal.row for proposal in proposed], pa.int64())
    answers = rows.select(["response_id", "item_id"]).take(places).to_pylist()
    records = list[dict[str, object]]()
    for rank, (answer, proposal) in enumerate(zip(answers, proposed, strict=True), 1):
        labels_of_item = label_counts[answer["item_id"]] if len(items) > 1 else None
        why = _why(proposal, level_of.get(answer["response_id"]), labels_of_item)
        records.append(answer | {"rank": rank, "sampled": proposal.sampled, "gain": proposal.gain, "why": why})
    return records


def held_out(items: Sequence[Item], predictions: pa.Table, tolerance: float) -> HeldOut:
    """Risk of the held-out labelled scores, and whether each lies more than the tolerance, in steps, from its label."""
    if not items:
        return HeldOut(np.empty(0), np.empty(0, dtype=np.bool_))
    rows = [_held_out_targets(item) for item in items]
    by_risk_alone = pc.is_in(predictions["route_reason"], value_set=pa.array([None, *get_args(Refusal), "risk"]))
    counted = predictions.filter(pc.and_(by_risk_alone, pc.is_valid(predictions["risk"])))
    both = pa.concat_tables(rows).join(counted, "response_id", join_type="inner").sort_by("response_id")
    off = pc.divide(pc.abs(pc.subtract(both["score"], both["target"])), both["step"])
    return HeldOut(both["risk"].to_numpy(), _bools(pc.greater(off, tolerance + SLACK)))


def _held_out_targets(item: Item) -> pa.Table:
    """The item's held-out responses with a human score, and the step of its scale."""
    chosen = pc.and_(pc.is_in(item.rows["split"], value_set=pa.array(MEASURED)), pc.is_valid(item.rows["target"]))
    targets = item.rows.select(["response_id", "target"]).filter(chosen)
    return targets.append_column("step", pa.repeat(item.bundle.scale.step, len(targets)))


def _alone(rows: pa.Table, study: Study) -> Bools:
    """Whether each row's label may be chosen without taking others off their side of the split."""
    if study.split.by == "author":
        written: Mapping[str | None, int] = Counter(rows["author_id"].to_pylist())
        return np.array([written[author] == 1 for author in rows["author_id"].to_pylist()], dtype=np.bool_)
    return np.full(len(rows), study.split.by == "response")


def _why(proposal: LabelProposal, unseen: float | None, labels: int | None) -> str:
    """Why a response is asked about; unseen: its score if no person has given it yet; labels: those of its item, where
    there are several."""
    if proposal.sampled == "drawn":
        return "drawn by chance: its label counts for the promise and the figures"
    if unseen is not None:
        return f"its score, {unseen:g}, is one that no person has given yet"
    if labels is not None and labels < FEW:
        return f"its item has {labels} label{'' if labels == 1 else 's'}"
    return f"unlike what is labelled: it takes {proposal.gain:.1%} off what the mapping does not know"


def _bools(column: pa.ChunkedArray) -> Bools:
    return np.asarray(column.to_numpy(), dtype=np.bool_)
