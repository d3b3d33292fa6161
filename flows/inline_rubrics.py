"""Questions with plain weighted criteria, made ready for rollouts: locked, with a graph by the embedded annotator."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.prepared import PreparedItem, prepared_items
from flows.rollouts import StudyGraphs
from tasks.contracts.bundle import Bundle, Criterion, Rubric, Scale, Trait
from tasks.contracts.errors import InputError
from tasks.contracts.graph import Graph
from tasks.contracts.settings.graph import Graphs
from tasks.contracts.settings.judge import Judge
from tasks.contracts.settings.reward import Reward
from tasks.graph.annotator import Annotator
from tasks.graph.build import build
from tasks.graph.heuristic import rules_of_thumb
from tasks.graph.subject import subjects
from tasks.llm.stores import open_replies
from tasks.lock.lock import lock
from tasks.lock.rubric import broken
from tasks.serve.listed import ListedItem

_STEP = 0.01
"""Of the scale that a bundle has to have; no reward depends on it."""


class InlineRubrics:
    """Prepares listed items. Threads may ask at once; what was made of a rubric before is read from the reply store."""

    def __init__(self, judge: Judge, settings: Reward, criteria_per_call: int | None, replies: Path | str) -> None:
        self._judge, self._settings = judge, settings
        self._criteria_per_call, self._replies = criteria_per_call, replies
        self._lock = threading.Lock()

    def drawn(self, items: Sequence[ListedItem]) -> StudyGraphs:
        """Their rows, bundles and graphs. InputError for a rubric that cannot be locked, BackendError where the
        sentence encoder is not installed."""
        rows = [_row(item) for item in items]
        bundles = {item.item_id: self._bundle(item) for item in items}
        with self._lock:
            return StudyGraphs(rows, bundles, self._graphs(rows, bundles))

    def prepared(self, items: Sequence[ListedItem]) -> dict[str, PreparedItem]:
        """Item → what its rollouts are judged and rewarded by; errors as of `drawn`."""
        return prepared_items(*self.drawn(items), self._settings, self._criteria_per_call)

    def _bundle(self, item: ListedItem) -> Bundle:
        rubric = _rubric(item)
        if problem := broken(rubric):
            raise InputError(f"the rubric of item '{item.item_id}' {problem}", field="rubric")
        return lock(rubric, self._judge.as_protocol(), evidence=self._judge.evidence)

    def _graphs(self, rows: Sequence[Mapping[str, Any]], bundles: Mapping[str, Bundle]) -> dict[str, Graph]:
        with open_replies(self._replies) as replies:
            annotator = Annotator(rules_of_thumb(), replies, Graphs())
            built = build(subjects(rows, bundles), {}, [], annotator)
        return {graph.draft.subject.rubric_id: graph.graph for graph in built}


def _row(item: ListedItem) -> dict[str, Any]:
    """The item as a row of the table `items`; it has a rubric of its own."""
    return {"item_id": item.item_id, "rubric_id": item.item_id, "question": item.question, "context": item.context}


def _rubric(item: ListedItem) -> Rubric:
    criteria = tuple(
        Criterion(
            id=f"C{number}",
            trait="content",
            text=criterion.text,
            kind="criterion",
            weight=criterion.weight,
            evidence="weakly_groundable",
        )
        for number, criterion in enumerate(item.criteria, 1)
    )
    return Rubric(
        rubric_id=item.item_id,
        title=item.question[:200],
        text="",
        scale=Scale(min=0, max=1, step=_STEP),
        traits=(Trait(id="content", name="Content", min=0, max=1, step=_STEP),),
        criteria=criteria,
    )
