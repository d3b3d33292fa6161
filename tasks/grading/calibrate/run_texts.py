"""What the texts of a run's responses tell, read item by item beside its gradings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc

from rubricflow.tasks.core.contracts.bundle import Bundle
from rubricflow.tasks.core.contracts.schema import TableRef
from rubricflow.tasks.core.contracts.settings.study import Calibration
from rubricflow.tasks.core.llm.encoder import HiddenStates, minilm
from rubricflow.tasks.core.store.warehouse import Run
from rubricflow.tasks.grading.calibrate.rows import Item
from rubricflow.tasks.grading.calibrate.texts import Blocks, Readers, TextSource, text_blocks


class Texts:
    """What the texts of a study's responses tell; nothing where no mapping may take it."""

    def __init__(
        self, run: Run, plan: Calibration, items: TableRef, responses: TableRef, bundle_of: Mapping[str, Bundle]
    ) -> None:
        self._run, self._plan, self._responses, self._bundles = run, plan, responses, bundle_of
        columns = ["item_id", "question", "reference_answer", "reference_answers"]
        self._items = {row["item_id"]: row for row in run.read(items, columns).to_pylist()}

    @cached_property
    def _readers(self) -> Readers:
        """Loaded where the first text is to be read."""
        return Readers(
            encode=minilm() if "embedding" in self._plan.texts else None,
            hidden=HiddenStates(self._plan.language_model) if self._plan.language_model else None,
        )

    @property
    def encoder(self) -> str | None:
        """What encodes the texts, and how; None where no mapping takes an embedding."""
        return minilm().made if "embedding" in self._plan.texts else None

    def beside(self, items: Sequence[Item]) -> list[Item]:
        """The items with a row of every block for each of their rows."""
        if not self._plan.texts or not any(len(item.rows) for item in items):
            return [*items]
        answers = self.read(items)
        return [self.with_blocks(item, answers) for item in items]

    def read(self, items: Sequence[Item]) -> pa.Table:
        """Columns `response_id` and `text` of the items' responses."""
        ids = [chunk for item in items for chunk in item.rows["response_id"].chunks]
        if not ids:
            return pa.table({name: pa.array([], pa.string()) for name in ("response_id", "text")})
        return self._run.read(self._responses, ["response_id", "text"], among(pa.chunked_array(ids)))

    def with_blocks(self, item: Item, answers: pa.Table) -> Item:
        """The item with its blocks; answers: its responses' texts, as `read` gives them, others among them."""
        return item._replace(blocks=self._blocks(item, answers))

    def _blocks(self, item: Item, texts: pa.Table) -> Blocks:
        at = pc.index_in(item.rows["response_id"], value_set=texts["response_id"])
        asked = self._items[item.item_id]
        source = TextSource(
            texts=texts["text"].take(at).to_pylist(),
            question=asked["question"],
            reference=asked["reference_answer"] or "\n".join(asked["reference_answers"] or ()),
            rubric=self._bundles[item.item_id].text,
        )
        return text_blocks(source, self._plan.texts, self._readers)


def among(response_ids: pa.ChunkedArray) -> pc.Expression:
    """Whether a row is about one of these responses."""
    return pc.field("response_id").isin(response_ids.combine_chunks())
