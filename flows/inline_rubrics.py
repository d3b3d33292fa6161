"""Questions with plain weighted criteria, made ready for rollouts: locked, with a graph by the embedded annotator."""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any

from rubricflow.flows.batch import PreparedItem, StudyGraphs, prepared_items
from rubricflow.tasks.core.contracts.bundle import Bundle, Criterion, Rubric, Scale, Trait
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.reward import Graphs, Reward
from rubricflow.tasks.core.llm.reply_store import open_replies
from rubricflow.tasks.grading.lock.bundles import lock
from rubricflow.tasks.grading.lock.rubric import broken
from rubricflow.tasks.rewards.graph.annotator import Annotator
from rubricflow.tasks.rewards.graph.build import build
from rubricflow.tasks.rewards.graph.heuristic import rules_of_thumb
from rubricflow.tasks.rewards.graph.subject import subjects
from rubricflow.tasks.rewards.serve.sent import MOST_CRITERIA, ListedItem

MOST_KEPT = 10_000
"""Items that came with rollouts and are kept ready; the one not asked for longest goes first."""
_STEP = 0.01
"""Of the scale that a bundle has to have; no reward depends on it."""


class InlineRubrics:
    """Prepares listed items. Threads may ask at once; what was made of a rubric before is read from the reply store."""

    def __init__(self, judge: Judge, settings: Reward, criteria_per_call: int | None, replies: Path | str) -> None:
        self._judge, self._settings = judge, settings
        self._criteria_per_call, self._replies = criteria_per_call, replies
        self._lock = threading.Lock()
        self._wanted: queue.PriorityQueue[tuple[int, int, ListedItem]] = queue.PriorityQueue()
        self._number = count()
        self._thread: threading.Thread | None = None
        self._ready: OrderedDict[str, Future[PreparedItem]] = OrderedDict()
        self._until: dict[str, float] = {}
        self.keep: Callable[[Mapping[str, Bundle]], None] = lambda bundles: None
        """Is told of the rubrics that were prepared, before anybody gets them."""

    def study_graphs(self, items: Sequence[ListedItem]) -> StudyGraphs:
        """Their rows, each with a rubric of its own, bundles and graphs. InputError for a rubric that cannot be locked,
        BackendError where the sentence encoder is not installed."""
        rows: list[dict[str, Any]] = [
            {"item_id": item.item_id, "rubric_id": item.item_id, "question": item.question, "context": item.context}
            for item in items
        ]
        bundles = {item.item_id: self._bundle(item) for item in items}
        with open_replies(self._replies) as replies:
            annotator = Annotator(rules_of_thumb(), replies, Graphs())
            built = build(subjects(rows, bundles), {}, [], annotator)
        return StudyGraphs(rows, bundles, {graph.draft.subject.rubric_id: graph.graph for graph in built})

    def prepared(self, items: Sequence[ListedItem]) -> dict[str, PreparedItem]:
        """Item → what its rollouts are judged and rewarded by; errors as of `study_graphs`."""
        return prepared_items(*self.study_graphs(items), self._settings, self._criteria_per_call)

    def asked(self, item: ListedItem, until: float) -> Future[PreparedItem]:
        """An item to come; InputError where its rubric cannot be locked.

        A thread prepares one after the other, the smallest rubrics first, so that a wide one does not hold up narrow
        ones. What nobody waits for any more, by the time of `time.monotonic`, is cancelled.
        """
        key = item.item_id
        with self._lock:
            self._until[key] = max(until, self._until.get(key, until))
            known = self._ready.get(key)
            if known and not (known.cancelled() or (known.done() and known.exception())):
                self._ready.move_to_end(key)
                return known
        self._bundle(item)
        with self._lock:
            future = self._ready[key] = Future[PreparedItem]()
            while len(self._ready) > MOST_KEPT:
                self._until.pop(self._ready.popitem(last=False)[0], None)
            if self._thread is None:
                self._thread = threading.Thread(target=self._prepare, name="graphs", daemon=True)
                self._thread.start()
            self._wanted.put((len(item.criteria), next(self._number), item))
        return future

    def _prepare(self) -> None:
        """Prepares what is wanted, several small rubrics together."""
        while True:
            size, number, item = self._wanted.get()
            together = [item]
            with suppress(queue.Empty):
                while size < MOST_CRITERIA:
                    width, number, item = self._wanted.get_nowait()
                    size += width
                    if size > MOST_CRITERIA:
                        self._wanted.put((width, number, item))
                    else:
                        together.append(item)
            futures = {item.item_id: future for item in together if (future := self._still_wanted(item))}
            items = [item for item in together if item.item_id in futures]
            try:
                self._hand_out(items, futures)
            except Exception:  # of one of them: the others shall not have it
                for item in items:
                    try:
                        self._hand_out([item], futures)
                    except Exception as error:
                        if not futures[item.item_id].done():
                            futures[item.item_id].set_exception(error)

    def _still_wanted(self, item: ListedItem) -> Future[PreparedItem] | None:
        """The future of an item; None where nobody waits for it any more."""
        with self._lock:
            future = self._ready.get(item.item_id)
            if future and self._until.pop(item.item_id, inf) < monotonic():
                future.cancel()
                future.set_running_or_notify_cancel()  # who waits for it is told
                return None
        return future

    def _hand_out(self, items: Sequence[ListedItem], futures: Mapping[str, Future[PreparedItem]]) -> None:
        if not items:
            return
        prepared = self.prepared(items)
        self.keep({name: item.bundle for name, item in prepared.items()})
        for key, item in prepared.items():
            if not futures[key].done():
                futures[key].set_result(item)

    def _bundle(self, item: ListedItem) -> Bundle:
        """The item's rubric, locked. What earns needs a verified quote, unless the list says otherwise. What costs
        does not: a fault may be that something is missing, and a policy shall gain nothing by a quote that cannot be
        found."""
        criteria = tuple(
            Criterion(
                id=f"C{number}",
                trait="content",
                text=criterion.text,
                kind="criterion",
                weight=criterion.weight,
                evidence=criterion.evidence or ("local_quote" if criterion.weight > 0 else "weakly_groundable"),
            )
            for number, criterion in enumerate(item.criteria, 1)
        )
        rubric = Rubric(
            rubric_id=item.item_id,
            title=item.question[:200],
            text="",
            scale=Scale(min=0, max=1, step=_STEP),
            traits=(Trait(id="content", name="Content", min=0, max=1, step=_STEP),),
            criteria=criteria,
        )
        if problem := broken(rubric):
            raise InputError(f"the rubric of item '{item.item_id}' {problem}", field="rubric")
        return lock(rubric, self._judge.as_protocol(), evidence=self._judge.evidence)
