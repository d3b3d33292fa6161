"""Tables of a run as the evaluation reads them: a batch at a time, so that of a million rows a few columns stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.stats.arrays import Floats
from rubricflow.tasks.core.stats.scores import map_keys
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.evaluate.raters import SCORE, RaterMarks

_IDS = ["response_id", "item_id", "rater_id"]


def read_marks(run: Run, items: TableRef, responses: TableRef, people: TableRef) -> RaterMarks:
    """What persons gave responses, of all splits."""
    ids, scores = [_empty(_IDS)], []
    for batch in run.batches(people, [*_IDS, "rater_kind", "score", "trait_scores"]):
        human = batch.filter(pc.equal(batch["rater_kind"], "human"))
        ids.append(pa.Table.from_batches([human.select(_IDS)]))
        scores.append(_scores(human))
    table = pa.concat_tables(ids, promote_options="default")
    rubrics = run.read(items, ["item_id", "rubric_id"])
    of_item = pc.index_in(table["item_id"], value_set=rubrics["item_id"])
    known = _periods_and_clusters(run, responses)
    of_response = pc.index_in(table["response_id"], value_set=known["response_id"])
    table = table.append_column("rubric_id", rubrics["rubric_id"].take(of_item))
    for name in ("period", "cluster"):
        table = table.append_column(name, known[name].take(of_response))
    return RaterMarks(table, _joined(scores))


def _scores(gradings: pa.RecordBatch) -> dict[str, Floats]:
    """Trait -> its marks, '' the score; (n,), NaN without one."""
    traits = gradings["trait_scores"]
    columns = {name: pc.map_lookup(traits, name, "first") for name in map_keys(pa.chunked_array([traits]))}
    columns[SCORE] = gradings["score"]
    return {name: np.asarray(column.to_numpy(zero_copy_only=False)) for name, column in columns.items()}


def _joined(parts: Sequence[Mapping[str, Floats]]) -> dict[str, Floats]:
    """The columns of all parts one behind the other, NaN where a part has no such column."""
    names = {name for part in parts for name in part}
    empty = [np.full(len(part[SCORE]), np.nan) for part in parts]
    return {
        name: np.concatenate([part.get(name, nothing) for part, nothing in zip(parts, empty, strict=True)])
        for name in sorted(names)
    }


def _periods_and_clusters(run: Run, responses: TableRef) -> pa.Table:
    """Of every response the group `period`, null without one, and its author, itself where not known."""
    parts = []
    for batch in run.batches(responses, ["response_id", "author_id", "groups"]):
        cluster = pc.coalesce(
            pc.if_else(pc.equal(batch["author_id"], ""), None, batch["author_id"]), batch["response_id"]
        )
        period = pc.map_lookup(batch["groups"], "period", "first")
        parts.append(pa.table({"response_id": batch["response_id"], "period": period, "cluster": cluster}))
    names = ("response_id", "period", "cluster")
    return pa.concat_tables([_empty(names), *parts], promote_options="default")


def _empty(names: Sequence[str]) -> pa.Table:
    """No rows of columns of texts."""
    return pa.table({name: pa.array([], pa.string()) for name in names})
